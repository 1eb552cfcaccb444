"""Waiting for a state: polls, and on failure tells what it saw last.

Theory of operation. An end-to-end test cannot be told when a foreign component is done, so it polls
at a short interval up to a limit. A predicate returns anything; truth ends the wait and is handed
back, so that a test goes on with what it waited for. A predicate may raise ``NotYet("what I see")``
or fail an ``assert``: both mean "not yet", and the last such text is in the message of the
``TimeoutError``. Any other exception is a defect and passes through at once.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from extender.kube.api import NotFound

T = TypeVar("T")

POLL_INTERVAL_S: Final = 0.05
NEWSLESS_INTERVAL_S: Final = 0.5
STATE_CHARS_MAX: Final = 2000


class NotYet(Exception):
    """A predicate's way to say what it sees instead of what it waits for."""


async def eventually(
    predicate: Callable[[], Awaitable[T]],
    timeout_s: float = 15.0,
    message: str = "",
    *,
    interval_s: float = POLL_INTERVAL_S,
    news: asyncio.Event | None = None,
) -> T:
    """The first true value of ``predicate``; TimeoutError with ``message`` and the last state seen
    after ``timeout_s``.

    A NotFound of the API server is "not yet": most waits are for something to appear. ``news`` is
    set when there is a reason to look again; without any it looks each ``NEWSLESS_INTERVAL_S`` all
    the same, for it may wait for what makes no news.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    rounds = 0
    seen = "nothing"
    while True:
        rounds += 1
        if news is not None:
            news.clear()
        try:
            value = await asyncio.wait_for(predicate(), max(0.1, started + timeout_s - loop.time()))
        except (NotYet, AssertionError, NotFound) as error:
            seen = str(error) or type(error).__name__
        except TimeoutError:
            seen = f"{seen} (the last look did not return in time)"
        else:
            if value:
                return value
            seen = repr(value)
        if loop.time() - started >= timeout_s:
            what = message or getattr(predicate, "__name__", "the predicate")
            raise TimeoutError(
                f"{what}: not so within {timeout_s:g} s ({rounds} looks); last seen: "
                f"{seen[:STATE_CHARS_MAX]}"
            )
        await asyncio.sleep(interval_s)
        if news is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NEWSLESS_INTERVAL_S):
                    await news.wait()
