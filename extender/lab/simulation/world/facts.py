"""Stored objects as the checkers read them: annotations, specs and statuses as JSON, without the
engine.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from extender.kube.api import Obj

T = TypeVar("T")

PLACEMENTS: Final = "vreplica.dev/placements"
SLOTS: Final = "vreplica.dev/slots"
POOL: Final = "vreplica.dev/pool"
ASSIGNMENT: Final = "vreplica.dev/assignment"
REVISION: Final = "controller-revision-hash"
ACKNOWLEDGED: Final = "vreplica.dev/acknowledged"
EVICTING: Final = "vreplica.dev/evicting"
MARKS: Final = ("vreplica.dev/unschedulable", "eventing.knative.dev/unschedulable")
LEDGER_BYTES_MAX: Final = 128 * 1024
SHARE_BYTES_MAX: Final = 27
"""The maximum size of an entry without its key."""
ENTRY_BYTES_MAX: Final = SHARE_BYTES_MAX + 635
"""The maximum size of any entry. A new entry needs so much free space."""
TENANT_BYTES_MAX: Final = LEDGER_BYTES_MAX // 2 - ENTRY_BYTES_MAX
"""A namespace with more than this gets no further entry in a ledger."""
REPORT_CHARS_MAX: Final = 1024
"""A Moved condition's message ends here, and may leave moves out."""
_REPORTED_MOVE: Final = re.compile(r"(\d+) vreplicas? moved from (\S+?)(?: to (\S+?))? \((\w+)\)")


@dataclass(frozen=True)
class Pod:
    """An adapter pod as stored. ``ledger`` is vpod -> (vreplicas, weight), where weight is the
    slots of one vreplica; None if the annotation is unreadable.
    """

    name: str
    pool: str
    uid: str
    node: str
    slots: int | None
    ledger: Mapping[str, tuple[int, int]] | None
    text: str | None
    marked: bool
    deleting: bool
    ready: bool = True
    amounts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """vpod -> dimension -> what one vreplica takes, as the ledger says."""
    requested: int = 0
    """The slots that its containers request of the node. If they request none (0), the pod takes
    the slots of its annotation.
    """
    evicting: bool = False
    """Somebody tries to evict it."""
    has_turn: bool = False
    """Its turn has come: it hands over what it carries, and is then evicted."""
    finished: bool = False
    """Its containers have stopped for good."""
    revision: str = ""
    """The StatefulSet's revision that it was made from."""

    @property
    def leaves(self) -> bool:
        """Whether what it carries shall leave it."""
        return self.marked or self.evicting

    @property
    def excuses(self) -> list[str]:
        """The causes for ``Excuses`` that hold while what it carries shall leave it."""
        why = {"marked": self.marked, "evicted": self.evicting}
        return [f"{cause} {self.name}" for cause, holds in why.items() if holds]

    @cached_property
    def total(self) -> int:
        """The slots in its ledger."""
        return sum(count * weight for count, weight in (self.ledger or {}).values())

    def slots_of_others(self, vpod: str) -> int:
        """Return the slots of the other vpods."""
        count, weight = (self.ledger or {}).get(vpod, (0, 1))
        return self.total - count * weight

    def bytes_of(self, namespace: str = "", without: Collection[str] = ()) -> int:
        """Return the maximum bytes of its ledger's entries, of one namespace or of all.
        ``without``: vpods to leave out.
        """
        prefix = f"{namespace}/" if namespace else ""
        entries = (
            key for key in self.ledger or () if key.startswith(prefix) and key not in without
        )
        return sum(len(key) + SHARE_BYTES_MAX + self._longer(key) for key in entries)

    @cached_property
    def _bytes(self) -> int:
        return self.bytes_of()

    def _longer(self, vpod: str) -> int:
        amounts = self.amounts.get(vpod)
        return 2 + sum(len(name) + 14 for name in amounts) if amounts else 0

    def taken_of(self, dimension: str) -> int:
        """The amount of a dimension in its ledger."""
        return sum(self.count(vpod) * each.get(dimension, 0) for vpod, each in self.amounts.items())

    def has_bytes_for(self, vpod: str) -> bool:
        """Return whether its ledger has space for one more vreplica of the vpod."""
        if self._bytes > LEDGER_BYTES_MAX - ENTRY_BYTES_MAX:
            return False
        if self._bytes <= TENANT_BYTES_MAX:
            return True
        mine = self.bytes_of(vpod.partition("/")[0])
        return vpod in (self.ledger or ()) or mine <= TENANT_BYTES_MAX

    @property
    def taken(self) -> int:
        """The slots that it takes of its node."""
        return self.requested or self.slots or 0

    @property
    def ordinal(self) -> int:
        """The ordinal in its name."""
        return int(self.name.rpartition("-")[2])

    def count(self, vpod: str) -> int:
        """Return the vreplicas of a vpod in its ledger."""
        return (self.ledger or {}).get(vpod, (0, 1))[0]


