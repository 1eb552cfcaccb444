"""Volume binding for CSI drivers: their free storage, volumes of migrated plugins, and the claims
of generic ephemeral volumes.
"""

import asyncio
from typing import Any

import pytest

from extender.kube.api import PODS, NotFound, Obj
from extender.lab.apiserver.registry import (
    CSIDRIVERS,
    CSINODES,
    CSISTORAGECAPACITIES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    STORAGECLASSES,
)
from extender.lab.embedded import ControllerSettings, EmbeddedCluster
from extender.lab.scheduler.cluster_events import Action, ClusterEvent, EventResource
from extender.lab.scheduler.framework import CycleState
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.queueing_hints import may_help
from extender.lab.scheduler.types import Code
from extender.lab.scheduler.volumebinding.plugin import VolumeBinding
from tests.simulation.scheduler_scene import NS, Scene
from tests.simulation.test_scheduler_volumes import (
    WAITS,
    ZONE,
    a_claim,
    a_class,
    a_cluster,
    a_pod,
    a_volume,
    known,
    refusals,
)

DRIVER = "example.com/none"
"""The provisioner of ``a_class``."""
NO_SPACE = "node(s) did not have enough free storage"
SCRATCH: list[Obj] = [
    {
        "name": "scratch",
        "ephemeral": {
            "volumeClaimTemplate": {
                "metadata": {"labels": {"made": "for-a-pod"}},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "fast",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        },
    }
]


def a_capacity(zone: str, **sizes: str) -> Obj:
    return {
        "metadata": {"name": f"capacity-{zone}", "namespace": NS},
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {ZONE: zone}},
        **sizes,
    }


def waiting_for(storage: str, *capacities: Obj, tracked: bool = True) -> Listers:
    """A claim of that size, whose driver publishes these capacities."""
    claim = {**WAITS, "spec": {**WAITS["spec"], "resources": {"requests": {"storage": storage}}}}
    listers = known(claims=(claim,), classes=(a_class("WaitForFirstConsumer"),))
    driver = {"metadata": {"name": DRIVER}, "spec": {"storageCapacity": tracked}}
    listers.stores[CSIDRIVERS][DRIVER] = driver
    for capacity in capacities:
        listers.stores[CSISTORAGECAPACITIES][capacity["metadata"]["name"]] = capacity
    return listers


@pytest.mark.parametrize(
    ("listers", "refused"),
    [
        pytest.param(waiting_for("2Gi"), {"a", "b", "bare"}, id="none"),
        pytest.param(waiting_for("2Gi", tracked=False), set(), id="the driver does not track it"),
        pytest.param(
            waiting_for("2Gi", a_capacity("a", capacity="2Gi")), {"b", "bare"}, id="just enough"
        ),
        pytest.param(
            waiting_for("2Gi", a_capacity("a", capacity="2147483647")),
            {"a", "b", "bare"},
            id="a byte too little",
        ),
        pytest.param(
            waiting_for("2Gi", a_capacity("a", capacity="9Gi", maximumVolumeSize="1Gi")),
            {"a", "b", "bare"},
            id="not in one volume",
        ),
        pytest.param(
            waiting_for("2Gi", {**a_capacity("a", capacity="9Gi"), "nodeTopology": None}),
            {"a", "b", "bare"},
            id="reached from nowhere",
        ),
    ],
)
def test_a_volume_is_made_only_where_its_driver_has_room(listers: Listers, refused: set[str]):
    found = refusals(VolumeBinding(listers), a_pod(), a_cluster())
    assert {name: status.message for name, status in found.items()} == dict.fromkeys(
        refused, NO_SPACE
    )


def test_nodes_where_more_storage_stays_free_score_higher():
    plugin = VolumeBinding(
        waiting_for("2Gi", a_capacity("a", capacity="8Gi"), a_capacity("b", capacity="4Gi"))
    )
    state, pod, snapshot = CycleState(), a_pod(), a_cluster()
    plugin.pre_filter(state, pod, snapshot)
    for node in snapshot.nodes:
        plugin.filter(state, pod, node)
    scores = {node.name: plugin.score(state, pod, node) for node in snapshot.nodes}
    assert scores == {"a": 75, "b": 50, "bare": 0}


def updated(before: str, after: str) -> ClusterEvent:
    old, new = a_capacity("a", capacity=before), a_capacity("a", capacity=after)
    return ClusterEvent(EventResource.CSI_STORAGE_CAPACITY, Action.UPDATE, old, new)


