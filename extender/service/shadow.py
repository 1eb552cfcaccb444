"""``Shadow``: decides beside another scheduler, writes nothing, and reports where the two differ
(``mode: shadow``).

The other scheduler is Knative's or another vreplica-scheduler. Its decisions are the placements
that vpods publish. Whenever a vpod's placements change, shadow mode decides from the state just
before and compares::

    watch --vpod--> queue --after SETTLE_S--> decide on the state before
    watch --pod, node, pool, ...--> state       '--> compare with what is published
                                                       '--> metric, log line, /state.json "shadow"

``extender.whatif.comparison`` explains each outcome. ``Waiting`` is reported once per change of a
vpod's spec that the other scheduler has not answered for ``WAITING_AFTER_S``, if shadow mode would
have acted.

Shadow mode needs an AdapterPool that names the StatefulSet and its slots; vpods, or foreign kinds
among the pool's sources; and the label ``vreplica.dev/pool`` on the adapter pods. Label existing
pods too (``kubectl label pods`` restarts nothing), besides the template. Pods without the label are
not seen, so there seems to be no room. The webhook is not installed, and no kube-scheduler is
configured to call the extender. Its verbs still answer, for trials, but ``ReadOnlyApi`` refuses
bind, as it refuses every write.

Three rules make the comparison fair:

- Shadow mode has its own ``ClusterState``, with published placements only, without ledgers. A
  vreplica-scheduler writes ledgers before it publishes, so they would give its answers away.
- Watches of different kinds are not in step: the event of a pod's binding may arrive after the
  placements on that pod. So shadow mode judges publications ``SETTLE_S`` late, in their order, and
  applies all other events at once.
- It does not judge an answer to an older spec (observedGeneration), or one in an unknown pool.

Where the other scheduler decides many vpods at once, only the order in which it published is known,
not that in which it decided. So the same algorithm can yield ``OtherPods`` because it took the
vpods in another order.
"""

import asyncio
import json
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from extender.engine.placing.explain import Explanation
from extender.engine.placing.plan import place
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.kube.forwarding import WRITE_VERBS
from extender.kube.read_only import ReadOnlyApi
from extender.model.ledger import EMPTY_LEDGER
from extender.model.objects import AdapterPod, VPod
from extender.model.timestamps import timestamp
from extender.service.http.describe import listed_sentences
from extender.service.watching.caches import Caches
from extender.telemetry.exposition import Label
from extender.telemetry.metrics import Metrics
from extender.whatif.comparison import Outcome, compare

log: Final = logging.getLogger(__name__)

SETTLE_S: Final = 0.2
WAITING_AFTER_S: Final = 10.0
QUEUE_ITEMS_MAX: Final = 10_000
"""Publications that wait to be judged. Beyond this, the oldest is judged before it is due."""
BATCH_ITEMS_MAX: Final = 100
"""Publications judged without a pause. Between batches, other tasks answer probes and verbs."""
RECORDS_MAX: Final = 200
RECORD_PODS_MAX: Final = 100
"""Pods of one placement list in a record."""
LOG_CHARS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One comparison. Placements: pod name -> vreplicas, by ordinal. ``time``: RFC 3339."""

    time: str
    outcome: Outcome
    vpod: str
    pool: str
    wanted: int
    before: Mapping[str, int]
    ours: Mapping[str, int]
    theirs: Mapping[str, int]
    explanation: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The record in ``/state.json``."""
        return {
            **self.summary(),
            "time": self.time,
            "before": _listed(self.before),
            "explanation": list(self.explanation),
        }

    def summary(self) -> dict[str, object]:
        """The part of the record that is logged."""
        return {
            "outcome": str(self.outcome),
            "vpod": self.vpod,
            "pool": self.pool,
            "wanted": self.wanted,
            "ours": _listed(self.ours),
            "theirs": _listed(self.theirs),
        }


