"""Placing and taking away by a profile's plugins: what ``plan`` and the rebalancer call. Pure; the
state is not changed.

``grow_by_plugins`` gives one vreplica at a time to the pod that scores best, ``shrink`` takes one
at a time from the pod that the deschedulers name, ``better_place`` finds one move that makes a
placement strictly better. All of them, and ``refusals``, raise ``PluginFailed`` where a third
party's plugin does not give an answer (``guard``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final
from zlib import crc32

from extender.engine.placing.evenly import grow_evenly
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
from extender.engine.policy.ordinals import fill_lowest
from extender.engine.policy.profile import Profile, Ties
from extender.engine.policy.spread import Candidate, Spread
from extender.engine.state.availability import down_among
from extender.engine.state.pool_state import PoolState
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
) -> Spread:
    """Where ``kept`` (pod name -> vreplicas) stands.

    ``free``: free slots beside it; ``room``: the pods that may get more. None for those of the
    pool.
    """
    spread = Spread(pool, free if free is not None else pool.free_of, weight, room)
    for name, count in kept.items():
        if count and (pod := pool.pods.get(name)) is not None:
            spread.hold(pod, count)
    return spread


def grow_by_plugins(
    pool: PoolState,
    vpod: VPod,
    kept: Mapping[str, int],
    missing: int,
    free: Callable[[int], int],
    profile: Profile,
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas: (ordinal -> vreplicas added, what is left).

    ``free``: an ordinal's free slots beside what is kept there.
    """
    spread = spread_of(pool, kept, weight=vpod.weight, free=free, room=pool.room_for(vpod.key))
    if profile.costs is not None:
        return grow_evenly(spread, profile.costs, missing, free)
    if profile.fills_lowest:
        return fill_lowest(spread.room, vpod.weight, missing, free)
    best = picker(spread, profile, start_of(pool, vpod) if profile.ties is Ties.ROUND_ROBIN else 0)
    added: dict[int, int] = {}
    while missing > 0 and (ordinal := best()) is not None:
        spread.add(ordinal)
        added[ordinal] = added.get(ordinal, 0) + 1
        missing -= 1
    return added, missing


def start_of(pool: PoolState, vpod: VPod) -> int:
    """The ordinal at which a vpod's ties begin under ``Ties.ROUND_ROBIN``: any one, and always the
    same.
    """
    pods = pool.schedulable.bit_length()
    return crc32(vpod.key.encode()) % pods if pods else 0


def refusals(
    pool: PoolState,
    vpod: VPod,
    kept: Mapping[str, int],
    free: Callable[[int], int],
    profile: Profile,
) -> dict[int, str]:
    """Ordinal -> why a filter does not let it have one more, for pods with room. Looks at every
    such pod.
    """
    spread = spread_of(pool, kept, weight=vpod.weight, free=free, room=pool.room_for(vpod.key))
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
    """Take ``surplus`` vreplicas away: pod name -> vreplicas removed; never more than is there.

    First what no status has published, which no adapter has begun to serve. Where deschedulers are
    equal, and where there are none, from the highest ordinal down.
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
        self.spread = spread_of(pool, self.left, weight=vpod.weight)

    def take(self, spare: Mapping[str, int]) -> bool:
        """Take one vreplica from one of the pods with something to spare; False where there is
        none.
        """
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
    """The pods to take one vreplica from, first the one that should lose it first; of equal pods
    only the first.

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
    # Sorting is stable: equal ones stay in descending order of their ordinals.
    for item in sorted(
        ((_removal(one, spread, profile.deschedulers), one.name) for one in passing),
        key=lambda item: item[0],
        reverse=True,
    ):
        yield item[1]


def _different(candidates: list[Candidate], spread: Spread, profile: Profile) -> list[Candidate]:
    """The first of each kind of pods between which the profile's deschedulers do not tell apart."""
    asked = [scope_of(item.plugin) for item in profile.deschedulers]
    asked += [scope_of(one) for one in profile.deschedule_filters]
    if max(asked) > Scope.ORDINAL:
        return candidates
    kinds: dict[tuple[object, ...], Candidate] = {}
    for one in candidates:
        # A pod that is not schedulable is a kind of its own: its node may be one that takes no
        # work, or none.
        name = one.name if one.name in spread.away_pods else ""
        kinds.setdefault(
            (one.zone, spread.node_load(one.node), one.on_node, one.on_pod, one.free > 0, name), one
        )
    return list(kinds.values())


def _removal(
    candidate: Candidate, spread: Spread, deschedulers: Sequence[Weighted[DeschedulePlugin]]
) -> tuple[bool, int]:
    """How good it is to take from a pod; best where it stands on no node that takes work: it serves
    nobody.
    """
    try:
        return False, sum(
            item.weight * item.plugin.deschedule(candidate, spread) for item in deschedulers
        )
    except PlaceUnknown:
        return True, 0


def better_place(
    pool: PoolState, vpod: VPod, placed: Mapping[str, int], profile: Profile
) -> tuple[str, str] | None:
    """One vreplica that the profile would rather have elsewhere: (from pod, to pod), or None.

    Hard filters hold at the destination, which has room. The move raises ``_worth``, a function of
    where the vreplicas are and nothing else, so doing as told again and again ends as long as
    nothing else changes.
    """
    if not profile.has_plugins:
        return None
    spread = spread_of(pool, placed, weight=vpod.weight, room=pool.room_for(vpod.key))
    sources = [
        name
        for name in _highest_first(placed)
        if placed[name] > 0 and (pod := pool.pods.get(name)) is not None and pod.schedulable
    ]
    for name in islice(_in_order(pool, sources, spread, profile), SOURCES_TRIED_MAX):
        source = pool.pods[name]
        to = _preferred(pool, vpod, spread, source, profile)
        if to is not None and _is_worth_it(
            spread_of(pool, placed, weight=vpod.weight), source, to, profile
        ):
            return name, pool.by_ordinal[to].name
    return None


def _preferred(
    pool: PoolState, vpod: VPod, spread: Spread, source: PodClaims, profile: Profile
) -> int | None:
    """The ordinal that one vreplica less on ``source`` would rather go to than back; None where
    that is no other.
    """
    if source.ordinal is None:
        return None
    spread.remove(source)
    room = spread.room
    if not source.down:
        # What is served there is to be served elsewhere, too.
        spread.room = room & ~down_among(pool, room)
    best = picker(spread, profile, start_of(pool, vpod))()
    spread.room = room
    if best is not None and best != source.ordinal:
        both = [spread.candidate(best), spread.candidate(source.ordinal)]
        there, back = totals(both, spread, profile.choosing)
        best = best if there > back else None
    spread.add(source.ordinal)
    return None if best == source.ordinal else best


def _is_worth_it(spread: Spread, source: PodClaims, to: int, profile: Profile) -> bool:
    before = _worth(spread, profile)
    spread.remove(source)
    spread.add(to)
    return _worth(spread, profile) > before


def _worth(spread: Spread, profile: Profile) -> int:
    """How good a placement is: what each vreplica would score if it were the last one to be placed,
    summed.
    """
    worth = 0
    for ordinal, count in list(spread.pods.items()):
        pod = spread.by_ordinal[ordinal]
        spread.remove(pod)
        worth += count * totals([spread.candidate(ordinal)], spread, profile.choosing)[0]
        spread.add(ordinal)
    return worth
