"""How many volumes a node takes: NodeVolumeLimits with kube-scheduler 1.37's texts, and 1.22's
limits of in-tree volumes.
"""

from typing import Any

import pytest

from extender.kube.api import Obj, Resource
from extender.lab.apiserver.registry import (
    CSIDRIVERS,
    CSINODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    STORAGECLASSES,
    VOLUMEATTACHMENTS,
)
from extender.lab.scheduler.cache import Snapshot
from extender.lab.scheduler.cluster_events import Action, ClusterEvent, EventResource
from extender.lab.scheduler.csi_translation import GCE_PD, TranslationError, translated_volume
from extender.lab.scheduler.framework import CycleState, FilterPlugin
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.nodevolumelimits.csi import NodeVolumeLimits
from extender.lab.scheduler.nodevolumelimits.in_tree import (
    IN_TREE_LIMITS,
    InTreeVolumeLimits,
    max_volumes_of,
)
from extender.lab.scheduler.queueing_hints import may_help
from extender.lab.scheduler.types import Code, NodeInfo, PodInfo, Status, node_view, pod_info
from extender.model.reading import key_of
from tests.simulation.scheduler_scene import NS, node_object, pod_object

DRIVER = "csi.example.com"
EBS_DRIVER = "ebs.csi.aws.com"
ZONE = "topology.kubernetes.io/zone"
FULL = "node(s) exceed max volume count"
EBS_VOLUME = {"awsElasticBlockStore": {"volumeID": "vol-1"}}


def known(**objects: Obj) -> Listers:
    """Listers with these objects; the keywords only tell them apart."""
    listers = Listers()
    for obj in objects.values():
        listers.stores[obj.pop("store")][key_of(obj)] = obj
    return listers


def stored(store: Resource, name: str, *, namespace: str = "", **fields: Any) -> Obj:
    metadata: Obj = {"name": name, **fields.pop("metadata", {})}
    if namespace:
        metadata["namespace"] = namespace
    return {"store": store, "metadata": metadata, **fields}


def a_csi_node(count: int | None, driver: str = DRIVER) -> Obj:
    found: Obj = {"name": driver}
    if count is not None:
        found["allocatable"] = {"count": count}
    return stored(CSINODES, "n", spec={"drivers": [found]})


def a_claim(name: str, volume: str = "", storage_class: str = "") -> Obj:
    spec = {"volumeName": volume, "storageClassName": storage_class}
    return stored(PERSISTENTVOLUMECLAIMS, name, namespace=NS, spec=spec)


def a_volume(name: str, handle: str = "", **source: Any) -> Obj:
    source = source or {"csi": {"driver": DRIVER, "volumeHandle": handle or name}}
    return stored(PERSISTENTVOLUMES, name, spec=source)


def a_class(provisioner: str) -> Obj:
    return stored(STORAGECLASSES, "fast", provisioner=provisioner)


def a_pod(name: str, *claims: str, inline: tuple[Obj, ...] = ()) -> PodInfo:
    volumes: list[Obj] = [
        {"name": f"v{index}", "persistentVolumeClaim": {"claimName": claim}}
        for index, claim in enumerate(claims)
    ]
    volumes += [{"name": f"i{index}", **source} for index, source in enumerate(inline)]
    obj = pod_object(name, volumes=volumes)
    obj["metadata"]["uid"] = f"uid-{name}"
    return pod_info(obj)


def a_node(*pods: PodInfo, labels: Obj | None = None, allocatable: Obj | None = None) -> NodeInfo:
    obj = node_object("n", labels=labels or {})
    obj["status"]["allocatable"] |= allocatable or {}
    node = NodeInfo(node_view(obj))
    for pod in pods:
        node.add_pod(pod)
    return node


def answer(plugin: FilterPlugin, pod: PodInfo, node: NodeInfo) -> Status | None:
    state = CycleState()
    assert not plugin.pre_filter(state, pod, Snapshot()).skip
    return plugin.filter(state, pod, node)


TWO_CLAIMS = {
    "claim_a": a_claim("a", "va"),
    "claim_b": a_claim("b", "vb"),
    "volume_a": a_volume("va"),
    "volume_b": a_volume("vb"),
}