class ReportedMove(NamedTuple):
    """One move in a Moved condition. ``to_pod`` is "" if there is no new place yet."""

    vreplicas: int
    from_pod: str
    to_pod: str
    reason: str


@dataclass(frozen=True)
class VPod:
    """A vpod as stored. ``moved`` is (reason, message, time) of its Moved condition."""

    key: str
    uid: str
    pool: str
    generation: int
    wanted: int
    weight: int
    observed: int
    placements: Mapping[str, int]
    scheduled: int
    condition: tuple[str, str]
    moved: tuple[str, str, str]
    available: tuple[int | None, str, str] | None = None
    """readyVReplicas (None: its kind has no such field), and status and reason of Available; None
    without that condition.
    """
    by_caller: bool = False
    """It belongs to a caller of /v1/schedule and is no object."""
    foreign: bool = False
    """It is an object of a foreign kind (``spec.sources``)."""
    amounts: Mapping[str, int] = field(default_factory=dict)
    """Dimension -> what one vreplica takes."""
    others: tuple[str, ...] = ()
    """The conditions of a foreign kind's own controller, as text."""
    priority: int = 0
    preempts: bool = True
    """False if it takes nothing from vpods of a lower priority."""
    min_available: int = 0
    max_per_pod: int = 0
    """The most of its vreplicas on a pod; 0: any number."""
    quarantined: bool = False
    """It gets no further place until somebody releases it."""
    deleting: bool = False

    @property
    def least(self) -> int:
        """The vreplicas that it needs together."""
        return min(self.min_available, self.wanted)

    @property
    def next_slots(self) -> int:
        """The slots of the vreplicas that it can get next: one, or as many as it needs together."""
        return self.weight * (1 if self.total else max(1, self.least))

    @property
    def namespace(self) -> str:
        """The namespace in its key."""
        return self.key.partition("/")[0]

    @property
    def total(self) -> int:
        """The number of placed vreplicas."""
        return sum(self.placements.values())

    @property
    def reported_moves(self) -> list[ReportedMove]:
        """The moves in its Moved condition."""
        return [
            ReportedMove(int(count), name, to, reason)
            for count, name, to, reason in _REPORTED_MOVE.findall(self.moved[1])
        ]


