"""Shows the progress of long work on standard error; standard output is for the result.

On a terminal, one line is overwritten, and cleared at the end. Elsewhere, a line is printed every
``LINES_EVERY_S``, so that a log shows that the work goes on without filling up. Work that is done
within ``FIRST_AFTER_S`` prints nothing.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self, TextIO

FIRST_AFTER_S: Final = 1.0
TERMINAL_EVERY_S: Final = 0.1
LINES_EVERY_S: Final = 5.0
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """Progress of one piece of work; a context manager. ``clock``: seconds."""

    def __init__(
        self,
        what: str,
        *,
        unit: str = "",
        total: int = 0,
        to: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``what``: begins the line. ``unit``: what is counted. ``total``: of them, 0 if not
        known.
        """
        self._what = what
        self._unit = unit
        self._total = total
        self._to = to if to is not None else sys.stderr
        self._clock = clock
        self._terminal = self._to.isatty()
        self._due = clock() + FIRST_AFTER_S
        self._shown = False
        self.done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End: print nothing more, and clear the line on a terminal."""
        if self._shown and self._terminal:
            self._to.write(_CLEAR)
            self._to.flush()
        self._shown, self._due = False, float("inf")

    def __call__(self, done: int, total: int | None = None) -> None:
        """Set how many are done."""
        self.done = done
        self._total = self._total if total is None else total
        self.say("")

    def add(self, count: int = 1) -> None:
        """Count some more as done."""
        self(self.done + count)

    def say(self, note: str) -> None:
        """Print ``note`` after the count, if enough time has passed."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + (TERMINAL_EVERY_S if self._terminal else LINES_EVERY_S)
        self._shown = True
        line = " ".join(part for part in (self._what, self._count(), note) if part)
        # Return the cursor at once, so that log messages overwrite the line and do not follow it.
        self._to.write(f"{_CLEAR}{line}\r" if self._terminal else f"{line}\n")
        self._to.flush()

    def _count(self) -> str:
        if not self.done and not self._total:
            return ""
        of = f" of {self._total:,}" if self._total else ""
        percent = f" ({100 * min(self.done, self._total) // self._total} %)" if self._total else ""
        return f"{self.done:,}{of}{f' {self._unit}' if self._unit else ''}{percent}"


Report = Callable[[str], None]
"""Takes a few words on what is done at this moment."""


def report_nothing(_what: str) -> None:
    """Print nothing."""


@contextmanager
def working(command: str, what: str) -> Iterator[Report]:
    """Show progress of work that counts nothing and makes no calls while it computes: a thread
    prints what is being done.

    Yields a function that sets the text.
    """
    now, done = [what], threading.Event()

    def report(next_thing: str) -> None:
        now[0] = next_thing

    def watch() -> None:
        with Progress(f"vreplica {command}:") as progress:
            while True:
                progress.say(f"{now[0]} ...")
                if done.wait(TERMINAL_EVERY_S):
                    return

    watching = threading.Thread(target=watch, name="progress", daemon=True)
    watching.start()
    try:
        yield report
    finally:
        done.set()
        watching.join()
