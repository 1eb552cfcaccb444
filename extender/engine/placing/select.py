"""Removing and moving vreplicas by a profile's plugins, for ``plan`` and the rebalancer. Pure; does
not change the state.

``shrink`` takes one vreplica at a time from the pod that the deschedulers choose. ``better_place``
finds one move that makes a placement strictly better. These and ``refusals`` raise ``PluginFailed``
if a third-party plugin gives no valid answer (``guard``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from extender.engine.placing.pick import picker, refusal, totals
from extender.engine.pods.bits import bits
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.framework import (
    DeschedulePlugin,
    PlaceUnknown,
    Scope,
    Weighted,
    scope_of,
)
from extender.engine.policy.profile import Profile
from extender.engine.policy.spread import Candidate, Spread
from extender.engine.state.pool_state import PoolState
from extender.model.amounts import NO_AMOUNTS
from extender.model.objects import VPod, placement_order

SOURCES_TRIED_MAX: Final = 8
"""Pods from which ``better_place`` tries to move one vreplica, in the deschedulers' order."""


def spread_of(
    pool: PoolState,
    kept: Mapping[str, int],
    *,
    weight: int = 1,
    free: Callable[[int], int] | None = None,
    room: int | None = None,
    vpod: VPod | None = None,
) -> Spread:
    """The spread of ``kept`` (pod name -> vreplicas).

    ``free``: an ordinal's free slots beside it. ``room``: the pods that may get more. None: the
    pool's. ``vpod``: whose it is.
    """
    spread = Spread(
        pool,
        free if free is not None else pool.free_of,
        weight,
        room,
        key=vpod.key if vpod is not None else "",
        amounts=vpod.per_vreplica if vpod is not None else NO_AMOUNTS,
    )
    for name, count in kept.items():
        if count and (pod := pool.pods.get(name)) is not None:
            spread.hold(pod, count)
    return spread


def refusals(
    pool: PoolState,
    vpod: VPod,
    kept: Mapping[str, int],
    free: Callable[[int], int],
    profile: Profile,
) -> dict[int, str]:
    """Ordinal -> why a filter refuses one more vreplica, for pods with room. Looks at every such
    pod.
    """
    room = pool.room_for(vpod.key)
    spread = spread_of(pool, kept, weight=vpod.weight, free=free, room=room, vpod=vpod)
    found: dict[int, str] = {}
    for ordinal in bits(spread.room):
        if spread.fits(ordinal) and (
            why := refusal(spread.candidate(ordinal), spread, profile.filters)
        ):
            found[ordinal] = why
    return found


def shrink(
    pool: PoolState, vpod: VPod, kept: Mapping[str, int], surplus: int, profile: Profile
) -> dict[str, int]:
    """Take ``surplus`` vreplicas away: pod name -> vreplicas removed, never more than are there.

    Those that no status has published go first, since no adapter serves them yet. If the
    deschedulers rate pods equal, or there are none, vreplicas go from the highest ordinal down.
    """
    taking = _Taking(pool, vpod, kept, profile)
    if surplus >= sum(taking.left.values()):
        return taking.left
    claims = pool.claims_of(vpod.key)
    published = {name: claims[name].published if name in claims else 0 for name in taking.left}
    while surplus > 0 and taking.take(
        {name: max(0, n - published[name]) for name, n in taking.left.items()}
    ):
        surplus -= 1
    while surplus > 0 and taking.take(taking.left):
        surplus -= 1
    return taking.removed


class _Taking:
    """The working values of one ``shrink``."""

    def __init__(
        self, pool: PoolState, vpod: VPod, kept: Mapping[str, int], profile: Profile
    ) -> None:
        self.pool = pool
        self.profile = profile
        self.left = {name: kept[name] for name in _highest_first(kept) if kept[name] > 0}
        self.removed: dict[str, int] = {}
        free = pool.free_for(vpod)
        self.spread = spread_of(pool, self.left, weight=vpod.weight, free=free, vpod=vpod)

    def take(self, spare: Mapping[str, int]) -> bool:
        """Take one vreplica from a pod of ``spare``; False if it has none."""
        names = [name for name, count in spare.items() if count > 0]
        if not names:
            return False
        name = next(_in_order(self.pool, names, self.spread, self.profile))
        self.spread.remove(self.pool.pods[name])
        self.left[name] -= 1
        self.removed[name] = self.removed.get(name, 0) + 1
        return True


def _highest_first(placed: Mapping[str, int]) -> list[str]:
    return sorted(placed, key=placement_order, reverse=True)


def _in_order(
    pool: PoolState, names: Sequence[str], spread: Spread, profile: Profile
) -> Iterator[str]:
    """The pods to take one vreplica from, the best first. Of equal pods, only the first is given.

    ``names``: highest ordinal first.
    """
    if not profile.deschedulers:
        yield from names
        return
    candidates = _different(
        [spread.candidate_of(pool.pods[name]) for name in names], spread, profile
    )
    passing = [
        one for one in candidates if not refusal(one, spread, profile.deschedule_filters)
    ] or candidates
    # Sorting is stable: equal pods stay in descending order of their ordinals.
    for item in sorted(
        ((_removal(one, spread, profile.deschedulers), one.name) for one in passing),
        key=lambda item: item[0],
        reverse=True,
    ):
        yield item[1]


