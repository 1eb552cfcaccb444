"""The console of rich, for results that people read, and its tables."""

from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table


class Terminal(Console):
    """Standard output. If the reader is gone, the command ends as with any other output."""

    def __init__(self) -> None:
        super().__init__(highlight=False)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError. rich itself would end the program with status 1."""
        raise BrokenPipeError


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[RenderableType]]) -> Table:
    """A table with its title at the left. Texts may come from anybody: none acts as markup."""
    made = Table(*heads, title=escape(title), title_justify="left")
    for row in rows:
        made.add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in row))
    return made
