"""Preemption: whom it picks, where, and what the waiting pod's nomination keeps from others."""

import asyncio
import random

import pytest

from extender.kube.api import PODS
from extender.lab.apiserver.registry import PODDISRUPTIONBUDGETS
from extender.lab.scheduler.cache import SchedulerCache
from extender.lab.scheduler.extender_client import Victims
from extender.lab.scheduler.framework import CycleState, NodeStatuses, Profile
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.predicates import NodeResourcesFit
from extender.lab.scheduler.preemption import Preemption, Preemptor, pick_one_node
from extender.lab.scheduler.queue import SchedulingQueue
from extender.lab.scheduler.types import Code, PodInfo, Status, node_view, pod_info
from tests.simulation.scheduler_scene import NS, Scene, node_object, pod_object


def a_pod(
    name: str, cpu: str = "1", *, priority: int = 0, node: str = "n", started: str = "", **fields
) -> PodInfo:
    obj = pod_object(name, cpu=cpu, **fields)
    obj["metadata"]["uid"] = f"uid-{name}"
    obj["spec"] |= {"priority": priority, "nodeName": node}
    obj["status"] = {"startTime": started} if started else {}
    return pod_info(obj)


def a_pending(cpu: str, *, priority: int = 1000) -> PodInfo:
    return a_pod("high", cpu, priority=priority, node="")


async def preempted(
    pod: PodInfo,
    *running: PodInfo,
    queue: SchedulingQueue | None = None,
    listers: Listers | None = None,
) -> Preemption:
    cache = SchedulerCache()
    for name in sorted({other.node_name for other in running} | {"n"}):
        cache.put_node(node_view(node_object(name, cpu="4")))
    for other in running:
        cache.put_pod(other)
    snapshot = cache.snapshot()
    preemptor = Preemptor(
        [], queue or SchedulingQueue(clock=lambda: 0.0), listers or Listers(), random.Random(1)
    )
    profile = Profile([NodeResourcesFit()], [])
    statuses = NodeStatuses({node.name: Status(Code.UNSCHEDULABLE) for node in snapshot.nodes})
    return await preemptor.preempt(profile, CycleState(), pod, statuses, snapshot)


def names(preemption: Preemption) -> list[str]:
    return [pod.name for pod in preemption.victims.pods]


async def test_only_as_many_pods_as_needed_are_deleted_and_the_least_important_ones():
    found = await preempted(
        a_pending("2"),
        a_pod("a", priority=5),
        a_pod("b", priority=1),
        a_pod("c", priority=9),
        a_pod("d", priority=1, started="2026-01-01T00:00:00Z"),
    )
    assert (found.node, names(found)) == ("n", ["d", "b"])


async def test_of_equal_priority_the_pod_that_started_later_goes_first():
    found = await preempted(
        a_pending("1"),
        a_pod("old", "2", started="2026-01-01T00:00:00Z"),
        a_pod("new", "2", started="2026-01-02T00:00:00Z"),
    )
    assert names(found) == ["new"]


async def test_pods_that_a_disruption_budget_protects_are_spared_if_others_do():
    listers = Listers()
    listers.stores[PODDISRUPTIONBUDGETS]["default/b"] = {
        "metadata": {"name": "b", "namespace": NS},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 0},
    }
    protected = a_pod("protected", "2", labels={"app": "x"})
    found = await preempted(
        a_pending("2"), protected, a_pod("free", "2", priority=5), listers=listers
    )
    assert (names(found), found.victims.pdb_violations) == (["free"], 0)


async def test_pods_of_equal_priority_are_no_victims():
    found = await preempted(a_pending("2", priority=5), a_pod("a", "4", priority=5))
    assert found.status is not None
    assert (
        found.status.message
        == "0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert found.node == ""


async def test_room_that_a_more_important_pod_waits_for_is_not_taken():
    queue = SchedulingQueue(clock=lambda: 0.0)
    queue.nominate(a_pod("first", "4", priority=2000, node=""), "n")
    found = await preempted(a_pending("2"), a_pod("a", "4"), queue=queue)
    assert found.status is not None
    assert "Insufficient cpu" in found.status.message


async def test_room_that_a_less_important_pod_waits_for_is():
    queue = SchedulingQueue(clock=lambda: 0.0)
    queue.nominate(a_pod("later", "4", priority=1, node=""), "n")
    found = await preempted(a_pending("2"), a_pod("a", "4"), queue=queue)
    assert names(found) == ["a"]


def victims(
    *priorities: int, violations: int = 0, started: str = "2026-01-01T00:00:00Z"
) -> Victims:
    pods = tuple(
        a_pod(f"v{index}", priority=priority, started=started)
        for index, priority in enumerate(priorities)
    )
    return Victims(pods, violations)


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        pytest.param(victims(1, violations=1), victims(9, 9), id="fewer broken budgets"),
        pytest.param(victims(5), victims(4, 4, 4), id="lower highest priority"),
        pytest.param(victims(5, 4), victims(5, 3), id="lower sum"),
        pytest.param(victims(5, -1, -1), victims(5, 0), id="fewer pods"),
        pytest.param(victims(5), victims(5, started="2026-01-02T00:00:00Z"), id="started later"),
    ],
)
def test_the_node_is_picked_by_upstreams_order(worse, better):
    assert pick_one_node({"worse": worse, "better": better}) == "better"
    assert pick_one_node({"better": better, "worse": worse}) == "better"


@pytest.mark.looptime
async def test_while_a_victim_ends_gracefully_no_more_pods_are_deleted():
    scene = Scene()
    await scene.node("n", cpu="2")
    async with scene.running():
        for name in ("low0", "low1"):
            await scene.pod(name, cpu="1", terminationGracePeriodSeconds=30)
        await asyncio.sleep(1)
        await scene.pod("high", cpu="1", priority=1000)
        await asyncio.sleep(1)
        await scene.node("other", unschedulable=True)  # an event that makes it look again
        await asyncio.sleep(5)
        pods = (await scene.cluster.list_page(PODS)).items
    ending = [pod["metadata"]["name"] for pod in pods if pod["metadata"].get("deletionTimestamp")]
    assert len(ending) == 1
    assert (await scene.cluster.get(PODS, NS, "high"))["status"]["nominatedNodeName"] == "n"
