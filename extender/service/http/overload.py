"""Limits the verbs' concurrent work, and refuses the excess so that the rest is answered in time.

A queue in front of a slow verb would make every answer late. kube-scheduler gives up a late answer,
so that work would be wasted. So there is no queue: a request over a limit is refused at once (503),
before its body is read, and kube-scheduler retries it. Each verb has its own limit of requests in
flight, because binds and schedules wait for the API server and must not block the others. The sum
of these limits bounds all verbs. A request is in flight once its body is complete, so a client that
sends no body takes no place. Incomplete bodies have limits of their own (``kube.serving.bodies``).
The bytes of one body are limited by verb, and so are those of all bodies together. They are counted
as they arrive: a length that is only announced takes nothing from others. Health, metrics and state
are not counted.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from extender.kube.serving.bodies import (
    ArrivalLimits,
    BodiesTooLarge,
    BodyBudget,
    BodyShare,
    BodyStream,
    BodyTooLarge,
    BodyTooSlow,
)
from extender.model.errors import WireError
from extender.node.wire import BODY_BYTES_MAX
from extender.service.http import load, schedule

OVERLOAD_RETRY_S: Final = 1
"""Retry-After of a refusal, seconds."""
BIND_BODY_BYTES_MAX: Final = 1024 * 1024
"""A bind has three names and a UID; the longest valid ones stay below 2 KiB."""

ACKNOWLEDGE_BODY_BYTES_MAX: Final = 512 * 1024
"""The keys of all shares of an assignment have less than 96 KiB. A body names each up to five
times.
"""

FILTER, PRIORITIZE, PREEMPT, BIND, SCHEDULE = "filter", "prioritize", "preempt", "bind", "schedule"
LOAD: Final = "load"
ACKNOWLEDGE: Final = "acknowledge"


class Overloaded(WireError):
    """Refused for overload. The same request may succeed a moment later."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbLimits:
    """Limits of one server's verbs."""

    in_flight_max: Mapping[str, int] = field(
        # kube-scheduler filters one pod at a time, and binds as many as the API server takes.
        default_factory=lambda: {
            FILTER: 32,
            PRIORITIZE: 32,
            PREEMPT: 32,
            BIND: 256,
            SCHEDULE: 256,
            LOAD: 32,
            ACKNOWLEDGE: 256,
        }
    )
    body_bytes_max: Mapping[str, int] = field(
        default_factory=lambda: {
            FILTER: BODY_BYTES_MAX,
            PRIORITIZE: BODY_BYTES_MAX,
            PREEMPT: BODY_BYTES_MAX,
            BIND: BIND_BODY_BYTES_MAX,
            SCHEDULE: schedule.BODY_BYTES_MAX,
            LOAD: load.BODY_BYTES_MAX,
            ACKNOWLEDGE: ACKNOWLEDGE_BODY_BYTES_MAX,
        }
    )
    bodies_bytes_max: int = 2 * BODY_BYTES_MAX
    """Of all bodies that are being read or worked on."""
    arrivals: ArrivalLimits = field(default_factory=ArrivalLimits)
    """For all verbs together: the slowest body gives way, whatever its verb."""


class Gate:
    """Counts requests in flight, and refuses those over the limits."""

    def __init__(self, limits: VerbLimits | None = None) -> None:
        self.limits = limits or VerbLimits()
        self.in_flight: Counter[str] = Counter()
        """Requests with complete bodies, by verb."""
        self.bodies = BodyBudget(self.limits.bodies_bytes_max, self.limits.arrivals)
        self.refused: Counter[str] = Counter()
        """Requests refused with 503 for their number or total size, by verb."""
        self._admitted = 0
        """Requests in flight, or with a body arriving."""
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def admit(self, verb: str) -> Iterator["Admission"]:
        """Read and handle a request of ``verb`` within the context. Raises Overloaded before
        reading anything.
        """
        self.check(verb)
        self._admitted += 1
        self._empty.clear()
        try:
            with self.bodies.share() as share:
                admission = Admission(self, verb, share)
                try:
                    yield admission
                finally:
                    self.in_flight[verb] -= admission.is_in_flight
        finally:
            self._admitted -= 1
            if not self._admitted:
                self._empty.set()

    def check(self, verb: str) -> None:
        """Raises Overloaded if ``verb`` has reached its limit of requests in flight."""
        if self.in_flight[verb] >= self.limits.in_flight_max[verb]:
            raise self.refusal(
                verb, f"{self.in_flight[verb]} {verb} requests are in flight already"
            )

    async def drained(self, timeout_s: float) -> bool:
        """Wait until no request is in flight or arriving. Return False after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def refusal(self, verb: str, message: str) -> Overloaded:
        """Count a refused request, and return the error to raise."""
        self.refused[verb] += 1
        return Overloaded(f"{message}; try again")


class Admission:
    """One request's share of the limits."""

    def __init__(self, gate: Gate, verb: str, share: BodyShare) -> None:
        self._gate = gate
        self._verb = verb
        self._share = share
        self.is_in_flight = False

    async def read(self, body: BodyStream, announced_bytes: int | None) -> bytes:
        """Return the whole body. From then on the request is in flight.

        Raises WireError 408 and 413, Overloaded, and what the stream raises.
        """
        bytes_max = self._gate.limits.body_bytes_max[self._verb]
        try:
            whole = await self._share.read(body, bytes_max=bytes_max, announced=announced_bytes)
        except BodyTooSlow as error:
            raise WireError(str(error), 408) from error
        except BodyTooLarge as error:
            raise WireError(str(error), 413) from error
        except BodiesTooLarge as error:
            raise self._gate.refusal(self._verb, str(error)) from error
        self._gate.check(self._verb)
        self._gate.in_flight[self._verb] += 1
        self.is_in_flight = True
        return whole
