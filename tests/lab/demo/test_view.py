"""What ``vreplica run`` shows in a terminal of 24 rows of 80 characters, and in one that has room
for all.
"""

import io

import pytest
from rich.console import Console

from extender.lab.demo.adapters import Work
from extender.lab.demo.story import Census
from extender.lab.demo.view import View
from extender.model.ledger import Share
from extender.model.objects import Node
from tests.support.builders import a_pod, a_vpod

PODS = 18
NODES = {
    f"node-{index}": Node(name=f"node-{index}", zone="zone-a", ready=index != 4)
    for index in range(6)
}
URLS = [
    "page     http://127.0.0.1:40000/ui",
    "state    http://127.0.0.1:40000/state.json",
    "metrics  http://127.0.0.1:40000/metrics",
    "kubectl --kubeconfig /tmp/vreplica-abcdefgh/kubeconfig get adapterpools,vpods -A",
]
STORY = [f"  0.42 s: step {number}; nothing moved, nothing overcommitted" for number in range(11)]


def shown(
    *, height: int, terminal: bool = True, pods: int = PODS, work: Work | None = None
) -> list[str]:
    census = Census()
    for ordinal in range(pods):
        pod = a_pod(ordinal, {"team-a/orders-0": Share(8)}, node=f"node-{ordinal % 6}")
        census.pods[pod.key] = pod
    view = View(census, URLS, NODES.get, work)
    for line in STORY:
        view.tell(line)
    console = Console(
        width=80,
        height=height,
        record=True,
        file=io.StringIO(),
        force_terminal=terminal,
        _environ={},
    )
    console.print(view)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_at_80_by_24_nothing_is_cut_but_pods_and_it_says_how_many_more_there_are():
    lines = shown(height=24)
    assert len(lines) == 23
    assert lines[:4] == URLS
    assert lines[4:15] == STORY
    assert lines[16] == "node-4 not Ready"
    listed = [line for line in lines if line.startswith("dispatcher-")]
    assert lines[-1] == f"and {PODS - len(listed)} pods more"
    assert len(listed) == 4


def test_who_serves_nothing_stands_beside_the_node_that_is_not_ready_and_work_apart_from_it():
    work = Work()
    work.done = 5340
    assert shown(height=24, work=work)[16] == "node-4 not Ready; adapters did 5340 pieces of work"


def test_what_nobody_serves_is_told_with_the_node_that_is_not_ready():
    census = Census()
    pod = a_pod(4, {"tenant/a": Share(8)}, node="node-4", ready=True)
    census.pods, census.nodes = {pod.key: pod}, NODES
    census.vpods = {"tenant/a": a_vpod("a", 8, {4: 8})}
    work = Work()
    work.done = 7
    summary = View(census, URLS, NODES.get, work)._summary().splitlines()
    assert (
        summary[1] == "node-4 not Ready: nobody serves 8 vreplicas; adapters did 7 pieces of work"
    )


def test_pods_on_a_node_that_is_not_ready_come_first_and_say_so():
    (first, *_) = [line for line in shown(height=24) if line.startswith("dispatcher-")]
    assert first.split()[:4] == ["dispatcher-4", "node-4", "not", "Ready"]


@pytest.mark.parametrize(
    ("height", "terminal"), [(60, True), (24, False)], ids=["a high one", "a file"]
)
def test_where_there_is_room_all_pods_are_shown(height: int, terminal: bool):
    lines = shown(height=height, terminal=terminal)
    assert len([line for line in lines if line.startswith("dispatcher-")]) == PODS
    assert not any(" more" in line for line in lines)


@pytest.mark.parametrize("height", range(10, 24))
def test_in_a_smaller_one_the_story_still_comes_before_the_pods(height: int):
    assert shown(height=height)[:15] == [*URLS, *STORY]
