"""Which volume fits a claim, and what binding it writes (component-helpers' storage/volume). The
binder and the volume controller share it.
"""

import copy
from collections.abc import Container, Iterable, Mapping
from typing import Final

from extender.kube.api import Obj
from extender.lab.scheduler.node_affinity import node_selector_term
from extender.lab.scheduler.quantities import nanos, whole_value
from extender.lab.scheduler.types import PodInfo, labels_of, optional_selector
from extender.model.objects import object_key
from extender.model.reading import Json, mapping, mappings, sequence, text

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"


_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


def class_of(obj: Json) -> str:
    """Return the class of a claim or volume, "" for none (GetPersistentVolumeClaimClass)."""
    annotated = annotations_of(obj).get(_CLASS_ANNOTATION)
    return annotated if isinstance(annotated, str) else text(obj, "spec", "storageClassName")


def annotations_of(obj: Json) -> Mapping[str, object]:
    """Return metadata.annotations."""
    return mapping(obj, "metadata", "annotations")


def fully_bound(claim: Json) -> bool:
    """Return whether a claim has a volume, confirmed by the controller (isPVCFullyBound)."""
    return bool(text(claim, "spec", "volumeName")) and BIND_COMPLETED in annotations_of(claim)


def why_not_for_pod(claim: Json, pod: PodInfo) -> str:
    """Return why a claim is not the pod's for an ephemeral volume; "" if it is (VolumeIsForPod)."""
    metadata = mapping(claim, "metadata")
    owners = mappings(metadata, "ownerReferences")
    controller = next((one for one in owners if one.get("controller") is True), {})
    if controller and text(controller, "uid") == pod.uid:
        return ""
    key = object_key(text(metadata, "namespace"), text(metadata, "name"))
    return f"PVC {key} was not created for pod {pod.key} (pod is not owner)"


def volume_reaches(volume: Json, node_labels: Mapping[str, str]) -> bool:
    """Return whether a volume's node affinity matches a node's labels (CheckNodeAffinity)."""
    required = mapping(volume, "spec", "nodeAffinity").get("required")
    if not isinstance(required, Mapping):
        return True
    terms = (node_selector_term(term) for term in mappings(required, "nodeSelectorTerms"))
    return any(term.matches("", node_labels) for term in terms)


def requested_storage(claim: Json) -> int:
    """Return the storage that a claim requests, in nano bytes."""
    return nanos(mapping(claim, "spec", "resources", "requests").get("storage", 0))


def capacity_of(volume: Json) -> int:
    """Return a volume's size in nano bytes."""
    return nanos(mapping(volume, "spec", "capacity").get("storage", 0))


def volume_limit(capacity: Json) -> int | None:
    """Return the size in bytes of the largest volume that a CSIStorageCapacity allows; None if it
    does not tell (volumeLimit).
    """
    # maximumVolumeSize is more precise than the capacity.
    given = capacity.get("maximumVolumeSize", capacity.get("capacity"))
    return whole_value(nanos(given)) if given is not None else None


def bound_to(volume: Json, claim: Json) -> bool:
    """Return whether a volume names a claim, with its UID or with none
    (IsVolumeBoundToClaim).
    """
    reference, metadata = mapping(volume, "spec", "claimRef"), mapping(claim, "metadata")
    return (
        bool(reference)
        and text(reference, "name") == text(metadata, "name")
        and text(reference, "namespace") == text(metadata, "namespace")
        and text(reference, "uid") in {"", text(metadata, "uid")}
    )


def find_matching_volume(
    claim: Obj,
    volumes: Iterable[Obj],
    *,
    node_labels: Mapping[str, str] | None = None,
    excluded: Container[str] = (),
    delay_binding: bool = False,
) -> Obj | None:
    """Return the volume that names the claim, else the smallest free one that fits
    (FindMatchingVolume).

    ``node_labels`` None: any node will do, as for the controller. ``delay_binding``: the claim
    waits for its first consumer. ``excluded``: names of volumes that are taken.
    """
    found: Obj | None = None
    for volume in volumes:
        if text(volume, "metadata", "name") in excluded or not _may_hold(claim, volume):
            continue
        reaches = node_labels is None or volume_reaches(volume, node_labels)
        if bound_to(volume, claim):
            return volume if reaches else None
        if mapping(volume, "spec", "claimRef") or not reaches:
            continue
        if node_labels is None and delay_binding:
            continue
        if _is_free(claim, volume) and (found is None or capacity_of(volume) < capacity_of(found)):
            found = volume
    return found


def _may_hold(claim: Obj, volume: Obj) -> bool:
    """Return whether size, mode and attributes class fit, and the volume stays."""
    one, other = mapping(claim, "spec"), mapping(volume, "spec")
    if other.get("claimRef") and not bound_to(volume, claim):
        return False
    return (
        capacity_of(volume) >= requested_storage(claim)
        and (text(one, "volumeMode") or "Filesystem") == (text(other, "volumeMode") or "Filesystem")
        and text(one, "volumeAttributesClassName") == text(other, "volumeAttributesClassName")
        and not text(volume, "metadata", "deletionTimestamp")
    )


def _is_free(claim: Obj, volume: Obj) -> bool:
    selector = optional_selector(mapping(claim, "spec").get("selector"))
    return (
        text(volume, "status", "phase") == "Available"
        and (selector is None or selector.matches(labels_of(volume)))
        and class_of(volume) == class_of(claim)
        and set(sequence(claim, "spec", "accessModes"))
        <= set(sequence(volume, "spec", "accessModes"))
    )


def bind_volume_to_claim(volume: Obj, claim: Obj) -> tuple[Obj, bool]:
    """Return the volume as it is when bound to the claim, and whether that differs
    (GetBindVolumeToClaim).
    """
    metadata, reference = mapping(claim, "metadata"), mapping(volume, "spec", "claimRef")
    changed, dirty = copy.deepcopy(volume), False
    names = ("name", "namespace", "uid")
    if any(text(reference, name) != text(metadata, name) for name in names):
        changed["spec"]["claimRef"] = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            **{name: text(metadata, name) for name in (*names, "resourceVersion")},
        }
        dirty = True
    if not bound_to(volume, claim) and BOUND_BY_CONTROLLER not in annotations_of(volume):
        annotate(changed, BOUND_BY_CONTROLLER, "yes")
        dirty = True
    return changed, dirty


def volume_patch(volume: Obj) -> Obj:
    """Return the merge patch that writes a volume as ``bind_volume_to_claim`` has changed it, on
    the version that it was made from.
    """
    return {
        "metadata": {
            "resourceVersion": volume["metadata"]["resourceVersion"],
            "annotations": dict(annotations_of(volume)),
        },
        "spec": {"claimRef": volume["spec"]["claimRef"]},
    }


def annotate(obj: Obj, key: str, value: str) -> None:
    """Set an annotation, in place."""
    metadata = obj["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), key: value}


def waits_for_consumer(storage_class: Json | None) -> bool:
    """Return whether claims of a class wait for their first consumer."""
    return (
        storage_class is not None
        and text(storage_class, "volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER
    )
