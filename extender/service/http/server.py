"""The extender's HTTP server: verbs, ``/v1/schedule``, health, metrics and state (aiohttp).

Every verb has a body limit, a deadline below kube-scheduler's httpTimeout, and a limit of requests
at once (``overload``). Over that limit the answer is a quick 503, which kube-scheduler retries. The
listener handles slow and idle connections (``kube.serving.listener``), and ``tls`` decides who may
connect. Until the caches are synced every verb answers 503, because an answer from an incomplete
state would be wrong.

A bind that misses its deadline gets 200 with ``Error``, because kube-scheduler ignores the text of
a 504. Any other verb gets a 504. (filter, prioritize and preempt never wait after their body is
read, so in practice only ``/v1/schedule`` does.) If the body is what was late, any verb gets a 408.
A body that is not declared as JSON is refused, because a web page in a browser on this host could
post any other type to loopback. A request that the browser marks as another site's is refused on
every route (``kube.serving.browsers``).

To stop, the server first makes ``/readyz`` fail. For ``shutdown_delay_s`` it still answers verbs,
so that a Service's endpoints can drop this replica. Then it refuses new requests, finishes those in
flight (for at most ``DRAIN_TIMEOUT_S``), and closes the sockets.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from extender.config.model import LOOPBACK, ServerConfig
from extender.kube.serving.browsers import Sites, only_own_site
from extender.kube.serving.guard import CUT_REASONS
from extender.kube.serving.listener import Listener
from extender.kube.serving.readers import (
    Sending,
    SharedAnswers,
    TooManyAsk,
    ask_again,
    in_steps,
)
from extender.kube.serving.sockets import host_port
from extender.kube.serving.tls import ServingCertificate
from extender.service.binding.verbs import ExtenderVerbs
from extender.service.http.describe import StateQuery
from extender.service.http.health import Health
from extender.service.http.overload import (
    BIND,
    FILTER,
    LOAD,
    PREEMPT,
    PRIORITIZE,
    SCHEDULE,
    Gate,
)
from extender.service.http.tls import ClientExpiry, files_of, is_allowed
from extender.service.http.verb_handlers import Verb, VerbHandlers, text_answer
from extender.telemetry.exposition import CONTENT_TYPE, Label
from extender.telemetry.metrics import VERB_VALUES, Metrics

log: Final = logging.getLogger(__name__)

DRAIN_TIMEOUT_S: Final = 10.0
"""Longer than any deadline that kube-scheduler's default httpTimeout allows."""

VERB_PATHS: Final = frozenset(
    f"/v1/{name}" for name in (FILTER, PRIORITIZE, PREEMPT, BIND, SCHEDULE, LOAD)
)
"""Answers to these are not sent through ``Sending``: few are in flight (``overload``)."""
CERTIFICATES: Final = (
    *("serving", "client_ca", "schedule_serving", "schedule_client_ca", "adapters_serving"),
)
"""Values of the label ``certificate`` of ``certificate_expiry_timestamp_seconds``. The last three
are those of ``ScheduleServer`` and ``AdapterServer``.
"""
LINKS: Final = frozenset({"/ui", "/ui/"})
"""Links on other sites may lead to the page."""


