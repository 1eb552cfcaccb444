"""The embedded kube-scheduler on the embedded cluster, in virtual time."""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from extender.kube.api import NODES, PODS, Binding, PatchType
from tests.simulation.scheduler_scene import (
    NS,
    SLOTS,
    Scene,
    all_fit,
    extender_config,
    none_fit,
    pod_object,
)

pytestmark = pytest.mark.looptime


async def test_a_pod_is_bound_to_the_only_node_that_has_room():
    scene = Scene()
    await scene.node("small", cpu="1")
    await scene.node("big", cpu="8")
    await scene.pod("p", cpu="4")
    async with scene.running():
        await asyncio.sleep(1)
    assert await scene.node_of("p") == "big"
    assert await scene.notes("Scheduled") == ["Successfully assigned default/p to big"]


async def test_pods_of_other_schedulers_are_left_alone():
    scene = Scene()
    await scene.node("n")
    await scene.pod("p", schedulerName="someone-else")
    async with scene.running():
        await asyncio.sleep(5)
    assert await scene.node_of("p") == ""
    assert await scene.condition("p") == {}


async def test_thirty_pods_spread_over_equal_nodes():
    scene = Scene()
    for index in range(6):
        await scene.node(f"n{index}")
    for index in range(30):
        await scene.pod(f"p{index}", cpu="100m", memory="64Mi")
    async with scene.running():
        await asyncio.sleep(5)
    nodes = Counter([await scene.node_of(f"p{index}") for index in range(30)])
    assert set(nodes.values()) == {5}


async def test_higher_priority_is_scheduled_first():
    scene = Scene()
    await scene.node("n", pods="1")
    await scene.pod("low", priority=1)
    await scene.pod("high", priority=10)
    async with scene.running():
        await asyncio.sleep(1)
    assert (await scene.node_of("high"), await scene.node_of("low")) == ("n", "")


async def test_a_pod_that_fits_nowhere_is_told_the_reasons_and_bound_when_a_node_comes():
    scene = Scene()
    await scene.node("a", cpu="1")
    await scene.node("b", unschedulable=True)
    await scene.pod("p", cpu="2")
    async with scene.running():
        await asyncio.sleep(3)
        condition = await scene.condition("p")
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert condition["message"] == (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. "
            "preemption: 0/2 nodes are available: "
            "2 Preemption is not helpful for scheduling."
        )
        assert await scene.notes("FailedScheduling") == [condition["message"]]
        await scene.node("c", cpu="4")
        await asyncio.sleep(0.1)
    assert await scene.node_of("p") == "c"


async def test_without_nodes_a_pod_waits_for_one():
    scene = Scene()
    await scene.pod("p")
    async with scene.running():
        await asyncio.sleep(1)
        assert (await scene.condition("p"))["message"] == "no nodes available to schedule pods"
        await scene.node("n")
        await asyncio.sleep(12)
    assert await scene.node_of("p") == "n"


async def test_a_gated_pod_waits_until_its_gates_are_gone():
    scene = Scene()
    await scene.node("n")
    await scene.pod("p", schedulingGates=[{"name": "example.com/wait"}])
    async with scene.running():
        await asyncio.sleep(20)
        assert await scene.node_of("p") == ""
        patch = {"spec": {"schedulingGates": None}}
        await scene.cluster.patch(PODS, NS, "p", patch, patch_type=PatchType.MERGE)
        await asyncio.sleep(0.1)
    assert await scene.node_of("p") == "n"


# Extenders


async def test_an_extender_filters_prioritizes_and_binds_only_pods_with_its_resource():
    scene = Scene(extender_config("filter", "prioritize", "bind", managed_resources=(SLOTS,)))
    for name in ("n0", "n1", "n2"):
        await scene.node(name)

    async def bind(args):
        await scene.cluster.bind(
            Binding(args["PodNamespace"], args["PodName"], args["Node"], uid=args["PodUID"])
        )
        return {"Error": ""}

    scene.service.answers = {
        "filter": lambda args: {
            "NodeNames": ["n1", "n2"],
            "FailedNodes": {"n0": "NodeSlotsExceeded"},
        },
        "prioritize": lambda args: [{"Host": "n2", "Score": 10}],
        "bind": bind,
    }
    await scene.pod("ours", requests={"vreplica.dev/slots": "20"})
    await scene.pod("other", cpu="1")
    async with scene.running():
        await asyncio.sleep(2)
    assert await scene.node_of("ours") == "n2"
    assert await scene.node_of("other") != ""
    assert [args["Pod"]["metadata"]["name"] for args in scene.service.calls("filter")] == ["ours"]
    assert [args["PodName"] for args in scene.service.calls("bind")] == ["ours"]


