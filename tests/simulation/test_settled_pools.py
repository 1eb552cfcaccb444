"""What must hold once all has settled: what a pool says of its source of load, and what ledgers say
that vpods take.
"""

import pytest

from tests.simulation.checker_scene import PERSON, CheckerScene, in_virtual_time

LOAD = {"load": {"metric": "requests_per_second"}}


def differences(scene: CheckerScene, about: str) -> list[str]:
    return [line for line in scene.checkers.differences() if about in line]


def pool_says(
    source: str, status: str, reason: str, ledger: dict[str, int] | None = None
) -> list[str]:
    """What differs if a pool that takes its load from ``source`` has this condition. ``ledger``: of
    its only pod, which has a node; None for no pod.
    """
    scene = CheckerScene()
    spec = {"slotsPerPod": 4, "loadSource": source, "rebalance": LOAD}
    condition = {"type": "LoadUnavailable", "status": status, "reason": reason}
    pool = {"metadata": {"name": "a"}, "spec": spec, "status": {"conditions": [condition]}}
    scene.write("adapterpools", "a", pool, PERSON)
    if ledger is not None:
        scene.pod("a-0", ledger)
    return differences(scene, "LoadUnavailable")


@pytest.mark.parametrize(
    ("source", "status", "reason", "right"),
    [
        ("adapter-requests", "False", "LoadKnown", True),
        ("adapter-requests", "True", "TimedOut", False),
        ("no-such-source", "True", "UnknownSource", True),
        ("no-such-source", "False", "LoadKnown", False),
    ],
)
@in_virtual_time
async def test_a_pool_says_whether_its_source_answers(source, status, reason, right):
    assert (pool_says(source, status, reason) == []) is right


@pytest.mark.parametrize(("ledger", "right"), [({}, True), ({"t/v": 1}, False)])
@in_virtual_time
async def test_a_source_has_no_series_only_if_no_pod_with_a_node_carries_anything(ledger, right):
    """Seed 600000254."""
    assert (pool_says("adapter-requests", "True", "NoSeries", ledger) == []) is right


@pytest.mark.parametrize(("written", "right"), [({"cpu": 2}, True), ({"cpu": 1}, False)])
@in_virtual_time
async def test_a_ledger_has_what_one_vreplica_takes(written, right):
    scene = CheckerScene()
    scene.pool(slots=4, capacities={"cpu": 4})
    scene.pod("a-0", {"t/v": [1, 1, written]})
    spec = {"poolRef": {"name": "a"}, "vreplicas": 1, "perVReplica": {"cpu": 2}}
    status = {"placements": [{"podName": "a-0", "vreplicas": 1}]}
    metadata = {"namespace": "t", "name": "v", "uid": "v"}
    vpod = {"metadata": metadata, "spec": spec, "status": status}
    scene.write("vpods", "v", vpod, PERSON)
    assert (differences(scene, "stale sizes") == []) is right
