"""``within_slots``: the one place where ledgers are cut to a pod's slots."""

import pytest
from hypothesis import given, strategies as st

from extender.model.ledger import Share, ledger_slots
from extender.node.bind_ledger import within_slots

A, B = "t/a", "t/b"


@pytest.mark.parametrize(
    ("slots", "sources", "expected"),
    [
        pytest.param(9, [{B: 3, A: 3}], {A: 3, B: 3}, id="everything fits"),
        pytest.param(4, [{B: 3, A: 3}], {A: 3, B: 1}, id="the last by key is cut"),
        pytest.param(4, [{B: 3}, {A: 3}], {B: 3, A: 1}, id="an earlier source comes first"),
        pytest.param(9, [{A: 1}, {A: 4}], {A: 4}, id="the largest of its shares"),
        pytest.param(9, [{A: 4}, {A: 1}], {A: 4}, id="also where it comes first"),
        pytest.param(3, [{A: 1, B: 1}, {A: 4}], {A: 2, B: 1}, id="as much more as fits"),
        pytest.param(0, [{A: 1}], {}, id="no slots"),
        pytest.param(5, [], {}, id="nothing stands there"),
    ],
)
def test_within_slots(slots, sources, expected):
    shares = [{key: Share(count) for key, count in source.items()} for source in sources]
    assert within_slots(slots, *shares) == {key: Share(count) for key, count in expected.items()}


def test_a_share_is_cut_to_whole_vreplicas():
    assert within_slots(7, {A: Share(3, 3), B: Share(2)}) == {A: Share(2, 3), B: Share(1)}


SOURCES = st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), max_size=3)


@given(
    st.integers(0, 30),
    st.lists(SOURCES, max_size=3),
    st.fixed_dictionaries({key: st.integers(1, 4) for key in "abc"}),
)
def test_never_more_than_the_slots_and_nothing_cut_while_a_whole_vreplica_fits(
    slots, sources, weights
):
    shares = [
        {key: Share(count, weights[key]) for key, count in source.items()} for source in sources
    ]
    ledger = within_slots(slots, *shares)
    free = slots - ledger_slots(ledger)
    assert free >= 0
    for key in {key for source in sources for key in source}:
        wanted = max(source.get(key, 0) for source in sources)
        given_ = ledger[key].vreplicas if key in ledger else 0
        assert given_ == wanted or (given_ < wanted and free < weights[key])
