"""Times and identities in tables: short, and still to be told apart."""

from datetime import UTC, datetime

import pytest

from extender.cli.terminal.short import IDENTITY_CHARS_MAX, short_identity, short_time

NOW = datetime(2026, 11, 22, 22, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("time", "said"),
    [
        pytest.param("2026-11-22T21:39:05Z", "21:39:05", id="today"),
        pytest.param("2026-11-22T21:39:05.123456Z", "21:39:05", id="with fractions"),
        pytest.param("2026-11-22T23:39:05+02:00", "21:39:05", id="of another offset"),
        pytest.param("2026-11-21T21:39:05Z", "2026-11-21 21:39:05", id="yesterday"),
        pytest.param("soon", "soon", id="no time"),
        pytest.param("", "", id="none"),
    ],
)
def test_a_time_of_today_has_no_date(time: str, said: str):
    assert short_time(time, NOW) == said


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        pytest.param("replica-1", "replica-1", id="a short one"),
        pytest.param("host_0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f", "host", id="a host and its uuid"),
        pytest.param("vreplica-scheduler-6c9f7d8b5-x2x7k", "vreplica-\u20268b5-x2x7k", id="a pod"),
    ],
)
def test_an_identity_keeps_its_ends(identity: str, said: str):
    assert short_identity(identity) == said
    assert len(said) <= IDENTITY_CHARS_MAX
