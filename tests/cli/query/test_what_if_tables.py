"""What ``vreplica plan`` prints of a what-if, in terminals of several widths."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from extender.cli.query.what_if_tables import what_if_tables

PODS = {f"dispatcher-{ordinal}": 1 for ordinal in range(10, 16)}


def answer() -> dict[str, Any]:
    counts = ("moved", "movedSettled", "vpodsChanged", "overcommittedAfter")
    before = ("unplaced", "pods")
    summary = dict.fromkeys(counts, 6) | {
        f"{what}{when}": 0 for what in before for when in ("Before", "After", "Settled")
    }
    row = {
        "name": "tenant-with-a-name/orders-and-returns",
        "new": False,
        "settled": dict.fromkeys(PODS, 2),
        "after": {"dispatcher-0": 6} | PODS,
        "moved": 6,
        "unplacedBefore": 0,
        "unplaced": 0,
        "reasons": ["no pod that fits has a free slot"],
    }
    return {"summary": summary, "notes": [], "pools": [], "vpods": [row]}


@pytest.mark.parametrize("width", [60, 80, 99, 100, 160])
def test_no_line_ends_between_a_count_and_its_pod(width):
    told = io.StringIO()
    what_if_tables(Console(file=told, width=width), answer())
    found = re.findall(r"[-+]\d+ dispatcher-\d+", told.getvalue())
    if width >= 80:
        assert len(found) == 7, told.getvalue()
    assert all(len(line) <= width for line in told.getvalue().splitlines())


def test_a_pool_with_dimensions_shows_what_is_free_of_them():
    counts = {"pods": 2, "freeSlots": 8, "unplaced": 0, "profile": "default"}
    pool = {f"{what}{when}": n for what, n in counts.items() for when in ("Before", "After")}
    pool |= {"freeCapacitiesBefore": {"cpu": 9}, "freeCapacitiesAfter": {"cpu": 3}}
    told = io.StringIO()
    pools = [{"name": "k/d", "zones": [], **pool}]
    what_if_tables(Console(file=told, width=120), {**answer(), "pools": pools})
    assert "9 -> 3 cpu" in told.getvalue()
