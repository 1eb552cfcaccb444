"""``FencedApi``: an ``Api`` whose writes are the leader's alone, and are refused here once we no
longer lead.

A process that was frozen for longer than its lease goes on where it stood when it wakes: between
what it has read and what it writes, while another leads. Compare-and-swap catches what has changed
in the very object, and not what has changed beside it: a StatefulSet is of the same version as
before, and the pods that are to go carry vreplicas by now. So whether we lead is asked when a write
is begun, and again before it is sent, after the wait for its lane (``fence``). What can still come
between the question and the last byte is a freeze of the process, or a connection that is slow to
be had.
"""

from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

from extender.kube.api import Api, ApiError
from extender.kube.fence import fenced_by
from extender.kube.forwarding import WRITE_VERBS, ApiCall, ForwardingApi

T = TypeVar("T")


class NotLeading(ApiError):
    """A write of a replica that does not lead any more. It had no effect; who leads does what has
    to be done.
    """

    def __init__(self) -> None:
        super().__init__(409, "NotLeading", "not written: this replica no longer leads")


class FencedApi(ForwardingApi):
    """Reads go to ``api``, and writes while ``leading()``; else they raise NotLeading."""

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
"""Key of a pool -> the ``Api`` to write through for it."""


def fenced_by_pool(api: Api, leads: Callable[[str], bool]) -> PoolApi:
    """Writes for a pool go to ``api`` while we lead that pool."""
    return lambda pool: FencedApi(api, leading=partial(leads, pool))
