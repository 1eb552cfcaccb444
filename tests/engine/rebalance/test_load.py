"""What is known of a pool's load: smoothing, what counts as the mean, and what is forgotten."""

import math
import random

import pytest

from extender.engine.rebalance.load import (
    ABSURD,
    LOAD_MAX,
    SILENT,
    SILENT_S,
    SMOOTHING_S,
    PoolLoad,
    Refused,
)
from tests.engine.rebalance.loads import REPORT_S, LoadedPool, a_loaded_pool, noise

A, B = "tenant/a", "tenant/b"
POD_0, POD_1 = "dispatcher-0", "dispatcher-1"


def two_pods(**rates: float) -> LoadedPool:
    """``a`` and ``b`` have two vreplicas each on both of two pods."""
    rates = rates or {"a": 1.0, "b": 1.0}
    return a_loaded_pool({name: {0: 2, 1: 2} for name in rates}, rates, pods=2)


def rate_of(load: PoolLoad, vpod: str, pod: str, now: float) -> float | None:
    return load.share(vpod, pod, now)[0]


def test_a_pods_load_is_what_is_reported_for_all_vpods_on_it():
    pool = two_pods(a=1.0, b=3.0)
    pool.report()
    view = pool.load.view(pool.pool, pool.now)
    assert view.loads == {0: 8.0, 1: 8.0}
    assert (view.vreplicas, view.measured, view.silent, view.refused) == (8, 8, 0, 0)


def test_load_moves_with_its_vreplicas_in_proportion():
    pool = two_pods(a=1.0, b=3.0)
    pool.live(60)
    pool.scene.pod(0, {A: 2, B: 1}).pod(1, {A: 2, B: 3})
    pool.scene.vpod("b", 4, {0: 1, 1: 3})
    assert pool.load.view(pool.pool, pool.now).loads == pytest.approx({0: 5.0, 1: 11.0})


def test_a_vpod_that_went_elsewhere_keeps_its_load_until_reports_come_from_there():
    pool = two_pods(a=1.0, b=3.0)
    pool.live(60)
    pool.load.view(pool.pool, pool.now)
    pool.scene.pod(0, {A: 2, B: 4}).pod(1, {A: 2}).vpod("b", 4, {0: 4})
    assert pool.load.view(pool.pool, pool.now).loads == pytest.approx({0: 14.0, 1: 2.0})


def test_the_first_reports_are_averaged_and_a_change_is_seen_after_the_time_constant():
    load = PoolLoad("requests")
    for at, rate in enumerate((1.0, 2.0, 3.0)):
        load.report(A, POD_0, rate, 1, at * 0.1)
    assert rate_of(load, A, POD_0, 1.0) == pytest.approx(2.0)
    now = 100.0
    load.report(A, POD_1, 0.0, 1, now)
    for _ in range(200):
        now += SMOOTHING_S / 200
        load.report(A, POD_1, 0.0, 1, now)
    for _ in range(200):
        now += SMOOTHING_S / 200
        load.report(A, POD_1, 1.0, 1, now)
    assert rate_of(load, A, POD_1, now) == pytest.approx(1 - math.exp(-1), abs=0.02)


def test_noise_is_smoothed():
    load, spread = PoolLoad("requests"), noise(random.Random(1))
    for index in range(30):
        load.report(A, POD_0, spread(), 1, index * REPORT_S)
    found = rate_of(load, A, POD_0, 300)
    assert found == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (-1.0, Refused.NEGATIVE),
        (math.nan, Refused.NOT_FINITE),
        (math.inf, Refused.NOT_FINITE),
        (-math.inf, Refused.NOT_FINITE),
        (4 * LOAD_MAX, Refused.ABSURD),
    ],
)
def test_a_report_that_makes_no_sense_counts_as_the_mean_and_is_told(value, why):
    pool = two_pods(a=1.0, b=3.0)
    pool.report()
    assert pool.load.report(A, POD_0, value, 2, 1.0) is why
    assert pool.load.report(A, POD_1, value, 2, 1.0) is why
    view = pool.load.view(pool.pool, 1.0)
    assert view.loads == {0: 12.0, 1: 12.0}, "the mean of b's vreplicas"
    assert (view.measured, view.refused) == (4, 2)
    assert pool.load.share(A, POD_0, 1.0)[1] == why


def test_a_share_with_a_report_that_makes_no_sense_counts_as_its_vpods_other_shares():
    pool = two_pods(a=1.0, b=3.0)
    pool.report()
    pool.load.report(A, POD_0, -1.0, 2, 1.0)
    assert pool.load.view(pool.pool, 1.0).loads == {0: 8.0, 1: 8.0}


def test_a_good_report_ends_it():
    pool = two_pods(a=1.0, b=3.0)
    pool.report()
    pool.load.report(A, POD_0, -1.0, 2, 1.0)
    assert pool.load.report(A, POD_0, 2.0, 2, 2.0) is None
    assert pool.load.view(pool.pool, 2.0).refused == 0


