"""``fenced_by``: a check that is made when a request begins, and again before each attempt to send
it.

A request may wait for its lane for seconds, and may no longer be allowed by then. So the sender
(``transport``) calls ``check_fence`` after every such wait. A context variable carries the check
with the task, so that no API has to pass it on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_FENCE: Final[ContextVar[Callable[[], None] | None]] = ContextVar("fence", default=None)


@contextmanager
def fenced_by(check: Callable[[], None]) -> Iterator[None]:
    """Within it, requests are sent only as long as ``check()`` raises nothing. Also calls it on
    entry.
    """
    check()
    token = _FENCE.set(check)
    try:
        yield
    finally:
        _FENCE.reset(token)


def check_fence() -> None:
    """Check whether a request may still be sent. Raises what the fence raises."""
    if (check := _FENCE.get()) is not None:
        check()
