"""Restraint towards the API server: a token bucket for requests, and a back-off for failures.

``TokenBucket`` is client-go's flow control (``qps`` and ``burst``): a full bucket lets ``burst``
requests through at once, then ``qps`` a second. Waiters form one queue, and only its head sleeps.
So requests are sent in the order of arrival, and a cancelled waiter takes no token and delays
nobody. ``pause`` obeys a server's Retry-After: nobody passes before it is over, whatever the bucket
holds. Then the bucket is empty, so that the waiters follow at ``qps``, not in a burst that would be
refused again.

``Backoff`` is the exponential back-off of client-go's reflectors: 0.8 s doubling to 30 s, each
delay stretched by up to its own length, and reset after two quiet minutes.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Final

from extender.kube.api import TooManyRequests
from extender.kube.timers import TIMER_RESOLUTION_S

PAUSE_MAX_S: Final = 60.0
"""A longer Retry-After is cut to this: a broken proxy must not silence us for a day."""


class TokenBucket:
    """``burst`` requests at once, then ``qps`` a second, in order of arrival. ``qps`` 0: no limit
    but ``pause``.
    """

    def __init__(self, qps: float, burst: int, *, waiters_max: int = 10_000) -> None:
        if qps < 0 or (qps > 0 and burst < 1):
            raise ValueError(
                f"qps must not be negative and burst at least 1, not {qps} and {burst}"
            )
        self._qps = qps
        self._burst = burst
        self._waiters_max = waiters_max
        self._tokens = float(burst)
        self._filled_at: float | None = None
        self._closed_until = 0.0
        self._turn = asyncio.Lock()
        self.waiting = 0
        """Requests in the queue now, its head included."""
        self.waited_s = 0.0
        """Seconds that all requests together have spent in the queue since the start."""

    async def acquire(self) -> None:
        """Wait for a token and take it. Raises TooManyRequests, and nothing is sent, if the queue
        is full.
        """
        if self.waiting >= self._waiters_max:
            raise TooManyRequests(
                429, "ClientQueueFull", f"{self.waiting} requests wait to be sent already"
            )
        clock = asyncio.get_running_loop().time
        began = clock()
        if not self.waiting and self._missing_s(began) <= TIMER_RESOLUTION_S:
            # The usual case: nobody waits, and there is a token, or one comes sooner than a timer
            # could wake us. Then the bucket goes slightly below zero.
            self._take()
            return
        self.waiting += 1
        try:
            async with self._turn:
                await self._wait_as_head()
        finally:
            self.waiting -= 1
            self.waited_s += clock() - began

    def try_acquire(self) -> float:
        """Take a token if there is one for somebody who does not wait, and return 0. Else take
        none, and return the seconds until there may be one.
        """
        missing_s = self._missing_s(asyncio.get_running_loop().time())
        if self.waiting or missing_s > TIMER_RESOLUTION_S:
            return max(missing_s, TIMER_RESOLUTION_S)
        self._take()
        return 0.0

    def pause(self, delay_s: float) -> None:
        """Let nobody pass for ``delay_s`` seconds (at most ``PAUSE_MAX_S``), as Retry-After
        asks.
        """
        now = asyncio.get_running_loop().time()
        self._closed_until = max(self._closed_until, now + min(max(delay_s, 0.0), PAUSE_MAX_S))
        self._tokens = min(self._tokens, 1.0)
        self._filled_at = self._closed_until

    def change(self, qps: float, burst: int) -> None:
        """Set another rate. Tokens earned at the old rate stay, up to the new ``burst``.

        The head of the queue still wakes at the time that the old rate gave, and checks again then.
        """
        if self._filled_at is not None:
            self._missing_s(asyncio.get_running_loop().time())
        self._qps, self._burst = qps, burst
        self._tokens = min(self._tokens, float(burst))

    async def _wait_as_head(self) -> None:
        loop = asyncio.get_running_loop()
        # A loop and not one sleep: pause() may be called while the head sleeps.
        while (wait_s := self._missing_s(loop.time())) > TIMER_RESOLUTION_S:  # noqa: ASYNC110 - time is no event
            await asyncio.sleep(wait_s)
        self._take()

    def _take(self) -> None:
        if self._qps:
            self._tokens -= 1.0

    def _missing_s(self, now: float) -> float:
        """Seconds until a token is there and no pause holds; 0 or less: now."""
        if not self._qps:
            return self._closed_until - now
        if self._filled_at is not None:
            filled_s = max(0.0, now - self._filled_at)  # after a pause, from its end
            self._tokens = min(float(self._burst), self._tokens + filled_s * self._qps)
        self._filled_at = now if self._filled_at is None else max(now, self._filled_at)
        missing = (1.0 - self._tokens) / self._qps
        return max(missing, self._closed_until - now)


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Delays from ``base_s``, times ``factor`` each, up to ``cap_s``. Each is multiplied by 1 to 1
    + ``jitter``.
    """

    base_s: float = 0.8
    cap_s: float = 30.0
    factor: float = 2.0
    jitter: float = 1.0
    reset_s: float = 120.0
    """After so long without a failure, the delays begin at ``base_s`` again."""


class Backoff:
    """How long to wait before the next attempt. One per thing that fails; not shared."""

    def __init__(self, rng: random.Random, policy: BackoffPolicy | None = None) -> None:
        self._rng = rng
        self._policy = policy or BackoffPolicy()
        self._next_s = self._policy.base_s
        self._asked_at: float | None = None

    def next_s(self, now: float, *, at_least_s: float | None = None) -> float:
        """The delay in seconds after a failure at monotonic time ``now``, at least the server's
        Retry-After.
        """
        policy = self._policy
        if self._asked_at is not None and now - self._asked_at > policy.reset_s:
            self.reset()
        self._asked_at = now
        delay = self._next_s * (1.0 + policy.jitter * self._rng.random())
        self._next_s = min(self._next_s * policy.factor, policy.cap_s)
        return max(delay, min(at_least_s or 0.0, PAUSE_MAX_S))

    def reset(self) -> None:
        """Begin at the base again: the last attempt worked."""
        self._next_s = self._policy.base_s
