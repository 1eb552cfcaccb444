"""``PodsBehind``: has the pods listed where reads show that their watch is silent.

A ledger is written with what the watch has told of its pod as precondition. Where that write is
refused, the pod is read, and a pod that was created anew meanwhile is left to the watch, which
first shows how the former one ended. A watch may say nothing for minutes while its connection
stands. Until then every write of that ledger fails, and what was last seen, a pod that is not
Ready, would look like one that is still away (seed 320000291).
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from extender.model.objects import AdapterPod
from extender.service.watching.caches import Caches

PATIENCE_S: Final = 2.0
"""How long the watch has to bring what a read has shown."""
LIST_PERIOD_S: Final = 10.0
"""Pods are not listed more often."""


class _Seen(NamedTuple):
    uid: str
    at: float


class PodsBehind:
    """Of one replica. ``clock``: the event loop's time, seconds."""

    def __init__(self, caches: Caches, clock: Callable[[], float]) -> None:
        self.list_pods: Callable[[], None] = lambda: None
        """Asks for a list of pods; replaced by who can."""
        self._caches = caches
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        """By pod key: what a read has shown and the watch has not. A list empties it."""
        self._listed_at = float("-inf")

    def told(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        """The watch has told of a pod: what it has caught up with is no longer behind."""
        changed = new or old
        seen = self._seen.get(changed.key) if changed is not None else None
        if (
            changed is not None
            and seen is not None
            and seen.uid == (new.uid if new is not None else "")
        ):
            del self._seen[changed.key]

    def read(self, pod_key: str, pod: AdapterPod | None) -> None:
        """The API server has just answered this about a pod; None: it is gone."""
        known = self._caches.pods.latest(pod_key)
        uid = pod.uid if pod is not None else ""
        if uid == (known.uid if known is not None else ""):
            self._seen.pop(pod_key, None)
            return
        now = self._clock()
        before = self._seen.get(pod_key)
        if before is None or before.uid != uid:
            self._seen[pod_key] = before = _Seen(uid, now)
        if now - before.at >= PATIENCE_S and now - self._listed_at >= LIST_PERIOD_S:
            self._listed_at = now
            self._seen.clear()
            self.list_pods()
