"""The predicates and priorities of a v1 Policy, on kube-scheduler 1.22 and on the embedded one: the
same pods go to the same nodes, for the same reasons.
"""

from contextlib import AsyncExitStack
from secrets import token_hex
from typing import Any

import pytest

from extender.kube.api import NODES, PODS, Obj, PatchType, Resource
from extender.lab.apiserver.registry import (
    CSINODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    SERVICES,
    STORAGECLASSES,
)
from tests.e2e.backend import Backend
from tests.e2e.waiting import NotYet, eventually

SCHEDULED_TIMEOUT_S = 20.0
LABEL = "disk"


def a_policy(**fields: Any) -> Obj:
    return {"kind": "Policy", "apiVersion": "v1", **fields}


def priorities(**weights: int) -> Obj:
    return a_policy(
        priorities=[{"name": name, "weight": weight} for name, weight in weights.items()]
    )


def a_pod(name: str, cpu: str, **spec: Any) -> Obj:
    container = {
        "name": "c",
        "image": "registry.example/c:1",
        "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}},
    }
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


async def two_nodes(backend: Backend) -> tuple[str, str, str]:
    """(a node with 5 of its 8 cpu requested and a label, one without, a namespace)."""
    full, free = await backend.add_nodes(2, zones=1)
    labels = {"metadata": {"labels": {LABEL: "ssd"}}}
    await backend.api.patch(NODES, "", full, labels, patch_type=PatchType.MERGE)
    namespace = await backend.namespace()
    await backend.api.create(PODS, namespace, a_pod("there", "5", nodeName=full))
    return full, free, namespace


async def node_of(backend: Backend, namespace: str) -> str:
    """The node that the pod is bound to."""

    async def bound() -> str:
        pod = await backend.api.get(PODS, namespace, "asked")
        return str(pod["spec"].get("nodeName") or "")

    return await eventually(bound, SCHEDULED_TIMEOUT_S, "the pod is bound")


async def why_not(backend: Backend, namespace: str, asked: Obj) -> str:
    """Make the pod. What its PodScheduled condition says.

    kube-scheduler watches each kind of object on its own. It may see a pod before the pods, claims,
    classes and CSINodes that were made earlier, and lets it through. Such a pod is made anew.
    """
    await backend.api.create(PODS, namespace, asked)

    async def refused() -> str:
        pod = await backend.api.get(PODS, namespace, "asked")
        if pod["spec"].get("nodeName"):
            await backend.api.delete(PODS, namespace, "asked", grace_period_s=0)
            await backend.api.create(PODS, namespace, asked)
            raise NotYet("the pod was let through, and is made anew")
        conditions = pod.get("status", {}).get("conditions") or ()
        return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")

    return await eventually(refused, SCHEDULED_TIMEOUT_S, "the pod is refused")


PREFERS_LABEL = {"labelPreference": {"label": LABEL, "presence": True}}
LACKS_LABEL = {"labelsPresence": {"labels": [LABEL], "presence": False}}
HAS_LABEL = {"labelsPresence": {"labels": [LABEL], "presence": True}}


def capacity_ratio(*shape: tuple[int, int], resources: tuple[str, ...] = ("cpu",)) -> Obj:
    """It outweighs the emptier node."""
    argument = {
        "shape": [{"utilization": used, "score": score} for used, score in shape],
        "resources": [{"name": name, "weight": 1} for name in resources],
    }
    ratio = {"name": "Ratio", "weight": 5}
    ratio["argument"] = {"requestedToCapacityRatioArguments": argument}
    return a_policy(priorities=[ratio, {"name": "LeastRequestedPriority", "weight": 1}])


@pytest.mark.parametrize(
    ("policy", "to_full"),
    [
        pytest.param(priorities(LeastRequestedPriority=1), False, id="the emptier node"),
        pytest.param(priorities(MostRequestedPriority=1), True, id="the fuller node"),
        pytest.param(
            priorities(LeastRequestedPriority=2, MostRequestedPriority=1), False, id="weights"
        ),
        pytest.param(
            priorities(LeastRequestedPriority=1, MostRequestedPriority=2), True, id="more weight"
        ),
        pytest.param(
            a_policy(
                priorities=[
                    {"name": "Ssd", "weight": 2, "argument": PREFERS_LABEL},
                    {"name": "LeastRequestedPriority", "weight": 1},
                ]
            ),
            True,
            id="a preferred label",
        ),
        pytest.param(
            a_policy(predicates=[{"name": "NoSsd", "argument": LACKS_LABEL}], priorities=[]),
            False,
            id="without a label",
        ),
        pytest.param(
            a_policy(
                predicates=[{"name": "Ssd", "argument": HAS_LABEL}],
                priorities=[{"name": "LeastRequestedPriority", "weight": 1}],
            ),
            True,
            id="with a label, whatever the priorities say",
        ),
        pytest.param(capacity_ratio((0, 0), (100, 10)), True, id="a shape that rises"),
        pytest.param(capacity_ratio((0, 10), (100, 0)), False, id="a shape that falls"),
        pytest.param(
            capacity_ratio((0, 0), (100, 10), resources=()),
            False,
            id="a shape of no resources, which scores nothing",
        ),
        pytest.param(a_policy(), False, id="the default sets"),
    ],
)
async def test_a_policy_decides_where_a_pod_goes(backend: Backend, policy: Obj, to_full: bool):
    await backend.start_legacy_scheduler(policy)
    full, free, namespace = await two_nodes(backend)
    await backend.api.create(PODS, namespace, a_pod("asked", "1"))
    chosen = await node_of(backend, namespace)
    assert chosen == (full if to_full else free)


