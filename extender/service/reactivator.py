"""``Reactivator``: brings refused pods back to kube-scheduler when what refused them has changed. On every replica.

A pod that filter refuses everywhere waits in kube-scheduler for a cluster event, up to five minutes (seen on 1.36).
kube-scheduler does not watch our pools and ledgers, but it does watch the pod: a patch of its ``vreplica.dev/retry``
annotation puts it back into the active queue within milliseconds. So every replica remembers what it refused, looks
again when something has changed, and patches when one of the very nodes that it refused would pass now.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from extender.core.model import AdapterPod
from extender.core.names import RETRY_ANNOTATION
from extender.core.verbs import node_problem, pod_problem
from extender.kube.api import PODS, Api, ApiError, NotFound, PatchType
from extender.metrics import Metrics
from extender.service.caches import Caches

log: Final = logging.getLogger(__name__)

REFUSED_PODS_MAX: Final = 1_000
SETTLE_S: Final = 0.2
"""How long after a change: several come together."""
PERIOD_S: Final = 30.0


class Reactivator:
    """Remembers refusals (``note``) and undoes kube-scheduler's waiting (``run``)."""

    def __init__(self, api: Api, caches: Caches, *, metrics: Metrics) -> None:
        self._api = api
        self._caches = caches
        self._metrics = metrics
        self._refused: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Pod UID -> (pod key, the nodes that were refused)."""
        self._patches = 0
        self._wake = asyncio.Event()
        for cache in (caches.pools, caches.stateful_sets, caches.nodes):
            cache.add_event_handler(lambda _old, _new: self._wake.set())
        caches.pods.add_event_handler(self._pod_changed)

    def note(self, pod: AdapterPod, nodes: Sequence[str]) -> None:
        """Filter has refused all of these nodes."""
        self._refused.pop(pod.uid, None)
        self._refused[pod.uid] = (pod.key, tuple(nodes))
        while len(self._refused) > REFUSED_PODS_MAX:
            del self._refused[next(iter(self._refused))]

    def forget(self, pod_uid: str) -> None:
        """Filter has let the pod pass."""
        self._refused.pop(pod_uid, None)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is not None and (new is None or new.node):
            self.forget(old.uid)
        if new is None or (old is not None and old.node != new.node):
            self._wake.set()

    async def run(self) -> None:
        """Look at refused pods after every change, until cancelled."""
        while True:
            self._wake.clear()
            for uid, (key, nodes) in list(self._refused.items()):
                await self._look_at(uid, key, nodes)
            try:
                async with asyncio.timeout(PERIOD_S):
                    await self._wake.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(SETTLE_S)

    async def _look_at(self, uid: str, key: str, nodes: Sequence[str]) -> None:
        state = self._caches.state
        pod = self._caches.pods.get(key)
        if pod is not None and (pod.uid != uid or pod.node or pod.deleting):
            self.forget(uid)
            return
        if pod is None or pod_problem(state, pod) is not None:
            return
        if all(node_problem(state, pod, state.nodes.get(name)) is not None for name in nodes):
            return
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
            log.info("pod %s was not re-activated: %s", key, error)
        else:
            self.forget(uid)
            self._metrics.repairs.labels("PodReactivated").inc()