@pytest.mark.parametrize(
    ("event", "helps"),
    [
        pytest.param(updated("1Gi", "2Gi"), True, id="more storage"),
        pytest.param(updated("2Gi", "1Gi"), False, id="less storage"),
        pytest.param(
            ClusterEvent(EventResource.CSI_STORAGE_CAPACITY, Action.ADD, new=a_capacity("a")),
            True,
            id="a new one",
        ),
    ],
)
def test_which_capacity_brings_a_pod_back(event: ClusterEvent, helps: bool):
    assert may_help(a_pod(), {"VolumeBinding"}, event) == helps


# Migrated plugins


@pytest.mark.parametrize(
    ("plugins", "refused"),
    [
        pytest.param("kubernetes.io/gce-pd,kubernetes.io/aws-ebs", {"a", "b"}, id="migrated"),
        pytest.param("kubernetes.io/gce-pd", {"b", "bare"}, id="another one migrated"),
    ],
)
def test_a_volume_of_a_migrated_plugin_is_where_its_driver_says(plugins: str, refused: set[str]):
    volume = a_volume(zones=("a",))
    volume["spec"]["awsElasticBlockStore"] = {"volumeID": "vol-1"}
    listers = known(volumes=(volume,), claims=(a_claim(),))
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": plugins}
    for name in ("a", "b", "bare"):
        csi_node = {"metadata": {"name": name, "annotations": annotations}}
        listers.stores[CSINODES][name] = csi_node
    snapshot = a_cluster()
    key = "topology.ebs.csi.aws.com/zone"
    snapshot.get("bare").view.labels[key] = "a"  # type: ignore[index]
    assert set(refusals(VolumeBinding(listers), a_pod(), snapshot)) == refused


# Ephemeral volumes


def owned_by(uid: str) -> Obj:
    return {"metadata": {"ownerReferences": [{"uid": uid, "controller": True}]}}


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        pytest.param(
            (),
            "waiting for ephemeral volume controller to create the persistentvolumeclaim "
            '"p-scratch"',
            id="not made yet",
        ),
        pytest.param(
            (a_claim("p-scratch", **owned_by("uid-other")),),
            f"PVC {NS}/p-scratch was not created for pod {NS}/p (pod is not owner)",
            id="another pod's",
        ),
        pytest.param((a_claim("p-scratch", **owned_by("uid-p")),), "", id="its own"),
    ],
)
def test_a_pod_waits_for_the_claim_of_its_ephemeral_volume(claims: Any, message: str):
    listers = known(volumes=(a_volume(),), claims=claims)
    found = refusals(VolumeBinding(listers), a_pod(volumes=SCRATCH), a_cluster())
    assert [(status.code, status.message) for status in found.values()] == (
        [(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, message)] if message else []
    )


@pytest.mark.looptime
async def test_the_claim_of_an_ephemeral_volume_comes_and_goes_with_its_pod():
    scene = Scene()
    await scene.node("b", labels={ZONE: "b"})
    await scene.cluster.create(STORAGECLASSES, "", a_class("WaitForFirstConsumer"))
    await scene.pod("p", volumes=SCRATCH)
    async with EmbeddedCluster(scene.cluster, ControllerSettings(volumes=True)), scene.running():
        await asyncio.sleep(20)
        assert await scene.node_of("p") == "b"
        claim = await scene.cluster.get(PERSISTENTVOLUMECLAIMS, NS, "p-scratch")
        assert claim["status"]["phase"] == "Bound"
        assert claim["metadata"]["labels"] == {"made": "for-a-pod"}
        await scene.cluster.delete(PODS, NS, "p", grace_period_s=0)
        await asyncio.sleep(20)
        with pytest.raises(NotFound):
            await scene.cluster.get(PERSISTENTVOLUMECLAIMS, NS, "p-scratch")
        assert (await scene.cluster.list_page(PERSISTENTVOLUMES)).items == []


@pytest.mark.looptime
async def test_a_claim_of_somebody_else_is_replaced_once_it_is_gone():
    scene = Scene()
    await scene.node("b", labels={ZONE: "b"})
    await scene.cluster.create(STORAGECLASSES, "", a_class("WaitForFirstConsumer"))
    spec = SCRATCH[0]["ephemeral"]["volumeClaimTemplate"]["spec"]
    other = {"metadata": {"name": "p-scratch"}, "spec": spec}
    await scene.cluster.create(PERSISTENTVOLUMECLAIMS, NS, other)
    await scene.pod("p", volumes=SCRATCH)
    async with EmbeddedCluster(scene.cluster, ControllerSettings(volumes=True)), scene.running():
        await asyncio.sleep(20)
        assert await scene.node_of("p") == ""
        await scene.cluster.delete(PERSISTENTVOLUMECLAIMS, NS, "p-scratch")
        await asyncio.sleep(60)
        assert await scene.node_of("p") == "b"
