"""The few fields we keep of each API object, frozen. ``decode`` makes them from JSON; nothing else
does.

Keys are plain strings ``namespace/name``: they are what ledgers, logs and users say, and cheap to
hash. All counts are vreplicas, slots or pods, as each field says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from extender.model.ledger import EMPTY_LEDGER, Ledger
from extender.model.node_fit import NodeFit, Taint

ORDINAL_MAX: Final = 100_000
"""Ordinals are bits of an int in the state: one beyond this would make every decision, of all
pools, slow.
"""
NAMES_REMEMBERED: Final = 1 << 16
"""Names of pods whose ordinals are kept at hand: every decision asks for those of its pods."""
NO_PLACEMENTS: Final[Mapping[str, int]] = MappingProxyType({})


def object_key(namespace: str, name: str) -> str:
    """``namespace/name``, or ``name`` for what has no namespace."""
    return f"{namespace}/{name}" if namespace else name


def split_key(key: str) -> tuple[str, str]:
    """The namespace ("" if none) and name of a key."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


@lru_cache(maxsize=NAMES_REMEMBERED)
def ordinal_of(pod_name: str) -> int | None:
    """The ordinal in a StatefulSet pod's name: the decimal number after the last ``-``.

    None if there is none, or one over ``ORDINAL_MAX``.
    """
    _, dash, digits = pod_name.rpartition("-")
    if not dash or not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        return None
    ordinal = int(digits)
    return ordinal if ordinal <= ORDINAL_MAX else None


@lru_cache(maxsize=NAMES_REMEMBERED)
def placement_order(pod_name: str) -> tuple[int, str]:
    """Sort key of placements: by ordinal, names without one last."""
    ordinal = ordinal_of(pod_name)
    return (2**31 if ordinal is None else ordinal, pod_name)


