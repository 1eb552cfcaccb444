"""The API objects that ``volume_binder_cases`` makes of a script's short ones, and the API server
that keeps them.
"""

import copy
from typing import Any

from extender.kube.api import Conflict, Obj, Resource
from extender.lab.apiserver.registry import PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.types import NodeView, PodInfo, node_view, pod_info
from extender.model.reading import key_of

Step = dict[str, Any]


def metadata_of(raw: Step) -> Obj:
    names = ("name", "namespace", "uid", "resourceVersion", "annotations", "labels")
    return {name: copy.deepcopy(raw[name]) for name in names if name in raw}


def _affinity(expressions: list[Step]) -> Obj:
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def volume_of(raw: Step) -> Obj:
    spec: Obj = {
        "capacity": {"storage": raw["capacity"]},
        "storageClassName": raw["storageClassName"],
        "volumeMode": raw.get("volumeMode", "Filesystem"),
    }
    if claim := raw.get("claimRef"):
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **claim}
    if expressions := raw.get("nodeAffinity"):
        spec["nodeAffinity"] = _affinity(expressions)
    if source := raw.get("source"):
        spec[source] = {"pdName": "disk"} if source == "gcePersistentDisk" else {}
    return {"metadata": metadata_of(raw), "spec": spec, "status": {"phase": raw.get("phase", "")}}


def claim_of(raw: Step) -> Obj:
    metadata = metadata_of(raw)
    if owners := raw.get("ownerReferences"):
        metadata["ownerReferences"] = [
            one if isinstance(one, dict) else {"uid": one, "controller": True} for one in owners
        ]
    requests = {"storage": raw["request"]} if raw.get("request") else {}
    spec = {
        "resources": {"requests": requests},
        "storageClassName": raw["storageClassName"],
        "volumeMode": raw["volumeMode"],
        "volumeName": raw["volumeName"],
    }
    return {"metadata": metadata, "spec": spec, "status": {}}


def capacity_of(raw: Step) -> Obj:
    # Upstream's fixture always has a selector. The recording writes an empty one as null.
    labels = {"matchLabels": raw["nodeTopology"] or {}}
    names = ("storageClassName", "capacity", "maximumVolumeSize")
    sizes = {name: raw[name] for name in names if raw.get(name) is not None}
    return {"metadata": {"name": raw["name"]}, "nodeTopology": labels, **sizes}


def storage_class_of(raw: Step) -> Obj:
    allowed = [{"matchLabelExpressions": terms}] if (terms := raw.get("allowedTopologies")) else []
    return {
        "metadata": {"name": raw["name"]},
        "volumeBindingMode": raw["volumeBindingMode"],
        "provisioner": raw.get("provisioner", ""),
        "allowedTopologies": allowed,
    }


def node_of(raw: Step) -> NodeView:
    return node_view({"metadata": {"name": raw["name"], "labels": raw["labels"]}, "status": {}})


def pod_of(raw: Step) -> PodInfo:
    volumes = []
    for one in raw.get("volumes", ()):
        source: Obj = {"emptyDir": {}}
        if "persistentVolumeClaim" in one:
            source = {"persistentVolumeClaim": {"claimName": one["persistentVolumeClaim"]}}
        elif "ephemeral" in one:
            source = {"ephemeral": {"volumeClaimTemplate": {}}}
        volumes.append({"name": one["name"], **source})
    metadata = {"name": raw["name"], "namespace": raw["namespace"], "uid": raw.get("uid", "")}
    return pod_info({"metadata": metadata, "spec": {"volumes": volumes, "containers": []}})


def unversioned(obj: Obj) -> Obj:
    metadata = {**obj["metadata"], "resourceVersion": ""}
    return {**obj, "metadata": metadata}


def created_of(raw: Step) -> Obj:
    """A volume that a provisioner makes for a claim."""
    namespace, name = raw["claimRef"].split("/")
    affinity = [{"key": "nodeKey", "operator": "In", "values": [raw["node"]]}]
    reference = {"namespace": namespace, "name": name, "uid": "pvc-uid"}
    return volume_of({**raw, "claimRef": reference, "nodeAffinity": affinity})


class Server:
    """The volumes and claims of the API server. ``shows``: whether the informers see what is
    written, as with upstream's reactor where that has watchers.
    """

    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        self.stored: dict[Resource, dict[str, Obj]] = {
            PERSISTENTVOLUMES: {},
            PERSISTENTVOLUMECLAIMS: {},
        }
        self.shows = False

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: Obj, *, patch_type: object
    ) -> Obj:
        """Merge what the binder writes into the object of that very version."""
        del patch_type
        obj = copy.deepcopy(self.stored[resource][f"{namespace}/{name}" if namespace else name])
        if body["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "VersionError")
        obj["metadata"]["annotations"] = body["metadata"]["annotations"]
        obj["spec"] |= body.get("spec", {})
        return self.put(resource, obj)

    def put(self, resource: Resource, obj: Obj) -> Obj:
        """Store a newer version."""
        version = int(obj["metadata"]["resourceVersion"])
        obj["metadata"]["resourceVersion"] = str(version + 1)
        self.stored[resource][key_of(obj)] = obj
        if self.shows:
            self._listers.stores[resource][key_of(obj)] = obj
            self._listers.changed(resource, obj)
        return copy.deepcopy(obj)
