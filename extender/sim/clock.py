"""Virtual time: an event loop whose clock stands still while anything can run, and jumps to the next timer when nothing can.

A day of leases, back-offs and node failures passes in seconds, and in the same order each time: ready callbacks run in the
order in which they came, timers in the order of their time, and nothing comes from outside, because the loop waits for no
file descriptor at all. What would need one (sockets, threads, subprocesses) never gets its event: code under simulation
takes its network as an argument.

Two ways of hanging end the run instead: nothing left to wait for (``Deadlock``) and next to no progress of the clock
however often the loop turns (``Livelock``).
"""

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from extender.core.errors import VReplicaError

EPOCH_S: Final = 1_800_000_000.0
"""Wall-clock time, in seconds since 1970, at loop time 0."""
TURNS_PER_INSTANT_MAX: Final = 100_000
INSTANT_S: Final = 1e-6

T = TypeVar("T")


class Deadlock(VReplicaError):
    """Every task waits for another: no callback is ready and no timer is set."""


class Livelock(VReplicaError):
    """The clock has not moved by ``INSTANT_S`` in ``TURNS_PER_INSTANT_MAX`` turns of the loop."""


class _NoDescriptors(selectors.SelectSelector):
    """A selector that reports nothing, and passes the time that it was to wait to ``advance``."""

    def __init__(self, advance: Callable[[float | None], None]) -> None:
        super().__init__()
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Nothing has happened on any descriptor, and the time has passed."""
        self._advance(timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with ``time()`` of its own, in seconds from 0."""

    def __init__(self) -> None:
        self._virtual_s = 0.0
        self._instant_s = 0.0
        self._turns = 0
        super().__init__(_NoDescriptors(self._passes))
        # asyncio runs timers that are due within the clock's resolution. On a clock that stands still, code which is woken
        # a nanosecond early, and waits for the rest of it, would be woken at once for ever.
        self._clock_resolution = 0.0

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_s

    def _passes(self, timeout: float | None) -> None:
        if timeout is None:
            raise Deadlock(f"nothing is left to wait for at {self._virtual_s:.3f} s")
        # By the smallest step more than asked for: a timer runs once the time is past it, and sums are rounded.
        self._virtual_s = math.nextafter(self._virtual_s + timeout, math.inf)
        self._turns += 1
        if self._virtual_s - self._instant_s > INSTANT_S:
            self._instant_s, self._turns = self._virtual_s, 0
        elif self._turns > TURNS_PER_INSTANT_MAX:
            raise Livelock(f"the clock stands still at {self._virtual_s:.6f} s")


def wall_clock() -> float:
    """Epoch seconds of the running loop's time: what simulated components get as ``now``."""
    return EPOCH_S + asyncio.get_running_loop().time()


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time, to its end. Raises what it raises, Deadlock, Livelock."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
