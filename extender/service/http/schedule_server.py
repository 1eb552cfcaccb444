"""The listener for controllers in other pods: ``POST /v1/schedule``, and what ``/state.json`` has
of one pool.

The extender's own listener stays on loopback, because a client that reaches its bind verb can bind
pods. This one serves nothing else, always by TLS, to the callers of ``callers``. Its connections,
bodies and requests have limits of their own, so callers take nothing from kube-scheduler.

.. code-block:: text

    POST /v1/schedule          see ``schedule``
    GET  /state.json?pool=K    {"pools": [the pool with POOL_FIELDS]}
    GET  /state.json?vpod=K    {"pools": [{"name": ..}, ..]}: the pools that know the vpod

No replica forwards a request. One that does not lead answers 503, and the caller asks the next one.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

import orjson
from aiohttp import web

from extender.config.model import Config
from extender.kube.serving.browsers import Sites, only_own_site
from extender.kube.serving.guard import CUT_REASONS, ConnectionLimits
from extender.kube.serving.listener import Listener
from extender.kube.serving.readers import Sending, SharedAnswers, TooManyAsk, ask_again, in_steps
from extender.kube.serving.sockets import host_port
from extender.kube.serving.tls import ServingCertificate
from extender.kube.token_review import TokenReviews
from extender.service.http.callers import REFUSALS, Callers
from extender.service.http.describe import StateQuery
from extender.service.http.health import Health
from extender.service.http.overload import SCHEDULE, Gate, VerbLimits
from extender.service.http.tls import files_of
from extender.service.http.verb_handlers import Verb, VerbHandlers, text_answer
from extender.telemetry.exposition import Label
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

DRAIN_TIMEOUT_S: Final = 5.0
CONNECTIONS: Final = ConnectionLimits(
    connections_max=500, receive_bytes=16 * 1024, unserved_bytes_max=8 * 1024 * 1024
)
"""The port is open to the cluster, as the webhook's."""
BODIES_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of all bodies that are being read or worked on."""
POOL_FIELDS: Final = (
    *("name", "found", "statefulSet", "capacity", "minPods", "minPodsPerVPod", "replicas"),
    *("lastOrdinal", "podsNotListed", "vpodsNotListed"),
)
POD_FIELDS: Final = ("name", "freeSlots", "schedulable", "placements")

StateSteps = Callable[[StateQuery], Generator[None, None, dict[str, Any]]]


class ScheduleServer:
    """Serves on ``config.schedule.host:port`` from ``start`` to ``stop``."""

    def __init__(
        self,
        config: Config,
        schedule: Verb,
        *,
        state_steps: StateSteps,
        reviews: TokenReviews,
        health: Health,
        metrics: Metrics,
    ) -> None:
        self._config = config.schedule
        self._schedule = schedule
        self._health = health
        self._listener = Listener(CONNECTIONS)
        self._sending = Sending()
        self._reviews = reviews
        self._state = SharedAnswers[StateQuery](
            lambda query: _state_of(query, state_steps), general=StateQuery()
        )
        self.callers = Callers(config.schedule, reviews)
        self.handlers = VerbHandlers(
            self._listener,
            health,
            metrics,
            deadline_s=config.server.deadline_s,
            requests={SCHEDULE: 0},
        )
        self.handlers.gate = Gate(VerbLimits(bodies_bytes_max=BODIES_BYTES_MAX))
        self.certificate: ServingCertificate | None = None
        self._reloading: asyncio.Task[None] | None = None
        self.url = ""
        self._add_metrics(metrics)

    async def start(self) -> None:
        """Listen. Raises OSError if the port is taken or a file cannot be read, ssl.SSLError if a
        certificate does not load.
        """
        files = files_of(self._config.tls)
        assert files is not None, "see config.rules"
        self.certificate = certificate = ServingCertificate(files)
        certificate.load()
        app = web.Application(
            middlewares=[
                only_own_site(lambda: Sites(checks_host=False)),
                self.callers.only_allowed,
            ]
        )
        app.router.add_post("/v1/schedule", self.handlers.of(SCHEDULE, self._schedule))
        app.router.add_get("/state.json", self._render_state)
        config = self._config
        port = await self._listener.start(app, config.host, config.port, tls=certificate.context)
        self.url = f"https://{host_port(config.host, port)}"
        self._reloading = asyncio.create_task(certificate.run(), name="certificate reload")

    def reconfigure(self, config: Config) -> None:
        """Use these lists of callers and this deadline from now on."""
        self.callers.reconfigure(config.schedule)
        self.handlers.deadline_s = config.server.deadline_s

    async def stop(self) -> None:
        """Let running requests end, for at most ``DRAIN_TIMEOUT_S``, and close."""
        if not await self.handlers.gate.drained(DRAIN_TIMEOUT_S):
            log.warning("requests of callers still run after %g s", DRAIN_TIMEOUT_S)
        if self._reloading is not None:
            self._reloading.cancel()
        await self._listener.stop()

    def expiry(self) -> Mapping[str, float]:
        """When the serving certificate and the last client CA end, epoch seconds."""
        ends = self.certificate.expiry() if self.certificate is not None else {}
        return {f"schedule_{name}": end for name, end in ends.items()}

    async def _render_state(self, request: web.Request) -> web.StreamResponse:
        if problem := self._health.refusal():
            return ask_again(problem)
        try:
            query = StateQuery.of(request.query)
        except ValueError as error:
            return text_answer(request, 400, str(error))
        if bool(query.pool) == bool(query.vpod):
            return text_answer(request, 400, "ask for one of ?pool=KEY and ?vpod=KEY")
        try:
            body = await self._state.get(query)
        except TooManyAsk as error:
            return ask_again(str(error))
        answer = web.Response(body=body, content_type="application/json")
        return await self._sending.send(request, answer)

    def _add_metrics(self, metrics: Metrics) -> None:
        listener = self._listener
        metrics.gauge(
            "schedule_connections",
            "Open connections of the listener for controllers",
            None,
            lambda: float(listener.connections),
        )
        metrics.counter(
            "schedule_connections_cut",
            "Connections of the listener for controllers that were cut, by reason",
            Label("reason", CUT_REASONS),
            lambda: listener.cut,
        )
        metrics.counter(
            "schedule_callers_refused",
            "Requests of the listener for controllers refused for their caller, by reason",
            Label("reason", REFUSALS),
            lambda: self.callers.refused,
        )
        metrics.counter(
            "token_reviews",
            "TokenReviews sent to the API server",
            None,
            lambda: float(self._reviews.sent),
        )


async def _state_of(query: StateQuery, state_steps: StateSteps) -> bytes:
    pools = (await in_steps(state_steps(query)))["pools"]
    if query.vpod:
        return orjson.dumps({"pools": [{"name": pool["name"]} for pool in pools]})
    return orjson.dumps({"pools": [_pool(pool) for pool in pools]})


def _pool(pool: Mapping[str, Any]) -> dict[str, object]:
    return {
        **{name: pool[name] for name in POOL_FIELDS},
        "podList": [{name: pod[name] for name in POD_FIELDS} for pod in pool["podList"]],
        "vpodList": [{"name": vpod["name"]} for vpod in pool["vpodList"]],
    }
