"""Which of the decided moves a status publishes: those that really leave a pod with it (I4)."""

import pytest
from hypothesis import given, strategies as st

from extender.model.moves import Move, MoveReason, moves_made


def a_move(vreplicas: int, source: str, to: str = "") -> Move:
    return Move("tenant/a", source, to, vreplicas, MoveReason.COMPACTION)


THREE = [a_move(1, "a", "b"), a_move(1, "a", "c"), a_move(1, "a", "d")]


@pytest.mark.parametrize(
    ("before", "after", "made"),
    [
        pytest.param({"a": 3}, {"b": 1, "c": 1, "d": 1}, THREE, id="all"),
        pytest.param(
            {"a": 3}, {"a": 1, "c": 1, "d": 1}, THREE[1:], id="one ledger was not written"
        ),
        pytest.param(
            {"a": 1, "c": 1, "d": 1}, {"b": 1, "c": 1, "d": 1}, THREE[:1], id="what was left over"
        ),
        pytest.param(
            {"a": 3}, {"c": 1}, [THREE[1], THREE[0], THREE[2]], id="left, and has not come yet"
        ),
        pytest.param({"b": 1, "c": 1, "d": 1}, {"b": 1, "c": 1, "d": 1}, [], id="told before"),
        pytest.param({"b": 2}, {}, [], id="another pod is left"),
        pytest.param({"a": 1}, {"b": 4}, THREE[:1], id="more come than leave"),
    ],
)
def test_a_status_tells_what_leaves_with_it(
    before: dict[str, int], after: dict[str, int], made: list[Move]
):
    assert list(moves_made(THREE, before, after, wanted=sum(before.values()))) == made


@pytest.mark.parametrize(
    ("before", "after", "wanted", "made"),
    [
        pytest.param({"a": 3}, {}, 0, [], id="none"),
        pytest.param({"a": 3}, {}, 2, THREE[:2], id="two, which have no place"),
        pytest.param({"a": 3}, {"c": 1}, 1, [THREE[1]], id="one, which has come"),
        pytest.param({"a": 2, "x": 2}, {"a": 1}, 1, [], id="one, and it stays"),
        pytest.param(
            {"a": 2, "x": 2}, {"a": 1, "x": 2}, 4, THREE[:1], id="all, and one has no place"
        ),
        pytest.param({"a": 1}, {}, 9, THREE[:1], id="more than there were"),
    ],
)
def test_what_nobody_wants_any_more_is_not_told_as_moved(
    before: dict[str, int], after: dict[str, int], wanted: int, made: list[Move]
):
    """Seeds 315000081 and 312000120: scaled to nothing, a vpod was told a move that had been
    decided before, or a trim.
    """
    assert list(moves_made(THREE, before, after, wanted=wanted)) == made


PLACEMENTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 4))
MOVES = st.lists(
    st.builds(
        a_move, st.integers(1, 4), st.sampled_from("abc"), st.sampled_from(["a", "b", "c", ""])
    )
)


@given(MOVES, PLACEMENTS, PLACEMENTS)
def test_no_more_is_told_than_leaves_nor_than_was_decided_and_no_less_than_both(
    moves: list[Move], before: dict[str, int], after: dict[str, int]
):
    made = list(moves_made(moves, before, after, wanted=sum(before.values())))
    for name in "abc":
        told = sum(move.vreplicas for move in made if move.from_pod == name)
        decided = sum(move.vreplicas for move in moves if move.from_pod == name)
        assert told == max(0, min(decided, before.get(name, 0) - after.get(name, 0)))
