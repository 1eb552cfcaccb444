"""What the checkers read off stored objects: annotations, specs and statuses as JSON, with no help
from the engine.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import orjson

from extender.kube.api import Obj

T = TypeVar("T")

PLACEMENTS: Final = "vreplica.dev/placements"
SLOTS: Final = "vreplica.dev/slots"
POOL: Final = "vreplica.dev/pool"
MARKS: Final = ("vreplica.dev/unschedulable", "eventing.knative.dev/unschedulable")
LEDGER_BYTES_MAX: Final = 128 * 1024
SHARE_BYTES_MAX: Final = 27
"""Of an entry, without its key."""
ENTRY_BYTES_MAX: Final = SHARE_BYTES_MAX + 635
"""Of any entry: what has to be left where one is added."""
TENANT_BYTES_MAX: Final = LEDGER_BYTES_MAX // 2 - ENTRY_BYTES_MAX
"""Of one namespace, before it gets no further entry in a ledger."""
TOLD_CHARS_MAX: Final = 1024
"""A Moved condition's message ends there, and may leave moves out."""
_TOLD: Final = re.compile(r"(\d+) vreplicas? moved from (\S+?)(?: to (\S+?))? \((\w+)\)")


@dataclass(frozen=True)
class Pod:
    """An adapter pod as stored. ``ledger``: vpod -> (vreplicas, weight), None where the annotation
    is unreadable.
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
    requested: int = 0
    """Slots that its containers request of their node; 0 where they request none, and it takes what
    it is stamped with.
    """

    @property
    def total(self) -> int:
        """Slots."""
        return sum(count * weight for count, weight in (self.ledger or {}).values())

    def beside(self, vpod: str) -> int:
        """Slots that the others have."""
        count, weight = (self.ledger or {}).get(vpod, (0, 1))
        return self.total - count * weight

    def bytes_of(self, namespace: str = "", without: Collection[str] = ()) -> int:
        """The most that its ledger's entries can take, in bytes: of a namespace, or of all.
        ``without``: those of these vpods.
        """
        prefix = f"{namespace}/" if namespace else ""
        entries = (
            key for key in self.ledger or () if key.startswith(prefix) and key not in without
        )
        return sum(len(key) + SHARE_BYTES_MAX for key in entries)

    def has_bytes_for(self, vpod: str) -> bool:
        """Whether one more vreplica of a vpod may be written into its ledger."""
        if self.bytes_of() > LEDGER_BYTES_MAX - ENTRY_BYTES_MAX:
            return False
        mine = self.bytes_of(vpod.partition("/")[0])
        return vpod in (self.ledger or ()) or mine <= TENANT_BYTES_MAX

    @property
    def taken(self) -> int:
        """Slots of its node."""
        return self.requested or self.slots or 0

    @property
    def ordinal(self) -> int:
        """Of its name."""
        return int(self.name.rpartition("-")[2])

    def count(self, vpod: str) -> int:
        """vreplicas of a vpod in its ledger."""
        return (self.ledger or {}).get(vpod, (0, 1))[0]


class ReportedMove(NamedTuple):
    """One move, as a Moved condition tells it; ``to_pod`` "" where there is no new place yet."""

    vreplicas: int
    from_pod: str
    to_pod: str
    reason: str


@dataclass(frozen=True)
class VPod:
    """A vpod as stored. ``moved``: (reason, message, time) of its Moved condition."""

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
    available: tuple[int, str, str] | None = None
    """readyVReplicas, and status and reason of its Available condition; None where it says nothing
    of that.
    """
    by_caller: bool = False
    """Whether a caller of /v1/schedule keeps it, and it is no object."""
    foreign: bool = False
    """Whether it is an object of another kind."""

    @property
    def namespace(self) -> str:
        """Of its key."""
        return self.key.partition("/")[0]

    @property
    def is_silent(self) -> bool:
        """Whether nothing tells why it was moved, or why it is not scheduled."""
        return self.by_caller or self.foreign

    @property
    def total(self) -> int:
        """vreplicas."""
        return sum(self.placements.values())

    @property
    def told(self) -> list[ReportedMove]:
        """The moves that its Moved condition tells."""
        return [
            ReportedMove(int(count), name, to, reason)
            for count, name, to, reason in _TOLD.findall(self.moved[1])
        ]


@dataclass
class Pool:
    """An AdapterPool with its StatefulSet, as they are now and as they were lately."""

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
    deleted: bool = False
    """Whether its AdapterPool is not there now."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that namespaces of its vpods must have."""
    reschedule_after_s: float | None = None
    ordinals: range = field(default_factory=lambda: range(0))
    slots_seen: list[tuple[float, int]] = field(default_factory=list)
    """(since when, slotsPerPod), the present one last."""
    raised_seen: list[tuple[float, int]] = field(default_factory=list)
    """(since when, minPodsPerVPod)."""
    limits_seen: list[tuple[float, float]] = field(default_factory=list)
    """(since when, rescheduleAfterSeconds), inf where there is none."""

    def read(self, spec: Obj) -> None:
        """Take a pool's spec."""
        rebalance = spec.get("rebalance") or {}
        self.slots = spec["slotsPerPod"]
        self.min_pods = spec.get("minPods", 0)
        self.max_pods = spec.get("maxPods")
        self.min_pods_per_vpod = spec.get("minPodsPerVPod", 0)
        self.profile = spec.get("profile", "default")
        self.moves_per_period = rebalance.get("movesPerPeriod", 10)
        self.period_s = spec.get("scaleDownPeriodSeconds", 100)
        self.cooldown_s = rebalance.get("cooldownSeconds", 300)
        self.dry_run = rebalance.get("dryRun", False)
        self.reschedule_after_s = spec.get("rescheduleAfterSeconds", 300)
        self.selector = (spec.get("namespaceSelector") or {}).get("matchLabels") or {}

    @property
    def names(self) -> set[str]:
        """Of the pods that its StatefulSet has."""
        return {f"{self.name}-{ordinal}" for ordinal in self.ordinals}

    def most(self, vpod: VPod) -> int:
        """vreplicas that it may have: minPodsPerVPod raises what is wanted."""
        return max(vpod.wanted, self.min_pods_per_vpod) if vpod.wanted else 0


def in_force(seen: Sequence[tuple[float, T]], since: float) -> list[T]:
    """What was in force at any time since then. ``seen``: (since when, what), in the order
    of time.
    """
    earlier = [what for at, what in seen if at < since]
    return [what for at, what in seen if at >= since] + earlier[-1:]


def ordinal_of(pod_name: str) -> int:
    """Of a pod's name; a high one where there is none."""
    digits = pod_name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 2**31


def is_ready(obj: Obj) -> bool:
    """A pod's or node's Ready condition."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def read_pod(obj: Obj) -> Pod:
    """A pod as stored."""
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    slots = annotations.get(SLOTS)
    return Pod(
        name=metadata["name"],
        pool=(metadata.get("labels") or {}).get(POOL, ""),
        uid=metadata["uid"],
        node=obj["spec"].get("nodeName") or "",
        slots=int(slots) if slots is not None and slots.isdigit() else None,
        ledger=_read_ledger(annotations.get(PLACEMENTS)),
        text=annotations.get(PLACEMENTS),
        marked=any(annotations.get(mark) == "true" for mark in MARKS),
        deleting=bool(metadata.get("deletionTimestamp")),
        ready=is_ready(obj),
        requested=_requested(obj),
    )


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


def read_vpod(obj: Obj) -> VPod:
    """A vpod as stored."""
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
