"""``Placer``: the leader's loop that keeps every vpod placed (DESIGN 4, first paragraph).

One queue and one task a pool. A task takes a batch, decides each vpod on the state as the vpods before it have left
it (a decision is reserved at once), and has the committer write the batch. What events may help is decided here, in
``Placer.pod_changed`` and its siblings: an event about a vpod activates that vpod, an event that may give room
activates all parked vpods of the pool.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from extender.core.explain import Explanation, Step
from extender.core.model import AdapterPod, AdapterPool, Namespace, Node, StatefulSet, VPod
from extender.core.names import API_VERSION
from extender.core.plan import Decision, place, release_all
from extender.core.pool_state import PoolState
from extender.kube.events import EventRecorder, EventType, ObjectReference
from extender.metrics import Metrics
from extender.service.caches import Caches
from extender.service.committer import Committer
from extender.service.queue import VPodQueue
from extender.service.status import SCHEDULED

log: Final = logging.getLogger(__name__)

BATCH_VPODS_MAX: Final = 256
EXPLANATIONS_MAX: Final = 10_000


class ScaleTrigger(Protocol):
    """Told when a pool has vreplicas without a place."""

    def trigger(self, pool: str) -> None:
        """Look at the pool's size now."""
        ...


class Placer:
    """Queues of all pools, and the tasks that empty them while we lead."""

    def __init__(
        self,
        caches: Caches,
        committer: Committer,
        autoscaler: ScaleTrigger,
        *,
        recorder: EventRecorder,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._caches = caches
        self._committer = committer
        self._autoscaler = autoscaler
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._queues: dict[str, VPodQueue] = {}
        self._new_pool = asyncio.Event()
        self._batches = 0
        self.explanations: OrderedDict[str, Explanation] = OrderedDict()
        """The last decision's explanation by vpod key; the oldest go first."""
        caches.vpods.add_event_handler(self.vpod_changed)
        caches.pods.add_event_handler(self.pod_changed)
        caches.nodes.add_event_handler(self.node_changed)
        caches.pools.add_event_handler(self.pool_changed)
        caches.stateful_sets.add_event_handler(self.stateful_set_changed)
        caches.namespaces.add_event_handler(self.namespace_changed)

    def queue(self, pool: str) -> VPodQueue:
        """The queue of a pool, made on first use."""
        queue = self._queues.get(pool)
        if queue is None:
            queue = self._queues[pool] = VPodQueue(self._clock)
            self._new_pool.set()
        return queue

    def queue_sizes(self) -> dict[str, int]:
        """Vpods by queue part, over all pools."""
        sizes = {"active": 0, "backoff": 0, "unschedulable": 0}
        for queue in self._queues.values():
            for part, size in queue.sizes.items():
                sizes[part] += size
        return sizes

    # -- what may help ------------------------------------------------------------------------------------------

    def vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        """A vpod came, changed, went, or moved to another pool."""
        if old is not None and (new is None or new.pool != old.pool):
            self.queue(old.pool).forget(old.key)
            if self._caches.state.pool(old.pool).claims_of(old.key):
                self.queue(old.pool).add(old.key)
            self.queue(old.pool).activate()
        if new is not None and not (old is not None and _only_status(old, new)):
            self.queue(new.pool).add(new.key)

    def pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        """An adapter pod came, was bound, changed its ledger or its marks, or went."""
        pod = new or old
        if pod is None or (old is not None and new is not None and _same_for_placing(old, new)):
            return
        pool = self._caches.state.pool(pod.pool)
        queue = self.queue(pod.pool)
        state = pool.pods.get(pod.name)
        if state is not None:
            for key, claim in list(state.claims.items()):
                apart = state.bound and not pod.assumed and claim.ledger != claim.status
                if state.draining or apart or key not in pool.vpods:
                    queue.add(key)
        queue.activate()

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, went, or began or ceased to take work."""
        if old is not None and new is not None and old.takes_work == new.takes_work and old.zone == new.zone:
            return
        name = new.name if new is not None else old.name if old is not None else ""
        for pod in self._caches.state.pods_on_node.get(name, {}).values():
            self.queue(pod.pool).activate()

    def pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        """A pool came, changed or went: all of its vpods are decided again. Its status we write ourselves."""
        if old is not None and new is not None and replace(old, resource_version=new.resource_version) == new:
            return
        pool = new or old
        if pool is not None:
            self.add_all(pool.key)

    def stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        """Ordinals came or went."""
        if old is not None and new is not None and old.ordinals == new.ordinals:
            return
        changed = new or old
        for pool in self._caches.pools.list():
            if changed is not None and pool.stateful_set_key == changed.key:
                self.add_all(pool.key)

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        """A tenant's labels changed: pools may select it now."""
        if old is None or new is None or old.labels != new.labels:
            for queue in self._queues.values():
                queue.activate()

    def add_all(self, pool: str) -> None:
        """Decide every vpod of a pool again, and every key in its ledgers."""
        state = self._caches.state.pools.get(pool)
        if state is not None:
            for key in sorted({*state.vpods, *state.placements}):
                self.queue(pool).add(key)

    # -- the loop -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Place until cancelled. Starts with everything: the last leader may have stopped anywhere."""
        for pool in list(self._caches.state.pools):
            self.add_all(pool)
        running: set[str] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                for pool in [pool for pool in self._queues if pool not in running]:
                    running.add(pool)
                    tasks.create_task(self._run_pool(pool), name=f"placer {pool}")
                self._new_pool.clear()
                await self._new_pool.wait()

    async def _run_pool(self, pool: str) -> None:
        queue = self.queue(pool)
        while True:
            keys = await queue.pop_batch(BATCH_VPODS_MAX)
            try:
                await self.place_batch(pool, keys)
            except BaseException:
                # We no longer lead, mostly. When we lead again these must not count as being decided still.
                for key in keys:
                    queue.retry(key)
                raise

    async def place_batch(self, pool: str, keys: list[str]) -> None:
        """Decide and write these vpods of a pool."""
        self._batches += 1
        owner = ("placer", self._batches)
        started = self._clock()
        decisions = []
        unscheduled = {key for key in keys if not self._is_scheduled(pool, key)}
        for key in keys:
            decision = self._decide(pool, key)
            self._committer.reserve(owner, decision)
            decisions.append(decision)
        self._metrics.scheduling_algorithm_duration.observe(self._clock() - started)
        failed = await self._committer.commit(owner, pool, decisions)
        for decision in decisions:
            self._settle(decision, failed.get(decision.vpod), started, newly=decision.vpod in unscheduled)

    def _decide(self, pool_key: str, key: str) -> Decision:
        pool = self._caches.state.pool(pool_key)
        vpod = pool.vpods.get(key)
        if vpod is None:
            return release_all(pool, key)
        return place(pool, vpod, allowed=self._caches.state.selects(pool_key, vpod))

    def _is_scheduled(self, pool: str, key: str) -> bool:
        vpod = self._caches.state.pool(pool).vpods.get(key)
        return vpod is not None and any(c.type == SCHEDULED and c.status == "True" for c in vpod.conditions)

    def _settle(self, decision: Decision, error: str | None, started: float, *, newly: bool) -> None:
        key, queue = decision.vpod, self.queue(decision.pool)
        pool = self._caches.state.pool(decision.pool)
        self._remember(key, decision.explanation if key in pool.vpods else None)
        result = "error" if error else "unschedulable" if decision.left else "scheduled"
        self._metrics.schedule_attempt(result, self._clock() - started)
        if error is not None:
            log.info("vpod %s was not written and is decided again: %s", key, error)
            queue.retry(key)
        elif decision.left:
            queue.park(key)
            self._autoscaler.trigger(decision.pool)
        elif self._waits_for_bind(pool, decision):
            queue.park(key)
        else:
            queue.done(key)
        if error is None:
            self._tell(pool, decision, newly=newly)

    def _waits_for_bind(self, pool: PoolState, decision: Decision) -> bool:
        """Whether a part is not published yet because it is on its way with a pod; its confirmation activates us."""
        vpod = pool.vpods.get(decision.vpod)
        return vpod is not None and sum(vpod.placements.values()) < decision.scheduled

    def _remember(self, key: str, explanation: Explanation | None) -> None:
        known = self.explanations.pop(key, None)
        if known is not None and explanation is not None and _says_nothing_new(known, explanation):
            explanation = known
        if explanation is not None:
            self.explanations[key] = explanation
            while len(self.explanations) > EXPLANATIONS_MAX:
                self.explanations.popitem(last=False)

    def _tell(self, pool: PoolState, decision: Decision, *, newly: bool) -> None:
        vpod = pool.vpods.get(decision.vpod)
        if vpod is None:
            return
        regarding = ObjectReference(API_VERSION, "VPod", vpod.namespace, vpod.name, vpod.uid)
        note = decision.explanation.outcome()
        if decision.left:
            self._recorder.event(
                regarding, type=EventType.WARNING, reason="FailedScheduling", action="Scheduling", note=note
            )
        elif decision.target and (
            newly or any(step.step is Step.ADDED for step in decision.explanation.steps)
        ):
            where = ", ".join(f"{count} on {name}" for name, count in decision.target.items())
            self._recorder.event(
                regarding,
                type=EventType.NORMAL,
                reason="Scheduled",
                action="Binding",
                note=f"{note}: {where}",
            )


def _says_nothing_new(known: Explanation, new: Explanation) -> bool:
    """Whether all stays where ``known`` has told how it came there: nearly every write is looked at once more."""
    return not (new.steps or new.left or known.left) and known.wanted == new.wanted


def _only_status(old: VPod, new: VPod) -> bool:
    """Whether a change is our own status write, or nothing that a decision looks at."""
    return (
        (old.uid, old.vreplicas, old.weight, old.pool, old.deleting, old.generation)
        == (new.uid, new.vreplicas, new.weight, new.pool, new.deleting, new.generation)
        and new.observed_generation == new.generation
        and old.placements == new.placements
    )


def _same_for_placing(old: AdapterPod, new: AdapterPod) -> bool:
    return (
        (old.uid, old.pool, old.node, old.assumed, old.unschedulable, old.deleting, old.finished, old.slots)
        == (
            new.uid,
            new.pool,
            new.node,
            new.assumed,
            new.unschedulable,
            new.deleting,
            new.finished,
            new.slots,
        )
        and old.ledger == new.ledger
        and old.ledger_error == new.ledger_error
    )
