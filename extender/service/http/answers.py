"""``Answers``: everything that a replica answers to people over HTTP: explanations and plans, its
decisions, an overview, and the page.

It only reads the state, and remembers decisions that the placer passes to it. The extender's verbs
are not here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from extender.config.model import Config, Mode
from extender.service.http.health import Health
from extender.service.http.page.routes import Page
from extender.service.http.questions import Questions
from extender.service.http.watchers import Watchers, Whoami
from extender.service.placing.handovers import HandOvers
from extender.service.placing.placer import Placer
from extender.service.pools.leadership import Leadership
from extender.service.pools.load_reports import LoadReports
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class DescribedParts:
    """The parts of a replica that the answers describe."""

    caches: Caches
    placer: Placer
    leadership: Leadership
    health: Health
    metrics: Metrics
    load: LoadReports
    hand_overs: HandOvers


class Answers:
    """Receives the placer's decisions. ``routes``: for ``ExtenderServer.questions``. ``now``: epoch
    seconds.
    """

    def __init__(self, parts: DescribedParts, config: Config, *, now: Callable[[], float]) -> None:
        caches, leadership, health = parts.caches, parts.leadership, parts.health
        identity, shadow = leadership.identity, config.mode is Mode.SHADOW
        questions = Questions(
            caches,
            history=parts.placer.history,
            refusal=health.refusal,
            who=lambda pool: {"answeredBy": identity, "leader": leadership.leader(pool)},
            load=parts.load,
            waits=parts.hand_overs.describe_waits,
            taken_back=parts.hand_overs.was_taken_back,
        )
        self.watchers = Watchers(
            caches,
            parts.placer,
            whoami=Whoami(identity, lambda: leadership.leader(""), leadership.leading, shadow),
            now=now,
            refusal=health.refusal,
            load=parts.load,
        )
        self.page = Page(
            caches.state,
            leadership,
            config,
            problems=health.problems,
            now=now,
            metrics=parts.metrics,
        )
        self.routes = (questions.add_routes, *self.watchers.routes, self.page.add_routes)

    def close(self) -> None:
        """Stop recording."""
        self.watchers.close()
