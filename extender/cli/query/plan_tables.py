"""Prints the answer of ``vreplica plan`` as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def plan_tables(console: Console, result: Mapping[str, Any]) -> None:
    """Print the vpods, then the pools."""
    vpods = Table("VPOD", "PLACEMENTS", "UNPLACED", "REASONS", title="vpods", title_justify="left")
    for row in result["vpods"]:
        vpods.add_row(
            f"{row['namespace']}/{row['name']}",
            _placements(row["placements"]),
            str(row["unplaced"]),
            "; ".join(row["reasons"]),
        )
    pools = Table(
        "POOL", "REPLICAS", "WANTED", "FREE SLOTS", "EVICTIONS", title="pools", title_justify="left"
    )
    for row in result["pools"]:
        moves = [
            f"{m['vreplicas']} of {m['vpod']} off {m['podName']} ({m['reason']})"
            for m in row["evictions"]
        ]
        name = f"{row['namespace']}/{row['name']}"
        pools.add_row(
            name,
            str(row["replicas"]),
            str(row["wantedReplicas"]),
            str(row["freeSlots"]),
            "\n".join(moves),
        )
    for note in result.get("notes", ()):
        console.print(escape(note), highlight=False)
    console.print(vpods)
    console.print(pools)
    grown = [
        row for row in result["vpods"] if row.get("settled", row)["placements"] != row["placements"]
    ]
    if grown:
        console.print(_settled_table(grown))


def _settled_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        "VPOD",
        "PLACEMENTS",
        "UNPLACED",
        title="once the wanted pods have come and found nodes",
        title_justify="left",
    )
    for row in rows:
        settled = row["settled"]
        name = f"{row['namespace']}/{row['name']}"
        table.add_row(name, _placements(settled["placements"]), str(settled["unplaced"]))
    return table


def _placements(value: list[dict[str, Any]]) -> str:
    return " ".join(f"{item['podName']}={item['vreplicas']}" for item in value)
