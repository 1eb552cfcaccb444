"""Assignments: in a pool with spec.handoff, a pod is told what its ledger has, and nothing before
its ledger has it.

- An assignment that is written has the vreplicas and weights of the ledger in the same object. So
  it is never ahead of the ledger. Only if it is nearly as long as it may be, it may lack some; and
  in an exclusive pool it may have fewer vreplicas to serve, and in one with indexes it lacks those
  of which nobody knows which ones they were.
- The generation of a pod's assignment grows with each change, also if the annotation was away for
  a time: an adapter remembers the last one.
- A share that is new on a pod has a greater epoch than all that were given for the vpod before its
  epoch was chosen. Writes for several pods are under way at once, and may be late, so those of the
  last moments do not count. After a restore of etcd, only the epochs that pods still have count.
- A share that stays on a pod keeps its epoch, unless it was drained and is served again. With
  indexes, its epoch may also grow, and does where it gets one that another pod may have had.
- In a pool with indexes, a share has as many as vreplicas, each below the vpod's number of them.

Once all is at rest, each assignment is that of its pod's ledger, and counts the vreplicas that the
vpod asks for. No index is told to two pods. Other pools have none.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from extender.kube.api import Obj
from extender.lab.simulation.checkers.context import Checker, CheckerContext, by_service
from extender.lab.simulation.world.facts import ASSIGNMENT, Pod
from extender.model.assignment import DRAINS_BYTES
from extender.model.indexes import indexes_from

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
        pool = self._stored.pool(pod.pool)
        if told != wanted and not ((pool.exclusive or pool.indexed) and _fewer(told, wanted)):
            self._violated(f"assignment of {pod.name} is {told}, and its ledger {ledger}")
        for key, share in new["shares"].items():
            indexes = _indexes(share)
            count = share["vreplicas"] if pool.indexed else 0
            if indexes.bit_count() != count or indexes.bit_length() > share["of"]:
                self._violated(f"{pod.name} is told {share} of {key}")
        if new["uid"] != pod.uid:
            self._violated(f"assignment of {pod.name} is for the UID {new['uid']}")
        last = old["generation"] if old is not None else self._remembered(pod)
        if new["generation"] <= last:
            self._violated(
                f"assignment of {pod.name} has generation {new['generation']} after {last}"
            )
        self._check_epochs(pod, old["shares"] if old is not None else {}, new)

    def _check_epochs(
        self, pod: Pod, known: Mapping[str, Mapping[str, Any]], new: Mapping[str, Any]
    ) -> None:
        for key, share in new["shares"].items():
            epoch, had = share["epoch"], known.get(key)
            if had is None or _is_back(had, share) or _has_more(had, share):
                last = self._last_epoch(key)
                if epoch <= last and not self._two_lead():
                    self._violated(f"{key} came to {pod.name} with epoch {epoch}, after {last}")
            elif epoch < had["epoch"] or (epoch > had["epoch"] and not _indexes(share)):
                self._violated(f"epoch of {key} on {pod.name} changed while it stayed there")

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
        yield from self._wrong_indexes()

    def _wrong_indexes(self) -> Iterator[str]:
        """In pools with indexes, each of a vpod's vreplicas that is told to anybody has its own."""
        found: dict[tuple[str, str], int] = {}
        for name, told in self._told.items():
            pod = self._stored.pods.get(name)
            if pod is None or not self._stored.pool(pod.pool).indexed:
                continue
            for key, share in told["shares"].items():
                indexes, others = _indexes(share), found.get((pod.pool, key), 0)
                if indexes & others or indexes.bit_length() > share["of"]:
                    yield f"{name} is told {share} of {key}, and others of {bin(others)}"
                found[pod.pool, key] = indexes | others

    def _wrong_totals(self, pod: Pod, told: Mapping[str, Any]) -> Iterator[str]:
        for key, share in told["shares"].items():
            vpod = self._stored.vpods.get(key)
            if share["state"] != "Serve":
                yield f"{pod.name} is told {share['state']} of {key}"
            raised = share["of"] > vpod.wanted and _indexes(share) if vpod is not None else False
            if vpod is not None and share["of"] != vpod.wanted and not raised:
                yield f"{pod.name} is told that {key} has {share['of']} of {vpod.wanted}"


def assignment_of(obj: Obj | None) -> dict[str, Any] | None:
    """Return the assignment that is stored on a pod."""
    text = ((obj or {}).get("metadata", {}).get("annotations") or {}).get(ASSIGNMENT)
    return orjson.loads(text) if text is not None else None


def _indexes(share: Mapping[str, Any]) -> int:
    return indexes_from(share.get("indexes", ""))


def _has_more(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the pod gets an index that another one may have had."""
    return _indexes(new) & ~_indexes(old) != 0


def _is_back(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return bool(old["state"] == "Drain" and new["state"] != "Drain")


def _told_of(
    ledger: dict[str, tuple[int, int]], told: Mapping[str, Any]
) -> dict[str, tuple[int, int]]:
    """What an assignment should have of a ledger: all of it, unless it has no bytes for more."""
    if len(orjson.dumps(told)) <= ASSIGNMENT_BYTES_MAX - DRAINS_BYTES - SHARE_BYTES_MAX:
        return ledger
    return {key: ledger[key] for key in told["shares"] if key in ledger}


def _fewer(told: Mapping[str, tuple[int, int]], wanted: Mapping[str, tuple[int, int]]) -> bool:
    """Whether no share is told that is not wanted, and none has more vreplicas."""
    return all(
        key in wanted and weight == wanted[key][1] and count <= wanted[key][0]
        for key, (count, weight) in told.items()
    )


def _counts(told: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    return {key: (one["vreplicas"], one["weight"]) for key, one in told["shares"].items()}
