"""Where the embedded API server differs from kube-apiserver 1.37 on purpose, or is known to: one
named row each.

The comparison excuses exactly what a row describes and nothing else. After a row that is
``parting`` (one side wrote what the other refused) the two are no longer in the same state, so the
sequence is compared no further.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.differential.api_compare import Leaf
from tests.differential.api_operations import Operation, Outcome


@dataclass(frozen=True, slots=True)
class Context:
    """One place where the outcomes of an operation differ, and the outcomes as they came."""

    operation: Operation
    leaf: Leaf
    embedded: Outcome
    real: Outcome


@dataclass(frozen=True, slots=True)
class Difference:
    """``describes`` tells whether a difference in an operation's outcome is this one."""

    name: str
    reason: str
    describes: Callable[[Context], bool]
    parting: bool = False


def _new_managers_only(context: Context) -> bool:
    """Nothing is different but that there is a new version, where who manages which field may have
    changed.

    That is so with a Scale, and with an object on its way out, whose deletion time a write sends
    back.
    """
    wrote = (context.embedded.wrote, context.real.wrote) == (False, True)
    if not wrote or context.leaf.path not in {"wrote", "shown.metadata.resourceVersion"}:
        return False
    leaving = "deletionTimestamp" in context.real.shown["metadata"]
    return context.operation.subresource == "scale" or leaving


def _ends_namespace(operation: Operation) -> bool:
    """A write to spec.finalizers."""
    if operation.kind != "Namespace" or operation.verb not in {"update", "patch"}:
        return False
    return isinstance(operation.body, dict) and "finalizers" in (operation.body.get("spec") or {})


REPLICAS_INVALID: Final = "spec.vreplicas: Invalid value"


def _names_replicas_too(context: Context) -> bool:
    """Both refuse a VPod for the same causes, and the real server has one more."""
    leaf = context.leaf
    causes = str(leaf.real).split("; ")
    if leaf.path != "message" or context.operation.kind != "VPod" or REPLICAS_INVALID not in causes:
        return False
    causes.remove(REPLICAS_INVALID)
    return "; ".join(causes) == str(leaf.embedded)


DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        "field managers",
        "managedFields are not kept by the embedded server; the real one writes them, and so a new "
        "version, when a write changes nothing "
        "but who manages a field: replicas through the scale subresource, the deletion time of an "
        "object on its way out",
        _new_managers_only,
        parting=True,
    ),
    Difference(
        "replicas of a spec that is none",
        "of a kind with the scale subresource the real server also reads the replicas; if the spec "
        "is no object, it names them as invalid beside the spec",
        _names_replicas_too,
    ),
    Difference(
        "no bookmark",
        "a short watch of a kind that nothing is written to may end without a bookmark on the real "
        "server; the embedded one always sends one",
        lambda context: context.operation.verb == "bookmark" and context.real.shown == {},
    ),
    Difference(
        "born deleted",
        "a PUT that creates (Lease, Event) keeps the deletionTimestamp and grace of its body on "
        "the real server; the embedded one drops them, "
        "as both do in a POST",
        lambda context: (
            context.operation.verb == "update" and "'deletion" in str(context.operation.body)
        ),
        parting=True,
    ),
    Difference(
        "end of a namespace",
        "there is no finalize subresource in the embedded server: its controllers end a namespace "
        "by taking spec.finalizers away "
        "with an ordinary write, which the real one ignores",
        lambda context: _ends_namespace(context.operation.between or context.operation),
        parting=True,
    ),
)


def excuse(context: Context) -> Difference | None:
    """The row that describes a difference."""
    return next((row for row in DIFFERENCES if row.describes(context)), None)
