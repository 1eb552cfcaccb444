"""``Descheduler``: the leader's loop that evicts adapter pods from nodes that they should have
left.

``node.descheduling`` says which pods these are. Pools opt in by spec.descheduling.reasons.

In a pool that hands shares over, each pod is marked with the reason ``Maintenance``
(``model.eviction``), and evicted once it has had its turn and carries nothing, or its deadline has
passed. All of that is stored on the pods, so any next leader goes on. A pod that somebody else
evicts is left to them.

In a pool that does not hand shares over, the limits are:

- one pod at a time: only while all pods are Ready, and no change of the StatefulSet is under way. A
  pod that is not Ready itself may go while others are not Ready either;
- one eviction per scaleDownPeriodSeconds. A new leader waits one period first;
- the pods' PodDisruptionBudgets, and the pace of ``PodEvictions`` after a refusal.

movesPerPeriod does not count: an eviction changes no placement. An eviction without an answer
counts as made, so the next one waits for a period. If the pod did go, it is not Ready, and that
stops further evictions, too.

Each look also decides the pool's condition ``PodsMisplaced``, whether or not the pool has opted in.
``PoolStatusWriter`` writes it. It is True while a pod should leave its node, and until a pod that
this leader has evicted is Ready again. The reason says why nothing is done, or that a pod is being
evicted. The text has no times, so a look that finds the same changes nothing. A new leader knows of
no refusal, and says ``EvictionDue`` until its own first try.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from extender.engine.state.pool_state import PoolState
from extender.kube.events import EventRecorder, clean_note
from extender.kube.fence import PoolApi
from extender.kube.serving.readers import in_steps
from extender.model.bucket import WHOLE, Bucket
from extender.model.counted import first_of
from extender.model.event_reasons import EventReason
from extender.model.eviction import Eviction, eviction_of, has_to_wait
from extender.model.moves import MoveReason
from extender.model.objects import AdapterPool
from extender.node.descheduling import (
    PODS_MISPLACED,
    Misplaced,
    PoolExamination,
    examination_steps,
    may_go,
)
from extender.service.pools.evictions import write_mark
from extender.service.pools.pod_evictions import (
    HANDING_OVER,
    EvictionPace,
    PodEvictions,
    WhyEvicted,
)
from extender.service.watching.caches import Caches
from extender.service.watching.sources import PoolCondition
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""How often pools that have opted in are examined."""
LOOKS_OF_OTHERS: Final = 6
"""All other pools are examined at every sixth look, only for the condition: with a hard zone rule
and many vpods, each pod costs a millisecond.
"""

NONE_MISPLACED: Final[PoolCondition] = (
    PODS_MISPLACED,
    False,
    "NoneMisplaced",
    "no pod stands on a node that it should have left",
)
NAMED_MAX: Final = 5
"""How many pods the condition names."""


@dataclass(slots=True)
class _Pace(EvictionPace):
    """``evicted``: the pod that was evicted last, until its ordinal has a Ready pod again."""

    evicted: Misplaced | None = None


