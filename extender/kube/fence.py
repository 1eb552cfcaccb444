"""``fenced_by``: a question that is asked before a request is begun, and again before each of its
bytes may leave.

A request may wait for its lane for seconds, and what allowed it may be over by then. Whoever sends
(``transport``) asks ``check_fence`` after every such wait; the question comes with the task, so
that no API has to hand it down.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_FENCE: Final[ContextVar[Callable[[], None] | None]] = ContextVar("fence", default=None)


@contextmanager
def fenced_by(check: Callable[[], None]) -> Iterator[None]:
    """Requests within are sent only as long as ``check()`` raises nothing; it is asked
    here, too.
    """
    check()
    token = _FENCE.set(check)
    try:
        yield
    finally:
        _FENCE.reset(token)


def check_fence() -> None:
    """Ask whether what is about to be sent still may be. Raises what the fence raises."""
    if (check := _FENCE.get()) is not None:
        check()
