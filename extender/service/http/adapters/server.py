"""The listener for adapters, and for those who route to them: what an adapter pod is told, what it
says of it, and where a vpod's work is.

It is off by default, always serves by TLS, and has connections, bodies and requests of its own. The
listener for controllers (``schedule_server``) has a few callers that the configuration names; here
every adapter pod may call, for itself (``callers``). Any replica answers.

.. code-block:: text

    GET  /v1/assignment                    see ``assignments``
    POST /v1/acknowledge                   see ``acknowledge``
    GET  /v1/placements/NAMESPACE/NAME     see ``placements``
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiohttp import web

from extender.config.model import Config
from extender.kube.serving.guard import ConnectionLimits
from extender.kube.serving.tls import CertificateFiles
from extender.kube.token_review import TokenReviews
from extender.service.http.adapters import assignments, placements
from extender.service.http.adapters.acknowledge import OUTCOME_VALUES, OUTCOMES, AcknowledgeVerb
from extender.service.http.adapters.assignments import AssignmentAnswers
from extender.service.http.adapters.callers import CALLER, PLACEMENTS_ONLY, AdapterCallers
from extender.service.http.adapters.placements import (
    PlacementAnswers,
    Routable,
    SeenVersion,
    ToldIndexes,
)
from extender.service.http.adapters.streams import END_REASONS, LineStreams
from extender.service.http.health import Health
from extender.service.http.overload import ACKNOWLEDGE, VerbLimits
from extender.service.http.pods_listener import PodsListener, only_pods
from extender.service.http.verb_handlers import VerbHandlers, text_answer
from extender.service.watching.caches import Caches
from extender.telemetry.exposition import Family, Kind, Label
from extender.telemetry.metrics import Metrics

REQUESTS_MAX: Final = 1_000
"""Connections beside those of streams."""
CONNECTIONS: Final = ConnectionLimits(
    connections_max=(assignments.STREAMS_MAX + placements.STREAMS_MAX + REQUESTS_MAX),
    receive_bytes=16 * 1024,
    unserved_bytes_max=16 * 1024 * 1024,
    write_timeout_s=5.0,
)
BODIES_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of all bodies that are being read or worked on."""
STREAM_KINDS: Final = ("assignment", "placements")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterParts:
    """What the listener answers from. ``PlacementAnswers`` says what its callables are."""

    caches: Caches
    acknowledge: AcknowledgeVerb
    reviews: TokenReviews
    routable: Routable
    told_indexes: ToldIndexes
    seen_version: SeenVersion
    health: Health
    rng: random.Random


class AdapterServer:
    """Serves on ``config.adapters.host:port`` from ``start`` to ``stop``."""

    def __init__(self, config: Config, parts: AdapterParts, metrics: Metrics) -> None:
        self._config = config.adapters
        self._acknowledge_verb = parts.acknowledge
        self.listener = PodsListener("adapters", "adapters", CONNECTIONS)
        self.callers = AdapterCallers(config.adapters, parts.caches, parts.reviews, parts.health)
        self.handlers = VerbHandlers(
            self.listener.http,
            parts.health,
            metrics,
            deadline_s=config.server.deadline_s,
            requests={},
            limits=VerbLimits(bodies_bytes_max=BODIES_BYTES_MAX),
        )
        of_assignments, of_placements = (
            LineStreams(of_owner_max=of_owner, streams_max=most, rng=parts.rng)
            for of_owner, most in (
                (assignments.OF_POD_MAX, assignments.STREAMS_MAX),
                (placements.OF_CALLER_MAX, placements.STREAMS_MAX),
            )
        )
        self.streams = dict(zip(STREAM_KINDS, (of_assignments, of_placements), strict=True))
        self._assignments = AssignmentAnswers(parts.caches, self.callers, of_assignments)
        self._placements = PlacementAnswers(
            parts.caches,
            self.callers,
            of_placements,
            routable=parts.routable,
            told_indexes=parts.told_indexes,
            seen_version=parts.seen_version,
        )
        self.listener.add_metrics(metrics, lambda: self.callers.refused)
        self._add_metrics(metrics)

    async def start(self) -> None:
        """Listen. Raises what ``PodsListener.start`` raises."""
        config = self._config
        files = CertificateFiles(config.tls.cert_file, config.tls.key_file)
        await self.listener.start(self._application(), config.host, config.port, files)

    def reconfigure(self, config: Config) -> None:
        """Use this list of accounts and this deadline from now on."""
        self.callers.reconfigure(config.adapters)
        self.handlers.deadline_s = config.server.deadline_s
        for streams in self.streams.values():
            streams.all_changed()

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.listener.url

    async def stop(self) -> None:
        """End the streams, let running requests end, and close."""
        for streams in self.streams.values():
            streams.stop()
        await self.listener.stop(self.handlers.gate)

    def _application(self) -> web.Application:
        app = web.Application(middlewares=[only_pods, self.callers.only_allowed])
        app.router.add_post("/v1/acknowledge", self._acknowledge)
        app.router.add_get("/v1/assignment", self._assignments.answer, allow_head=False)
        app.router.add_get(
            "/v1/placements/{namespace}/{name}", self._placements.answer, allow_head=False
        )
        return app

    async def _acknowledge(self, request: web.Request) -> web.Response:
        answer = await self._acknowledged(request)
        if (outcome := OUTCOMES.get(answer.status)) is not None:
            self._acknowledge_verb.outcomes[outcome] += 1
        return answer

    async def _acknowledged(self, request: web.Request) -> web.Response:
        caller, verb = request[CALLER], self._acknowledge_verb
        if not caller.pod:
            return text_answer(request, 403, PLACEMENTS_ONLY)
        if wait_s := verb.wait_s(caller):
            problem = f"pod {caller.pod} acknowledges too often: wait {wait_s} s"
            return text_answer(request, 429, problem, {"Retry-After": str(wait_s)})
        return await self.handlers.of(ACKNOWLEDGE, partial(verb.acknowledge, caller))(request)

    def _add_metrics(self, metrics: Metrics) -> None:
        kind = Label("kind", STREAM_KINDS)
        metrics.gauge(
            "adapters_streams",
            "Open streams of the listener for adapters, by what they tell",
            kind,
            lambda: {name: float(streams.open) for name, streams in self.streams.items()},
        )
        metrics.read(
            Family(
                name="adapters_streams_ended",
                kind=Kind.COUNTER,
                documentation="Streams of the listener for adapters that have ended or were "
                "refused, by what they tell and why",
                labels=(kind, Label("reason", END_REASONS)),
            ),
            lambda: {
                (name, reason): float(count)
                for name, streams in self.streams.items()
                for reason, count in streams.ended.items()
            },
        )
        metrics.counter(
            "acknowledgements",
            "Acknowledgements of adapters, by what has become of them",
            Label("outcome", OUTCOME_VALUES),
            self._outcomes,
        )

    def _outcomes(self) -> Mapping[str, float]:
        return self._acknowledge_verb.outcomes
