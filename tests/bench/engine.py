"""``engine``: decisions a second on the shipped path, by size and profile, beside the same
algorithm on rebuilt state.

Workloads: ``reference`` and ``weights`` (``clusters``) from empty to full; ``churn``, a tenth of a
full cluster's vpods growing, shrinking and being deleted; ``batches``, the reference workload
through the whole of ``Placer.place_batch``; ``cold``, the first decision after a start. How a round
goes is in ``rounds``.

Figures are of the best round, ratios the median of all: ``costRatio`` is the cost of a vpod to that
in the smallest cluster, ``rebuiltRatio`` that of a decision on rebuilt state to ours,
``referenceRatio`` to one of the same profile's reference workload, ``yardstickRatio`` to a fixed
piece of Python: what makes all decisions slower shows there alone. Every vpod counts as one
decision.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.bench.clusters import PROFILES, REFERENCE, VPODS_PER_POD, WEIGHTS, Cluster, raw_cluster
from tests.bench.cold import cold_result
from tests.bench.options import Options
from tests.bench.result import Result, Value
from tests.bench.rounds import Variant, measure
from tests.bench.timing import median

GO_VPODS_PER_SECOND: Final = {50: 5_110, 500: 633, 1_000: 277, 2_500: 225}
"""Pods -> vpods a second that Knative's own StatefulSet scheduler, in Go, placed of the reference
workload, one Schedule call a vpod. Recorded on 2 shared cores, not in the same run: for
orientation, so no ratio is made of it.
"""
SMALLEST: Final = 50


@dataclass(frozen=True, slots=True)
class Size:
    """How a cluster of ``pods`` adapter pods, and twice as many vpods, is measured."""

    pods: int
    rounds: int
    rounds_s: float
    """No further round begins after so long."""
    rebuilt_samples: int
    """Vpods that are decided on rebuilt state as well, in the first round."""
    cold_rounds: int
    weights: tuple[str, ...] = PROFILES
    """Profiles that are measured with weights."""


TWO_PROFILES: Final = ("default", "ha")
"""One without plugins, and the one with the most."""
SIZES: Final = (
    Size(SMALLEST, 10, 10.0, 5, 3),
    Size(500, 5, 15.0, 5, 3),
    Size(1_000, 5, 30.0, 5, 3),
    Size(2_500, 3, 30.0, 2, 2),
    Size(10_000, 3, 30.0, 1, 1, TWO_PROFILES),
)
SIZES_SHORT: Final = (
    Size(SMALLEST, 5, 6.0, 2, 2, TWO_PROFILES),
    Size(1_000, 3, 15.0, 1, 1, TWO_PROFILES),
)


def bench(options: Options) -> Iterator[Result]:
    """Results size by size, the smallest first."""
    for size in SIZES_SHORT if options.short else SIZES:
        variants = [*_variants(size)]
        end = time.monotonic() + size.rounds_s
        for number in range(size.rounds):
            for variant in variants:
                measure(variant, rebuilt_samples=0 if number else size.rebuilt_samples)
            if time.monotonic() > end:
                break
        for variant in variants:
            yield _placed(variant)
        for variant in variants:
            yield from _after(variant, "churn", variant.churns)
            yield from _after(variant, "batches", variant.batches)
        yield cold_result(size.pods, rounds=size.cold_rounds)


def _variants(size: Size) -> Iterator[Variant]:
    for workload, kinds, profiles in (
        ("reference", REFERENCE, PROFILES),
        ("weights", WEIGHTS, size.weights),
    ):
        cluster = Cluster.of(raw_cluster(size.pods, kinds))
        small = Cluster.of(raw_cluster(SMALLEST, kinds)) if size.pods > SMALLEST else None
        for profile in profiles:
            peer = small.by(profile) if small is not None else None
            yield Variant(profile, workload, cluster.by(profile), peer)


def _placed(variant: Variant) -> Result:
    """The line of a cluster that was placed from empty."""
    rounds, first = variant.rounds, variant.rounds[0]
    best = min(rounds, key=lambda one: one.each_s)
    rebuilt_s = first.rebuilt_s
    figures: dict[str, Value] = {
        "vpodsPerSecond": round(1 / best.each_s, 1),
        "wallVpodsPerSecond": round(max(one.vpods / one.wall_s for one in rounds), 1),
        "microsecondsPerVpod": round(best.each_s * 1e6, 2),
        "yardstickRatio": round(median([one.each_s / one.yardstick_s for one in rounds]), 3),
        # The smallest cluster is what the others are compared with.
        "costRatio": round(median([one.each_s / one.small_s for one in rounds]), 3)
        if variant.small
        else None,
        "placedVpods": min(one.placed for one in rounds),
        "rebuiltVpodsPerSecond": round(1 / rebuilt_s, 2) if rebuilt_s else None,
        "rebuiltRatio": round(rebuilt_s / first.each_s, 1) if rebuilt_s else None,
        "sameDecisions": first.same if rebuilt_s else None,
        "goVpodsPerSecond": GO_VPODS_PER_SECOND.get(len(variant.cluster.pods))
        if variant.workload == "reference"
        else None,
        "rounds": len(rounds),
    }
    return _result(variant, variant.workload, figures)


def _after(variant: Variant, workload: str, measured: list[tuple[int, float]]) -> Iterator[Result]:
    """The line of what a variant's rounds have measured beside the placing itself, if anything."""
    if not measured:
        return
    vpods, cpu_s = min(measured, key=lambda one: one[1])
    ratios = [
        spent_s / count / one.each_s
        for (count, spent_s), one in zip(measured, variant.rounds, strict=True)
    ]
    figures: dict[str, Value] = {
        "vpodsPerSecond": round(vpods / cpu_s, 1),
        "microsecondsPerVpod": round(cpu_s / vpods * 1e6, 2),
        "decidedVpods": vpods,
        "referenceRatio": round(median(ratios), 3),
        "rounds": len(measured),
    }
    yield _result(variant, workload, figures)


def _result(variant: Variant, workload: str, figures: dict[str, Value]) -> Result:
    pods = len(variant.cluster.pods)
    case: dict[str, Value] = {
        "profile": variant.profile,
        "pods": pods,
        "vpods": pods * VPODS_PER_POD,
        "workload": workload,
    }
    return Result("engine", case, figures)
