"""How far long work has come, told on standard error and no more often than it helps."""

import io

import pytest

from extender.cli.terminal.progress import Progress
from tests.support.clock import Clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


def test_what_is_soon_done_tells_nothing(clock: Clock):
    to = io.StringIO()
    with Progress("reading", total=10, to=to, clock=clock) as progress:
        for done in range(10):
            clock.now += 0.09
            progress(done)
    assert to.getvalue() == ""


def test_in_a_log_it_is_a_line_every_few_seconds(clock: Clock):
    to = io.StringIO()
    with Progress("simulating", unit="seeds", total=4000, to=to, clock=clock) as progress:
        for done in range(0, 1200, 100):
            clock.now += 1.0
            progress(done)
    assert to.getvalue().splitlines() == [
        "simulating 0 of 4,000 seeds (0 %)",
        "simulating 500 of 4,000 seeds (12 %)",
        "simulating 1,000 of 4,000 seeds (25 %)",
    ]


def test_on_a_terminal_it_is_one_line_that_is_gone_at_the_end(clock: Clock):
    to = Terminal()
    with Progress("recording", unit="lines", to=to, clock=clock) as progress:
        clock.now += 2.0
        progress(7)
        clock.now += 0.2
        progress.add(1)
        clock.now += 0.01
        progress.add(1)
    assert to.getvalue() == "\r\x1b[Krecording 7 lines\r\r\x1b[Krecording 8 lines\r\r\x1b[K"


def test_once_ended_it_tells_nothing_more(clock: Clock):
    to = Terminal()
    with Progress("first lists", to=to, clock=clock) as progress:
        clock.now += 2.0
        progress(1)
        progress.end()
        shown = to.getvalue()
        clock.now += 60.0
        progress(2)
    assert to.getvalue() == shown


def test_a_total_that_is_known_later_counts(clock: Clock):
    to = io.StringIO()
    progress = Progress("synced", unit="pods", to=to, clock=clock)
    clock.now += 2.0
    progress(12_000, 50_000)
    assert to.getvalue() == "synced 12,000 of 50,000 pods (24 %)\n"
