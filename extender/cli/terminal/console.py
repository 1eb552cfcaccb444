"""Where tables are printed: rich's console, but for how it takes a reader that has gone."""

from rich.console import Console


class Terminal(Console):
    """Standard output. A reader that has stopped reading is the command's end, as for every other
    way of printing.
    """

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError: rich itself would end the program with status 1."""
        raise BrokenPipeError