IN_SERVICE = {"serviceAffinity": {"labels": [LABEL]}}
APART = {"serviceAntiAffinity": {"label": "kubernetes.io/hostname"}}


TOGETHER = a_policy(
    predicates=[{"name": "Together", "argument": IN_SERVICE}],
    priorities=[{"name": "LeastRequestedPriority", "weight": 1}],
)
SPREAD = a_policy(
    priorities=[
        {"name": "Apart", "weight": 2, "argument": APART},
        {"name": "MostRequestedPriority", "weight": 1},
    ]
)


@pytest.mark.parametrize(
    ("policy", "of_service", "to_full"),
    [
        pytest.param(TOGETHER, True, True, id="serviceAffinity"),
        pytest.param(TOGETHER, False, False, id="serviceAffinity without a Service"),
        pytest.param(SPREAD, True, False, id="serviceAntiAffinity"),
        pytest.param(SPREAD, False, True, id="serviceAntiAffinity without a Service"),
    ],
)
async def test_the_pods_of_a_service_go_together_or_apart(
    backend: Backend, policy: Obj, of_service: bool, to_full: bool
):
    await backend.start_legacy_scheduler(policy)
    full, free, namespace = await two_nodes(backend)
    labels = {"labels": {"app": "web"}}
    if of_service:
        service = {
            "metadata": {"name": "web"},
            "spec": {"clusterIP": "None", "selector": {"app": "web"}},
        }
        await backend.api.create(SERVICES, namespace, service)
        beside = a_pod("beside", "1", nodeName=full)
        beside["metadata"] |= labels
        await backend.api.create(PODS, namespace, beside)
    asked = a_pod("asked", "1")
    asked["metadata"] |= labels
    await backend.api.create(PODS, namespace, asked)
    assert await node_of(backend, namespace) == (full if to_full else free)


async def test_where_no_node_is_beside_the_pods_of_its_service_a_pod_waits(backend: Backend):
    await backend.start_legacy_scheduler(
        a_policy(predicates=[{"name": "Together", "argument": IN_SERVICE}], priorities=[])
    )
    _, _, namespace = await two_nodes(backend)
    nowhere = a_pod("asked", "1", nodeSelector={LABEL: "hdd"})
    message = await why_not(backend, namespace, nowhere)
    expected = "0/2 nodes are available: 2 node(s) didn't match service affinity."
    assert message.startswith(expected), message


async def test_without_a_predicate_for_resources_a_pod_goes_where_it_does_not_fit(
    backend: Backend,
):
    await backend.start_legacy_scheduler(a_policy(predicates=[], priorities=[]))
    _, _, namespace = await two_nodes(backend)
    await backend.api.create(PODS, namespace, a_pod("asked", "100"))
    assert await node_of(backend, namespace)


@pytest.mark.parametrize(
    ("check_all", "reasons"),
    [
        pytest.param(False, ["2 Insufficient cpu"], id="the first"),
        pytest.param(
            True,
            ["2 Insufficient cpu", "2 node(s) didn't match Pod's node affinity/selector"],
            id="all",
        ),
    ],
)
async def test_all_predicates_are_asked_only_if_the_policy_says_so(
    backend: Backend, check_all: bool, reasons: list[str]
):
    await backend.start_legacy_scheduler(a_policy(alwaysCheckAllPredicates=check_all))
    _, _, namespace = await two_nodes(backend)
    nowhere = a_pod("asked", "100", nodeSelector={"no": "such"})
    message = await why_not(backend, namespace, nowhere)
    assert message.startswith(f"0/2 nodes are available: {', '.join(reasons)}."), message


FULL = "0/1 nodes are available: 1 node(s) exceed max volume count."
"""kube-scheduler 1.37 adds what preemption found."""


def with_disks(name: str, kind: str, key: str, *ids: str, **spec: Any) -> Obj:
    extra = {"diskURI": "https://blobs.example/vhds/disk"} if kind == "azureDisk" else {}
    volumes = [{"name": f"v{index}", kind: {key: one, **extra}} for index, one in enumerate(ids)]
    return a_pod(name, "1", volumes=volumes, **spec)


