"""Which vreplicas leave a pod because its load is far above the mean (``MoveReason.LOAD``). Pure.

A pod is *hot* if its load is over ``(target + DEAD_BAND) * mean``. Balancing begins if a vreplica
can leave a hot pod. From then on in the period, every pod gives vreplicas away until its load is at
most ``target * mean``. The dead band lies between the two: noise begins nothing there. The hottest
pod comes first, and gives to the coldest pod that has room and that the profile allows. Of each
zone, only some of the coldest are tried.

Of its vreplicas, the one is taken that lowers the *overload* most: the sum over all pods of the
load above ``target * mean``. Among equal ones, it is the one with the least load. A move must lower
it by a good part of what it moves, and the first one by more than noise does. So the moves of a
plan end, and a pod with one vreplica that is too hot for any pod keeps it.

Limits besides the budget: a vreplica moves only if its vpod has a report that counts, for this pod
or another one; a vpod stands on no fewer pods afterwards; the profile's filters pass, and its
scores do not prefer the pod that the vreplica leaves. So policy does not take it back. A pod that
gets something in a plan gives nothing away in it.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from math import inf
from typing import Final

from extender.engine.placing.pick import refusal, totals
from extender.engine.placing.select import spread_of
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.guard import PluginFailed
from extender.engine.rebalance.draft import Draft, without_one
from extender.engine.rebalance.load import LoadView
from extender.engine.state.availability import would_end_service
from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod

DEAD_BAND: Final = 0.05
"""Of the mean load of a pod."""
GAIN_MIN: Final = 0.1
"""The least part of a moved load by which the overload must fall."""
FIRST_GAIN_MIN: Final = 0.2
"""The same, for what begins to move load in a period."""
NOISE: Final = 0.1
"""Of a pod's load. If the pod that takes a vreplica becomes as hot as the one that gives it, up to
this part, the first move of a period may be made only because of noise.
"""
MOVED_MAX: Final = 0.09
"""The part of a pool's vreplicas that may move in a period for this reason, as in Slicer."""
MOVES_AT_ONCE_MAX: Final = 100
"""Vreplicas in one plan: some milliseconds. The next plan continues."""
TRIES_MAX: Final = 5000
"""Of one vreplica and one destination, in one plan."""
LOOKS_MAX: Final = 20_000
"""Of one pod's free slots, in one plan."""
DESTINATIONS_MAX: Final = 8
"""Pods of each zone that are tried for one vreplica: the coldest ones with room. The profile may
refuse all pods of a zone.
"""

Rate = Callable[[str, str], float | None]
"""(vpod key, pod name) -> the load of one vreplica there; None if it is not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGoal:
    """``target``: the largest load of a pod, in means. ``budget``: vreplicas. ``begun``: whether
    vreplicas have moved for load in this period.
    """

    view: LoadView
    rate: Rate
    target: float
    budget: int
    begun: bool = False


def budget_of(vreplicas: int) -> int:
    """How many of a pool's placed vreplicas may move in a period; one at least."""
    return max(1, int(MOVED_MAX * vreplicas))


def counted_loads(pool: PoolState, view: LoadView, emptying: int) -> dict[int, float]:
    """Ordinal -> load of the pods among which load is balanced: those that keep what they have, and
    are bound or will be again. ``emptying``: bit set of ordinals.
    """
    return {
        ordinal: load
        for ordinal, load in view.loads.items()
        if not emptying >> ordinal & 1
        and (pod := pool.by_ordinal.get(ordinal)) is not None
        and not pod.leaving
        and (pod.bound or load > 0)
    }


@dataclass(slots=True, eq=False)
class _Share:
    """Vreplicas on a hot pod that may leave it. ``rate``: the load of each."""

    key: str
    vpod: VPod
    rate: float
    vreplicas: int


