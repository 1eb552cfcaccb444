"""Bursts in a nearly full pool: other orders, and which one is best."""

import random
from collections.abc import Iterable, Mapping, Sequence

import pytest

from extender.engine.placing.burst import WORK_MAX, best_of, may_fit_better, result_of
from extender.engine.placing.plan import Decision
from extender.engine.policy.profile_document import profile_from
from tests.support.builders import Scene
from tests.support.placing import place

OWNER = "test"
WEIGHTS = {"a": 9, "b": 8, "c": 6, "d": 6, "e": 5, "f": 5}
"""Of one vreplica each. Two pods of 20 slots hold all of them, but not if the heaviest come
first.
"""


def a_scene(weights: dict[str, int], *, pods: int = 2, full: int = 0) -> Scene:
    """``full``: further pods, without room."""
    scene = Scene(slots=20, replicas=max(3, pods + full)).pods(*range(pods))
    if full:
        scene.vpod("full", 20 * full, dict.fromkeys(range(pods, pods + full), 20))
    for ordinal in range(pods, pods + full):
        scene.pod(ordinal, {"tenant/full": 20})
    for name, weight in weights.items():
        scene.vpod(name, 1, weight=weight)
    return scene


def reserve(scene: Scene, keys: Iterable[str]) -> list[Decision]:
    made = []
    for key in keys:
        decision = place(scene.pool, scene.pool.vpods[key])
        hold(scene, [decision])
        made.append(decision)
    return made


def hold(scene: Scene, decisions: Iterable[Decision]) -> None:
    """Reserve these decisions as they are."""
    for decision in decisions:
        shares = decision.shares(scene.pool.decided_of(decision.vpod))
        scene.pool.reserve(OWNER, decision.vpod, shares, expires_at=float("inf"))


def release(scene: Scene, keys: Sequence[str]) -> None:
    for key in keys:
        scene.pool.release(OWNER, key)


def heaviest_first(scene: Scene) -> list[Decision]:
    vpods = sorted(scene.pool.vpods.values(), key=lambda vpod: (-vpod.weight, vpod.key))
    return reserve(scene, [vpod.key for vpod in vpods])


def best(
    scene: Scene, first: list[Decision], ages: Mapping[str, int] | None = None
) -> list[Decision]:
    """``ages``: None if all came in one burst."""
    return best_of(
        scene.pool,
        first,
        lambda keys: reserve(scene, keys),
        lambda keys: release(scene, keys),
        ages=ages or of_one_age(first),
    )


def of_one_age(decisions: list[Decision]) -> dict[str, int]:
    return {decision.vpod: 0 for decision in decisions}


def test_what_is_needed_together_has_its_turn_before_others_too():
    scene = Scene(slots=8, replicas=1).pods(0).vpod("a", 6).vpod("b", 6, min_available=6)
    first = reserve(scene, ["tenant/a", "tenant/b"])
    assert not may_fit_better(scene.pool, first), "two slots are left, and it needs six"
    scene = Scene(slots=8, replicas=1).pods(0).vpod("a", 6, min_available=6).vpod("b", 6)
    first = reserve(scene, ["tenant/b", "tenant/a"])
    found = best(scene, first)
    assert {one.vpod: one.scheduled for one in found} == {"tenant/a": 6, "tenant/b": 2}


def left(decisions: list[Decision]) -> int:
    return sum(decision.pending for decision in decisions)


def test_an_order_is_found_in_which_all_have_room():
    scene = a_scene(WEIGHTS)
    first = heaviest_first(scene)
    assert left(first) == 1
    assert may_fit_better(scene.pool, first)
    found = best(scene, first)
    assert left(found) == 0
    assert scene.pool.owners() == [], "the caller reserves what it uses"
    assert left(reserve(scene, [decision.vpod for decision in found])) == 0


def test_the_first_order_stays_if_no_other_is_better():
    scene = a_scene({"a": 13, "b": 13, "c": 5, "d": 9})
    first = heaviest_first(scene)
    assert left(first) == 1
    assert best(scene, first) is first


def test_a_heavy_vpod_does_not_take_the_room_of_a_light_one_that_came_before():
    """Leaving the light one would leave 11 slots less waiting."""
    scene = a_scene({"light": 2, "heavy": 13}, pods=0)
    scene.vpod("full", 45, {0: 19, 1: 19, 2: 7})
    for ordinal, used in enumerate((19, 19, 7)):
        scene.pod(ordinal, {"tenant/full": used})
    ages = {"tenant/light": 0, "tenant/heavy": 1}
    first = reserve(scene, ages)
    assert may_fit_better(scene.pool, first)
    assert {one.vpod: one.pending for one in best(scene, first, ages)} == {
        "tenant/light": 0,
        "tenant/heavy": 1,
    }