class Shadow:
    """Compares decisions as ``caches`` change; they must be empty when it is made. ``clock``: loop
    time. ``now``: epoch seconds.
    """

    def __init__(
        self,
        caches: Caches,
        api: ReadOnlyApi,
        *,
        metrics: Metrics,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._api = api
        self._clock = clock
        self._now = now
        self.state = ClusterState(caches.state.profiles)
        self._queue: deque[tuple[float, VPod | None, VPod | None]] = deque()
        """(when due, old, new)."""
        self._waiting: dict[str, tuple[str, float]] = {}
        """vpod key -> (its pool, since when an answer is awaited); the longest first."""
        self.records: deque[Record] = deque(maxlen=RECORDS_MAX)
        self.outcomes: Counter[Outcome] = Counter()
        self.not_judged: Counter[str] = Counter()
        """Publications that could not be compared, by reason."""
        self._counter = metrics.add_counter(
            "shadow_decisions",
            "Answers of the other scheduler compared with ours, by outcome",
            [Label("outcome", tuple(map(str, Outcome)))],
        )
        for outcome in Outcome:
            self._counter.labels(str(outcome))
        metrics.gauge(
            "shadow_refused_writes",
            "Writes that shadow mode has refused, by verb",
            Label("verb", WRITE_VERBS),
            lambda: {verb: float(count) for verb, count in api.refused.items()},
        )
        self._follow(caches)

    def _follow(self, caches: Caches) -> None:
        state = self.state
        caches.nodes.add_event_handler(state.node_changed)
        caches.namespaces.add_event_handler(state.namespace_changed)
        caches.stateful_sets.add_event_handler(state.stateful_set_changed)
        caches.pools.add_event_handler(state.adapter_pool_changed)
        caches.quotas.add_event_handler(state.quota_changed)
        caches.pods.add_event_handler(self._pod_changed)
        caches.vpods.add_event_handler(self._vpod_changed)

    async def run(self) -> None:
        """Judge publications that are due, until cancelled."""
        while True:
            judged = 0
            while self._queue and self._queue[0][0] <= self._clock() and judged < BATCH_ITEMS_MAX:
                self._take()
                judged += 1
            if judged < BATCH_ITEMS_MAX:
                self._report_waiting()
            await asyncio.sleep(0 if judged == BATCH_ITEMS_MAX else SETTLE_S / 2)

    def describe(self) -> dict[str, object]:
        """``shadow`` in ``/state.json``: counts since the start, and the last ``RECORDS_MAX``
        comparisons, newest first.
        """
        return {
            "decisions": {str(outcome): self.outcomes[outcome] for outcome in Outcome},
            "notJudged": dict(sorted(self.not_judged.items())),
            "waiting": len(self._waiting),
            "queued": len(self._queue),
            "refusedWrites": dict(sorted(self._api.refused.items())),
            "last": [record.to_json() for record in reversed(self.records)],
        }

    # -- events of the caches ----------------------------------------------------------------------

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        self.state.pod_changed(_without_ledger(old), _without_ledger(new))

    def _vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        self._queue.append((self._clock() + SETTLE_S, old, new))
        while len(self._queue) > QUEUE_ITEMS_MAX:
            self._take()

    def _take(self) -> None:
        _, old, new = self._queue.popleft()
        if old is None or new is None or old.uid != new.uid:
            self.state.vpod_changed(old, new)
            self._forget(old)
            if new is not None:
                self._await_answer(new)
            return
        self._waiting_goes_on(old, new)
        if _published(old) == _published(new):
            self.state.vpod_changed(old, new)
        elif why := self._not_to_judge(new):
            self.not_judged[why] += 1
            self.state.vpod_changed(old, new)
        else:
            self._judge(old, new)

    def _not_to_judge(self, vpod: VPod) -> str:
        pool = self.state.pools.get(vpod.pool)
        if pool is None or pool.adapter_pool is None:
            return "PoolNotFound"
        if pool.stateful_set is None:
            return "StatefulSetTaken" if pool.taken_by else "StatefulSetNotFound"
        return "OlderGeneration" if 0 < vpod.observed_generation < vpod.generation else ""

    def _judge(self, old: VPod, new: VPod) -> None:
        self._waiting.pop(new.key, None)
        # The new spec with the old placements: the state in which the other scheduler decided.
        asked = replace(new, placements=old.placements)
        self.state.vpod_changed(old, asked)
        decision = place(
            self.state.pool(new.pool), asked, allowed=self.state.selects(new.pool, asked)
        )
        self.state.vpod_changed(asked, new)
        before, theirs = _published(old), _published(new)
        over = _overcommits(self.state.pool(new.pool), before, theirs)
        outcome = compare(before, decision.target, theirs, overcommits=over)
        self._report(outcome, old, new, decision.target, decision.explanation)

    # -- answers that do not come ------------------------------------------------------------------

    def _await_answer(self, vpod: VPod) -> None:
        if not vpod.deleting and sum(vpod.placements.values()) != vpod.vreplicas:
            self._waiting[vpod.key] = (vpod.pool, self._clock())

    def _waiting_goes_on(self, old: VPod, new: VPod) -> None:
        """Await another answer once the spec changes."""
        if _asked(old) != _asked(new):
            self._forget(new)
            self._await_answer(new)

    def _forget(self, vpod: VPod | None) -> None:
        if vpod is not None:
            self._waiting.pop(vpod.key, None)

    def _report_waiting(self) -> None:
        overdue = self._clock() - WAITING_AFTER_S
        while self._waiting:
            key, (pool_key, since) = next(iter(self._waiting.items()))
            if since > overdue:
                return
            del self._waiting[key]
            pool = self.state.pools.get(pool_key)
            vpod = pool.vpods.get(key) if pool is not None else None
            if pool is None or vpod is None or self._not_to_judge(vpod) in _NO_POOL:
                continue
            decision = place(pool, vpod, allowed=self.state.selects(pool_key, vpod))
            if decision.target != _published(vpod):
                self._report(Outcome.WAITING, vpod, vpod, decision.target, decision.explanation)

    # -- reporting ---------------------------------------------------------------------------------

    def _report(
        self,
        outcome: Outcome,
        old: VPod,
        new: VPod,
        ours: Mapping[str, int],
        explanation: Explanation,
    ) -> None:
        record = Record(
            time=timestamp(self._now()),
            outcome=outcome,
            vpod=new.key,
            pool=new.pool,
            wanted=new.vreplicas,
            before=_published(old),
            ours=ours,
            theirs=_published(new),
            explanation=tuple(listed_sentences(explanation)),
        )
        self.outcomes[outcome] += 1
        self._counter.labels(str(outcome)).inc()
        self.records.append(record)
        # Pod names in a status are any text. ASCII JSON keeps them from ending the log line.
        log.info("shadow: %s", json.dumps(record.summary(), ensure_ascii=True)[:LOG_CHARS_MAX])


_NO_POOL: Final = frozenset({"PoolNotFound", "StatefulSetNotFound", "StatefulSetTaken"})


def _published(vpod: VPod) -> dict[str, int]:
    return {name: count for name, count in vpod.placements.items() if count}


def _without_ledger(pod: AdapterPod | None) -> AdapterPod | None:
    if pod is None:
        return None
    return replace(pod, ledger=EMPTY_LEDGER, ledger_text=None, ledger_error="")


def _overcommits(pool: PoolState, before: Mapping[str, int], theirs: Mapping[str, int]) -> bool:
    """Whether a pod to which vreplicas were added exceeds its slots."""
    return any(
        (pod := pool.pods.get(name)) is not None and pod.free < 0
        for name, count in theirs.items()
        if count > before.get(name, 0)
    )


def _listed(placements: Mapping[str, int]) -> dict[str, int]:
    return dict(list(placements.items())[:RECORD_PODS_MAX])


def _asked(vpod: VPod) -> tuple[object, ...]:
    return (
        vpod.vreplicas,
        vpod.weight,
        vpod.per_vreplica,
        vpod.max_per_pod,
        vpod.min_available,
        vpod.pool,
        vpod.deleting,
    )
