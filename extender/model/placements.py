"""Placements as callers and statuses have them: a list of (pod, vreplicas), in any order.

A pod may occur twice. The functions are ``GetTotalVReplicas``, ``GetPlacementForPod`` and
``GetPodCount`` of Knative's scheduler package, for the Python API (DESIGN 5.6).
"""

from collections.abc import Iterable
from typing import NamedTuple


class Placement(NamedTuple):
    """``vreplicas`` of one vpod on pod ``pod_name``."""

    pod_name: str
    vreplicas: int


def get_total_vreplicas(placements: Iterable[Placement] | None) -> int:
    """The sum of vreplicas; 0 for no placements."""
    return sum(placement.vreplicas for placement in placements or ())


def get_placement_for_pod(
    placements: Iterable[Placement] | None, pod_name: str
) -> Placement | None:
    """The first placement on that pod, None if there is none."""
    return next(
        (placement for placement in placements or () if placement.pod_name == pod_name), None
    )


def get_pod_count(placements: Iterable[Placement] | None) -> int:
    """The number of pods that have vreplicas. A placement of 0 does not count."""
    return len({placement.pod_name for placement in placements or () if placement.vreplicas > 0})
