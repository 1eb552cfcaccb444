"""When ``status.load`` of a pool changes: with the load, and not with the noise of its reports."""

import pytest

from extender.model.objects import LoadTarget
from extender.service.pools.load_reports import SUMMARY_S, LoadReports, Report
from tests.support.builders import Scene, a_pool

TARGET = LoadTarget(metric="requests", target=1.5)
LONG_S = 10 * SUMMARY_S
"""After this time a report replaces what was smoothed before it."""

COLD = [0.25] * 8


async def told(*looks: list[float]) -> list[tuple[float, str]]:
    """(maxToMean, hottestPod) after each look. A look is the load of each pod's only vreplica."""
    now = 0.0
    reports = LoadReports(lambda: now)
    scene = Scene(replicas=len(looks[0]), load=TARGET)
    for ordinal in range(len(looks[0])):
        scene.pod(ordinal, {"tenant/a": 1})
    pool, found = a_pool(load=TARGET), []
    for loads in looks:
        now += LONG_S
        told_by_pods = [
            Report("tenant/a", f"dispatcher-{ordinal}", load) for ordinal, load in enumerate(loads)
        ]
        assert reports.take(scene.pool, TARGET, told_by_pods) == []
        await reports.look(scene.pool)
        summary = reports.summary(pool)
        assert summary is not None
        found.append((summary.max_to_mean, summary.hottest_pod))
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            [4.0, 4.0, *COLD], [3.9, 4.1, *COLD], id="pods of four times the mean (seed 3000630)"
        ),
        pytest.param(
            [1.04, *[1.0] * 19], [0.97, 1.04, *[1.0] * 18], id="the hottest of twenty equal pods"
        ),
    ],
)
async def test_noise_changes_nothing(before: list[float], after: list[float]):
    first, second = await told(before, after)
    assert second == first


async def test_a_pod_that_is_a_tenth_hotter_is_told():
    assert await told([4.0, 4.0, *COLD], [4.0, 4.8, *COLD]) == [
        (4.0, "dispatcher-0"),
        (4.44, "dispatcher-1"),
    ]


async def test_another_pod_is_told_if_the_last_one_is_clearly_less_hot_at_the_same_ratio():
    assert await told([4.0, 3.0, *COLD], [3.0, 4.0, *COLD]) == [
        (4.44, "dispatcher-0"),
        (4.44, "dispatcher-1"),
    ]
