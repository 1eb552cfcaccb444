"""``OrdinalHistoryReader``: whether a pod may be bound, or its ordinal's last pod can have held
what we have not seen (I2).

``engine.state.ordinal_history`` knows of whom we know. Here is what can be done about the others:
wait a moment for the watch, which kube-scheduler's may be ahead of; and, once what was on its way
has arrived, list vpods to see it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from extender.engine.state.ordinal_history import OrdinalHistory
from extender.model.objects import AdapterPod
from extender.service.watching.caches import Caches

SEEN_TIMEOUT_S: Final = 1.0
"""How long a bind waits for our watch to tell of its pod."""
LIST_TIMEOUT_S: Final = 2.5
"""How long a bind waits for vpods to be listed; it is tried again, and the list goes on meanwhile.
"""


class OrdinalHistoryReader:
    """``list_vpods`` returns once a list begun after the call is in the caches; ``founded``: nobody
    led a pool before us.
    """

    def __init__(
        self,
        caches: Caches,
        ordinal_history: OrdinalHistory,
        *,
        list_vpods: Callable[[], Awaitable[None]],
        founded: Callable[[str], bool],
    ) -> None:
        self._caches = caches
        self._ordinal_history = ordinal_history
        self._list_vpods = list_vpods
        self._founded = founded
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        """UIDs of pods that the watch has not told of -> who waits for it."""
        self._closing: asyncio.Task[None] | None = None
        caches.pods.add_event_handler(self._pod_changed)

    async def known(self, pod: AdapterPod) -> bool:
        """Whether all that the ordinal's former pods held is known here, if need be after a
        moment.
        """
        ordinal_history = self._ordinal_history
        if not ordinal_history.is_seen(pod):
            await self._wait_seen(pod)
        if ordinal_history.is_known(pod):
            return True
        if not ordinal_history.is_seen(pod):
            return False
        if self._founded(pod.pool):
            # No other leader can have sent a status, and of what we have sent ourselves we know.
            return True
        if ordinal_history.wait_s() > 0.0:
            return False
        await self._close()
        return ordinal_history.is_known(pod)

    def forget_gone(self) -> None:
        """Forget what was seen of ordinals that have had no pod for long."""
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
        """List vpods, for all binds that wait for it; a bind that is given up does not end it."""
        if self._closing is None or self._closing.done():
            self._closing = asyncio.create_task(self._list(), name="list vpods for binds")
        await asyncio.wait({self._closing}, timeout=LIST_TIMEOUT_S)

    async def _list(self) -> None:
        since = self._ordinal_history.since
        await self._list_vpods()
        self._caches.state.forget_last_ledgers(self._ordinal_history.close(since))

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        self._ordinal_history.pod_changed(old, new)
        if new is not None:
            for seen in self._waiting.get(new.uid, ()):
                if not seen.done():
                    seen.set_result(None)
