"""The demonstration in a terminal: URLs, the story, and a live table of as many adapter pods as
fit.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from extender.lab.demo.adapters import Work
from extender.lab.demo.story import SLOTS, Census
from extender.model.counted import counted
from extender.model.ledger import ledger_slots
from extender.model.objects import AdapterPod, Node, placement_order

LINES_MAX: Final = 14
_BAR_CHARS: Final = 20
_HEAD_ROWS: Final = 1
_MORE_ROWS: Final = 1
_CURSOR_ROWS: Final = 1
"""The row below the last line: a terminal that is full to its last row scrolls."""


class View:
    """Renders the census into the height of the terminal; if the output is no terminal, all of it.
    ``tell`` adds a line to the story.

    ``node_of`` returns a node by its name, None if it is unknown. ``work``: of the adapters, if
    there are any.
    """

    def __init__(
        self,
        census: Census,
        urls: list[str],
        node_of: Callable[[str], Node | None],
        work: Work | None = None,
    ) -> None:
        self._work = work
        self._census = census
        self._node_of = node_of
        self._urls = urls
        self._lines: deque[str] = deque(maxlen=LINES_MAX)

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self._lines.append(line)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render. The URLs and the story are never cut to make room for the table."""
        above: list[RenderableType] = [
            Text("\n".join(self._urls), style="dim", overflow="fold"),
            Text("\n".join((*self._lines, self._summary()))),
        ]
        yield from above
        rows = len(self._census.pods)
        if console.is_terminal:
            taken = sum(len(console.render_lines(part, options, pad=False)) for part in above)
            room = console.size.height - taken - _HEAD_ROWS - _CURSOR_ROWS
            rows = rows if rows <= room else max(0, room - _MORE_ROWS)
        yield from self._pods(rows)

    def _summary(self) -> str:
        census = self._census
        summary = (
            f"{census.placed} of {counted(census.wanted, 'vreplica')} placed, "
            f"{counted(len(census.pods), 'pod')}, {counted(len(census.vpods), 'vpod')}, "
            f"{census.moved} moved, {len(census.overcommitted)} overcommitted"
        )
        not_ready = sorted({pod.node for pod in census.pods.values() if self._in_trouble(pod)})
        trouble = [f"{', '.join(not_ready)} not Ready"] if not_ready else []
        if unserved := sum(census.unserved.values()):
            trouble.append(f"nobody serves {counted(unserved, 'vreplica')}")
        below = [": ".join(trouble)] if trouble else []
        if self._work is not None:
            below.append(f"adapters did {counted(self._work.done, 'piece')} of work")
        return "\n".join((summary, *(["; ".join(below)] if below else [])))

    def _pods(self, rows: int) -> Sequence[RenderableType]:
        """Return a table of the first ``rows`` pods and the number of the others. Pods on nodes
        that are not Ready come first.
        """
        pods = sorted(
            self._census.pods.values(),
            key=lambda pod: (not self._in_trouble(pod), placement_order(pod.name)),
        )
        more = Text(f"and {len(pods) - rows} pods more", style="dim")
        if rows == 0:
            return [more] if pods else []
        table = Table("POD", "NODE", "ZONE", "SLOTS", "", "VPODS", box=None, pad_edge=False)
        for pod in pods[:rows]:
            table.add_row(*self._row(pod), style="yellow" if self._in_trouble(pod) else "")
        return [table, more] if rows < len(pods) else [table]

    def _in_trouble(self, pod: AdapterPod) -> bool:
        node = self._node_of(pod.node)
        return node is not None and not node.ready

    def _row(self, pod: AdapterPod) -> tuple[str, ...]:
        used = ledger_slots(pod.ledger) if pod.node else 0
        bar = "█" * round(_BAR_CHARS * used / SLOTS)
        node = self._node_of(pod.node)
        state = pod.node or ("being deleted" if pod.deleting else "pending")
        return (
            pod.name,
            f"{state} not Ready" if self._in_trouble(pod) else state,
            node.zone if node else "",
            f"{used}/{pod.slots or SLOTS}",
            bar.ljust(_BAR_CHARS, "·"),
            str(len(pod.ledger) if pod.node else 0),
        )
