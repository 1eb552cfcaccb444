"""``PoolStatusWriter``: what a pool looks like, in its AdapterPool's status and at ``/state.json``. The leader's.

A new leader begins with what its predecessor wrote, so that a failover neither writes nor changes a transition time.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from extender.core.decode import mapping, mappings, text
from extender.core.model import AdapterPool, VPod
from extender.core.pool_state import PoolState
from extender.core.scaling import anyone, plan_scale
from extender.kube.api import ADAPTERPOOLS, Api, ApiError, NotFound, Obj, PatchType
from extender.service.caches import Caches
from extender.service.status import timestamp

log: Final = logging.getLogger(__name__)

PERIOD_S: Final = 1.0
"""Not more than one write a pool in this time; most passes find nothing to write."""


def pool_numbers(state: PoolState) -> dict[str, int]:
    """The counts of AdapterPool.status: pods, slots and vreplicas."""
    bound = [pod for pod in state.members() if pod.bound]
    return {
        "pods": sum(1 for pod in state.members() if pod.pod is not None),
        "schedulablePods": state.schedulable_count(),
        "slots": sum(pod.capacity for pod in bound),
        "usedSlots": sum(pod.placed for pod in state.pods.values()),
        "freeSlots": state.free_slots(),
        "pendingVReplicas": sum(
            state.vpods[key].vreplicas - state.placed_vreplicas(key) for key in state.unplaced
        ),
        "vpods": len(state.vpods),
    }


def pool_conditions(
    state: PoolState, allows: Callable[[VPod], bool] = anyone
) -> list[tuple[str, bool, str, str]]:
    """(type, whether it holds, reason, message) of the pool's conditions."""
    over = sorted(pod.name for pod in state.overcommitted())
    plan = plan_scale(state, allows)
    limited = plan is not None and plan.limited
    return [
        ("Ready", *_readiness(state)),
        ("Overcommitted", bool(over), "LedgerOverSlots" if over else "WithinSlots", ", ".join(over)[:1024]),
        (
            "ScalingLimited",
            limited,
            "MaxPods" if limited else "WithinLimits",
            f"{plan.unlimited} pods are needed" if plan is not None and limited else "",
        ),
    ]


def _readiness(state: PoolState) -> tuple[bool, str, str]:
    if state.stateful_set is None:
        return False, "StatefulSetNotFound", "the StatefulSet does not exist"
    if state.pool is not None and state.profile.name != state.pool.profile:
        return False, "ProfileUnknown", f"there is no such profile: vpods are placed by {state.profile.name}"
    return True, "StatefulSetFound", ""


class PoolStatusWriter:
    """Writes what has changed, until cancelled."""

    def __init__(self, api: Api, caches: Caches, *, now: Callable[[], float]) -> None:
        self._api = api
        self._caches = caches
        self._now = now
        self._written: dict[str, tuple[str, dict[str, Any]]] = {}
        """Pool key -> (UID, the status last written, without times)."""
        self._since: dict[tuple[str, str], tuple[bool, str]] = {}

    async def run(self) -> None:
        """Look at all pools each period."""
        # Who led in between has written what we do not know of.
        self._written.clear()
        self._since.clear()
        while True:
            for pool in self._caches.pools.list():
                await self._write(pool)
            await asyncio.sleep(PERIOD_S)

    async def _write(self, pool: AdapterPool) -> None:
        state = self._caches.state.pools.get(pool.key)
        if state is None:
            return
        conditions = pool_conditions(state, partial(self._caches.state.selects, pool.key))
        plain = {
            "observedGeneration": pool.generation,
            **pool_numbers(state),
            "conditions": [list(condition) for condition in conditions],
        }
        if (known := self._written.get(pool.key)) is None or known[0] != pool.uid:
            await self._recall(pool)
        if self._written.get(pool.key) == (pool.uid, plain):
            return
        status: Obj = {**plain, "conditions": [self._condition(pool, *c) for c in conditions]}
        try:
            await self._api.patch(
                ADAPTERPOOLS,
                pool.namespace,
                pool.name,
                {"metadata": {"uid": pool.uid}, "status": status},
                patch_type=PatchType.MERGE,
                subresource="status",
            )
        except NotFound:
            self._written.pop(pool.key, None)
        except ApiError as error:
            log.info("status of pool %s was not written: %s", pool.key, error)
        else:
            self._written[pool.key] = (pool.uid, plain)

    async def _recall(self, pool: AdapterPool) -> None:
        """Take what is stored for what we wrote."""
        try:
            stored = mapping(await self._api.get(ADAPTERPOOLS, pool.namespace, pool.name), "status")
        except ApiError as error:
            log.info("status of pool %s was not read: %s", pool.key, error)
            return
        conditions = list(mappings(stored, "conditions"))
        for item in conditions:
            key = (pool.key, text(item, "type"))
            self._since[key] = (item.get("status") == "True", text(item, "lastTransitionTime"))
        plain = [
            [item.get("type"), item.get("status") == "True", item.get("reason"), item.get("message")]
            for item in conditions
        ]
        self._written[pool.key] = (pool.uid, {**stored, "conditions": plain})

    def _condition(self, pool: AdapterPool, kind: str, holds: bool, reason: str, message: str) -> Obj:
        known = self._since.get((pool.key, kind))
        if known is None or known[0] != holds:
            known = self._since[(pool.key, kind)] = (holds, timestamp(self._now()))
        return {
            "type": kind,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": pool.generation,
            "lastTransitionTime": known[1],
        }
