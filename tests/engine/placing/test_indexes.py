"""Indexes of an Indexed pool: which stay, which move, and that no two pods end up with the same."""

import tracemalloc
from collections.abc import Mapping
from itertools import permutations

import pytest
from hypothesis import given, strategies as st

from extender.engine.placing.indexes import indexes_at_rest, told_next
from extender.model.indexes import indexes_from, indexes_text

A, B, C = "dispatcher-0", "dispatcher-1", "dispatcher-2"


def at_rest(told: Mapping[str, str], placed: Mapping[str, int], of: int) -> dict[str, str]:
    sets = {name: indexes_from(text) for name, text in told.items()}
    return {name: indexes_text(one) for name, one in indexes_at_rest(sets, placed, of).items()}


@pytest.mark.parametrize(
    ("told", "placed", "of", "expected"),
    [
        pytest.param({}, {A: 2, B: 3}, 5, {A: "0-1", B: "2-4"}, id="first"),
        pytest.param({A: "0-1", B: "2-4"}, {A: 2, B: 3}, 5, {A: "0-1", B: "2-4"}, id="same"),
        pytest.param({A: "0-1", B: "2-4"}, {A: 4, B: 3}, 7, {A: "0-1,5-6", B: "2-4"}, id="grown"),
        pytest.param({A: "0-1", B: "2-4"}, {A: 2, B: 1}, 3, {A: "0-1", B: "2"}, id="shrunk"),
        pytest.param(
            {A: "0-1", B: "2-4"}, {A: 1, B: 3}, 4, {A: "0", B: "1-3"}, id="shrunk below an index"
        ),
        pytest.param({A: "0-2"}, {A: 1, C: 2}, 3, {A: "0", C: "1-2"}, id="a part moves"),
        pytest.param(
            {A: "0-2", C: "1"}, {A: 2, C: 1}, 3, {A: "0,2", C: "1"}, id="a part is being told"
        ),
        pytest.param({A: "0-2", C: "1"}, {A: 3}, 3, {A: "0-2"}, id="the part has been taken back"),
        pytest.param({A: "0-1", C: "0-1"}, {C: 2}, 2, {C: "0-1"}, id="all are being told"),
        pytest.param({A: "0-1", B: "1-2"}, {A: 2, B: 2}, 4, {A: "0-1", B: "2-3"}, id="told twice"),
        pytest.param({A: "4"}, {A: 2}, 8, {A: "0,4"}, id="fewer are placed than asked for"),
        pytest.param({A: "0-3"}, {A: 4}, 2, {A: "0-3"}, id="the vpod has begun to shrink"),
        pytest.param(
            {"dispatcher-10": "0"},
            {B: 1, "dispatcher-10": 1},
            2,
            {B: "1", "dispatcher-10": "0"},
            id="ordinals",
        ),
    ],
)
def test_the_indexes_of_a_vpod(
    told: Mapping[str, str], placed: Mapping[str, int], of: int, expected: Mapping[str, str]
):
    assert at_rest(told, placed, of) == expected


@pytest.mark.parametrize(
    ("had", "rest", "count", "expected"),
    [
        pytest.param("", "0-2", 3, "0-2", id="new"),
        pytest.param("0-1", "0-3", 2, "0-1", id="the ledger has not grown yet"),
        pytest.param("3", "0-3", 2, "0,3", id="it has grown by one"),
        pytest.param("0-3", "0,2", 4, "0-3", id="the ledger has not shrunk yet"),
        pytest.param("0-3", "0,2", 3, "0-2", id="it has shrunk by one"),
        pytest.param("0-3", "0,2", 2, "0,2", id="it has shrunk"),
        pytest.param("0-3", "", 4, "0-3", id="all leave"),
        pytest.param("", "0", 3, "0", id="nobody knows which leave"),
    ],
)
def test_what_a_pod_is_told(had: str, rest: str, count: int, expected: str):
    told = told_next(indexes_from(had), indexes_from(rest), count)
    assert indexes_text(told) == expected


PODS = (A, B, C)
counts = st.fixed_dictionaries({name: st.integers(0, 4) for name in PODS})
any_sets = st.fixed_dictionaries({name: st.integers(0, 2**12 - 1) for name in PODS})


@given(told=any_sets, placed=counts, more=st.integers(0, 3))
def test_whatever_was_told_the_sets_are_disjoint_and_complete(
    told: Mapping[str, int], placed: Mapping[str, int], more: int
):
    of = sum(placed.values()) + more
    found = indexes_at_rest(told, placed, of)
    assert {name: one.bit_count() for name, one in found.items()} == {
        name: count for name, count in placed.items() if count
    }
    assert sum(found.values()) == _union(found) < 1 << of
    assert indexes_at_rest(found, placed, of) == found


@given(owners=st.lists(st.sampled_from([*PODS, ""]), max_size=6), placed=counts)
def test_as_few_indexes_move_as_brute_force_finds(owners: list[str], placed: Mapping[str, int]):
    """From sets without overlap, as they are at rest."""
    told = {
        name: sum(1 << index for index, owner in enumerate(owners) if owner == name)
        for name in PODS
    }
    placed = {name: min(count, 2) for name, count in placed.items()}
    of = sum(placed.values())
    found = indexes_at_rest(told, placed, of)
    assert _kept(told, found) == max(
        _kept(told, other)
        for other in _all_ways([name for name in PODS for _ in range(placed[name])])
    )


@given(told=any_sets, placed=counts, ledger=counts)
def test_a_pod_is_told_no_more_than_its_ledger_has(
    told: Mapping[str, int], placed: Mapping[str, int], ledger: Mapping[str, int]
):
    rest = indexes_at_rest(told, placed, sum(placed.values()))
    for name, count in ledger.items():
        mine = rest.get(name, 0)
        now = told_next(told[name], mine, count)
        assert now.bit_count() == min(count, (mine | told[name]).bit_count())
        assert now & ~(mine | told[name]) == 0
        if count >= mine.bit_count():
            assert now & mine == mine


def test_a_vpod_that_asks_for_two_billion_costs_no_memory():
    tracemalloc.start()
    try:
        found = at_rest({A: "0-1"}, {A: 2, B: 2}, 2**31 - 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == {A: "0-1", B: "2-3"}
    assert peak < 1_000_000


def _union(sets: Mapping[str, int]) -> int:
    found = 0
    for one in sets.values():
        found |= one
    return found


def _kept(told: Mapping[str, int], found: Mapping[str, int]) -> int:
    return sum((told[name] & one).bit_count() for name, one in found.items())


def _all_ways(slots: list[str]) -> list[dict[str, int]]:
    ways = []
    for order in set(permutations(slots)):
        way = dict.fromkeys(PODS, 0)
        for index, name in enumerate(order):
            way[name] |= 1 << index
        ways.append(way)
    return ways
