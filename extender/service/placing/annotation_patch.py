"""The operations of JSON patches of a pod's annotations."""

from extender.kube.api import Obj
from extender.model.objects import AdapterPod


def annotation_path(annotation: str) -> str:
    """Where a JSON patch finds an annotation."""
    return "/metadata/annotations/" + annotation.replace("/", "~1")


def same_pod(pod: AdapterPod) -> Obj:
    """The patch applies only to this pod, not to the next one of its name."""
    return {"op": "test", "path": "/metadata/uid", "value": pod.uid}


def same_text(pod: AdapterPod, annotation: str, text: str | None) -> Obj:
    """The patch applies only while the annotation has this text; None: while it is absent."""
    if text is None:
        # There is no text to compare, so compare the version: another writer may have added one.
        return {"op": "test", "path": "/metadata/resourceVersion", "value": pod.resource_version}
    return {"op": "test", "path": annotation_path(annotation), "value": text}


def remove_text(annotation: str) -> Obj:
    """Remove the annotation. The pod must have it."""
    return {"op": "remove", "path": annotation_path(annotation)}


def set_text(annotation: str, text: str) -> Obj:
    """Add or replace the annotation. The pod must have annotations."""
    return {"op": "add", "path": annotation_path(annotation), "value": text}
