"""Prints the report of ``vreplica replay``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table

from extender.cli.terminal.console import Terminal, table
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


Row = Mapping[str, Any]


def print_report(result: Row) -> None:
    """Print ``Replay.to_json`` as tables."""
    console = Terminal()
    recording, decisions, outcome = result["recording"], result["decisions"], result["outcome"]
    lines = [
        f"{recording['seconds']} s of a {plain(recording['source'])}, "
        f"{recording['entries']} entries; {decisions['compared']} decisions, "
        f"{decisions['same']} the same, {decisions['differing']} otherwise",
        *(f"gap: {plain(gap)}" for gap in recording["gaps"]),
    ]
    if recording["cutOff"]:
        lines.append("the last line is not whole and was left out")
    for line in lines:
        console.print(line, markup=False)
    columns = [name for name in _COLUMNS if name in outcome]
    sums = Table("", *(_COLUMNS[name] for name in columns))
    for what, title in _ROWS:
        sums.add_row(title, *(str(outcome[name][what]) for name in columns))
    console.print(sums)
    if result["overTime"]:
        console.print(_over_time(result["overTime"]))
    if first := decisions["first"]:
        rows = [
            (
                plain(one["vpod"]),
                one["cause"],
                _decided(one["recorded"]),
                _decided(one["replayed"]),
            )
            for one in first
        ]
        heads = ("VPOD", "CAUSE", "RECORDED", "REPLAYED")
        console.print(table("decided otherwise", heads, rows))


def _over_time(moments: Sequence[Row]) -> Table:
    """Waiting vreplicas and pods over time, as lines of blocks with the same scale."""
    lines = Table("OVER TIME", "", "", "MOST", box=None, pad_edge=False)
    for what, title in (("unplaced", "vreplicas unplaced"), ("pods", "pods")):
        series = {name: [moment[what][name] for moment in moments] for name in moments[0][what]}
        most = max(map(max, series.values()))
        for name, values in series.items():
            shown = title if name == "recorded" else ""
            lines.add_row(shown, _COLUMNS[name].lower(), _line(values, most), str(max(values)))
    return lines


def _line(values: Sequence[int], most: int) -> str:
    """At most ``LINE_CHARS`` blocks; each shows the maximum of its part of the time."""
    width = min(len(values), LINE_CHARS)
    parts = [
        values[len(values) * i // width : len(values) * (i + 1) // width] for i in range(width)
    ]
    return "".join(
        BLOCKS[-(-max(part) * (len(BLOCKS) - 1) // most) if most else 0] for part in parts
    )


def _decided(decided: Row | None) -> str:
    """A decision in words. Recordings may come from anybody: it has no control characters."""
    if decided is None:
        return "not possible any more"
    placed = " ".join(f"{pod}={count}" for pod, count in decided["placements"].items())
    more = f" and {decided['podsNotShown']} pods more" if "podsNotShown" in decided else ""
    waits = f"; {decided['unplaced']} unplaced" if decided["unplaced"] else ""
    reasons = "; ".join(decided["reasons"])
    return plain(f"{placed or 'nothing'}{more}{waits}{f': {reasons}' if reasons else ''}")
