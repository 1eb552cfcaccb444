"""``Quarantine``: puts vpods into quarantine whose shares precede crashes of pods
(``spec.quarantine``).

Every replica observes the pods (``engine.rebalance.crashes``), so the next leader continues from
what it has seen itself. Only the leader writes: the condition ``Quarantined`` of the VPod, by a
patch that names the VPod's version. From then on the vpod keeps what it has and gets no further
place, whoever leads (``VPod.quarantined``).

A person ends the quarantine with the annotation ``vreplica.dev/released-at``. Then the leader
writes the condition as False, and nothing counts against the vpod any more.

Objects of foreign kinds and vpods of callers are left out: nobody could release them.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from extender.engine.rebalance.crashes import Crashes
from extender.kube.api import VPODS, ApiError, Obj, PatchType
from extender.kube.events import EventRecorder, ObjectReference
from extender.kube.fence import PoolApi
from extender.model.bucket import WHOLE, Bucket
from extender.model.counted import counted, first_of
from extender.model.event_reasons import EventReason
from extender.model.names import API_VERSION, RELEASED_ANNOTATION
from extender.model.objects import AdapterPod, AdapterPool, VPod
from extender.model.quarantine import QUARANTINED, Quarantine as Limits
from extender.model.timestamps import timestamp
from extender.service.watching.caches import Caches

log: Final = logging.getLogger(__name__)

RETRY_S: Final = 1.0
NAMED_PODS_MAX: Final = 10


class Quarantine:
    """Observes the pools that have ``spec.quarantine``. ``now``: epoch seconds."""

    def __init__(
        self,
        caches: Caches,
        *,
        fenced: PoolApi,
        recorder: EventRecorder,
        now: Callable[[], float],
    ) -> None:
        self._caches = caches
        self._fenced = fenced
        self._recorder = recorder
        self._now = now
        self._crashes: dict[str, Crashes] = {}
        self._told: dict[str, frozenset[str]] = {}
        """Pool -> vpods of which was told that they are too many."""
        self._wake = asyncio.Event()
        caches.pods.add_event_handler(self._pod_changed)
        caches.vpods.add_event_handler(self._vpod_changed)
        caches.pools.add_event_handler(self._pool_changed)

    def __len__(self) -> int:
        """Number of the shares that are remembered because pods may crash."""
        return sum(map(len, self._crashes.values()))

    # -- events of the caches ----------------------------------------------------------------------

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        pool = new or old
        if pool is None:
            return
        if new is None or new.quarantine is None:
            self._crashes.pop(pool.key, None)
            self._told.pop(pool.key, None)
            return
        known = self._crashes.get(new.key)
        if known is None:
            known = self._crashes[new.key] = Crashes(new.quarantine.within_s)
            for pod in self._caches.pods.list():
                if pod.pool == new.key:
                    known.pod_changed(None, pod, _time())
        known.within_s = new.quarantine.within_s
        self._wake.set()

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        pod = new or old
        known = self._crashes.get(pod.pool) if pod is not None else None
        if known is not None and known.pod_changed(old, new, _time()):
            self._wake.set()

    def _vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        if old is None or (new is not None and new.uid == old.uid and new.pool == old.pool):
            if new is not None and not new.quarantined and _condition_status(new) == "True":
                self._wake.set()
            return
        if (known := self._crashes.get(old.pool)) is not None:
            known.forget(old.key)

    # -- the leader --------------------------------------------------------------------------------

    async def run(self, bucket: Bucket = WHOLE) -> None:
        """Write the condition of vpods in the bucket's pools until cancelled."""
        while True:
            self._wake.clear()
            if not await self._look(bucket):
                await asyncio.sleep(RETRY_S)
                continue
            await self._wake.wait()

    async def _look(self, bucket: Bucket) -> bool:
        """Write what is to be written. Return whether all of it was."""
        done = True
        for key in [key for key in self._crashes if bucket.has(key)]:
            state = self._caches.state.pools.get(key)
            pool = state.adapter_pool if state is not None else None
            if state is None or pool is None or pool.quarantine is None:
                continue
            for vpod in [one for one in state.vpods.values() if _condition_status(one) == "True"]:
                if not vpod.quarantined:
                    done &= await self._release(key, vpod)
            done &= await self._begin(pool, pool.quarantine)
        return done

    async def _begin(self, pool: AdapterPool, limits: Limits) -> bool:
        crashes, state = self._crashes.get(pool.key), self._caches.state.pools.get(pool.key)
        if crashes is None or state is None:
            return True  # the pool has gone while a release was written
        vpods = state.vpods
        crashes.keep_pods({pod.name for pod in self._caches.pods.list() if pod.pool == pool.key})
        suspected = {
            key: pods
            for key, pods in crashes.suspected(limits.crashed_pods, _time()).items()
            if (vpod := vpods.get(key)) is not None and not vpod.source and not vpod.quarantined
        }
        if not suspected:
            return True
        already = sum(vpod.quarantined for vpod in vpods.values())
        if len(suspected) + already > limits.vpods_max:
            self._tell_too_many(pool, limits, frozenset(suspected), already)
            return True
        done = True
        for key, pods in suspected.items():
            if (vpod := self._caches.vpods.latest(key)) is None or vpod.pool != pool.key:
                continue
            note = (
                f"{counted(len(pods), 'pod')} crashed within {limits.within_s} s after it got a "
                f"share: {first_of(pods, NAMED_PODS_MAX)}. It gets no further place until somebody "
                f"sets the annotation {RELEASED_ANNOTATION} to the time of that moment"
            )
            written = await self._write(pool.key, vpod, "True", "PodsCrashed", note)
            if written:
                self._event("VPod", vpod, EventReason.QUARANTINED, note)
            done &= written
        return done

    async def _release(self, pool: str, vpod: VPod) -> bool:
        note = f"released by the annotation {RELEASED_ANNOTATION}"
        if not await self._write(pool, vpod, "False", "Released", note):
            return False
        if (known := self._crashes.get(pool)) is not None:  # the pool may have gone meanwhile
            known.forget(vpod.key)
        self._event("VPod", vpod, EventReason.RELEASED, note)
        return True

    async def _write(self, pool: str, vpod: VPod, status: str, reason: str, note: str) -> bool:
        """Write the condition. Return whether it is written: a conflict or a failure is tried
        again.
        """
        condition = {
            "type": QUARANTINED,
            "status": status,
            "reason": reason,
            "message": note,
            "lastTransitionTime": timestamp(self._now()),
            "observedGeneration": vpod.generation,
        }
        patch: list[Obj] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": vpod.resource_version}
        ]
        types = [one.type for one in vpod.conditions]
        if QUARANTINED in types:
            path = f"/status/conditions/{types.index(QUARANTINED)}"
            patch.append({"op": "replace", "path": path, "value": condition})
        elif types:
            patch.append({"op": "add", "path": "/status/conditions/-", "value": condition})
        else:
            patch.append({"op": "add", "path": "/status/conditions", "value": [condition]})
        try:
            await self._fenced(pool).patch(
                VPODS,
                vpod.namespace,
                vpod.name,
                patch,
                patch_type=PatchType.JSON,
                subresource="status",
            )
        except ApiError as error:
            log.info("quarantine of vpod %s: %s", vpod.key, error, extra={"vpod": vpod.key})
            return False
        return True

    def _tell_too_many(
        self, pool: AdapterPool, limits: Limits, suspected: frozenset[str], already: int
    ) -> None:
        if self._told.get(pool.key) == suspected:
            return
        self._told[pool.key] = suspected
        beside = f", beside {already} that are" if already else ""
        note = (
            f"{counted(len(suspected), 'vpod')} precede the crashes of {limits.crashed_pods} pods"
            f"{beside}, and maxVPods is {limits.vpods_max}: nobody is put into quarantine. "
            "Something else may make the pods crash"
        )
        self._event("AdapterPool", pool, EventReason.PODS_CRASH, note)

    def _event(self, kind: str, obj: VPod | AdapterPool, reason: EventReason, note: str) -> None:
        regarding = ObjectReference(API_VERSION, kind, obj.namespace, obj.name, obj.uid)
        self._recorder.event(regarding, reason=reason, note=note)


def _condition_status(vpod: VPod) -> str:
    """The stored condition's status; "" if there is none."""
    return next((one.status for one in vpod.conditions if one.type == QUARANTINED), "")


def _time() -> float:
    return asyncio.get_running_loop().time()
