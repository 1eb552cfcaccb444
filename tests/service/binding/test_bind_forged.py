"""Nothing in a bind request is believed: each field of ExtenderBindingArgs, forged, and what comes
of it.

Who reaches the endpoint may ask for anything; what is bound, where and with which ledger is decided
by what the API server and the watch say. A refusal changes nothing and reserves nothing.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
import pytest

from extender.kube.api import ADAPTERPOOLS, NODES, PODS, STATEFULSETS, Binding, Obj, PatchType
from extender.model import names
from extender.model.errors import WireError
from extender.service.binding.binder import BindRefused
from extender.service.binding.pod_binder import PodBinder
from tests.support.builders import NS
from tests.support.configs import config_from
from tests.support.service import World, always, bind_args, until

pytestmark = pytest.mark.looptime

Args = dict[str, Any]
Forge = Callable[[World, Obj], Awaitable[Args]]
"""What the forger, or the moment, does to the world of one pending pod; the fields that he sends
instead.
"""


async def patched(
    world: World, patch: Obj, resource=PODS, namespace: str = NS, name: str = "dispatcher-0"
):
    await world.cluster.patch(resource, namespace, name, patch, patch_type=PatchType.MERGE)


async def another_pods_uid(world: World, _pod: Obj) -> Args:
    return {"PodUID": await world.pod(1)}


async def a_made_up_uid(_world: World, _pod: Obj) -> Args:
    return {"PodUID": "00000000-0000-0000-0000-000000000000"}


async def a_name_that_nobody_has(_world: World, _pod: Obj) -> Args:
    return {"PodName": "dispatcher-7"}


async def another_pods_name(world: World, _pod: Obj) -> Args:
    await world.pod(1)
    return {"PodName": "dispatcher-1"}


async def a_namespace_that_nobody_has(_world: World, _pod: Obj) -> Args:
    return {"PodNamespace": "nowhere"}


async def a_pod_of_that_name_in_another_namespace(world: World, pod: Obj) -> Args:
    """A tenant's own pod, named as ours, with our labels and a ledger of its own making."""
    metadata = {
        "name": "dispatcher-0",
        "labels": pod["metadata"]["labels"],
        "annotations": {names.PLACEMENTS_ANNOTATION: '{"tenant/a":20}'},
    }
    made = await world.cluster.create(PODS, "tenant", {"metadata": metadata, "spec": pod["spec"]})
    return {"PodNamespace": "tenant", "PodUID": made["metadata"]["uid"]}


async def a_pod_without_the_label(world: World, _pod: Obj) -> Args:
    await patched(world, {"metadata": {"labels": {names.POOL_LABEL: None}}})
    return {}


async def a_label_of_another_pool(world: World, _pod: Obj) -> Args:
    await world.cluster.create(
        ADAPTERPOOLS,
        NS,
        {
            "apiVersion": names.API_VERSION,
            "kind": "AdapterPool",
            "metadata": {"name": "other"},
            "spec": {"statefulSet": "other", "slotsPerPod": 1000},
        },
    )
    await patched(world, {"metadata": {"labels": {names.POOL_LABEL: "other"}}})
    return {}


async def a_pod_that_no_statefulset_owns(world: World, _pod: Obj) -> Args:
    await patched(world, {"metadata": {"ownerReferences": None}})
    return {}


async def another_schedulers_pod(world: World, _pod: Obj) -> Args:
    uid = await world.pod(1, schedulerName="batch-scheduler")
    return {"PodName": "dispatcher-1", "PodUID": uid}


async def a_pod_that_is_bound_already(world: World, pod: Obj) -> Args:
    await world.cluster.bind(Binding(NS, "dispatcher-0", "node-2", uid=pod["metadata"]["uid"]))
    return {}


async def a_node_that_nobody_has(_world: World, _pod: Obj) -> Args:
    return {"Node": "node-9"}


async def a_node_that_was_deleted(world: World, _pod: Obj) -> Args:
    await world.cluster.delete(NODES, "", "node-1")
    return {}


async def a_cordoned_node(world: World, _pod: Obj) -> Args:
    await patched(world, {"spec": {"unschedulable": True}}, NODES, "", "node-1")
    return {}


