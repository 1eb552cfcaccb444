"""The console for tables: rich's, except for a reader that is gone."""

from rich.console import Console


class Terminal(Console):
    """Standard output. If the reader is gone, the command ends as with any other output."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError. rich itself would end the program with status 1."""
        raise BrokenPipeError
