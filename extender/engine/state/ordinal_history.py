"""``OrdinalHistory``: of which ordinals we know what their last pod held, so that the next pod may
be bound (I2). Pure.

A pod's ledger covers all that is published on the pod, even by a status that is on its way when the
pod is deleted. A replica that has seen the pod's end knows its last ledger, and gives it to the
ordinal's next pod. A list breaks that, because pods may have come and gone since the last event of
the watch. This *gap* stays open until ``HOLD_S`` have passed since the list and vpods have been
listed again. By then a status that was on its way has arrived, or never will. While the gap is
open, an ordinal's past is *known* only if

- its pod is bound and belongs to a StatefulSet: from now on, that pod's own ledger counts; or
- its pod is the one known before the list, is not bound yet, and its past was known before.

This replica does not bind a pod whose past is not known. Another replica may know more. The last
ledger that we saw of such an ordinal may be older than its real last one, so after the gap only the
statuses count (``close``).
"""

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Final

from extender.model.objects import AdapterPod

HOLD_S: Final = 20.0
"""Seconds from when a pod was seen alive until no status that relies on it can arrive any more: 5 s
for a ledger confirmation, 10 s for a request, and a reserve.
"""


class OrdinalHistory:
    """Takes lists (``listed``) and changes (``pod_changed``). ``clock``: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._closed = False
        self._since = clock()
        self._alive: dict[str, str] = {}
        """Pod key -> UID, of all pods known to exist."""
        self._known: set[str] = set()
        """Keys of pods whose past is known although the gap is open."""
        self._outdated: set[str] = set()
        """Keys of pods whose last ledger, as we have it, may not be their real last one."""
        self._gone: dict[str, float] = {}
        """Key of a pod that does not exist -> since when; the earliest first."""

    def __len__(self) -> int:
        """The number of ordinals whose past is known although the gap is open."""
        return len(self._known)

    def is_known(self, pod: AdapterPod) -> bool:
        """Whether everything that the ordinal's former pods held has been seen here."""
        return self.is_seen(pod) and (self._closed or pod.key in self._known)

    def is_seen(self, pod: AdapterPod) -> bool:
        """Whether the watch has shown this very pod, and so the end of the one before."""
        return self._alive.get(pod.key) == pod.uid

    @property
    def since(self) -> float:
        """When the gap began. Pass it to ``close``, which must not close a later gap."""
        return self._since

    def wait_s(self) -> float:
        """Seconds until a list of vpods can close the gap (``close``)."""
        return max(0.0, self._since + HOLD_S - self._clock())

    def close(self, since: float) -> frozenset[str]:
        """Close the gap that began at ``since``. Vpods have been listed, beginning after
        ``wait_s``. Does nothing if pods have been listed again meanwhile.

        Returns the keys of pods whose last ledger must be forgotten: the statuses are newer.
        """
        if since != self._since:
            return frozenset()
        outdated = frozenset(self._outdated)
        self._closed = True
        self._known.clear()
        self._outdated.clear()
        return outdated

    def listed(self, pods: Iterable[AdapterPod]) -> None:
        """Take a list of all pods. What came and went between the last event and the list is not
        known.
        """
        before, known, closed = self._alive, self._known, self._closed
        self._alive, self._known, self._closed, self._since = {}, set(), False, self._clock()
        for pod in pods:
            self._alive[pod.key] = pod.uid
            if (pod.node and pod.owner) or (
                before.get(pod.key) == pod.uid and (closed or pod.key in known)
            ):
                self._known.add(pod.key)
        self._outdated = (self._outdated | before.keys() | self._alive.keys()) - self._known

    def forget_gone(self) -> frozenset[str]:
        """Forget ordinals that have had no pod for ``HOLD_S``. Return the keys of those whose last
        ledger must be forgotten.

        If an ordinal comes back while the gap is open, no wait is left (``wait_s``), and listing
        vpods closes the gap at once.
        """
        until = self._clock() - HOLD_S
        due = frozenset(takewhile(lambda key: self._gone[key] <= until, self._gone))
        for key in due:
            del self._gone[key]
        forgotten = due & self._outdated
        self._known -= due
        self._outdated -= due
        return forgotten

    def pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        """Take a watch event, or an answer of the API server."""
        if new is None:
            if old is not None:
                self._alive.pop(old.key, None)
                self._gone.pop(old.key, None)
                self._gone[old.key] = self._clock()
            return
        self._gone.pop(new.key, None)
        self._alive[new.key] = new.uid
        if new.node and new.owner and not new.assumed and not self._closed:
            self._known.add(new.key)
            self._outdated.discard(new.key)
