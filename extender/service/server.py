"""The extender's HTTP server: verbs, ``/v1/schedule``, health, metrics and state (aiohttp).

Every verb has a body limit, a deadline below kube-scheduler's httpTimeout, and a bound on how many run at once: over it
the answer is a quick 503, which kube-scheduler retries, instead of a queue that makes every answer late. Until the
caches are synced every verb answers 503 too: an answer from half a picture would be a wrong one.
A body that does not say it is JSON is refused: a page in a browser beside us could post any other kind to loopback.
Idle connections are kept for longer than the 90 s after which Go's client closes them itself.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import orjson
from aiohttp import web

from extender.core.errors import WireError
from extender.core.wire import BODY_BYTES_MAX
from extender.metrics import Metrics
from extender.service.config import ServerConfig
from extender.service.schedule import ScheduleRefused
from extender.service.verbs import ERROR, ExtenderVerbs

log: Final = logging.getLogger(__name__)

KEEPALIVE_TIMEOUT_S: Final = 130.0
VERBS_IN_FLIGHT_MAX: Final = 256
SHUTDOWN_TIMEOUT_S: Final = 10.0

Verb = Callable[[bytes], Awaitable[tuple[bytes, str]]]


class Health:
    """What the probes answer. ``ready`` gives the reasons why not, none when ready."""

    def __init__(self, not_ready: Callable[[], list[str]]) -> None:
        self._not_ready = not_ready
        self.stopping = False

    def problems(self) -> list[str]:
        """Why requests should not be sent here."""
        return ["shutting down"] if self.stopping else self._not_ready()


class ExtenderServer:
    """Serves on ``config.host:port`` (port 0: any free one) between ``start`` and ``stop``."""

    def __init__(
        self,
        config: ServerConfig,
        verbs: ExtenderVerbs,
        *,
        health: Health,
        metrics: Metrics,
        describe_state: Callable[[Mapping[str, str]], dict[str, object]],
        schedule: Verb | None = None,
    ) -> None:
        self._config = config
        self._schedule = schedule
        self._verbs = verbs
        self._health = health
        self._metrics = metrics
        self._describe_state = describe_state
        self._in_flight = 0
        self._runner: web.AppRunner | None = None
        self.requests: dict[str, int] = {"filter": 0, "prioritize": 0, "bind": 0, "preempt": 0}
        """Requests received, by verb."""
        self.url = ""

    async def start(self) -> None:
        """Listen. Raises OSError where the port is taken, ssl.SSLError for certificates that do not load."""
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_post("/v1/filter", self._handler("filter", _at_once(self._verbs.filter)))
        app.router.add_post("/v1/prioritize", self._handler("prioritize", _at_once(self._verbs.prioritize)))
        app.router.add_post("/v1/preempt", self._handler("preempt", _at_once(self._verbs.preempt)))
        app.router.add_post("/v1/bind", self._handler("bind", self._verbs.bind))
        if self._schedule is not None:
            app.router.add_post("/v1/schedule", self._handler("schedule", self._schedule))
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/healthz", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._render_metrics)
        app.router.add_get("/state.json", self._render_state)
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=KEEPALIVE_TIMEOUT_S, shutdown_timeout=SHUTDOWN_TIMEOUT_S
        )
        await self._runner.setup()
        context = tls_context(self._config)
        site = web.TCPSite(self._runner, self._config.host, self._config.port, ssl_context=context)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if context else 'http'}://{self._config.host}:{port}"

    async def stop(self) -> None:
        """Refuse what is new, let what runs finish (``SHUTDOWN_TIMEOUT_S`` at most), close."""
        self._health.stopping = True
        if self._runner is not None:
            await self._runner.cleanup()

    def _handler(self, name: str, verb: Verb) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            self.requests[name] = self.requests.get(name, 0) + 1
            problems = self._health.problems()
            if problems or self._in_flight >= VERBS_IN_FLIGHT_MAX:
                return _text(503, problems[0] if problems else "too many requests at once; try again")
            if request.content_type != "application/json":
                return _text(415, "the body must be application/json")
            loop = asyncio.get_running_loop()
            started, status = loop.time(), ERROR
            self._in_flight += 1
            try:
                async with asyncio.timeout(self._config.deadline_s):
                    body, status = await verb(await request.read())
                return web.Response(body=body, content_type="application/json")
            except WireError as error:
                return _text(error.status, str(error), _retry_after(error))
            except web.HTTPRequestEntityTooLarge:
                return _text(413, f"the body is larger than {BODY_BYTES_MAX} bytes")
            except TimeoutError:
                return _text(504, f"not answered within {self._config.deadline_s:g} s")
            finally:
                self._in_flight -= 1
                self._metrics.verb(name, status, loop.time() - started)

        return handle

    async def _livez(self, _request: web.Request) -> web.Response:
        return _text(200, "ok")

    async def _readyz(self, _request: web.Request) -> web.Response:
        problems = self._health.problems()
        return _text(503, "\n".join(problems)) if problems else _text(200, "ok")

    async def _render_metrics(self, _request: web.Request) -> web.Response:
        body = self._metrics.render()
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _render_state(self, request: web.Request) -> web.Response:
        body = orjson.dumps(self._describe_state(request.query))
        return web.Response(body=body, content_type="application/json")


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """TLS 1.2 or later, with client certificates required where a CA for them is configured."""
    tls = config.tls
    if not tls.cert_file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.cert_file, tls.key_file)
    if tls.client_ca_file:
        context.load_verify_locations(tls.client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _at_once(verb: Callable[[bytes], tuple[bytes, str]]) -> Verb:
    async def run(body: bytes) -> tuple[bytes, str]:
        return verb(body)

    return run


def _retry_after(error: WireError) -> dict[str, str]:
    if isinstance(error, ScheduleRefused) and error.retry_after_s is not None:
        return {"Retry-After": str(error.retry_after_s)}
    return {}


def _text(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=text + "\n", headers=headers)
