"""What is at rest under a hard zone rule: a vpod waits only where no zone that may take one has
room for it.
"""

from collections.abc import Mapping

import pytest

from extender.lab.simulation.checkers.settled import Stored
from extender.lab.simulation.world.facts import Pod, Pool, VPod


def a_pod(ordinal: int, zone: int, total: int, *, marked: bool = False) -> Pod:
    ledger = {"t/v": (0, 1), "t/other": (total, 1)}
    return Pod(f"a-{ordinal}", "a", "u", f"node-{zone}", 4, ledger, "{}", marked, deleting=False)


def stored(vpod: VPod, *pods: Pod) -> Stored:
    pool = Pool("a", slots=4, max_pods=len(pods), profile="ha", ordinals=range(len(pods)))
    zones = {f"node-{zone}": f"zone-{zone}" for zone in range(3)}
    return Stored({pod.name: pod for pod in pods}, {vpod.key: vpod}, {"a": pool}, {}, zones)


def a_vpod(wanted: int, placements: Mapping[str, int]) -> VPod:
    total = sum(placements.values())
    condition = ("False", "InsufficientSlots")
    return VPod("t/v", "u", "a", 1, wanted, 1, 1, placements, total, condition, ("", "", ""))


@pytest.mark.parametrize(
    ("room_in", "named"),
    [
        pytest.param({2}, True, id="in the zone that has the fewest"),
        pytest.param({0, 1}, False, id="only where another zone would have two fewer"),
        pytest.param(set(), False, id="nowhere"),
    ],
)
def test_one_more_is_wanted_and_there_is_room(room_in: set[int], named: bool):
    pods = [a_pod(zone, zone, 0 if zone in room_in else 4) for zone in range(3)]
    found = stored(a_vpod(3, {"a-0": 1, "a-1": 1}), *pods)._status_differences(
        a_vpod(3, {"a-0": 1, "a-1": 1})
    )
    assert bool([line for line in found if line.startswith("I3: t/v has")]) is named


@pytest.mark.parametrize(
    ("room_in", "named"),
    [
        pytest.param({0}, True, id="in its own zone"),
        pytest.param({1, 2}, False, id="only where its own zone would have two fewer"),
    ],
)
def test_what_a_drained_pod_has_waits_while_leaving_its_zone_would_break_the_rule(
    room_in: set[int], named: bool
):
    """Its own zone has one fewer as soon as it leaves."""
    pods = [a_pod(zone, zone, 0 if zone in room_in else 4) for zone in range(3)]
    pods.append(a_pod(3, 0, 4, marked=True))
    vpod = a_vpod(3, {"a-1": 1, "a-2": 1, "a-3": 1})
    found = stored(vpod, *pods)._status_differences(vpod)
    assert bool([line for line in found if "to be emptied" in line]) is named


@pytest.mark.parametrize(
    ("requested", "waits"),
    [(0, False), (2, False), (5, True)],
    ids=["nothing", "as stamped", "more"],
)
def test_a_pod_takes_of_its_node_what_its_containers_request_whatever_its_annotation_says(
    requested: int, waits: bool
):
    bound = Pod("a-0", "a", "u", "node-0", 2, {}, "{}", False, deleting=False, requested=requested)
    pending = Pod("a-1", "a", "u", "", 2, {}, "{}", False, deleting=False, requested=2)
    pool = Pool("a", slots=2, ordinals=range(2))
    found = Stored(
        {pod.name: pod for pod in (bound, pending)}, {}, {"a": pool}, {"node-0": 5}, {"node-0": "z"}
    )
    assert bool(found.differences()) is not waits
