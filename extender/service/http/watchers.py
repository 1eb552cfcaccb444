"""``Watchers``: what a replica answers to ``vreplica record`` and ``vreplica top``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from extender.service.http.decision_log import DecisionLog, new_header
from extender.service.http.overview import ChangeCounts, OverviewAnswer
from extender.service.placing.placer import Placer
from extender.service.pools.load_reports import LoadReports
from extender.service.watching.caches import Caches


@dataclass(frozen=True, slots=True)
class Whoami:
    """A replica's own description. ``leader``: who leads the first bucket, as far as known.
    ``shadow``: whether it writes nothing.
    """

    identity: str
    leader: Callable[[], str]
    leading: Callable[[], bool]
    shadow: bool


class Watchers:
    """Answers ``/v1/decisions`` and ``/v1/overview``. ``routes``: for
    ``ExtenderServer.questions``.
    """

    def __init__(
        self,
        caches: Caches,
        placer: Placer,
        *,
        whoami: Whoami,
        now: Callable[[], float],
        refusal: Callable[[], str],
        load: LoadReports,
    ) -> None:
        self._load = load
        self._whoami = whoami
        self._counts = ChangeCounts(caches)
        self.decision_log = DecisionLog(
            caches.state,
            now=now,
            header=lambda: new_header(
                whoami.identity, whoami.leader(), caches.state, shadow=whoami.shadow
            ),
            refusal=refusal,
        )
        placer.on_decided = self.decision_log.decided
        overview = OverviewAnswer(caches.state, now=now, more=self._describe, refusal=refusal)
        self.routes = (self.decision_log.add_routes, overview.add_routes)

    def close(self) -> None:
        """Stop recording."""
        self.decision_log.close()

    def _describe(self) -> Mapping[str, object]:
        return {
            "identity": self._whoami.identity,
            "leader": self._whoami.leader(),
            "leading": self._whoami.leading(),
            "shadow": self._whoami.shadow,
            **({"load": load} if (load := self._load.of_pools()) else {}),
            "counters": {"decisions": self.decision_log.decisions, **self._counts.to_json()},
        }
