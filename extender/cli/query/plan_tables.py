"""Prints the answer of ``vreplica plan`` as tables."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from extender.cli.terminal.console import table

Row = Mapping[str, Any]


def plan_tables(console: Console, result: Mapping[str, Any]) -> None:
    """Print the vpods, then the pools."""
    for note in result.get("notes", ()):
        console.print(escape(note))
    vpods = result["vpods"]
    rows = [[*_placed(row, row), "; ".join(row["reasons"])] for row in vpods]
    console.print(table("vpods", ("VPOD", "PLACEMENTS", "UNPLACED", "REASONS"), rows))
    pools, has_dimensions = result["pools"], any("freeCapacities" in row for row in result["pools"])
    more = ("FREE CAPACITIES",) if has_dimensions else ()
    heads = ("POOL", "REPLICAS", "WANTED", "FREE SLOTS", *more, "EVICTIONS")
    rows = [_pool(row, has_dimensions=has_dimensions) for row in pools]
    console.print(table("pools", heads, rows))
    grown = [row for row in vpods if row.get("settled", row)["placements"] != row["placements"]]
    if grown:
        title = "once the wanted pods have come and found nodes"
        rows = [_placed(row, row["settled"]) for row in grown]
        console.print(table(title, ("VPOD", "PLACEMENTS", "UNPLACED"), rows))


def _placed(vpod: Row, where: Row) -> list[str]:
    placements = (f"{one['podName']}={one['vreplicas']}" for one in where["placements"])
    source = f"@{vpod['source']}" if "source" in vpod else ""
    name = f"{vpod['namespace']}/{vpod['name']}{source}"
    return [name, " ".join(placements), str(where["unplaced"])]


def _pool(row: Row, *, has_dimensions: bool) -> list[str]:
    moves = (
        f"{move['vreplicas']} of {move['vpod']} off {move['podName']} ({move['reason']})"
        for move in row["evictions"]
    )
    counts = [str(row[what]) for what in ("replicas", "wantedReplicas", "freeSlots")]
    if has_dimensions:
        free = row.get("freeCapacities", {})
        counts.append("\n".join(f"{amount:,} {name}" for name, amount in free.items()))
    return [f"{row['namespace']}/{row['name']}", *counts, "\n".join(moves)]
