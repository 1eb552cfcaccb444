"""``AcknowledgementWriter``: stores on a pod what its adapter has said of its assignment.

Any replica writes, whoever leads: the annotation is the adapter's, and the leader reads it from its
watch. The patch compares the pod's UID, its assignment and the acknowledgement before. So what is
stored is about the assignment that is stored, and of two writers one begins again from the newest
pod. Adapters together write ``WRITES_QPS`` at most: ledgers come first.
"""

from typing import Final

from extender.kube.api import (
    PODS,
    Api,
    Conflict,
    Invalid,
    NotFound,
    Obj,
    OutcomeUnknown,
    PatchType,
)
from extender.kube.ratelimit import TokenBucket
from extender.model.decode import pod_from
from extender.model.names import ACKNOWLEDGED_ANNOTATION
from extender.model.objects import AdapterPod
from extender.service.placing.annotation_patch import same_text, set_text
from extender.service.pools.assignments import same_assignment
from extender.service.watching.caches import Caches

WRITES_QPS: Final = 200.0
WRITES_BURST: Final = 400


class AcknowledgementWriter:
    """Writes the annotation ``vreplica.dev/acknowledged``."""

    def __init__(self, api: Api, caches: Caches) -> None:
        self._api = api
        self._caches = caches
        self._turns = TokenBucket(WRITES_QPS, WRITES_BURST)

    async def store(self, pod: AdapterPod, text: str) -> bool:
        """Store ``text`` on ``pod`` as it was read. False if it has changed since, or if no answer
        came: then the newest pod has been read into the cache. Raises ApiError.
        """
        await self._turns.acquire()
        patch = _patch(pod, text)
        try:
            reply = await self._api.patch(
                PODS, pod.namespace, pod.name, patch, patch_type=PatchType.JSON
            )
        except (Invalid, Conflict, OutcomeUnknown):
            await self.read(pod)
            return False
        self._caches.pods.written(pod_from(reply))
        return True

    async def read(self, pod: AdapterPod) -> None:
        """Read the newest pod into the cache. Raises NotFound if it is another one by now, and
        ApiError.
        """
        newest = pod_from(await self._api.get(PODS, pod.namespace, pod.name))
        if newest.uid != pod.uid:
            raise NotFound(404, "NotFound", f"pod {pod.key} is another one now")
        self._caches.pods.written(newest)


def _patch(pod: AdapterPod, text: str) -> list[Obj]:
    before = same_text(pod, ACKNOWLEDGED_ANNOTATION, pod.acknowledged_text)
    return [*same_assignment(pod), before, set_text(ACKNOWLEDGED_ANNOTATION, text)]
