"""Adapter pods with volumes: kube-scheduler's volume binder chooses and binds them, then our bind
verb binds the pod. A pod that comes back goes where its volume is.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex

from extender.kube.api import NODES, PODS, VPODS, Api, NotFound, Obj, Resource
from extender.lab.apiserver.registry import (
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    STORAGECLASSES,
)
from extender.model.names import ZONE_LABEL
from tests.e2e.backend import Backend
from tests.e2e.scenario import DEFAULT_SCHEDULER, POOL, Setup, System
from tests.e2e.waiting import NotYet, eventually

CLASS = "local-e2e"
CLAIM: Obj = {
    "metadata": {"name": "data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": CLASS,
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


def a_volume(name: str, zone: str) -> Obj:
    there = {"key": ZONE_LABEL, "operator": "In", "values": [zone]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
        },
    }


@asynccontextmanager
async def volumes(api: Api, zones: Sequence[str]) -> AsyncIterator[None]:
    """A class whose claims wait for their first consumer, and a volume in each of these zones."""
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    made: list[tuple[Resource, str]] = []
    try:
        await api.create(STORAGECLASSES, "", storage_class)
        made.append((STORAGECLASSES, CLASS))
        for zone in zones:
            # Volumes of another test may still be protected by their claims.
            name = f"disk-{token_hex(4)}"
            await api.create(PERSISTENTVOLUMES, "", a_volume(name, zone))
            made.append((PERSISTENTVOLUMES, name))
        yield
    finally:
        for resource, name in made:
            with suppress(NotFound):
                await api.delete(resource, "", name)


async def zones_of_volumes(api: Api, namespace: str) -> dict[str, str]:
    """Pod name -> the zone of its volume."""
    found = {}
    for claim in (await api.list_page(PERSISTENTVOLUMECLAIMS)).items:
        if claim["metadata"]["namespace"] != namespace or claim["status"].get("phase") != "Bound":
            continue
        volume = await api.get(PERSISTENTVOLUMES, "", claim["spec"]["volumeName"])
        ((term,),) = (
            one["matchExpressions"]
            for one in volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        )
        found[claim["metadata"]["name"].removeprefix("data-")] = term["values"][0]
    return found


async def zones_of_pods(system: System) -> dict[str, str]:
    """Pod name -> the zone of its node."""
    nodes = {
        node["metadata"]["name"]: node["metadata"]["labels"][ZONE_LABEL]
        for node in (await system.backend.api.list_page(NODES)).items
    }
    return {pod.name: nodes[pod.node] for pod in await system.settled(pods=3)}


async def test_pods_are_bound_after_their_volumes_and_come_back_to_them(
    backend: Backend, tmp_path: Path
):
    async with (
        System(backend, tmp_path, Setup()) as system,
        volumes(backend.api, ["zone-0", "zone-1", "zone-2"]),
    ):
        await backend.add_nodes(6)
        namespace = await system.pool(claims=[CLAIM], slotsPerPod=10)
        await system.vpods(3, 8)
        before = await system.settled(pods=3)
        zones = await zones_of_pods(system)
        assert sorted(zones.values()) == ["zone-0", "zone-1", "zone-2"], "one volume in each"
        assert await zones_of_volumes(backend.api, namespace) == zones
        assert (await system.requests())["bind"] >= 3
        await backend.api.delete(PODS, namespace, f"{POOL}-1")
        await system.came_back(before[1])
        after = await system.settled(pods=3)
        assert await zones_of_pods(system) == zones
        assert [pod.ledger for pod in after] == [pod.ledger for pod in before]


async def test_the_claim_of_an_ephemeral_volume_comes_and_goes_with_its_pod(backend: Backend):
    await backend.start_scheduler(DEFAULT_SCHEDULER)
    nodes = await backend.add_nodes(2)
    namespace = await backend.namespace()
    async with volumes(backend.api, ["zone-1"]):
        template = {"metadata": {"labels": {"made": "for-a-pod"}}, "spec": CLAIM["spec"]}
        scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
        container = {"name": "c", "image": "registry.example/c:1"}
        pod = {
            "metadata": {"name": "p"},
            "spec": {"containers": [container], "volumes": [scratch]},
        }
        uid = (await backend.api.create(PODS, namespace, pod))["metadata"]["uid"]

        async def node() -> str:
            found = await backend.api.get(PODS, namespace, "p")
            return str(found["spec"].get("nodeName") or "")

        assert await eventually(node, 30.0, "the pod is bound") == nodes[1], "its volume's zone"
        claim = await backend.api.get(PERSISTENTVOLUMECLAIMS, namespace, "p-scratch")
        (owner,) = claim["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (uid, True)
        assert claim["metadata"]["labels"] == {"made": "for-a-pod"}
        await backend.api.delete(PODS, namespace, "p", grace_period_s=0)

        async def gone() -> bool:
            try:
                await backend.api.get(PERSISTENTVOLUMECLAIMS, namespace, "p-scratch")
            except NotFound:
                return True
            return False

        assert await eventually(gone, 30.0, "the claim is gone with its pod")


async def test_vpods_say_why_if_all_volumes_are_in_one_zone_of_an_ha_pool(
    backend: Backend, tmp_path: Path
):
    async with (
        System(backend, tmp_path, Setup()) as system,
        volumes(backend.api, ["zone-0"] * 4),
    ):
        await backend.add_nodes(3)
        await system.pool(claims=[CLAIM], slotsPerPod=10, profile="ha", maxPods=2)
        tenant = await system.vpods(1, 8)

        async def told() -> bool:
            vpod = await backend.api.get(VPODS, tenant, "source-0")
            conditions = vpod.get("status", {}).get("conditions") or ()
            messages = [one["message"] for one in conditions if one["type"] == "Scheduled"]
            if not any("zone would hold too many of its vreplicas" in one for one in messages):
                raise NotYet(f"{conditions}")
            return True

        await eventually(told, 30.0, "the vpod says that its pods' zone has its share")
