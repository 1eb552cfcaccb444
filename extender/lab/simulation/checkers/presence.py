"""How long each pod has not been Ready on a Ready node, by the store. rescheduleAfterSeconds counts
this time.

The time counts by ordinal name, not by pod: the next pod of the name continues the absence of the
last one. A late view makes an absence longer or shorter by its delay.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from extender.lab.simulation.world.facts import Pod

ROUNDED_S: Final = 1.5
"""Conditions have whole seconds, and are written a moment after they became true."""


@dataclass
class Presence:
    """Presence of pods by name. ``longest`` returns the length of an absence."""

    clock: Callable[[], float]
    ready_nodes: set[str] = field(default_factory=set)
    _absent_since: dict[str, float] = field(default_factory=dict)
    """Pods that were present once, and are absent."""
    _ended: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """(begin, end) of past absences."""
    _present: set[str] = field(default_factory=set)

    def pod_seen(self, pod: Pod) -> None:
        """A pod was written."""
        self._note(pod.name, pod.ready and pod.node in self.ready_nodes)

    def pod_gone(self, name: str) -> None:
        """A pod was removed."""
        self._note(name, present=False)

    def node_seen(self, name: str, *, ready: bool, pods: Iterable[Pod]) -> None:
        """A node was written or removed (then it is not Ready). ``pods`` are those of all nodes."""
        if ready == (name in self.ready_nodes):
            return
        (self.ready_nodes.add if ready else self.ready_nodes.discard)(name)
        for pod in pods:
            if pod.node == name:
                self.pod_seen(pod)

    def _note(self, name: str, present: bool) -> None:
        if present and name not in self._present:
            self._present.add(name)
            began = self._absent_since.pop(name, 0.0)
            self._ended.setdefault(name, []).append((began, self.clock()))
        elif not present and name in self._present:
            self._present.discard(name)
            self._absent_since[name] = self.clock()

    def is_down(self, name: str, before: float) -> bool:
        """Return whether the pod has been absent since ``before``, or was never present."""
        return name not in self._present and self._absent_since.get(name, -inf) <= before

    def was_there(self, name: str, since: float) -> bool:
        """Return whether the pod has been present all the time since then."""
        return name in self._present and all(
            ended < since for _, ended in self._ended.get(name, ())
        )

    def longest(self, name: str, since: float) -> float:
        """Return the seconds of the longest absence that lasted until ``since``; -1 if none."""
        if name not in self._present and name not in self._absent_since:
            # It was never present.
            return inf
        lasted = [ended - began for began, ended in self._ended.get(name, ()) if ended >= since]
        if name in self._absent_since:
            lasted.append(self.clock() - self._absent_since[name])
        return max(lasted, default=-1.0)