def copied(objects: dict[str, Obj]) -> dict[str, Obj]:
    return {name: dict(obj) for name, obj in objects.items()}


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        pytest.param(1, FULL, id="room for one"),
        pytest.param(2, "", id="room for both"),
        pytest.param(None, "", id="no limit"),
    ],
)
def test_a_node_takes_as_many_volumes_of_a_driver_as_its_csi_node_says(limit, message):
    listers = known(**copied(TWO_CLAIMS), node=a_csi_node(limit))
    found = answer(NodeVolumeLimits(listers), a_pod("p", "a"), a_node(a_pod("there", "b")))
    assert (found.message if found else "") == message
    assert found is None or found.code is Code.UNSCHEDULABLE


@pytest.mark.parametrize(
    ("objects", "refused"),
    [
        pytest.param({"same": a_volume("va", "vb")}, False, id="the same volume"),
        pytest.param({"claim": a_claim("a", "va")}, True, id="another volume"),
        pytest.param({"claim": a_claim("a", "gone", "fast")}, True, id="a volume that is gone"),
        pytest.param({"claim": a_claim("a", "", "fast")}, True, id="not bound, of the driver"),
        pytest.param({"claim": a_claim("a", "", "other")}, False, id="not bound, unknown class"),
        pytest.param(
            {"attached": stored(VOLUMEATTACHMENTS, "x", spec={"nodeName": "other"})},
            True,
            id="attached elsewhere",
        ),
    ],
)
def test_what_counts_as_another_volume_of_the_driver(objects: dict[str, Obj], refused: bool):
    basic = copied(TWO_CLAIMS)
    listers = known(**basic, fast=a_class(DRIVER), node=a_csi_node(1), **copied(objects))
    found = answer(NodeVolumeLimits(listers), a_pod("p", "a"), a_node(a_pod("there", "b")))
    assert (found is not None) == refused


def test_a_volume_that_is_attached_without_a_pod_takes_room():
    attached = stored(
        VOLUMEATTACHMENTS,
        "x",
        spec={"nodeName": "n", "attacher": DRIVER, "source": {"persistentVolumeName": "vb"}},
    )
    listers = known(**copied(TWO_CLAIMS), attached=attached, node=a_csi_node(1))
    found = answer(NodeVolumeLimits(listers), a_pod("p", "a"), a_node())
    assert found == Status(Code.UNSCHEDULABLE, (FULL,))


def test_a_pod_of_a_claim_that_does_not_exist_fits_on_no_node():
    found = answer(NodeVolumeLimits(known()), a_pod("p", "a"), a_node())
    text = f'looking up PVC {NS}/a: persistentvolumeclaim "a" not found'
    assert found == Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (text,))


def test_a_pod_without_volumes_that_are_attached_is_skipped():
    plugin, pod = NodeVolumeLimits(known()), a_pod("p", inline=({"emptyDir": {}},))
    assert plugin.pre_filter(CycleState(), pod, Snapshot()).skip


@pytest.mark.parametrize(
    ("csi_node", "refused"),
    [
        pytest.param(a_csi_node(None), False, id="installed"),
        pytest.param(a_csi_node(None, EBS_DRIVER), True, id="only another one"),
        pytest.param(stored(CSINODES, "elsewhere"), True, id="the node has no CSINode"),
    ],
)
def test_a_driver_may_want_to_be_installed_where_its_pods_go(csi_node: Obj, refused: bool):
    driver = stored(CSIDRIVERS, DRIVER, spec={"preventPodSchedulingIfMissing": True})
    listers = known(**copied(TWO_CLAIMS), driver=driver, node=dict(csi_node))
    found = answer(NodeVolumeLimits(listers), a_pod("p", "a"), a_node())
    text = f"{DRIVER} CSI driver is not installed on the node"
    assert found == (Status(Code.UNSCHEDULABLE, (text,)) if refused else None)


