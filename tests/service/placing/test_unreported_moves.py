"""Moves of a status whose write was not answered."""

from extender.engine.placing.explain import Explanation, Reasoning, Step
from extender.engine.placing.plan import Decision
from extender.model.moves import MoveReason
from extender.service.placing.unreported_moves import UnreportedMoves
from tests.support.builders import POOL

ADDED = Reasoning(Step.ADDED, "dispatcher-1", 1)
LEFT = Reasoning(Step.MOVED_AWAY, "dispatcher-0", 1, "Drain", MoveReason.DRAIN)


def decision(uid: str, *steps: Reasoning) -> Decision:
    story = Explanation(1, steps, 0, None)
    return Decision("tenant/a", POOL, {"dispatcher-1": 1}, 1, 0, story, (uid, 1))


def reported(before: str, now: str) -> list[str]:
    """Reasons that a decision reports after another one's status had no answer. ``before``,
    ``now``: UIDs of their vpods.
    """
    moves = UnreportedMoves()
    moves.remember(decision(before, LEFT, ADDED), {"dispatcher-0": 1})
    return [str(move.reason) for move in moves.reported(decision(now, ADDED)).moves]


def test_the_next_decision_of_the_vpod_reports_them():
    assert reported("uid", "uid") == ["Drain"]


def test_so_does_that_of_its_end():
    assert reported("uid", "") == ["Drain"]


def test_another_vpod_of_its_name_has_not_made_them():
    assert reported("old", "new") == []
