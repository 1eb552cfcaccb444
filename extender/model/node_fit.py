"""``NodeFit``: the nodes that the pods of one template fit, by tolerations, nodeSelector and
required node affinity.

A zone is no zone of a pool if all its nodes refuse the pool's pods. The rules are those of
PodTopologySpread with ``nodeTaintsPolicy`` and ``nodeAffinityPolicy`` Honor, and of
component-helpers:

- Every taint with the effect NoSchedule or NoExecute must be tolerated. Taints by which Kubernetes
  reports a node's condition (not ready, cordoned, under pressure) do not count, because they come
  and go. ``Node.takes_work`` covers readiness and cordons.
- Every label of nodeSelector must be there.
- One term of required node affinity must match: terms are ORed, the requirements of a term are
  ANDed. A term that is empty or cannot be read matches nothing.

Other plugins of kube-scheduler check resources, volumes and other pods. Their answers depend on the
moment and do not count here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from extender.model.names import OUT_OF_SERVICE_TAINT, UNSCHEDULABLE_TAINT

TAINTS_OF_CONDITION: Final = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        UNSCHEDULABLE_TAINT,
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/network-unavailable",
        OUT_OF_SERVICE_TAINT,
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)
"""Well-known taints that report a node's condition, not which pods the node is for."""
REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep pods away. PreferNoSchedule is only advice."""
_INT64_MAX: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node, with an effect in ``REPELLING``."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod. An empty ``key`` or ``effect`` matches every one."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether the pod tolerates this taint (core/v1's ToleratesTaint)."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        match self.operator:
            case "" | "Equal":
                return self.value == taint.value
            case "Exists":
                return True
            case "Gt" | "Lt":
                return _compares(self.operator, taint.value, self.value)
            case _:
                return False


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """A NodeSelectorRequirement on a label, or with ``is_field`` on ``metadata.name``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    is_field: bool = False

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node with that name and these labels meets it. False if it cannot be read."""
        if not self.is_field:
            return self._matches(labels.get(self.key))
        known = (
            self.key == "metadata.name"
            and self.operator in {"In", "NotIn"}
            and len(self.values) == 1
        )
        return known and self._matches(name)

    def _matches(self, value: str | None) -> bool:
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return bool(self.values) and (value is None or value not in self.values)
            case "Exists":
                return value is not None and not self.values
            case "DoesNotExist":
                return value is None and not self.values
            case "Gt" | "Lt" if len(self.values) == 1 and value is not None:
                return _compares(self.operator, value, self.values[0])
            case _:
                return False


@dataclass(frozen=True, slots=True)
class NodeFit:
    """What a pod template requires of nodes. ``terms`` None: it requires no node affinity."""

    tolerations: tuple[Toleration, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    """Labels, sorted by key."""
    terms: tuple[tuple[NodeRequirement, ...], ...] | None = None

    def tolerates_cordon(self) -> bool:
        """Whether kube-scheduler's NodeUnschedulable lets a pod of the template onto a cordoned
        node.
        """
        cordon = Taint(UNSCHEDULABLE_TAINT, "", "NoSchedule")
        return any(one.tolerates(cordon) for one in self.tolerations)

    def fits(self, name: str, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        """Whether a pod of the template fits a node with that name, these labels and taints."""
        return not self.untolerated(taints) and self.matches(name, labels)

    def untolerated(self, taints: tuple[Taint, ...]) -> list[Taint]:
        """Those of the taints that no toleration of the template tolerates."""
        return [
            taint for taint in taints if not any(one.tolerates(taint) for one in self.tolerations)
        ]

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether nodeSelector and required node affinity hold for a node, whatever its taints."""
        return all(labels.get(key) == value for key, value in self.selector) and (
            self.terms is None or any(_matches(term, name, labels) for term in self.terms)
        )


def _matches(term: tuple[NodeRequirement, ...], name: str, labels: Mapping[str, str]) -> bool:
    return bool(term) and all(requirement.matches(name, labels) for requirement in term)


def _compares(operator: str, value: str, bound: str) -> bool:
    """Whether ``value`` is greater, or less, than ``bound``. False if one of them is no int64."""
    left, right = _integer(value), _integer(bound)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def _integer(text: str) -> int | None:
    """An int64 as Go's ParseInt reads it; None for anything else."""
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -_INT64_MAX - 1 <= number <= _INT64_MAX else None
