"""The log in both its forms: a line a record, whoever has written a part of it, and keys
that stay.
"""

import io
import json
import logging
import re

import pytest

from extender.telemetry.logs import (
    FIELD_CHARS_MAX,
    FIELDS,
    JsonFormatter,
    LogFormat,
    RateLimitFilter,
    format_in_use,
    formatter_of,
    set_up,
    use_format,
)
from extender.telemetry.one_line import LINE_CHARS_MAX, OneLineFormatter


def _line(message: str, *arguments: object, extra: dict[str, object] | None = None) -> str:
    record = logging.getLogger("extender.service.placing.placer").makeRecord(
        "extender.service.placing.placer",
        logging.INFO,
        __file__,
        1,
        message,
        arguments,
        None,
        extra=extra,
    )
    return JsonFormatter().format(record)


def test_a_record_has_the_keys_that_it_always_has_and_the_fields_that_it_is_about():
    line = json.loads(
        _line("vpod %s waits", "team/a", extra={"vpod": "team/a", "pool": "ns/p", "else": "no"})
    )
    assert list(line) == ["ts", "level", "logger", "msg", "pool", "vpod"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"])
    assert (line["level"], line["logger"], line["msg"]) == (
        "INFO",
        "extender.service.placing.placer",
        "vpod team/a waits",
    )


@pytest.mark.parametrize(
    "text",
    ['a\nts":"x', "\x1b[31mred", "\u202egnp", "half \ud800 a pair", 'quote " and \\', "\r\n{}"],
    ids=["newline", "escape sequence", "direction", "surrogate", "quotes", "carriage return"],
)
def test_whatever_a_tenant_writes_is_one_line_of_plain_json(text):
    line = _line("vpod %s", text, extra={"vpod": text})
    assert line.isascii()
    assert line.isprintable()
    read = json.loads(line)
    assert read["msg"].isprintable()
    assert read["vpod"].isprintable()


def test_a_long_text_is_cut_in_the_message_and_in_a_field():
    read = json.loads(_line("%s", "x" * 100_000, extra={"vpod": "y" * 100_000}))
    assert len(read["msg"]) < LINE_CHARS_MAX + 100
    assert len(read["vpod"]) == FIELD_CHARS_MAX


def test_a_traceback_is_in_the_same_line():
    stream = io.StringIO()
    logger = logging.getLogger("a test's")
    logger.propagate = False
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "two" in json.loads(line)["exception"]


def test_no_field_is_called_as_what_logging_itself_puts_into_a_record():
    assert not set(FIELDS) & set(vars(logging.makeLogRecord({})))


def test_level_and_form_can_be_set_again_at_work(monkeypatch):
    root = logging.Logger("root")  # noqa: LOG001 - the real one has pytest's handlers
    monkeypatch.setattr(logging, "getLogger", lambda: root)
    set_up("info", LogFormat.TEXT)
    set_up("debug", LogFormat.JSON)
    assert root.level == logging.DEBUG
    (handler,) = root.handlers
    assert isinstance(handler.formatter, JsonFormatter)
    assert format_in_use() is LogFormat.JSON
    use_format(LogFormat.TEXT)
    assert format_in_use().value == "text"
    assert [type(each.formatter) for each in root.handlers] == [OneLineFormatter]


def test_who_has_set_up_logging_before_us_keeps_it(monkeypatch):
    root = logging.Logger("root")  # noqa: LOG001 - the real one has pytest's handlers
    root.addHandler(theirs := logging.NullHandler())
    monkeypatch.setattr(logging, "getLogger", lambda: root)
    set_up("debug", LogFormat.JSON)
    assert root.handlers == [theirs]
    assert root.level == logging.NOTSET


def test_text_is_what_people_read():
    record = logging.makeLogRecord({"name": "webhook", "levelname": "INFO", "msg": "serving\n"})
    assert formatter_of(LogFormat.TEXT).format(record).endswith(" INFO webhook: serving\\n")


def test_of_what_a_stranger_has_us_write_some_lines_a_second_pass_and_the_rest_is_counted():
    now = 100.5
    filtered = RateLimitFilter(2, lambda: now)
    first = [_passes(filtered, f"refused {number}") for number in range(5)]
    now = 101.0
    assert first == ["refused 0", "refused 1", None, None, None]
    assert _passes(filtered, "refused %d", 5) == "refused 5 (3 lines before it were left out)"
    assert _passes(filtered, "refused 6") == "refused 6"


def _passes(filtered: RateLimitFilter, message: str, *arguments: object) -> str | None:
    record = logging.LogRecord("any", logging.WARNING, "file", 1, message, arguments, None)
    return record.getMessage() if filtered.filter(record) else None
