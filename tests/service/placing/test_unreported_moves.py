"""Moves of a status whose write was not answered."""

from extender.engine.placing.explain import Explanation, Reasoning, Step, added
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


def grown(*, first: int, then: int, stored: int) -> tuple[list[str], list[str]]:
    """What the status and the event say after two moves have waited for adapters, the second one
    off dispatcher-2, which keeps 3. ``first``, ``then``: what dispatcher-2 is known to publish
    when the two are decided. ``stored``: what it publishes in the end.
    """
    moves = UnreportedMoves()
    moves.remember(decision("uid", LEFT, ADDED), {"dispatcher-0": 1, "dispatcher-2": first})
    evicted = Reasoning(Step.DROPPED, "dispatcher-2", 1, "", MoveReason.EVICTED)
    moves.remember(
        decision("uid", added("dispatcher-3", 1), evicted),
        {"dispatcher-0": 1, "dispatcher-1": 1, "dispatcher-2": then},
    )
    target = {"dispatcher-1": 1, "dispatcher-2": 3, "dispatcher-3": 1}
    last = decision("uid")._replace(target=target)
    status = moves.added_to(
        last, {"dispatcher-0": 1, "dispatcher-1": 1, "dispatcher-2": stored}
    ).moves
    event = moves.reported(last).moves
    return [move.sentence() for move in status], [move.sentence() for move in event]


DRAINED = "1 vreplica moved from dispatcher-0 to dispatcher-1 (Drain)"
EVICTED = "1 vreplica moved from dispatcher-2 to dispatcher-3 (Evicted)"


def test_what_leaves_a_pod_where_the_vpod_grew_after_an_earlier_move_is_told():
    """Seed 240001154: the pod keeps what it had when the earlier move was decided."""
    assert grown(first=3, then=4, stored=4) == ([DRAINED, EVICTED], [DRAINED, EVICTED])


def test_the_status_tells_it_too_if_the_reply_that_it_had_grown_was_lost():
    status, _ = grown(first=3, then=3, stored=4)
    assert status == [DRAINED, EVICTED]


def test_what_a_later_decision_leaves_where_it_was_is_not_told():
    assert grown(first=3, then=3, stored=3) == ([DRAINED], [DRAINED])
