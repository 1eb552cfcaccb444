"""Prints the differences of ``vreplica plan`` as tables: the sums, pools and zones, then the
changed vpods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from extender.cli.terminal.console import table

VPODS_SHOWN: Final = 50
PODS_SHOWN: Final = 12


def what_if_tables(console: Console, answer: Mapping[str, Any]) -> None:
    """Print an answer of ``what_if``."""
    console.print(_sentence(answer["summary"]))
    if anyway := _left_alone(answer["summary"]):
        console.print(anyway)
    for note in answer["notes"]:
        console.print(escape(note))
    console.print(_pools(answer["pools"]))
    for pool in answer["pools"]:
        if pool.get("tenants"):  # a replica of an older version does not send it
            console.print(_tenants(pool))
        if pool["zones"]:
            console.print(_zones(pool))
    rows = answer["vpods"]
    if rows:
        console.print(_vpods(rows[:VPODS_SHOWN]))
    more = len(rows) - VPODS_SHOWN + answer.get("vpodsNotListed", 0)
    if more > 0:
        console.print(f"{more} vpods more change: -o json lists them")


def _sentence(summary: Mapping[str, Any]) -> str:
    changed = summary["vpodsChanged"]
    parts = [
        f"{_many(summary['moved'], 'vreplica')} would move"
        if summary["moved"]
        else "nothing would move",
        f"{_many(changed, 'vpod')} would change" if changed else "no vpod would change",
        _change("without a place", summary["unplacedBefore"], summary["unplacedAfter"]),
        _change("pods", summary["podsBefore"], summary["podsAfter"]),
    ]
    if unserved := summary.get("unserved"):  # a replica of an older version does not send it
        parts.append(f"served by nobody: {unserved:,}")
    if summary["overcommittedAfter"]:
        parts.append(f"{_many(summary['overcommittedAfter'], 'pod')} would be overcommitted")
    return "; ".join(parts)


def _left_alone(summary: Mapping[str, Any]) -> str:
    """What happens today if nobody does anything; "" if nothing changes."""
    moved = summary["movedSettled"]
    parts = [f"{_many(moved, 'vreplica')} move"] if moved else []
    for what, field in (("without a place", "unplaced"), ("pods", "pods")):
        if (then := summary[f"{field}Settled"]) != summary[f"{field}Before"]:
            parts.append(f"{what}: {then:,}")
    return f"left alone: {'; '.join(parts)}" if parts else ""


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _change(what: str, before: int, after: int) -> str:
    return f"{what}: {before:,}" if before == after else f"{what}: {before:,} -> {after:,}"


def _arrow(before: Any, after: Any) -> str:
    return str(before) if before == after else f"{before} -> {after}"


def _pools(pools: list[Mapping[str, Any]]) -> Table:
    compared = ("profile", "pods", "freeSlots", "unplaced")
    rows = [
        [pool["name"], *(_arrow(pool[f"{what}Before"], pool[f"{what}After"]) for what in compared)]
        for pool in pools
    ]
    heads = ["POOL", "PROFILE", "PODS", "FREE SLOTS", "UNPLACED"]
    if any("freeCapacitiesBefore" in pool for pool in pools):
        heads.append("FREE CAPACITIES")
        for row, pool in zip(rows, pools, strict=True):
            before, after = (pool.get(f"freeCapacities{when}", {}) for when in ("Before", "After"))
            free = (f"{_arrow(before[name], after[name])} {name}" for name in before)
            row.append("\n".join(free))
    return table("pools", heads, rows)


def _zones(pool: Mapping[str, Any]) -> Table:
    rows = [
        (
            zone["zone"],
            f"{_arrow(zone['before'], zone['after'])} vreplica{'' if zone['after'] == 1 else 's'}",
            _arrow(zone["vpodsLostBefore"], zone["vpodsLostAfter"]),
        )
        for zone in pool["zones"]
    ]
    heads = ("ZONE", "ITS LOSS TAKES", "VPODS THAT LOSE ALL")
    return table(f"zones of {pool['name']}", heads, rows)


def _tenants(pool: Mapping[str, Any]) -> Table:
    rows = [
        (
            row["tenant"] + (" (new)" if row["new"] else ""),
            str(row["guarantee"]),
            "" if row["limit"] is None else str(row["limit"]),
            "" if row["share"] is None else str(row["share"]),
            _arrow(row["usedSettled"], row["usedAfter"]),
            str(row["waitingAfter"]),
        )
        for row in pool["tenants"]
    ]
    heads = ("TENANT", "GUARANTEE", "LIMIT", "SHARE", "USED", "WAITS")
    more = pool["tenantsNotListed"]
    title = f"tenants of {pool['name']} that change" + (f", without {more} others" if more else "")
    return table(title, heads, rows)


def _vpods(rows: list[Mapping[str, Any]]) -> Table:
    cells = [
        (
            row["name"] + (" (new)" if row["new"] else ""),
            _Parts(_differences(row["settled"], row["after"])),
            str(row["moved"] or ""),
            _arrow(row["unplacedBefore"], row["unplaced"]),
            "; ".join(row["reasons"]),
        )
        for row in rows
    ]
    return table("vpods that change", ("VPOD", "CHANGE", "MOVED", "UNPLACED", "REASONS"), cells)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Texts side by side, as many as fit a line. A text is never broken."""

    texts: Sequence[str]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        line = ""
        for text in self.texts:
            longer = f"{line}  {text}" if line else text
            if line and len(longer) > options.max_width:
                yield Text(line, no_wrap=True, overflow="ellipsis")
                longer = text
            line = longer
        yield Text(line, no_wrap=True, overflow="ellipsis")

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        lengths = [len(text) for text in self.texts] or [0]
        return Measurement(max(lengths), sum(lengths) + 2 * len(lengths) - 2).clamp(
            0, options.max_width
        )


def _differences(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """``-2 d-0``, ``+2 d-3``: losses first, then gains."""
    changes = {name: after.get(name, 0) - before.get(name, 0) for name in {**before, **after}}
    listed = [f"{count:+d} {name}" for name, count in changes.items() if count]
    listed.sort(key=lambda text: text[0] != "-")
    rest = len(listed) - PODS_SHOWN
    more = [f"and {rest} more {'pod' if rest == 1 else 'pods'}"] if rest > 0 else []
    return [*listed[:PODS_SHOWN], *more]
