"""The fields that this project keeps of each API object, frozen. ``decode`` and ``translate`` make
the values from JSON.

Keys are plain strings ``namespace/name``. Ledgers, logs and messages use them, and they are cheap
to hash. Counts are vreplicas, slots or pods, as each field says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from extender.model.amounts import NO_AMOUNTS, Amounts
from extender.model.counted import counted
from extender.model.ledger import EMPTY_LEDGER, Ledger
from extender.model.max_unavailable import USUAL, MaxUnavailable
from extender.model.node_fit import NodeFit, Taint
from extender.model.quarantine import Quarantine
from extender.model.tenancy import WHOLE_POOL, NotAdmitted, Preemption, Tenancy

ORDINAL_MAX: Final = 100_000
"""The state keeps ordinals as bits of an int: a greater one would slow down the decisions of all
pools.
"""
NAMES_REMEMBERED: Final = 1 << 16
"""Size of the caches of ordinals and sort keys. Every decision needs those of its pods."""
NO_PLACEMENTS: Final[Mapping[str, int]] = MappingProxyType({})


def object_key(namespace: str, name: str) -> str:
    """``namespace/name``, or ``name`` if there is no namespace."""
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
    """Sort key of placements: by ordinal. Names without an ordinal come last."""
    ordinal = ordinal_of(pod_name)
    return (2**31 if ordinal is None else ordinal, pod_name)


@dataclass(frozen=True, slots=True)
class Condition:
    """A metav1.Condition, without observedGeneration."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VPod:
    """A tenant's object that asks for ``vreplicas``, each of ``weight`` slots, in a pool.

    ``placements`` (pod name -> vreplicas, sorted by ordinal) is what its status publishes. In a
    pool that admits (``AdapterPool.sharing``), the state has only the vreplicas that are admitted.
    ``asked`` is always what the tenant asks for.
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
    """Placed vreplicas that are served, as its status says; None if it does not say."""
    conditions: tuple[Condition, ...] = ()
    """Of an object of a foreign kind: only this project's, without ``CONDITION_PREFIX``. One whose
    kind has no place for them has a Scheduled condition that follows from its placements.
    """
    conditions_json: bytes | None = None
    """All conditions of an object of a foreign kind, as they are stored: a write of ours repeats
    the others. None: we write none. b"": the object has none yet.
    """
    deleting: bool = False
    source: str = ""
    """``<kind>.<group>`` in lower case for an object of a foreign kind; "" for a VPod."""
    per_vreplica: Amounts = NO_AMOUNTS
    """What one vreplica takes of the pool's ``capacities``."""
    created_at: str = ""
    """metadata.creationTimestamp; "" if a caller does not say."""
    priority: int = 0
    """That of its PriorityClass, as the webhook has written it."""
    preempts: bool = True
    """False with ``preemptionPolicy: Never``: it is placed first, and takes nothing from others."""
    min_available: int = 0
    """As its tenant asks; see ``least``."""
    max_per_pod: int = 0
    """A pod gets no more of its vreplicas than that; 0: any number."""
    quarantined: bool = False
    """Its shares have preceded crashes of pods: it keeps what it has, and gets no further place
    (``model.quarantine``).
    """
    not_admitted: NotAdmitted | None = None
    """Set by the state only."""

    @property
    def key(self) -> str:
        """``namespace/name``, followed by ``@source`` for an object of a foreign kind."""
        key = f"{self.namespace}/{self.name}"
        return f"{key}@{self.source}" if self.source else key

    @property
    def asked(self) -> int:
        """The vreplicas that the tenant asks for."""
        if self.not_admitted is None:
            return self.vreplicas
        return self.vreplicas + self.not_admitted.vreplicas

    @property
    def least(self) -> int:
        """The vreplicas that it needs together: with fewer of them, it has none. 0 or 1 if any
        number is of use.
        """
        return min(self.min_available, self.asked)

    def slots_beside(self, placed: int, free: int) -> int:
        """How many of ``free`` slots its further vreplicas may take on a pod that has ``placed`` of
        them (``max_per_pod``).
        """
        if not self.max_per_pod:
            return free
        return min(free, max(0, self.max_per_pod - placed) * self.weight)

    @property
    def sized_for(self) -> int:
        """The vreplicas that the pool's size allows for: also those that are not admitted only
        because the pool has no slots for them.
        """
        if self.not_admitted is None:
            return self.vreplicas
        return self.vreplicas + self.not_admitted.within_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPod:
    """An adapter pod (see ``decode.is_adapter``). ``node`` is "" until it is bound."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    pool: str
    """Key of the AdapterPool that its label names."""
    owner: str = ""
    """Name of the StatefulSet that controls the pod, "" if none does."""
    owner_uid: str = ""
    """UID of that StatefulSet, since a name can be used again. "" if the pod comes from a file."""
    ordinal: int | None
    node: str = ""
    scheduler_name: str = ""
    slots: int | None = None
    """The slots annotation; None if absent or unreadable."""
    slots_request: int | None = None
    """Request for the extended resource ``vreplica.dev/slots``, summed over the containers."""
    ledger: Ledger = field(default_factory=lambda: EMPTY_LEDGER)
    ledger_text: str | None = None
    """The placements annotation verbatim. A compare-and-swap compares with it."""
    ledger_error: str = ""
    """Why ``ledger_text`` could not be read. The ledger is empty then."""
    assignment_text: str | None = None
    """The assignment annotation verbatim; None if absent."""
    acknowledged_text: str | None = None
    """The acknowledged annotation verbatim; None if absent."""
    evicting_text: str | None = None
    """The evicting annotation verbatim; None if absent."""
    has_annotations: bool = True
    """Whether metadata.annotations exists. A JSON patch cannot add a key to a missing map."""
    assumed: bool = False
    """A bind that is not confirmed yet has put it on ``node``. The API server never sends this."""
    unschedulable: bool = False
    """Our annotation or Knative's says that the pod takes no new work."""
    invalid_annotations: tuple[str, ...] = ()
    """A clause for each such annotation whose value is no bool. Such a value drains nothing."""
    deleting: bool = False
    finished: bool = False
    """Phase Succeeded or Failed."""
    stopped: bool = False
    """The kubelet has said that all of its containers have stopped."""
    ready: bool = False
    """Whether its Ready condition is True, and its adapter's lease has not run out."""
    ready_since: str = ""
    """lastTransitionTime of the Ready condition (RFC 3339), "" if unknown."""
    lease_expired: bool = False
    """Whether its Ready condition is True, and its adapter's lease has run out
    (``model.assignment.is_expired``). Such a pod counts as not Ready.
    """
    priority: int = 0
    fit: NodeFit | None = None
    """What the pod itself requires of nodes; None if it comes from a recording."""
    created_at: str = ""
    """creationTimestamp (RFC 3339, UTC), "" if unknown."""
    revision: str = ""
    """The StatefulSet's revision that it was made from, "" if unknown."""
    claims_volumes: bool = False
    """Whether it has volumes of PersistentVolumeClaims, which may tie it to nodes."""
    crashes: int = 0
    """How often containers of it were started again, summed over those that crashed last time."""
    refusal: str = ""
    """Why kube-scheduler has found no node, quoted and shortened; "" if it has not said. No
    decision uses it.
    """

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def is_controlled_by(self, stateful_set: "StatefulSet") -> bool:
        """Whether that StatefulSet controls the pod: by UID, or by name if one has no UID."""
        if self.owner_uid and stateful_set.uid:
            return self.owner_uid == stateful_set.uid
        return self.owner == stateful_set.name

    @property
    def own_slots(self) -> int | None:
        """The slots that the pod says it has, at most what it requests of its node. Nobody can
        change that request. None if the pod says nothing.
        """
        if not self.slots_request:
            return self.slots
        return self.slots_request if self.slots is None else min(self.slots, self.slots_request)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The fields of a node that matter to adapter pods."""

    name: str
    uid: str = ""
    resource_version: str = ""
    zone: str
    cordoned: bool = False
    """spec.unschedulable, or the taint out-of-service."""
    ready: bool = True
    """The Ready condition is True, and there is no not-ready or unreachable taint."""
    slots: int | None = None
    """Allocatable ``vreplica.dev/slots``, if the node declares it."""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """All labels, some 3 KiB a node: a StatefulSet that comes later may ask for any of them."""
    taints: tuple[Taint, ...] = ()
    """Taints that say which pods the node is for, not how it is: see ``cordoned`` and ``ready``."""
    allocatable: tuple[tuple[str, str], ...] = ()
    """(Resource, quantity), sorted. No decision uses it, but a change of it makes the node a
    changed one.
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
    """Which nodes its pod template fits; None if the template is not known."""
    template_pool: str = ""
    """The AdapterPool that the label of its pod template names, "" if none."""
    update_revision: str = ""
    """status.updateRevision: the newest revision, "" if unknown."""
    updates_from: int | None = 0
    """The lowest ordinal that the controller brings to the newest revision by itself
    (rollingUpdate.partition). None: it updates none (OnDelete).
    """
    is_observed: bool = True
    """Whether the StatefulSet controller's status is about the present spec."""
    deleting: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def ordinals(self) -> range:
        """The ordinals that it should have."""
        return range(self.ordinals_start, self.ordinals_start + self.replicas)


