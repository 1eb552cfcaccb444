"""Shows an overview (``whatif.overview``) as tables that fit the terminal. Pure.

Names and messages may come from anybody. They are shown as plain text, cut to their column, never
as markup.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from extender.cli.terminal.output import plain
from extender.cli.terminal.short import short_identity, short_time
from extender.cli.top.sorting import SORTS, Row, count, sort_pods

POOL_ROWS_MAX: Final = 12
HEAD_ROWS: Final = 12
"""Rows of the head, and of the titles of three tables."""
ROWS_MIN: Final = 3
_POOLS: Final = {
    "POOL": "name",
    "PROFILE": "profile",
    "PODS": "pods",
    "READY": "schedulablePods",
    "SLOTS": "slots",
    "USED": "usedSlots",
    "FREE": "freeSlots",
    "CLOSED": "closedSlots",
    "PENDING": "pendingVReplicas",
    "UNSERVED": "unservedVReplicas",
    "VPODS": "vpods",
    "LEAVING": "leaving",
}
_PODS: Final = {
    "POD": "name",
    "POOL": "pool",
    "NODE": "node",
    "ZONE": "zone",
    "USED": "usedSlots",
    "SLOTS": "slots",
    "FREE": "freeSlots",
    "VPODS": "vpods",
    "UNSERVED": "unserved",
    "STATE": "state",
    "HAND-OVER": "handOver",
}
_WAITING: Final = {
    "VPOD": "vpod",
    "POOL": "pool",
    "WANTS": "vreplicas",
    "WAITS": "pending",
    "SINCE": "age",
    "REASON": "why",
}
_CUT: Final = frozenset({"PROFILE", "NODE", "ZONE", "STATE", "HAND-OVER", "REASON"})
"""Columns that are cut on a narrow terminal. Numbers, and names that people need whole, are not."""
_STATE_STYLES: Final = {"": "", "overcommitted": "bold red"}
_TENANTS: Final = {
    "TENANT": "tenant",
    "POOL": "pool",
    "VPODS": "vpods",
    "GUARANTEE": "guarantee",
    "LIMIT": "limit",
    "SHARE": "share",
    "USED": "usedSlots",
    "BORROWED": "borrowedSlots",
    "WAITS": "waitingSlots",
}
TENANT_ROWS_MAX: Final = 8
"""Beside pools and pods; ``top tenants`` shows more."""
RATES: Final = (
    ("decisions", "decisions"),
    ("binds", "binds"),
    ("published", "vpods placed"),
    ("moved", "moved"),
)


@dataclass(frozen=True, slots=True)
class View:
    """The content. ``rates``: per second, by counter; None before the second look. ``problem``: why
    the overview is old.
    """

    overview: Row
    rates: Mapping[str, float] | None = None
    sort: str = SORTS[0]
    paused: bool = False
    problem: str = ""
    interactive: bool = True
    tenants_only: bool = False

    def sorted_next(self) -> "View":
        """The view in the next sort order."""
        return replace(self, sort=SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)])

    def render(self, height: int) -> RenderableType:
        """Render for a terminal with that many rows."""
        tenants = rows(self.overview, "tenants")
        if self.tenants_only:
            return Group(self._head(), self._tenants(tenants, max(ROWS_MIN, height - HEAD_ROWS)))
        pools, waiting = rows(self.overview, "pools"), rows(self.overview, "waiting")
        left = max(2 * ROWS_MIN, height - HEAD_ROWS - min(len(pools), POOL_ROWS_MAX))
        waiting_rows = min(len(waiting), max(ROWS_MIN, left // 2)) if waiting else 0
        parts: list[RenderableType] = [
            self._head(),
            _pools(pools, self._more("pools", len(pools), POOL_ROWS_MAX)),
        ]
        pods = sort_pods(rows(self.overview, "pods"), self.sort)
        parts.append(self._pods(pods, max(ROWS_MIN, left - waiting_rows)))
        if tenants:
            parts.append(self._tenants(tenants, TENANT_ROWS_MAX))
        if waiting:
            parts.append(
                _waiting(
                    waiting[:waiting_rows],
                    str(self.overview.get("at") or ""),
                    self._more("waiting", len(waiting), waiting_rows),
                    self._one_pool(),
                )
            )
        return Group(*parts)

    def _head(self) -> Text:
        identity, leader = (
            short_identity(plain(self.overview.get("identity") or "")),
            short_identity(plain(self.overview.get("leader") or "")),
        )
        who = (
            f"{identity} leads"
            if identity and self.overview.get("leading")
            else f"leader {leader or 'not known'}"
        )
        if self.overview.get("shadow"):
            who = f"{identity} (shadow mode)"
        at = plain(self.overview.get("at") or "")
        head = Text(f"{short_time(at, datetime.now(UTC))} UTC  {who}" if at else who)
        if self.rates is not None:
            rates = "  ".join(
                f"{title} {self.rates[name]:.1f}/s" for name, title in RATES if name in self.rates
            )
            head.append(f"  {rates}")
        if self.paused:
            head.append("  PAUSED", style="bold")
        if self.problem:
            head.append(f"\n{plain(self.problem)[:300]}", style="bold red")
        if self.interactive:
            head.append("\nq quit  p pause  s sort", style="dim")
        return head

    def _more(self, what: str, listed: int, shown: int) -> int:
        """How many rows are neither listed nor shown."""
        not_listed = self.overview.get(f"{what}NotListed")
        return max(0, listed - shown) + (not_listed if isinstance(not_listed, int) else 0)

    def _pods(self, pods: Sequence[Row], shown: int) -> Table:
        more = self._more("pods", len(pods), shown)
        listed = [{**row, "unserved": count(row, "unserved") or ""} for row in pods[:shown]]
        styles = [
            "bold red"
            if count(row, "unserved")
            else _STATE_STYLES.get(str(row.get("state") or ""), "yellow")
            for row in pods[:shown]
        ]
        return _table(f"pods by {self.sort}", more, _PODS, listed, styles, hidden=self._one_pool())

    def _tenants(self, tenants: Sequence[Row], shown: int) -> Table:
        more = self._more("tenants", len(tenants), shown)
        listed = [{**row, "waitingSlots": count(row, "waitingSlots")} for row in tenants[:shown]]
        styles = ["yellow" if row["waitingSlots"] else "" for row in listed]
        return _table("tenants, in slots", more, _TENANTS, listed, styles, hidden=self._one_pool())

    def _one_pool(self) -> frozenset[str]:
        """With one pool, the column POOL is not needed."""
        return frozenset({"POOL"} if len(rows(self.overview, "pools")) == 1 else ())


def rates_between(before: Row, after: Row, seconds: float) -> dict[str, float]:
    """Growth of each counter per second. After a restart, a counter begins at zero, and its rate is
    0.
    """
    if seconds <= 0:
        return {}
    old, new = before.get("counters"), after.get("counters")
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return {}
    return {
        name: max(0, count(new, name) - count(old, name)) / seconds
        for name, _ in RATES
        if name in new
    }


def rows(overview: Row, name: str) -> list[Row]:
    """A list of the overview; empty if a replica of another version does not send it."""
    found = overview.get(name)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def _pools(pools: Sequence[Row], more: int) -> Table:
    shown: list[Row] = []
    styles: list[str] = []
    for row in pools[:POOL_ROWS_MAX]:
        found = row.get("found") is not False  # an older replica sends only existing ones
        pending, unserved = count(row, "pendingVReplicas"), count(row, "unservedVReplicas")
        changed = {
            "profile": row.get("profile") if found else "(does not exist)",
            "closedSlots": count(row, "closedSlots") or "",
            "pendingVReplicas": pending,
            "unservedVReplicas": unserved or "",
            "leaving": count(row, "closedPods") + count(row, "drainingPods") or "",
        }
        shown.append({**row, **changed})
        styles.append("bold red" if unserved or not found else "yellow" if pending else "")
    return _table("pools", more, _POOLS, shown, styles)


def _waiting(waiting: Sequence[Row], now: str, more: int, hidden: frozenset[str]) -> Table:
    shown = [
        {
            **row,
            "age": _age(str(row.get("since") or ""), now),
            "why": " ".join(str(row[key]) for key in ("reason", "message") if row.get(key)),
        }
        for row in waiting
    ]
    return _table("vpods that wait", more, _WAITING, shown, hidden=hidden)


def _age(since: str, now: str) -> str:
    try:
        seconds = int((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds())
    except (ValueError, TypeError):
        return "?"
    if seconds < 120:
        return f"{max(0, seconds)}s"
    return f"{seconds // 60}m" if seconds < 7200 else f"{seconds // 3600}h"


def _table(
    title: str,
    more: int,
    columns: Mapping[str, str],
    rows: Sequence[Row],
    styles: Sequence[str] = (),
    *,
    hidden: frozenset[str] = frozenset(),
) -> Table:
    """A table without ``hidden`` columns and columns that are empty in all rows. ``columns``: title
    -> key of its cells. Numbers stand at the right. On a narrow terminal, the columns of ``_CUT``
    are cut.
    """
    table = Table(
        title=title,
        title_justify="left",
        caption=f"and {more:,} more" if more else None,
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    used: dict[str, list[object]] = {}
    for head, key in columns.items():
        cells = ["" if row.get(key) is None else row[key] for row in rows]
        if head not in hidden and (not rows or any(cell != "" for cell in cells)):
            used[head] = cells
    for head, cells in used.items():
        # rich first shrinks columns that may wrap. Their cells may not wrap, so they are cut.
        table.add_column(
            Text(head, no_wrap=True, overflow="ellipsis"),
            justify="right" if all(cell == "" or type(cell) is int for cell in cells) else "left",
            no_wrap=head not in _CUT,
        )
    for number in range(len(rows)):
        line = [
            Text(plain(cells[number]), no_wrap=True, overflow="ellipsis") for cells in used.values()
        ]
        table.add_row(*line, style=styles[number] if styles else "")
    return table
