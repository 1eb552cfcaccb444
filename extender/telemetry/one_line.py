"""``OneLineFormatter``: how both programs write their log, so that nobody else can write a line of
it.

Names, messages of the API server and bodies of requests end up in messages. Whoever chooses such a
text could end the line and begin one of his own, colour a terminal, turn the direction of text, or
fill a disk. So a record is one line of printable characters and has an end. Only a traceback has
more lines; each of them is indented, as no record is.
"""

import logging
from types import TracebackType
from typing import Final

LINE_CHARS_MAX: Final = 4096
TRACEBACK_LINES_MAX: Final = 200
_INDENT: Final = "    "

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
"""As ``sys.exc_info`` gives it."""


class OneLineFormatter(logging.Formatter):
    """One message is one line, whatever text of tenants or servers is in it; only a traceback has
    more.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class names it so
        """The message with what is not printable escaped."""
        return one_line(super().formatMessage(record))

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - the base class names it so
        """The traceback, indented, its last lines where it is long: an exception's text may come
        from anywhere too.
        """
        lines = super().formatException(ei).split("\n")
        cut = (
            [f"... {len(lines) - TRACEBACK_LINES_MAX} lines"]
            if len(lines) > TRACEBACK_LINES_MAX
            else []
        )
        return "\n".join(_INDENT + one_line(line) for line in cut + lines[-TRACEBACK_LINES_MAX:])


def one_line(text: str) -> str:
    """Text on one line of at most ``LINE_CHARS_MAX`` characters, escaped where it is not
    printable.
    """
    cut = len(text) - LINE_CHARS_MAX
    shown = text[:LINE_CHARS_MAX]
    if not shown.isprintable():
        shown = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown
        )
        shown, cut = shown[:LINE_CHARS_MAX], max(cut, len(shown) - LINE_CHARS_MAX)
    return shown if cut <= 0 else f"{shown}... ({len(text)} characters)"