@pytest.mark.parametrize(
    ("there", "refused"),
    [
        pytest.param(EBS_VOLUME, False, id="the same volume, by another name"),
        pytest.param({"awsElasticBlockStore": {"volumeID": "vol-2"}}, True, id="another one"),
        pytest.param({"gcePersistentDisk": {"pdName": "vol-2"}}, False, id="another plugin"),
    ],
)
def test_a_volume_of_a_migrated_plugin_counts_for_its_driver(there: Obj, refused: bool):
    mine = a_volume("va", awsElasticBlockStore={"volumeID": "aws://eu-west-1a/vol-1"})
    listers = known(claim=a_claim("a", "va"), volume=mine, node=a_csi_node(1, EBS_DRIVER))
    node = a_node(a_pod("there", inline=(there,)))
    found = answer(NodeVolumeLimits(listers), a_pod("p", "a"), node)
    assert (found is not None) == refused


def test_an_inline_disk_that_its_driver_does_not_know_is_an_error():
    listers = known(node=a_csi_node(1))
    disk = {"azureDisk": {"diskURI": "https://a/vhds/d", "kind": "Shared"}}
    found = answer(NodeVolumeLimits(listers), a_pod("p", inline=(disk,)), a_node())
    text = (
        "converting volume(i0) from inline to csi: kind(Shared) is not supported in csi migration"
    )
    assert found == Status(Code.ERROR, (text,))


# Events


def csi_node_with(count: int) -> Obj:
    obj = a_csi_node(count)
    del obj["store"]
    return obj


@pytest.mark.parametrize(
    ("event", "helps"),
    [
        pytest.param(
            ClusterEvent(EventResource.CSI_NODE, Action.ADD, new=csi_node_with(1)),
            True,
            id="a CSINode comes",
        ),
        pytest.param(
            ClusterEvent(EventResource.CSI_NODE, Action.UPDATE, csi_node_with(1), csi_node_with(2)),
            True,
            id="a higher limit",
        ),
        pytest.param(
            ClusterEvent(EventResource.CSI_NODE, Action.UPDATE, csi_node_with(2), csi_node_with(2)),
            False,
            id="the same limit",
        ),
        pytest.param(
            ClusterEvent(
                EventResource.VOLUME_ATTACHMENT, Action.DELETE, {"spec": {"attacher": DRIVER}}
            ),
            True,
            id="a volume is detached",
        ),
        pytest.param(
            ClusterEvent(EventResource.PERSISTENT_VOLUME, Action.ADD, new={}),
            False,
            id="a volume comes",
        ),
    ],
)
def test_which_changes_bring_a_pod_back_that_a_limit_refused(event: ClusterEvent, helps: bool):
    assert may_help(a_pod("p", "a"), {"NodeVolumeLimits"}, event) == helps


# In-tree volumes, as kube-scheduler 1.22 counts them


def disks(kind: str, name: str, count: int) -> tuple[Obj, ...]:
    return tuple({kind: {name: f"d{index}"}} for index in range(count))


@pytest.mark.parametrize(
    ("limit", "source", "default"),
    [
        ("EBSLimits", ("awsElasticBlockStore", "volumeID"), 39),
        ("GCEPDLimits", ("gcePersistentDisk", "pdName"), 16),
        ("AzureDiskLimits", ("azureDisk", "diskName"), 16),
        ("CinderLimits", ("cinder", "volumeID"), 256),
    ],
)
def test_a_node_takes_a_number_of_volumes_of_each_in_tree_plugin(
    limit: str, source: tuple[str, str], default: int
):
    plugin = InTreeVolumeLimits(IN_TREE_LIMITS[limit], known(), None)
    there = a_node(a_pod("there", inline=disks(*source, default - 1)))
    assert answer(plugin, a_pod("p", inline=({source[0]: {source[1]: "x"}},)), there) is None
    full = a_node(a_pod("there", inline=disks(*source, default)))
    refused = answer(plugin, a_pod("p", inline=({source[0]: {source[1]: "x"}},)), full)
    assert refused == Status(Code.UNSCHEDULABLE, (FULL,))
    assert answer(plugin, a_pod("p", inline=({source[0]: {source[1]: "d0"}},)), full) is None