async def test_a_pod_that_filter_refuses_is_filtered_twice_and_then_waits_for_five_minutes():
    scene = Scene(extender_config("filter"))
    await scene.node("n")
    scene.service.answers["filter"] = none_fit("NodeSlotsExceeded")
    await scene.pod("p")
    async with scene.running():
        await asyncio.sleep(0.5)
        assert len(scene.service.calls("filter")) == 2
        assert "1 NodeSlotsExceeded" in (await scene.condition("p"))["message"]
        await asyncio.sleep(290)
        assert len(scene.service.calls("filter")) == 2
        await asyncio.sleep(60)
        assert len(scene.service.calls("filter")) == 3


async def test_patching_an_annotation_of_a_refused_pod_makes_the_scheduler_look_at_once():
    scene = Scene(extender_config("filter"))
    await scene.node("n")
    scene.service.answers["filter"] = none_fit("NodeSlotsExceeded")
    await scene.pod("p")
    async with scene.running():
        await asyncio.sleep(30)
        scene.service.answers["filter"] = all_fit
        await scene.annotate("p", {"vreplica.dev/retry": "1"})
        await asyncio.sleep(0.05)
    assert await scene.node_of("p") == "n"


async def test_a_filter_error_is_retried_after_growing_pauses_and_reported_as_scheduler_error():
    scene = Scene(extender_config("filter"))
    await scene.node("n")
    times = []

    def fail(args):
        times.append(asyncio.get_running_loop().time())
        return {"Error": "pool cache not synced"}

    scene.service.answers["filter"] = fail
    async with scene.running():
        await asyncio.sleep(0.3)
        await scene.pod("p")
        await asyncio.sleep(25)
        condition = await scene.condition("p")
    assert (condition["reason"], condition["message"]) == (
        "SchedulerError",
        "pool cache not synced",
    )
    pauses = [round(after - before) for before, after in pairwise(times)]
    assert pauses[:4] == [2, 3, 5, 9]


async def test_a_refused_bind_is_forgotten_and_tried_again_with_backoff():
    scene = Scene(extender_config("bind", "filter"))
    await scene.node("n", pods="1")
    scene.service.answers = {"filter": all_fit, "bind": lambda args: {"Error": "LedgerChanged"}}
    await scene.pod("p")
    async with scene.running() as scheduler:
        await asyncio.sleep(1)
        assert scheduler.cache.snapshot().nodes[0].pods == {}
        assert (await scene.condition("p"))["message"] == "LedgerChanged"

        async def bind(args):
            await scene.cluster.bind(Binding(NS, args["PodName"], args["Node"], uid=args["PodUID"]))
            return {}

        scene.service.answers["bind"] = bind
        await asyncio.sleep(3)
    assert await scene.node_of("p") == "n"
    assert await scene.notes("FailedScheduling") == ["LedgerChanged"]


async def test_a_bind_that_times_out_after_it_succeeded_is_not_tried_again():
    scene = Scene(extender_config("bind", http_timeout_s=1.0))
    await scene.node("n")

    async def bind(args):
        await scene.cluster.bind(Binding(NS, args["PodName"], args["Node"], uid=args["PodUID"]))
        await asyncio.sleep(0.5)  # the watch is faster than the answer
        return {"Error": "too late"}

    scene.service.answers["bind"] = bind
    await scene.pod("p")
    async with scene.running() as scheduler:
        await asyncio.sleep(30)
        pending = scheduler.queue.pending()
    assert await scene.node_of("p") == "n"
    assert len(scene.service.calls("bind")) == 1
    assert not any(pending.values())


async def test_other_pods_are_scheduled_while_a_slow_bind_runs():
    scene = Scene(extender_config("bind", managed_resources=(SLOTS,)))
    await scene.node("n")

    async def bind(args):
        await asyncio.sleep(4)
        await scene.cluster.bind(Binding(NS, args["PodName"], args["Node"], uid=args["PodUID"]))
        return {}

    scene.service.answers["bind"] = bind
    await scene.pod("slow", requests={"vreplica.dev/slots": "20"}, priority=5)
    await scene.pod("quick")
    async with scene.running():
        await asyncio.sleep(1)
        assert (await scene.node_of("slow"), await scene.node_of("quick")) == ("", "n")
        await asyncio.sleep(5)
        assert await scene.node_of("slow") == "n"


