"""The marks of adapter pods that somebody tries to evict (``model.eviction``): the leader gives
them their turns, and removes those of evictions that nobody tries any more.
"""

import logging
from collections.abc import Callable
from typing import Final

from extender.engine.scaling.unavailable import next_turns
from extender.engine.state.pool_state import PoolState
from extender.kube.api import PODS, ApiError, Conflict, OutcomeUnknown, PatchType
from extender.kube.fence import PoolApi
from extender.model.bucket import Bucket
from extender.model.decode import pod_from
from extender.model.eviction import FRESH_S, Eviction, eviction_of, mark_patch
from extender.model.names import EVICTING_ANNOTATION
from extender.model.objects import AdapterPod
from extender.service.placing.annotation_patch import remove_text, same_pod, same_text
from extender.service.watching.caches import Caches

log: Final = logging.getLogger(__name__)


class EvictionMarks:
    """When each mark was last renewed, by our own clock: the clock of the webhook that has written
    its times may be minutes wrong. ``clock``: seconds.
    """

    def __init__(self, caches: Caches, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._renewed: dict[str, tuple[float, float]] = {}
        """UID of a pod -> the time in its mark, and when it was first seen."""
        caches.pods.add_event_handler(self._pod_changed)

    def is_fresh(self, pod: AdapterPod) -> bool:
        """Whether somebody still tries to evict the pod: a mark is renewed with each attempt."""
        _, seen_at = self._renewed.get(pod.uid, (0.0, self._clock()))
        return self._clock() - seen_at < FRESH_S

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._renewed.pop(old.uid, None)
        if new is None:
            return
        mark = eviction_of(new)
        if mark is None:
            self._renewed.pop(new.uid, None)
        elif self._renewed.get(new.uid, (-1.0, 0.0))[0] != mark.latest_s:
            self._renewed[new.uid] = (mark.latest_s, self._clock())


async def write_mark(caches: Caches, fenced: PoolApi, pod: AdapterPod, mark: Eviction) -> bool:
    """Mark the pod, in the version that was decided on. After a failure, the next look retries.
    Return False if nobody knows what the pod says now: the answer is lost, or another version is
    stored, which may be that of an earlier write whose answer is lost.
    """
    patch = mark_patch(pod, mark)
    try:
        reply = await fenced(pod.pool).patch(
            PODS, pod.namespace, pod.name, patch, patch_type=PatchType.MERGE
        )
    except ApiError as error:
        log.info("pod %s is not marked: %s", pod.key, error)
        return not isinstance(error, (OutcomeUnknown, Conflict))
    caches.pods.written(pod_from(reply))
    return True


async def give_turns(
    caches: Caches, fenced: PoolApi, state: PoolState, now_s: float, marks: EvictionMarks
) -> bool:
    """Give the evictions that wait in a pool their turns. ``now_s``: epoch seconds. Return False if
    nobody knows whether a pod has got its turn. Then no other pod may get one before the watch
    tells.
    """
    for pod, eviction in next_turns(state, now_s, marks.is_fresh):
        if not await write_mark(caches, fenced, pod, eviction):
            return False
    return True


async def give_up_evictions(
    caches: Caches, fenced: PoolApi, bucket: Bucket, marks: EvictionMarks
) -> None:
    """Remove the annotation from the pods that nobody has tried to evict for ``FRESH_S``, and what
    is not ours: the annotation of a template or of another pod. After a failure, the next call
    tries again.
    """
    for pod in list(caches.pods.list()):
        if pod.evicting_text is None or not bucket.has(pod.pool):
            continue
        if eviction_of(pod) is not None and marks.is_fresh(pod):
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
