"""Which pod a rollout replaces next, in pools with ``spec.rollout.strategy: HandedOver``. Pure; the
service's ``Rollouts`` acts on it.

The StatefulSet has the update strategy OnDelete: its controller makes the pods of the newest
revision, and deletes none of an old one. As the controller does with RollingUpdate, a rollout takes
the pods one at a time, the highest ordinal first, and stops while a pod of the newest revision is
not Ready. Each pod goes through these steps:

1. The pool has room for what the pod carries: it grows by the surge first (``scaling.size``).
2. The pod is marked (``model.eviction``). So its shares are handed over, as for an eviction.
3. The pod is evicted once it carries nothing, or its deadline has passed.
4. The StatefulSet controller makes its ordinal anew. Once that pod is Ready, the next one follows.

All of this is read from what is stored, so any next leader goes on from there. A pod of an old
revision that is not Ready is evicted without a mark, before all others: its eviction interrupts
nothing. So a second rollout mends a first one whose pods do not get Ready.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from extender.engine.pods.claims import PodClaims
from extender.engine.state.pool_state import PoolState
from extender.model.counted import counted
from extender.model.eviction import Eviction, deadline_s, eviction_of
from extender.model.moves import MoveReason
from extender.model.objects import AdapterPod, AdapterPool, StatefulSet

MARK_AGAIN_S: Final = 100.0
"""Seconds. A mark is renewed so often, so that nobody takes its eviction for given up."""
ROLLING_OUT: Final = "RollingOut"
"""Type of the AdapterPool's condition that tells of a rollout."""


class RolloutReason(StrEnum):
    """What a rollout does or waits for: reasons of the condition RollingOut."""

    UP_TO_DATE = "UpToDate"
    STATEFULSET_CHANGING = "StatefulSetChanging"
    NOT_ON_DELETE = "NotOnDelete"
    POD_NOT_READY = "PodNotReady"
    POD_EVICTED = "PodEvicted"
    HANDING_OVER = "HandingOver"
    REPLACING = "Replacing"
    WAITING_FOR_ROOM = "WaitingForRoom"


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """Where a pool's rollout stands. ``note``: the same for people.

    ``mark``: this pod is to be marked, or marked again. ``evict``: this one is to be evicted. Both
    None: nothing is to be done now.
    """

    reason: RolloutReason
    note: str
    mark: AdapterPod | None = None
    evict: AdapterPod | None = None
    overdue: bool = False
    """Whether ``evict`` still carries shares, and its deadline has passed."""


def outdated(pool: PoolState) -> Iterator[tuple[PodClaims, AdapterPod]]:
    """The pods of an old revision, the highest ordinal first. None while it is not known which
    revision is the newest.
    """
    stateful_set = pool.stateful_set
    if stateful_set is None or stateful_set.deleting:
        return
    for ordinal in reversed(stateful_set.ordinals):
        known = pool.by_ordinal.get(ordinal)
        if known is not None and known.pod is not None and _is_old(known.pod, stateful_set):
            yield known, known.pod


def _is_old(pod: AdapterPod, stateful_set: StatefulSet) -> bool:
    newest = stateful_set.update_revision
    return bool(newest and pod.revision) and pod.revision != newest


def is_under_way(pool: PoolState) -> bool:
    """Whether this project replaces pods of an old revision in the pool."""
    adapter_pool, stateful_set = pool.adapter_pool, pool.stateful_set
    if adapter_pool is None or stateful_set is None or not adapter_pool.rolls_out:
        return False
    return stateful_set.updates_from is None and any(True for _ in outdated(pool))


def surge_slots(pool: PoolState, adapter_pool: AdapterPool) -> int:
    """Slots of the surge pods, without those that already stand in for a pod that is replaced."""
    replaced = sum(pod.capacity for pod in pool.members() if pod.evicted is MoveReason.ROLLOUT)
    return max(0, adapter_pool.rollout.surge * adapter_pool.slots_per_pod - replaced)


