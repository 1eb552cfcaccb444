"""RFC 3339 times from objects."""

import pytest

from extender.model.timestamps import epoch_s


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:01:40Z", 100.0),
        ("1970-01-01T01:01:40+01:00", 100.0),
        ("1970-01-01T00:01:40.500000Z", 100.5),
        ("1970-01-01T00:01:40", -1.0),
        ("", -1.0),
        ("soon", -1.0),
        ("9999-99-99T00:00:00Z", -1.0),
    ],
)
def test_times_are_read_or_replaced(text, expected):
    assert epoch_s(text, -1.0) == expected