def test_a_load_far_over_the_median_is_absurd_even_if_it_was_the_first_report():
    pool = two_pods(a=1.0, b=1.0)
    pool.report()
    fresh = PoolLoad("requests")
    fresh.report(A, POD_0, 3 * ABSURD, 2, 0.0)
    for vpod, pod in ((A, POD_1), (B, POD_0), (B, POD_1)):
        fresh.report(vpod, pod, 2.0, 2, 0.0)
    view = fresh.view(pool.pool, 0.0)
    assert (view.refused, view.loads) == (1, {0: 4.0, 1: 4.0})
    assert fresh.report(A, POD_0, 3 * ABSURD, 2, 1.0) is Refused.ABSURD
    assert fresh.report(A, POD_0, 2.0, 2, 1.0) is None
    assert fresh.view(pool.pool, 1.0).loads == {0: 4.0, 1: 4.0}, "nothing is left of it"


def zipf(number: int, exponent: float) -> LoadedPool:
    """Vpods of one vreplica on 60 pods, whose loads fall with their rank."""
    ranks = random.Random(1).sample(range(1, number + 1), number)
    placed = {f"v{index}": {index % 60: 1} for index in range(number)}
    rates = {f"v{index}": rank**-exponent for index, rank in enumerate(ranks)}
    return a_loaded_pool(placed, rates, pods=60, slots=number // 60)


@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_a_few_tenants_with_much_of_the_load_are_not_absurd(exponent: float):
    """The hottest has over 1,000 times the median."""
    pool = zipf(6000, exponent)
    rates = sorted(pool.rates.values())
    assert rates[-1] > ABSURD * rates[3000]
    pool.live(60)
    view = pool.load.view(pool.pool, pool.now)
    assert (view.refused, view.silent) == (0, 0)


def test_one_adapter_that_reports_in_another_unit_is_absurd_with_all_its_shares():
    pool = zipf(1200, 0.5)
    for (vpod, pod), vreplicas in pool.shares().items():
        unit = 1e6 if pod == POD_0 else 1.0
        pool.load.report(vpod, pod, pool.rates[vpod] * unit, vreplicas, 0.0)
    assert pool.load.view(pool.pool, 0.0).refused == 20


def test_if_all_loads_grow_a_million_fold_none_is_absurd_for_long():
    pool = two_pods(a=1.0, b=1.0)
    pool.live(60)
    pool.load.view(pool.pool, pool.now)
    pool.rates = dict.fromkeys(pool.rates, 1e6)
    pool.live(20)
    pool.load.view(pool.pool, pool.now)
    pool.live(600)
    view = pool.load.view(pool.pool, pool.now)
    assert view.refused == 0
    assert view.loads == pytest.approx({0: 4e6, 1: 4e6}, rel=0.01)


def test_an_idle_pool_has_no_absurd_loads():
    pool = two_pods(a=0.0, b=5.0)
    pool.live(60)
    assert pool.load.view(pool.pool, pool.now).loads == {0: 10.0, 1: 10.0}


def test_a_share_that_is_silent_for_too_long_counts_as_the_mean():
    pool = two_pods(a=1.0, b=3.0)
    pool.report()
    late = SILENT_S + 1
    for pod in (POD_0, POD_1):
        pool.load.report(B, pod, 6.0, 2, late)
    view = pool.load.view(pool.pool, late)
    assert (view.loads, view.silent) == ({0: 12.0, 1: 12.0}, 4)
    assert pool.load.share(A, POD_0, late)[1] == SILENT


def test_without_any_report_nothing_is_known():
    pool = two_pods()
    view = pool.load.view(pool.pool, 0.0)
    assert (view.loads, view.measured, view.is_enough) == ({0: 0.0, 1: 0.0}, 0, False)


@pytest.mark.parametrize(("reported", "enough"), [(1, False), (2, True), (4, True)])
def test_half_of_the_vreplicas_must_be_measured(reported, enough):
    pool = two_pods()
    shares = list(pool.shares())[:reported]
    for vpod, pod in shares:
        pool.load.report(vpod, pod, 1.0, 2, 0.0)
    assert pool.load.view(pool.pool, 0.0).is_enough is enough


def test_what_is_gone_is_forgotten_once_it_is_old():
    pool = two_pods()
    pool.report()
    assert len(pool.load) == 4
    pool.scene.no_vpod("b").pod(0, {A: 2}).pod(1, {A: 2})
    pool.load.view(pool.pool, SILENT_S / 2)
    assert len(pool.load) == 4
    pool.load.view(pool.pool, SILENT_S + 1)
    assert len(pool.load) == 2
    pool.scene.no_vpod("a").no_pod(0).no_pod(1)
    pool.load.view(pool.pool, SILENT_S + 1)
    assert len(pool.load) == 0
