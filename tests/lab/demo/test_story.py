"""What the demonstration counts and tells, and what its check takes for right."""

from pathlib import Path

import pytest

from extender.lab.demo.local import LocalSystem
from extender.lab.demo.story import FAILED, Census, Story
from tests.check_demo import problems
from tests.support.builders import NS, a_node, a_pod, a_vpod

GOOD = {
    "nodes": 6,
    "pods": 18,
    "vpods": 40,
    "vreplicasWanted": 342,
    "vreplicasPlaced": 342,
    "vreplicasUnserved": {"node node-4 is not Ready": 60},
    "overcommittedPods": 0,
    "movedVReplicas": 0,
    "binds": 19,
    "bindErrors": 0,
    "secondsToSettle": 4.0,
}


def a_census() -> Census:
    census = Census()
    census.nodes = {"node-0": a_node(), "node-4": a_node("node-4", ready=False)}
    for pod in (a_pod(0, ready=True), a_pod(1, node="node-4", ready=True)):
        census.pods[pod.key] = pod
    census.vpods = {f"tenant/{name}": a_vpod(name, 8, {0: 5, 1: 3}) for name in "ab"}
    return census


def test_what_is_placed_on_a_node_that_has_failed_is_counted_as_served_by_nobody():
    census = a_census()
    assert census.unserved == {"node node-4 is not Ready": 6}
    census.nodes["node-4"] = a_node("node-4")
    assert census.unserved == {}
    del census.pods[f"{NS}/dispatcher-0"]
    assert census.unserved == {"the pod is not there": 10}


def test_starting_pods_have_not_settled_and_those_of_a_lost_node_are_waited_for_no_longer():
    pods = [a_pod(0, ready=False), a_pod(1, node="node-4", ready=False)]
    census = a_census()
    assert [census.is_settled(pod) for pod in pods] == [False, True]


@pytest.mark.timeout(60)
async def test_the_story_says_that_nobody_serves_what_the_failed_node_keeps(tmp_path: Path):
    async with LocalSystem(seed=1, directory=tmp_path) as system:
        census = Census()
        system.local.spawn(census.follow(system.local.cluster), "census")
        told: list[str] = []
        await Story(system, census, told.append).play()
    lost = sum(census.unserved.values())
    assert (
        lost
        == census.placed_on(*(pod.name for pod in census.pods.values() if pod.node == FAILED))
        > 0
    )
    line = f"          nobody serves {lost} vreplicas: node {FAILED} is not Ready"
    (failed,) = [index for index, text in enumerate(told) if text == f"node {FAILED} fails ..."]
    assert told[failed + 2] == line
    assert told[-1] == line, "it is still so"
    assert max(map(len, told)) <= 80


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({}, "", id="as it is to be"),
        pytest.param(
            {"vreplicasUnserved": {}},
            "nobody says that what the failed node keeps is unserved",
            id="as if no node had failed",
        ),
        pytest.param(
            {"vreplicasUnserved": {"node node-4 is not Ready": 60, "the pod is not Ready": 20}},
            "unserved although its node has not failed: 20 (the pod is not Ready)",
            id="pods that never became Ready",
        ),
        pytest.param({"vreplicasPlaced": 341}, "not all vreplicas are placed", id="one is missing"),
    ],
)
def test_the_check_knows_figures_that_are_wrong(changed: dict[str, object], said: str):
    assert "; ".join(problems({**GOOD, **changed})) == said