async def test_a_bind_that_never_shows_expires_after_thirty_seconds_and_gives_the_room_back():
    scene = Scene(extender_config("bind", managed_resources=(SLOTS,)))
    await scene.node("n", pods="1")
    scene.service.answers["bind"] = lambda args: {}  # says yes, does nothing
    await scene.pod("liar", requests={"vreplica.dev/slots": "20"}, priority=5)
    async with scene.running():
        await asyncio.sleep(1)
        await scene.pod("next")
        await asyncio.sleep(25)
        assert await scene.node_of("next") == ""
        await asyncio.sleep(10)
        assert await scene.node_of("next") == "n"


async def test_full_nodes_are_sent_to_an_extender_without_a_node_cache():
    scene = Scene(extender_config("filter", node_cache_capable=False))
    await scene.node("n0")
    await scene.node("n1")
    scene.service.answers["filter"] = lambda args: {"Nodes": {"items": args["Nodes"]["items"][:1]}}
    await scene.pod("p")
    async with scene.running():
        await asyncio.sleep(1)
    sent = scene.service.calls("filter")[0]
    assert sent["NodeNames"] is None
    assert await scene.node_of("p") == sent["Nodes"]["items"][0]["metadata"]["name"]


# Preemption


async def test_lower_priority_pods_make_room_and_the_pod_takes_it_once_they_are_gone():
    scene = Scene()
    await scene.node("n", cpu="2")
    async with scene.running():
        await scene.pod("low", cpu="2", terminationGracePeriodSeconds=0)
        await asyncio.sleep(1)
        assert await scene.node_of("low") == "n"
        await scene.pod("high", cpu="2", priority=1000)
        await asyncio.sleep(1)
        low = [
            p for p in (await scene.cluster.list_page(PODS)).items if p["metadata"]["name"] == "low"
        ]
        if low:  # a kubelet would have ended it
            await scene.cluster.delete(PODS, NS, "low", grace_period_s=0)
        await asyncio.sleep(12)
    assert await scene.node_of("high") == "n"
    assert len(await scene.notes("Preempted")) == 1


async def test_an_extender_drops_a_node_from_preemption():
    scene = Scene(extender_config("filter", "preempt"))
    await scene.node("n0", cpu="2")
    await scene.node("n1", cpu="2")
    scene.service.answers = {
        "filter": all_fit,
        "preempt": lambda args: {
            "NodeNameToMetaVictims": {"n1": args["NodeNameToMetaVictims"]["n1"]}
        },
    }
    async with scene.running():
        await scene.pod("low0", cpu="2")
        await scene.pod("low1", cpu="2")
        await asyncio.sleep(1)
        await scene.pod("high", cpu="2", priority=1000)
        await asyncio.sleep(1)
        high = await scene.cluster.get(PODS, NS, "high")
    assert sorted(scene.service.calls("preempt")[0]["NodeNameToMetaVictims"]) == ["n0", "n1"]
    assert high["status"]["nominatedNodeName"] == "n1"


async def test_a_pod_that_must_not_preempt_says_so():
    scene = Scene()
    await scene.node("n", cpu="2")
    async with scene.running():
        await scene.pod("low", cpu="2")
        await asyncio.sleep(1)
        await scene.pod("high", cpu="2", priority=1000, never_preempts=True)
        await asyncio.sleep(1)
        message = (await scene.condition("high"))["message"]
    assert message.endswith("preemption: not eligible due to preemptionPolicy=Never.")


# Lists and watches


async def test_scheduling_goes_on_after_the_watch_history_was_compacted():
    scene = Scene()
    await scene.node("n")
    async with scene.running():
        await asyncio.sleep(1)
        scene.cluster.compact()
        await asyncio.sleep(400)  # longer than a watch lasts
        await scene.pod("p")
        await asyncio.sleep(10)
    assert await scene.node_of("p") == "n"


async def test_a_deleted_node_is_no_longer_chosen():
    scene = Scene()
    await scene.node("a", cpu="8")
    await scene.node("b", cpu="1")
    async with scene.running():
        await asyncio.sleep(1)
        await scene.cluster.delete(NODES, "", "a")
        await asyncio.sleep(0.1)
        await scene.cluster.create(PODS, NS, pod_object("p"))
        await asyncio.sleep(1)
    assert await scene.node_of("p") == "b"
