"""Prints the answer of ``vreplica explain`` on a terminal: the outcome, what to do, the reasons,
the rest.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from extender.cli.terminal.short import short_identity, short_time
from extender.model.counted import counted

CANDIDATES_SHOWN: Final = 20
FIXES_SHOWN: Final = 8
HISTORY_SHOWN: Final = 5
LOSSES_SHOWN: Final = 10
STEPS_SHOWN: Final = 8
"""If there are more, they are summed up: a vpod on a hundred pods has a hundred steps of one
kind.
"""
_STEP: Final = re.compile(r"([^:]+): (\d+) on (\S+)( \(.*\))?")
_WRAPPED: Final = frozenset({"WHY", "WHY NO MORE", "DECIDED"})

Row = Mapping[str, Any]


def explain_tables(console: Console, answer: Mapping[str, Any]) -> None:
    """Print an answer of ``explain_vpod`` or ``explain_pod``."""
    lines = _vpod_lines(answer) if answer["kind"] == "VPod" else _pod_lines(answer)
    for line in lines:
        console.print(line)
    _fixes(console, answer)
    _steps(console, answer["steps"])
    if answer["kind"] == "Pod":
        _carried(console, answer)
    _candidates(console, answer)
    if answer["kind"] == "VPod":
        _zone_loss(console, answer)
    _history(console, answer["history"])


# -- what it is ------------------------------------------------------------------------------------


def _vpod_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    placed, published = sum(answer["placed"].values()), sum(answer["published"].values())
    weight = answer["slotsPerVReplica"]
    yield f"[bold]VPod {escape(answer['name'])}[/bold] in pool {_pool(answer)}"
    yield (
        f"wants {counted(answer['wanted'], 'vreplica')}"
        + (f" of {counted(weight, 'slot')}" if weight > 1 else "")
        + f", has {placed}, publishes {published}"
    )
    if answer.get("unserved"):
        yield f"[bold red]{escape(answer['unserved'])}[/bold red]"
    style = "bold red" if answer["left"] else "bold green"
    yield f"[{style}]{escape(answer['outcome'])}[/{style}]"
    if quota := answer.get("quota"):
        yield from map(escape, _quota_lines(quota))
    if answer["rule"]:
        yield f"the profile's rule for new ones: {escape(answer['rule'])}"
    size, waiting = answer["size"], answer["waiting"]
    if size:
        yield escape(_size(size))
        if size["withoutNode"]:
            yield escape(_without_node(size))
    if waiting["vpods"]:
        yield (
            f"others of the pool that wait: {waiting['vpods']}, for "
            f"{counted(waiting['slots'], 'slot')}"
        )


def _quota_lines(quota: Mapping[str, Any]) -> Iterator[str]:
    """What the vpod's tenant has in its pool, who has borrowed most, and what would help."""
    limit, share = quota["limit"], quota["share"]
    yield (
        f"tenant {quota['tenant']} uses {counted(quota['usedSlots'], 'slot')}: "
        f"{quota['guarantee']} guaranteed, "
        + ("no limit" if limit is None else f"a limit of {limit}")
        + ("" if share is None else f", a fair share of {share}")
    )
    if quota["borrowers"] and quota["notAdmitted"]:
        most = ", ".join(f"{one['tenant']} ({one['borrowedSlots']})" for one in quota["borrowers"])
        yield f"slots beyond their guarantees have {most}"
    if quota["helps"]:
        yield f"what would help: {quota['helps']}"


def _size(size: Mapping[str, Any]) -> str:
    more = "".join(f", {most} {name}" for name, most in size.get("capacities", {}).items())
    text = (
        f"the pool has {counted(size['replicas'], 'pod')} of "
        f"{counted(size['slotsPerPod'], 'slot')}{more} "
        f"({size['schedulable']} schedulable, {counted(size['freeSlots'], 'slot')} free) and needs "
        f"{size['unlimited']}"
    )
    if size["wanted"] < size["unlimited"]:
        return f"{text}: maxPods holds it at {max(size['wanted'], size['maxPods'] or 0)}"
    return f"{text}: it grows by itself" if size["wanted"] > size["replicas"] else text


