"""``UntoldMoves``: why vpods were moved by status writes of which nobody knows whether they have arrived.

Such a decision stays reserved, so the next one starts from it and cannot know why something has moved. Its reasons are
kept here until a status has been written and the move can be told (I4).
"""

from dataclasses import replace
from typing import Final

from extender.core.explain import Reasoning, Step
from extender.core.plan import Decision

STEPS_MAX: Final = 100
"""Of one vpod; the oldest go first."""


class UntoldMoves:
    """Steps by vpod key."""

    def __init__(self) -> None:
        self._steps: dict[str, tuple[Reasoning, ...]] = {}

    def remember(self, decision: Decision) -> None:
        """Keep the moves of a decision whose status may or may not have been written."""
        if decision.moves:
            moving = (s for s in decision.explanation.steps if s.reason is not None or s.step is Step.ADDED)
            self._steps[decision.vpod] = (*self._steps.get(decision.vpod, ()), *moving)[-STEPS_MAX:]

    def telling(self, decision: Decision) -> Decision:
        """The decision with the reasons of earlier ones that have not been told."""
        steps = self._steps.get(decision.vpod)
        if not steps:
            return decision
        explanation = replace(decision.explanation, steps=(*steps, *decision.explanation.steps))
        return replace(decision, explanation=explanation)

    def told(self, decision: Decision) -> Decision:
        """As ``telling``, for the last time: the decision has been written and is told now."""
        telling = self.telling(decision)
        self._steps.pop(decision.vpod, None)
        return telling
