"""``OrdinalHistory``: of which ordinals we know what their last pod held, so that the next one may
be bound (I2). Pure.

A pod's ledger covers whatever is published on it, also by a status that is still on its way when
the pod is deleted. Who has seen the pod's end knows its last ledger, and gives it to the ordinal's
next pod. A list breaks that: pods may have come and gone between it and what the watch told before.
So after a list an ordinal's past is *known* only if

- its pod is bound, and a StatefulSet's: that pod's own ledger is what counts from now on; or
- its pod is the one that we knew, not bound yet, and its past was known before;

or, for all of them, once ``HOLD_S`` have passed since the list and vpods have been listed again: a
status that was on its way has arrived by then, or never will. Until then the pod is not bound here;
another replica may know more. What we had seen of such an ordinal before the list may be a ledger
older than its last one: then the statuses alone count (``close``).
"""

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Final

from extender.model.objects import AdapterPod

HOLD_S: Final = 20.0
"""From when a pod was seen alive to when a status that relies on it may still arrive: a proof of 5
s, a request of 10 s.
"""


class OrdinalHistory:
    """Told of lists (``listed``) and changes (``pod_changed``). ``clock``: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._closed = False
        self._since = clock()
        self._alive: dict[str, str] = {}
        """Pod key -> UID, of all pods that there are as far as we know."""
        self._known: set[str] = set()
        """Pod keys whose past is known although the gap is open."""
        self._outdated: set[str] = set()
        """Pod keys of which what we have seen last may be older than what was there last."""
        self._gone: dict[str, float] = {}
        """Pod keys of which there is no pod -> since when, those that went first first."""

    def __len__(self) -> int:
        """Ordinals whose past is known although the gap is open."""
        return len(self._known)

    def is_known(self, pod: AdapterPod) -> bool:
        """Whether all that the ordinal's former pods held has been seen here."""
        return self.is_seen(pod) and (self._closed or pod.key in self._known)

    def is_seen(self, pod: AdapterPod) -> bool:
        """Whether the watch has told of this very pod, and so of the end of the one before."""
        return self._alive.get(pod.key) == pod.uid

    @property
    def since(self) -> float:
        """When the gap began; what is done for it must not close a later one."""
        return self._since

    def wait_s(self) -> float:
        """Seconds until listing vpods closes the gap (``close``)."""
        return max(0.0, self._since + HOLD_S - self._clock())

    def close(self, since: float) -> frozenset[str]:
        """Vpods have been listed, begun after ``wait_s``: all pasts are known, unless pods were
        listed again meanwhile.

        Returns the keys of pods whose last ledger, as we have it, is to be forgotten: the statuses
        tell more.
        """
        if since != self._since:
            return frozenset()
        outdated = frozenset(self._outdated)
        self._closed = True
        self._known.clear()
        self._outdated.clear()
        return outdated

    def listed(self, pods: Iterable[AdapterPod]) -> None:
        """All pods as a list has them: what came and went before it, since the last event, is not
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
        """Forget ordinals that have had no pod for ``HOLD_S``; the keys of those whose last ledger,
        as we have it, is to be forgotten.

        Should one come back while the gap is open, listing vpods closes that at once: no wait is
        left (``wait_s``).
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
        """An event of the watch, or an answer of the API server."""
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
