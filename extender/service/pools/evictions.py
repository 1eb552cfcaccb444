"""The marks of adapter pods that somebody tries to evict (``model.eviction``): the leader gives
them their turns, and removes those of evictions that nobody tries any more.
"""

import logging
from typing import Final

from extender.engine.scaling.unavailable import next_turns
from extender.engine.state.pool_state import PoolState
from extender.kube.api import PODS, ApiError, PatchType
from extender.kube.fence import PoolApi
from extender.model.bucket import Bucket
from extender.model.decode import pod_from
from extender.model.eviction import Eviction, eviction_of, mark_patch
from extender.model.names import EVICTING_ANNOTATION
from extender.model.objects import AdapterPod
from extender.service.placing.annotation_patch import remove_text, same_pod, same_text
from extender.service.watching.caches import Caches

log: Final = logging.getLogger(__name__)


async def write_mark(caches: Caches, fenced: PoolApi, pod: AdapterPod, mark: Eviction) -> None:
    """Mark the pod, in the version that was decided on. After a failure, the next look retries."""
    patch = mark_patch(pod, mark)
    try:
        reply = await fenced(pod.pool).patch(
            PODS, pod.namespace, pod.name, patch, patch_type=PatchType.MERGE
        )
    except ApiError as error:
        log.info("pod %s is not marked: %s", pod.key, error)
    else:
        caches.pods.written(pod_from(reply))


async def give_turns(caches: Caches, fenced: PoolApi, state: PoolState, now_s: float) -> None:
    """Give the evictions that wait in a pool their turns. ``now_s``: epoch seconds."""
    for pod, eviction in next_turns(state, now_s):
        await write_mark(caches, fenced, pod, eviction)


async def give_up_evictions(caches: Caches, fenced: PoolApi, bucket: Bucket, now_s: float) -> None:
    """Remove the annotation from the pods that nobody has tried to evict for ``FRESH_S``, and what
    is not ours: the annotation of a template or of another pod. After a failure, the next call
    tries again. ``now_s``: epoch seconds.
    """
    for pod in list(caches.pods.list()):
        if pod.evicting_text is None or not bucket.has(pod.pool):
            continue
        eviction = eviction_of(pod)
        if eviction is not None and eviction.is_fresh(now_s):
            continue
        patch = [
            same_pod(pod),
            same_text(pod, EVICTING_ANNOTATION, pod.evicting_text),
            remove_text(EVICTING_ANNOTATION),
        ]
        try:
            reply = await fenced(pod.pool).patch(
                PODS, pod.namespace, pod.name, patch, patch_type=PatchType.JSON
            )
        except ApiError as error:
            log.info("pod %s: its eviction is given up later: %s", pod.key, error)
        else:
            caches.pods.written(pod_from(reply))
