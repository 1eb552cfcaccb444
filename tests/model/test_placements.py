"""Sums over placements; Knative's own rows are in the conformance suite."""

from extender.model.placements import (
    Placement,
    get_placement_for_pod,
    get_pod_count,
    get_total_vreplicas,
)

TWICE = [Placement("d-0", 2), Placement("d-1", 0), Placement("d-0", 3)]


def test_a_pod_that_is_named_twice_counts_twice_in_the_sum_and_once_as_a_pod():
    assert get_total_vreplicas(TWICE) == 5
    assert get_pod_count(TWICE) == 1


def test_the_first_placement_on_a_pod_is_found_and_none_on_another():
    assert get_placement_for_pod(TWICE, "d-0") == Placement("d-0", 2)
    assert get_placement_for_pod(TWICE, "d-2") is None


def test_no_placements_are_none():
    assert (get_total_vreplicas(None), get_pod_count(None), get_placement_for_pod(None, "d-0")) == (
        0,
        0,
        None,
    )
