"""``Faults``: the dice of one process, and the count of its faults."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from extender.kube.api import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    OutcomeUnknown,
    TooManyRequests,
)
from extender.lab.faults.rates import CALM, FaultRates

PARTITION_MAX_S: Final = 20.0
HELD_MAX_S: Final = 10.0
"""How long events may be held back."""


class Faults:
    """Decides which faults happen. ``counts`` has each kind by its ``FaultRates`` name."""

    def __init__(self, rng: random.Random, rates: FaultRates = CALM) -> None:
        self.rng = rng
        self.rates = rates
        self._seed = rng.getrandbits(64)
        self._dice: dict[str, random.Random] = {}
        """One for each kind, so that the draws of one kind do not depend on other kinds."""
        self.counts: Counter[str] = Counter()
        self._cut_off: dict[str, float] = {}
        self._no_events: dict[str, tuple[float, ApiError]] = {}
        """Namespace, or "" for all -> until when its events are refused, and the error."""

    @property
    def rates(self) -> FaultRates:
        """The present rates. They may be replaced at any time."""
        return self._rates

    @rates.setter
    def rates(self, rates: FaultRates) -> None:
        self._rates = rates
        # A call looks this up a dozen times, and a dict takes a third of the time of getattr.
        self._rate_of: dict[str, float] = asdict(rates)

    def hits(self, kind: str) -> bool:
        """Return whether this fault happens now."""
        rate = self._rate_of[kind]
        if rate <= 0.0:
            return False
        dice = self._dice.get(kind)
        if dice is None:
            dice = self._dice[kind] = random.Random(f"{self._seed}/{kind}")
        if dice.random() >= rate:
            return False
        self.counts[kind] += 1
        return True

    async def delay(self) -> None:
        """Wait for one way through the network. The timer is cancelled with the waiting task,
        because a timer left behind would move the virtual clock.
        """
        await asyncio.sleep(self._delay_s())

    def seconds(self) -> float:
        """Return how long something slow takes."""
        return self.rng.uniform(0.0, self.rates.slow_max_s)

    def _delay_s(self) -> float:
        if self.hits("slow"):
            return self.seconds()
        return self.rng.expovariate(1.0 / self.rates.delay_mean_s)

    def cut_off(self, actor: str, lasts_s: float | None = None) -> None:
        """Cut the process off from all API servers for ``lasts_s``. None: for a random time."""
        if lasts_s is None:
            lasts_s = self.rng.uniform(1.0, PARTITION_MAX_S)
        self._cut_off[actor] = asyncio.get_running_loop().time() + lasts_s

    def is_cut_off(self, actor: str) -> bool:
        """Return whether the process is cut off. The check itself may begin a partition."""
        until = self._cut_off.get(actor)
        if (
            until is not None
            and self.rates is not CALM
            and asyncio.get_running_loop().time() < until
        ):
            return True
        if self.hits("partition"):
            self.cut_off(actor)
            return True
        return False

    def refuse_events(self, namespace: str, lasts_s: float, *, forbidden: bool) -> None:
        """Refuse all events in a namespace ("": in any) for ``lasts_s``: ``forbidden`` as for a
        missing role, else as by a webhook.
        """
        error = (
            Forbidden(403, "Forbidden", "injected: events are forbidden here")
            if forbidden
            else ApiError(500, "InternalError", "injected: a webhook refuses events")
        )
        self._no_events[namespace] = (asyncio.get_running_loop().time() + lasts_s, error)

    def events_refusal(self, namespace: str) -> ApiError | None:
        """Return the error for the write of an event, if any."""
        if self.rates is CALM:
            return None
        now = asyncio.get_running_loop().time()
        refused = (self._no_events.get(name, (0.0, None)) for name in (namespace, ""))
        return next((error for until, error in refused if now < until), None)

    def refusal(self, actor: str, *, write: bool) -> ApiError | None:
        """Return the error for a call that is not served, if any."""
        if self.is_cut_off(actor):
            return OutcomeUnknown(0, "Timeout", "injected: no route to host")
        kinds = _REFUSALS if write else _READ_REFUSALS
        return next((refusal() for kind, refusal in kinds.items() if self.hits(kind)), None)


_READ_REFUSALS: Final[dict[str, Callable[[], ApiError]]] = {
    "too_many_requests": lambda: TooManyRequests(
        429, "TooManyRequests", "injected: too many requests", retry_after_s=1.0
    ),
    "internal_error": lambda: ApiError(500, "InternalError", "injected: internal error"),
    "unavailable": lambda: ApiError(503, "ServiceUnavailable", "injected: etcd has no leader"),
    "connection_reset": lambda: OutcomeUnknown(0, "Timeout", "injected: connection reset by peer"),
}
_REFUSALS: Final[dict[str, Callable[[], ApiError]]] = {
    **_READ_REFUSALS,
    "conflict": lambda: Conflict(409, "Conflict", "injected: the object has been modified"),
    "invalid": lambda: Invalid(422, "Invalid", "injected: the server rejected our request"),
}