@pytest.mark.parametrize(
    ("predicate", "kind", "key", "limit"),
    [
        ("MaxEBSVolumeCount", "awsElasticBlockStore", "volumeID", 39),
        ("MaxGCEPDVolumeCount", "gcePersistentDisk", "pdName", 16),
        ("MaxAzureDiskVolumeCount", "azureDisk", "diskName", 16),
        ("MaxCinderVolumeCount", "cinder", "volumeID", 256),
    ],
)
async def test_a_node_takes_so_many_volumes_of_an_in_tree_plugin(
    backend: Backend, predicate: str, kind: str, key: str, limit: int
):
    await backend.start_legacy_scheduler(a_policy(predicates=[{"name": predicate}], priorities=[]))
    (node,) = await backend.add_nodes(1)
    namespace = await backend.namespace()
    disks = [f"d{index}" for index in range(limit)]
    await backend.api.create(PODS, namespace, with_disks("there", kind, key, *disks, nodeName=node))
    one_more = with_disks("asked", kind, key, "one-more")
    assert (await why_not(backend, namespace, one_more)).startswith(FULL)
    await backend.api.delete(PODS, namespace, "asked", grace_period_s=0)
    other = await backend.namespace()
    await backend.api.create(PODS, other, with_disks("asked", kind, key, "d0"))
    assert await node_of(backend, other) == node, "a disk that is there already"


async def test_an_unbound_claim_of_an_in_tree_class_counts_and_one_of_another_class_does_not(
    backend: Backend,
):
    await backend.start_legacy_scheduler(
        a_policy(predicates=[{"name": "MaxGCEPDVolumeCount"}], priorities=[])
    )
    (node,) = await backend.add_nodes(1)
    namespace = await backend.namespace()
    disks = with_disks("there", "gcePersistentDisk", "pdName", *map(str, range(16)), nodeName=node)
    await backend.api.create(PODS, namespace, disks)
    async with AsyncExitStack() as made:
        for provisioner, fits in (("kubernetes.io/gce-pd", False), ("example.com/d", True)):
            name = f"e2e-{token_hex(4)}"
            storage_class = {
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            await create_for(made, backend, STORAGECLASSES, "", storage_class)
            own = await backend.namespace()
            await backend.api.create(PERSISTENTVOLUMECLAIMS, own, a_claim(name))
            asked = with_claims("asked", "data")
            if fits:
                await backend.api.create(PODS, own, asked)
                assert await node_of(backend, own) == node
            else:
                assert (await why_not(backend, own, asked)).startswith(FULL)


async def test_a_node_takes_as_many_volumes_of_a_csi_driver_as_its_csi_node_says(
    backend: Backend,
):
    await backend.start_legacy_scheduler(
        a_policy(predicates=[{"name": "MaxCSIVolumeCountPred"}], priorities=[])
    )
    (node,) = await backend.add_nodes(1)
    namespace = await backend.namespace()
    driver = {"name": "csi.example.com", "nodeID": node, "allocatable": {"count": 1}}
    async with AsyncExitStack() as made:
        csi_node = {"metadata": {"name": node}, "spec": {"drivers": [driver]}}
        await create_for(made, backend, CSINODES, "", csi_node)
        for claim in ("a", "b"):
            name = f"e2e-{token_hex(4)}"
            volume = a_csi_volume(name, namespace, claim)
            await create_for(made, backend, PERSISTENTVOLUMES, "", volume)
            obj = a_claim("", claim)
            obj["spec"]["volumeName"] = name
            await backend.api.create(PERSISTENTVOLUMECLAIMS, namespace, obj)
        there = with_claims("there", "a")
        there["spec"]["nodeName"] = node
        await backend.api.create(PODS, namespace, there)
        assert (await why_not(backend, namespace, with_claims("asked", "b"))).startswith(FULL)
        await backend.api.delete(PODS, namespace, "there", grace_period_s=0)
        assert await node_of(backend, namespace) == node


async def create_for(
    made: AsyncExitStack, backend: Backend, resource: Resource, namespace: str, obj: Obj
) -> None:
    """Create an object until the stack is left: the cluster outlives the test."""
    await backend.api.create(resource, namespace, obj)
    made.push_async_callback(
        backend.api.delete, resource, namespace, obj["metadata"]["name"], grace_period_s=0
    )


def a_claim(storage_class: str, name: str = "data") -> Obj:
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def with_claims(name: str, *claims: str) -> Obj:
    volumes = [
        {"name": f"v{index}", "persistentVolumeClaim": {"claimName": claim}}
        for index, claim in enumerate(claims)
    ]
    return a_pod(name, "1", volumes=volumes)


def a_csi_volume(name: str, namespace: str, claim: str) -> Obj:
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "csi.example.com", "volumeHandle": name},
            "claimRef": {"namespace": namespace, "name": claim},
        },
    }
