"""Pods with claims: the volume plugins against kube-scheduler 1.37's texts, and the loop that waits
for volumes and claims.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.kube.api import PODS, Obj, PatchType
from extender.lab.apiserver.registry import (
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    STORAGECLASSES,
)
from extender.lab.embedded import ControllerSettings, EmbeddedCluster
from extender.lab.scheduler.cache import SchedulerCache, Snapshot
from extender.lab.scheduler.framework import CycleState
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.types import Code, PodInfo, Status, node_view, pod_info
from extender.lab.scheduler.volumebinding.binder import VolumeBinder
from extender.lab.scheduler.volumebinding.matching import NO_PROVISIONER
from extender.lab.scheduler.volumebinding.plugin import VolumeBinding
from extender.lab.scheduler.volumebinding.pod_volumes import PodVolumes, VolumeBindingError
from extender.lab.scheduler.volumes import VolumeRestrictions, VolumeZone
from tests.simulation.scheduler_scene import NS, Scene, node_object, pod_object

ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
ITS_CLAIM = [{"name": "v0", "persistentVolumeClaim": {"claimName": "data"}}]


def a_volume(name: str = "disk", *, zones: tuple[str, ...] = (), **labels: str) -> Obj:
    spec: Obj = {"claimRef": {"namespace": NS, "name": "data"}}
    if zones:
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(zones)}]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def a_claim(name: str = "data", *, volume: str = "disk", bound: bool = True, **fields: Any) -> Obj:
    metadata: Obj = {"name": name, "namespace": NS, **fields.pop("metadata", {})}
    if bound:
        metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    status = fields.pop("status", {})
    return {"metadata": metadata, "spec": {"volumeName": volume, **fields}, "status": status}


def a_class(mode: str, name: str = "fast") -> Obj:
    return {
        "metadata": {"name": name},
        "provisioner": "example.com/none",
        "volumeBindingMode": mode,
    }


def known(
    *, volumes: tuple[Obj, ...] = (), claims: tuple[Obj, ...] = (), classes: tuple[Obj, ...] = ()
) -> Listers:
    listers = Listers()
    for volume in volumes:
        listers.stores[PERSISTENTVOLUMES][volume["metadata"]["name"]] = volume
    for claim in claims:
        listers.stores[PERSISTENTVOLUMECLAIMS][f"{NS}/{claim['metadata']['name']}"] = claim
    for item in classes:
        listers.stores[STORAGECLASSES][item["metadata"]["name"]] = item
    return listers


def a_pod(name: str = "p", *, node: str = "", volumes: list[Obj] | None = None) -> PodInfo:
    obj = pod_object(name, volumes=ITS_CLAIM if volumes is None else volumes)
    obj["metadata"]["uid"] = f"uid-{name}"
    obj["spec"]["nodeName"] = node
    return pod_info(obj)


def a_cluster(*pods: PodInfo) -> Snapshot:
    """One node in zone a and region r, one in zone b, one without labels."""
    cache = SchedulerCache()
    for name, labels in (("a", {ZONE: "a", REGION: "r"}), ("b", {ZONE: "b"}), ("bare", {})):
        cache.put_node(node_view(node_object(name, labels=labels)))
    for pod in pods:
        cache.put_pod(pod)
    return cache.snapshot()


Plugin = VolumeRestrictions | VolumeBinding | VolumeZone


def refusals(plugin: Plugin, pod: PodInfo, snapshot: Snapshot) -> dict[str, Status]:
    """By node; "" for a pod that no node can take."""
    state = CycleState()
    prepared = plugin.pre_filter(state, pod, snapshot)
    if prepared.status is not None:
        return {"": prepared.status}
    if prepared.skip:
        return {}
    found = {node.name: plugin.filter(state, pod, node) for node in snapshot.nodes}
    return {name: status for name, status in found.items() if status is not None}


@pytest.mark.parametrize("plugin", [VolumeRestrictions, VolumeBinding, VolumeZone])
def test_a_pod_without_claims_is_no_matter_for_the_volume_plugins(plugin):
    assert plugin(known()).pre_filter(CycleState(), a_pod(volumes=[]), a_cluster()).skip


@pytest.mark.parametrize("plugin", [VolumeRestrictions, VolumeBinding, VolumeZone])
def test_a_claim_that_does_not_exist_fits_nowhere(plugin):
    (status,) = refusals(plugin(known()), a_pod(), a_cluster()).values()
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.message == 'persistentvolumeclaim "data" not found'


def test_a_volume_of_one_zone_keeps_its_pod_in_that_zone():
    listers = known(volumes=(a_volume(zones=("a",)),), claims=(a_claim(),))
    found = refusals(VolumeBinding(listers), a_pod(), a_cluster())
    assert {name: status.message for name, status in found.items()} == dict.fromkeys(
        ("b", "bare"), "node(s) didn't match PersistentVolume's node affinity"
    )


def test_a_volume_without_node_affinity_reaches_every_node():
    assert (
        refusals(
            VolumeBinding(known(volumes=(a_volume(),), claims=(a_claim(),))), a_pod(), a_cluster()
        )
        == {}
    )


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        pytest.param(
            a_claim(bound=False),
            "pod has unbound immediate PersistentVolumeClaims",
            id="not yet bound",
        ),
        pytest.param(
            a_claim(volume="", bound=False, storageClassName="gone"),
            "pod has unbound immediate PersistentVolumeClaims",
            id="its class is gone",
        ),
        pytest.param(
            a_claim(status={"phase": "Lost"}),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "disk"',
            id="lost",
        ),
        pytest.param(
            a_claim(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            'persistentvolumeclaim "data" is being deleted',
            id="being deleted",
        ),
    ],
)
def test_a_claim_that_cannot_be_used_fits_nowhere_and_says_why(claim, message):
    (status,) = refusals(VolumeBinding(known(claims=(claim,))), a_pod(), a_cluster()).values()
    assert status.message == message


def test_a_bound_claim_whose_volume_is_gone_is_refused_on_each_node():
    found = refusals(VolumeBinding(known(claims=(a_claim(),))), a_pod(), a_cluster())
    assert {status.message for status in found.values()} == {
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    }
    assert set(found) == {"a", "b", "bare"}


WAITS = a_claim(volume="", bound=False, storageClassName="fast", accessModes=["ReadWriteOnce"])
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"


def a_free_volume(name: str, *zones: str, gib: int = 1, phase: str = "Available") -> Obj:
    """As it is stored at version 5."""
    volume = a_volume(name, zones=zones)
    spec = {key: value for key, value in volume["spec"].items() if key != "claimRef"}
    spec |= {
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": f"{gib}Gi"},
    }
    metadata = {**volume["metadata"], "resourceVersion": "5"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("provisioner", "volumes", "refused"),
    [
        pytest.param("example.com/disks", (), set(), id="one is made on any node"),
        pytest.param("kubernetes.io/no-provisioner", (), {"a", "b", "bare"}, id="nobody makes one"),
        pytest.param(
            "kubernetes.io/no-provisioner",
            (a_free_volume("disk", "a"),),
            {"b", "bare"},
            id="where a free one is",
        ),
        pytest.param(
            "kubernetes.io/no-provisioner",
            (a_free_volume("disk", phase="Released"),),
            {"a", "b", "bare"},
            id="a released one is not free",
        ),
    ],
)
def test_a_claim_that_waits_for_its_consumer_goes_where_a_volume_is_or_can_be_made(
    provisioner, volumes, refused
):
    storage_class = {**a_class("WaitForFirstConsumer"), "provisioner": provisioner}
    listers = known(volumes=volumes, claims=(WAITS,), classes=(storage_class,))
    found = refusals(VolumeBinding(listers), a_pod(), a_cluster())
    assert {name: status.message for name, status in found.items()} == dict.fromkeys(
        refused, NO_VOLUME
    )
    assert refusals(VolumeZone(listers), a_pod(), a_cluster()) == {}


# The binder


def claims_and_volumes(*volumes: Obj) -> tuple[Listers, VolumeBinder]:
    storage_class = {**a_class("WaitForFirstConsumer"), "provisioner": NO_PROVISIONER}
    claim = {**WAITS, "metadata": {**WAITS["metadata"], "uid": "u-1", "resourceVersion": "3"}}
    listers = known(volumes=volumes, claims=(claim,), classes=(storage_class,))
    return listers, VolumeBinder(listers)


def found_on(binder: VolumeBinder, node: str = "a") -> PodVolumes:
    claims = binder.get_pod_volume_claims(a_pod())
    volumes, reasons = binder.find_pod_volumes(claims, a_cluster().get(node).view)
    assert reasons == ()
    return volumes


def test_the_smallest_volume_that_fits_is_found_and_found_again_once_assumed():
    listers, binder = claims_and_volumes(a_free_volume("big", gib=9), a_free_volume("small"))
    volumes = found_on(binder)
    assert [one.volume["metadata"]["name"] for one in volumes.static_bindings] == ["small"]
    assert binder.assume_pod_volumes(a_pod(), "a", volumes) is False
    assumed = listers.assumed_volumes.get("small")
    assert assumed is not None
    assert assumed["spec"]["claimRef"]["uid"] == "u-1"
    again = found_on(binder).static_bindings
    assert [one.volume["metadata"]["name"] for one in again] == ["small"]


def test_what_is_assumed_for_one_claim_is_free_for_no_other():
    listers, binder = claims_and_volumes(a_free_volume("only"))
    binder.assume_pod_volumes(a_pod(), "a", found_on(binder))
    other = {**WAITS, "metadata": {"name": "other", "namespace": NS, "uid": "u-2"}}
    listers.stores[PERSISTENTVOLUMECLAIMS][f"{NS}/other"] = other
    pod = a_pod("q", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "other"}}])
    claims = binder.get_pod_volume_claims(pod)
    assert binder.find_pod_volumes(claims, a_cluster().get("a").view)[1] == (NO_VOLUME,)


def test_what_is_reverted_is_free_again():
    listers, binder = claims_and_volumes(a_free_volume("only"))
    volumes = found_on(binder)
    binder.assume_pod_volumes(a_pod(), "a", volumes)
    binder.revert_assumed_pod_volumes(volumes)
    assert listers.assumed_volumes.get("only") == listers.assumed_volumes.get_api("only")


def test_an_assumption_ends_with_the_next_version_of_the_volume():
    listers, binder = claims_and_volumes(a_free_volume("only"))
    binder.assume_pod_volumes(a_pod(), "a", found_on(binder))
    newer = a_free_volume("only")
    newer["metadata"]["resourceVersion"] = "6"
    listers.stores[PERSISTENTVOLUMES]["only"] = newer
    listers.changed(PERSISTENTVOLUMES, newer)
    assert listers.assumed_volumes.get("only") is newer


def test_a_version_that_has_changed_since_it_was_found_is_not_assumed():
    listers, binder = claims_and_volumes(a_free_volume("only"))
    volumes = found_on(binder)
    newer = a_free_volume("only")
    newer["metadata"]["resourceVersion"] = "6"
    listers.stores[PERSISTENTVOLUMES]["only"] = newer
    with pytest.raises(VolumeBindingError):
        binder.assume_pod_volumes(a_pod(), "a", volumes)
    assert listers.assumed_volumes.get("only") is newer


def test_a_pod_whose_claims_are_all_bound_has_nothing_to_assume():
    listers = known(volumes=(a_volume(),), claims=(a_claim(),))
    assert VolumeBinder(listers).assume_pod_volumes(a_pod(), "a", PodVolumes()) is True


@pytest.mark.parametrize(
    ("labels", "refused"),
    [
        pytest.param({ZONE: "a"}, {"b"}, id="zone"),
        pytest.param({ZONE: "a__b"}, set(), id="two zones"),
        pytest.param({BETA_ZONE: "b"}, {"a"}, id="the old label on the volume only"),
        pytest.param({REGION: "r"}, {"b"}, id="the node lacks the label but has another one"),
        pytest.param({ZONE: "c__"}, set(), id="a value that cannot be read is ignored"),
    ],
)
def test_zone_labels_of_a_volume_bind_only_nodes_that_have_topology_labels(labels, refused):
    listers = known(volumes=(a_volume(**labels),), claims=(a_claim(),))
    found = refusals(VolumeZone(listers), a_pod(), a_cluster())
    assert set(found) == refused
    assert {status.message for status in found.values()} <= {"node(s) had no available volume zone"}


@pytest.mark.parametrize(
    ("claim", "classes", "message"),
    [
        (a_claim(), (), 'persistentvolume "disk" not found'),
        (a_claim(volume=""), (), "PersistentVolumeClaim had no pv name and storageClass name"),
        (
            a_claim(volume="", storageClassName="fast"),
            (),
            'storageclass.storage.k8s.io "fast" not found',
        ),
        (
            a_claim(volume="", storageClassName="fast"),
            (a_class("Immediate"),),
            "PersistentVolume had no name",
        ),
    ],
)
def test_a_claim_without_a_volume_has_no_zone(claim, classes, message):
    listers = known(claims=(claim,), classes=classes)
    (status,) = refusals(VolumeZone(listers), a_pod(), a_cluster()).values()
    assert status.message == message


def test_a_claim_for_one_pod_at_a_time_is_refused_on_every_node_until_that_pod_is_gone():
    listers = known(claims=(a_claim(accessModes=["ReadWriteOncePod"]),))
    plugin, user = VolumeRestrictions(listers), a_pod("user", node="a")
    snapshot, state = a_cluster(user), CycleState()
    assert set(refusals(plugin, a_pod(), snapshot)) == {"a", "b", "bare"}
    plugin.pre_filter(state, a_pod(), snapshot)
    plugin.remove_pod(state, a_pod(), user, snapshot.get("a"))
    assert plugin.filter(state, a_pod(), snapshot.get("b")) is None
    plugin.add_pod(state, a_pod(), user, snapshot.get("a"))
    assert plugin.filter(state, a_pod(), snapshot.get("b")) is not None


def gce(name: str, *, read_only: bool = False) -> Obj:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def rbd(*monitors: str, image: str = "i", read_only: bool = False) -> Obj:
    disk = {"monitors": list(monitors), "pool": "rbd", "image": image, "readOnly": read_only}
    return {"rbd": disk}


@pytest.mark.parametrize(
    ("mine", "theirs", "conflict"),
    [
        pytest.param(gce("d"), gce("d"), True, id="the same disk"),
        pytest.param(gce("d"), gce("e"), False, id="another disk"),
        pytest.param(gce("d", read_only=True), gce("d"), True, id="one of them writes"),
        pytest.param(gce("d", read_only=True), gce("d", read_only=True), False, id="both read"),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
            {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
            True,
            id="EBS, whoever reads",
        ),
        pytest.param({"iscsi": {"iqn": "q"}}, {"iscsi": {"iqn": "q"}}, True, id="iSCSI"),
        pytest.param(rbd("m1", "m2"), rbd("m2"), True, id="RBD with a common monitor"),
        pytest.param(rbd("m1"), rbd("m2"), False, id="RBD of another cluster"),
        pytest.param(rbd("m1"), rbd("m1", image="j"), False, id="another image"),
        pytest.param(gce("d"), {"iscsi": {"iqn": "d"}}, False, id="another kind"),
    ],
)
def test_a_disk_that_pods_name_themselves_serves_one_pod_of_a_node(mine, theirs, conflict):
    user = a_pod("user", node="a", volumes=[{"name": "x", **theirs}])
    pod = a_pod(volumes=[{"name": "x", **mine}])
    found = refusals(VolumeRestrictions(known()), pod, a_cluster(user))
    refused = {"a": Status(Code.UNSCHEDULABLE, ("node(s) had no available disk",))}
    assert found == (refused if conflict else {})


def test_a_claim_that_pods_may_share_is_not_exclusive():
    listers = known(claims=(a_claim(accessModes=["ReadWriteOnce"]),))
    assert refusals(VolumeRestrictions(listers), a_pod(), a_cluster(a_pod("user", node="a"))) == {}


# The loop


@pytest.mark.looptime
async def test_a_pod_waits_for_its_claim_and_volume_and_then_goes_where_the_volume_is():
    scene = Scene()
    await scene.node("a", labels={ZONE: "a"})
    await scene.node("b", labels={ZONE: "b"})
    await scene.pod("p", volumes=ITS_CLAIM)
    async with scene.running():
        await asyncio.sleep(2)
        refused = await scene.condition("p")
        # DynamicResources' PostFilter finds no state, because its PreFilter was not reached:
        # preemption is not even tried.
        assert (
            refused["message"]
            == '0/2 nodes are available: persistentvolumeclaim "data" not found. not found'
        )
        await scene.cluster.create(PERSISTENTVOLUMECLAIMS, NS, a_claim())
        await asyncio.sleep(15)
        assert (await scene.condition("p"))["message"] == (
            '0/2 nodes are available: persistentvolume "disk" not found. not found'
        )
        await scene.cluster.create(PERSISTENTVOLUMES, "", a_volume(zones=("b",)))
        await asyncio.sleep(30)
    assert await scene.node_of("p") == "b"


@pytest.mark.looptime
async def test_an_exclusive_claim_goes_from_pod_to_pod():
    scene = Scene()
    await scene.node("n")
    await scene.cluster.create(PERSISTENTVOLUMES, "", a_volume())
    await scene.cluster.create(
        PERSISTENTVOLUMECLAIMS, NS, a_claim(accessModes=["ReadWriteOncePod"])
    )
    await scene.pod("first", volumes=ITS_CLAIM)
    async with scene.running():
        await asyncio.sleep(2)
        await scene.pod("second", volumes=ITS_CLAIM)
        await asyncio.sleep(10)
        assert (await scene.node_of("first"), await scene.node_of("second")) == ("n", "")
        await scene.cluster.delete(PODS, NS, "first", grace_period_s=0)
        await asyncio.sleep(30)
    assert await scene.node_of("second") == "n"


@asynccontextmanager
async def with_volume_controller(scene: Scene) -> AsyncIterator[None]:
    settings = ControllerSettings(volumes=True)
    async with EmbeddedCluster(scene.cluster, settings), scene.running():
        yield


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("mode", "zone"),
    [
        pytest.param("WaitForFirstConsumer", "b", id="where its pod goes"),
        pytest.param("Immediate", "", id="at once, anywhere"),
    ],
)
async def test_a_volume_is_provisioned(mode: str, zone: str):
    scene = Scene()
    await scene.node("b", labels={ZONE: "b"})
    storage_class = {**a_class(mode), "provisioner": "example.com/disks"}
    await scene.cluster.create(STORAGECLASSES, "", storage_class)
    requests = {"requests": {"storage": "1Gi"}}
    claim = a_claim(
        volume="",
        bound=False,
        storageClassName="fast",
        accessModes=["ReadWriteOnce"],
        resources=requests,
    )
    await scene.cluster.create(PERSISTENTVOLUMECLAIMS, NS, claim)
    await scene.pod("p", volumes=ITS_CLAIM)
    async with with_volume_controller(scene):
        await asyncio.sleep(20)
        assert await scene.node_of("p") == "b"
        bound = await scene.cluster.get(PERSISTENTVOLUMECLAIMS, NS, "data")
        volume = await scene.cluster.get(PERSISTENTVOLUMES, "", bound["spec"]["volumeName"])
        assert (bound["status"]["phase"], volume["status"]["phase"]) == ("Bound", "Bound")
        affinity = str(volume["spec"].get("nodeAffinity", ""))
        assert (f"'values': ['{zone}']" in affinity) is bool(zone)
        await scene.cluster.delete(PODS, NS, "p", grace_period_s=0)
        await scene.cluster.delete(PERSISTENTVOLUMECLAIMS, NS, "data")
        await asyncio.sleep(5)
        assert (await scene.cluster.list_page(PERSISTENTVOLUMES)).items == [], "Delete"


@pytest.mark.looptime
async def test_a_bind_that_fails_gives_the_volume_back():
    scene = Scene()
    await scene.node("a")
    storage_class = {**a_class("WaitForFirstConsumer"), "provisioner": NO_PROVISIONER}
    await scene.cluster.create(STORAGECLASSES, "", storage_class)
    volume = a_free_volume("only")
    del volume["metadata"]["resourceVersion"]
    await scene.cluster.create(PERSISTENTVOLUMES, "", volume)
    status = {"status": volume["status"]}
    await scene.cluster.patch(
        PERSISTENTVOLUMES, "", "only", status, patch_type=PatchType.MERGE, subresource="status"
    )
    await scene.cluster.create(PERSISTENTVOLUMECLAIMS, NS, {**WAITS, "status": {}})
    await scene.pod("p", volumes=ITS_CLAIM)
    async with scene.running() as scheduler:
        # Nobody confirms the binding here, and the pod goes meanwhile.
        await asyncio.sleep(5)
        written = await scene.cluster.get(PERSISTENTVOLUMES, "", "only")
        assert written["spec"]["claimRef"]["name"] == "data"
        await scene.cluster.delete(PODS, NS, "p", grace_period_s=0)
        await asyncio.sleep(5)
        assert not scheduler.cache.is_assumed("p")
        assert scheduler.listers.assumed_volumes.get("only") == written