def stays_without_surge(pool: PoolState, pod: PodClaims) -> bool:
    """Whether the pool does not grow for what the pod carries: a rollout without surge replaces
    it.
    """
    adapter_pool = pool.adapter_pool
    return (
        pod.evicted is MoveReason.ROLLOUT
        and adapter_pool is not None
        and not adapter_pool.rollout.surge
        and pool.is_member(pod)
    )


def next_step(pool: PoolState, now_s: float) -> RolloutStep:
    """What the rollout of a pool with the strategy HandedOver does next. ``now_s``: epoch seconds.

    Before a pod is marked for the first time, the pool must have room (``scaling.size``).
    """
    old = list(outdated(pool))
    if not old or pool.stateful_set is None:
        return RolloutStep(RolloutReason.UP_TO_DATE, "no pod is of an old revision")
    left = f"{counted(len(old), 'pod')} of an old revision"
    waits = _why_not_now(pool, pool.stateful_set)
    if waits is not None:
        return RolloutStep(waits[0], f"{left}; waits: {waits[1]}")
    for _, pod in (one for one in old if not one[0].serving):
        note = f"{left}; {pod.name} is replaced: it is not Ready"
        return RolloutStep(RolloutReason.REPLACING, note, evict=pod)
    for known, pod in old:
        eviction = eviction_of(pod)
        if eviction is not None and known.evicted is MoveReason.ROLLOUT:
            return _of_marked(pool, known, pod, eviction, now_s)
    for known in pool.members():
        if known.evicted is not None:
            note = f"{left}; waits: {known.name} is being evicted"
            return RolloutStep(RolloutReason.POD_EVICTED, note)
    _, pod = old[0]
    note = f"{left}; {pod.name} hands its shares over"
    return RolloutStep(RolloutReason.HANDING_OVER, note, mark=pod)


def _of_marked(
    pool: PoolState, known: PodClaims, pod: AdapterPod, eviction: Eviction, now_s: float
) -> RolloutStep:
    """What happens to the pod that is handed over."""
    empty = not (known.claims or known.held or pod.ledger or pod.ledger_error)
    overdue = pool.adapter_pool is not None and now_s - eviction.first_s > deadline_s(
        pool.adapter_pool
    )
    if empty or overdue:
        note = f"{pod.name} is replaced"
        return RolloutStep(RolloutReason.REPLACING, note, evict=pod, overdue=not empty)
    again = pod if now_s - eviction.latest_s > MARK_AGAIN_S else None
    note = f"{pod.name} hands its shares over"
    return RolloutStep(RolloutReason.HANDING_OVER, note, mark=again)


def _why_not_now(pool: PoolState, stateful_set: StatefulSet) -> tuple[RolloutReason, str] | None:
    """Why no pod is replaced now, None if one may be."""
    if stateful_set.updates_from is not None:
        note = "the StatefulSet needs spec.updateStrategy.type: OnDelete"
        return RolloutReason.NOT_ON_DELETE, note
    if not stateful_set.is_observed:
        note = "the StatefulSet controller has not seen the last change of the StatefulSet"
        return RolloutReason.STATEFULSET_CHANGING, note
    away = _why_away(pool, stateful_set)
    return (RolloutReason.POD_NOT_READY, away) if away else None


def _why_away(pool: PoolState, stateful_set: StatefulSet) -> str:
    """The first pod for which the rollout waits: it does not exist, terminates, or is of the newest
    revision and not Ready. "" if there is none.
    """
    for ordinal in stateful_set.ordinals:
        known = pool.by_ordinal.get(ordinal)
        pod = known.pod if known is not None else None
        name = f"{stateful_set.name}-{ordinal}"
        if known is None or pod is None:
            return f"{name} does not exist yet"
        if pod.deleting:
            return f"{name} is terminating"
        if not known.serving and not _is_old(pod, stateful_set):
            return f"{name}, of the newest revision, is not Ready"
    return ""
