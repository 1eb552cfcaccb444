"""Taints of nodes and tolerations of pods (component-helpers' and api's TolerationsTolerateTaint).

The operators Lt and Gt are alpha in 1.36 and off. As there, a toleration with one of them tolerates
nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Toleration:
    """A v1.Toleration. ``operator`` "" means Equal."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Taint:
    """A v1.Taint."""

    key: str
    value: str
    effect: str

    def tolerated_by(self, tolerations: Iterable[Toleration]) -> bool:
        """Return whether any of the tolerations tolerates it (TolerationsTolerateTaint)."""
        return any(self._tolerated(toleration) for toleration in tolerations)

    def _tolerated(self, toleration: Toleration) -> bool:
        if toleration.effect and toleration.effect != self.effect:
            return False
        if toleration.key and toleration.key != self.key:
            return False
        if toleration.operator in {"", "Equal"}:
            return toleration.value == self.value
        return toleration.operator == "Exists"


DO_NOT_SCHEDULE_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})


def untolerated_taint(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """Return the first NoSchedule or NoExecute taint that the tolerations do not cover; None if
    there is none.
    """
    tolerations = tuple(tolerations)
    for taint in taints:
        if taint.effect in DO_NOT_SCHEDULE_EFFECTS and not taint.tolerated_by(tolerations):
            return taint
    return None
