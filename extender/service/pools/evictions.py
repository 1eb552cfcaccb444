"""Evictions of adapter pods that nobody tries any more: their pods take vreplicas again."""

import logging
from typing import Final

from extender.kube.api import PODS, ApiError, PatchType
from extender.kube.fence import PoolApi
from extender.model.bucket import Bucket
from extender.model.decode import pod_from
from extender.model.eviction import eviction_of
from extender.model.names import EVICTING_ANNOTATION
from extender.service.placing.annotation_patch import remove_text, same_pod, same_text
from extender.service.watching.caches import Caches

log: Final = logging.getLogger(__name__)


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
