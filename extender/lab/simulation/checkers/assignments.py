"""Assignments: in a pool with spec.handoff, a pod is told what its ledger has, and nothing before
its ledger has it.

- An assignment that is written has the vreplicas and weights of the ledger in the same object. So
  it is never ahead of the ledger. Only if it is nearly as long as it may be, it may lack some; and
  in an exclusive pool it may have fewer vreplicas to serve.
- The generation of a pod's assignment grows with each change, also if the annotation was away for
  a time: an adapter remembers the last one.
- A share that is new on a pod has a greater epoch than all that were given for the vpod before its
  epoch was chosen. Writes for several pods are under way at once, and may be late, so those of the
  last moments do not count. After a restore of etcd, only the epochs that pods still have count.
- A share that stays on a pod keeps its epoch, unless it was drained and is served again.

Once all is at rest, each assignment is that of its pod's ledger, and counts the vreplicas that the
vpod asks for. Other pools have none.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from extender.kube.api import Obj
from extender.lab.simulation.checkers.context import Checker, CheckerContext, by_service
from extender.lab.simulation.world.facts import ASSIGNMENT, Pod

ASSIGNMENT_BYTES_MAX: Final = 96 * 1024
SHARE_BYTES_MAX: Final = 800
"""The maximum size of a share in an assignment, with its key."""


class AssignmentChecker(Checker):
    """Checks each write of an assignment. ``differences``: what is wrong at rest."""

    def __init__(self, context: CheckerContext) -> None:
        super().__init__(context)
        self._told: dict[str, dict[str, Any]] = {}
        """Pod name -> its assignment."""
        self._generations: dict[tuple[str, str], int] = {}
        """Name and UID of a pod -> the generation that was written last."""
        self._given: dict[str, list[tuple[float, int]]] = {}
        """vpod -> when an epoch was first given for it, and the epoch; growing."""

    def pod_changed(self, before: Obj | None, after: Obj | None, pod: Pod | None) -> None:
        """A pod was written (``pod``: as the checkers read it) or has gone."""
        old, new = assignment_of(before), assignment_of(after)
        name = (after or before or {})["metadata"]["name"]
        self._told.pop(name, None)
        if pod is None or new is None:
            return
        if new != old and by_service():
            self._check(pod, old, new)
        self._generations[pod.name, pod.uid] = new["generation"]
        for key, share in new["shares"].items():
            given = self._given.setdefault(key, [])
            if not given or share["epoch"] > given[-1][1]:
                given.append((self._clock(), share["epoch"]))
        self._told[name] = new

    def _check(self, pod: Pod, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> None:
        if old is not None and old["uid"] != new["uid"]:
            old = None
        told, ledger = _counts(new), dict(pod.ledger or {})
        wanted = _told_of(ledger, new)
        if told != wanted and not (self._stored.pool(pod.pool).exclusive and _fewer(told, wanted)):
            self._violated(f"assignment of {pod.name} is {told}, and its ledger {ledger}")
        if new["uid"] != pod.uid:
            self._violated(f"assignment of {pod.name} is for the UID {new['uid']}")
        last = old["generation"] if old is not None else self._remembered(pod)
        if new["generation"] <= last:
            self._violated(
                f"assignment of {pod.name} has generation {new['generation']} after {last}"
            )
        known = old["shares"] if old is not None else {}
        for key, share in new["shares"].items():
            epoch = share["epoch"]
            if key in known and not _is_back(known[key], share):
                if epoch != known[key]["epoch"]:
                    self._violated(f"epoch of {key} on {pod.name} changed while it stayed there")
            elif epoch <= (last := self._last_epoch(key)) and not self._two_lead():
                self._violated(f"{key} came to {pod.name} with epoch {epoch}, after {last}")

    def _remembered(self, pod: Pod) -> int:
        if self._circumstances.restored():
            return 0
        return self._generations.get((pod.name, pod.uid), 0)

    def _last_epoch(self, key: str) -> int:
        until = self._clock() - self._circumstances.late_s
        epochs = (epoch for at, epoch in self._given.get(key, ()) if at < until)
        if self._circumstances.restored():
            shares = (told["shares"].get(key) for told in self._told.values())
            present = {share["epoch"] for share in shares if share is not None}
            epochs = (epoch for epoch in epochs if epoch in present)
        return max(epochs, default=0)

    def differences(self) -> Iterator[str]:
        """Describe the assignments that are not what they should be at rest."""
        for pod in self._stored.pods.values():
            told, pool = self._told.get(pod.name), self._stored.pool(pod.pool)
            if not pod.node or pod.deleting or pool.deleted:
                continue
            if not pool.handoff:
                if told is not None:
                    yield f"{pod.name} has an assignment, and its pool no handoff"
                continue
            if told is None:
                yield f"{pod.name} has no assignment"
            elif (counts := _counts(told)) != (ledger := _told_of(dict(pod.ledger or {}), told)):
                yield f"{pod.name} is told {counts}, and its ledger is {ledger}"
            else:
                yield from self._wrong_totals(pod, told)

    def _wrong_totals(self, pod: Pod, told: Mapping[str, Any]) -> Iterator[str]:
        for key, share in told["shares"].items():
            vpod = self._stored.vpods.get(key)
            if share["state"] != "Serve":
                yield f"{pod.name} is told {share['state']} of {key}"
            if vpod is not None and share["of"] != vpod.wanted:
                yield f"{pod.name} is told that {key} has {share['of']} of {vpod.wanted}"


def assignment_of(obj: Obj | None) -> dict[str, Any] | None:
    """Return the assignment that is stored on a pod."""
    text = ((obj or {}).get("metadata", {}).get("annotations") or {}).get(ASSIGNMENT)
    return orjson.loads(text) if text is not None else None


def _is_back(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return bool(old["state"] == "Drain" and new["state"] != "Drain")


def _told_of(
    ledger: dict[str, tuple[int, int]], told: Mapping[str, Any]
) -> dict[str, tuple[int, int]]:
    """What an assignment should have of a ledger: all of it, unless it has no bytes for more."""
    if len(orjson.dumps(told)) <= ASSIGNMENT_BYTES_MAX - SHARE_BYTES_MAX:
        return ledger
    return {key: ledger[key] for key in told["shares"] if key in ledger}


def _fewer(told: Mapping[str, tuple[int, int]], wanted: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the shares are the same, and none has more vreplicas than wanted."""
    return told.keys() == wanted.keys() and all(
        weight == wanted[key][1] and count <= wanted[key][0]
        for key, (count, weight) in told.items()
    )


def _counts(told: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    return {key: (one["vreplicas"], one["weight"]) for key, one in told["shares"].items()}
