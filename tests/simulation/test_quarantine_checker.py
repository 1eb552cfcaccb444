"""What the service writes of vpods in quarantine is compared with the crashes that there were."""

from collections.abc import Mapping

import pytest

from extender.kube.api import Obj
from tests.simulation.checker_scene import (
    PERSON,
    REPLICA,
    CheckerScene,
    in_virtual_time,
    later,
    pod_object,
    stamp,
)

pytestmark = pytest.mark.sim


class QuarantineScene(CheckerScene):
    """A pool whose vpods go into quarantine after crashes of two pods, within 60 s."""

    def __init__(self) -> None:
        super().__init__(late_s=1.0)
        self.pool(ordinals=3, quarantine={"crashedPods": 2, "withinSeconds": 60})
        self.vpod("v", 3, {"a-0": 1, "a-1": 1}, actor=PERSON)
        self._restarts: dict[str, int] = {}

    def carries(self, name: str, *vpods: str, crashes: int = 0) -> None:
        obj = pod_object(name, dict.fromkeys(vpods, 1), slots=8)
        self._restarts[name] = self._restarts.get(name, 0) + crashes
        obj["status"] = {"containerStatuses": [{"restartCount": self._restarts[name]}]}
        self.write("pods", name, obj, PERSON)

    def says(self, status: str, placements: Mapping[str, int], *, released: str = "") -> None:
        """The service writes the vpod's condition Quarantined, and where it is."""
        condition = {"type": "Quarantined", "status": status, "lastTransitionTime": stamp(0.0)}
        annotations = {"vreplica.dev/released-at": released} if released else {}
        metadata = {"namespace": "t", "name": "v", "uid": "v", "annotations": annotations}
        listed = [{"podName": pod, "vreplicas": count} for pod, count in placements.items()]
        obj: Obj = {
            "metadata": metadata,
            "spec": {"poolRef": {"name": "a"}, "vreplicas": 3},
            "status": {"placements": listed, "conditions": [condition]},
        }
        self.write("vpods", "v", obj, REPLICA)

    def found_of_it(self) -> list[str]:
        return [line for line in self.found if "quarantine" in line]


CRASHES = [
    pytest.param(("a-0", "a-1"), 10.0, False, id="two pods soon after they got it"),
    pytest.param(("a-0",), 10.0, True, id="one pod"),
    pytest.param((), 10.0, True, id="no pod"),
    pytest.param(("a-0", "a-1"), 600.0, True, id="two pods long after they got it"),
    pytest.param(("a-0", "a-2"), 10.0, True, id="a pod that has nothing of it"),
]


@pytest.mark.parametrize(("crashed", "after_s", "is_found"), CRASHES)
def test_a_quarantine_begins_after_crashes_of_pods_that_had_got_the_vpod(
    crashed: tuple[str, ...], after_s: float, is_found: bool
):
    @in_virtual_time
    async def play() -> None:
        scene = QuarantineScene()
        for name in ("a-0", "a-1"):
            scene.carries(name, "t/v")
        scene.carries("a-2")
        await later(after_s)
        for name in crashed:
            scene.carries(name, *(() if name == "a-2" else ("t/v",)), crashes=1)
        scene.says("True", {"a-0": 1, "a-1": 1})
        assert bool(scene.found_of_it()) == is_found

    play()


@pytest.mark.parametrize(
    ("placements", "released", "is_found"),
    [
        pytest.param({"a-0": 1, "a-1": 1, "a-2": 1}, "", True, id="another pod gets some"),
        pytest.param({"a-0": 2, "a-1": 1}, "", True, id="a pod gets more"),
        pytest.param({"a-0": 1, "a-2": 1}, "", True, id="one moves"),
        pytest.param({"a-0": 1}, "", False, id="one leaves"),
        pytest.param({"a-0": 2, "a-1": 1}, "2040-01-01T00:00:00Z", False, id="it is released"),
    ],
)
def test_what_is_in_quarantine_gets_no_further_place(
    placements: dict[str, int], released: str, is_found: bool
):
    @in_virtual_time
    async def play() -> None:
        scene = QuarantineScene()
        for name in ("a-0", "a-1"):
            scene.carries(name, "t/v")
            scene.carries(name, "t/v", crashes=1)
        scene.says("True", {"a-0": 1, "a-1": 1})
        assert scene.found_of_it() == []
        await later(600.0)
        scene.says("True", placements, released=released)
        assert bool(scene.found_of_it()) == is_found

    play()