class Descheduler:
    """Evicts pods until cancelled. ``now``: epoch seconds."""

    def __init__(
        self,
        caches: Caches,
        *,
        fenced: PoolApi,
        recorder: EventRecorder,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        self._caches = caches
        self._fenced = fenced
        self._evictions = PodEvictions(fenced, recorder, metrics)
        self._now = now
        self._paces: dict[str, _Pace] = {}
        """By pool key, for pools that have opted in."""
        self._conditions: dict[str, PoolCondition] = {}
        """By pool key, as of the last look."""

    def condition(self, key: str) -> PoolCondition | None:
        """The condition PodsMisplaced of a pool as of the last look; None before the first."""
        return self._conditions.get(key)

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Examine the bucket's pools until cancelled."""
        try:
            for look in itertools.count():
                pools = {*self._caches.state.pools, *self._conditions}
                for key in sorted(key for key in pools if bucket.has(key)):
                    await self._look(key, others=look % LOOKS_OF_OTHERS == 0)
                await asyncio.sleep(LOOK_S)
        finally:
            for known in (self._paces, self._conditions):
                for key in [key for key in known if bucket.has(key)]:
                    del known[key]

    async def _look(self, key: str, *, others: bool) -> None:
        """Examine a pool. ``others``: even if it has not opted in."""
        state = self._caches.state.pools.get(key)
        pool = state.adapter_pool if state is not None else None
        if state is None or pool is None or pool.deleting:
            self._paces.pop(key, None)
            self._conditions.pop(key, None)
            return
        if not pool.descheduling:
            self._paces.pop(key, None)
            if not others:
                return
        now_s = self._now()
        found = await in_steps(examination_steps(self._caches.state, state, now_s))
        if not pool.descheduling:
            self._conditions[key] = _condition(found, None, "")
            return
        first_s = 0 if pool.hands_over else pool.scale_down_period_s
        first_at = asyncio.get_running_loop().time() + first_s
        pace = self._paces.setdefault(key, _Pace(first_at))
        if not found.misplaced:
            pace.refused = None
        away = ""
        if pool.hands_over:
            pace.evicted = None
            allowed = {one.pod.name for one in found.allowed}
            for one in found.misplaced:
                await self._hand_over(state, pool, one, pace, allowed=one.pod.name in allowed)
        else:
            away = await self._evict_next(state, pool, found, pace)
        self._conditions[key] = _condition(found, pace, away)

    async def _evict_next(
        self, state: PoolState, pool: AdapterPool, found: PoolExamination, pace: _Pace
    ) -> str:
        """Evict the pod that is chosen, once the last one is back. Return where the pod that was
        evicted last is, as text; "" if nothing is waited for.
        """
        if pace.evicted is not None and (away := _why_away(state, pace.evicted)):
            return away
        pace.evicted, chosen = None, found.chosen
        if chosen is None or asyncio.get_running_loop().time() < pace.next_at:
            return ""
        if not may_go(self._caches.state, state, chosen, self._now()):
            return ""
        if not await self._evict(pool, chosen, pace, pool.scale_down_period_s):
            return ""
        pace.evicted = chosen
        return "is leaving"

    async def _hand_over(
        self, state: PoolState, pool: AdapterPool, one: Misplaced, pace: _Pace, *, allowed: bool
    ) -> None:
        """Mark the pod, or evict it if its turn has come and it has nothing to wait for. If it is
        not ``allowed`` to go now, it keeps the mark that it has, until the time for its hand-over
        is over: others wait behind it for their turn. One that is being emptied to be removed, or
        whose reason counts no more, does not keep it (seed 245130788).
        """
        known = state.pods.get(one.pod.name)
        if known is None or state.is_closed(known) or one.reason not in pool.descheduling:
            return
        now_s, mark = self._now(), eviction_of(one.pod)
        if mark is None or not mark.is_fresh(now_s):
            if allowed and may_go(self._caches.state, state, one, now_s):
                mark = Eviction(now_s, now_s, MoveReason.MAINTENANCE)
                await write_mark(self._caches, self._fenced, one.pod, mark)
            return
        if mark.reason is not MoveReason.MAINTENANCE:
            return
        over = mark.is_over(pool, now_s)
        done = over or not has_to_wait(one.pod, pool)
        paused = asyncio.get_running_loop().time() < pace.next_at
        fades = mark.fades(pool, now_s)
        if (
            allowed
            and done
            and not (fades or mark.waits or paused)
            and may_go(self._caches.state, state, one, now_s)
        ):
            await self._evict(pool, one, pace, 0.0)
        elif fades and (allowed or not over):
            await write_mark(self._caches, self._fenced, one.pod, mark._replace(latest_s=now_s))

    async def _evict(
        self, pool: AdapterPool, chosen: Misplaced, pace: _Pace, pause_s: float
    ) -> bool:
        """Evict that very pod, in the version that was decided on, and no other for ``pause_s``.
        Whether it is known to be evicted.
        """
        note = f"{chosen.reason}: {chosen.note}"
        if has_to_wait(chosen.pod, pool):
            note += "; what it still has was not handed over in time, and is down until it is back"
        why = WhyEvicted(
            note,
            f"should leave ({chosen.note})",
            EventReason.DESCHEDULED,
            EventReason.DESCHEDULING_REFUSED,
            "rbac.descheduling",
        )
        return await self._evictions.evict(pool, chosen.pod, why, pace, pause_s)


def _why_away(state: PoolState, evicted: Misplaced) -> str:
    """Where the pod that was evicted is; "" once its ordinal has a Ready pod, or is gone."""
    pod = evicted.pod
    known = state.pods.get(pod.name)
    if state.stateful_set is None or pod.ordinal not in state.stateful_set.ordinals:
        return ""
    if known is None or known.pod is None:
        return "does not exist yet"
    if known.pod.uid == pod.uid:
        return "is leaving"
    if not known.bound:
        return "has no node yet (`kubectl describe pod` says why)"
    return "" if known.serving else "is not Ready yet"


def _condition(found: PoolExamination, pace: _Pace | None, away: str) -> PoolCondition:
    """PodsMisplaced for what a look has found. ``away``: where the pod is that was evicted."""
    those = sorted(found.misplaced, key=lambda one: one.pod.ordinal or 0)
    if away and pace is not None and pace.evicted is not None:
        those = [one for one in those if one.pod.uid != pace.evicted.pod.uid]
        name, note = pace.evicted.pod.name, pace.evicted.note
        reason = "EvictedPodNotReady"
        why = f"{name} was evicted ({note}) and {away}: until it is Ready, no other pod is evicted"
    elif not those:
        return NONE_MISPLACED
    elif found.blocked is not None:
        reason, why = str(found.blocked.reason), f"not evicted: {found.blocked.note}"
    elif pace is not None and pace.refused is not None:
        reason, why = pace.refused[0], f"not evicted: {pace.refused[1]}"
    elif any(eviction_of(one.pod) is not None for one in found.allowed):
        reason, why = HANDING_OVER, "evicted once others serve what they carry"
    else:
        reason, why = "EvictionDue", "evicted one at a time"
    return (PODS_MISPLACED, True, reason, clean_note("; ".join([*_named(those), why])))


def _named(those: Sequence[Misplaced]) -> list[str]:
    """How many pods are misplaced and the first of them, as one text; no text for none."""
    if not those:
        return []
    named = first_of([f"{one.pod.name} ({one.reason})" for one in those], NAMED_MAX)
    if len(those) == 1:
        return [f"1 pod stands on a node that it should have left: {named}"]
    return [f"{len(those)} pods stand on nodes that they should have left: {named}"]
