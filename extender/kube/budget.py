"""What we may ask of the API server, by lane: a token bucket each, so that no lane waits for
another's requests.

- ``reads``: lists, gets and the beginnings of watches, so that a relist never holds up a bind;
- ``writes``: ledgers, bindings, statuses, scale;
- ``events``: what is told about all that, which is the most and matters the least (Kubernetes'
  components give their event recorder a client of its own for that reason);
- ``leases``: no bucket, since leadership must not be lost in our own queue, and connections of its
  own (``connection``), since it must not be lost behind a hundred slow answers either. The
  elector's own period is its limit.

A 429 or 503 with Retry-After closes the lane that it was for until then: everything in it waits,
and nothing is asked again only to be refused again. A lane opens again with an empty bucket, at its
rate, because those who waited would otherwise come in one burst. Leases and other lanes go on.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from extender.kube.api import EVENTS, LEASES, Resource
from extender.kube.ratelimit import TokenBucket

QPS_DEFAULT: Final = 1000.0
BURST_DEFAULT: Final = 2000
"""Of each lane. kube-scheduler's 50 and 100 would be too few: placing writes a patch a pod and a
status a vpod.
"""
RETRY_STATUSES: Final = frozenset({429, 503})
"""Whose Retry-After closes a lane, as client-go has it (any 5xx there; others come from behind the
API server).
"""


class Lane(StrEnum):
    """Requests that wait for each other."""

    READS = "reads"
    WRITES = "writes"
    EVENTS = "events"
    LEASES = "leases"


@dataclass(slots=True)
class LaneUse:
    """What a lane has done since the start."""

    requests: int = 0
    pauses: int = 0
    """Answers with Retry-After that closed it."""


class Budget:
    """The buckets. ``qps`` and ``burst`` are of each lane that has one."""

    def __init__(self, qps: float, burst: int) -> None:
        self._buckets = {
            lane: TokenBucket(qps, burst) for lane in (Lane.READS, Lane.WRITES, Lane.EVENTS)
        }
        self.used = {lane: LaneUse() for lane in Lane}

    async def admit(self, lane: Lane) -> None:
        """Wait for the lane's next turn. Raises TooManyRequests, nothing being sent, when too many
        wait in it.
        """
        if (bucket := self._buckets.get(lane)) is not None:
            await bucket.acquire()
        self.used[lane].requests += 1

    def change(self, qps: float, burst: int) -> None:
        """Another rate for each lane that has one, from now on."""
        for bucket in self._buckets.values():
            bucket.change(qps, burst)

    def answered(self, lane: Lane, status: int, retry_after_s: float | None) -> None:
        """A request of the lane was refused: close the lane, if the API server asks for it."""
        bucket = self._buckets.get(lane)
        if bucket is not None and retry_after_s is not None and status in RETRY_STATUSES:
            self.used[lane].pauses += 1
            bucket.pause(retry_after_s)

    def waiting(self) -> dict[str, float]:
        """Requests that wait now, by lane."""
        return {str(lane): float(bucket.waiting) for lane, bucket in self._buckets.items()}

    def waited_s(self) -> dict[str, float]:
        """Seconds that requests have waited since the start, by lane."""
        return {str(lane): bucket.waited_s for lane, bucket in self._buckets.items()}

    def requests(self) -> dict[str, float]:
        """Requests sent since the start, by lane."""
        return {str(lane): float(use.requests) for lane, use in self.used.items()}

    def pauses(self) -> dict[str, float]:
        """Times that the API server closed a lane, by lane."""
        return {str(lane): float(use.pauses) for lane, use in self.used.items()}


def lane_of(resource: Resource, *, writes: bool) -> Lane:
    """The lane of a request."""
    if resource == LEASES:
        return Lane.LEASES
    if not writes:
        return Lane.READS
    return Lane.EVENTS if resource == EVENTS else Lane.WRITES
