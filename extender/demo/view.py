"""The demonstration in a terminal: a live table of the adapter pods, and the story under it."""

from collections import deque
from collections.abc import Callable
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from extender.core.ledger import ledger_slots
from extender.core.model import AdapterPod, placement_order
from extender.demo.story import SLOTS, Census

LINES_MAX: Final = 14
_BAR_CHARS: Final = 20


class View:
    """Renders the census; ``tell`` adds a line to the story."""

    def __init__(self, census: Census, urls: list[str], zone_of: Callable[[str], str]) -> None:
        self._census = census
        self._zone_of = zone_of
        self._urls = urls
        self._lines: deque[str] = deque(maxlen=LINES_MAX)

    def tell(self, line: str) -> None:
        """A line of the story."""
        self._lines.append(line)

    def __rich__(self) -> RenderableType:
        census = self._census
        summary = (
            f"{census.placed} of {census.wanted} vreplicas placed, {len(census.pods)} adapter pods, "
            f"{len(census.vpods)} vpods, {census.moved} moved, {len(census.overcommitted)} overcommitted"
        )
        table = Table("POD", "NODE", "ZONE", "SLOTS", "", "VPODS")
        for pod in sorted(census.pods.values(), key=lambda pod: placement_order(pod.name)):
            table.add_row(*self._row(pod))
        return Group(
            Text(summary), table, Text("\n".join(self._lines)), Text("\n".join(self._urls), style="dim")
        )

    def _row(self, pod: AdapterPod) -> tuple[str, ...]:
        used = ledger_slots(pod.ledger) if pod.node else 0
        bar = "█" * round(_BAR_CHARS * used / SLOTS)
        state = pod.node or ("being deleted" if pod.deleting else "pending")
        return (
            pod.name,
            state,
            self._zone_of(pod.node),
            f"{used}/{pod.slots or SLOTS}",
            bar.ljust(_BAR_CHARS, "·"),
            str(len(pod.ledger) if pod.node else 0),
        )
