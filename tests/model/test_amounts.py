"""Amounts of a pool's dimensions: read strictly, and compared with what a pod has."""

import pytest

from extender.model.amounts import DIMENSIONS_MAX, amounts_from, most_of, times
from extender.model.decode import pool_from, vpod_from
from extender.model.errors import InvalidObject
from extender.model.ledger import Share
from tests.support.builders import a_pool, a_vpod

CPU, BOTH = (("cpu", 2),), (("cpu", 2), ("memory", 5))


def test_they_are_sorted_by_dimension():
    assert amounts_from({"memory": 5, "cpu": 2}, "VPod t/a", "spec.perVReplica") == BOTH
    assert amounts_from(None, "VPod t/a", "spec.perVReplica") == ()


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        pytest.param([], "must be an object", id="a list"),
        pytest.param({"cpu": 0}, "cpu must be an integer from 1 to 2147483647, not 0", id="zero"),
        pytest.param({"cpu": True}, "not True", id="a boolean"),
        pytest.param({"cpu": "250m"}, "not '250m'", id="a quantity"),
        pytest.param({"cpu": 2**31}, "from 1 to 2147483647", id="more than an int32"),
        pytest.param({"CPU": 1}, "'CPU' is no name of a dimension", id="capitals"),
        pytest.param({"": 1}, "'' is no name of a dimension", id="no name"),
        pytest.param({"a" * 32: 1}, "is no name of a dimension", id="a long name"),
        pytest.param({"cpu\n": 1}, "is no name of a dimension", id="a line break"),
        pytest.param({"slots": 1}, "not be 'slots'", id="a name that means slotsPerPod"),
        pytest.param(dict.fromkeys("abcde", 1), f"at most {DIMENSIONS_MAX}", id="five"),
    ],
)
def test_a_value_that_would_be_misread_is_refused_with_its_place(raw, problem):
    metadata = {"namespace": "t", "name": "a"}
    with pytest.raises(InvalidObject, match=r"VPod t/a: spec\.perVReplica: ") as refused:
        vpod_from(
            {
                "metadata": metadata,
                "spec": {"poolRef": {"name": "p"}, "vreplicas": 1, "perVReplica": raw},
            }
        )
    assert problem in str(refused.value)
    spec = {"statefulSet": "s", "slotsPerPod": 1, "capacities": raw}
    with pytest.raises(InvalidObject, match=r"AdapterPool t/a: spec\.capacities: "):
        pool_from({"metadata": metadata, "spec": spec})


def test_sums_and_maxima_leave_out_what_is_nothing():
    assert times(BOTH, 3) == (("cpu", 6), ("memory", 15))
    assert times(BOTH, 0) == ()
    assert most_of([CPU, (("cpu", 1), ("memory", 4)), ()]) == (("cpu", 2), ("memory", 4))


@pytest.mark.parametrize(
    ("one", "other", "heavier"),
    [
        pytest.param(Share(2), Share(2), False, id="the same"),
        pytest.param(Share(2, 2), Share(2), True, id="more slots"),
        pytest.param(Share(2, 1, CPU), Share(2), True, id="a dimension more"),
        pytest.param(Share(2), Share(2, 1, CPU), False, id="a dimension less"),
        pytest.param(Share(2, 1, CPU), Share(2, 1, (("cpu", 3),)), False, id="less of it"),
        pytest.param(Share(2, 1, CPU), Share(2, 2, (("cpu", 1),)), True, id="fewer slots, more"),
        pytest.param(Share(1, 1, CPU), Share(3, 1, (("cpu", 1),)), False, id="fewer vreplicas"),
    ],
)
def test_a_share_is_heavier_if_it_takes_more_of_anything(one, other, heavier):
    assert one.is_heavier_than(other) is heavier


@pytest.mark.parametrize(
    ("weight", "amounts", "says"),
    [
        pytest.param(1, (), "", id="no amounts"),
        pytest.param(1, CPU, "", id="it fits exactly"),
        pytest.param(9, CPU, "one vreplica takes 9 slots (spec.slotsPerVReplica)", id="slots"),
        pytest.param(1, (("cpu", 3),), "one vreplica takes 3 cpu", id="more than a pod has"),
        pytest.param(1, BOTH, "one vreplica takes memory", id="a dimension that the pool lacks"),
    ],
)
def test_a_pool_says_why_no_pod_of_it_could_hold_a_vreplica(weight, amounts, says):
    pool, vpod = a_pool(8, capacities=CPU), a_vpod(weight=weight, per_vreplica=amounts)
    assert pool.misfit(vpod).startswith(says)
    assert pool.could_hold(vpod) is (not says) is not bool(pool.misfit(vpod))