@dataclass
class Pool:
    """An AdapterPool with its StatefulSet, with present and recent values."""

    name: str
    slots: int = 0
    min_pods: int = 0
    max_pods: int | None = None
    min_pods_per_vpod: int = 0
    profile: str = "default"
    moves_per_period: int = 10
    period_s: float = 100.0
    cooldown_s: float = 300.0
    dry_run: bool = False
    balances_load: bool = False
    load_source: str = ""
    load_unavailable: tuple[str, str] = ("", "")
    """Status and reason of its condition LoadUnavailable; empty without it."""
    handoff: bool = False
    """Whether its adapters are told their shares."""
    overlaps: bool = False
    """Whether they hand them over without a gap."""
    exclusive: bool = False
    """Whether they hand them over, and never serve more together than is published."""
    indexed: bool = False
    """Whether they are told which of a vpod's vreplicas they have."""
    surge: int = 0
    """The pods that a rollout needs beside those that carry something; 0 if none is handed over."""
    prepare_timeout_s: float = 30.0
    max_unavailable: Mapping[str, int | str] = field(default_factory=dict)
    """spec.handoff.maxUnavailable; empty if nothing is handed over."""
    deleted: bool = False
    """Whether its AdapterPool is missing."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """The labels that a vpod's namespace must have."""
    reschedule_after_s: float | None = None
    tenancy: Mapping[str, Any] | None = None
    """spec.tenancy."""
    preempts: bool = False
    """Whether vpods of a higher priority take slots from others (``spec.preemption``)."""
    quarantine: Mapping[str, int] = field(default_factory=dict)
    """spec.quarantine."""
    ordinals: range = field(default_factory=lambda: range(0))
    capacities: Mapping[str, int] = field(default_factory=dict)
    """What a pod has beside slots."""
    capacities_seen: list[tuple[float, Mapping[str, int]]] = field(default_factory=list)
    """(since when, capacities)."""
    slots_seen: list[tuple[float, int]] = field(default_factory=list)
    """(since when, slotsPerPod); the last one is the present one."""
    raised_seen: list[tuple[float, int]] = field(default_factory=list)
    """(since when, minPodsPerVPod)."""
    limits_seen: list[tuple[float, float]] = field(default_factory=list)
    """(since when, rescheduleAfterSeconds); inf if there is none."""

    @property
    def hands_over(self) -> bool:
        """Whether its adapters hand shares over, in either mode."""
        return self.overlaps or self.exclusive

    def read(self, obj: Obj) -> None:
        """Read an AdapterPool."""
        spec = obj["spec"]
        rebalance = spec.get("rebalance") or {}
        self.slots = spec["slotsPerPod"]
        self.capacities = spec.get("capacities") or {}
        self.tenancy, self.preempts = spec.get("tenancy"), "preemption" in spec
        self.quarantine = spec.get("quarantine") or {}
        self.min_pods = spec.get("minPods", 0)
        self.max_pods = spec.get("maxPods")
        self.min_pods_per_vpod = spec.get("minPodsPerVPod", 0)
        self.profile = spec.get("profile", "default")
        self.moves_per_period = rebalance.get("movesPerPeriod", 10)
        self.period_s = spec.get("scaleDownPeriodSeconds", 100)
        self.cooldown_s = rebalance.get("cooldownSeconds", 300)
        self.dry_run = rebalance.get("dryRun", False)
        handoff = spec.get("handoff")
        self.handoff = handoff is not None
        self.overlaps = (handoff or {}).get("mode") == "Overlap"
        self.exclusive = (handoff or {}).get("mode") == "Exclusive"
        self.indexed = (handoff or {}).get("identity") == "Indexed"
        rollout = spec.get("rollout") or {}
        self.surge = rollout.get("surge", 1) if rollout.get("strategy") == "HandedOver" else 0
        self.prepare_timeout_s = (handoff or {}).get("prepareTimeoutSeconds", 30)
        hands_over = self.overlaps or self.exclusive
        given = (handoff or {}).get("maxUnavailable") or {}
        self.max_unavailable = {"pool": "10%", "perVPod": 1, **given} if hands_over else {}
        self.balances_load = rebalance.get("load") is not None
        self.load_source = spec.get("loadSource") or ""
        conditions = {c["type"]: c for c in (obj.get("status") or {}).get("conditions") or ()}
        told = conditions.get("LoadUnavailable", {})
        self.load_unavailable = (told.get("status", ""), told.get("reason", ""))
        self.reschedule_after_s = spec.get("rescheduleAfterSeconds", 300)
        self.selector = (spec.get("namespaceSelector") or {}).get("matchLabels") or {}

    def could_hold(self, vpod: VPod) -> bool:
        """Return whether an empty pod has room for one vreplica, and all pods that there may be for
        those that a vpod without any needs together.
        """
        most = [self.capacities.get(name, 0) // amount for name, amount in vpod.amounts.items()]
        on_a_pod = min([self.slots // vpod.weight, *most])
        pods = inf if self.max_pods is None else self.max_pods
        return on_a_pod > 0 and (vpod.total > 0 or vpod.least <= on_a_pod * pods)

    def overfull(self, pod: Pod) -> list[str]:
        """The dimensions of which the pod's ledger takes more than the pod has."""
        return [name for name, most in self.capacities.items() if pod.taken_of(name) > most]

    @property
    def names(self) -> set[str]:
        """The names of the StatefulSet's pods."""
        return {f"{self.name}-{ordinal}" for ordinal in self.ordinals}

    def most(self, vpod: VPod) -> int:
        """Return the vreplicas that the vpod may have. minPodsPerVPod raises the wanted number."""
        return max(vpod.wanted, self.min_pods_per_vpod) if vpod.wanted else 0


def in_force(seen: Sequence[tuple[float, T]], since: float) -> list[T]:
    """Return all values that were in force since then. ``seen`` is (since when, value), in the
    order of time.
    """
    earlier = [what for at, what in seen if at < since]
    return [what for at, what in seen if at >= since] + earlier[-1:]


def ordinal_of(pod_name: str) -> int:
    """Return the ordinal in a pod's name; a high number if there is none."""
    digits = pod_name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 2**31


def is_ready(obj: Obj) -> bool:
    """Return whether a pod's or node's Ready condition is True, and no lease of its adapter has run
    out.
    """
    conditions = (obj.get("status") or {}).get("conditions") or ()
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return ready and not lease_expired(obj)


def lease_expired(pod: Obj) -> bool:
    """Return whether the service has found that the lease of a pod's adapter has run out."""
    return '"expired":true' in (pod["metadata"].get("annotations") or {}).get(ACKNOWLEDGED, "")


def read_pod(obj: Obj) -> Pod:
    """Read a pod."""
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    slots = annotations.get(SLOTS)
    finished = (obj.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    return Pod(
        name=metadata["name"],
        pool=(metadata.get("labels") or {}).get(POOL, ""),
        uid=metadata["uid"],
        node=obj["spec"].get("nodeName") or "",
        slots=int(slots) if slots is not None and slots.isdigit() else None,
        ledger=_read_ledger(annotations.get(PLACEMENTS)),
        amounts=_read_amounts(annotations.get(PLACEMENTS)),
        text=annotations.get(PLACEMENTS),
        marked=any(annotations.get(mark) == "true" for mark in MARKS),
        deleting=bool(metadata.get("deletionTimestamp")),
        evicting=(evicting := metadata["uid"] in annotations.get(EVICTING, "")),
        has_turn=evicting and not _waits(annotations[EVICTING]),
        revision=(metadata.get("labels") or {}).get(REVISION, ""),
        ready=is_ready(obj) and not finished,
        finished=finished,
        requested=_requested(obj),
    )


def _waits(eviction: str) -> bool:
    """Whether the pod waits for its turn. A rollout needs none."""
    return '"turn":' not in eviction and '"reason":"Rollout"' not in eviction


def _requested(obj: Obj) -> int:
    requests = (
        (one.get("resources") or {}).get("requests") or {}
        for one in obj["spec"].get("containers") or ()
    )
    return sum(int(asked.get(SLOTS, 0)) for asked in requests)


def _read_ledger(text: str | None) -> dict[str, tuple[int, int]] | None:
    try:
        plain = orjson.loads(text or "{}")
        return {
            key: (v, 1) if isinstance(v, int) else (int(v[0]), int(v[1]))
            for key, v in plain.items()
        }
    except (ValueError, TypeError, AttributeError, IndexError):
        return None


def _read_amounts(text: str | None) -> dict[str, dict[str, int]]:
    if _read_ledger(text) is None:
        return {}
    plain = orjson.loads(text or "{}")
    return {key: v[2] for key, v in plain.items() if isinstance(v, list) and len(v) > 2}


def _is_quarantined(metadata: Obj, condition: Obj | None) -> bool:
    if condition is None or condition["status"] != "True":
        return False
    released = (metadata.get("annotations") or {}).get("vreplica.dev/released-at", "")
    return bool(released < condition["lastTransitionTime"])


def read_vpod(obj: Obj) -> VPod:
    """Read a vpod."""
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    placements: dict[str, int] = {}
    for item in status.get("placements") or ():
        placements[item["podName"]] = placements.get(item["podName"], 0) + item["vreplicas"]
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    scheduled, moved = conditions.get("Scheduled"), conditions.get("Moved")
    available = conditions.get("Available")
    return VPod(
        key=f"{metadata['namespace']}/{metadata['name']}",
        uid=metadata["uid"],
        pool=spec["poolRef"]["name"],
        generation=metadata.get("generation", 0),
        wanted=spec["vreplicas"],
        weight=spec.get("slotsPerVReplica", 1),
        amounts=spec.get("perVReplica") or {},
        priority=spec.get("priority", 0),
        preempts=spec.get("preemptionPolicy") != "Never",
        min_available=spec.get("minAvailable", 0),
        max_per_pod=(spec.get("placement") or {}).get("maxPerPod", 0),
        quarantined=_is_quarantined(metadata, conditions.get("Quarantined")),
        deleting="deletionTimestamp" in metadata,
        observed=status.get("observedGeneration", 0),
        placements=placements,
        scheduled=status.get("scheduledVReplicas", 0),
        condition=(scheduled["status"], scheduled["reason"]) if scheduled else ("", ""),
        available=(status.get("readyVReplicas", -1), available["status"], available["reason"])
        if available
        else None,
        moved=(moved["reason"], moved["message"], moved["lastTransitionTime"])
        if moved
        else ("", "", ""),
    )