@pytest.mark.parametrize(
    ("node", "variable", "fits"),
    [
        pytest.param({}, None, 39, id="EBS"),
        pytest.param({"labels": {"node.kubernetes.io/instance-type": "m5.l"}}, None, 25, id="m5"),
        pytest.param({}, 3, 3, id="the variable"),
        pytest.param(
            {"allocatable": {"attachable-volumes-aws-ebs": "2"}}, 3, 2, id="the node's own"
        ),
    ],
)
def test_who_sets_the_limit_of_a_node(node: Obj, variable: int | None, fits: int):
    plugin = InTreeVolumeLimits(IN_TREE_LIMITS["EBSLimits"], known(), variable)
    for count, refused in ((fits, False), (fits + 1, True)):
        pod = a_pod("p", inline=disks("awsElasticBlockStore", "volumeID", count))
        assert (answer(plugin, pod, a_node(**node)) is not None) == refused


@pytest.mark.parametrize(
    ("given", "found"), [("", None), ("5", 5), ("0", None), ("-1", None), ("many", None)]
)
def test_the_variable_must_be_a_positive_number(given: str, found: int | None):
    assert max_volumes_of({"KUBE_MAX_PD_VOLS": given}) == found


def test_claims_count_by_volume_or_class():
    listers = known(
        claim_a=a_claim("a", "va"),
        volume_a=a_volume("va", gcePersistentDisk={"pdName": "d0"}),
        claim_b=a_claim("b", "", "fast"),
        fast=a_class(GCE_PD),
        claim_c=a_claim("c", "vc"),
        volume_c=a_volume("vc"),
    )
    plugin = InTreeVolumeLimits(IN_TREE_LIMITS["GCEPDLimits"], listers, 2)
    node = a_node(a_pod("there", inline=disks("gcePersistentDisk", "pdName", 1)))
    assert answer(plugin, a_pod("p", "a", "b"), node) is None
    assert plugin.pre_filter(CycleState(), a_pod("p", "c"), Snapshot()).skip
    node = a_node(a_pod("there", inline=disks("gcePersistentDisk", "pdName", 2)))
    assert answer(plugin, a_pod("p", "b"), node) is not None


# Translation


def a_gce_volume(zones: str, label: str = ZONE, **spec: Any) -> Obj:
    return {
        "metadata": {"name": "v", "labels": {label: zones}},
        "spec": {"gcePersistentDisk": {"pdName": "d"}, **spec},
    }


def affinity(key: str, *values: str) -> Obj:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


@pytest.mark.parametrize(
    ("volume", "handle", "topology"),
    [
        pytest.param(
            a_gce_volume("eu-west1-b"),
            "projects/UNSPECIFIED/zones/eu-west1-b/disks/d",
            affinity("topology.gke.io/zone", "eu-west1-b"),
            id="a label",
        ),
        pytest.param(
            a_gce_volume("eu-west1-b__eu-west1-a"),
            "projects/UNSPECIFIED/regions/eu-west1/disks/d",
            affinity("topology.gke.io/zone", "eu-west1-a", "eu-west1-b"),
            id="two zones",
        ),
        pytest.param(
            a_gce_volume("eu-west1-b", **affinity(ZONE, "eu-west1-c")),
            "projects/UNSPECIFIED/zones/eu-west1-b/disks/d",
            affinity("topology.gke.io/zone", "eu-west1-c"),
            id="the node affinity, before the label",
        ),
        pytest.param(
            a_gce_volume("", "other"),
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
            {},
            id="none",
        ),
    ],
)
def test_a_volume_gets_the_handle_and_the_topology_of_its_driver(volume, handle, topology):
    found = translated_volume(volume)["spec"]
    assert found["csi"] == {"driver": "pd.csi.storage.gke.io", "volumeHandle": handle}
    assert found.get("nodeAffinity") == topology.get("nodeAffinity")
    assert "gcePersistentDisk" not in found


@pytest.mark.parametrize(
    ("zones", "message"),
    [
        (
            "z0__z1",
            "failed to get region from zones: zone in unexpected format, expected: "
            "{locale}-{region}-{zone}, got: z0",
        ),
        (
            "eu-west1-a__us-east1-b",
            "failed to get region from zones: multiple or no regions gotten from zones, got: "
            "map[eu-west1:{} us-east1:{}]",
        ),
    ],
)
def test_a_volume_of_several_zones_must_have_one_region(zones: str, message: str):
    with pytest.raises(TranslationError) as error:
        translated_volume(a_gce_volume(zones))
    assert str(error.value) == message