def _without_node(size: Mapping[str, Any]) -> str:
    count, refusal = size["withoutNode"], size["refusal"]
    text = f"{count} of its pods {'waits' if count == 1 else 'wait'} for a node"
    return f"{text}; kube-scheduler finds none: {refusal}" if refusal else text


def _pod_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    yield f"[bold]Pod {escape(answer['name'])}[/bold] of pool {_pool(answer)}"
    style = "bold green" if answer["schedulable"] else "bold red"
    yield f"[{style}]{escape(answer['outcome'])}[/{style}]"


def _pool(answer: Mapping[str, Any]) -> str:
    """The pool and its profile. A pool that does not exist has none."""
    profile = f", profile {escape(answer['profile'])}" if answer["profile"] else ""
    return escape(answer["pool"]) + profile


# -- how it was decided ----------------------------------------------------------------------------


def _steps(console: Console, steps: Sequence[str]) -> None:
    if not steps:
        return
    console.print("[bold]why[/bold]")
    for line in summed_up(steps) if len(steps) > STEPS_SHOWN else steps:
        console.print(Padding(escape(line), (0, 0, 0, 2)))


def summed_up(steps: Sequence[str]) -> list[str]:
    """Sum up steps of the same kind and reason in one line each, such as ``kept: 348 on 120
    pods``.
    """
    sums: dict[tuple[str, str], list[int]] = {}
    for step in steps:
        found = _STEP.fullmatch(step)
        key = (found[1], found[4] or "") if found else (step, "")
        sums.setdefault(key, []).append(int(found[2]) if found else 0)
    return [
        f"{what}: {sum(counts)} on {len(counts)} pod{'s' * (len(counts) != 1)}{why}"
        if any(counts)
        else what
        for (what, why), counts in sums.items()
    ]


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table without columns that are empty in all rows. Names are never wrapped; texts take the
    rest of the width.
    """
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    used = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    for index in used:
        table.add_column(heads[index], no_wrap=heads[index] not in _WRAPPED, overflow="fold")
    for row in rows:
        table.add_row(*(escape(row[index]) for index in used))
    return table


# -- what to do ------------------------------------------------------------------------------------


def _fixes(console: Console, answer: Mapping[str, Any]) -> None:
    """What would place a vpod, or let a node take a pod."""
    fixes, is_vpod = answer["fixes"], answer["kind"] == "VPod"
    cut = " (time was up before all was tried)" if answer["fixesCutShort"] else ""
    if fixes:
        title = "what would place it" if is_vpod else "what would let a node take it"
        console.print(f"[bold]{title}[/bold]{cut}")
    elif answer["left"] if is_vpod else answer["changesTried"]:
        which = "that places more of it" if is_vpod else "with which a node takes it"
        console.print(f"no single change was found {which}{cut}")
    for number, fix in enumerate(fixes[:FIXES_SHOWN], 1):
        result = escape("; ".join(_of_vpod(fix) if is_vpod else _of_pod(fix)))
        what = f"[bold]{escape(fix['change'])}[/bold] ({escape(fix['object'])})"
        console.print(Padding(f"{number}. {what}{result}", (0, 0, 0, 2)))
    if len(fixes) > FIXES_SHOWN:
        console.print(f"{len(fixes) - FIXES_SHOWN} changes more: -o json lists them")


def _of_vpod(fix: Row) -> Iterator[str]:
    moved = f", {fix['moves']} moved" if fix["moves"] else ""
    yield f": {fix['places']} more placed, {fix['left']} left{moved}"
    if fix["byItself"]:
        yield "by itself"
    if fix["onlyBeforeOthers"]:
        yield "if it is served before the others that wait"
    if fix["note"]:
        yield fix["note"]


def _of_pod(fix: Row) -> Iterator[str]:
    names = fix["nodes"]
    others = " and others" if len(names) > 3 else ""
    yield f": then {', '.join(names[:3])}{others} would" if names else ""
    if fix["note"]:
        yield fix["note"]


# -- candidates ------------------------------------------------------------------------------------


_POD_COLUMNS: Final = {
    "POD": "pod",
    "NODE": "node",
    "ZONE": "zone",
    "FREE": "free",
    "HAS": "has",
    "VERDICT": "verdict",
    "WHY NO MORE": "text",
    "SCORE": "score",
}
_NODE_COLUMNS: Final = {
    "NODE": "node",
    "ZONE": "zone",
    "ADAPTER PODS": "adapterPods",
    "SLOTS": "slots",
    "VERDICT": "verdict",
    "WHY": "text",
    "SCORE": "score",
}
"""Title -> key of the row."""


def _candidates(console: Console, answer: Mapping[str, Any]) -> None:
    rows: Sequence[Row] = answer["candidates"]
    if not rows:
        return
    columns = _POD_COLUMNS if answer["kind"] == "VPod" else _NODE_COLUMNS
    chosen = [row for row in rows if row["verdict"] == "chosen"]
    others = [row for row in rows if row["verdict"] != "chosen"]
    shown = [*chosen, *others][:CANDIDATES_SHOWN]
    cells = [_cells(row, columns.values()) for row in rows if row in shown]
    console.print(_table("candidates", list(columns), cells))
    more = len(rows) - len(shown) + answer["candidatesNotListed"]
    if more > 0:
        refusals = ", ".join(f"{count} {text}" for text, count in answer["refusals"].items())
        console.print(f"{more} more; all in all: {refusals or 'none refuses'}")


def _cells(row: Row, keys: Iterable[str]) -> list[str]:
    if "vreplicas" in row:  # a pod
        free = f"{row['freeSlots']}/{row['slots']}"
        row = {**row, "free": free, "has": row["vreplicas"] or ""}
    return ["" if row[key] is None else str(row[key]) for key in keys]


# -- the rest --------------------------------------------------------------------------------------


def _zone_loss(console: Console, answer: Mapping[str, Any]) -> None:
    total = sum((answer["placed"] or answer["target"]).values())
    losses = answer["zoneLoss"].items()
    if losses and total:
        lost = ", ".join(
            f"{zone} {count} ({round(100 * count / total)} %)" for zone, count in losses
        )
        console.print(f"lost with a zone: {lost}")


def _carried(console: Console, answer: Mapping[str, Any]) -> None:
    rows = answer["carries"]
    if not rows:
        return
    lost = {
        what: {row["vpod"]: f"{row['lost']} ({row['percent']} %)" for row in answer["loss"][what]}
        for what in ("pod", "node", "zone")
    }
    heads = ("VPOD", "VREPLICAS", "OF", "SLOTS", "LOST WITH POD", "WITH NODE", "WITH ZONE")
    cells = [
        (
            row["vpod"],
            *(str(row[what]) for what in ("vreplicas", "of", "slots")),
            *(lost[what].get(row["vpod"], "") for what in ("pod", "node", "zone")),
        )
        for row in rows[:LOSSES_SHOWN]
    ]
    console.print(_table("carries", heads, cells))
    if len(rows) > LOSSES_SHOWN:
        console.print(f"{len(rows) - LOSSES_SHOWN} vpods more: -o json lists them")


def _history(console: Console, history: Sequence[Row]) -> None:
    if not history:
        return
    now = datetime.now(UTC)
    cells = [
        (short_time(one["at"], now), short_identity(one["by"]), one["why"], one["text"])
        for one in history[:HISTORY_SHOWN]
    ]
    console.print(_table("decided", ("AT (UTC)", "BY", "WHY", "DECIDED"), cells))
