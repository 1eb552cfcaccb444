"""What a vpod has left is remembered until something changes that is not our doing."""

import pytest

from extender.engine.rebalance.repetition import LeftBehind
from tests.support.builders import Scene, a_node, a_vpod

HERE, THERE = {"dispatcher-0": 2}, {"dispatcher-1": 2}


def scene() -> Scene:
    return Scene(replicas=3).pods(0, 1, 2).vpod("a", 2, {0: 2}).vpod("c", 2)


def a_memory(made: Scene) -> LeftBehind:
    memory = LeftBehind()
    memory.look(made.pool)
    memory.leave(a_vpod("a", 2), HERE)
    return memory


def test_a_vpod_returns_to_what_it_has_left():
    memory = a_memory(scene())
    assert memory.returns(a_vpod("a", 2), HERE)
    assert not memory.returns(a_vpod("a", 2), THERE)
    assert not memory.returns(a_vpod("b", 2), HERE), "what another vpod has left is not its own"


def test_a_vpod_that_wants_something_else_now_begins_anew():
    memory = a_memory(scene())
    assert not memory.returns(a_vpod("a", 3), HERE)
    assert not memory.returns(a_vpod("a", 2, weight=2), HERE)
    assert not memory.returns(a_vpod("a", 2, uid="recreated"), HERE)


@pytest.mark.parametrize(
    ("change", "forgotten"),
    [
        pytest.param(lambda s: s, False, id="nothing"),
        pytest.param(lambda s: s.vpod("a", 2, {1: 2}), False, id="our own move"),
        pytest.param(lambda s: s.vpod("b", 5), True, id="another vpod comes"),
        pytest.param(lambda s: s.vpod("c", 3), True, id="another vpod wants more"),
        pytest.param(lambda s: s.vpod("b", 0), False, id="another vpod comes and wants nothing"),
        pytest.param(lambda s: s.vpod("c", 2, weight=2), True, id="another vpod gets heavier"),
        pytest.param(
            lambda s: s.vpod("c", 2, per_vreplica=(("memory", 1),)), True, id="it takes memory"
        ),
        pytest.param(lambda s: s.no_vpod("c"), True, id="another vpod goes"),
        pytest.param(lambda s: s.vpod("c", 2, {2: 2}), False, id="another vpod gets its place"),
        pytest.param(lambda s: s.pool.set_closed(0b100), False, id="a pod is closed"),
        pytest.param(lambda s: s.pod(2, unschedulable=True), True, id="a pod is drained"),
        pytest.param(lambda s: s.pod(2, slots=3), True, id="a pod has other slots"),
        pytest.param(lambda s: s.no_pod(2), True, id="a pod goes"),
        pytest.param(lambda s: s.node(a_node("new", "z9")), True, id="a node comes"),
        pytest.param(lambda s: s.node(a_node("node-0", "z9")), True, id="a node's zone changes"),
        pytest.param(lambda s: s.stateful_set(4), True, id="the pool grows"),
        pytest.param(
            lambda s: s.pool.set_abandoned(frozenset({"x"})), True, id="a pod is given up"
        ),
    ],
)
def test_a_change_from_outside_forgets_everything(change, forgotten):
    made = scene()
    memory = a_memory(made)
    change(made)
    memory.look(made.pool)
    assert memory.returns(a_vpod("a", 2), HERE) is not forgotten


def test_the_memory_is_bounded_and_the_oldest_go_first():
    memory = LeftBehind(remembered_max=3)
    for count in range(1, 6):
        memory.leave(a_vpod("a", 9), {"dispatcher-0": count})
        memory.leave(a_vpod("a", 9), {"dispatcher-0": 2})
    assert len(memory) == 3
    assert memory.returns(a_vpod("a", 9), {"dispatcher-0": 2}), "left again only now"
    assert not memory.returns(a_vpod("a", 9), {"dispatcher-0": 1})
