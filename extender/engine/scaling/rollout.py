"""Which pod a rollout replaces next, in pools with ``spec.rollout.strategy: HandedOver``. Pure; the
service's ``Rollouts`` acts on it.

The StatefulSet has the update strategy OnDelete: its controller makes the pods of the newest
revision, and deletes none of an old one. As the controller does with RollingUpdate, a rollout takes
as many pods at a time as ``spec.handoff.maxUnavailable`` says, the highest ordinals first, and
stops while so many pods of the newest revision are not Ready. Each pod goes through these steps:

1. The pool has room for what the pod carries: it grows by the surge first (``scaling.size``).
2. The pod is marked (``model.eviction``). So its shares are handed over, as for an eviction.
3. The pod is evicted once it carries nothing, or its deadline has passed.
4. The StatefulSet controller makes its ordinal anew. Once that pod is Ready, the next one follows.

As many pods as are allowed, and have room elsewhere, go through them side by side.

All of this is read from what is stored, so any next leader goes on from there. A pod of an old
revision that is not Ready is evicted without a mark, before all others: its eviction interrupts
nothing. So a second rollout mends a first one whose pods do not get Ready.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from extender.engine.pods.claims import PodClaims
from extender.engine.scaling.unavailable import UnavailablePods
from extender.engine.state.pool_state import PoolState
from extender.model.counted import counted, first_of
from extender.model.eviction import eviction_of
from extender.model.moves import MoveReason
from extender.model.objects import AdapterPod, AdapterPool, StatefulSet

NAMED_MAX: Final = 5
"""How many pods a note names."""
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
    MAX_UNAVAILABLE = "MaxUnavailable"


@dataclass(frozen=True, slots=True)
class Replaced:
    """A pod that is to be evicted. ``overdue``: it still carries shares, and its deadline has
    passed.
    """

    pod: AdapterPod
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """Where a pool's rollout stands. ``note``: the same for people.

    ``mark``: these pods are to be marked, once the pool has room. ``again``: the marks of these are
    to be renewed. ``evict``: these are to be evicted.
    """

    reason: RolloutReason
    note: str
    mark: tuple[AdapterPod, ...] = ()
    again: tuple[AdapterPod, ...] = ()
    evict: tuple[Replaced, ...] = ()


@dataclass(frozen=True, slots=True)
class _Marked:
    """A pod that hands its shares over. ``goes``: it is to be evicted. ``overdue``: as in
    ``Replaced``. ``fades``: its mark is to be renewed first. ``over``: so is the time for it.
    """

    pod: AdapterPod
    goes: bool
    overdue: bool
    fades: bool
    over: bool


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


def replaced_next(pool: PoolState) -> frozenset[str]:
    """Names of the pods for which the surge is: those that the rollout replaces next. The pool
    grows until others can take what they carry.
    """
    adapter_pool = pool.adapter_pool
    if adapter_pool is None or not adapter_pool.rollout.surge or not is_under_way(pool):
        return frozenset()
    marked = sum(1 for pod in pool.members() if pod.evicted is MoveReason.ROLLOUT)
    old = (pod.name for pod, _ in outdated(pool) if pod.serving and pod.evicted is None)
    return frozenset(islice(old, max(0, adapter_pool.rollout.surge - marked)))


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

    Before pods are marked for the first time, the pool must have room (``scaling.size``).
    """
    old = list(outdated(pool))
    if not old or pool.stateful_set is None:
        return RolloutStep(RolloutReason.UP_TO_DATE, "no pod is of an old revision")
    left = f"{counted(len(old), 'pod')} of an old revision"
    marked = _marked(old, pool, now_s)
    again = tuple(one.pod for one in marked if one.fades)
    # Others wait for their turn behind the marks of a rollout that stands still. So these end.
    meanwhile = tuple(one.pod for one in marked if one.fades and not one.over)
    waits = _why_not_now(pool.stateful_set)
    if waits is not None:
        return RolloutStep(waits[0], f"{left}; waits: {waits[1]}", again=meanwhile)
    unavailable = UnavailablePods(pool)
    away = list(_away(pool, pool.stateful_set))
    budget = unavailable.most - len(away)
    if budget <= 0:
        note = f"{left}; waits: {away[0]}"
        return RolloutStep(RolloutReason.POD_NOT_READY, note, again=meanwhile)
    broken = [pod for known, pod in old if not (known.serving or pod.deleting)][:budget]
    marked = marked[: budget - len(broken)]
    mark, why_none = _next(pool, old, unavailable)
    if not (broken or marked or mark):
        return _wait(pool, left, why_none)
    notes = [
        _named([pod.name for pod in broken], "is replaced: it is not Ready", "are not Ready"),
        _named([one.pod.name for one in marked if one.goes], "is replaced", "are replaced"),
        _named(
            [one.pod.name for one in marked if not one.goes] + [pod.name for pod in mark],
            "hands its shares over",
            "hand their shares over",
        ),
    ]
    if broken or mark or len(marked) > 1:
        notes.insert(0, left)
    evict = (
        *(Replaced(pod) for pod in broken),
        *(Replaced(one.pod, one.overdue) for one in marked if one.goes),
    )
    return RolloutStep(
        RolloutReason.REPLACING if evict else RolloutReason.HANDING_OVER,
        "; ".join(filter(None, notes)),
        mark=tuple(mark),
        again=again,
        evict=evict,
    )


