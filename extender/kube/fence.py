"""``FencedApi``: an ``Api`` that refuses writes once this replica no longer leads.

A process that was frozen for longer than its lease continues where it stopped, perhaps between its
reads and its write, while another replica leads. Compare-and-swap detects changes of the written
object, but not of others: a StatefulSet may have its old version while the pods that are to go
carry vreplicas by now. So leadership is checked when a write begins, and again before it is sent: a
write may wait for seconds, for its lane or for a connection. So the sender (``connection``) calls
``check_fence`` once it has a connection. A context variable carries the check with the task, so
that no API has to pass it on. Between that check and the last byte only a freeze of the process can
come.
"""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

from extender.kube.api import Api, ApiError
from extender.kube.forwarding import WRITE_VERBS, ApiCall, ForwardingApi

T = TypeVar("T")

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


class NotLeading(ApiError):
    """A write of a replica that no longer leads. It had no effect; the leader does what is
    needed.
    """

    def __init__(self) -> None:
        super().__init__(409, "NotLeading", "not written: this replica no longer leads")


class FencedApi(ForwardingApi):
    """Reads go to ``api``. Writes go there while ``leading()``; else they raise NotLeading."""

    def __init__(self, api: Api, *, leading: Callable[[], bool]) -> None:
        super().__init__(api)
        self._leading = leading

    def _check(self) -> None:
        if not self._leading():
            raise NotLeading

    async def _forward(self, call: ApiCall, send: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with fenced_by(self._check) if call.verb in WRITE_VERBS else nullcontext():
            return await send()


PoolApi = Callable[[str], Api]
"""Key of a pool -> the ``Api`` for writes for that pool."""


def fenced_by_pool(api: Api, leads: Callable[[str], bool]) -> PoolApi:
    """Writes for a pool go to ``api`` while this replica leads that pool."""
    return lambda pool: FencedApi(api, leading=partial(leads, pool))