def _different(candidates: list[Candidate], spread: Spread, profile: Profile) -> list[Candidate]:
    """The first pod of each kind that the profile's deschedulers cannot tell apart."""
    asked = [scope_of(item.plugin) for item in profile.deschedulers]
    asked += [scope_of(one) for one in profile.deschedule_filters]
    if max(asked) > Scope.ORDINAL:
        return candidates
    kinds: dict[tuple[object, ...], Candidate] = {}
    for one in candidates:
        # A pod that is not schedulable is a kind of its own: it may have no node, or one that takes
        # no work.
        name = one.name if one.name in spread.away_pods else ""
        kinds.setdefault(
            (one.zone, spread.node_load(one.node), one.on_node, one.on_pod, one.free > 0, name), one
        )
    return list(kinds.values())


def _removal(
    candidate: Candidate, spread: Spread, deschedulers: Sequence[Weighted[DeschedulePlugin]]
) -> tuple[bool, int]:
    """How good it is to take from a pod. A pod without a node that takes work is best: it serves
    nobody.
    """
    try:
        return False, sum(
            item.weight * item.plugin.deschedule(candidate, spread) for item in deschedulers
        )
    except PlaceUnknown:
        return True, 0


def better_place(
    pool: PoolState,
    vpod: VPod,
    placed: Mapping[str, int],
    profile: Profile,
    *,
    if_room: int | None = None,
) -> tuple[str, str] | None:
    """One vreplica that the profile would rather have on another pod: (from pod, to pod), or None.

    The destination has room and passes the hard filters. With ``if_room`` (bit set of ordinals), it
    is one of these, whether or not it has room. The move raises ``_worth``, which depends
    only on where the vreplicas are. So repeated moves come to an end unless something else changes.
    """
    if not profile.has_plugins:
        return None
    profile = profile.for_moves
    room = pool.room_for(vpod.key) if if_room is None else if_room
    free = pool.free_for(vpod) if if_room is None else _enough_for(pool, vpod, placed)
    spread = spread_of(pool, placed, weight=vpod.weight, room=room, free=free, vpod=vpod)
    sources = [
        name
        for name in _highest_first(placed)
        if placed[name] > 0 and (pod := pool.pods.get(name)) is not None and pod.schedulable
    ]
    for name in islice(_in_order(pool, sources, spread, profile), SOURCES_TRIED_MAX):
        source = pool.pods[name]
        to = _preferred(pool, spread, source, profile)
        if (
            to is not None
            and gain(pool, vpod, placed, (name, pool.by_ordinal[to].name), profile) > 0
        ):
            return name, pool.by_ordinal[to].name
    return None


def _enough_for(pool: PoolState, vpod: VPod, placed: Mapping[str, int]) -> Callable[[int], int]:
    """Free slots as if each pod that is large enough had room for all of a vpod, beside ``placed``
    (pod name -> vreplicas).
    """
    spec = pool.adapter_pool
    if spec is None or not spec.could_hold(vpod):
        return lambda _: 0

    def free(ordinal: int) -> int:
        pod = pool.by_ordinal[ordinal]
        if pod.capacity < vpod.weight:
            return 0
        return vpod.slots_beside(placed.get(pod.name, 0), max(1, vpod.vreplicas) * vpod.weight)

    return free


def gain(
    pool: PoolState,
    vpod: VPod,
    placed: Mapping[str, int],
    move: tuple[str, str],
    profile: Profile,
) -> int:
    """By how much a placement gets better with one vreplica moved: (from pod, to pod). Raises
    PluginFailed.
    """
    profile = profile.for_moves
    free = pool.free_for(vpod)
    spread = spread_of(pool, placed, weight=vpod.weight, free=free, vpod=vpod)
    before = _worth(spread, profile)
    spread.remove(pool.pods[move[0]])
    ordinal = pool.pods[move[1]].ordinal
    if ordinal is not None:
        spread.add(ordinal)
    return _worth(spread, profile) - before


def _preferred(pool: PoolState, spread: Spread, source: PodClaims, profile: Profile) -> int | None:
    """The ordinal that one vreplica of ``source`` would rather go to than back; None if there is
    none.
    """
    if source.ordinal is None:
        return None
    spread.remove(source)
    room = spread.room
    if not source.down:
        # A vreplica that is served there must be served at its destination too.
        spread.room = room & ~pool.down
    best = picker(spread, profile, pool.next_start_ordinal)()
    spread.room = room
    if best is not None and best != source.ordinal:
        both = [spread.candidate(best), spread.candidate(source.ordinal)]
        there, back = totals(both, spread, profile.choosing)
        best = best if there > back else None
    spread.add(source.ordinal)
    return None if best == source.ordinal else best


def _worth(spread: Spread, profile: Profile) -> int:
    """How good a placement is: the sum of what each vreplica would score if it were placed last."""
    worth = 0
    for ordinal, count in list(spread.pods.items()):
        pod = spread.by_ordinal[ordinal]
        spread.remove(pod)
        worth += count * totals([spread.candidate(ordinal)], spread, profile.choosing)[0]
        spread.add(ordinal)
    return worth
