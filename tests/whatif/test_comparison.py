"""How another scheduler's answer is called, and what counts as a move."""

import pytest
from hypothesis import given, strategies as st

from extender.whatif.comparison import Outcome, compare, moved

placements = st.dictionaries(st.sampled_from(["d-0", "d-1", "d-2"]), st.integers(1, 4))


@pytest.mark.parametrize(
    ("before", "ours", "theirs", "outcome"),
    [
        pytest.param({}, {}, {}, Outcome.SAME, id="nothing"),
        pytest.param({"d-0": 1}, {"d-0": 2}, {"d-0": 2}, Outcome.SAME, id="same"),
        pytest.param(
            {"d-0": 1}, {"d-0": 1, "d-1": 1}, {"d-0": 2}, Outcome.OTHER_PODS, id="grown-elsewhere"
        ),
        pytest.param(
            {"d-0": 3, "d-1": 3},
            {"d-0": 3},
            {"d-1": 3},
            Outcome.OTHER_PODS,
            id="shrunk-from-the-other-end",
        ),
        pytest.param({"d-0": 3}, {"d-0": 3}, {"d-1": 3}, Outcome.OTHER_MOVED, id="moved"),
        pytest.param(
            {"d-0": 3},
            {"d-0": 3, "d-1": 2, "d-2": 1},
            {"d-1": 3, "d-2": 3},
            Outcome.OTHER_MOVED,
            id="placed-afresh-on-growth",
        ),
        pytest.param({"d-0": 3}, {"d-0": 3}, {"d-1": 2}, Outcome.OTHER_MOVED, id="moved-and-fewer"),
        pytest.param(
            {"d-0": 3}, {"d-1": 3}, {"d-2": 3}, Outcome.OTHER_PODS, id="we-would-have-moved-it-too"
        ),
        pytest.param({}, {"d-0": 2, "d-1": 2}, {"d-0": 3}, Outcome.WOULD_PLACE_MORE, id="fewer"),
        pytest.param({}, {"d-0": 2}, {"d-0": 3}, Outcome.WOULD_PLACE_LESS, id="more"),
        pytest.param({"d-0": 3}, {"d-0": 3}, {}, Outcome.WOULD_PLACE_MORE, id="all-taken-away"),
    ],
)
def test_an_answer_is_called_by_what_is_worst_about_it(before, ours, theirs, outcome):
    assert compare(before, ours, theirs, overcommits=False) is outcome
    assert compare(before, ours, theirs, overcommits=True) is Outcome.OVERCOMMITTED


@pytest.mark.parametrize(
    ("before", "after", "wanted", "vreplicas"),
    [
        pytest.param({"d-0": 3}, {"d-0": 1, "d-1": 2}, 3, 2, id="moved"),
        pytest.param({"d-0": 3, "d-1": 3}, {"d-1": 3}, 3, 0, id="only-fewer"),
        pytest.param({"d-0": 3}, {"d-0": 3, "d-1": 5}, 8, 0, id="only-more"),
        pytest.param({"d-0": 3, "d-1": 1}, {"d-2": 2}, 2, 2, id="fewer-and-moved"),
        pytest.param({"d-0": 2}, {}, 2, 2, id="without-a-place-and-wanted"),
        pytest.param({"d-0": 2}, {}, 0, 0, id="without-a-place-and-not-wanted"),
    ],
)
def test_what_left_a_pod_and_is_still_wanted_has_moved(before, after, wanted, vreplicas):
    assert moved(before, after, wanted=wanted) == vreplicas


@given(placements, placements, placements)
def test_who_keeps_everything_has_moved_nothing(before, ours, theirs):
    kept = {name: max(theirs.get(name, 0), count) for name, count in before.items()} | {
        name: count for name, count in theirs.items() if name not in before
    }
    assert moved(before, kept) == 0
    assert compare(before, ours, kept, overcommits=False) is not Outcome.OTHER_MOVED


@given(placements, placements)
def test_an_answer_equal_to_ours_is_the_same_whatever_was_before(before, answer):
    assert compare(before, answer, dict(answer), overcommits=False) is Outcome.SAME
