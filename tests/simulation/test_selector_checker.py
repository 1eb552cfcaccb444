"""The checkers know whom pools are for: what is placed stays, and what is new is refused with its
reason.
"""

import pytest

from extender.kube.api import Obj
from tests.simulation.checker_scene import PERSON, REPLICA, CheckerScene, in_virtual_time, later

pytestmark = [pytest.mark.sim, pytest.mark.timeout(60)]

GOLD = {"tier": "gold"}
REFUSED = ("False", "TenantNotAllowed")


class SelectorScene(CheckerScene):
    """A pool for namespaces with the label, which the tenant's has no longer; its vpod has 1 on
    a-0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pool(namespaceSelector={"matchLabels": GOLD})
        self.label(GOLD)
        self.pod("a-0", {"t/v": 1})
        self.pod("a-1", {})
        self.vpod("v", 1, {}, actor=PERSON)
        self.vpod("v", 1, {"a-0": 1})
        self.label({})

    def label(self, labels: dict[str, str]) -> None:
        self.write("namespaces", "t", {"metadata": {"name": "t", "labels": labels}}, PERSON)

    def want(
        self,
        wanted: int,
        placements: dict[str, int],
        condition: tuple[str, str],
        actor: str,
        *,
        served: int = 0,
    ) -> None:
        """With this Scheduled condition; ``served``: how many its status says are served."""
        available = ("True", "AllReady") if served else ("False", "PodNotReady")
        scheduled = {"type": "Scheduled", "status": condition[0], "reason": condition[1]}
        status: Obj = {
            "observedGeneration": 1,
            "scheduledVReplicas": sum(placements.values()),
            "placements": [
                {"podName": pod, "vreplicas": count} for pod, count in placements.items()
            ],
            "readyVReplicas": served,
            "conditions": [
                scheduled,
                {"type": "Available", "status": available[0], "reason": available[1]},
            ],
        }
        spec = {"poolRef": {"name": "a"}, "vreplicas": wanted}
        metadata = {"namespace": "t", "name": "v", "uid": "v", "generation": 1}
        self.write("vpods", "v", {"metadata": metadata, "spec": spec, "status": status}, actor)


@in_virtual_time
async def test_what_is_placed_stays_and_settles():
    scene = SelectorScene()
    assert scene.found == []
    assert scene.checkers.differences() == []


@in_virtual_time
async def test_more_that_is_wanted_and_refused_with_its_reason_is_settled_though_there_is_room():
    scene = SelectorScene()
    scene.want(3, {"a-0": 1}, REFUSED, REPLICA)
    assert scene.checkers.differences() == []
    scene.want(3, {"a-0": 1}, ("False", "InsufficientSlots"), REPLICA)
    assert len(scene.checkers.differences()) == 1
    scene.label(GOLD)
    assert [line[:3] for line in scene.checkers.differences()] == ["I3:"]


@in_virtual_time
async def test_who_gives_it_more_is_found():
    scene = SelectorScene()
    scene.want(2, {"a-0": 1}, REFUSED, REPLICA)
    await later(61.0)  # nobody goes by the labels of before any more
    scene.pod("a-1", {"t/v": 1})
    scene.want(2, {"a-0": 1, "a-1": 1}, ("True", "AllPlaced"), REPLICA)
    (found,) = scene.found
    assert found.startswith("status: replica-1 gave t/v more, whose namespace a does not select")


@in_virtual_time
async def test_a_vpod_that_says_it_is_served_by_a_pod_that_is_not_ready_has_not_settled():
    scene = SelectorScene()
    scene.want(1, {"a-0": 1}, ("True", "AllPlaced"), REPLICA, served=1)
    assert scene.checkers.differences() == [
        "t/v: 0 of 1 are served, and its status says (1, 'True', 'AllReady')"
    ]
