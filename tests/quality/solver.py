"""The optimum of an instance, by OR-tools' CP-SAT.

Vreplicas of one weight are alike to a profile without a hard rule. So the models count vreplicas by
weight, and not by vpod, where they can. ``Load`` is such a count.

One worker and a limit in CP-SAT's deterministic time give the same answer in each run. An answer
that is not proven within the limit has ``proven=False``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ortools.sat.python import cp_model

from tests.quality.instances import SLOTS, ZONES, Ask, counts

LIMIT: Final = 2.0
"""Deterministic time for one answer, about seconds of a fast core."""

Load = Mapping[int, int]
"""Weight -> vreplicas of this weight."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The best value that was found; None if nothing was. ``proven``: none is better, or there is
    none.
    """

    value: int | None
    proven: bool


def least_pods(load: Load) -> Answer:
    """The fewest pods that hold the load."""
    model = cp_model.CpModel()
    used = _pods_by_pattern(model, load, load)
    model.minimize(sum(used))
    return _solve(model)


def fits(load: Load, pods: int) -> bool:
    """Whether so many pods hold the load. Raises TimeoutError."""
    value = _certain(least_pods(load))
    return value is not None and value <= pods


def least_pods_ha(asks: Sequence[Ask]) -> Answer:
    """The fewest pods, in zones of free choice, that hold all under the rule of ``ha``."""
    model = cp_model.CpModel()
    model.minimize(sum(sum(used) for used in _pods_by_zone(model, asks)))
    return _solve(model)


def fits_ha(asks: Sequence[Ask], zone_of_pod: Sequence[str]) -> bool:
    """Whether these pods hold all under the rule of ``ha``. Raises TimeoutError."""
    model = cp_model.CpModel()
    for zone, used in zip(ZONES, _pods_by_zone(model, asks), strict=True):
        model.add(sum(used) <= zone_of_pod.count(zone))
    return _certain(_solve(model)) is not None


def most_placed(free: Sequence[int], load: Load) -> Answer:
    """The most vreplicas of the load that find room in the free slots of pods."""
    model = cp_model.CpModel()
    given = [
        {
            weight: model.new_int_var(0, min(count, slots // weight), "")
            for weight, count in load.items()
        }
        for slots in free
    ]
    for slots, by_weight in zip(free, given, strict=True):
        model.add(sum(weight * var for weight, var in by_weight.items()) <= slots)
    for weight, count in load.items():
        model.add(sum(by_weight[weight] for by_weight in given) <= count)
    model.maximize(sum(var for by_weight in given for var in by_weight.values()))
    return _solve(model)


def least_moves(before: Sequence[Load], load: Load, pods: int) -> Answer:
    """The fewest placed vreplicas that must leave their pod so that the lowest ``pods`` hold the
    load. ``before``: what each pod holds. ``load``: with what is placed and what waits.
    """
    model = cp_model.CpModel()
    moved: list[Any] = []
    given = [_pod(model, load) for _ in range(pods)]
    for weight, count in load.items():
        model.add(sum(by_weight[weight] for by_weight in given) == count)
    for held, by_weight in zip(before, given, strict=False):
        for weight, count in held.items():
            if count:
                gone = model.new_int_var(0, count, "")
                model.add(gone >= count - by_weight[weight])
                moved.append(gone)
    above = sum(sum(held.values()) for held in before[pods:])
    model.minimize(sum(moved) + above)
    return _solve(model)


def least_skew(asks: Sequence[Ask], zone_of_pod: Sequence[str]) -> Answer:
    """The smallest greatest skew: how many vreplicas of one vpod one zone must have more than
    another, if these pods hold all.
    """
    model = cp_model.CpModel()
    skew = model.new_int_var(0, max((ask.vreplicas for ask in asks), default=0), "")
    _spread(model, asks, zone_of_pod, lambda _: skew)
    model.minimize(skew)
    return _solve(model)


def least_zone_changes(
    asks: Sequence[Ask],
    zone_of_pod: Sequence[str],
    before: Mapping[str, Mapping[str, int]],
    skews: Mapping[str, int],
) -> Answer:
    """The fewest vreplicas that must change their zone so that no vpod has a greater skew than
    that. ``before``: name of a vpod -> zone -> vreplicas. ``skews``: by name.
    """
    model = cp_model.CpModel()
    in_zone = _spread(model, asks, zone_of_pod, skews.__getitem__)
    moved: list[Any] = []
    for ask in asks:
        for zone in ZONES:
            count = before[ask.name].get(zone, 0)
            gone = model.new_int_var(0, count, "")
            model.add(gone >= count - in_zone[ask.name, zone])
            moved.append(gone)
    model.minimize(sum(moved))
    return _solve(model)


@lru_cache(maxsize=256)
def patterns(weights: tuple[int, ...], slots: int = SLOTS) -> tuple[tuple[int, ...], ...]:
    """All ways to fill a pod so that no vreplica more fits: vreplicas by weight. ``weights``:
    descending.
    """
    found: list[tuple[int, ...]] = []

    def fill(chosen: tuple[int, ...], left: int) -> None:
        rest = weights[len(chosen) :]
        if not rest:
            if left < weights[-1]:
                found.append(chosen)
            return
        most = left // rest[0]
        for count in range(most, -1, -1) if len(rest) > 1 else (most,):
            fill((*chosen, count), left - count * rest[0])

    if weights:
        fill((), slots)
    return tuple(found)


def _pods_by_pattern(model: Any, load: Load, held: Mapping[int, Any]) -> list[Any]:
    """Variables: how many pods are filled by each pattern, so that they hold ``held`` (by weight;
    numbers or expressions). ``load``: the most that it can be.
    """
    weights = tuple(sorted((weight for weight, count in load.items() if count), reverse=True))
    most = sum(load.values())
    used = [model.new_int_var(0, most, "") for _ in patterns(weights)]
    for index, weight in enumerate(weights):
        room = [
            pattern[index] * var
            for pattern, var in zip(patterns(weights), used, strict=True)
            if pattern[index]
        ]
        model.add(sum(room) >= held[weight])
    # Implied, and a better bound than the patterns alone give.
    model.add(SLOTS * sum(used) >= sum(weight * held[weight] for weight in weights))
    return used


def _pods_by_zone(model: Any, asks: Sequence[Ask]) -> list[list[Any]]:
    """Variables as of ``_pods_by_pattern`` for each zone, under the rule of ``ha``.

    No zone has over one vreplica of a vpod more than another. So each zone has the third part of
    it, rounded down, and at most one more. Vpods of one weight with the same rest are alike.
    """
    load = counts(asks)
    held: dict[str, dict[int, Any]] = {zone: {} for zone in ZONES}
    for weight in load:
        mine = [ask.vreplicas for ask in asks if ask.weight == weight]
        whole = sum(vreplicas // len(ZONES) for vreplicas in mine)
        one, two = (sum(1 for n in mine if n % len(ZONES) == rest) for rest in (1, 2))
        gets = [model.new_int_var(0, one, "") for _ in ZONES]
        misses = [model.new_int_var(0, two, "") for _ in ZONES]
        model.add(sum(gets) == one)
        model.add(sum(misses) == two)
        for zone, more, fewer in zip(ZONES, gets, misses, strict=True):
            held[zone][weight] = whole + more + two - fewer
    return [_pods_by_pattern(model, load, held[zone]) for zone in ZONES]


def _pod(model: Any, load: Load) -> dict[int, Any]:
    """Variables: what one pod holds, by weight."""
    by_weight = {
        weight: model.new_int_var(0, min(count, SLOTS // weight), "")
        for weight, count in load.items()
    }
    model.add(sum(weight * var for weight, var in by_weight.items()) <= SLOTS)
    return by_weight


def _spread(
    model: Any, asks: Sequence[Ask], zone_of_pod: Sequence[str], skew: Callable[[str], Any]
) -> dict[tuple[str, str], Any]:
    """Variables by name of a vpod and zone: its vreplicas there, so that these pods hold all and no
    vpod's zones differ by more than ``skew`` says of its name.
    """
    load = counts(asks)
    pods = [_pod(model, load) for _ in zone_of_pod]
    in_zone = {
        (ask.name, zone): model.new_int_var(0, ask.vreplicas, "") for ask in asks for zone in ZONES
    }
    for ask in asks:
        mine = [in_zone[ask.name, zone] for zone in ZONES]
        model.add(sum(mine) == ask.vreplicas)
        for one in mine:
            for other in mine:
                model.add(one - other <= skew(ask.name))
    for zone in ZONES:
        there = [pod for pod, where in zip(pods, zone_of_pod, strict=True) if where == zone]
        for weight in load:
            mine = [in_zone[ask.name, zone] for ask in asks if ask.weight == weight]
            model.add(sum(pod[weight] for pod in there) == sum(mine))
    return in_zone


def _solve(model: Any) -> Answer:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = LIMIT
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Answer(None, proven=True)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(round(solver.objective_value), proven=bool(status == cp_model.OPTIMAL))
    return Answer(None, proven=False)


def _certain(answer: Answer) -> int | None:
    if not answer.proven:
        raise TimeoutError("not proven within the limit")
    return answer.value


def loads(placed: Mapping[str, Mapping[int, int]], asks: Iterable[Ask], pods: int) -> list[Load]:
    """What each pod holds, by weight. ``placed``: name of a vpod -> ordinal -> vreplicas."""
    held: list[dict[int, int]] = [{} for _ in range(pods)]
    for ask in asks:
        for ordinal, count in placed.get(ask.name, {}).items():
            held[ordinal][ask.weight] = held[ordinal].get(ask.weight, 0) + count
    return list(held)