async def a_node_without_slots(world: World, _pod: Obj) -> Args:
    await world.patch_status(NODES, "", "node-1", allocatable={names.SLOTS_RESOURCE: "5"})
    return {}


async def a_pool_that_is_gone(world: World, _pod: Obj) -> Args:
    await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
    return {}


async def a_pod_that_was_deleted(world: World, _pod: Obj) -> Args:
    await world.remove_pod(0)
    return {}


REFUSED = [
    (another_pods_uid, "PodChanged"),
    (a_made_up_uid, "PodChanged"),
    (another_pods_name, "PodChanged"),
    (a_name_that_nobody_has, "not found"),
    (a_namespace_that_nobody_has, "not found"),
    (a_pod_of_that_name_in_another_namespace, "PoolNotFound"),
    (a_pod_without_the_label, "PoolNotFound"),
    (a_label_of_another_pool, "StatefulSetNotFound"),
    (a_pod_that_no_statefulset_owns, "StatefulSetNotFound"),
    (another_schedulers_pod, "OtherScheduler"),
    (a_pod_that_is_bound_already, "PodAlreadyBound"),
    (a_pod_that_was_deleted, "not found"),
    (a_node_that_nobody_has, "NodeUnknown"),
    (a_node_that_was_deleted, "NodeUnknown"),
    (a_cordoned_node, "NodeUnschedulable"),
    (a_node_without_slots, "NodeSlotsExceeded"),
    (a_pool_that_is_gone, "PoolNotFound"),
]


AS_THE_WATCH_TELLS: Final = {
    a_node_that_was_deleted,
    a_cordoned_node,
    a_node_without_slots,
    a_pool_that_is_gone,
}
"""A Binding compares the pod's UID and version with what is stored; of nodes and pools the watch
tells.
"""


@pytest.mark.parametrize(
    ("forge", "says", "seen"),
    [
        pytest.param(forge, says, seen, id=f"{forge.__name__} {'seen' if seen else 'unseen'}")
        for forge, says in REFUSED
        for seen in ((True,) if forge in AS_THE_WATCH_TELLS else (True, False))
    ],
)
async def test_a_forged_bind_binds_nothing(forge: Forge, says: str, seen: bool):
    """``seen``: whether the watch has told us of it before the request comes."""
    world = await World.create()
    async with world.serving() as service:
        await world.pod(0, {})
        await until(lambda: known(service, "dispatcher-0"), timeout_s=5)
        pod = await world.pod_object(0)
        args = {"PodName": "dispatcher-0", "Node": "node-1"} | await forge(world, pod)
        if seen:
            await service.informers.catch_up()
        before = await bound(world)
        reply, _ = await service.verbs.bind(bind_args(pod, args.pop("Node"), **args))
        assert says in orjson.loads(reply)["Error"]
        assert await bound(world) == before
        assert not any(p.assumed for p in service.caches.pods.list())
        assert not any(
            isinstance(claim.owner, tuple) and claim.owner[0] == "bind"
            for state in service.caches.state.pools.values()
            for one in state.pods.values()
            for claim in one.claims.values()
        )


async def bound(world: World) -> list[tuple[str, str, str, Any]]:
    return [
        (
            pod["metadata"]["namespace"],
            pod["metadata"]["name"],
            pod["spec"].get("nodeName", ""),
            pod["metadata"].get("annotations"),
        )
        for pod in (await world.cluster.list_page(PODS)).items
    ]


def known(service: Any, name: str) -> bool:
    return service.caches.pods.get(f"{NS}/{name}") is not None


async def test_the_ledger_that_a_pod_brings_along_is_not_the_one_it_is_bound_with():
    world = await World.create()
    async with world.serving() as service:
        await world.pod(0, {"tenant/ghost": 20, "tenant/a": 20})
        await world.vpod("a", 3)
        await until(lambda: known(service, "dispatcher-0"), timeout_s=5)
        reply, _ = await service.verbs.bind(bind_args(await world.pod_object(0), "node-1"))
        assert orjson.loads(reply)["Error"] == ""
        assert await world.ledger(0) == {"tenant/a": 3}


