"""``OneLineFormatter``: how both programs write their log, so that nobody else can write a line of
it.

Messages contain names, texts of the API server and bodies of requests. Such a text could end the
line and begin another, colour a terminal, reverse the direction of text, or fill a disk. So a
record is one line of printable characters with a limited length. Only a traceback has more lines.
Each of these is indented, and no record is.
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
    """Formats a message as one line, whatever text it contains. Only a traceback adds lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class names it so
        """Return the message with characters that are not printable escaped."""
        return one_line(super().formatMessage(record))

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - the base class names it so
        """Return the traceback, indented and escaped, because an exception's text may come from
        anywhere. A long one keeps its last lines.
        """
        lines = super().formatException(ei).split("\n")
        cut = (
            [f"... {len(lines) - TRACEBACK_LINES_MAX} lines"]
            if len(lines) > TRACEBACK_LINES_MAX
            else []
        )
        return "\n".join(_INDENT + one_line(line) for line in cut + lines[-TRACEBACK_LINES_MAX:])


def one_line(text: str) -> str:
    """Return the text as one line: escaped where it is not printable, and cut after
    ``LINE_CHARS_MAX`` characters.
    """
    cut = len(text) - LINE_CHARS_MAX
    shown = text[:LINE_CHARS_MAX]
    if not shown.isprintable():
        shown = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown
        )
        shown, cut = shown[:LINE_CHARS_MAX], max(cut, len(shown) - LINE_CHARS_MAX)
    return shown if cut <= 0 else f"{shown}... ({len(text)} characters)"
