"""``Reactivator``: brings refused pods back to kube-scheduler when the reason for the refusal may
be gone. Runs on every replica.

A pod that filter refuses on every node waits in kube-scheduler for a cluster event, up to five
minutes (seen on 1.36 and 1.37). kube-scheduler does not watch pools and ledgers, but it watches the
pod: a patch of the annotation ``vreplica.dev/retry`` puts the pod back into the active queue within
milliseconds. So each replica remembers its refusals, filters again after a change, and patches the
pod once one of the refused nodes would pass. The patch does not move pods that kube-scheduler's own
plugins have refused; kube-scheduler requeues those itself.

Refusals are kept only in memory, so a new leader of a pool does not know them. It patches each
waiting pod of the pool once: a needless scheduling attempt costs less than waiting five minutes.

kube-scheduler may know other nodes than this replica for long, or filter may refuse for a reason
that is not checked here. So if a pod is refused again after a patch, its next patches come at
growing intervals, from 1 s doubling to 60 s.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from extender.kube.api import PODS, Api, ApiError, NotFound, PatchType
from extender.kube.timers import TIMER_RESOLUTION_S
from extender.model.bounded import put_bounded
from extender.model.names import RETRY_ANNOTATION
from extender.model.objects import AdapterPod, AdapterPool, Node, StatefulSet, VPod
from extender.node.verbs import passes_one_of
from extender.service.watching.caches import Caches
from extender.telemetry.metrics import Metrics

log: Final = logging.getLogger(__name__)

REFUSED_PODS_MAX: Final = 1_000
SETTLE_S: Final = 0.2
"""Pause after a change, because changes often come together."""
PERIOD_S: Final = 30.0
BACKOFF_INITIAL_S: Final = 1.0
BACKOFF_MAX_S: Final = 60.0


class _Refusal(NamedTuple):
    """``nodes``: the refused nodes. ``shown``: UID of the pod that the cache had under this name
    then; "" if it had none.
    """

    key: str
    nodes: frozenset[str]
    shown: str


class Reactivator:
    """Remembers refusals (``note``), and requeues the pods in kube-scheduler (``run``)."""

    def __init__(
        self, api: Api, caches: Caches, *, metrics: Metrics, leads: Callable[[str], bool]
    ) -> None:
        """``leads``: whether this replica leads the pool with that key."""
        self._leads = leads
        self._api = api
        self._caches = caches
        self._metrics = metrics
        self._refused: OrderedDict[str, _Refusal] = OrderedDict()
        """By pod UID."""
        self._last_nodes = frozenset[str]()
        self._patches = 0
        self._patched: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Pod UID -> (patches that did not help, earliest loop time of the next one)."""
        self._taken_over: dict[str, str] = {}
        """UID -> key of pods that a former leader may have refused."""
        self._led: set[str] = set()
        """Pools that this replica led at the last look."""
        self._wake = asyncio.Event()
        caches.pools.add_event_handler(self._pool_changed)
        caches.stateful_sets.add_event_handler(self._stateful_set_changed)
        caches.nodes.add_event_handler(self._node_changed)
        caches.pods.add_event_handler(self._pod_changed)
        caches.vpods.add_event_handler(self._vpod_changed)

    def note(self, pod: AdapterPod, nodes: frozenset[str]) -> None:
        """Remember that filter has refused the pod on all of these nodes.

        Mostly they are those of the pod before. A set for each pod would take 1 MiB for 15,000
        nodes.
        """
        if nodes == self._last_nodes:
            nodes = self._last_nodes
        self._last_nodes = nodes
        known = self._caches.pods.get(pod.key)
        refusal = _Refusal(pod.key, nodes, known.uid if known is not None else "")
        put_bounded(self._refused, pod.uid, refusal, REFUSED_PODS_MAX)

    def forget(self, pod_uid: str) -> None:
        """Forget the pod: filter let it pass, or it no longer waits."""
        self._refused.pop(pod_uid, None)
        self._patched.pop(pod_uid, None)
        self._taken_over.pop(pod_uid, None)

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        if old is None or new is None or old.generation != new.generation:
            self._wake.set()

    def _stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        if old is None or new is None or old.template_pool != new.template_pool:
            self._wake.set()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        """Wake only for the fields that filter uses. A node's heartbeats come all the time."""
        if (
            old is None
            or new is None
            or (old.zone, old.allocatable, old.taints, old.takes_work)
            != (new.zone, new.allocatable, new.taints, new.takes_work)
        ):
            self._wake.set()

    def _vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        """A zone rule allows zones by where vpods are placed."""
        if self._refused and (old is None or new is None or old.placements != new.placements):
            self._wake.set()

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is not None and (new is None or new.node or new.uid != old.uid):
            self.forget(old.uid)
        if new is None or (old is not None and old.node != new.node):
            self._wake.set()

    async def run(self) -> None:
        """Check the refused pods after each change, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            looked_at = loop.time()
            for uid, refusal in list(self._refused.items()):
                await self._look_at(uid, refusal)
                await asyncio.sleep(0)  # many pods and many nodes take seconds
            self._take_over()
            for uid, key in list(self._taken_over.items()):
                await self._look_at_taken_over(uid, key)
            try:
                async with asyncio.timeout(self._until_next_s(looked_at)):
                    await self._wake.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(SETTLE_S)

    def _until_next_s(self, looked_at: float) -> float:
        """Seconds until the next refused pod may be patched, at most ``PERIOD_S``. Pods due by
        ``looked_at`` have just been checked.
        """
        now = asyncio.get_running_loop().time()
        again = self._refused.keys() | self._taken_over.keys()
        times = [self._patched[uid][1] for uid in again if uid in self._patched]
        return min(
            [PERIOD_S, *(max(due - now, TIMER_RESOLUTION_S) for due in times if due > looked_at)]
        )

    def _take_over(self) -> None:
        """Find the waiting pods of pools that this replica has begun to lead."""
        led = {pool.key for pool in self._caches.pools.list() if self._leads(pool.key)}
        taken_over, self._led = led - self._led, led
        if not taken_over:
            return
        for pod in self._caches.pods.list():
            if len(self._taken_over) >= REFUSED_PODS_MAX:
                return
            if (
                pod.pool in taken_over
                and pod.refusal
                and not pod.deleting
                and pod.uid not in self._refused
                and pod.uid not in self._patched
            ):
                self._taken_over[pod.uid] = pod.key

    def _count_patch(self, uid: str) -> None:
        """Delay the next patch, in case this one does not help."""
        self._refused.pop(uid, None)
        self._taken_over.pop(uid, None)
        count, _ = self._patched.get(uid, (0, 0.0))
        wait = min(BACKOFF_INITIAL_S * 2 ** min(count, 10), BACKOFF_MAX_S)
        not_before = asyncio.get_running_loop().time() + wait
        put_bounded(self._patched, uid, (count + 1, not_before), REFUSED_PODS_MAX)

    async def _look_at(self, uid: str, refusal: _Refusal) -> None:
        pod = self._caches.pods.get(refusal.key)
        if pod is not None and pod.uid != uid:
            if pod.uid != refusal.shown:
                self.forget(uid)
            # Otherwise the watch is behind and still shows the former pod.
            return
        if pod is not None and (pod.node or pod.deleting):
            self.forget(uid)
            return
        if pod is None or self._too_soon(uid):
            return
        if passes_one_of(self._caches.state, pod, refusal.nodes):
            await self._patch(pod)

    async def _look_at_taken_over(self, uid: str, key: str) -> None:
        pod = self._caches.pods.get(key)
        if pod is None or pod.uid != uid or pod.node or pod.deleting:
            self._taken_over.pop(uid, None)
        elif self._leads(pod.pool) and not self._too_soon(uid):
            await self._patch(pod)

    def _too_soon(self, uid: str) -> bool:
        _, not_before = self._patched.get(uid, (0, 0.0))
        return asyncio.get_running_loop().time() < not_before

    async def _patch(self, pod: AdapterPod) -> None:
        """Patch the pod, so that kube-scheduler tries it again."""
        uid = pod.uid
        self._patches += 1
        patch = {
            "metadata": {
                "uid": uid,
                "annotations": {RETRY_ANNOTATION: f"{pod.resource_version}-{self._patches}"},
            }
        }
        try:
            await self._api.patch(PODS, pod.namespace, pod.name, patch, patch_type=PatchType.MERGE)
        except NotFound:
            self.forget(uid)
        except ApiError as error:
            log.info("pod %s was not re-activated: %s", pod.key, error, extra={"pod": pod.key})
        else:
            self._count_patch(uid)
            self._metrics.repairs.labels("PodReactivated").inc()
