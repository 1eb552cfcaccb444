"""``Shipped``: the service's own placer and committer over filled caches, up to the writes, which
are left out.

For each vpod ``decide`` does what ``Placer._carry_out`` and ``_settle`` do: decide on the assumed
state (``_decide``), assume the decision (``Committer.reserve``), record why (``_remember``).
``place_batch`` is the whole of the placer's method, with its locks, queues and metrics, around a
commit that writes nothing.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from extender.engine.placing.plan import Decision
from extender.kube.api import Api
from extender.kube.events import EventRecorder
from extender.model.objects import VPod
from extender.service.placing.batch import Committed
from extender.service.placing.committer import Committer
from extender.service.placing.decision_history import NEW, DecisionHistory
from extender.service.placing.placer import BATCH_VPODS_MAX, Placer, Reporting
from extender.service.placing.vpod_events import VPodEvents
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics
from tests.bench import objects
from tests.bench.clusters import Cluster
from tests.support.service import NoLists, no_foreign_kind

OWNER: Final = ("placer", 1)
"""As of a first batch."""
_NO_API: Final = cast("Api", None)
"""Nothing is written or read: a call would end the bench."""


class UnwrittenCommitter(Committer):
    """Leaves decisions assumed, as while the API server is still being waited for."""

    async def commit(self, owner: object, pool: str, decisions: Iterable[Decision]) -> Committed:
        """Write nothing, and tell nobody."""
        return Committed()


class _NoAutoscaler:
    def trigger(self, pool: str) -> None:
        """Pools have the size they have."""


class _Leader:
    def leads(self, _pool: str) -> bool:
        """Of every pool."""
        return True

    def leads_since(self, _pool: str) -> float:
        """Since ever."""
        return float("-inf")

    def no_predecessor_writes(self, _pool: str) -> bool:
        """There was none."""
        return True


class Shipped:
    """One pool's placing. Reservations last for longer than any bench."""

    def __init__(self, caches: Caches) -> None:
        metrics = Metrics()
        # The service's clock is its loop's; both read the system's monotonic one.
        clock = time.monotonic
        self.caches = caches
        recorder = EventRecorder(_NO_API, reporting_instance="bench", now=time.time)
        vpod_events = VPodEvents(recorder, metrics)
        self.committer = UnwrittenCommitter(
            _NO_API,
            caches,
            clock=clock,
            now=time.time,
            leadership=_Leader(),
            lists=NoLists(),
            write_foreign_status=no_foreign_kind,
            vpod_events=vpod_events,
            metrics=metrics,
        )
        self.placer = Placer(
            caches,
            self.committer,
            _NoAutoscaler(),
            reporting=Reporting(vpod_events, DecisionHistory("bench", time.time), metrics),
            clock=clock,
        )

    def decide(self, keys: Iterable[str]) -> list[Decision]:
        """Decide these vpods one after the other, each on the state as the one before has
        left it.
        """
        decide, reserve, remember = (
            self.placer._decide_and_report,
            self.committer.reserve,
            self.placer.history.note,
        )
        made = []
        for key in keys:
            decision = decide(objects.POOL, key)
            reserve(OWNER, decision)
            remember(key, decision.explanation, why=NEW)
            made.append(decision)
        return made

    async def place_batches(self, keys: Sequence[str]) -> None:
        """The same in batches as the placer takes them from its queue."""
        for first in range(0, len(keys), BATCH_VPODS_MAX):
            await self.placer.place_batch(objects.POOL, [*keys[first : first + BATCH_VPODS_MAX]])

    def settle(self, cluster: Cluster) -> None:
        """Take the objects as they are when everything assumed is written (``Cluster.settled``)."""
        version = objects.next_version()
        self.caches.pods.replace(cluster.pods, version)
        self.caches.vpods.replace(cluster.vpods, version)
        for vpod in cluster.vpods:
            self.caches.state.release(OWNER, objects.POOL, vpod.key)

    def change(self, vpods: Mapping[str, VPod | None]) -> list[Decision]:
        """Changed and deleted (None) vpods come by the watch one at a time, and each is decided at
        once.
        """
        made = []
        for key, new in vpods.items():
            known = self.caches.vpods.get(key)
            if new is not None:
                self.caches.vpods.update(new)
            elif known is not None:
                self.caches.vpods.delete(known)
            made += self.decide([key])
        return made
