"""What sequences of moves can place, in pools that are small enough to see it."""

import pytest

from tests.quality.sequences import least_waiting


@pytest.mark.parametrize(
    ("held", "missing", "left"),
    [
        pytest.param([{14: 1, 1: 6}], {1: 1}, 1, id="full"),
        pytest.param([{1: 14}, {1: 14}], {7: 1}, 0, id="one move is enough"),
        pytest.param([{10: 1, 4: 1}, {10: 1, 4: 1}], {8: 2}, 1, id="for one of two"),
        pytest.param([{13: 1}, {13: 1}], {8: 1}, 1, id="nothing has room elsewhere"),
        pytest.param([{20: 1}, {20: 1}, {}], {20: 1}, 0, id="without a move"),
    ],
)
def test_the_fewest_that_wait(held, missing, left):
    assert least_waiting(held, missing).value == left
    assert least_waiting(held, missing).proven


def test_alike_pods_of_which_one_gives_to_the_other():
    assert least_waiting([{9: 1, 3: 1}, {9: 1, 3: 1}], {11: 1}).value == 0
