"""Prints the report of ``vreplica replay``."""

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from extender.cli.terminal.console import Terminal
from extender.cli.terminal.output import plain

LINE_CHARS: Final = 48
BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_ROWS: Final = (
    ("movedVReplicas", "vreplicas moved"),
    ("unplacedMost", "vreplicas unplaced, most"),
    ("unplacedAtEnd", "vreplicas unplaced, at the end"),
    ("unplacedVReplicaSeconds", "vreplica-seconds unplaced"),
    ("podsMost", "pods, most"),
    ("podsAtEnd", "pods, at the end"),
    ("podHours", "pod-hours"),
    ("slotsUsedPercent", "slots used at the end, %"),
    ("zoneLossPercent", "lost with the worst zone, % of a vpod"),
    ("vpodsInOneZone", "vpods that stand in one zone"),
)
_COLUMNS: Final = {"recorded": "RECORDED", "rehearsed": "REHEARSED", "changed": "WITH CHANGES"}


def print_report(result: Mapping[str, object]) -> None:
    """Print ``Replay.to_json`` as tables."""
    console = Terminal()
    recording, decisions = _mapping(result, "recording"), _mapping(result, "decisions")
    console.print(
        f"{recording['seconds']} s of a {plain(recording['source'])}, {recording['entries']} "
        f"entries; "
        f"{decisions['compared']} decisions, {decisions['same']} the same, "
        f"{decisions['differing']} otherwise",
        markup=False,
        highlight=False,
    )
    for gap in _sequence(recording, "gaps"):
        console.print(f"gap: {plain(gap)}", markup=False, highlight=False)
    if recording["cutOff"]:
        console.print("the last line is not whole and was left out", markup=False, highlight=False)
    outcome = _mapping(result, "outcome")
    table = Table("", *(title for name, title in _COLUMNS.items() if name in outcome))
    for name, title in _ROWS:
        table.add_row(
            title,
            *(str(_mapping(outcome, column)[name]) for column in _COLUMNS if column in outcome),
        )
    console.print(table)
    _print_lines(
        console, [row for row in _sequence(result, "overTime") if isinstance(row, Mapping)]
    )
    if first := _sequence(decisions, "first"):
        _print_decisions(console, first)


def _print_lines(console: Console, moments: Sequence[Mapping[str, object]]) -> None:
    """Print waiting vreplicas and pods over time, as lines of blocks with the same scale."""
    table = Table("OVER TIME", "", "", "MOST", box=None, pad_edge=False)
    for name, title in (("unplaced", "vreplicas unplaced"), ("pods", "pods")):
        series = {
            column: [_count(_mapping(moment, name), column) for moment in moments]
            for column in _COLUMNS
        }
        most = max((max(values, default=0) for values in series.values()), default=0)
        for column, heading in _COLUMNS.items():
            if moments and column in _mapping(moments[0], name):
                shown = title if column == "recorded" else ""
                table.add_row(
                    shown, heading.lower(), _line(series[column], most), str(max(series[column]))
                )
    if moments:
        console.print(table)


def _line(values: Sequence[int], most: int) -> str:
    """At most ``LINE_CHARS`` blocks; each shows the maximum of its part of the time."""
    width = min(len(values), LINE_CHARS)
    parts = [
        values[len(values) * i // width : len(values) * (i + 1) // width] for i in range(width)
    ]
    return "".join(
        BLOCKS[-(-max(part) * (len(BLOCKS) - 1) // most) if most else 0] for part in parts
    )


def _count(value: Mapping[str, object], name: str) -> int:
    found = value.get(name)
    return found if isinstance(found, int) else 0


def _print_decisions(console: Console, first: list[object]) -> None:
    table = Table(
        "VPOD", "CAUSE", "RECORDED", "REPLAYED", title="decided otherwise", title_justify="left"
    )
    for one in first:
        if isinstance(one, Mapping):
            table.add_row(
                _escaped(one["vpod"]),
                str(one["cause"]),
                _decided(one.get("recorded")),
                _decided(one.get("replayed")),
            )
    console.print(table)


def _decided(decided: object) -> str:
    if not isinstance(decided, Mapping):
        return "not possible any more"
    placed = " ".join(f"{pod}={count}" for pod, count in _mapping(decided, "placements").items())
    more = f" and {decided['podsNotShown']} pods more" if "podsNotShown" in decided else ""
    waits = f"; {decided['unplaced']} unplaced" if decided["unplaced"] else ""
    reasons = "; ".join(str(text) for text in _sequence(decided, "reasons"))
    return _escaped(f"{placed or 'nothing'}{more}{waits}{f': {reasons}' if reasons else ''}")


def _escaped(text: object) -> str:
    """Recordings may come from anybody: no part may act as markup or as control characters."""
    return escape(plain(text))


def _mapping(value: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = value[name]
    return found if isinstance(found, Mapping) else {}


def _sequence(value: Mapping[str, object], name: str) -> list[object]:
    found = value[name]
    return found if isinstance(found, list) else []
