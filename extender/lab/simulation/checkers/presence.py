"""Since when each pod has not been Ready on a Ready node, as the store says: what
rescheduleAfterSeconds counts.

For an ordinal's name, not for one pod: the next incarnation goes on with the absence of the last. A
view that is late makes an absence longer or shorter than it was, by as much as it is late.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from extender.lab.simulation.world.facts import Pod

ROUNDED_S: Final = 1.5
"""Conditions tell whole seconds, and are written a moment after they became true."""


@dataclass
class Presence:
    """Pods by name. ``longest`` asks how long one has been absent at a stretch."""

    clock: Callable[[], float]
    ready_nodes: set[str] = field(default_factory=set)
    _absent_since: dict[str, float] = field(default_factory=dict)
    """Of those that have been present once, and are not."""
    _ended: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """(began, ended) of absences that are over."""
    _present: set[str] = field(default_factory=set)

    def pod_seen(self, pod: Pod) -> None:
        """It was written."""
        self._note(pod.name, pod.ready and pod.node in self.ready_nodes)

    def pod_gone(self, name: str) -> None:
        """It was removed."""
        self._note(name, present=False)

    def node_seen(self, name: str, *, ready: bool, pods: Iterable[Pod]) -> None:
        """A node was written, or removed (which is not Ready), with ``pods`` of all nodes."""
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
        """Whether it has been absent all the time since ``before``, or has never been there."""
        return name not in self._present and self._absent_since.get(name, -inf) <= before

    def was_there(self, name: str, since: float) -> bool:
        """Whether it has been present all the time since then."""
        return name in self._present and all(
            ended < since for _, ended in self._ended.get(name, ())
        )

    def longest(self, name: str, since: float) -> float:
        """Seconds of its longest absence that was not over at ``since``; -1 if it was present all
        the time.
        """
        if name not in self._present and name not in self._absent_since:
            return inf  # it has never been there
        lasted = [ended - began for began, ended in self._ended.get(name, ()) if ended >= since]
        if name in self._absent_since:
            lasted.append(self.clock() - self._absent_since[name])
        return max(lasted, default=-1.0)
