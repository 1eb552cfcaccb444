"""``Controller``: a queue of keys and what is done for each, as in kube-controller-manager.

The queue holds each key at most once, and syncs one at a time. A key whose ``sync`` raises an
ApiError is tried again after a growing delay.
"""

import asyncio
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from extender.kube.api import Api, ApiError, Obj, PatchType, Resource
from extender.lab.informer import ObjectKey

K = TypeVar("K", bound=Hashable)

RETRY_FIRST_S: Final = 0.1
RETRY_DOUBLINGS_MAX: Final = 7


class Controller(Generic[K]):
    """Syncs keys, in the order in which they were added. ``run`` works until cancelled."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pending: dict[K, None] = {}
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    async def sync(self, key: K) -> None:
        """Do what is due for a key. Raises ApiError: the key is tried again later."""
        raise NotImplementedError

    async def _merge(
        self, resource: Resource, key: ObjectKey, patch: Obj, subresource: str = ""
    ) -> Obj:
        """Send a merge patch. Raises ApiError."""
        return await self._api.patch(
            resource, *key, patch, patch_type=PatchType.MERGE, subresource=subresource
        )

    def add(self, key: K) -> None:
        """Sync ``key`` soon."""
        self._pending.setdefault(key)
        self._wake.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """Sync ``key`` in ``delay_s``, or sooner if that is already planned."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(delay_s, 0.0)
        timer = self._timers.get(key)
        if timer is not None and not timer.cancelled() and timer.when() <= due:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._timer_fired, key)

    def _timer_fired(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                if not self._pending:
                    self._wake.clear()
                    await self._wake.wait()
                key = next(iter(self._pending))
                del self._pending[key]
                await self._one(key)
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def _one(self, key: K) -> None:
        try:
            await self.sync(key)
        except ApiError:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self.add_after(key, RETRY_FIRST_S * 2 ** min(failures - 1, RETRY_DOUBLINGS_MAX))
        else:
            self._failures.pop(key, None)
