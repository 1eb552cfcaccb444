"""A run ends once nothing has been written for long enough; what counts as a write. At rest a pod
that waits for its turn to be evicted keeps what it carries.
"""

from typing import Any, Final

import pytest

from extender.kube.api import Obj
from extender.lab.simulation.world.callers import external_vpod_key
from extender.lab.simulation.world.facts import VPod
from extender.model.eviction import Eviction, encode_eviction
from extender.model.moves import MoveReason
from extender.model.names import EVICTING_ANNOTATION
from tests.simulation.checker_scene import PERSON, CheckerScene, in_virtual_time, later, pod_object

pytestmark = pytest.mark.sim

BEFORE: Final = Eviction(0.0, 10.0, MoveReason.ROLLOUT)


async def written_at(*marks: Eviction) -> float:
    """When pods were last written, if these marks are written one a second."""
    scene = CheckerScene()
    for mark in marks:
        await later(1.0)
        pod = pod_object("a-0", None)
        pod["metadata"]["annotations"][EVICTING_ANNOTATION] = encode_eviction(mark, "1")
        scene.write("pods", "a-0", pod)
    return round(scene.checkers.last_write_s["pods"], 3)


@in_virtual_time
async def test_that_a_pods_mark_is_renewed_is_no_write():
    """A rollout waits without an end for a pod that has room on no node (seed 20000222)."""
    assert await written_at(BEFORE, BEFORE._replace(latest_s=110.0)) == 1.0


@pytest.mark.parametrize(
    "changed",
    [
        {"first_s": 5.0},
        {"reason": MoveReason.MAINTENANCE},
        {"turn_s": 20.0, "latest_s": 110.0},
    ],
    ids=str,
)
def test_what_else_changes_of_it_is_one(changed: dict[str, Any]):
    @in_virtual_time
    async def play() -> None:
        assert await written_at(BEFORE, BEFORE._replace(**changed)) == 2.0

    play()


@in_virtual_time
async def test_that_a_pod_is_written_as_it_is_is_one():
    assert await written_at(BEFORE, BEFORE) == 2.0


def refused_pod(message: str, *, ready: str = "False", **metadata: str) -> Obj:
    """A pod that waits for a node, as kube-scheduler last told why. It puts its condition last."""
    pod = pod_object("a-0", {}, node="")
    pod["metadata"] |= {"resourceVersion": message, **metadata}
    refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    conditions = [{"type": "Ready", "status": ready}, {**refusal, "message": message}]
    pod["status"] = {"conditions": conditions if message != "slots" else conditions[::-1]}
    return pod


@pytest.mark.parametrize(
    ("on", "by_caller", "after", "at_s"),
    [
        pytest.param("a-0", True, refused_pod("zone"), 1.0, id="a caller has a share there"),
        pytest.param("a-0", True, refused_pod("zone", ready="True"), 2.0, id="more differs"),
        pytest.param("a-0", True, refused_pod("zone", uid="2"), 2.0, id="another pod"),
        pytest.param("a-0", True, refused_pod("slots"), 2.0, id="the same reason"),
        pytest.param("a-0", True, pod_object("a-0", {}), 2.0, id="it is bound"),
        pytest.param("a-1", True, refused_pod("zone"), 2.0, id="a caller has a share elsewhere"),
        pytest.param("a-0", False, refused_pod("zone"), 2.0, id="a status tells all replicas"),
    ],
)
def test_another_reason_why_a_pod_fits_no_node_is_no_write_if_only_the_leader_knows_its_share(
    on: str, by_caller: bool, after: Obj, at_s: float
):
    """Each renewed lease of another pod has kube-scheduler ask again (seed 250000207)."""

    @in_virtual_time
    async def play() -> None:
        scene = CheckerScene()
        key, told = external_vpod_key("t", "c"), ("", "")
        caller = VPod(key, "", "a", 1, 1, 1, 1, {on: 1}, 1, told, ("", "", ""), by_caller=by_caller)
        scene.checkers.callers.wished(None, caller)
        for pod in (refused_pod("slots"), after):
            await later(1.0)
            scene.write("pods", "a-0", pod)
        assert round(scene.checkers.last_write_s["pods"], 3) == at_s

    play()


@pytest.mark.parametrize(("other", "at_s"), [(None, 1.0), (pod_object("a-1", {}), 3.0)])
def test_nor_is_it_if_a_new_replica_cannot_know_in_which_zone_others_of_the_vpod_were(
    other: Obj | None, at_s: float
):
    """Seed 590001511: the other pod is gone, so only those that have seen it know its zone."""

    @in_virtual_time
    async def play() -> None:
        scene = CheckerScene()
        placements = [{"podName": name, "vreplicas": 1} for name in ("a-0", "a-1")]
        spec = {"poolRef": {"name": "a"}, "vreplicas": 2}
        metadata = {"namespace": "t", "name": "v", "uid": "v"}
        vpod = {"metadata": metadata, "spec": spec, "status": {"placements": placements}}
        scene.write("vpods", "v", vpod, PERSON)
        scene.pod("a-1", {"t/v": 1})
        await later(1.0)
        scene.write("pods", "a-0", refused_pod("slots"))
        scene.write("pods", "a-1", other)
        await later(2.0)
        scene.write("pods", "a-0", refused_pod("zone"))
        assert round(scene.checkers.last_write_s["pods"], 3) == at_s

    play()


@pytest.mark.parametrize(
    ("mark", "shall_go"),
    [
        pytest.param(Eviction(0.0, 10.0, MoveReason.ROLLOUT), True, id="by a rollout"),
        pytest.param(Eviction(0.0, 10.0), False, id="it waits for its turn"),
        pytest.param(
            Eviction(0.0, 10.0, MoveReason.MAINTENANCE, queued=True, behind="a-1"),
            False,
            id="another pod goes first (seed 245130788)",
        ),
        pytest.param(Eviction(0.0, 10.0, turn_s=20.0), True, id="its turn has come"),
    ],
)
def test_what_is_on_a_pod_that_is_evicted_counts_as_placed_until_its_turn(
    mark: Eviction, shall_go: bool
):
    @in_virtual_time
    async def play() -> None:
        scene = CheckerScene()
        scene.pool()
        pod = pod_object("a-0", {"t/v": 1})
        pod["metadata"]["annotations"][EVICTING_ANNOTATION] = encode_eviction(mark, "1")
        scene.write("pods", "a-0", pod)
        scene.vpod("v", 1, {"a-0": 1})
        told = [line for line in scene.checkers.differences() if "1 of 1 placed" in line]
        assert bool(told) is shall_go

    play()