class Balancing:
    """One plan's moves. ``draft`` takes them. ``receivers``: bit set of the ordinals that may get
    something. ``movable``: vpod key -> the vpod, None if it must stay.
    """

    def __init__(
        self,
        pool: PoolState,
        draft: Draft,
        goal: LoadGoal,
        *,
        emptying: int,
        movable: Callable[[str], VPod | None],
    ) -> None:
        self._pool = pool
        self._draft = draft
        self._goal = goal
        self._movable = movable
        self._loads = counted_loads(pool, goal.view, emptying)
        self._mean = sum(self._loads.values()) / len(self._loads) if self._loads else 0.0
        self._most = goal.target * self._mean
        receivers = pool.room & ~emptying
        self._coldest: dict[str, list[tuple[float, int]]] = {}
        """Zone -> (load, ordinal) of those that may get something, the coldest first."""
        for load, ordinal in sorted((load, ordinal) for ordinal, load in self._loads.items()):
            if receivers >> ordinal & 1:
                self._coldest.setdefault(self._zone(ordinal), []).append((load, ordinal))
        self._received: set[int] = set()
        self._refused: set[tuple[str, int]] = set()
        """(vpod key, ordinal): what the present hot pod cannot give there."""
        self._tries = TRIES_MAX
        self._looks = LOOKS_MAX
        self._begun = goal.begun

    def moves(self, budget: int) -> Iterator[tuple[VPod, PodClaims, int]]:
        """Yield (vpod, the pod that gives one vreplica, the ordinal that takes it)."""
        goal = self._goal
        left = min(budget, goal.budget, MOVES_AT_ONCE_MAX)
        if not goal.view.is_enough or self._mean <= 0:
            return
        hot = (goal.target + DEAD_BAND) * self._mean
        for load, ordinal in sorted(
            ((load, ordinal) for ordinal, load in self._loads.items() if load > self._most),
            key=lambda one: (-one[0], one[1]),
        ):
            if left <= 0 or not (load > hot or self._begun):
                return
            if ordinal in self._received:
                continue
            self._withdraw(load, ordinal)
            pod = self._pool.by_ordinal[ordinal]
            shares = self._shares_on(pod)
            self._refused.clear()
            while left > 0 and self._loads[ordinal] > self._most:
                found = self._one_from(shares, pod, ordinal)
                if found is None:
                    break
                left -= 1
                self._begun = True
                yield found[0], pod, found[1]

    def _withdraw(self, load: float, ordinal: int) -> None:
        """Take a pod off the list of those that get something: one that gives something away gets
        nothing.
        """
        coldest = self._coldest.get(self._zone(ordinal), [])
        at = bisect_left(coldest, (load, ordinal))
        if at < len(coldest) and coldest[at] == (load, ordinal):
            del coldest[at]

    def _zone(self, ordinal: int) -> str:
        """The zone of a pod; "" while it is not bound."""
        node = self._pool.by_ordinal[ordinal].node
        return node.zone if node is not None else ""

    def _one_from(
        self, shares: list["_Share"], pod: PodClaims, ordinal: int
    ) -> tuple[VPod, int] | None:
        """Move the best vreplica of a hot pod in the draft: the vpod, and the ordinal that takes
        it. ``shares`` loses it.
        """
        there = self._loads[ordinal]
        lightest = min((share.vpod.weight for share in shares), default=0)
        for load, to in self._destinations(there, lightest):
            if self._tries <= 0:
                return None
            for _, rate, _, share in sorted(self._options(shares, there, load)):
                if (share.key, to) in self._refused:
                    continue
                self._tries -= 1
                if not self._takes(share.vpod, pod, to):
                    self._refused.add((share.key, to))
                else:
                    share.vreplicas -= 1
                    if not share.vreplicas:
                        shares.remove(share)
                    self._loads[ordinal] = there - rate
                    self._receive(load, to, rate)
                    return share.vpod, to
        return None

    def _destinations(self, there: float, lightest: int) -> Iterator[tuple[float, int]]:
        """Yield (load, ordinal) of the coldest pods of each zone that have a lower load than
        ``there`` and room for a vreplica of ``lightest`` slots. The coldest of all come first.
        """
        return merge(
            *(
                islice(self._fitting(pods, there, lightest), DESTINATIONS_MAX)
                for pods in self._coldest.values()
            )
        )

    def _fitting(
        self, pods: list[tuple[float, int]], there: float, lightest: int
    ) -> Iterator[tuple[float, int]]:
        for load, to in pods:
            if load >= there or self._looks <= 0:
                return
            self._looks -= 1
            if self._draft.free.of[to] >= lightest:
                yield load, to

    def _options(
        self, shares: list["_Share"], there: float, to: float
    ) -> Iterator[tuple[float, float, str, "_Share"]]:
        """Yield (minus the gain, load, key, share) of each vreplica that is worth a move from a pod
        with the load ``there`` to one with the load ``to``. The gain is by how much the overload
        falls. A loop over plain numbers: a plan looks at tens of thousands.
        """
        over, room = there - self._most, self._most - to
        part = GAIN_MIN if self._begun else FIRST_GAIN_MIN
        enough = min(over, DEAD_BAND * self._mean)
        hottest = inf if self._begun else (1.0 - NOISE) * there
        for share in shares:
            rate = share.rate
            gain = min(over, rate)
            if rate > room:
                if to + rate > hottest:
                    continue
                gain -= rate - room
            if gain >= min(rate, enough) and gain >= part * rate:
                yield -gain, rate, share.key, share

    def _receive(self, load: float, to: int, rate: float) -> None:
        self._withdraw(load, to)
        self._loads[to] = load + rate
        self._received.add(to)
        if self._draft.free.of[to] > 0:
            insort(self._coldest.setdefault(self._zone(to), []), (load + rate, to))

    def _shares_on(self, pod: PodClaims) -> list["_Share"]:
        """What the pod may give away, if it is movable."""
        found = []
        for key, claim in pod.claims.items():
            if not claim.decided.vreplicas:
                continue
            rate, vpod = self._goal.rate(key, pod.name), self._pool.vpods.get(key)
            if not rate or vpod is None:
                continue
            # What this plan brings there does not move on.
            found.append(_Share(key, vpod, rate, claim.decided.vreplicas))
        return found

    def _takes(self, vpod: VPod, pod: PodClaims, to: int) -> bool:
        """Move one vreplica in the draft, if everything allows it."""
        placed = self._draft.placed(vpod.key)
        target = self._pool.by_ordinal[to]
        if self._movable(vpod.key) is None:
            return False
        here = placed.get(pod.name, 0)
        if not here:
            return False  # this plan has taken all of it away, for another reason
        if here == 1 and placed.get(target.name, 0):
            return False  # the vpod would stand on fewer pods
        if would_end_service(pod, target) or not self._profile_agrees(vpod, pod, to):
            return False
        return self._draft.take(vpod, pod.name, to)

    def _profile_agrees(self, vpod: VPod, pod: PodClaims, to: int) -> bool:
        """Whether the filters pass, and the scores are no lower than where the vreplica is."""
        pool, profile = self._pool, self._pool.profile.for_moves
        if not profile.has_plugins:
            return True
        if pod.ordinal is None or not pod.schedulable:
            return False
        kept = without_one(self._draft.placed(vpod.key), pod.name)
        room = pool.room_for(vpod.key)
        spread = spread_of(pool, kept, weight=vpod.weight, room=room, vpod=vpod)
        try:
            there, here = spread.candidate(to), spread.candidate(pod.ordinal)
            if refusal(there, spread, profile.filters):
                return False
            score, back = totals([there, here], spread, profile.choosing)
        except PluginFailed:
            return False
        return score >= back
