"""The rule of the soak: what grows is found, and what only jumps about is not."""

import random

import pytest

from tests.soak.measure import Sample, metric, trends
from tests.soak.run import Report

HOUR_S = 3600.0


def an_hour(what: str, amount_at, *, leading=None) -> list[Sample]:
    return [
        Sample(60.0 * minute, leading(minute) if leading else None, {what: amount_at(minute)})
        for minute in range(61)
    ]


@pytest.mark.parametrize(
    ("what", "a_minute"),
    [
        pytest.param("rss_mib", 0.25, id="2.5 MiB in ten minutes"),
        pytest.param("fds", 0.2, id="2 descriptors"),
    ],
)
def test_what_grows_is_found_though_it_also_jumps_about(what: str, a_minute: float):
    rng = random.Random(1)
    (trend,) = trends(an_hour(what, lambda m: 80 + a_minute * m + rng.uniform(-1, 1)), HOUR_S)
    assert not trend.flat
    assert trend.growth == pytest.approx(a_minute * 10, rel=0.2)


def test_what_jumps_about_or_steps_once_is_flat():
    rng = random.Random(2)
    (noise,) = trends(an_hour("rss_mib", lambda _: 80 + rng.uniform(-3, 3)), HOUR_S)
    (step,) = trends(an_hour("rss_mib", lambda m: 80 + (10 if m > 55 else 0)), HOUR_S)
    assert noise.flat
    assert step.flat


def test_two_connections_more_are_no_trend_though_few_samples_make_it_steep():
    counts = [17, 17, 17, 17, 17, 17, 17, 19, 18, 19, 19, 19]
    samples = [
        Sample(60.0 * minute, None, {"tasks": float(count)}) for minute, count in enumerate(counts)
    ]
    (trend,) = trends(samples, 660.0)
    assert trend.growth is not None
    assert trend.growth > trend.limit
    assert trend.flat


def test_growth_in_the_first_half_is_warming_up():
    (trend,) = trends(an_hour("rss_mib", lambda m: min(m, 30)), HOUR_S)
    assert trend.growth == 0.0


def test_a_leader_has_more_tasks_which_is_no_growth_as_long_as_each_role_stays_flat():
    def leading(minute: int) -> bool:
        return minute > 45

    flat = trends(an_hour("tasks", lambda m: 60 if leading(m) else 40, leading=leading), HOUR_S)
    assert [(trend.name, trend.growth) for trend in flat] == [
        ("tasks leading", 0.0),
        ("tasks following", 0.0),
    ]
    growing = trends(an_hour("tasks", lambda m: 40 + m, leading=lambda m: m % 2 == 0), HOUR_S)
    assert not any(trend.flat for trend in growing)


def test_a_short_run_is_not_judged():
    (trend,) = trends(an_hour("rss_mib", lambda m: m)[:8], 480.0)
    assert trend.growth is None
    assert trend.flat


def report_of(minutes: int, amount_at) -> Report:
    samples = an_hour("rss_mib", amount_at)[: minutes + 1]
    return Report(
        "embedded", 1, elapsed_s=60.0 * minutes, samples={"replica-1": samples, "mortal": samples}
    )


def test_a_run_that_is_too_short_to_judge_says_that_it_has_judged_nothing():
    short = report_of(1, lambda m: 80 + m)
    assert short.failures() == []
    assert short.summary()["trendsNotJudged"] == ["replica-1"]
    assert "NOT judged (replica-1)" in short.verdict()


def test_a_run_that_is_long_enough_says_what_it_has_judged():
    assert report_of(60, lambda _: 80).verdict().startswith("passed")
    assert report_of(60, lambda m: 80 + m).verdict().startswith("FAILED")


def test_a_metric_is_read_by_its_whole_name():
    text = 'a_tasks_total 7.0\na_tasks 3.0\na_size{type="pods"} 5.0\n'
    assert metric(text, "a_tasks") == 3.0
    assert metric(text, 'a_size{type="pods"}') == 5.0
    with pytest.raises(KeyError):
        metric(text, "a")
