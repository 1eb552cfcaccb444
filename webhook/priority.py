"""A VPod's priority, written by ``/mutate`` from its PriorityClass, as Kubernetes' admission writes
that of a pod: spec.priority and spec.preemptionPolicy follow spec.priorityClassName.

What a client wrote into the two fields is never used, only replaced or removed. A VPod whose class
has gone may still be changed, and has priority 0 from then on: a priority that no class explains
may be one that a client chose while no webhook answered.
"""

from dataclasses import replace
from typing import Final

from extender.model import names
from extender.model.objects import PriorityClass
from extender.model.reading import Json, mapping, text
from webhook.caches import WebhookCaches
from webhook.review import ALLOWED, AdmissionRequest, PatchOp, Verdict, denied

PRIORITY_MAX: Final = 1_000_000_000
"""As in the CRD. Higher values are those of Kubernetes' own classes."""
_FIELDS: Final = ("priority", "preemptionPolicy")


def with_priority(request: AdmissionRequest, view: WebhookCaches) -> Verdict:
    """Return the verdict on a VPod that is created or changed. Never raises."""
    if request.object is None or request.operation not in {"CREATE", "UPDATE"}:
        return ALLOWED
    # A change may remove the last finalizer of an object that is being deleted.
    if mapping(request.object, "metadata").get("deletionTimestamp"):
        return ALLOWED
    spec, old = mapping(request.object, "spec"), mapping(request.old_object or {}, "spec")
    name = text(spec, "priorityClassName")
    if not name:
        return _patched(spec, {})
    if not view.priority_classes.synced:
        return denied(
            f"spec.priorityClassName: PriorityClass {name!r:.260} is not known to the webhook yet; "
            f"try again",
            code=429,
        )
    known = view.priority_class(name)
    if known is not None and known.value <= PRIORITY_MAX:
        policy = "PreemptLowerPriority" if known.preempts else names.PREEMPT_NEVER
        return _patched(spec, {"priority": known.value, "preemptionPolicy": policy})
    return _without_class(spec, name, known, is_new=text(old, "priorityClassName") != name)


def _without_class(spec: Json, name: str, known: PriorityClass | None, *, is_new: bool) -> Verdict:
    """A class that does not exist, or is for pods of the system. An object that has it already may
    still be changed: the class may have been deleted, or made again with another value.
    """
    if not is_new:
        why = "does not exist any more" if known is None else "is for pods of the system now"
        warning = f"PriorityClass {name!r:.100} {why}: the priority is 0"
        return replace(_patched(spec, {}), warnings=(warning,))
    if known is not None:
        return denied(
            f"spec.priorityClassName: PriorityClass {name!r:.260} is for pods of the system, its "
            f"value is above {PRIORITY_MAX}; name another one"
        )
    return denied(
        f"spec.priorityClassName: no PriorityClass with name {name!r:.260} was found; name one "
        f"that exists, or leave the field out for priority 0"
    )


def _patched(spec: Json, wanted: Json) -> Verdict:
    """Allow the object with exactly these fields of ``_FIELDS``."""
    ops: list[PatchOp] = []
    for key in _FIELDS:
        if key in wanted and spec.get(key) != wanted[key]:
            ops.append({"op": "add", "path": f"/spec/{key}", "value": wanted[key]})
        elif key not in wanted and key in spec:
            ops.append({"op": "remove", "path": f"/spec/{key}"})
    return Verdict(patch=tuple(ops)) if ops else ALLOWED
