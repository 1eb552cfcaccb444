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


def test_a_share_is_cut_to_what_a_dimension_has_left():
    hungry, large = Share(3, 1, (("cpu", 2),)), Share(3, 1, (("memory", 2),))
    ledger = within_slots(9, {A: hungry, B: large}, capacities=(("cpu", 5), ("memory", 9)))
    assert ledger == {A: hungry._replace(vreplicas=2), B: large}


def test_a_dimension_that_the_pool_lacks_cuts_nothing():
    share = Share(3, 1, (("gpu", 2),))
    assert within_slots(9, {A: share}, capacities=(("cpu", 1),)) == {A: share}


SOURCES = st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), max_size=3)


@given(
    st.integers(0, 30),
    st.lists(SOURCES, max_size=3),
    st.fixed_dictionaries({key: st.integers(1, 4) for key in "abc"}),
    st.fixed_dictionaries({key: st.integers(0, 3) for key in "abc"}),
    st.integers(1, 20),
)
def test_never_more_than_the_pod_has_and_nothing_cut_while_a_whole_vreplica_fits(
    slots, sources, weights, amounts, cpu
):
    each = {key: (("cpu", amount),) if amount else () for key, amount in amounts.items()}
    shares = [
        {key: Share(count, weights[key], each[key]) for key, count in source.items()}
        for source in sources
    ]
    ledger = within_slots(slots, *shares, capacities=(("cpu", cpu),))
    free = slots - ledger_slots(ledger)
    left = cpu - sum(share.vreplicas * amounts[key] for key, share in ledger.items())
    assert free >= 0
    assert left >= 0
    for key in {key for source in sources for key in source}:
        wanted = max(source.get(key, 0) for source in sources)
        given_ = ledger[key].vreplicas if key in ledger else 0
        assert given_ == wanted or (
            given_ < wanted and (free < weights[key] or left < amounts[key])
        )
