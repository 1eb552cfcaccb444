"""``AvailabilityTracker``: has vpod statuses written again when pods cease or begin to serve. Runs
on every replica.

When a pod or its node changes, the state knows at once whether the pod serves
(``engine.state.availability``). The tracker adds what takes time: a pod that has served is excused
for ``EXCUSED_S``, and only then do its vpods report it (``UnservedShares`` times what adapters do
not serve). If a vpod's status disagrees with its pods,
the tracker puts the vpod into its pool's queue, and the pool's leader decides and writes it as any
other. So readiness has no write path of its own.

A status may also be out of date when it arrives, because pods changed meanwhile. So a vpod is
checked when its status changes, too.

Every replica keeps the time of excuses, so that the next leader does not begin anew. The leader
feeds the queues with at most ``FEED_MAX`` vpods per pool in ``FEED_PERIOD_S``. So new vpods do not
wait behind all those of a lost zone, and several changes within a period become one write.
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
"""vpods of one pool that are put into its queue per period."""

_PodKey = tuple[str, str]
"""(pool key, pod name)."""


class AvailabilityTracker:
    """``feed``: puts a vpod (pool key, vpod key) into its queue. ``leads``: whether this replica
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
        """Pods that may have begun or ceased to serve."""
        self._excused_until: dict[_PodKey, float] = {}
        """Excused pods -> when the excuse ends, the earliest first."""
        self._outdated: dict[str, dict[str, None]] = {}
        """Pool -> vpods whose status may be outdated."""
        self._wake = asyncio.Event()
        caches.pods.add_event_handler(self._pod_changed)
        caches.nodes.add_event_handler(self._node_changed)
        caches.vpods.add_event_handler(self._vpod_changed)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is not None and new is not None and _of_service(old) == _of_service(new):
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

    def look_again_at(self, pool_key: str, pod_name: str) -> None:
        """Other shares of that pod count as not served."""
        self._changed[pool_key, pod_name] = None
        self._wake.set()

    def _note(self, pod: AdapterPod) -> None:
        key = (pod.pool, pod.name)
        pool = self._caches.state.pools.get(pod.pool)
        known = pool.pods.get(pod.name) if pool is not None else None
        if known is None or not known.excused:
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
            # Pods of one node, or of a starting StatefulSet, change together.
            await asyncio.sleep(FEED_PERIOD_S)

    def look(self) -> float | None:
        """End excuses that are over, and feed the queues. Return the seconds until the next look;
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
        """Feed the queues. Return whether some vpods wait for the next period."""
        for pool_key, keys in list(self._outdated.items()):
            pool = self._caches.state.pools.get(pool_key)
            if pool is None or not self._leads(pool_key):
                # A new leader of a pool decides all its vpods.
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


def _of_service(pod: AdapterPod) -> tuple[object, ...]:
    """The fields of a pod that decide whether it serves."""
    served = pod.ready, pod.lease_expired, pod.deleting, pod.finished, pod.assumed
    return pod.uid, pod.pool, pod.node, served
