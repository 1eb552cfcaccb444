"""Limits on requests to the API server. Each *lane* has its own token bucket, so that no lane waits
for another's requests.

- ``reads``: lists, gets and the starts of watches, so that a relist never holds up a bind;
- ``writes``: ledgers, bindings, statuses, scale;
- ``events``: the most requests, which matter least (Kubernetes' components give their event
  recorder its own client for that reason);
- ``reviews``: TokenReviews of callers' tokens. Strangers can cause them, so an API server that
  refuses them must hold up nothing else;
- ``foreign``: all requests for foreign kinds. Other API servers may answer these, and be overloaded
  or broken on their own;
- ``leases``: no bucket, because leadership must not be lost in our own queue. The elector's period
  is the limit. Leases also have their own connections (``connection``), so that they never wait
  behind a hundred slow answers.

A 429 or 503 with Retry-After pauses the lane of its request for that time, unless it is about one
object (``transport``). All requests of the lane wait, instead of being refused again. Then the lane
goes on with an empty bucket, at its rate, because the waiting requests would otherwise come in one
burst. Leases and other lanes do not wait.
"""

from collections import Counter
from enum import StrEnum
from typing import Final

from extender.kube.api import EVENTS, LEASES, TOKEN_REVIEWS, Resource
from extender.kube.ratelimit import TokenBucket
from extender.model.names import GROUP

QPS_DEFAULT: Final = 1000.0
BURST_DEFAULT: Final = 2000
"""Both for each lane. kube-scheduler's 50 and 100 would be too few: placing writes a patch per pod
and a status per vpod.
"""
OWN_GROUPS: Final = frozenset({"", "apps", GROUP})
"""Those that we use and that do not end with ``.k8s.io``."""
RETRY_STATUSES: Final = frozenset({429, 503})
"""Statuses whose Retry-After pauses a lane. client-go also heeds it with other 5xx, which come from
behind the API server.
"""


class Lane(StrEnum):
    """A group of requests. Requests wait only for others of their lane."""

    READS = "reads"
    WRITES = "writes"
    EVENTS = "events"
    REVIEWS = "reviews"
    FOREIGN = "foreign"
    LEASES = "leases"


class Budget:
    """The buckets. ``qps`` and ``burst`` apply to each lane that has one."""

    def __init__(self, qps: float, burst: int) -> None:
        with_bucket = [lane for lane in Lane if lane is not Lane.LEASES]
        self._buckets: dict[Lane, TokenBucket] = {
            lane: TokenBucket(qps, burst) for lane in with_bucket
        }
        self.requests: Counter[str] = Counter(dict.fromkeys(map(str, Lane), 0))
        """Requests sent since the start, by lane."""
        self.pauses: Counter[str] = Counter(dict.fromkeys(map(str, Lane), 0))
        """How often an answer with Retry-After closed a lane, by lane."""

    async def admit(self, lane: Lane) -> None:
        """Wait for the lane's next turn. Raises TooManyRequests, and nothing is sent, if too many
        wait in it.
        """
        if (bucket := self._buckets.get(lane)) is not None:
            await bucket.acquire()
        self.requests[lane] += 1

    def change(self, qps: float, burst: int) -> None:
        """Set another rate for each lane that has a bucket."""
        for bucket in self._buckets.values():
            bucket.change(qps, burst)

    def answered(self, lane: Lane, status: int, retry_after_s: float | None) -> None:
        """Handle a refusal of a request of the lane: pause it if the API server asks for that."""
        bucket = self._buckets.get(lane)
        if bucket is not None and retry_after_s is not None and status in RETRY_STATUSES:
            self.pauses[lane] += 1
            bucket.pause(retry_after_s)

    def waiting(self) -> dict[str, float]:
        """Requests that wait now, by lane."""
        return {str(lane): float(bucket.waiting) for lane, bucket in self._buckets.items()}

    def waited_s(self) -> dict[str, float]:
        """Seconds that requests have waited since the start, by lane."""
        return {str(lane): bucket.waited_s for lane, bucket in self._buckets.items()}


def lane_of(resource: Resource, *, writes: bool) -> Lane:
    """The lane of a request."""
    if resource == LEASES:
        return Lane.LEASES
    if not (resource.group in OWN_GROUPS or resource.group.endswith(".k8s.io")):
        return Lane.FOREIGN
    if not writes:
        return Lane.READS
    return {EVENTS: Lane.EVENTS, TOKEN_REVIEWS: Lane.REVIEWS}.get(resource, Lane.WRITES)
