"""Sets of indexes and their texts."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from extender.model.indexes import (
    INDEX_MAX,
    highest,
    indexes_from,
    indexes_text,
    lowest,
    ranges,
    up_to,
)

indexes = st.sets(st.integers(0, 200))


def bits(members: set[int]) -> int:
    return sum(1 << index for index in members)


@given(indexes)
def test_a_text_is_read_as_it_was_written(members: set[int]):
    assert indexes_from(indexes_text(bits(members))) == bits(members)


@given(indexes, st.integers(0, 250))
def test_the_lowest_and_the_highest_are_those_of_the_sorted_list(members: set[int], count: int):
    ascending = sorted(members)
    assert lowest(bits(members), count) == bits(set(ascending[:count]))
    assert highest(bits(members), count) == bits(set(ascending[::-1][:count]))


@given(indexes)
def test_ranges_cover_the_set_and_never_touch(members: set[int]):
    found = list(ranges(bits(members)))
    assert {index for first, last in found for index in range(first, last + 1)} == members
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))


def test_texts_are_short():
    assert indexes_text(up_to(1000)) == "0-999"
    assert indexes_text(0b100011) == "0-1,5"
    assert indexes_text(0) == ""


@pytest.mark.parametrize(
    "text",
    ["x", "-1", "1-", "3-2", "1,1", "2,1", "0-1,1", "0,", "01", f"{INDEX_MAX + 1}", "0-99999999"],
)
def test_what_is_no_set_of_indexes_is_refused(text: str):
    with pytest.raises(ValueError, match=r"^must"):
        indexes_from(text)
