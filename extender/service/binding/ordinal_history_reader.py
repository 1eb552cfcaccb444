"""``OrdinalHistoryReader``: says whether this replica has seen all that an ordinal's former pods
held, so that the next pod may be bound (I2).

``engine.state.ordinal_history`` knows this for most ordinals. For the others:

1. If the watch has not shown the new pod yet, the reader waits a moment for it, because
   kube-scheduler's watch may be ahead.
2. A list of pods may have missed a former pod. Until ``HOLD_S`` have passed since the list, the
   answer is no, and kube-scheduler tries again.
3. After that, the reader lists the vpods, which publish what the former pods held.

The answer is yes without 2 and 3 for a pool that no other replica has led: nobody else can have
written a status.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from extender.engine.state.ordinal_history import OrdinalHistory
from extender.model.objects import AdapterPod
from extender.service.watching.caches import Caches

SEEN_TIMEOUT_S: Final = 1.0
"""How long a bind waits for the watch to show its pod."""
LIST_TIMEOUT_S: Final = 2.5
"""How long a bind waits for a list of vpods. The list goes on after that, and kube-scheduler
retries the bind.
"""


class OrdinalHistoryReader:
    """``relist_all_vpods`` returns once a list that began after the call is in the caches.
    ``never_led_by_others``: whether no other replica has led the pool with that key.
    """

    def __init__(
        self,
        caches: Caches,
        ordinal_history: OrdinalHistory,
        *,
        relist_all_vpods: Callable[[], Awaitable[None]],
        never_led_by_others: Callable[[str], bool],
    ) -> None:
        self._caches = caches
        self._ordinal_history = ordinal_history
        self._relist_all_vpods = relist_all_vpods
        self._never_led_by_others = never_led_by_others
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        """UIDs of pods that the watch has not shown -> binds that wait for them."""
        self._closing: asyncio.Task[None] | None = None
        caches.pods.add_event_handler(self._pod_changed)

    async def known(self, pod: AdapterPod) -> bool:
        """Whether this replica knows all that the ordinal's former pods held. May wait for that."""
        ordinal_history = self._ordinal_history
        if not ordinal_history.is_seen(pod):
            await self._wait_seen(pod)
        if ordinal_history.is_known(pod):
            return True
        if not ordinal_history.is_seen(pod):
            return False
        if self._never_led_by_others(pod.pool):
            # No other leader can have sent a status, and this replica knows the statuses that it
            # sent.
            return True
        if ordinal_history.wait_s() > 0.0:
            return False
        await self._close()
        return ordinal_history.is_known(pod)

    def forget_gone(self) -> None:
        """Forget the history of ordinals that have had no pod for long."""
        if outdated := self._ordinal_history.forget_gone():
            self._caches.state.forget_last_ledgers(outdated)

    async def _wait_seen(self, pod: AdapterPod) -> None:
        seen = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(pod.uid, [])
        waiting.append(seen)
        try:
            async with asyncio.timeout(SEEN_TIMEOUT_S):
                await seen
        except TimeoutError:
            return
        finally:
            waiting.remove(seen)
            if not waiting:
                self._waiting.pop(pod.uid, None)

    async def _close(self) -> None:
        """List vpods once for all binds that wait. A cancelled bind does not cancel the list."""
        if self._closing is None or self._closing.done():
            self._closing = asyncio.create_task(self._list(), name="list vpods for binds")
        await asyncio.wait({self._closing}, timeout=LIST_TIMEOUT_S)

    async def _list(self) -> None:
        since = self._ordinal_history.since
        await self._relist_all_vpods()
        self._caches.state.forget_last_ledgers(self._ordinal_history.close(since))

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        self._ordinal_history.pod_changed(old, new)
        if new is not None:
            for seen in self._waiting.get(new.uid, ()):
                if not seen.done():
                    seen.set_result(None)