async def test_a_pod_that_tolerates_a_cordon_is_bound_there_although_its_template_does_not():
    """Found by review: kube-scheduler and filter passed the node, and each bind was refused."""
    world = await World.create()
    template = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}}
    await patched(world, template, STATEFULSETS, name="dispatcher")
    await a_cordoned_node(world, {})
    tolerations = [{"key": names.UNSCHEDULABLE_TAINT, "operator": "Exists", "effect": "NoSchedule"}]
    async with world.serving() as service:
        await world.pod(0, {}, tolerations=tolerations)
        await until(lambda: known(service, "dispatcher-0"), timeout_s=5)
        reply, _ = await service.verbs.bind(bind_args(await world.pod_object(0), "node-1"))
        assert orjson.loads(reply)["Error"] == ""


async def test_which_schedulers_pods_are_bound_is_configured():
    document = {"apiVersion": names.CONFIG_API_VERSION, "kind": names.CONFIG_KIND}
    assert config_from(document).scheduler_names == {"vreplica-scheduler", "default-scheduler"}
    config = config_from(document | {"schedulerNames": ["batch-scheduler"]})
    world = await World.create()
    await world.pod(0, {}, schedulerName="batch-scheduler")
    uid = await world.pod(1, {})
    await world.sync()
    binder = PodBinder(
        world.api,
        world.caches,
        world.binder(),
        knows_past=always,
        scheduler_names=config.scheduler_names,
    )
    await binder.bind(NS, "dispatcher-0", await world.uid(0), "node-1")
    assert await world.node_of(0) == "node-1"
    with pytest.raises(BindRefused, match=r"'vreplica-scheduler'.*schedulerNames"):
        await binder.bind(NS, "dispatcher-1", uid, "node-1")


LONG = "x" * 254


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"PodName": "../../nodes/node-1"}, id="a way up in PodName"),
        pytest.param({"PodName": "dispatcher-0/binding"}, id="a subresource in PodName"),
        pytest.param({"PodName": "dispatcher-0?dryRun=All"}, id="a query in PodName"),
        pytest.param({"PodName": "dispatcher-0%2f..%2f"}, id="an escaped way up"),
        pytest.param({"PodName": "dispatcher-0\n"}, id="a line break in PodName"),
        pytest.param({"PodName": "dispatcher-0\x00"}, id="a zero byte in PodName"),
        pytest.param({"PodName": ".."}, id="two dots"),
        pytest.param({"PodName": ""}, id="no PodName"),
        pytest.param({"PodName": LONG}, id="a PodName that is too long"),
        pytest.param({"PodName": "DISPATCHER-0"}, id="capitals"),
        pytest.param({"PodName": "dispatcher-\u0660"}, id="a foreign digit"),
        pytest.param({"PodName": ["dispatcher-0"]}, id="a list"),
        pytest.param({"PodNamespace": "../kube-system"}, id="a way up in PodNamespace"),
        pytest.param({"PodNamespace": "a/b"}, id="a slash in PodNamespace"),
        pytest.param({"PodNamespace": "x" * 64}, id="a PodNamespace that is too long"),
        pytest.param({"PodNamespace": ""}, id="no PodNamespace"),
        pytest.param({"PodUID": "u" * 129}, id="a PodUID that is too long"),
        pytest.param({"PodUID": ""}, id="no PodUID"),
        pytest.param({"PodUID": 7}, id="a number for PodUID"),
        pytest.param({"Node": "../pods/p"}, id="a way up in Node"),
        pytest.param({"Node": "node-1\r\nX: y"}, id="a header in Node"),
        pytest.param({"Node": LONG}, id="a Node that is too long"),
        pytest.param({"Node": ""}, id="no Node"),
        pytest.param({"Node": None}, id="null for Node"),
    ],
)
async def test_names_that_are_none_are_refused_before_anything_is_asked(changed: Args):
    world = await World.create()
    await world.pod(0, {})
    pod = await world.pod_object(0)
    async with world.serving() as service:
        before = len(world.api.calls)
        asked = orjson.loads(bind_args(pod, "node-1")) | changed
        with pytest.raises(WireError, match=next(iter(changed))):
            await service.verbs.bind(orjson.dumps(asked))
        assert not [
            call for call in world.api.calls[before:] if (call.verb, call.what) == ("get", "pods")
        ]
        assert await world.node_of(0) == ""
