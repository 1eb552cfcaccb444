"""``PodsBehind``: has pods listed again when reads show that their watch is silent.

A ledger write has what the watch showed of the pod as its precondition. If the write is refused,
the pod is read. If the pod was recreated meanwhile, the read result is left out of the cache,
because the watch first has to show how the former pod ended. But a watch may be silent for minutes
while its connection stands. Until it speaks, every write of that ledger fails, and the last state
seen, such as not Ready, would count as if it lasted (seed 320000291).
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from extender.model.objects import AdapterPod
from extender.service.watching.caches import Caches

PATIENCE_S: Final = 2.0
"""How long a watch has to show what a read has shown, or what a Conflict has told of."""
LIST_PERIOD_S: Final = 10.0
"""Shortest time between two lists of one kind that a silent watch makes necessary."""


class _Seen(NamedTuple):
    uid: str
    at: float


class PodsBehind:
    """For one replica. ``clock``: the event loop's time, seconds. ``request_pods``: requests a list
    of pods.
    """

    def __init__(
        self, caches: Caches, clock: Callable[[], float], request_pods: Callable[[], None]
    ) -> None:
        self._request_pods = request_pods
        self._caches = caches
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        """By pod key: what a read has shown and the watch has not. Requesting a list empties it."""
        self._listed_at = float("-inf")

    def pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        """The watch has shown a change of a pod: forget the read that it has caught up with."""
        changed = new or old
        seen = self._seen.get(changed.key) if changed is not None else None
        if (
            changed is not None
            and seen is not None
            and seen.uid == (new.uid if new is not None else "")
        ):
            del self._seen[changed.key]

    def read(self, pod_key: str, pod: AdapterPod | None) -> None:
        """A read has just returned ``pod``; None: the pod is gone."""
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
            self._request_pods()
