"""``AvailabilityTracker``: has statuses written again when pods cease or begin to serve. On every
replica.

A pod, or the node under it, changes: the state knows at once whether the pod serves
(``engine.state.availability``). What takes time is here: a pod that has served is excused for
``EXCUSED_S``, and after that the vpods on it are to be told. A vpod whose status says other than
its pods do is put into its pool's queue; there it is decided again and written as any other, by who
leads the pool. So readiness has no write path of its own.

A status may also be late: it was written for pods that have changed before it arrived. So a vpod is
looked at when its status changes, too.

Every replica keeps the time, so that the next leader does not begin anew. It alone feeds the
queues: at most ``FEED_MAX`` vpods a pool in ``FEED_PERIOD_S``, so that new vpods do not wait behind
those of a lost zone, and changes that come within a period are one write.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from extender.engine.state.availability import EXCUSED_S, is_outdated
from extender.engine.state.pool_state import PoolState
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.objects import AdapterPod, Node, VPod
from extender.service.watching.caches import Caches

FEED_PERIOD_S: Final = 1.0
FEED_MAX: Final = 256
"""vpods of one pool that are put into its queue in a period."""

_PodKey = tuple[str, str]
"""(pool key, pod name)."""


class AvailabilityTracker:
    """``feed``: put a vpod (pool key, vpod key) into its queue; ``leads``: whether this replica
    leads a pool.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        feed: Callable[[str, str], None],
        leads: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._caches = caches
        self._feed = feed
        self._leads = leads
        self._clock = clock
        self._changed: dict[_PodKey, None] = {}
        """Pods of which it may have changed whether they serve."""
        self._excused_until: dict[_PodKey, float] = {}
        """Pods that are excused -> when that ends; those that end first come first."""
        self._outdated: dict[str, dict[str, None]] = {}
        """Pool -> vpods that may have to be written."""
        self._wake = asyncio.Event()
        caches.pods.add_event_handler(self._pod_changed)
        caches.nodes.add_event_handler(self._node_changed)
        caches.vpods.add_event_handler(self._vpod_changed)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is not None and new is not None and _presence(old) == _presence(new):
            return
        for pod in (old, new):
            if pod is not None:
                self._note(pod)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and old.ready == new.ready:
            return
        name = new.name if new is not None else old.name if old is not None else ""
        for pod in self._caches.state.pods_on_node.get(name, {}).values():
            self._note(pod)

    def _vpod_changed(self, _old: VPod | None, new: VPod | None) -> None:
        if new is None or not self._leads(new.pool):
            return
        pool = self._caches.state.pools.get(new.pool)
        if pool is not None and is_outdated(pool, new):
            self._outdated.setdefault(new.pool, {})[new.key] = None
            self._wake.set()

    def _note(self, pod: AdapterPod) -> None:
        key = (pod.pool, pod.name)
        pool = self._caches.state.pools.get(pod.pool)
        state = pool.pods.get(pod.name) if pool is not None else None
        if state is None or not state.excused:
            self._excused_until.pop(key, None)
        self._changed[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Keep statuses up to date until cancelled."""
        while True:
            self._wake.clear()
            again = self.look()
            try:
                async with asyncio.timeout(again):
                    await self._wake.wait()
            except TimeoutError:
                continue
            # Pods of one node, or of a StatefulSet that starts, change together.
            await asyncio.sleep(FEED_PERIOD_S)

    def look(self) -> float | None:
        """End what excuses are over, and feed the queues; seconds until that is to be done again,
        None: when something changes.
        """
        now = self._clock()
        self._end_excuses(now)
        changed, self._changed = self._changed, {}
        for pool_key, name in changed:
            self._look_at(pool_key, name, now)
        if self._feed_all():
            return FEED_PERIOD_S
        return (
            max(0.0, next(iter(self._excused_until.values())) - now)
            if self._excused_until
            else None
        )

    def _end_excuses(self, now: float) -> None:
        for key, until in list(self._excused_until.items()):
            if until > now + TIMER_RESOLUTION_S:
                return
            del self._excused_until[key]
            pool = self._caches.state.pools.get(key[0])
            if pool is not None:
                pool.end_excuse(key[1])
            self._changed[key] = None

    def _look_at(self, pool_key: str, name: str, now: float) -> None:
        pool = self._caches.state.pools.get(pool_key)
        pod = pool.pods.get(name) if pool is not None else None
        if pod is not None and pod.excused:
            self._excused_until.setdefault((pool_key, name), now + EXCUSED_S)
        if pool is not None and pod is not None and self._leads(pool_key):
            self._outdated.setdefault(pool_key, {}).update(
                (key, None) for key, claim in pod.claims.items() if claim.published
            )

    def _feed_all(self) -> bool:
        """Whether some have to wait for the next period."""
        for pool_key, keys in list(self._outdated.items()):
            pool = self._caches.state.pools.get(pool_key)
            if pool is None or not self._leads(pool_key):
                # Who begins to lead a pool decides all of its vpods.
                del self._outdated[pool_key]
                continue
            self._feed_some(pool, keys)
            if not keys:
                del self._outdated[pool_key]
        return bool(self._outdated)

    def _feed_some(self, pool: PoolState, keys: dict[str, None]) -> None:
        fed = 0
        for key in list(keys):
            if fed == FEED_MAX:
                return
            del keys[key]
            vpod = pool.vpods.get(key)
            if vpod is not None and is_outdated(pool, vpod):
                self._feed(pool.key, key)
                fed += 1


def _presence(pod: AdapterPod) -> tuple[object, ...]:
    """What of a pod says whether it serves."""
    return pod.uid, pod.pool, pod.ready, pod.node, pod.deleting, pod.finished, pod.assumed
