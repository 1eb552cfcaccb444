"""The rows of the table: what is measured of an instance, beside the optimum.

A row's ``measure`` returns what the engine reaches and what the solver finds, or None if the
instance does not count: its vpods do not all fit, or nothing waits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tests.quality import solver
from tests.quality.instances import (
    SLOTS,
    Ask,
    Instance,
    blocked,
    counts,
    deleting,
    full,
    heavy,
    unequal,
)
from tests.quality.load_rows import LOAD_ROWS
from tests.quality.ours import Ours
from tests.quality.row import UNPROVEN, Measure, Pair, Row
from tests.quality.sequences import least_waiting

PROFILES: Final = ("default", "pack", "spread")
"""The profiles without a hard rule: whatever the slots allow is allowed."""


# -- what several rows look at ---------------------------------------------------------------------


@lru_cache(maxsize=4096)
def fits(instance: Instance) -> bool:
    """Whether the slots of maxPods pods allow all vpods. Raises TimeoutError."""
    return solver.fits(counts(instance.asks), instance.max_pods)


@lru_cache(maxsize=4096)
def _fits_ha(instance: Instance) -> bool:
    """Whether maxPods pods, spread evenly over the zones, hold all under the rule of ``ha``. Raises
    TimeoutError.
    """
    return solver.fits_ha(instance.asks, instance.zone_of_pod)


def _arrived(instance: Instance, profile: str) -> Iterator[Ours]:
    """The pool in three states. The first vpods have come one after the other, and rest. The others
    have come as one batch, and no room is made for them yet. Everything rests.
    """
    ours = Ours(profile, max_pods=instance.max_pods)
    for ask in instance.asks[: instance.standing]:
        ours.arrive([ask])
        ours.bring_up()
    ours.settle()
    yield ours
    ours.arrive(instance.asks[instance.standing :])
    ours.bring_up()
    yield ours
    ours.settle()
    yield ours


@lru_cache(maxsize=4096)
def _waiting(instance: Instance, profile: str) -> int:
    """Vreplicas that have no place in the end."""
    *_, ours = _arrived(instance, profile)
    return ours.waiting


def _missing(instance: Instance, held: Sequence[solver.Load]) -> Counter[int]:
    """What is not placed, by weight."""
    missing = counts(instance.asks)
    for load in held:
        missing.subtract(load)
    return missing


def _pair(ours: int, answer: solver.Answer) -> Pair:
    if answer.value is None:
        return UNPROVEN
    return Pair(ours, answer.value, answer.proven)


# -- all would fit, yet some waits -----------------------------------------------------------------


def some_waits(profile: str) -> Measure:
    """1 if anything waits; 0 would be possible."""

    def measure(instance: Instance) -> Pair | None:
        if profile == "ha" and not _fits_ha(instance):
            return None
        return Pair(int(_waiting(instance, profile) > 0), 0)

    return measure


def waiting(profile: str) -> Measure:
    """Vreplicas that wait; 0 would be possible."""

    def measure(instance: Instance) -> Pair | None:
        if profile == "ha" and not _fits_ha(instance):
            return None
        return Pair(_waiting(instance, profile), 0)

    return measure


def room_unused(profile: str) -> Measure:
    """Waiting vreplicas that fit beside everything that is placed; 0 would be possible."""

    def measure(instance: Instance) -> Pair | None:
        *_, ours = _arrived(instance, profile)
        if not ours.waiting:
            return None
        held = solver.loads(ours.placed, instance.asks, instance.max_pods)
        answer = solver.most_placed(_free(held), _missing(instance, held))
        return UNPROVEN if answer.value is None else Pair(answer.value, 0, answer.proven)

    return measure


def room_by_moves(profile: str) -> Measure:
    """Vreplicas that wait in the end, beside those that wait after any sequence of moves. An
    instance with too many sequences does not count.
    """

    def measure(instance: Instance) -> Pair | None:
        *_, ours = _arrived(instance, profile)
        if not ours.waiting:
            return None
        held = solver.loads(ours.placed, instance.asks, instance.max_pods)
        answer = least_waiting(held, _missing(instance, held))
        return _pair(ours.waiting, answer) if answer.proven else None

    return measure


def waiting_of_batch(profile: str) -> Measure:
    """Vreplicas that wait before room is made, beside those that would wait if the last batch were
    decided jointly. What stood before it is not moved.
    """

    def measure(instance: Instance) -> Pair | None:
        pools = _arrived(instance, profile)
        held = solver.loads(next(pools).placed, instance.asks, instance.max_pods)
        ours = next(pools)
        if not ours.waiting:
            return None
        missing = _missing(instance, held)
        answer = solver.most_placed(_free(held), missing)
        if answer.value is None:
            return UNPROVEN
        return Pair(ours.waiting, missing.total() - answer.value, answer.proven)

    return measure


def moves_for_room(profile: str) -> Measure:
    """Vreplicas that are moved until all have a place, but not because the profile prefers another
    pod. An instance in which some waits for ever does not count.
    """

    def measure(instance: Instance) -> Pair | None:
        pools = _arrived(instance, profile)
        next(pools)
        ours = next(pools)
        if not ours.waiting:
            return None
        held, before = solver.loads(ours.placed, instance.asks, instance.max_pods), ours.moved
        ours.settle(until_placed=True)
        if ours.waiting:
            return None
        answer = solver.least_moves(held, counts(instance.asks), instance.max_pods)
        return _pair(ours.moved - before, answer)

    return measure


def _free(held: Sequence[solver.Load]) -> list[int]:
    return [SLOTS - sum(weight * count for weight, count in load.items()) for load in held]


# -- the number of pods ----------------------------------------------------------------------------


def pods_of_burst(profile: str) -> Measure:
    """Pods of a pool without a limit, once vpods that came all at once are placed."""

    def measure(instance: Instance) -> Pair | None:
        ours = Ours(profile)
        ours.arrive(instance.asks)
        ours.bring_up()
        if profile == "ha":
            return _pair(ours.pods, solver.least_pods_ha(instance.asks))
        return _pair(ours.pods, solver.least_pods(counts(instance.asks)))

    return measure


@lru_cache(maxsize=4096)
def _compacted(instance: Instance) -> tuple[int, int, tuple[solver.Load, ...]]:
    """Pods and moves of compaction, once it has ended after the deletion; and what each pod held at
    its beginning.
    """
    ours = Ours("default", max_pods=instance.max_pods)
    for ask in instance.asks:
        ours.arrive([ask])
        ours.bring_up()
    ours.delete(instance.deleted)
    ours.bring_up()
    held = tuple(solver.loads(ours.placed, instance.left, ours.pods))
    before = ours.moved
    ours.settle()
    return ours.pods, ours.moved - before, held


def pods_after_deletion(instance: Instance) -> Pair | None:
    """Pods once vpods are gone and compaction has ended."""
    return _pair(_compacted(instance)[0], solver.least_pods(counts(instance.left)))


def moves_of_compaction(instance: Instance) -> Pair | None:
    """Vreplicas that compaction moves, beside the fewest for as many pods as it reaches."""
    pods, moved, held = _compacted(instance)
    load = counts(instance.left)
    placed = sum(sum(pod.values()) for pod in held)
    if placed < sum(load.values()) or pods >= len(held):
        return None  # something waits, or no pod went
    return _pair(moved, solver.least_moves(held, load, pods))


# -- spread in unequal zones -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Spread:
    """A pool once half of the vpods are gone and the evictor rests. ``skews``: by vpod. ``across``:
    moves from zone to zone. ``asks``: what is placed. ``before``: vpod -> zone -> vreplicas before
    the first move.
    """

    skews: Mapping[str, int]
    across: int
    asks: tuple[Ask, ...]
    before: Mapping[str, Mapping[str, int]]


@lru_cache(maxsize=4096)
def _spread(instance: Instance) -> _Spread:
    ours = Ours("spread", instance.zone_of_pod, max_pods=instance.max_pods)
    ours.fix_pods()
    ours.arrive(instance.asks)
    ours.bring_up()
    ours.delete(instance.deleted)
    ours.bring_up()
    before, moves_before = _by_zone(ours, instance), len(ours.moves)
    ours.settle()
    after = _by_zone(ours, instance)
    across = sum(
        move.vreplicas
        for move in ours.moves[moves_before:]
        if _zone(instance, move.from_pod) != _zone(instance, move.to_pod)
    )
    asks = (replace(ask, vreplicas=sum(after[ask.name].values())) for ask in instance.left)
    skews = {name: max(zones.values()) - min(zones.values()) for name, zones in after.items()}
    return _Spread(skews, across, tuple(ask for ask in asks if ask.vreplicas), before)


def _by_zone(ours: Ours, instance: Instance) -> dict[str, dict[str, int]]:
    found = {ask.name: dict.fromkeys(sorted({*instance.zone_of_pod}), 0) for ask in instance.left}
    for name, pods in ours.placed.items():
        for ordinal, count in pods.items():
            found[name][instance.zone_of_pod[ordinal]] += count
    return found


def _zone(instance: Instance, pod: str) -> str:
    return instance.zone_of_pod[int(pod.rpartition("-")[2])]


def skew_in_unequal_zones(instance: Instance) -> Pair | None:
    """The greatest skew of a vpod over the zones."""
    found = _spread(instance)
    return _pair(max(found.skews.values()), solver.least_skew(found.asks, instance.zone_of_pod))


def zone_changes(instance: Instance) -> Pair | None:
    """Moves from zone to zone, beside the fewest that give each vpod the skew that it reaches."""
    found = _spread(instance)
    answer = solver.least_zone_changes(found.asks, instance.zone_of_pod, found.before, found.skews)
    return _pair(found.across, answer)


def _waiting_rows() -> Iterator[Row]:
    for profile in PROFILES:
        yield Row(f"waits/{profile}", "instances", full, some_waits(profile))
    for profile in PROFILES:
        yield Row(f"waiting/{profile}", "vreplicas", full, waiting(profile))
    for profile in PROFILES:
        yield Row(f"room-unused/{profile}", "vreplicas", full, room_unused(profile))
    yield Row("room-by-moves/default", "vreplicas", full, room_by_moves("default"))
    for profile in PROFILES:
        yield Row(f"jointly/{profile}", "vreplicas", full, waiting_of_batch(profile))
    for profile in PROFILES:
        yield Row(f"moves-for-room/{profile}", "moves", full, moves_for_room(profile))


ROWS: Final = (
    *_waiting_rows(),
    Row("waits/ha", "instances", full, some_waits("ha")),
    Row("waiting/ha", "vreplicas", full, waiting("ha")),
    Row("pods-of-burst/ha", "pods", full, pods_of_burst("ha"), fitting=False),
    Row("pods-of-burst/default", "pods", heavy, pods_of_burst("default"), fitting=False),
    Row("pods-after-deletion/default", "pods", deleting, pods_after_deletion),
    Row("pods-after-deletion/blocked", "pods", blocked, pods_after_deletion),
    Row("moves-of-compaction/default", "moves", deleting, moves_of_compaction),
    Row("moves-of-compaction/blocked", "moves", blocked, moves_of_compaction),
    Row("skew/spread", "vreplicas", unequal, skew_in_unequal_zones),
    Row("zone-changes/spread", "moves", unequal, zone_changes),
    *LOAD_ROWS,
)
