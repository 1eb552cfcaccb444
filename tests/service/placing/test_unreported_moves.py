"""Moves of a status whose write was not answered."""

from extender.engine.placing.explain import Explanation, Reasoning, Step
from extender.engine.placing.plan import Decision
from extender.model.moves import Move, MoveReason
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


def test_what_leaves_after_its_new_pod_was_published_goes_to_that_pod():
    """Seed 240000907: the vpod has grown during a hand-over, so its status names both pods."""
    moves = UnreportedMoves()
    moves.remember(decision("uid", LEFT, ADDED), {"dispatcher-0": 1})
    now = moves.added_to(decision("uid"), {"dispatcher-0": 1, "dispatcher-1": 1})
    assert now.moves == (Move("tenant/a", "dispatcher-0", "dispatcher-1", 1, MoveReason.DRAIN),)


def test_what_had_no_place_does_not_get_that_of_a_later_move():
    moves = UnreportedMoves()
    lost = Reasoning(Step.DROPPED, "dispatcher-2", 1, "", MoveReason.ORDINAL_GONE)
    for steps in ((lost,), (LEFT, ADDED)):
        moves.remember(decision("uid", *steps), {"dispatcher-0": 1, "dispatcher-2": 1})
    assert [(move.from_pod, move.to_pod) for move in moves.reported(decision("uid")).moves] == [
        ("dispatcher-0", "dispatcher-1"),
        ("dispatcher-2", ""),
    ]
