"""docs/metrics.md is made of what the code declares: its tables are made here, and compared with
the page.

``python -m tests.docs.test_metrics_page`` writes them anew.
"""

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text_format

from extender.telemetry.exposition import Family, Kind, Stability
from extender.telemetry.metrics import PREFIX
from tests.support.families import PROCESS, all_families, watched, webhook_families
from tests.support.service import World

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
BEGIN, END = "<!-- made by tests/docs/test_metrics_page.py -->", "<!-- end -->"
WEBHOOKS = BEGIN.replace(" -->", ", the webhook's -->")
UNITS = ("_seconds", "_bytes", "_info")


def exported(family: Family) -> str:
    """The name as queries have it."""
    return f"{family.name}_total" if family.kind is Kind.COUNTER else family.name


def _labels(family: Family) -> str:
    told = []
    for label in family.labels:
        values = (
            ", ".join(f"`{value}`" for value in label.values) if label.values else label.description
        )
        told.append(f"`{label.name}`: {values}")
    return "; ".join(told)


def _row(family: Family) -> str:
    text = family.documentation.removeprefix(f"[{family.stability}] ")
    if family.buckets:
        text += f"; {len(family.buckets)} buckets, {family.buckets[0]:g} to {family.buckets[-1]:g}"
    like = f"`{family.like}`" if family.like else ""
    return (
        f"| `{exported(family)}` | {family.kind} | {family.stability} | {text} | {_labels(family)} "
        f"| {like} |"
    )


def table(families: list[Family]) -> str:
    rows = [
        "| name | type | stability | what it is | labels | after |",
        "|---|---|---|---|---|---|",
        *map(_row, families),
    ]
    return "\n".join(rows)


def _made(page: str, service: list[Family]) -> str:
    for begin, rows in ((BEGIN, table(service)), (WEBHOOKS, table(webhook_families()))):
        before, rest = page.split(begin, 1)
        _, after = rest.split(END, 1)
        page = f"{before}{begin}\n{rows}\n{END}{after}"
    return page


@pytest.mark.looptime
async def test_the_page_has_what_the_code_declares():
    page = PAGE.read_text()
    assert page == _made(page, await all_families()), "python -m tests.docs.test_metrics_page"


@pytest.mark.looptime
async def test_a_name_says_its_unit_and_never_its_type():
    for family in [*await all_families(), *webhook_families()]:
        assert re.fullmatch(r"vreplica_(scheduler|webhook)(_[a-z]+)+", family.name), family.name
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket", "_gauge")), (
            family.name
        )
        if re.search(r"[Ss]econds|Time |how long|by how much a timer|When ", family.documentation):
            # A status of 1 has no unit, and neither has a count of times.
            assert family.name.endswith(UNITS) or family.kind is Kind.COUNTER, family.name


@pytest.mark.looptime
async def test_what_is_scraped_is_what_is_declared_in_both_formats():
    world = await World.create()
    await world.pod(0, {}, node="node-0")
    await world.vpod("a", 3)
    async with world.serving() as service:
        watched(service)
        await asyncio.sleep(2)
        declared = {family.name: family for family in service.metrics.families}
        read = {family.name: family for family in text_format(service.metrics.render().decode())}
        strict = {
            family.name: family
            for family in openmetrics(generate_latest(service.metrics.registry).decode())  # type: ignore[no-untyped-call]
        }
    for name, found in read.items():
        if name in PROCESS or name.endswith("_created"):
            continue
        assert found.type == declared[name].kind
        assert found.documentation == declared[name].documentation
        for sample in found.samples:
            labels = set(sample.labels) - {"le"}
            assert labels == {label.name for label in declared[name].labels}, name
    # prometheus_client shows no family that has labels and no sample but by its name.
    assert set(declared) <= set(read)
    assert set(declared) <= set(strict)


@pytest.mark.looptime
async def test_what_is_modelled_on_kube_scheduler_is_as_stable_as_there():
    families = {family.name.removeprefix(f"{PREFIX}_"): family for family in await all_families()}
    for name in (
        "schedule_attempts",
        "pending_vpods",
        "framework_extension_point_duration_seconds",
    ):
        assert families[name].stability is Stability.STABLE
    assert families["scheduling_attempt_duration_seconds"].buckets[0] == 0.001
    assert families["framework_extension_point_duration_seconds"].buckets[-1] == 0.0001 * 2**11


if __name__ == "__main__":
    PAGE.write_text(_made(PAGE.read_text(), asyncio.run(all_families())))
