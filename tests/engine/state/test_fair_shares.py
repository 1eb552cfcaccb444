"""Shares of tenants: what is guaranteed first, then by weight, and never more than is asked for."""

from hypothesis import given, strategies as st

from extender.engine.state.fair_shares import TenantDemand, fair_shares


def shares_of(slots: int, **tenants: TenantDemand | int) -> dict[str, int]:
    """``tenants``: name -> its demand, or more about it."""
    demands = [
        TenantDemand(name, one) if isinstance(one, int) else one._replace(tenant=name)
        for name, one in tenants.items()
    ]
    return fair_shares(demands, slots)


def wanting(demand: int, **fields: int) -> TenantDemand:
    return TenantDemand("", demand, **fields)


def test_a_greedy_tenant_leaves_the_others_what_they_ask_for():
    assert shares_of(200, greedy=2**31 - 1, a=2, b=2, c=2) == {
        "greedy": 194,
        "a": 2,
        "b": 2,
        "c": 2,
    }


def test_tenants_that_all_want_more_get_the_same():
    assert shares_of(90, a=100, b=40, c=50) == {"a": 30, "b": 30, "c": 30}


def test_what_a_modest_tenant_leaves_is_shared_by_the_others():
    assert shares_of(90, a=100, b=10, c=50) == {"a": 40, "b": 10, "c": 40}


def test_a_tenant_gets_by_its_weight():
    found = shares_of(90, a=wanting(100, weight=2), b=100)
    assert found == {"a": 60, "b": 30}


def test_a_guarantee_comes_before_shares():
    found = shares_of(100, a=wanting(100, guarantee=60), b=100)
    assert found == {"a": 80, "b": 20}


def test_a_guarantee_that_is_not_asked_for_is_there_for_others():
    found = shares_of(100, a=wanting(10, guarantee=60), b=200)
    assert found == {"a": 10, "b": 90}


def test_guarantees_beyond_the_pool_shrink_in_proportion():
    found = shares_of(60, a=wanting(90, guarantee=80), b=wanting(90, guarantee=40), c=9)
    assert found == {"a": 40, "b": 20, "c": 0}


def test_a_slot_left_after_rounding_goes_to_the_greatest_weight_and_then_by_name():
    assert shares_of(10, a=9, b=9, c=9) == {"a": 4, "b": 3, "c": 3}
    assert shares_of(9, a=9, b=9, c=wanting(9, weight=2)) == {"a": 2, "b": 2, "c": 5}


a_demand = st.builds(
    TenantDemand,
    tenant=st.uuids().map(str),
    demand=st.integers(0, 60),
    guarantee=st.integers(0, 30),
    weight=st.integers(1, 5),
)


@given(st.lists(a_demand, max_size=8), st.integers(0, 150))
def test_all_slots_that_are_asked_for_are_shared_out(demands, slots):
    found = fair_shares(demands, slots)
    assert sum(found.values()) == min(slots, sum(one.demand for one in demands))
    assert all(0 <= found[one.tenant] <= one.demand for one in demands)


@given(st.lists(a_demand, max_size=8), st.integers(0, 150))
def test_nobody_with_less_for_its_weight_waits(demands, slots):
    """Max-min fairness: who waits has no less beyond its guarantee, for its weight, than anybody
    else. Only rounding, of less than a slot, may differ.
    """
    guaranteed = sum(min(one.guarantee, one.demand) for one in demands)
    if guaranteed > slots:
        return
    found = fair_shares(demands, slots)
    extra = {one.tenant: found[one.tenant] - min(one.guarantee, one.demand) for one in demands}
    for one in demands:
        assert extra[one.tenant] >= 0
        if found[one.tenant] < one.demand:
            for other in demands:
                # With one slot less, the other would have no more for its weight than this one.
                assert (extra[other.tenant] - 1) * one.weight < (
                    extra[one.tenant] + 1
                ) * other.weight
