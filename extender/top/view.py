"""How ``vreplica top`` looks: an overview (``core.overview``) as tables that fit the terminal. Pure.

Names and messages are whoever's wrote them: they are shown as plain text, cut to their column, never as markup.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from extender.terminal.output import plain
from extender.top.sorting import SORTS, Row, count, sort_pods

POOL_ROWS_MAX: Final = 12
HEAD_ROWS: Final = 12
"""Of the head, and of the heads of three tables."""
ROWS_MIN: Final = 3
RATES: Final = (
    ("decisions", "decisions"),
    ("binds", "binds"),
    ("published", "vpods placed"),
    ("moved", "moved"),
)


@dataclass(frozen=True, slots=True)
class View:
    """What is shown. ``rates``: a second, by counter; None before the second look. ``problem``: why it is not fresh."""

    overview: Row
    rates: Mapping[str, float] | None = None
    sort: str = SORTS[0]
    paused: bool = False
    problem: str = ""
    interactive: bool = True

    def sorted_next(self) -> "View":
        """Sorted by the next column."""
        return replace(self, sort=SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)])

    def render(self, height: int) -> RenderableType:
        """For a terminal of so many rows."""
        pools, waiting = rows(self.overview, "pools"), rows(self.overview, "waiting")
        left = max(2 * ROWS_MIN, height - HEAD_ROWS - min(len(pools), POOL_ROWS_MAX))
        waiting_rows = min(len(waiting), max(ROWS_MIN, left // 2)) if waiting else 0
        parts: list[RenderableType] = [
            self._head(),
            _pools(pools, self._more("pools", len(pools), POOL_ROWS_MAX)),
        ]
        pods = sort_pods(rows(self.overview, "pods"), self.sort)
        parts.append(self._pods(pods, max(ROWS_MIN, left - waiting_rows)))
        if waiting:
            parts.append(
                _waiting(
                    waiting[:waiting_rows],
                    str(self.overview.get("at") or ""),
                    self._more("waiting", len(waiting), waiting_rows),
                )
            )
        return Group(*parts)

    def _head(self) -> Text:
        identity, leader = (
            plain(self.overview.get("identity") or ""),
            plain(self.overview.get("leader") or ""),
        )
        who = (
            f"{identity} leads"
            if identity and self.overview.get("leading")
            else f"leader {leader or 'not known'}"
        )
        if self.overview.get("shadow"):
            who = f"{identity} (shadow mode)"
        head = Text(f"{plain(self.overview.get('at') or '')}  {who}")
        if self.rates is not None:
            told = "  ".join(
                f"{title} {self.rates[name]:.1f}/s" for name, title in RATES if name in self.rates
            )
            head.append(f"  {told}")
        if self.paused:
            head.append("  PAUSED", style="bold")
        if self.problem:
            head.append(f"\n{plain(self.problem)[:300]}", style="bold red")
        if self.interactive:
            head.append("\nq quit  p pause  s sort", style="dim")
        return head

    def _more(self, what: str, listed: int, shown: int) -> int:
        """How many are not shown, here or already not told."""
        untold = self.overview.get(f"{what}NotListed")
        return max(0, listed - shown) + (untold if isinstance(untold, int) else 0)

    def _pods(self, pods: Sequence[Row], shown: int) -> Table:
        more = self._more("pods", len(pods), shown)
        table = _table(
            f"pods by {self.sort}", more, "POD", "NODE", "ZONE", "USED", "SLOTS", "FREE", "VPODS", "STATE"
        )
        for row in pods[:shown]:
            state = str(row.get("state") or "")
            style = "bold red" if state == "overcommitted" else "yellow" if state else ""
            table.add_row(
                *_texts(f"{row.get('pool')}: {row.get('name')}", row.get("node"), row.get("zone")),
                *_texts(row.get("usedSlots"), row.get("slots"), row.get("freeSlots"), row.get("vpods")),
                *_texts(state),
                style=style,
            )
        return table


def rates_between(before: Row, after: Row, seconds: float) -> dict[str, float]:
    """How much each counter has grown a second. A process that has started anew counts from nothing."""
    if seconds <= 0:
        return {}
    old, new = before.get("counters"), after.get("counters")
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return {}
    return {name: max(0, count(new, name) - count(old, name)) / seconds for name, _ in RATES if name in new}


def rows(overview: Row, name: str) -> list[Row]:
    """A list of the overview; of a replica of another version perhaps none."""
    found = overview.get(name)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def _pools(pools: Sequence[Row], more: int) -> Table:
    titles = ("POOL", "PROFILE", "PODS", "READY", "SLOTS", "USED", "FREE", "PENDING", "VPODS", "LEAVING")
    table = _table("pools", more, *titles)
    for row in pools[:POOL_ROWS_MAX]:
        leaving = count(row, "closedPods") + count(row, "drainingPods")
        pending = count(row, "pendingVReplicas")
        table.add_row(
            *_texts(row.get("name"), row.get("profile"), row.get("pods"), row.get("schedulablePods")),
            *_texts(row.get("slots"), row.get("usedSlots"), row.get("freeSlots"), pending),
            *_texts(row.get("vpods"), leaving),
            style="yellow" if pending else "",
        )
    return table


def _waiting(waiting: Sequence[Row], now: str, more: int) -> Table:
    table = _table("vpods that wait", more, "VPOD", "POOL", "WANTS", "WAITS", "SINCE", "REASON")
    for row in waiting:
        reason = " ".join(filter(None, (str(row.get("reason") or ""), str(row.get("message") or ""))))
        table.add_row(
            *_texts(row.get("vpod"), row.get("pool"), row.get("vreplicas"), row.get("pending")),
            *_texts(_age(str(row.get("since") or ""), now), reason),
        )
    return table


def _age(since: str, now: str) -> str:
    try:
        seconds = int((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds())
    except (ValueError, TypeError):
        return "?"
    if seconds < 120:
        return f"{max(0, seconds)}s"
    return f"{seconds // 60}m" if seconds < 7200 else f"{seconds // 3600}h"


def _table(title: str, more: int, *titles: str) -> Table:
    caption = f"and {more:,} more" if more else None
    table = Table(
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=None,
        expand=True,
        pad_edge=False,
    )
    for name in titles:
        number = name in {
            "PODS",
            "READY",
            "SLOTS",
            "USED",
            "FREE",
            "PENDING",
            "VPODS",
            "LEAVING",
            "WANTS",
            "WAITS",
        }
        table.add_column(name, justify="right" if number else "left", no_wrap=True, overflow="ellipsis")
    return table


def _texts(*values: object) -> list[Text]:
    return [Text(plain("" if value is None else value)) for value in values]
