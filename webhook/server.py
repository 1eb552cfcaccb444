"""The HTTPS server: ``POST /mutate``, ``/validate`` and ``/evict``, ``GET /livez``, ``/readyz`` and
``/metrics``.

``webhook.cli`` is the program, and wires the parts. Here a request is read, decoded, decided and
answered. ``/mutate`` and ``/validate`` are decided from memory, so only the sender can be slow.
``/evict`` reads the pod from the API server, and may mark it (``webhook.evictions``).

Reading has limits: bytes of one body and of all together, time, rate, and the number of bodies that
are not whole yet. ``extender.kube.serving`` applies them: ``listener`` to slow heads, clients that
read no answers and held connections, ``bodies`` to slow bodies. The port is open to everybody, so
``readers`` makes metrics once for all who ask at the same time.

Errors are plain text with status 400 (no AdmissionReview), 408 (body too slow), 413 (body too long)
or 503 (all bodies together too large). Every AdmissionReview that can be read gets an
AdmissionReview, even before the caches are synced. A pod is then stamped with what is known, and
``/readyz`` keeps the Service from sending more reviews.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from aiohttp import web

from extender.kube.serving.bodies import (
    ArrivalLimits,
    BodiesTooLarge,
    BodyBudget,
    BodyShare,
    BodyTooLarge,
    BodyTooSlow,
)
from extender.kube.serving.guard import ConnectionLimits
from extender.kube.serving.listener import Listener, body_of
from extender.kube.serving.readers import Sending, SharedAnswers, TooManyAsk, ask_again
from extender.telemetry.exposition import CONTENT_TYPE
from extender.telemetry.logs import RateLimitFilter
from extender.telemetry.tracing import TRACEPARENT, span
from webhook import mutate, validate
from webhook.caches import WebhookCaches
from webhook.evictions import Evictions
from webhook.metrics import Metrics
from webhook.review import (
    LINES_PER_S,
    AdmissionRequest,
    ReviewError,
    Verdict,
    decode_review,
    encode_review,
)

_log: Final = logging.getLogger(__name__)
_log.addFilter(RateLimitFilter(LINES_PER_S))


CONNECTIONS: Final = ConnectionLimits(
    connections_max=500, receive_bytes=16 * 1024, shutdown_timeout_s=3.0
)
"""A TLS connection takes up to a quarter of a MiB with its buffers. Three API servers with 160
reviews each fit.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one server."""

    body_bytes_max: int = 3 * 1024 * 1024
    """The API server's own limit for a request. A review of an update holds two objects of at most
    1.5 MiB each.
    """
    deadline_s: float = 2.0
    """For reading a body. The API server gives up after 3 s (timeoutSeconds in the manifests)."""
    bodies_bytes_max: int = 32 * 1024 * 1024
    """All bodies together. The pod's memory limit is 256 MiB, and a decoded body is larger than its
    text.
    """
    arrivals: ArrivalLimits = field(default_factory=ArrivalLimits)
    connections: ConnectionLimits = CONNECTIONS


class WebhookServer:
    """The server. With ``tls`` None it serves plain HTTP, for tests. ``evictions``: what answers
    ``/evict``.
    """

    def __init__(
        self,
        caches: WebhookCaches,
        rules: validate.Rules,
        *,
        tls: ssl.SSLContext | None,
        evictions: Evictions | None = None,
        limits: Limits | None = None,
        stamp: mutate.Stamp = mutate.DEFAULT_STAMP,
    ) -> None:
        self._caches = caches
        self._rules = rules
        self._stamp = stamp
        self._evictions = evictions
        self._tls = tls
        self._limits = limits or Limits()
        self._bodies = BodyBudget(self._limits.bodies_bytes_max, self._limits.arrivals)
        self._listener = Listener(self._limits.connections)
        self.metrics = Metrics(caches)
        self._metrics_page = SharedAnswers[None](self._rendered_metrics, general=None)
        self._sending = Sending()
        self.shutting_down = False
        """Set before shutdown: ``/readyz`` fails, and reviews are still answered."""

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application()
        app.router.add_post("/mutate", self._mutate)
        app.router.add_post("/validate", self._validate)
        if self._evictions is not None:
            app.router.add_post("/evict", partial(self._review, decide=self._evictions.review))
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. The system chooses it for 0. Raises OSError."""
        return await self._listener.start(self.application(), host, port, tls=self._tls)

    async def stop(self) -> None:
        """Stop listening, answer what is in flight for at most ``shutdown_timeout_s``, close."""
        await self._listener.stop()

    # -- reviews -----------------------------------------------------------------------------------

    async def _mutate(self, http: web.Request) -> web.Response:
        async def decide(request: AdmissionRequest) -> Verdict:
            return mutate.stamp(request, self._caches, self._stamp)

        return await self._review(http, decide)

    async def _validate(self, http: web.Request) -> web.Response:
        async def decide(request: AdmissionRequest) -> Verdict:
            return validate.validate(request, self._caches, self._rules)

        return await self._review(http, decide)

    async def _review(
        self, http: web.Request, decide: Callable[[AdmissionRequest], Awaitable[Verdict]]
    ) -> web.Response:
        try:
            with (
                self._bodies.share() as share,
                span(
                    "review", traceparent=http.headers.get(TRACEPARENT, ""), path=http.path
                ) as present,
            ):
                body = await self._body(http, share)
                # uvloop's clock has steps of 1 ms, which is longer than an answer takes.
                started = time.perf_counter()
                request = decode_review(body)
                verdict = await decide(request)
                present.set("allowed", verdict.allowed)
                answer = encode_review(request.uid, verdict)
        except ReviewError as error:
            return self._refused(http, error.status, str(error))
        result = "denied" if not verdict.allowed else "patched" if verdict.patch else "allowed"
        if not verdict.allowed:
            _log.info("denied for %r: %r", request.username, verdict.message)
        self.metrics.requests.labels(http.path, result).inc()
        self.metrics.duration.labels(http.path).observe(time.perf_counter() - started)
        return web.Response(body=answer, content_type="application/json")

    async def _body(self, http: web.Request, share: BodyShare) -> bytes:
        if http.content_type != "application/json":
            raise ReviewError(
                f"Content-Type: expected application/json, not {http.content_type!r:.100}"
            )
        if "Content-Encoding" in http.headers:
            raise ReviewError(
                "Content-Encoding: expected none, the API server does not compress reviews"
            )
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                return await share.read(
                    body_of(http),
                    bytes_max=self._limits.body_bytes_max,
                    announced=http.content_length,
                )
        except TimeoutError as error:
            raise ReviewError(
                f"the body did not arrive within {self._limits.deadline_s} s", 408
            ) from error
        except BodyTooSlow as error:
            raise ReviewError(str(error), 408) from error
        except BodyTooLarge as error:
            raise ReviewError(str(error), 413) from error
        except BodiesTooLarge as error:
            raise ReviewError(str(error), 503) from error
        except (web.RequestPayloadError, ConnectionError) as error:
            raise ReviewError(f"the body is broken: {error}") from error

    def _refused(self, http: web.Request, status: int, message: str) -> web.Response:
        self.metrics.requests.labels(http.path, "refused").inc()
        _log.warning(
            "refused a request to %s from %s: %d %s", http.path, http.remote, status, message
        )
        if status == 408:
            return self._listener.too_slow(http, message)
        response = web.Response(status=status, text=message + "\n")
        if status == 503:
            response.headers["Retry-After"] = "1"
        if not http.content.is_eof():
            response.force_close()  # the rest of the body is not wanted
        return response

    # -- health ------------------------------------------------------------------------------------

    async def _livez(self, _http: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _http: web.Request) -> web.Response:
        checks = {
            **{
                f"cache {resource.plural}": cache.synced
                for resource, cache in self._caches.sinks.items()
            },
            "not shutting down": not self.shutting_down,
        }
        lines = [f"[{'+' if good else '-'}] {name}" for name, good in checks.items()]
        return web.Response(
            status=200 if all(checks.values()) else 503, text="\n".join(lines) + "\n"
        )

    async def _metrics(self, http: web.Request) -> web.StreamResponse:
        try:
            body = await self._metrics_page.get(None)
        except TooManyAsk as error:
            return ask_again(str(error))
        answer = web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
        return await self._sending.send(http, answer)

    async def _rendered_metrics(self, _: None) -> bytes:
        return self.metrics.render()
