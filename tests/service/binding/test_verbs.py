"""The four verbs, bytes in and bytes out: both node forms, strangers' pods, and what an attacker
may try.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import orjson
import pytest

from extender.kube.api import NODES, PODS, Obj
from extender.model import names
from extender.model.errors import WireError
from extender.model.reasons import ConflictReason
from extender.node.bind_ledger import BindLedger
from extender.node.filter_results import FilterResultCache
from extender.service.binding.binder import BindRefused
from extender.service.binding.pod_binder import PodBinder
from extender.service.binding.reactivator import Reactivator
from extender.service.binding.verbs import ExtenderVerbs
from tests.support.builders import POOL
from tests.support.fake_binder import FakeBinderConfig, FakeVReplicaBinder
from tests.support.service import World, always, bind_args, filter_args

RECORDINGS: Final = Path(__file__).parents[2] / "contract" / "recordings"
ALL = ["node-0", "node-1", "node-2"]
NAUGHTY = "x\nERROR root: all is lost\x1b[31m\u202e"


def verbs_of(
    world: World, fake: FakeVReplicaBinder | None = None, narrow_to: int = 0
) -> ExtenderVerbs:
    binder = fake if fake is not None else world.binder(narrow_to=narrow_to)
    return ExtenderVerbs(
        world.caches,
        binder,
        PodBinder(world.api, world.caches, binder, knows_past=always),
        reactivator=Reactivator(
            world.api, world.caches, metrics=world.metrics, leads=lambda _: True
        ),
        recorder=world.recorder(),
        metrics=world.metrics,
    )


async def full_nodes(world: World) -> list[Obj]:
    return (await world.cluster.list_page(NODES)).items


async def a_pending_pod(world: World, **pod) -> Obj:
    await world.pod(0, **pod)
    await world.sync()
    return await world.pod_object(0)


async def test_names_come_back_where_names_were_sent_and_objects_where_objects_were():
    world = await World.create()
    pod = await a_pending_pod(world)
    verbs = verbs_of(world)
    by_name = orjson.loads(verbs.filter(filter_args(pod, ALL))[0])
    assert by_name["NodeNames"] == ALL
    assert by_name["Nodes"] is None
    nodes = await full_nodes(world)
    by_object = orjson.loads(verbs.filter(filter_args(pod, nodes, full=True))[0])
    assert by_object["NodeNames"] is None
    assert by_object["Nodes"]["items"] == nodes


async def test_full_nodes_are_believed_over_our_own_cache():
    world = await World.create(node_slots=40)
    pod = await a_pending_pod(world)
    nodes = await full_nodes(world)
    nodes[1]["status"]["allocatable"][names.SLOTS_RESOURCE] = "5"
    nodes[1]["metadata"]["resourceVersion"] += "1"
    reply, status = verbs_of(world).filter(filter_args(pod, nodes, full=True))
    result = orjson.loads(reply)
    assert [node["metadata"]["name"] for node in result["Nodes"]["items"]] == ["node-0", "node-2"]
    assert result["FailedNodes"] == {"node-1": "NodeSlotsExceeded"}
    assert status == "Success"


async def test_a_node_that_we_do_not_know_is_refused_without_failing_the_cycle():
    world = await World.create()
    pod = await a_pending_pod(world)
    result = orjson.loads(verbs_of(world).filter(filter_args(pod, ["node-0", "node-9"]))[0])
    assert result["NodeNames"] == ["node-0"]
    assert result["FailedAndUnresolvableNodes"] == {"node-9": "NodeUnknown"}
    assert result["Error"] == ""


async def test_a_pod_that_cannot_be_is_refused_on_every_node_for_one_reason():
    world = await World.create()
    pod = await a_pending_pod(world)
    pod["metadata"]["labels"][names.POOL_LABEL] = "unknown"
    pod["metadata"]["resourceVersion"] += "1"
    reply, status = verbs_of(world).filter(filter_args(pod, ALL))
    assert orjson.loads(reply)["FailedAndUnresolvableNodes"] == dict.fromkeys(ALL, "PoolNotFound")
    assert status == "Unschedulable"


@pytest.mark.parametrize("labels", [{}, None, {"app": "x"}], ids=["none", "null", "others"])
@pytest.mark.parametrize("full", [False, True], ids=["names", "objects"])
async def test_a_pod_without_our_label_passes_everywhere(labels, full: bool):
    world = await World.create()
    await world.sync()
    pod = {"metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": labels}}
    nodes = await full_nodes(world) if full else ALL
    verbs = verbs_of(world)
    result = orjson.loads(verbs.filter(filter_args(pod, nodes, full=full))[0])
    passed = (
        [node["metadata"]["name"] for node in result["Nodes"]["items"]]
        if full
        else result["NodeNames"]
    )
    assert passed == ALL
    scores = orjson.loads(verbs.prioritize(filter_args(pod, nodes, full=full))[0])
    assert {item["Score"] for item in scores} == {10}


async def test_filter_has_no_effect_but_its_decisions():
    world = await World.create()
    await world.vpod("a", 5)
    pod = await a_pending_pod(world)
    before, version = world.digest(), world.cluster.version
    verbs_of(world).filter(filter_args(pod, ALL))
    assert world.digest() == before
    assert world.cluster.version == version
    assert world.api.calls == []


async def test_prioritize_prefers_the_zone_where_a_loss_costs_least():
    world = await World.create()
    await world.pod(1, {"tenant/a": 4}, node="node-0")
    await world.pod(2, {"tenant/a": 4}, node="node-1")
    await world.vpod("a", 12, {0: 4, 1: 4, 2: 4})
    pod = await a_pending_pod(world)
    verbs = verbs_of(world)
    verbs.filter(filter_args(pod, ALL))
    scores = {
        item["Host"]: item["Score"]
        for item in orjson.loads(verbs.prioritize(filter_args(pod, ALL))[0])
    }
    assert scores["node-2"] == 10
    assert max(scores["node-0"], scores["node-1"]) < 10


async def test_prioritize_answers_while_a_bind_waits_and_its_node_gets_another_zone():
    """Found by review: it failed for the pool until the bind was done."""
    world = await World.create()
    await world.pod(1)
    await world.sync()
    verbs, pod = verbs_of(world), await world.pod_object(1)
    pool, node = world.caches.state.pool(POOL), world.caches.state.nodes["node-0"]
    with pool.expecting("dispatcher-0", node):
        world.caches.nodes.update(replace(node, zone="elsewhere", resource_version="999999"))
        verbs.filter(filter_args(pod, ALL))
        scores = orjson.loads(verbs.prioritize(filter_args(pod, ALL))[0])
    assert [item["Host"] for item in scores] == ALL


async def test_prioritize_needs_no_filter_of_the_same_replica():
    world = await World.create()
    world.leads = False
    await world.pod(1, {"tenant/a": 4}, node="node-0")
    await world.vpod("a", 8, {0: 4, 1: 4})
    pod = await a_pending_pod(world)
    scores = orjson.loads(verbs_of(world).prioritize(filter_args(pod, ALL))[0])
    assert {item["Host"]: item["Score"] for item in scores} == {
        "node-0": 0,
        "node-1": 10,
        "node-2": 10,
    }


async def test_prioritize_counts_what_the_pod_will_carry():
    world = await World.create(slots=4)
    await world.pod(1, {"tenant/a": 4}, node="node-0", slots=4)
    await world.vpod("a", 8, {1: 4})
    pod = await a_pending_pod(world)
    scores = orjson.loads(verbs_of(world).prioritize(filter_args(pod, ALL))[0])
    assert {item["Host"]: item["Score"] for item in scores} == {
        "node-0": 0,
        "node-1": 10,
        "node-2": 10,
    }


@pytest.mark.parametrize("name", ["preempt-meta-1", "preempt-full-1"])
@pytest.mark.parametrize("ours", [True, False], ids=["an adapter pod", "a plain pod"])
async def test_what_a_real_kube_scheduler_asks_of_preempt(name: str, ours: bool):
    """Victims of the recording are no adapter pods: all its nodes are as good, and the answer is
    the one it took.
    """
    recorded = orjson.loads((RECORDINGS / f"{name}.json").read_bytes())
    world = await World.create()
    request = recorded["request"]
    if ours:
        pod = await a_pending_pod(world)
        request["Pod"]["metadata"] |= {
            key: pod["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")
        }
    else:
        await world.sync()
    assert orjson.loads(verbs_of(world).preempt(orjson.dumps(request))[0]) == recorded["response"]


@pytest.mark.parametrize("name", ["preempt-meta-1", "preempt-full-1"])
async def test_what_a_real_kube_scheduler_asks_of_preempt_where_a_victim_is_an_adapter_pod(
    name: str,
):
    recorded = orjson.loads((RECORDINGS / f"{name}.json").read_bytes())
    world = await World.create(node_slots=20)
    uids = {node: await world.pod(i + 1, {"tenant/a": i}, node=node) for i, node in enumerate(ALL)}
    pod = await a_pending_pod(world)
    request = orjson.dumps(recorded["request"] | {"Pod": pod})
    for node, victims in recorded["response"]["NodeNameToMetaVictims"].items():
        request = request.replace(victims["Pods"][0]["UID"].encode(), uids[node].encode())
    answer = orjson.loads(verbs_of(world).preempt(request)[0])["NodeNameToMetaVictims"]
    assert answer == {"node-0": {"Pods": [{"UID": uids["node-0"]}], "NumPDBViolations": 0}}


async def test_preempt_keeps_the_nodes_where_the_fewest_vreplicas_are_evicted():
    world = await World.create(node_slots=20)
    uids = [
        await world.pod(1, {"tenant/a": 9}, node="node-0"),
        await world.pod(2, {"tenant/a": 1}, node="node-1"),
    ]
    await world.vpod("a", 10, {1: 9, 2: 1})
    pod = await a_pending_pod(world)
    proposed = {
        f"node-{i}": {"Pods": [{"UID": uid}], "NumPDBViolations": i} for i, uid in enumerate(uids)
    }
    proposed["node-2"] = {"Pods": []}
    body = orjson.dumps({"Pod": pod, "NodeNameToMetaVictims": proposed})
    result = orjson.loads(verbs_of(world).preempt(body)[0])
    assert result["NodeNameToMetaVictims"] == {
        "node-1": {"Pods": [{"UID": uids[1]}], "NumPDBViolations": 1}
    }


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param({"PodUID": "another"}, "PodChanged", id="another-uid"),
        pytest.param({"Node": "node-9"}, "NodeUnknown", id="unknown-node"),
        pytest.param({"PodName": "nobody"}, "404", id="unknown-pod"),
    ],
)
async def test_a_refused_bind_says_why_in_a_200_and_changes_nothing(changed, says: str):
    world = await World.create()
    await world.vpod("a", 5)
    pod = await a_pending_pod(world)
    before, version = world.digest(), world.cluster.version
    verbs = verbs_of(world)
    reply, status = await verbs.bind(bind_args(pod, "node-0", **changed))
    assert says in orjson.loads(reply)["Error"]
    assert status == "Error"
    assert (verbs.binds, verbs.bind_errors) == (0, 1)
    assert world.digest() == before
    assert world.cluster.version == version


async def a_plain_pod(world: World, scheduler: str = "vreplica-scheduler") -> Obj:
    spec = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i:1"}]}
    made = await world.cluster.create(
        PODS, "default", {"metadata": {"name": "web-0"}, "spec": spec}
    )
    await world.sync()
    return made


async def test_a_pod_without_our_label_is_bound_with_nothing_added():
    world = await World.create()
    await world.vpod("a", 5)
    made = await a_plain_pod(world)
    before = world.digest()
    assert await verbs_of(world).bind(bind_args(made, "node-0")) == (b'{"Error":""}', "Success")
    bound = await world.cluster.get(PODS, "default", "web-0")
    assert bound["spec"]["nodeName"] == "node-0"
    assert not bound["metadata"].get("annotations")
    assert "default/web-0" not in world.caches.pods
    assert world.digest() == before


async def test_a_pod_without_our_label_that_is_bound_already_is_success_without_a_write():
    world = await World.create()
    made = await a_plain_pod(world)
    verbs = verbs_of(world)
    for _ in range(2):
        assert await verbs.bind(bind_args(made, "node-0")) == (b'{"Error":""}', "Success")
    assert world.api.count("bind", "pods") == 1
    reply, _ = await verbs.bind(bind_args(made, "node-1"))
    assert "PodAlreadyBound" in orjson.loads(reply)["Error"]


@pytest.mark.parametrize(
    ("scheduler", "changed", "says"),
    [
        pytest.param("somebody-else", {}, "OtherScheduler", id="of another scheduler"),
        pytest.param(
            "vreplica-scheduler", {"PodUID": "another"}, "PodChanged", id="another one by now"
        ),
        pytest.param("vreplica-scheduler", {"PodName": "nobody"}, "404", id="gone"),
    ],
)
async def test_a_pod_without_our_label_is_not_bound(scheduler: str, changed, says: str):
    world = await World.create()
    made = await a_plain_pod(world, scheduler)
    reply, status = await verbs_of(world).bind(bind_args(made, "node-0", **changed))
    assert says in orjson.loads(reply)["Error"]
    assert status == "Error"
    assert not (await world.cluster.get(PODS, "default", "web-0"))["spec"].get("nodeName")


async def test_text_of_tenants_and_callers_stays_out_of_logs_and_labels(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level("DEBUG")
    world = await World.create()
    pod = await a_pending_pod(world)
    pod["metadata"] |= {"name": NAUGHTY, "uid": NAUGHTY}
    pod["metadata"]["annotations"][names.PLACEMENTS_ANNOTATION] = orjson.dumps(
        {NAUGHTY: 1}
    ).decode()
    verbs = verbs_of(world)
    verbs.filter(filter_args(pod, [*ALL, NAUGHTY]))
    await verbs.bind(bind_args(await world.pod_object(0), "node-0", PodUID=NAUGHTY))
    assert "all is lost" not in world.metrics.render().decode()
    assert not [r for r in caplog.records if "\n" in r.getMessage() or "\x1b" in r.getMessage()]


@pytest.mark.looptime
async def test_a_refused_bind_is_told_on_the_pod_and_counted_by_a_closed_set_of_reasons():
    world = await World.create()
    await world.pod(0)
    async with world.serving() as service:
        pod = await world.pod_object(0)
        await service.verbs.bind(bind_args(pod, "node-9"))
        await asyncio.sleep(1)
        (event,) = await world.events("FailedBinding")
        assert (event["regarding"]["name"], event["type"]) == ("dispatcher-0", "Warning")
        assert "NodeUnknown" in event["note"]
        assert 'refusals_total{reason="NodeUnknown"} 1.0' in service.metrics.render().decode()


async def test_random_bytes_in_good_requests_give_an_answer_or_a_wire_error():
    world = await World.create()
    pod = await a_pending_pod(world)
    verbs = verbs_of(world)
    rng = random.Random(3)
    bodies = [filter_args(pod, ALL), filter_args(pod, await full_nodes(world), full=True)]
    for _ in range(400):
        body = bytearray(rng.choice(bodies))
        for _ in range(rng.randint(1, 6)):
            body[rng.randrange(len(body))] = rng.choice(b'{}[]":,0a\\')
        for verb in (verbs.filter, verbs.prioritize, verbs.preempt):
            with suppress(WireError):
                verb(bytes(body))


async def test_verbs_work_over_any_binder():
    world = await World.create()
    pod = await a_pending_pod(world)
    fake = FakeVReplicaBinder(
        FakeBinderConfig(
            find_reasons={"node-1": (ConflictReason.ZONE_SKEW_EXCEEDED,)},
            bind_ledger=BindLedger({}, {}, "{}"),
            assume_error=BindRefused(ConflictReason.SLOTS_MISMATCH),
        )
    )
    verbs = verbs_of(world, fake)
    result = orjson.loads(verbs.filter(filter_args(pod, ALL))[0])
    assert result["FailedAndUnresolvableNodes"] == {"node-1": "ZoneSkewExceeded"}
    reply, _ = await verbs.bind(bind_args(pod, "node-0"))
    assert orjson.loads(reply)["Error"].startswith("SlotsMismatch")
    assert await world.node_of(0) == ""


async def test_a_pod_that_is_sent_in_the_version_that_we_know_is_not_read_again(monkeypatch):
    world = await World.create()
    pod = await a_pending_pod(world)
    verbs = verbs_of(world)
    expected = verbs.filter(
        filter_args({**pod, "metadata": {**pod["metadata"], "resourceVersion": "9999"}}, ALL)
    )
    monkeypatch.setattr("extender.service.binding.verbs.pod_from", None)
    assert verbs.filter(filter_args(pod, ALL)) == expected


async def test_a_pod_that_is_assumed_is_taken_as_it_was_sent():
    world = await World.create()
    pod = await a_pending_pod(world)
    binder, verbs = world.binder(), verbs_of(world)
    known = world.caches.pods.get(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    assert known is not None
    binder.assume(known, "node-1")
    assert orjson.loads(verbs.filter(filter_args(pod, ALL))[0])["NodeNames"] == ALL


async def test_filter_narrows_to_the_best_few_and_to_more_each_time_the_same_pod_comes_again():
    world = await World.create()
    await world.pod(1, node="node-0")
    pod = await a_pending_pod(world)
    verbs = verbs_of(world, narrow_to=1)
    first, again, another = (orjson.loads(verbs.filter(filter_args(pod, ALL))[0]) for _ in range(3))
    assert first["NodeNames"] == ["node-1"], "node-0 has a pod already"
    assert (again["NodeNames"], another["NodeNames"]) == (ALL, ALL)
    assert [
        item["Host"] for item in orjson.loads(verbs.prioritize(filter_args(pod, ["node-1"]))[0])
    ] == ["node-1"]


async def test_a_pod_that_kube_scheduler_comes_back_to_after_five_minutes_gets_other_nodes_too(
    monkeypatch,
):
    world = await World.create()
    await world.pod(1, node="node-0")
    pod = await a_pending_pod(world)
    verbs = verbs_of(world, narrow_to=1)
    now = [0.0]
    monkeypatch.setattr(verbs._binder, "_filter_results", FilterResultCache(lambda: now[0]))
    seen = set()
    for _ in range(6):
        seen.update(orjson.loads(verbs.filter(filter_args(pod, ALL))[0])["NodeNames"])
        now[0] += 300.0  # its podMaxInUnschedulablePodsDuration
    assert seen == set(ALL)


async def test_narrowing_hides_no_reason_and_no_node_of_a_pod_that_is_not_ours():
    world = await World.create()
    pod = await a_pending_pod(world)
    verbs = verbs_of(world, narrow_to=2)
    result = orjson.loads(verbs.filter(filter_args(pod, [*ALL, "node-9"]))[0])
    assert (result["NodeNames"], result["FailedAndUnresolvableNodes"]) == (
        ALL[:2],
        {"node-9": "NodeUnknown"},
    )
    web = {"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}
    assert orjson.loads(verbs.filter(filter_args(web, ALL))[0])["NodeNames"] == ALL


async def test_whole_nodes_are_narrowed_where_they_are_those_that_we_know():
    world = await World.create()
    pod = await a_pending_pod(world)
    nodes = await full_nodes(world)
    result = orjson.loads(
        verbs_of(world, narrow_to=1).filter(filter_args(pod, nodes, full=True))[0]
    )
    assert result["Nodes"]["items"] == nodes[:1]
    nodes[2]["metadata"]["resourceVersion"] += "1"
    result = orjson.loads(
        verbs_of(world, narrow_to=1).filter(filter_args(pod, nodes, full=True))[0]
    )
    assert result["Nodes"]["items"] == nodes