@pytest.mark.parametrize("seed", [*range(60), 479, 545, 798])
def test_vpods_that_came_later_change_nothing_for_those_that_came_before(seed: int):
    """Beside them, no more slots of older vreplicas wait than without them; and a vpod that waits
    would have no room either if all that is younger were gone.
    """
    rng = random.Random(seed)
    weights = {f"v{number:02}": rng.randint(1, 13) for number in range(rng.randint(6, 14))}
    ages = {f"tenant/{name}": rng.randrange(3) for name in weights}
    keys = sorted(ages, key=lambda key: (ages[key], -weights[key.removeprefix("tenant/")]))
    scene = a_scene(weights, pods=rng.randint(2, 4))
    found = best(scene, reserve(scene, keys), ages)
    for age in range(3):
        old = [key for key in keys if ages[key] <= age]
        alone = reserve(scene, old)
        bound = result_of(scene.pool, alone, ages).left
        release(scene, old)
        kept = [one for one in found if ages[one.vpod] <= age]
        hold(scene, kept)
        assert result_of(scene.pool, kept, ages).left <= bound, seed
        waits = [one.weight for one in kept if one.pending and ages[one.vpod] == age]
        most_free = max(pod.free for pod in scene.pool.pods.values())
        assert all(weight > most_free for weight in waits), seed
        release(scene, old)


def test_of_orders_that_leave_the_same_the_one_with_its_free_slots_together_is_better():
    together, apart = a_scene({"a": 8, "b": 8}), a_scene({"a": 8, "b": 8})
    two = [
        result_of(scene.pool, [decision], {decision.vpod: 0})
        for scene, pod in ((together, 0), (apart, 1))
        for decision in reserve_on(scene, pod)
    ]
    assert two[0] < two[1]


def reserve_on(scene: Scene, second: int) -> list[Decision]:
    """``a`` on the first pod, and ``b`` on this one."""
    decision = reserve(scene, ["tenant/a"])[0]
    share = decision.share(1)
    scene.pool.reserve(OWNER, "tenant/b", {f"dispatcher-{second}": share}, expires_at=float("inf"))
    return [decision]


@pytest.mark.parametrize(
    ("weights", "pods"),
    [
        pytest.param({"a": 9, "b": 8}, 2, id="all have room"),
        pytest.param({"a": 20, "b": 20, "c": 1}, 2, id="the pool has no slot left"),
        pytest.param({"a": 13}, 0, id="nothing has found room"),
    ],
)
def test_one_order_is_enough_if(weights: dict[str, int], pods: int):
    scene = a_scene(weights, pods=pods)
    assert not may_fit_better(scene.pool, heaviest_first(scene))


@pytest.mark.parametrize(("full", "may"), [(0, True), (WORK_MAX // len(WEIGHTS) - 1, False)])
def test_a_burst_that_would_take_too_long_has_one_order(full: int, may: bool):
    scene = a_scene(WEIGHTS, full=full)
    first = reserve(scene, [f"tenant/{name}" for name in WEIGHTS])
    assert left(first) == 1
    assert may_fit_better(scene.pool, first) is may


def orders_of(scene: Scene, first: list[Decision]) -> list[list[str]]:
    """The orders that are tried after the first one."""
    tried: list[list[str]] = []

    def note(keys: Sequence[str]) -> list[Decision]:
        tried.append([*keys])
        return reserve(scene, keys)

    best_of(scene.pool, first, note, lambda keys: release(scene, keys), ages=of_one_age(first))
    return tried


def test_vpods_that_are_alike_have_one_order():
    scene = a_scene(dict.fromkeys("abcd", 13))
    first = heaviest_first(scene)
    assert left(first) == 2
    assert orders_of(scene, first) == []


def test_orders_that_differ_only_in_vpods_that_are_alike_are_tried_once():
    scene = a_scene({"a": 13, "b": 13, "c": 13, "d": 4, "e": 4})
    tried = orders_of(scene, heaviest_first(scene))
    weights = [tuple(scene.pool.vpods[key].weight for key in order) for order in tried]
    assert tried
    assert len({*weights}) == len(weights)
    assert (13, 13, 13, 4, 4) not in weights


def test_the_more_vreplicas_a_burst_has_the_fewer_orders_are_tried():
    numbers = []
    for vreplicas in (1, 200, 400):
        scene = Scene(slots=20 * vreplicas, replicas=3)
        for ordinal in (0, 1):
            scene.pod(ordinal, {}, slots=20 * vreplicas)
        for name, weight in {"a": 11, "b": 9, "c": 8, "d": 7, "e": 7}.items():
            scene.vpod(name, vreplicas, weight=weight)
        numbers.append(len(orders_of(scene, heaviest_first(scene))))
    assert numbers[0] > numbers[1] > numbers[2]


def test_a_profile_whose_ties_take_turns_has_one_order():
    scene = a_scene(WEIGHTS)
    scene.pool.set_profile(profile_from({"name": "turns", "ties": "RoundRobin"}))
    first = heaviest_first(scene)
    assert left(first) == 1
    assert not may_fit_better(scene.pool, first)
