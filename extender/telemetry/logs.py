"""How both programs write their log to stderr: as ``--log-format text`` or ``json``.

Text is for people (``one_line``). JSON is one object a line, with stable keys:

- always ``ts`` (RFC 3339, UTC, milliseconds), ``level`` (DEBUG to CRITICAL), ``logger``, ``msg``;
- ``exception``, a traceback; its line feeds are escaped, as JSON requires;
- ``trace_id`` if the record is written within a trace (``extender.telemetry.tracing``);
- those ``FIELDS`` that the record is about. Keys of pools, vpods and pods are ``namespace/name``.

Names and messages come from tenants and servers. So both formats escape characters that are not
printable, and cut long texts. No such text can begin a line, and a viewer that shows decoded JSON
shows no terminal escape sequences.
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from extender.model.timestamps import timestamp
from extender.telemetry.one_line import OneLineFormatter, one_line
from extender.telemetry.tracing import trace_id

FIELDS: Final = ("pool", "vpod", "pod", "node", "lease", "reason")
"""What ``extra=`` of a logging call may carry, in the order in which it is written."""
FIELD_CHARS_MAX: Final = 512
TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogFormat(StrEnum):
    """The formats of the log."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(OneLineFormatter):
    """Formats a record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, str] = {
            "ts": timestamp(record.created, "milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "msg": one_line(record.getMessage()),
        }
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                line[name] = one_line(str(value)[:FIELD_CHARS_MAX])
        if trace := trace_id():
            line["trace_id"] = trace
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Not orjson: it refuses half a surrogate pair, which an API server's answer may hold.
        return json.dumps(line, separators=(",", ":"))


class RateLimitFilter(logging.Filter):
    """Passes at most ``per_second`` records a second. The next record says how many were left out.
    It limits what strangers can make a program log.
    """

    def __init__(self, per_second: int, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._per_second = per_second
        self._now_s = now_s
        self._second = 0
        self._passed = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is written."""
        second = int(self._now_s())
        if second != self._second:
            self._second, self._passed = second, 0
        if self._passed >= self._per_second:
            self._left_out += 1
            return False
        self._passed += 1
        if self._left_out:
            record.msg = f"{record.getMessage()} ({self._left_out} lines before it were left out)"
            record.args, self._left_out = (), 0
        return True


def formatter_of(log_format: LogFormat) -> logging.Formatter:
    """Return the formatter for that format."""
    return JsonFormatter() if log_format is LogFormat.JSON else OneLineFormatter(TEXT_FORMAT)


def set_up(level: str, log_format: LogFormat) -> None:
    """Log to stderr from ``level`` (``INFO``) upwards. Logging that another library has already set
    up stays as it is.
    """
    root = logging.getLogger()
    if root.handlers and not _ours():
        return
    if not root.handlers:
        root.addHandler(logging.StreamHandler(sys.stderr))
        root.handlers[0].setFormatter(formatter_of(log_format))
    use_format(log_format)
    root.setLevel(level.upper())


def format_in_use() -> LogFormat:
    """Return the format of our handler; TEXT if there is none."""
    return (
        LogFormat.JSON
        if any(type(one.formatter) is JsonFormatter for one in _ours())
        else LogFormat.TEXT
    )


def use_format(log_format: LogFormat) -> None:
    """Write in that format from here on. Handlers of other libraries stay as they are."""
    for handler in _ours():
        handler.setFormatter(formatter_of(log_format))


def _ours() -> list[logging.Handler]:
    return [
        one for one in logging.getLogger().handlers if isinstance(one.formatter, OneLineFormatter)
    ]
