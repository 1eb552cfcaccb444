"""Which pods of a pool may be taken out of service next (``spec.handoff.maxUnavailable``). Pure;
the service's ``Rollouts`` acts on it.

As the StatefulSet controller does for its own maxUnavailable, this counts every pod of the
StatefulSet's ordinals that is unavailable, whatever the reason: it does not exist, terminates, is
not Ready, or hands its shares over for a voluntary disruption. Another one follows only while
they are fewer than ``maxUnavailable.pool``, and while each vpod on it has fewer of them than
``maxUnavailable.perVPod``.

The webhook marks each pod that somebody tries to evict (``model.eviction``), and the descheduler
those that should leave their nodes. Such a pod waits until the leader gives it its turn. One leader
alone counts and decides, so two webhooks cannot both take the last place.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final

from extender.engine.pods.claims import PodClaims
from extender.engine.state.pool_state import PoolState
from extender.model.counted import counted, counted_are, first_of
from extender.model.eviction import BEHIND_CHARS_MAX, TURN_MAX_S, Eviction, eviction_of
from extender.model.max_unavailable import USUAL
from extender.model.objects import AdapterPod, placement_order

NAMED_PODS_MAX: Final = 5


class UnavailablePods:
    """The unavailable pods of a pool, and those that are chosen meanwhile. ``most``: so many may
    be.
    """

    def __init__(self, pool: PoolState) -> None:
        adapter_pool, stateful_set = pool.adapter_pool, pool.stateful_set
        limits = adapter_pool.max_unavailable if adapter_pool is not None else USUAL
        self._pool = pool
        self._per_vpod = limits.per_vpod
        self.most = limits.pool.of(stateful_set.replicas if stateful_set is not None else 0)
        self._names = set(_unavailable(pool))
        self._handing_over = {pod.name for pod in pool.pods.values() if pod.evicted is not None}

    def take(self, known: PodClaims) -> None:
        """Count a pod that is taken out of service now."""
        self._names.add(known.name)
        self._handing_over.add(known.name)

    def may_go_overdue(self, known: PodClaims) -> bool:
        """Whether a pod may be taken that has waited for too long: pods that are unavailable for
        another reason do not count for it.
        """
        others = self._handing_over
        return len(others) < self.most and not self._why_not_for_vpods(known, others)

    def why_not(self, known: PodClaims) -> str:
        """Why the pod may not be taken out of service now, for people; "" if it may."""
        if self._pool.stateful_set is None:
            return "the pool's StatefulSet does not exist, so nothing can be placed elsewhere"
        if known.name in self._names:
            return ""
        if len(self._names) >= self.most:
            are = f"{counted_are(len(self._names), 'pod')} unavailable ({_named(self._names)})"
            return f"{are}, and maxUnavailable.pool allows {self.most}"
        return self._why_not_for_vpods(known, self._names)

    def _why_not_for_vpods(self, known: PodClaims, unavailable: set[str]) -> str:
        if not unavailable:
            return ""
        for key in known.claims:
            names = self._pool.claims_of(key).keys()
            taken, most = names & unavailable, self._per_vpod.of(len(names))
            if len(taken) >= most:
                of = f"{len(taken)} of {counted(len(names), 'pod')} ({_named(taken)})"
                # The webhook tells this to whoever evicts, so it names no tenant's object.
                return (
                    f"unavailable: {of} of a vpod there, and maxUnavailable.perVPod allows {most}"
                )
        return ""


def _named(pods: Collection[str]) -> str:
    return first_of(sorted(pods, key=placement_order), NAMED_PODS_MAX)


def _unavailable(pool: PoolState) -> Iterator[str]:
    stateful_set = pool.stateful_set
    if stateful_set is None:
        return
    for ordinal in stateful_set.ordinals:
        known = pool.by_ordinal.get(ordinal)
        if known is None or not known.serving or known.evicted is not None:
            yield f"{stateful_set.name}-{ordinal}"


def next_turns(
    pool: PoolState, now_s: float, is_fresh: Callable[[AdapterPod], bool]
) -> list[tuple[AdapterPod, Eviction]]:
    """The evictions that change now, the oldest first: they get their turn, or are queued.
    ``now_s``: epoch seconds. ``is_fresh``: whether somebody still tries to evict the pod.

    For one that has waited for ``TURN_MAX_S``, ``maxUnavailable`` counts only the pods that hand
    their shares over: a pod that does not come back must not hold up ``kubectl drain`` for ever.
    """
    if pool.adapter_pool is None or not pool.adapter_pool.hands_over:
        return []
    waiting = [
        (eviction, known, known.pod)
        for known in pool.pods.values()
        if known.pod is not None
        and known.evicted is None
        and (eviction := eviction_of(known.pod)) is not None
        and is_fresh(known.pod)
    ]
    if not waiting:
        return []
    unavailable, turns = UnavailablePods(pool), []
    for eviction, known, pod in sorted(waiting, key=lambda one: (one[0].first_s, one[1].name)):
        overdue = now_s - eviction.first_s >= TURN_MAX_S and unavailable.may_go_overdue(known)
        why_not = unavailable.why_not(known)[:BEHIND_CHARS_MAX]
        if overdue or not why_not:
            unavailable.take(known)
            # The webhook judges the turn, and this clock may be behind its own.
            turn_s = max(now_s, eviction.latest_s)
            turns.append((pod, eviction._replace(turn_s=turn_s, queued=False, behind="")))
        elif not eviction.queued or eviction.behind != why_not:
            turns.append((pod, eviction._replace(queued=True, behind=why_not)))
    return turns
