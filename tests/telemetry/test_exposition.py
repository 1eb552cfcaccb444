"""What a program exports before anything has happened."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.telemetry.exposition import Exposition, Family, Kind, Label
from extender.telemetry.metrics import REASON_VALUES, REPAIR_VALUES, Metrics


def samples(exposition: Exposition) -> dict[tuple[str, ...], float]:
    """(Name, label values) -> amount, of counters."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(exposition.render().decode())
        for sample in family.samples
        if sample.name.endswith("_total")
    }


@pytest.mark.parametrize(
    ("name", "values"),
    [("refusals", REASON_VALUES), ("repairs", REPAIR_VALUES), ("scalings", ("up", "down"))],
)
def test_what_has_never_happened_is_said_so_and_the_first_time_is_an_increase(name, values):
    before = samples(Metrics())
    for value in values:
        assert before[f"vreplica_scheduler_{name}_total", value] == 0.0


def test_so_is_a_counter_that_is_read_when_it_is_scraped():
    exposition = Exposition("x")
    labels = (Label("kind", ("a", "b")), Label("result", ("yes", "no")))
    exposition.read(
        Family(name="reads", kind=Kind.COUNTER, documentation="d", labels=labels),
        lambda: {("a", "no"): 3.0},
    )
    assert samples(exposition) == {
        ("x_reads_total", "a", "yes"): 0.0,
        ("x_reads_total", "a", "no"): 3.0,
        ("x_reads_total", "b", "yes"): 0.0,
        ("x_reads_total", "b", "no"): 0.0,
    }


def test_of_names_that_operators_give_nothing_is_said_before_there_is_one():
    exposition = Exposition("x")
    exposition.add_counter("by_pool", "d", [Label("pool", description="pools")])
    assert samples(exposition) == {}