@dataclass(frozen=True, slots=True)
class Condition:
    """A metav1.Condition, without its times."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VPod:
    """A tenant's object that asks for ``vreplicas``, each ``weight`` slots, in the pool named
    ``pool``.

    ``placements`` (pod name to vreplicas, sorted by ordinal) is what its status publishes.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    pool: str
    """Key of the AdapterPool."""
    vreplicas: int
    weight: int = 1
    placements: Mapping[str, int] = field(default_factory=lambda: NO_PLACEMENTS)
    observed_generation: int = 0
    scheduled_vreplicas: int = 0
    ready_vreplicas: int | None = None
    """Those of them that its status says are served; None where it says nothing of that."""
    conditions: tuple[Condition, ...] = ()
    deleting: bool = False
    source: str = ""
    """``<kind>.<group>`` in lower case for an object of a foreign kind; "" for a VPod."""

    @property
    def key(self) -> str:
        """``namespace/name``, and ``@source`` behind it for an object of a foreign kind."""
        key = f"{self.namespace}/{self.name}"
        return f"{key}@{self.source}" if self.source else key


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPod:
    """A pod that carries ``vreplica.dev/pool``. ``node`` is "" until it is bound."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    pool: str
    """Key of the AdapterPool that its label names."""
    owner: str = ""
    """Name of the StatefulSet that controls it, "" if none."""
    owner_uid: str = ""
    """Its UID: a name may be anybody's. "" where there is no API server to have given it one
    (files).
    """
    ordinal: int | None
    node: str = ""
    scheduler_name: str = ""
    slots: int | None = None
    """The slots annotation; None where absent or unreadable."""
    slots_request: int | None = None
    """Request of the extended resource ``vreplica.dev/slots``, all containers."""
    ledger: Ledger = field(default_factory=lambda: EMPTY_LEDGER)
    ledger_text: str | None = None
    """The placements annotation as it stands: what a compare-and-swap compares with."""
    ledger_error: str = ""
    """Why ``ledger_text`` could not be read; the ledger is empty then."""
    has_annotations: bool = True
    """Whether metadata.annotations exists: a JSON patch cannot add to a map that does not."""
    assumed: bool = False
    """Assumed on ``node`` by a bind that is not confirmed yet; never set on what the API server
    sent.
    """
    unschedulable: bool = False
    """Annotated as taking no new work (ours or Knative's annotation)."""
    no_bools: tuple[str, ...] = ()
    """What is wrong with annotations that should say so, a clause each: such a text drains nothing.
    """
    deleting: bool = False
    finished: bool = False
    """Phase Succeeded or Failed."""
    ready: bool = False
    ready_since: str = ""
    """lastTransitionTime of the Ready condition, RFC 3339, "" if unknown."""
    priority: int = 0
    refusal: str = ""
    """Why kube-scheduler has found no node, quoted and shortened; "" where it has not said so. No
    decision looks at it.
    """

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def is_controlled_by(self, stateful_set: "StatefulSet") -> bool:
        """Whether it is a pod of that very StatefulSet: by UID, and by name only where one of both
        has none.
        """
        if self.owner_uid and stateful_set.uid:
            return self.owner_uid == stateful_set.uid
        return self.owner == stateful_set.name

    @property
    def own_slots(self) -> int | None:
        """Slots that it says it has, at most what it requests of its node (which nobody can
        change); None where it says nothing.
        """
        if not self.slots_request:
            return self.slots
        return self.slots_request if self.slots is None else min(self.slots, self.slots_request)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, as far as it matters where adapter pods are."""

    name: str
    uid: str = ""
    resource_version: str = ""
    zone: str
    cordoned: bool = False
    ready: bool = True
    """The Ready condition is True and there is no not-ready or unreachable taint."""
    slots: int | None = None
    """Allocatable ``vreplica.dev/slots``, where the node declares it."""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """All of them: any may be asked for by a StatefulSet that comes later. Some 3 KiB a node."""
    taints: tuple[Taint, ...] = ()
    """Those that say whom the node is for; how it is at the moment is in ``cordoned`` and
    ``ready``.
    """
    allocatable: tuple[tuple[str, str], ...] = ()
    """Resource and quantity, by name. No decision looks at it: that it has changed is a reason to
    look again.
    """

    @property
    def key(self) -> str:
        """The name."""
        return self.name

    @property
    def takes_work(self) -> bool:
        """Whether pods on it may take new vreplicas."""
        return self.ready and not self.cordoned


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulSet:
    """The adapters' StatefulSet: pods ``name-start`` to ``name-(start+replicas-1)``."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    replicas: int = 1
    ordinals_start: int = 0
    fit: NodeFit | None = None
    """Where its pod template's pods could stand; None where nothing is known of the template."""
    template_pool: str = ""
    """Name of the AdapterPool that the label of its pod template says, "" if none."""
    deleting: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def ordinals(self) -> range:
        """The ordinals that it wants to have."""
        return range(self.ordinals_start, self.ordinals_start + self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorRequirement:
    """One matchExpressions entry of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """metav1.LabelSelector; the empty one selects everything."""

    match_labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    match_expressions: tuple[SelectorRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels are selected."""
        return all(labels.get(k) == v for k, v in self.match_labels.items()) and all(
            _meets(requirement, labels) for requirement in self.match_expressions
        )


def _meets(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


EVERYTHING: Final = LabelSelector()


Path = tuple[str, ...]
"""Where a field is in an object: the keys from its root on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePaths:
    """Where an object of a foreign kind has what a vpod has. Empty paths: the kind has no such
    field.
    """

    vreplicas: Path
    placements: Path
    """A list below ``status``, one entry a pod."""
    pod_name: str = "podName"
    """Key of an entry of the placements."""
    count: str = "vreplicas"
    """Key of an entry of the placements."""
    vreplicas_default: int | None = None
    """Where the object says nothing; None: it has to."""
    vreplicas_max: Path = ()
    """Never more than what stands here."""
    slots_per_vreplica: Path = ()
    scheduled: Path = ()
    """Below ``status``: how many vreplicas have a place, where that is ours to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A foreign kind whose objects are vpods of the pool that declares it (DESIGN 5.6)."""

    group: str
    versions: tuple[str, ...]
    """The first of them that is served is watched."""
    resource: str
    """Plural, as in URLs."""
    kind: str
    paths: SourcePaths
    selector: LabelSelector = EVERYTHING
    write_status: bool = True
    """False: its own controller writes the placements, having asked for them."""

    @property
    def key(self) -> str:
        """``<kind>.<group>`` in lower case, as behind the ``@`` of a vpod's key."""
        return f"{self.kind}.{self.group}".lower()


RESCHEDULE_AFTER_S: Final = 300
"""Seconds; what kube-controller-manager waits before it evicts the pods of an unreachable node,
too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPool:
    """spec of an AdapterPool; see DESIGN 2 for each field's meaning."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created_at: str = ""
    """creationTimestamp, RFC 3339 in UTC; "" for one that no API server has stored yet."""
    stateful_set: str
    """Name, in the pool's namespace."""
    slots_per_pod: int
    min_pods: int = 0
    min_pods_per_vpod: int = 0
    max_pods: int | None = None
    scale_down_period_s: int = 100
    reschedule_after_s: int | None = RESCHEDULE_AFTER_S
    """None: never."""
    moves_per_period: int = 10
    """vreplicas."""
    move_cooldown_s: int = 300
    move_dry_run: bool = False
    namespace_selector: LabelSelector = EVERYTHING
    profile: str = "default"
    sources: tuple[Source, ...] = ()
    source_problems: tuple[str, ...] = ()
    """Entries of spec.sources that cannot be read, one sentence each: the rest of the pool does not
    suffer from them.
    """
    deleting: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def moves_to_shrink(self) -> bool:
        """Whether vreplicas are moved so that fewer pods are enough; else a pod that is to go waits
        until it is empty.
        """
        return self.moves_per_period > 0 and not self.move_dry_run

    @property
    def stateful_set_key(self) -> str:
        """Key of its StatefulSet."""
        return f"{self.namespace}/{self.stateful_set}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace with the labels that a pool's namespaceSelector looks at."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    deleting: bool = False

    @property
    def key(self) -> str:
        """The name."""
        return self.name
