"""A profile that is even over pods by one dimension: where vreplicas go, leave, and move."""

import random

import pytest

from extender.engine.policy.profile import Profile
from extender.engine.policy.profile_document import profile_from
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.engine.rebalance.relocation import relocations
from extender.engine.rebalance.repetition import LeftBehind
from extender.engine.state.cluster_state import ClusterState
from extender.model.amounts import Amounts
from extender.model.errors import InvalidObject
from extender.model.ledger import Share
from extender.model.moves import MoveReason
from extender.whatif.settling import commit
from tests.support.builders import Scene
from tests.support.placing import place

CAPACITIES: Amounts = (("cpu", 100), ("memory", 1000))


def by(dimension: str | None) -> Profile:
    args = {} if dimension is None else {"args": {"Dimension": dimension}}
    plugin = [{"name": "LeastAllocated", **args}]
    return profile_from({"name": "even", "scores": plugin, "deschedulers": plugin})


def a_scene(dimension: str | None, *pods: tuple[int, int, int]) -> Scene:
    """Pods of 20 slots with one vpod each: its slots, cpu and memory."""
    scene = Scene(slots=20, replicas=len(pods), capacities=CAPACITIES)
    scene.pool.set_profile(by(dimension))
    for ordinal, (slots, cpu, memory) in enumerate(pods):
        put(scene, ordinal, {f"there{ordinal}": (1, slots, (("cpu", cpu), ("memory", memory)))})
    return scene


def put(scene: Scene, ordinal: int, held: dict[str, tuple[int, int, Amounts]]) -> None:
    scene.pod(ordinal, {f"tenant/{name}": Share(*share) for name, share in held.items()})
    for name, (count, weight, amounts) in held.items():
        scene.vpod(name, count, {ordinal: count}, weight=weight, per_vreplica=amounts)


@pytest.mark.parametrize(
    ("dimension", "ordinal"),
    [("cpu", 1), ("memory", 2), ("slots", 0), (None, 0), ("gpu", 0)],
)
def test_the_pod_with_the_least_in_use_gets_the_next_vreplica(dimension, ordinal):
    """``gpu`` is no dimension of the pool: slots count."""
    scene = a_scene(dimension, (1, 50, 500), (5, 10, 600), (9, 60, 100))
    scene.vpod("a", 1, per_vreplica=(("cpu", 5), ("memory", 50)))
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert dict(decision.target) == {f"dispatcher-{ordinal}": 1}


def test_what_the_vpod_is_given_counts():
    scene = a_scene("memory", (1, 1, 300), (1, 1, 100), (1, 1, 1))
    scene.vpod("a", 6, per_vreplica=(("memory", 100),))
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert dict(decision.target) == {"dispatcher-0": 1, "dispatcher-1": 2, "dispatcher-2": 3}


def test_the_fullest_pod_gives_back_first():
    amounts = (("memory", 100),)
    scene = a_scene("memory", (1, 1, 300), (1, 1, 100))
    for ordinal, memory in ((0, 300), (1, 100)):
        held = {"tenant/a": Share(1, 1, amounts)}
        held[f"tenant/there{ordinal}"] = Share(1, 1, (("cpu", 1), ("memory", memory)))
        scene.pod(ordinal, held)
    scene.vpod("a", 1, {0: 1, 1: 1}, per_vreplica=amounts)
    assert dict(place(scene.pool, scene.pool.vpods["tenant/a"]).target) == {"dispatcher-1": 1}


def test_policy_moves_to_the_emptier_pod_and_a_small_difference_moves_nothing():
    scene = a_scene("memory", (1, 1, 400), (1, 1, 100))
    put(scene, 0, {"a": (1, 1, (("memory", 200),)), "b": (1, 1, (("memory", 300),))})
    plan = plan_moves(scene.pool, Limits(budget=9), Advice(vpods=["tenant/a", "tenant/b"]))
    assert [(move.vpod, move.to_pod, move.reason) for move in plan] == [
        ("tenant/a", "dispatcher-1", MoveReason.POLICY)
    ], "b waits for the next plan: both pods are about to change"
    scene = a_scene("memory", (1, 1, 1), (1, 1, 120))
    put(scene, 0, {"a": (1, 1, (("memory", 130),)), "b": (1, 1, (("memory", 10),))})
    assert plan_moves(scene.pool, Limits(budget=9), Advice(vpods=["tenant/b"])) == []


@pytest.mark.parametrize("seed", range(12))
def test_period_after_period_pods_become_even_and_then_nothing_moves(seed: int):
    rng = random.Random(seed)
    scene = Scene(slots=100, replicas=6, capacities=CAPACITIES)
    scene.pool.set_profile(by("memory"))
    number = 0
    for ordinal in range(6):
        held: dict[str, tuple[int, int, Amounts]] = {}
        for _ in range(rng.randint(0, 12)):
            number += 1
            held[f"v{number}"] = (1, 1, (("memory", rng.randint(10, 80)),))
        put(scene, ordinal, held)
    pool, state, memory = scene.pool, scene.state, LeftBehind()
    for _ in range(100):
        if not _period(state, pool, memory):
            break
    else:
        pytest.fail(f"seed {seed} never rests")
    used = [pod.held_amounts.get("memory", 0) for pod in pool.members()]
    assert max(used) - min(used) <= 150, (seed, used)
    assert all(pod.held_amounts.get("memory", 0) <= 1000 for pod in pool.members())


def _period(state: ClusterState, pool, memory: LeftBehind, vpods: list[str] | None = None) -> bool:
    memory.look(pool)
    advice = Advice(
        vpods=vpods or sorted(pool.vpods),
        returns=lambda key, there: memory.returns(pool.vpods[key], there),
    )
    moved = False
    for decision in relocations(pool, plan_moves(pool, Limits(budget=10), advice)):
        memory.leave(pool.vpods[decision.vpod], pool.decided_of(decision.vpod))
        commit(state, pool, [decision])
        moved = True
    return moved


def test_a_vpod_returns_to_the_pod_that_it_has_left_once_others_have_emptied_it():
    """The others are in their cool-down."""

    def takes(memory: int) -> Amounts:
        return (("memory", memory),)

    scene, memory = a_scene("memory"), LeftBehind()
    scene.stateful_set(2)
    put(scene, 0, {"a": (1, 1, takes(200)), "b": (1, 1, takes(600))})
    put(scene, 1, {"c": (1, 1, takes(100))})
    assert _period(scene.state, scene.pool, memory, ["tenant/a"])
    assert dict(scene.pool.decided_of("tenant/a")) == {"dispatcher-1": 1}
    scene.no_vpod("b").pod(0)
    scene.pod(1, {"tenant/a": Share(1, 1, takes(200)), "tenant/c": Share(6, 1, takes(100))})
    scene.vpod("c", 6, {1: 6}, per_vreplica=takes(100))
    assert _period(scene.state, scene.pool, memory, ["tenant/a"])
    assert dict(scene.pool.decided_of("tenant/a")) == {"dispatcher-0": 1}


@pytest.mark.parametrize("dimension", ["", "Memory", 5, "x" * 32])
def test_a_name_that_no_dimension_can_have_is_refused_by_its_field(dimension):
    with pytest.raises(InvalidObject, match=r"scores\[0\]\.args\.Dimension"):
        by(dimension)
