"""Checkers of the invariants, on what the API server stores, after every write, with no help from the engine.

They read annotations and statuses as JSON, know nothing of plans and caches, and learn causes by watching the store too:
a pod annotated, an ordinal that is gone, a ledger that a person has edited. A cause excuses what it may excuse for
``EXCUSE_S``: a decision may be that old when it is written. What is excused must be put right in the end, which
``differences`` checks once the faults have stopped.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from extender.kube.api import Obj
from extender.sim.faults import ACTOR
from extender.sim.store import Change
from tests.simulation.world import NAME

EXCUSE_S: Final = 60.0
PLACEMENTS: Final = "vreplica.dev/placements"
SLOTS: Final = "vreplica.dev/slots"
MARKS: Final = ("vreplica.dev/unschedulable", "eventing.knative.dev/unschedulable")
SERVICE: Final = "replica-"
"""Names of the service's actors begin so."""


@dataclass(frozen=True)
class Pod:
    """An adapter pod as stored. ``ledger``: vpod -> (vreplicas, weight), None where the annotation is unreadable."""

    name: str
    uid: str
    node: str
    slots: int | None
    ledger: Mapping[str, tuple[int, int]] | None
    text: str | None
    marked: bool
    deleting: bool

    @property
    def total(self) -> int:
        return sum(count * weight for count, weight in (self.ledger or {}).values())

    def count(self, vpod: str) -> int:
        return (self.ledger or {}).get(vpod, (0, 1))[0]


@dataclass(frozen=True)
class VPod:
    """A vpod as stored."""

    key: str
    uid: str
    generation: int
    wanted: int
    weight: int
    observed: int
    placements: Mapping[str, int]
    scheduled: int
    condition: tuple[str, str]

    @property
    def total(self) -> int:
        return sum(self.placements.values())


def read_pod(obj: Obj) -> Pod:
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    slots = annotations.get(SLOTS)
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        node=obj["spec"].get("nodeName") or "",
        slots=int(slots) if slots is not None and slots.isdigit() else None,
        ledger=_read_ledger(annotations.get(PLACEMENTS)),
        text=annotations.get(PLACEMENTS),
        marked=any(annotations.get(mark) == "true" for mark in MARKS),
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def _read_ledger(text: str | None) -> dict[str, tuple[int, int]] | None:
    try:
        plain = orjson.loads(text or "{}")
        return {key: (v, 1) if isinstance(v, int) else (int(v[0]), int(v[1])) for key, v in plain.items()}
    except (ValueError, TypeError, AttributeError, IndexError):
        return None


def read_vpod(obj: Obj) -> VPod:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    placements: dict[str, int] = {}
    for item in status.get("placements") or ():
        placements[item["podName"]] = placements.get(item["podName"], 0) + item["vreplicas"]
    found = [c for c in status.get("conditions") or () if c["type"] == "Scheduled"]
    return VPod(
        key=f"{metadata['namespace']}/{metadata['name']}",
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        wanted=spec["vreplicas"],
        weight=spec.get("slotsPerVReplica", 1),
        observed=status.get("observedGeneration", 0),
        placements=placements,
        scheduled=status.get("scheduledVReplicas", 0),
        condition=(found[0]["status"], found[0]["reason"]) if found else ("", ""),
    )


@dataclass
class Excuses:
    """Causes seen, by what they are about, with the time at which they ceased to be."""

    clock: Callable[[], float]
    _until: dict[str, float] = field(default_factory=dict)

    def note(self, about: str) -> None:
        self._until[about] = self.clock() + EXCUSE_S

    def holds(self, about: str) -> bool:
        return self._until.get(about, -1.0) >= self.clock()


