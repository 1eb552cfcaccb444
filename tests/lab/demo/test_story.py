"""What the demonstration counts and tells, and what its check takes for right."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from extender.lab.demo.adapters import DemoAdapters, Work, load_worker
from extender.lab.demo.commands import _urls
from extender.lab.demo.local import AdapterAccess, LocalSystem
from extender.lab.demo.story import EVICTED, FAILED, Census, Story
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
    "movedVReplicas": 20,
    "vreplicasHandedOver": 20,
    "longestPauseSeconds": 0.02,
    "piecesOfWork": 7000,
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


@pytest.mark.timeout(60)
async def test_the_story_shows_that_work_goes_on_while_a_pod_is_evicted(tmp_path: Path):
    worker = load_worker()
    assert worker is not None, "clients/python is on the path of the tests"
    async with LocalSystem(seed=1, directory=tmp_path, adapters=True) as system:
        census = Census()
        assert system.adapter_access is not None
        adapters = DemoAdapters(worker, system.adapter_access)
        system.local.spawn(census.follow(system.local.cluster), "census")
        system.local.spawn(adapters.follow(system.local.cluster), "adapters")
        told: list[str] = []
        story = Story(system, census, told.append, adapters)
        await story.play()
    assert (story.handed_over, census.moved) == (20, 20)
    assert adapters.work.done > 100
    (evicted,) = [i for i, text in enumerate(told) if text.startswith(f"pod {EVICTED} is evic")]
    assert "s idle at most; 20 moved" in told[evicted + 1]
    assert max(map(len, told)) <= 80


class AtWork:
    """Work for one vpod at a time that passes only with ``pass_s``."""

    def __init__(self, published: int) -> None:
        self.now = 0.0
        self.work = Work(lambda: self.now)
        self.work.publish("t/a", published)

    async def begin(self, pieces: int = 1) -> list[asyncio.Task[None]]:
        begun = [asyncio.create_task(self.work.piece("t/a", None, 1)) for _ in range(pieces)]
        await asyncio.sleep(0)
        return begun

    async def finish(self, pieces: list[asyncio.Task[None]]) -> None:
        for piece in pieces:
            piece.cancel()
        await asyncio.gather(*pieces, return_exceptions=True)


async def test_a_pause_is_from_the_last_piece_to_the_next_one_of_anybody():
    it = AtWork(published=1)
    pieces = await it.begin()
    it.now = 1.0
    await it.finish(pieces)
    it.now = 4.5
    await it.begin()
    it.now = 9.0
    assert it.work.longest_pause_s == 3.5
    it.work.count_anew()
    assert it.work.longest_pause_s == 0.0


async def test_one_of_two_shares_that_nobody_serves_is_a_pause():
    it = AtWork(published=2)
    (_, other) = await it.begin(2)
    it.now = 1.0
    await it.finish([other])
    it.now = 3.0
    await it.begin()
    assert it.work.longest_pause_s == 2.0


async def test_a_pause_that_has_not_ended_counts():
    it = AtWork(published=1)
    await it.finish(await it.begin())
    it.now = 7.0
    assert it.work.longest_pause_s == 7.0
    it.work.count_anew()
    it.now = 8.0
    assert it.work.longest_pause_s == 1.0, "since it is counted anew"


async def test_a_share_that_two_adapters_work_on_for_a_moment_has_no_pause():
    it = AtWork(published=1)
    pieces = await it.begin()
    it.now = 1.0
    await it.begin()
    await it.finish(pieces)
    it.now = 5.0
    assert it.work.longest_pause_s == 0.0


async def test_what_is_published_no_more_needs_nobody():
    it = AtWork(published=2)
    await it.begin()
    it.now = 1.0
    it.work.publish("t/a", 1)
    it.now = 5.0
    assert it.work.longest_pause_s == 1.0


async def test_a_piece_counts_once_it_is_done():
    work = Work(lambda: 0.0)
    await work.piece("t/a", None, 1)
    assert work.done == 1


@pytest.mark.parametrize(
    ("access", "line"),
    [
        pytest.param(
            AdapterAccess("https://127.0.0.1:7", Path("d/ca.crt"), Path("d")),
            ["adapters https://127.0.0.1:7 (CA d/ca.crt)"],
            id="there",
        ),
        pytest.param(None, [], id="not there"),
    ],
)
def test_the_address_of_the_adapters_listener_is_told(
    access: AdapterAccess | None, line: list[str]
):
    running = SimpleNamespace(server=SimpleNamespace(url="http://127.0.0.1:8"))
    system: Any = SimpleNamespace(running=running, kubeconfig="k", adapter_access=access)
    assert [one for one in _urls(system) if one.startswith("adapters")] == line


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
        pytest.param(
            {"movedVReplicas": 21},
            "21 vreplicas moved, 20 were handed over",
            id="one more has moved",
        ),
        pytest.param(
            {"vreplicasHandedOver": 0, "movedVReplicas": 0},
            "no adapter has worked, or nothing was handed over",
            id="no hand-over",
        ),
        pytest.param(
            {"longestPauseSeconds": 2.5},
            "nobody served some vreplica of a vpod for 2.5 s",
            id="a long pause",
        ),
        pytest.param({"vreplicasPlaced": 341}, "not all vreplicas are placed", id="one is missing"),
    ],
)
def test_the_check_knows_figures_that_are_wrong(changed: dict[str, object], said: str):
    assert "; ".join(problems({**GOOD, **changed})) == said