def _named(names: list[str], one: str, several: str) -> str:
    if len(names) < 2:
        return f"{names[0]} {one}" if names else ""
    return f"{first_of(names, NAMED_MAX)} {several}"


def _marked(
    old: list[tuple[PodClaims, AdapterPod]], pool: PoolState, now_s: float
) -> list[_Marked]:
    """The pods that hand their shares over for the rollout, in its order."""
    marked: list[_Marked] = []
    adapter_pool = pool.adapter_pool
    if adapter_pool is None:
        return marked
    for known, pod in old:
        eviction = eviction_of(pod)
        if eviction is None or known.evicted is not MoveReason.ROLLOUT or not known.serving:
            continue
        empty = not (known.claims or known.held or pod.ledger or pod.ledger_error)
        over = eviction.is_over(adapter_pool, now_s)
        fades = eviction.fades(adapter_pool, now_s)
        goes = (empty or over) and not fades
        marked.append(_Marked(pod, goes=goes, overdue=not empty, fades=fades, over=over))
    return marked


def _next(
    pool: PoolState, old: list[tuple[PodClaims, AdapterPod]], unavailable: UnavailablePods
) -> tuple[list[AdapterPod], str]:
    """The pods that are to be handed over from now on, and why there are none.

    Where no other pod hands its shares over, one is taken in any case, since the pool has grown for
    it. More follow as long as other pods have room for what all of them carry.
    """
    members = list(pool.members())
    going = [known for known in members if known.evicted is not None]
    room = sum(_room(known) for known in members) - sum(known.decided for known in going)
    chosen: list[AdapterPod] = []
    why_none = ""
    for known, pod in old:
        if not known.serving or known.evicted is not None:
            continue
        why_not = unavailable.why_not(known)
        if why_not:
            why_none = why_none or why_not
            continue
        left = room - _room(known) - known.held
        if left < 0 and (going or chosen):
            break
        unavailable.take(known)
        chosen.append(pod)
        room = left
    return chosen, why_none


def _room(known: PodClaims) -> int:
    """Slots that shares from other pods may take."""
    return max(0, known.free) if known.open and known.serving else 0


def _wait(pool: PoolState, left: str, why_none: str) -> RolloutStep:
    """Why nothing is replaced, although pods that are away leave room for it."""
    for known in pool.members():
        if known.evicted is not None:
            note = f"{left}; waits: {known.name} is being evicted"
            return RolloutStep(RolloutReason.POD_EVICTED, note)
    return RolloutStep(RolloutReason.MAX_UNAVAILABLE, f"{left}; waits: {why_none}")


def _why_not_now(stateful_set: StatefulSet) -> tuple[RolloutReason, str] | None:
    """Why no pod is replaced now, None if one may be."""
    if stateful_set.updates_from is not None:
        note = "the StatefulSet needs spec.updateStrategy.type: OnDelete"
        return RolloutReason.NOT_ON_DELETE, note
    if not stateful_set.is_observed:
        note = "the StatefulSet controller has not seen the last change of the StatefulSet"
        return RolloutReason.STATEFULSET_CHANGING, note
    return None


def _away(pool: PoolState, stateful_set: StatefulSet) -> Iterator[str]:
    """The pods for which the rollout waits: each does not exist, terminates, or is of the newest
    revision and not Ready.
    """
    for ordinal in stateful_set.ordinals:
        known = pool.by_ordinal.get(ordinal)
        pod = known.pod if known is not None else None
        name = f"{stateful_set.name}-{ordinal}"
        if known is None or pod is None:
            yield f"{name} does not exist yet"
        elif pod.deleting:
            yield f"{name} is terminating"
        elif not known.serving and not _is_old(pod, stateful_set):
            yield f"{name}, of the newest revision, is not Ready"