def has_same_pods(old: StatefulSet | None, new: StatefulSet | None) -> bool:
    """Whether a StatefulSet has the same ordinals as before, for the same pool."""
    return (
        old is not None
        and new is not None
        and (old.ordinals, old.template_pool) == (new.ordinals, new.template_pool)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorRequirement:
    """One matchExpressions entry of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """metav1.LabelSelector. An empty one selects everything."""

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
"""Where a field is in an object: the keys from its root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePaths:
    """Where an object of a foreign kind has the fields of a vpod. An empty path: it has no such
    field.
    """

    vreplicas: Path
    placements: Path
    """A list below ``status``, with an entry for each pod."""
    pod_name: str = "podName"
    """Key of the pod's name in an entry."""
    count: str = "vreplicas"
    """Key of the vreplicas in an entry."""
    vreplicas_default: int | None = None
    """Used if the object does not say. None: it must say."""
    vreplicas_max: Path = ()
    """Upper limit of ``vreplicas``."""
    slots_per_vreplica: Path = ()
    per_vreplica: Path = ()
    scheduled: Path = ()
    """Below ``status``: how many vreplicas have a place, if this project writes that field."""
    conditions: Path = ()
    """A list of conditions below ``status``, if this project writes its own there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A foreign kind whose objects are vpods of the pool that declares it (DESIGN 5.6)."""

    group: str
    versions: tuple[str, ...]
    """The first version that the API server serves is watched."""
    resource: str
    """Plural, as in URLs."""
    kind: str
    paths: SourcePaths
    selector: LabelSelector = EVERYTHING
    write_status: bool = True
    """False: the kind's own controller asks for the placements and writes them."""

    @property
    def key(self) -> str:
        """``<kind>.<group>`` in lower case, as after the ``@`` of a vpod's key."""
        return f"{self.kind}.{self.group}".lower()


RESCHEDULE_AFTER_S: Final = 300
"""Seconds. kube-controller-manager waits as long to evict the pods of an unreachable node."""
MIN_POD_AGE_S: Final = 3600
"""Seconds. A pod whose new node has the same problem is evicted once an hour, not all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """Load is balanced between a pool's pods: by the ``metric`` that is reported, until no pod has
    more than ``target`` times the mean.
    """

    metric: str
    target: float


LEASE_MIN_S: Final = 5
"""An adapter acknowledges three times in a lease, and needs some time for that."""


class Identity(StrEnum):
    """What tells a vpod's vreplicas apart."""

    COUNTED = "Counted"
    """Nothing: adapters are told how many they have."""
    INDEXED = "Indexed"
    """Each has an index, from 0 on: adapters are told which they have."""


class HandoffMode(StrEnum):
    """What a planned move waits for."""

    NONE = "None"
    """Nothing."""
    OVERLAP = "Overlap"
    """The adapter that gets a share serves it before the adapter that loses it lets go."""
    EXCLUSIVE = "Exclusive"
    """The adapter that gets a share serves it after the adapter that loses it has let go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """spec.handoff: adapters are told their shares, and acknowledge them."""

    mode: HandoffMode = HandoffMode.NONE
    identity: Identity = Identity.COUNTED
    prepare_timeout_s: int = 30
    """After that, a move whose destination is not ready is taken back."""
    drain_timeout_s: int = 60
    """After that, a share that its adapter does not let go is taken away."""
    lease_s: int = 30
    """With EXCLUSIVE: an adapter that has not acknowledged for so long has stopped."""
    max_unavailable: MaxUnavailable = USUAL
    """How many pods voluntary disruptions take together."""


class RolloutStrategy(StrEnum):
    """How the adapters' pods get to the newest revision of the StatefulSet."""

    AS_IS = "AsIs"
    """By the StatefulSet controller, or by whoever deletes them."""
    HANDED_OVER = "HandedOver"
    """Pod by pod, each once its shares are handed over. The StatefulSet has OnDelete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """spec.rollout."""

    strategy: RolloutStrategy = RolloutStrategy.AS_IS
    surge: int = 1
    """Pods. The pool keeps room for so many more while a rollout is under way."""


class ScalingMode(StrEnum):
    """Who writes the replicas of a pool's StatefulSet."""

    MANAGED = "Managed"
    """The leader. It replaces a number that somebody else has written."""
    EXTERNAL = "External"
    """Somebody else, for their own reasons: a person, an HPA, KEDA."""
    ADVISE = "Advise"
    """Somebody else, following status.desiredPods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """spec.scaling."""

    mode: ScalingMode = ScalingMode.MANAGED
    announced_replicas: int | None = None
    """With EXTERNAL: the pool will have only so many pods; those above are to be emptied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPool:
    """The spec of an AdapterPool. DESIGN 2 explains each field."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created_at: str = ""
    """creationTimestamp (RFC 3339, UTC); "" if no API server has stored the pool yet."""
    stateful_set: str
    """Its name. It is in the pool's namespace."""
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
    make_room_before_growing: bool = False
    """Whether moves should first give a place to what waits, before pods are added."""
    load: LoadTarget | None = None
    """None: reports of load are refused, and nothing moves for load."""
    load_source: str = ""
    """The name of an entry of the configuration's ``loadSources``; "": load is reported."""
    descheduling: tuple[str, ...] = ()
    """Reasons for which pods are evicted (``node.descheduling.DeschedulingReason``)."""
    min_pod_age_s: int = MIN_POD_AGE_S
    """A younger pod is not evicted."""
    namespace_selector: LabelSelector = EVERYTHING
    profile: str = "default"
    sources: tuple[Source, ...] = ()
    source_problems: tuple[str, ...] = ()
    """A sentence for each entry of spec.sources that cannot be read. The rest of the pool still
    works.
    """
    deleting: bool = False
    capacities: Amounts = NO_AMOUNTS
    """What each pod has beside its slots."""
    handoff: Handoff | None = None
    """None: adapters are told nothing."""
    rollout: Rollout = field(default_factory=Rollout)
    scaling: Scaling = field(default_factory=Scaling)
    tenancy: Tenancy | None = None
    """None: who comes first gets the pool's slots."""
    preemption: Preemption | None = None
    """None: a vpod of a higher priority is placed first, and takes nothing from others."""
    quarantine: Quarantine | None = None
    """None: crashes of pods change nothing for vpods."""

    @property
    def sharing(self) -> Tenancy | None:
        """How the pool decides what it admits; None if it admits everything."""
        if self.tenancy is None and self.preemption is not None:
            return WHOLE_POOL
        return self.tenancy

    def is_shared_anew(self, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Whether a namespace whose labels change is another tenant, or may use the pool now, or no
        longer; always False if the pool admits everything.
        """
        sharing = self.sharing
        if sharing is None or before == after:
            return False
        label, selects = sharing.tenant_label, self.namespace_selector.matches
        is_another = bool(label) and before.get(label) != after.get(label)
        return is_another or selects(before) != selects(after)

    @property
    def is_sized_by_others(self) -> bool:
        """Whether somebody else decides how many pods there are (``ScalingMode.EXTERNAL``)."""
        return self.scaling.mode is ScalingMode.EXTERNAL

    @property
    def writes_replicas(self) -> bool:
        """Whether the leader writes the StatefulSet's replicas."""
        return self.scaling.mode is ScalingMode.MANAGED

    @property
    def rolls_out(self) -> bool:
        """Whether the leader replaces the pods of an old revision (``engine.scaling.rollout``)."""
        return self.hands_over and self.rollout.strategy is RolloutStrategy.HANDED_OVER

    @property
    def hands_over(self) -> bool:
        """Whether shares are handed over from adapter to adapter."""
        return self.handoff is not None and self.handoff.mode is not HandoffMode.NONE

    @property
    def max_unavailable(self) -> MaxUnavailable:
        """spec.handoff.maxUnavailable."""
        return self.handoff.max_unavailable if self.handoff is not None else USUAL

    @property
    def is_exclusive(self) -> bool:
        """Whether a vpod's adapters never serve more together than it publishes."""
        return self.handoff is not None and self.handoff.mode is HandoffMode.EXCLUSIVE

    @property
    def is_indexed(self) -> bool:
        """Whether adapters are told which of a vpod's vreplicas they have."""
        return self.handoff is not None and self.handoff.identity is Identity.INDEXED

    @property
    def lease_s(self) -> int:
        """leaseSeconds of a pool that is exclusive, else 0: adapters need no lease."""
        return self.handoff.lease_s if self.handoff is not None and self.is_exclusive else 0

    def misfit(self, vpod: VPod) -> str:
        """Why no pod of the pool could ever hold one vreplica of a vpod; "" if one could.

        The text has slots first, and then the pool's dimensions in their order.
        """
        if vpod.weight > self.slots_per_pod:
            return (
                f"one vreplica takes {counted(vpod.weight, 'slot')} (spec.slotsPerVReplica), but a "
                f"pod of AdapterPool {self.key} has {self.slots_per_pod} (spec.slotsPerPod); lower "
                "the former or raise the latter"
            )
        capacities = dict(self.capacities)
        for name, amount in vpod.per_vreplica:
            if name not in capacities:
                return (
                    f"one vreplica takes {name} (spec.perVReplica), but AdapterPool {self.key} has "
                    f"no {name} (spec.capacities); add it to the latter, or create the VPod "
                    "without it"
                )
            if amount > capacities[name]:
                return (
                    f"one vreplica takes {amount} {name} (spec.perVReplica), but a pod of "
                    f"AdapterPool {self.key} has {capacities[name]} (spec.capacities); raise the "
                    "latter, or create the VPod with less"
                )
        return ""

    def misfit_together(self, vpod: VPod) -> str:
        """Why ``maxPods`` pods could never hold what a vpod needs together; "" if they could, or if
        a pod has no room for one vreplica (``misfit``).
        """
        if vpod.least <= 1 or self.max_pods is None or self.is_sized_by_others:
            return ""
        if not self.could_hold(vpod):
            return ""
        capacities = dict(self.capacities)
        fitting = [capacities[name] // amount for name, amount in vpod.per_vreplica]
        on_a_pod = min([self.slots_per_pod // vpod.weight, *fitting])
        limited = 0 < vpod.max_per_pod < on_a_pod
        on_a_pod = vpod.max_per_pod if limited else on_a_pod
        pods = -(-vpod.least // on_a_pod)
        if pods <= self.max_pods:
            return ""
        each = f" with {on_a_pod} on each (spec.placement.maxPerPod)" if limited else ""
        return (
            f"{counted(vpod.least, 'vreplica')} (spec.minAvailable) need {counted(pods, 'pod')}"
            f"{each}, but AdapterPool {self.key} may have {self.max_pods} (spec.maxPods); lower "
            "the former or raise the latter"
        )

    def limit_warning(self, vpod: VPod) -> str:
        """That ``maxPods`` pods can never hold all vreplicas of a vpod, because of its maxPerPod;
        "" if they could.
        """
        if not vpod.max_per_pod or self.max_pods is None or self.is_sized_by_others:
            return ""
        most = vpod.max_per_pod * self.max_pods
        if vpod.asked <= most:
            return ""
        return (
            f"{vpod.asked - most} of {counted(vpod.asked, 'vreplica')} will wait: a pod gets "
            f"{vpod.max_per_pod} (spec.placement.maxPerPod), and AdapterPool {self.key} may have "
            f"{counted(self.max_pods, 'pod')} (spec.maxPods)"
        )

    def could_hold(self, vpod: VPod) -> bool:
        """Whether an empty pod of the pool has room for one vreplica of a vpod."""
        if vpod.weight > self.slots_per_pod:
            return False
        return not vpod.per_vreplica or not self.misfit(vpod)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def moves_to_shrink(self) -> bool:
        """Whether vreplicas are moved so that fewer pods are enough. If not, a pod that should go
        waits until it is empty.
        """
        return self.moves_per_period > 0 and not self.move_dry_run

    @property
    def stateful_set_key(self) -> str:
        """Key of its StatefulSet."""
        return f"{self.namespace}/{self.stateful_set}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A PriorityClass of scheduling.k8s.io/v1. VPods name one as pods do."""

    name: str
    value: int
    preempts: bool = True
    """False with ``preemptionPolicy: Never``."""

    @property
    def key(self) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace, with the labels that a pool's namespaceSelector looks at."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    deleting: bool = False

    @property
    def key(self) -> str:
        """The name."""
        return self.name
