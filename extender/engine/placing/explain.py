"""Why a decision is what it is: the steps of a plan, in the words that users read.

Every ``Decision`` has one ``Explanation``. It is data, so ``/state.json``, events and the command
line can each show it in their own way. ``sentences`` is text for people.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from extender.model.counted import counted_are
from extender.model.moves import MoveReason
from extender.model.reasons import ConflictReason
from extender.model.tenancy import NotAdmitted

STEPS_REMEMBERED: Final = 1 << 16
"""Size of the cache of ``added``. Most decisions consist of such steps."""


class Step(StrEnum):
    """What was done with some vreplicas on one pod."""

    DROPPED = "dropped"
    TRIMMED = "trimmed"
    REMOVED = "removed"
    ADDED = "added"
    HELD_BACK = "kept until there is room elsewhere"
    STAYS = "kept until a move is tried again"
    MOVED_AWAY = "moved away"


class Reasoning(NamedTuple):
    """One step: ``vreplicas`` on ``pod_name``, and why ("" where the step says it all)."""

    step: Step
    pod_name: str
    vreplicas: int
    why: str = ""
    reason: MoveReason | None = None
    """Set if the vreplicas leave the pod although the vpod still wants them (I4)."""


@lru_cache(maxsize=STEPS_REMEMBERED)
def added(pod_name: str, vreplicas: int) -> Reasoning:
    """The step that adds vreplicas to a pod. Equal steps are mostly one object."""
    return Reasoning(Step.ADDED, pod_name, vreplicas)


class Explanation(NamedTuple):
    """The steps and the outcome of a decision. ``refused``: for pending vreplicas, (reason text,
    number of pods that gave it).
    """

    wanted: int
    """vreplicas wanted, after raising to minPodsPerVPod."""
    steps: tuple[Reasoning, ...]
    pending: int
    """vreplicas without a place."""
    reason: ConflictReason | None
    """Why the vpod is not placed as it asks. If none is pending: why nobody looks after what
    is placed (``POOL_NOT_FOUND``).
    """
    refused: tuple[tuple[str, int], ...] = ()
    detail: str = ""
    """More about the reason, or how a plugin failed; "" if there is nothing to say."""
    not_admitted: NotAdmitted | None = None
    """Set if the pool's tenancy does not admit all that the vpod asks for."""

    @property
    def asked(self) -> int:
        """``wanted``, and what is not admitted."""
        left_out = self.not_admitted.vreplicas if self.not_admitted is not None else 0
        return self.wanted + max(0, left_out)

    @property
    def exceeds_quota(self) -> bool:
        """Whether all that is admitted has a place, and the vpod asks for more."""
        return self.is_satisfied and self.asked > self.wanted

    @property
    def told_reason(self) -> ConflictReason | None:
        """The reason that users read: ``reason``, or why not all is admitted."""
        if self.exceeds_quota and self.not_admitted is not None:
            return self.not_admitted.reason
        return self.reason

    @property
    def is_satisfied(self) -> bool:
        """Whether every vreplica that is admitted has a place, in a pool that exists."""
        return not self.pending and self.reason is None

    def sentences(self) -> Iterator[str]:
        """One line for each step, then the outcome."""
        for item in self.steps:
            yield f"{item.step}: {item.vreplicas} on {item.pod_name}" + (
                f" ({item.why})" if item.why else ""
            )
        yield self.outcome()

    def outcome(self) -> str:
        """``all 8 vreplicas are placed``, or how many are not and why, as in FailedScheduling
        events.
        """
        if self.asked > self.wanted and self.not_admitted is not None:
            placed = self._replace(not_admitted=None).outcome() + "; " if self.wanted else ""
            return (
                f"{placed}{self.not_admitted.vreplicas} of {counted_are(self.asked, 'vreplica')} "
                f"not admitted ({self.not_admitted.reason}): {self.not_admitted.why}"
            )
        if not self.pending and self.reason is not None:
            stands = (
                _all_of(self.wanted, "stays where it is", "stay where they are")
                if self.wanted
                else "nothing is placed"
            )
            return f"{stands} ({self.reason})" + (f": {self.detail}" if self.detail else "")
        if not self.pending:
            return _all_of(self.wanted, "is placed", "are placed") + (
                f"; {self.detail}" if self.detail else ""
            )
        pods = sum(count for _, count in self.refused)
        why = ", ".join(f"{count} {text}" for text, count in self.refused)
        detail = (
            f": {self.detail}"
            if self.detail
            else f": 0/{pods} pods have room: {why}"
            if pods
            else ""
        )
        return (
            f"{self.pending} of {counted_are(self.wanted, 'vreplica')} not placed "
            f"({self.reason}){detail}"
        )


def _all_of(number: int, one: str, many: str) -> str:
    return f"1 vreplica {one}" if number == 1 else f"all {number} vreplicas {many}"
