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
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeVar

from extender.model.errors import VReplicaError

EPOCH_S: Final = 1_800_000_000.0
"""Wall-clock time, in seconds since 1970, at loop time 0."""
TURNS_PER_INSTANT_MAX: Final = 100_000
INSTANT_S: Final = 1e-6
TIMERS_MIN: Final = 100
"""Fewer are not searched for cancelled ones."""

PROCESS: Final[ContextVar[str]] = ContextVar("PROCESS", default="")
"""Which simulated process the running code belongs to; "" for the rest of the world."""

T = TypeVar("T")


class Deadlock(VReplicaError):
    """Every task waits for another: no callback is ready and no timer is set."""


class Livelock(VReplicaError):
    """The clock has not moved by ``INSTANT_S`` in ``TURNS_PER_INSTANT_MAX`` turns of the loop."""


class Endless(VReplicaError):
    """Virtual time has passed beyond the end that was set."""


class _NoDescriptors(selectors.SelectSelector):
    """A selector for asyncio to register its own pipe with; nobody ever asks it what has
    happened.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Nothing has happened on any descriptor."""
        del timeout
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


def _nothing() -> None:
    """What a cancelled timer would call: it lets go of what it was for."""


class _Handle(asyncio.Handle):
    """asyncio's, made without asking the loop whether it debugs: one for each callback that
    runs.
    """

    __slots__ = ()
    _context: Context
    _callback: Callable[..., object]
    _args: Sequence[Any]
    _cancelled: bool

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _Timer(asyncio.TimerHandle):
    """The same of a callback that waits for its time."""

    __slots__ = ()
    _context: Context
    _callback: Callable[..., object]
    _args: Sequence[Any]
    _cancelled: bool
    _scheduled: bool

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "VirtualTimeLoop",
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        """Not to be run; the loop counts those that still wait."""
        if not self._cancelled:
            self._cancelled = True
            self._callback, self._args = _nothing, ()
            if self._scheduled:
                self._loop._timer_cancelled_count += 1  # noqa: SLF001


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with ``time()`` of its own, in seconds from 0."""

    _ready: deque[_Handle | _Timer]
    _scheduled: list[tuple[float, _Timer]]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self) -> None:
        self._virtual_s = 0.0
        self._instant_s = 0.0
        self._turns = 0
        super().__init__(_NoDescriptors())
        self._paused: dict[str, list[_Handle | _Timer]] = {}
        self._tasks_made = 0
        self.ends_s = math.inf
        """Virtual time after which nothing runs any more, but ``Endless`` is raised."""
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
        held += [timer for _, timer in self._scheduled if _process_of(timer) == process]
        rest = [handle for handle in self._ready if _process_of(handle) != process]
        self._ready.clear()
        self._ready.extend(rest)
        self._scheduled[:] = [
            entry for entry in self._scheduled if _process_of(entry[1]) != process
        ]
        heapq.heapify(self._scheduled)
        # Shadows the method for as long as anything is paused: nobody else pays for the question.
        self.call_soon = self._call_soon_unless_paused  # type: ignore[method-assign]

    def resume(self, process: str) -> None:
        """SIGCONT: timers that are overdue run at once."""
        held = self._paused.pop(process, [])
        if not self._paused and "call_soon" in self.__dict__:
            del self.call_soon
        for handle in held:
            if isinstance(handle, _Timer):
                heapq.heappush(self._scheduled, (handle.when(), handle))
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
        handle = _Handle(callback, args, self, context)
        held.append(handle)
        return handle

    # -- asyncio's own turns, without what only a real loop needs: debugging, threads, signals,
    # descriptors ----------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run at the loop's next turn."""
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run once the time is past ``when``."""
        timer = _Timer(when, callback, args, self, context)
        # With its time beside it a heap compares numbers; timers of the same time are compared as
        # before.
        heapq.heappush(self._scheduled, (when, timer))
        return timer

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run once ``delay`` seconds have passed."""
        return self.call_at(self._virtual_s + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """One turn: the clock moves to the next timer where nothing is ready; then what is ready by
        now runs once.
        """
        ready, scheduled = self._ready, self._scheduled
        self._forget_cancelled()
        if ready or self._stopping:
            self._passes(0.0)
        else:
            self._passes(max(0.0, scheduled[0][0] - self._virtual_s) if scheduled else None)
        # Not those that are due within the clock's resolution, as in asyncio: on a clock that
        # stands still, code which is woken a nanosecond early, and waits for the rest of it, would
        # be woken at once for ever.
        now = self._virtual_s
        while scheduled and scheduled[0][0] < now:
            timer = heapq.heappop(scheduled)[1]
            timer._scheduled = False  # noqa: SLF001
            ready.append(timer)
        for _ in range(len(ready)):
            if (
                not ready
            ):  # a process has been stopped in this very turn, and what was ready of it is held
                break
            handle = ready.popleft()
            if handle._cancelled:  # noqa: SLF001
                continue
            try:
                handle._context.run(handle._callback, *handle._args)  # noqa: SLF001
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001
                self.call_exception_handler(
                    {"message": f"Exception in {handle!r}", "exception": error, "handle": handle}
                )

    def _forget_cancelled(self) -> None:
        """Cancelled timers leave when it is their turn, or all at once where they are the most."""
        scheduled = self._scheduled
        if len(scheduled) > TIMERS_MIN and self._timer_cancelled_count * 2 > len(scheduled):
            for _, timer in scheduled:
                timer._scheduled = not timer._cancelled  # noqa: SLF001
            scheduled[:] = [entry for entry in scheduled if entry[1]._scheduled]  # noqa: SLF001
            heapq.heapify(scheduled)
            self._timer_cancelled_count = 0
        while scheduled and scheduled[0][1]._cancelled:  # noqa: SLF001
            heapq.heappop(scheduled)[1]._scheduled = False  # noqa: SLF001
            self._timer_cancelled_count -= 1

    def _passes(self, seconds: float | None) -> None:
        """Move the clock; None: there is no timer. Raises Deadlock, Livelock, Endless."""
        if seconds is None:
            raise Deadlock(f"nothing is left to wait for at {self._virtual_s:.3f} s")
        # By the smallest step more than asked for: a timer runs once the time is past it, and sums
        # are rounded.
        self._virtual_s = math.nextafter(self._virtual_s + seconds, math.inf)
        self._turns += 1
        if self._virtual_s > self.ends_s:
            self.ends_s = math.inf  # what is cancelled then has its time to end
            raise Endless(
                f"not over at {self._virtual_s:.0f} s: something is waited for that never comes"
            )
        if self._virtual_s - self._instant_s > INSTANT_S:
            self._instant_s, self._turns = self._virtual_s, 0
        elif self._turns > TURNS_PER_INSTANT_MAX:
            raise Livelock(f"the clock stands still at {self._virtual_s:.6f} s")


def _numbered(loop: Any, coroutine: Coroutine[Any, Any, T], **options: Any) -> "asyncio.Task[T]":
    return _NumberedTask(coroutine, loop=loop, **options)


def _process_of(handle: _Handle | _Timer) -> str:
    return handle._context.get(PROCESS, "")  # noqa: SLF001


def wall_clock() -> float:
    """Epoch seconds of the running loop's time: what simulated components get as ``now``."""
    return EPOCH_S + asyncio.get_running_loop().time()


def run_virtual(main: Coroutine[Any, Any, T], *, seconds_max: float = math.inf) -> T:
    """Run a coroutine in virtual time, to its end, for at most so long. Raises what it raises,
    Deadlock, Livelock, Endless.
    """

    def new_loop() -> VirtualTimeLoop:
        loop = VirtualTimeLoop()
        loop.ends_s = seconds_max
        return loop

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
