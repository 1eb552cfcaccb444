"""Which of equal nodes the embedded kube-scheduler chooses."""

import random
from typing import ClassVar

import pytest

from extender.lab.scheduler.algorithm import SchedulingAlgorithm
from extender.lab.scheduler.framework import CycleState, PlainScore, Profile
from extender.lab.scheduler.select_host import SELECTORS, RoundRobin, at_random, host_selector
from extender.lab.scheduler.types import NodeInfo, PodInfo
from tests.conformance.extender_fakes import a_node, a_pod, a_queue, a_snapshot

THREE = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        pytest.param([THREE] * 4, ["a", "b", "c", "a"], id="one after the other, and around"),
        pytest.param(
            [THREE, ["x", "y"], THREE], ["a", "y", "c"], id="the index counts pods, not nodes"
        ),
        pytest.param([["x"], ["x"], THREE], ["x", "x", "c"], id="a single best node takes a turn"),
    ],
)
def test_equal_nodes_take_turns(asked: list[list[str]], chosen: list[str]):
    select_host = RoundRobin()
    assert [select_host(nodes) for nodes in asked] == chosen


def test_a_random_one_is_drawn_from_the_seed():
    first, again = (at_random(random.Random(7)) for _ in range(2))
    drawn = [first(THREE) for _ in range(20)]
    assert drawn == [again(THREE) for _ in range(20)]
    assert set(drawn) == set(THREE)


def test_round_robin_is_the_default():
    assert isinstance(host_selector(SELECTORS[0], random.Random(1)), RoundRobin)
    assert not isinstance(host_selector(SELECTORS[1], random.Random(1)), RoundRobin)


class Alike(PlainScore):
    """All nodes are equal, except one of no worth."""

    name: ClassVar[str] = "Alike"

    def score(self, _state: CycleState, _pod: PodInfo, node: NodeInfo) -> int:
        return 0 if node.name == "poor" else 50


async def test_the_algorithm_asks_for_each_pod_that_has_a_choice_between_the_best():
    algorithm = SchedulingAlgorithm([], a_queue(), RoundRobin())
    profile = Profile([], [(Alike(), 1)])

    async def schedule(*names: str) -> str:
        snapshot = a_snapshot([a_node(name, {"pods": "10"}) for name in names])
        return (await algorithm.schedule_pod(profile, CycleState(), a_pod(), snapshot)).node

    assert await schedule("x") == "x", "without a choice it takes no turn"
    assert [await schedule("poor", "x", "y") for _ in range(3)] == ["x", "y", "x"]
