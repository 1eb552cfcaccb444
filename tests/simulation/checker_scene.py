"""Changes made by hand, for the checkers to look at: pods, vpods, pools and nodes as the API server
would store them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec

import orjson

from extender.kube.api import Obj
from extender.lab.apiserver.store import Change, Entry
from extender.lab.clock import EPOCH_S, run_virtual
from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.all import Checkers
from extender.lab.simulation.checkers.excuses import Circumstances
from extender.lab.simulation.world.facts import PLACEMENTS, POOL, SLOTS
from extender.model.names import ZONE_LABEL

P = ParamSpec("P")

REPLICA = "replica-1"
PERSON = ""


class CheckerScene:
    """The store as the checkers see it. Every method is one write, by ``actor``; ``found`` is what
    they say of it.
    """

    def __init__(self, **of_checkers: Any) -> None:
        self.checkers = Checkers(circumstances=Circumstances(**of_checkers))
        self._objects: dict[tuple[str, str], Obj] = {}
        self._versions = 0

    @property
    def found(self) -> list[str]:
        """What was found since it was last asked, without its time."""
        found = [line.partition(" s: ")[2] for line in self.checkers.violations]
        self.checkers.violations.clear()
        return found

    def write(self, plural: str, name: str, obj: Obj | None, actor: str = REPLICA) -> None:
        """None: it is deleted."""
        self._versions += 1
        before = self._objects.get((plural, name))
        if obj is None:
            del self._objects[(plural, name)]
        else:
            self._objects[(plural, name)] = obj
        token = ACTOR.set(actor)
        try:
            self.checkers.on_change(
                ("", plural), Change(self._versions, _entry(before), _entry(obj))
            )
        finally:
            ACTOR.reset(token)

    def pool(self, name: str = "a", *, slots: int = 4, ordinals: int = 2, **spec: Any) -> None:
        """An AdapterPool with its StatefulSet. No pod of these scenes is Ready, and by default none
        is given up for it.
        """
        obj = {
            "metadata": {"name": name},
            "spec": {"slotsPerPod": slots, "rescheduleAfterSeconds": None, **spec},
        }
        self.write("adapterpools", name, obj, PERSON)
        self.scale(ordinals, name, actor=PERSON)

    def scale(self, replicas: int, name: str = "a", *, actor: str = REPLICA) -> None:
        """A StatefulSet's number of pods."""
        obj = {"metadata": {"name": name}, "spec": {"replicas": replicas}}
        self.write("statefulsets", name, obj, actor)

    def node(self, name: str, zone: str) -> None:
        """A node that declares no slots."""
        obj = {"metadata": {"name": name, "labels": {ZONE_LABEL: zone}}, "spec": {}, "status": {}}
        self.write("nodes", name, obj, PERSON)

    def pod(
        self,
        name: str,
        ledger: Mapping[str, Any] | str | None,
        *,
        actor: str = REPLICA,
        node: str = "n",
        slots: int = 4,
        uid: str = "1",
    ) -> None:
        """A pod of the pool that its name tells, bound to a node or (node "") not; as Ready as it
        was.
        """
        known = self._objects.get(("pods", name), {})
        obj = pod_object(name, ledger, node=node, slots=slots, uid=uid)
        self.write("pods", name, {**obj, "status": known.get("status", {})}, actor)

    def vpod(
        self,
        name: str,
        wanted: int,
        placements: Mapping[str, int],
        *,
        actor: str = REPLICA,
        moved: tuple[str, str] = ("", ""),
        weight: int = 1,
        pool: str = "a",
    ) -> None:
        """``moved``: message and time of its Moved condition. What is not all placed is not
        Scheduled.
        """
        placed = sum(placements.values())
        conditions: list[Obj] = [
            {"type": "Scheduled", "status": str(placed == wanted), "reason": "AllPlaced"},
            # No pod of these scenes is Ready.
            {
                "type": "Available",
                "status": "False",
                "reason": "PodNotReady" if placed else "NotAllPlaced",
            },
        ]
        if moved[0]:
            conditions.append(
                {
                    "type": "Moved",
                    "reason": "x",
                    "message": moved[0],
                    "lastTransitionTime": moved[1],
                }
            )
        status = {
            "observedGeneration": 1,
            "scheduledVReplicas": placed,
            "readyVReplicas": 0,
            "placements": [
                {"podName": pod, "vreplicas": count} for pod, count in placements.items()
            ],
            "conditions": conditions,
        }
        spec = {"poolRef": {"name": pool}, "vreplicas": wanted, "slotsPerVReplica": weight}
        metadata = {"namespace": "t", "name": name, "uid": name, "generation": 1}
        self.write("vpods", name, {"metadata": metadata, "spec": spec, "status": status}, actor)


def pod_object(
    name: str,
    ledger: Mapping[str, Any] | str | None,
    *,
    node: str = "n",
    slots: int = 4,
    uid: str = "1",
) -> Obj:
    """A pod as stored. ``ledger``: text as it is, or vpod -> vreplicas; None: no annotation."""
    annotations = {SLOTS: str(slots)}
    if ledger is not None:
        annotations[PLACEMENTS] = (
            ledger if isinstance(ledger, str) else orjson.dumps(ledger).decode()
        )
    return {
        "metadata": {
            "name": name,
            "uid": uid,
            "labels": {POOL: name.rpartition("-")[0]},
            "annotations": annotations,
        },
        "spec": {"nodeName": node} if node else {},
    }


def stamp(at_s: float) -> str:
    """The time of a condition, at virtual time ``at_s``."""
    return f"{datetime.fromtimestamp(EPOCH_S + at_s, UTC).isoformat(timespec='seconds')[:-6]}Z"


def in_virtual_time(play: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """An async test that runs in virtual time."""

    @wraps(play)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(play(*args, **kwargs))

    return run


async def later(seconds: float) -> None:
    """Let time pass."""
    await asyncio.sleep(seconds)


def _entry(obj: Obj | None) -> Entry | None:
    return None if obj is None else Entry(("", obj["metadata"]["name"]), 1, b"", obj)
