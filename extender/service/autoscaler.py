"""``Autoscaler``: keeps a pool's StatefulSet large enough (DESIGN 5.4). The leader's.

Triggered when vreplicas are left over, and looked at each period. It only ever scales up: scaling down has to drain
pods first, and a StatefulSet that is larger than needed breaks nothing. Replicas are read and written through the
scale subresource with the version that was read, so a person's or another controller's write is never overwritten
unseen: it is a Conflict, and everything is looked at again.
"""

import asyncio
import logging
import random
from functools import partial
from typing import Final

from extender.core.decode import mapping, text
from extender.core.model import AdapterPool, StatefulSet
from extender.core.names import API_VERSION
from extender.core.scaling import ScalePlan, plan_scale
from extender.kube.api import STATEFULSETS, Api, ApiError, Conflict, NotFound, Obj
from extender.kube.events import EventRecorder, EventType, ObjectReference
from extender.metrics import Metrics
from extender.service.caches import Caches

log: Final = logging.getLogger(__name__)

PERIOD_S: Final = 10.0
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
"""However long a Retry-After asks for."""
SETTLE_S: Final = 0.1
"""How long after a trigger: a burst of vpods becomes one change of replicas, not one each."""


class Autoscaler:
    """Looks at pools that were triggered, and at all of them each period."""

    def __init__(
        self, api: Api, caches: Caches, *, recorder: EventRecorder, metrics: Metrics, rng: random.Random
    ) -> None:
        self._api = api
        self._caches = caches
        self._recorder = recorder
        self._metrics = metrics
        self._rng = rng
        self._triggered: dict[str, None] = {}
        self._wake = asyncio.Event()
        self.limited: set[str] = set()
        """Keys of pools that maxPods holds below what they need."""
        self._told: dict[str, int] = {}
        caches.pools.add_event_handler(self._pool_changed)
        caches.stateful_sets.add_event_handler(self._stateful_set_changed)

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        """Its floor, its ceiling or its slots may be others now."""
        if new is not None and (old is None or old.generation != new.generation):
            self.trigger(new.key)

    def _stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        """It has come, perhaps after its pool, or somebody else has changed its replicas."""
        if new is None or (old is not None and old.ordinals == new.ordinals):
            return
        for pool in self._caches.pools.list():
            if pool.stateful_set_key == new.key:
                self.trigger(pool.key)

    def trigger(self, pool: str) -> None:
        """Look at this pool now."""
        self._triggered.setdefault(pool)
        self._wake.set()

    async def run(self) -> None:
        """Scale until cancelled."""
        for pool in self._caches.pools.list():
            self.trigger(pool.key)
        while True:
            try:
                async with asyncio.timeout(PERIOD_S * self._rng.uniform(0.9, 1.1)):
                    await self._wake.wait()
            except TimeoutError:
                for pool in self._caches.pools.list():
                    self._triggered.setdefault(pool.key)
            await asyncio.sleep(SETTLE_S)
            self._wake.clear()
            triggered = list(self._triggered)
            self._triggered.clear()
            for key in triggered:
                await self._scale_pool(key)

    async def _scale_pool(self, key: str) -> None:
        try:
            await self._scale_up(key)
        except NotFound:
            log.info("pool %s has no StatefulSet to scale", key)
        except Conflict:
            log.info("replicas of pool %s were changed by somebody else; looking again", key)
            self._again(key, RETRY_S)
        except ApiError as error:
            log.warning("pool %s was not scaled, trying again: %s", key, error)
            self._again(key, min(error.retry_after_s or RETRY_S, RETRY_MAX_S))

    def _again(self, key: str, after_s: float) -> None:
        """Look at this pool later; the others are not held up."""
        delay = after_s * self._rng.uniform(0.8, 1.2)
        asyncio.get_running_loop().call_later(delay, self.trigger, key)

    async def _scale_up(self, key: str) -> None:
        state = self._caches.state.pools.get(key)
        allows = partial(self._caches.state.selects, key)
        plan = plan_scale(state, allows) if state is not None else None
        if state is None or plan is None or state.pool is None or state.stateful_set is None:
            return
        self._mark_limited(key, plan)
        if plan.wanted <= state.stateful_set.replicas:
            return
        namespace, name = state.pool.namespace, state.pool.stateful_set
        scale = await self._api.get(STATEFULSETS, namespace, name, subresource="scale")
        replicas = mapping(scale, "spec").get("replicas")
        current = replicas if isinstance(replicas, int) else 0
        if plan.wanted <= current:
            return  # our cache lags behind an earlier scale-up
        await self._api.update(
            STATEFULSETS, namespace, name, _with_replicas(scale, plan.wanted), subresource="scale"
        )
        self._metrics.scalings.labels("up").inc()
        log.info(
            "pool %s scaled from %d to %d pods for %d slots", key, current, plan.wanted, plan.expected_slots
        )
        self._recorder.event(
            self._reference(key),
            type=EventType.NORMAL,
            reason="ScaledUp",
            action="Scaling",
            note=f"scaled from {current} to {plan.wanted} pods: vpods expect {plan.expected_slots} slots",
        )

    def _mark_limited(self, key: str, plan: ScalePlan) -> None:
        if not plan.limited:
            self.limited.discard(key)
            self._told.pop(key, None)
            return
        self.limited.add(key)
        if self._told.get(key) == plan.unlimited:
            return
        self._told[key] = plan.unlimited
        self._recorder.event(
            self._reference(key),
            type=EventType.WARNING,
            reason="ScalingLimited",
            action="Scaling",
            note=f"{plan.unlimited} pods are needed, maxPods allows {plan.wanted}",
        )

    def _reference(self, key: str) -> ObjectReference:
        pool = self._caches.pools.get(key)
        namespace, _, name = key.partition("/")
        return ObjectReference(
            API_VERSION, "AdapterPool", namespace, name, pool.uid if pool is not None else ""
        )


def _with_replicas(scale: Obj, replicas: int) -> Obj:
    """A Scale to write back: the version that was read is the precondition."""
    return {
        "apiVersion": text(scale, "apiVersion") or "autoscaling/v1",
        "kind": "Scale",
        "metadata": {
            "name": text(scale, "metadata", "name"),
            "namespace": text(scale, "metadata", "namespace"),
            "uid": text(scale, "metadata", "uid"),
            "resourceVersion": text(scale, "metadata", "resourceVersion"),
        },
        "spec": {"replicas": replicas},
    }