class ExtenderServer:
    """Serves on ``config.host:port`` (port 0: any free one) from ``start`` to ``stop``."""

    def __init__(  # noqa: PLR0913 (each is a different collaborator)
        self,
        config: ServerConfig,
        verbs: ExtenderVerbs,
        *,
        health: Health,
        metrics: Metrics,
        state_steps: Callable[[StateQuery], Generator[None, None, dict[str, object]]],
        schedule: Verb | None = None,
        load: Verb | None = None,
        questions: Iterable[Callable[[web.Application], None]] = (),
    ) -> None:
        """``questions``: each adds read-only routes for people when the server starts, on the same
        listener with the same access rules.
        """
        self._config = config
        self._schedule = schedule
        self._load = load
        self._verbs = verbs
        self._health = health
        self._metrics = metrics
        self._state = SharedAnswers[StateQuery](
            lambda query: self._encoded_state(state_steps(query)), general=StateQuery()
        )
        self._metrics_page = SharedAnswers[None](self._rendered_metrics, general=None)
        self.sending = Sending()
        """Long answers being sent."""
        self._sending_metrics = Sending()
        """Separate, so that readers of metrics and of other answers do not block each other."""
        self._listener = Listener()
        self._health_listener = Listener()
        self.certificate: ServingCertificate | None = None
        """The serving certificate, after a start with TLS."""
        self._clients = ClientExpiry()
        self._reloading: asyncio.Task[None] | None = None
        self._questions = tuple(questions)
        self.requests: dict[str, int] = {FILTER: 0, PRIORITIZE: 0, BIND: 0, PREEMPT: 0}
        """Requests received, by verb."""
        self.handlers = VerbHandlers(
            self._listener,
            health,
            metrics,
            deadline_s=config.deadline_s,
            requests=self.requests,
        )
        self.more_expiry: list[Callable[[], Mapping[str, float]]] = []
        """When certificates of other listeners end, epoch seconds, by ``CERTIFICATES``."""
        self.url = ""
        self.health_url = ""
        """Of the listener that serves only health, and metrics if they are configured; "" without
        one.
        """
        self._add_metrics()

    @property
    def gate(self) -> Gate:
        """The limits of this listener's verbs."""
        return self.handlers.gate

    async def start(self) -> None:
        """Listen. Raises OSError if the port is taken, ssl.SSLError if a certificate does not
        load.
        """
        config = self._config
        files = files_of(config.tls)
        self.certificate = certificate = ServingCertificate(files) if files else None
        if certificate is not None:
            certificate.load()
        if certificate is None and config.host not in LOOPBACK:
            log.warning(
                "INSECURE: the extender is served without TLS on %s: whoever reaches it may bind "
                "pods",
                config.host,
            )
        app = self._application()
        app.middlewares.append(only_own_site(self._sites))
        app.middlewares.append(self._only_allowed_clients)
        app.middlewares.append(self._send_in_bounds)
        context = certificate.context if certificate else None
        port = await self._listener.start(app, config.host, config.port, tls=context)
        self.url = f"{'https' if context else 'http'}://{host_port(config.host, port)}"
        if certificate is not None:
            self._reloading = asyncio.create_task(certificate.run(), name="certificate reload")
        if config.health_port:
            health = web.Application(
                middlewares=[only_own_site(self._health_sites), self._send_in_bounds]
            )
            self._add_health(health)
            if config.health_metrics:
                self._add_metrics_page(health)
            port = await self._health_listener.start(
                health, config.health_host, config.health_port, tls=None
            )
            self.health_url = f"http://{host_port(config.health_host, port)}"

    def reconfigure(self, config: ServerConfig) -> None:
        """Use these settings from now on. Address, port and files stay as they were at the
        start.
        """
        self._config = config
        self.handlers.deadline_s = config.deadline_s

    async def stop(self) -> None:
        """Become unready, refuse new requests after the delay, let the running ones finish for at
        most ``DRAIN_TIMEOUT_S``, and close.
        """
        self._health.stopping = True
        if self.url and self._config.shutdown_delay_s:
            await asyncio.sleep(self._config.shutdown_delay_s)
        self._health.draining = True
        if not await self.gate.drained(DRAIN_TIMEOUT_S):
            log.warning(
                "requests still run after %g s: %s", DRAIN_TIMEOUT_S, dict(+self.gate.in_flight)
            )
        if self._reloading is not None:
            self._reloading.cancel()
        await self._listener.stop()
        await self._health_listener.stop()

    def _sites(self) -> Sites:
        return Sites(
            checks_host=self.certificate is None,
            hosts=self._config.allowed_hosts,
            links=LINKS,
        )

    def _health_sites(self) -> Sites:
        # Beyond loopback, scrapers may use any host name.
        return Sites(
            checks_host=self._config.health_host in LOOPBACK, hosts=self._config.allowed_hosts
        )

    def _application(self) -> web.Application:
        app = web.Application()
        for name, verb in (
            (FILTER, _at_once(self._verbs.filter)),
            (PRIORITIZE, _at_once(self._verbs.prioritize)),
            (PREEMPT, _at_once(self._verbs.preempt)),
            (BIND, self._verbs.bind),
            (SCHEDULE, self._schedule),
            (LOAD, self._load),
        ):
            if verb is not None:
                app.router.add_post(f"/v1/{name}", self.handlers.of(name, verb))
        self._add_health(app)
        self._add_metrics_page(app)
        app.router.add_get("/state.json", self._render_state)
        for add_routes in self._questions:
            add_routes(app)
        return app

    def _add_health(self, app: web.Application) -> None:
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/healthz", self._livez)
        app.router.add_get("/readyz", self._readyz)

    def _add_metrics_page(self, app: web.Application) -> None:
        app.router.add_get("/metrics", self._render_metrics)

    @web.middleware
    async def _only_allowed_clients(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        tls = self._config.tls
        if tls.client_ca_file:
            certificate = request.get_extra_info("peercert")
            if not is_allowed(certificate, tls):
                return text_answer(
                    request,
                    403,
                    "the name in the client certificate is not in server.tls.allowedClients",
                )
            self._clients.note(certificate, tls)
        return await handler(request)

    async def _livez(self, request: web.Request) -> web.Response:
        return text_answer(request, 200, "ok")

    async def _readyz(self, request: web.Request) -> web.Response:
        problems = self._health.problems()
        return text_answer(request, 503 if problems else 200, "\n".join(problems) or "ok")

    @web.middleware
    async def _send_in_bounds(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Send answers within the limits for slow readers. Verbs are exempt (``VERB_PATHS``)."""
        answer = await handler(request)
        if request.path in VERB_PATHS:
            return answer
        sending = self._sending_metrics if request.path == "/metrics" else self.sending
        return await sending.send(request, answer)

    async def _render_metrics(self, _request: web.Request) -> web.Response:
        try:
            body = await self._metrics_page.get(None)
        except TooManyAsk as error:
            return ask_again(str(error))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _rendered_metrics(self, _: None) -> bytes:
        return self._metrics.render()

    async def _render_state(self, request: web.Request) -> web.Response:
        try:
            body = await self._state.get(StateQuery.of(request.query))
        except TooManyAsk as error:
            return ask_again(str(error))
        except ValueError as error:
            return text_answer(request, 400, str(error))
        return web.Response(body=body, content_type="application/json")

    async def _encoded_state(self, steps: Generator[None, None, dict[str, object]]) -> bytes:
        return orjson.dumps(await in_steps(steps))

    def _expiry(self) -> Mapping[str, float]:
        own = [self.certificate.expiry] if self.certificate is not None else []
        return {name: end for ends in (*own, *self.more_expiry) for name, end in ends().items()}

    def _add_metrics(self) -> None:
        metrics, listener = self._metrics, self._listener
        metrics.gauge("connections", "Open connections", None, lambda: float(listener.connections))
        metrics.gauge(
            "requests_in_flight",
            "Requests being answered, by verb",
            Label("verb", VERB_VALUES),
            lambda: self.gate.in_flight,
        )
        metrics.gauge(
            "request_bodies_arriving",
            "Request bodies that are waited for",
            None,
            lambda: float(self.gate.bodies.arriving),
        )
        metrics.gauge(
            "request_bodies_bytes",
            "Bytes of request bodies in memory",
            None,
            lambda: float(self.gate.bodies.bytes_used),
        )
        metrics.counter(
            "requests_turned_away",
            "Requests answered 503 for being too many or too large together, by verb",
            Label("verb", VERB_VALUES),
            lambda: self.gate.refused,
        )
        metrics.counter(
            "connections_cut",
            "Connections cut, by reason",
            Label("reason", CUT_REASONS),
            lambda: listener.cut,
        )
        metrics.gauge(
            "certificate_expiry_timestamp_seconds",
            "When a certificate in use ends, by what it is for",
            Label("certificate", CERTIFICATES),
            self._expiry,
        )
        metrics.gauge(
            "client_certificate_expiry_timestamp_seconds",
            "When the certificate ends that an allowed client came with last, by its name in "
            "allowedClients",
            Label(
                "client", description="names in server.tls.allowedClients, 100 at the most, or `*`"
            ),
            lambda: self._clients.not_after,
        )


def _at_once(verb: Callable[[bytes], tuple[bytes, str]]) -> Verb:
    async def run(body: bytes) -> tuple[bytes, str]:
        return verb(body)

    return run
