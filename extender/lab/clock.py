"""Virtual time: an event loop whose clock stands still while anything can run, and jumps to the
next timer when nothing can.

A day of leases, back-offs and node failures passes in seconds, and in the same order each time:
ready callbacks run in the order in which they came, timers in the order of their time, and nothing
comes from outside, because the loop waits for no file descriptor at all. What would need one
(sockets, threads, subprocesses) never gets its event: code under simulation takes its network as an
argument.

``pause`` stops one *process* as SIGSTOP does: nothing that runs in a context with that ``PROCESS``
runs any more, not even its timers, until ``resume``, when all that was due happens at once and
late.

Two ways of hanging end the run instead: nothing left to wait for (``Deadlock``) and next to no
progress of the clock however often the loop turns (``Livelock``).
"""

import asyncio
import heapq
import math
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, Final, TypeVar

from extender.model.errors import VReplicaError

EPOCH_S: Final = 1_800_000_000.0
"""Wall-clock time, in seconds since 1970, at loop time 0."""
TURNS_PER_INSTANT_MAX: Final = 100_000
INSTANT_S: Final = 1e-6

PROCESS: Final[ContextVar[str]] = ContextVar("PROCESS", default="")
"""Which simulated process the running code belongs to; "" for the rest of the world."""

T = TypeVar("T")


class Deadlock(VReplicaError):
    """Every task waits for another: no callback is ready and no timer is set."""


class Livelock(VReplicaError):
    """The clock has not moved by ``INSTANT_S`` in ``TURNS_PER_INSTANT_MAX`` turns of the loop."""


class TimeLimitExceeded(VReplicaError):
    """Virtual time has passed beyond the end that was set."""


class _Jump(selectors.SelectSelector):
    """The selector of a ``VirtualTimeLoop``. A real one waits for descriptors until the next timer
    is due; this one moves the clock to that timer.
    """

    def __init__(self, advance: Callable[[float | None], None]) -> None:
        super().__init__()
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let ``timeout`` seconds pass. Nothing happens on any descriptor."""
        self._advance(timeout)
        return []


class _NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number.

    asyncio keeps tasks in sets, a TaskGroup cancels its own in their order, and that of addresses
    is another one in each run.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], *, loop: "VirtualTimeLoop", **options: Any
    ) -> None:
        self._number = loop.next_task_number()
        super().__init__(coroutine, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with ``time()`` of its own, in seconds from 0."""

    # asyncio's own lists, which ``pause`` empties: there is no public way to hold callbacks back.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        self._virtual_s = 0.0
        self._instant_s = 0.0
        self._turns = 0
        super().__init__(_Jump(self._advance))
        # asyncio runs a timer that is due within the clock's resolution. On a clock that stands
        # still, code that is woken a nanosecond early and waits for the rest never gets there.
        self._clock_resolution = 0.0
        self._paused: dict[str, list[asyncio.Handle]] = {}
        self._tasks_made = 0
        self.ends_s = math.inf
        """Virtual time after which nothing runs any more, but ``TimeLimitExceeded`` is raised."""
        self.set_task_factory(_numbered)  # type: ignore[arg-type]

    def next_task_number(self) -> int:
        """Tasks so far."""
        self._tasks_made += 1
        return self._tasks_made

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_s

    def pause(self, process: str) -> None:
        """SIGSTOP: hold back everything of a process, what is ready and what waits for its time."""
        held = self._paused.setdefault(process, [])
        held += [handle for handle in self._ready if _process_of(handle) == process]
        held += [timer for timer in self._scheduled if _process_of(timer) == process]
        # The turn that calls this runs as many handles as were ready when it began.
        for at, handle in enumerate(self._ready):
            if _process_of(handle) == process:
                self._ready[at] = asyncio.Handle(_nothing, (), self)
        self._scheduled[:] = [timer for timer in self._scheduled if _process_of(timer) != process]
        heapq.heapify(self._scheduled)
        # Shadows the method for as long as anything is paused: nobody else pays for the question.
        self.call_soon = self._call_soon_unless_paused  # type: ignore[assignment, method-assign]

    def resume(self, process: str) -> None:
        """SIGCONT: timers that are overdue run at once."""
        held = self._paused.pop(process, [])
        if not self._paused and "call_soon" in self.__dict__:
            del self.call_soon
        for handle in held:
            if isinstance(handle, asyncio.TimerHandle):
                heapq.heappush(self._scheduled, handle)
            else:
                self._ready.append(handle)

    def is_paused(self, process: str) -> bool:
        """Whether a process is stopped now."""
        return process in self._paused

    def _call_soon_unless_paused(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        process = context.get(PROCESS, "") if context is not None else PROCESS.get()
        held = self._paused.get(process)
        if held is None:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        held.append(handle)
        return handle

    def _advance(self, seconds: float | None) -> None:
        """Move the clock; None: there is no timer. Raises Deadlock, Livelock, TimeLimitExceeded."""
        if seconds is None:
            raise Deadlock(f"nothing is left to wait for at {self._virtual_s:.3f} s")
        # By the smallest step more than asked for: a timer runs once the time is past it, and sums
        # are rounded.
        self._virtual_s = math.nextafter(self._virtual_s + seconds, math.inf)
        self._turns += 1
        if self._virtual_s > self.ends_s:
            self.ends_s = math.inf  # what is cancelled then has its time to end
            raise TimeLimitExceeded(
                f"not over at {self._virtual_s:.0f} s: something is waited for that never comes"
            )
        if self._virtual_s - self._instant_s > INSTANT_S:
            self._instant_s, self._turns = self._virtual_s, 0
        elif self._turns > TURNS_PER_INSTANT_MAX:
            raise Livelock(f"the clock stands still at {self._virtual_s:.6f} s")


def _numbered(loop: Any, coroutine: Coroutine[Any, Any, T], **options: Any) -> "asyncio.Task[T]":
    return _NumberedTask(coroutine, loop=loop, **options)


def _nothing() -> None:
    """Stand in the place of a callback that is held back."""


def _process_of(handle: asyncio.Handle) -> str:
    context: Context = handle._context  # type: ignore[attr-defined]  # noqa: SLF001
    return context.get(PROCESS, "")


def wall_clock() -> float:
    """Epoch seconds of the running loop's time: what simulated components get as ``now``."""
    return EPOCH_S + asyncio.get_running_loop().time()


def run_virtual(main: Coroutine[Any, Any, T], *, seconds_max: float = math.inf) -> T:
    """Run a coroutine in virtual time, to its end, for at most so long. Raises what it raises,
    Deadlock, Livelock, TimeLimitExceeded.
    """

    def new_loop() -> VirtualTimeLoop:
        loop = VirtualTimeLoop()
        loop.ends_s = seconds_max
        return loop

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
