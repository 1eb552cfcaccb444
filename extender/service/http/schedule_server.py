"""The listener for controllers in other pods: ``POST /v1/schedule``, ``POST /v1/load``, and what
``/state.json`` has of one pool.

The extender's own listener stays on loopback, because a client that reaches its bind verb can bind
pods. This one serves nothing else, always by TLS, to the callers of ``callers``. Its connections,
bodies and requests have limits of their own, so callers take nothing from kube-scheduler.

.. code-block:: text

    POST /v1/schedule          see ``schedule``
    POST /v1/load              see ``load``
    GET  /state.json?pool=K    {"pools": [the pool with POOL_FIELDS]}
    GET  /state.json?vpod=K    {"pools": [{"name": ..}, ..]}: the pools that know the vpod

No replica forwards a request. One that does not lead answers 503, and the caller asks the next one.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

import orjson
from aiohttp import web

from extender.config.model import Config
from extender.kube.serving.guard import ConnectionLimits
from extender.kube.serving.readers import Sending, SharedAnswers, TooManyAsk, ask_again, in_steps
from extender.kube.token_review import TokenReviews
from extender.service.http.callers import Callers
from extender.service.http.describe import StateQuery
from extender.service.http.health import Health
from extender.service.http.overload import LOAD, SCHEDULE, VerbLimits
from extender.service.http.pods_listener import PodsListener, only_pods
from extender.service.http.tls import files_of
from extender.service.http.verb_handlers import Verb, VerbHandlers, text_answer
from extender.telemetry.metrics import Metrics

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

    def __init__(  # noqa: PLR0913 (each is a different collaborator)
        self,
        config: Config,
        schedule: Verb,
        *,
        load: Verb | None = None,
        state_steps: StateSteps,
        reviews: TokenReviews,
        health: Health,
        metrics: Metrics,
    ) -> None:
        self._config = config.schedule
        self._schedule = schedule
        self._load = load
        self._health = health
        self.listener = PodsListener("schedule", "controllers", CONNECTIONS)
        self._sending = Sending()
        self._state = SharedAnswers[StateQuery](
            lambda query: _state_of(query, state_steps), general=StateQuery()
        )
        self.callers = Callers(config.schedule, reviews)
        self.handlers = VerbHandlers(
            self.listener.http,
            health,
            metrics,
            deadline_s=config.server.deadline_s,
            requests={},
            limits=VerbLimits(bodies_bytes_max=BODIES_BYTES_MAX),
        )
        self.listener.add_metrics(metrics, lambda: self.callers.refused)

    async def start(self) -> None:
        """Listen. Raises what ``PodsListener.start`` raises."""
        config = self._config
        files = files_of(config.tls)
        await self.listener.start(self._application(), config.host, config.port, files)

    def reconfigure(self, config: Config) -> None:
        """Use these lists of callers and this deadline from now on."""
        self.callers.reconfigure(config.schedule)
        self.handlers.deadline_s = config.server.deadline_s

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.listener.url

    async def stop(self) -> None:
        """Let running requests end, and close."""
        await self.listener.stop(self.handlers.gate)

    def _application(self) -> web.Application:
        app = web.Application(middlewares=[only_pods, self.callers.only_allowed])
        app.router.add_post("/v1/schedule", self.handlers.of(SCHEDULE, self._schedule))
        if self._load is not None:
            app.router.add_post("/v1/load", self.handlers.of(LOAD, self._load))
        app.router.add_get("/state.json", self._render_state)
        return app

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