class Checkers:
    """Subscribe ``on_change`` to the store. ``violations`` collects what was found; ``moves`` counts by reason."""

    def __init__(self, trace: Callable[[str], None] = lambda _line: None) -> None:
        self._trace = trace
        self.violations: list[str] = []
        self.moves: dict[str, int] = {}
        self.pods: dict[str, Pod] = {}
        self.vpods: dict[str, VPod] = {}
        self.slots_per_pod = 0
        self.max_pods: int | None = None
        self.ordinals = range(0)
        self.last_write_s: dict[str, float] = {}
        """Plural -> time of its last write."""
        self._clock = asyncio.get_running_loop().time
        self._excuses = Excuses(self._clock)
        self._unrepaired: dict[str, str] = {}
        """Pod name -> why its ledger may be wrong until it has been right once."""
        self._edited: set[str] = set()
        """Vpods whose status somebody else has written, until it is covered again."""
        self._slots_seen: list[tuple[float, int]] = []

    def on_change(self, kind: tuple[str, str], change: Change) -> None:
        self.last_write_s[kind[1]] = self._clock()
        before = change.before.obj if change.before is not None else None
        after = change.after.obj if change.after is not None else None
        metadata = (after or before or {})["metadata"]
        handlers: dict[str, Callable[[Obj | None, Obj | None], None]] = {
            "vpods": self._vpod_changed,
            "adapterpools": self._pool_changed,
            "statefulsets": self._stateful_set_changed,
        }
        if kind[1] == "pods" and "vreplica.dev/pool" in (metadata.get("labels") or {}):
            self._pod_changed(before, after)
        elif kind[1] in handlers:
            handlers[kind[1]](before, after)

    # -- causes --------------------------------------------------------------------------------------------------

    def _pool_changed(self, _before: Obj | None, after: Obj | None) -> None:
        if after is None:
            return
        slots = after["spec"]["slotsPerPod"]
        self.max_pods = after["spec"].get("maxPods")
        if slots < self.slots_per_pod:
            for name in self._every_pod():
                self._unrepaired[name] = "slotsPerPod has shrunk"
        if slots != self.slots_per_pod:
            self._trace(f"    slotsPerPod is {slots}")
        self.slots_per_pod = slots
        self._slots_seen.append((self._clock(), slots))

    def _every_pod(self) -> set[str]:
        published = {name for vpod in self.vpods.values() for name in vpod.placements}
        return {*self.pods, *published, *(f"{NAME}-{ordinal}" for ordinal in self.ordinals)}

    def _stateful_set_changed(self, before: Obj | None, after: Obj | None) -> None:
        if after is not None:
            start = (after["spec"].get("ordinals") or {}).get("start", 0)
            ordinals = range(start, start + after["spec"]["replicas"])
            if ordinals != self.ordinals:
                self._trace(f"    ordinals are {ordinals}")
            for ordinal in set(self.ordinals) - set(ordinals):
                self._excuses.note(f"gone {NAME}-{ordinal}")
            self.ordinals = ordinals

    def _slots_lately(self) -> int:
        """The largest slotsPerPod that a decision written now may have seen."""
        since = self._clock() - EXCUSE_S
        known = [slots for at, slots in self._slots_seen if at >= since]
        earlier = [slots for at, slots in self._slots_seen if at < since]
        return max([*known, *earlier[-1:]])

    # -- pods: I1, I2 ----------------------------------------------------------------------------------------------

    def _pod_changed(self, before: Obj | None, after: Obj | None) -> None:
        old = read_pod(before) if before is not None else None
        if old is not None and old.marked:
            self._excuses.note(f"marked {old.name}")
        if after is None:
            self.pods.pop((before or {})["metadata"]["name"], None)
            return
        pod = self.pods[after["metadata"]["name"]] = read_pod(after)
        if pod != old:
            gone = ", deleting" if pod.deleting else ", marked" if pod.marked else ""
            self._trace(f"    {pod.name} on {pod.node or 'no node'}, {pod.slots} slots, {pod.text}{gone}")
        if not pod.node:
            return
        by_service = ACTOR.get().startswith(SERVICE)
        bound_now = old is None or not old.node
        if not by_service and (bound_now or pod.text != (old.text if old else None)):
            self._unrepaired[pod.name] = f"bound or edited by {ACTOR.get() or 'the workload'}"
        if by_service and (bound_now or old is None or pod.text != old.text):
            self._check_i1(pod, old.total if old is not None and old.node else 0)
        self._check_i2_of_pod(pod)

    def _check_i1(self, pod: Pod, before: int) -> None:
        """A ledger that the service writes is within the pod's slots, or nearer to it than before."""
        allowed = self._slots_lately()
        if pod.slots is not None:
            allowed = min(allowed, pod.slots)
        if pod.ledger is None:
            self._violated(f"I1: {ACTOR.get()} wrote an unreadable ledger on {pod.name}: {pod.text!r}")
        elif pod.total > allowed and pod.total > before:
            self._violated(
                f"I1: {ACTOR.get()} wrote {pod.total} slots on {pod.name}, which has {allowed}: {pod.text}"
            )

    def _check_i2_of_pod(self, pod: Pod) -> None:
        uncovered = self._uncovered(pod)
        fits = (
            pod.slots is not None
            and pod.ledger is not None
            and pod.total <= min(pod.slots, self.slots_per_pod)
        )
        if not uncovered and fits:
            if pod.name in self._unrepaired:
                self._excuses.note(f"unrepaired {pod.name}")
            self._unrepaired.pop(pod.name, None)
        elif uncovered and not self._was_broken(pod.name):
            for key in uncovered:
                if not self._was_edited(key):
                    self._violated(f"I2: {self._both(pod, key)}")

    def _was_broken(self, pod_name: str) -> bool:
        return pod_name in self._unrepaired or self._excuses.holds(f"unrepaired {pod_name}")

    def _was_edited(self, vpod: str) -> bool:
        return vpod in self._edited or self._excuses.holds(f"edited {vpod}")

    def _uncovered(self, pod: Pod) -> list[str]:
        return [key for key, vpod in self.vpods.items() if vpod.placements.get(pod.name, 0) > pod.count(key)]

    def _both(self, pod: Pod, key: str) -> str:
        vpod = self.vpods[key]
        return (
            f"{ACTOR.get()} wrote; status of {key} (wants {vpod.wanted}) has {dict(vpod.placements)}, "
            f"ledger of {pod.name} on {pod.node} has {pod.text}"
        )

    # -- vpods: I2, I4 -----------------------------------------------------------------------------------------------

    def _vpod_changed(self, before: Obj | None, after: Obj | None) -> None:
        old = read_vpod(before) if before is not None else None
        if after is None:
            if old is not None:
                self.vpods.pop(old.key, None)
                self._edited.discard(old.key)
            return
        new = read_vpod(after)
        self.vpods[new.key] = new
        if new != old:
            self._trace(
                f"    {new.key} wants {new.wanted} of {new.weight} (generation {new.generation}), "
                f"has {dict(new.placements)} ({new.observed}), {new.condition}"
            )
        if old is not None and old.weight != new.weight:
            self._excuses.note(f"weight {new.key}")
            for name in new.placements:
                self._unrepaired[name] = f"weight of {new.key} has changed"
        if old is not None and (old.placements, old.condition) != (new.placements, new.condition):
            if ACTOR.get().startswith(SERVICE):
                self._check_i4(old, new)
                self._check_honest(new)
            else:
                self._edited.add(new.key)
                # What it claims there may overcommit the pod, to be trimmed from any vpod.
                self._unrepaired |= dict.fromkeys(new.placements, f"status of {new.key} was edited")
        self._check_i2_of_vpod(new)

    def _check_i2_of_vpod(self, vpod: VPod) -> None:
        uncovered = [
            pod
            for name, count in vpod.placements.items()
            if (pod := self.pods.get(name)) is not None and pod.node and pod.count(vpod.key) < count
        ]
        if not uncovered and vpod.key in self._edited:
            self._edited.discard(vpod.key)
            self._excuses.note(f"edited {vpod.key}")
        for pod in uncovered:
            if not self._was_broken(pod.name) and not self._was_edited(vpod.key):
                self._violated(f"I2: {self._both(pod, vpod.key)}")

    def _check_i4(self, old: VPod, new: VPod) -> None:
        """What leaves a pod has a reason there, or the vpod has fewer vreplicas to place."""
        fewer = max(0, old.total - new.wanted)
        whole_vpod = self._was_edited(new.key) or self._excuses.holds(f"weight {new.key}")
        for name, count in old.placements.items():
            left = count - new.placements.get(name, 0)
            if left <= 0:
                continue
            reason = "edit or weight" if whole_vpod else self._reason_on(name)
            if not reason:
                reason, unexplained = "fewer wanted", max(0, left - fewer)
                fewer = max(0, fewer - left)
                if unexplained:
                    self._violated(
                        f"I4: {ACTOR.get()} took {unexplained} of {new.key} (wants {new.wanted}) off {name}: "
                        f"{dict(old.placements)} became {dict(new.placements)}"
                    )
            self.moves[reason] = self.moves.get(reason, 0) + left

    def _reason_on(self, name: str) -> str:
        pod = self.pods.get(name)
        if name not in {f"{NAME}-{ordinal}" for ordinal in self.ordinals}:
            return "ordinal gone"
        if self._excuses.holds(f"gone {name}"):
            return "ordinal was gone"
        if (pod is not None and pod.marked) or self._excuses.holds(f"marked {name}"):
            return "drain"
        if self._was_broken(name):
            return "overcommit or edit"
        return ""

    def _check_honest(self, vpod: VPod) -> None:
        """Scheduled=True for the present generation means that the present spec is placed."""
        honest = vpod.total == vpod.wanted or vpod.condition[0] != "True"
        if vpod.observed == vpod.generation and not honest:
            self._violated(
                f"status: {vpod.key} says {vpod.condition} for generation {vpod.generation}, which wants "
                f"{vpod.wanted}, with {dict(vpod.placements)}"
            )

    def _violated(self, what: str) -> None:
        self._trace(f"VIOLATED {what}")
        self.violations.append(f"at {self._clock():.3f} s: {what}")

    # -- once everything is quiet: I3 ---------------------------------------------------------------------------------

    def differences(self) -> list[str]:
        """What is not yet as it should be, in words; empty: settled."""
        found = []
        for ordinal in self.ordinals:
            pod = self.pods.get(f"{NAME}-{ordinal}")
            if pod is None or not pod.node or pod.deleting:
                found.append(f"pod {NAME}-{ordinal} is missing, pending or being deleted")
        for pod in self.pods.values():
            found += self._ledger_differences(pod)
        for vpod in self.vpods.values():
            found += self._status_differences(vpod)
        return found

    def _ledger_differences(self, pod: Pod) -> list[str]:
        if not pod.node:
            return []
        if pod.ledger is None or pod.slots is None:
            return [f"{pod.name} is not repaired: slots {pod.slots}, ledger {pod.text!r}"]
        found = []
        published = {k: v.placements[pod.name] for k, v in self.vpods.items() if v.placements.get(pod.name)}
        if published != {key: count for key, (count, _) in pod.ledger.items()}:
            found.append(f"I3: ledger of {pod.name} is {pod.text}, statuses publish {published}")
        if wrong := [
            k for k, (_, weight) in pod.ledger.items() if k in self.vpods and self.vpods[k].weight != weight
        ]:
            found.append(f"I3: ledger of {pod.name} is {pod.text}, with stale weights of {wrong}")
        if pod.total > min(pod.slots, self.slots_per_pod):
            found.append(
                f"I1: {pod.name} has {min(pod.slots, self.slots_per_pod)} slots, and holds {pod.text}"
            )
        return found

    def _status_differences(self, vpod: VPod) -> list[str]:
        found = []
        if vpod.observed != vpod.generation or vpod.scheduled != vpod.total:
            found.append(f"{vpod.key}: status is of generation {vpod.observed}, not {vpod.generation}")
        if gone := [name for name in vpod.placements if name not in {f"{NAME}-{o}" for o in self.ordinals}]:
            found.append(f"I3: {vpod.key} is placed on {gone}, which the StatefulSet does not have")
        draining = [
            name for name in vpod.placements if (pod := self.pods.get(name)) is not None and pod.marked
        ]
        if (vpod.condition[0] == "True") is not (vpod.total == vpod.wanted and not draining):
            # What stays on a pod being drained for want of room elsewhere counts as not scheduled.
            found.append(
                f"{vpod.key}: {vpod.total} of {vpod.wanted} placed, and Scheduled is {vpod.condition}"
            )
        if draining and self._has_room(vpod):
            found.append(
                f"I3: {vpod.key} is still on {draining}, marked unschedulable: {self._where_room(vpod)}"
            )
        if vpod.total > vpod.wanted or (vpod.total < vpod.wanted and self._has_room(vpod)):
            found.append(
                f"I3: {vpod.key} has {dict(vpod.placements)} of {vpod.wanted}: {self._where_room(vpod)}"
            )
        return found

    def _free(self, vpod: VPod) -> dict[str, int]:
        free = {
            pod.name: min(pod.slots or 0, self.slots_per_pod) - pod.total
            for pod in self.pods.values()
            if pod.node and not pod.marked and not pod.deleting
        }
        return {name: slots for name, slots in free.items() if slots >= vpod.weight}

    def _has_room(self, vpod: VPod) -> bool:
        """Whether slots for one more exist, or could: a pod with room, or a pool that may grow."""
        may_grow = self.max_pods is None or len(self.ordinals) < self.max_pods
        return bool(self._free(vpod)) or (may_grow and vpod.weight <= self.slots_per_pod)

    def _where_room(self, vpod: VPod) -> str:
        return f"room {self._free(vpod)}, {len(self.ordinals)} of at most {self.max_pods} pods"
