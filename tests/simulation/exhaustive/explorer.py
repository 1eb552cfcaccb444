"""Every order in which things may happen, up to a bound: stateless model checking of code that runs
on an event loop.

What happens outside of a process (a request is served, its answer arrives, a watch event is
delivered, somebody starts something) is a *step*. Code that waits for one calls ``Director.step``
and is held there; only when the loop has nothing left to run, the director takes one of the steps
that are waiting, and so decides the order. It is asked at each turn of the loop besides: an event
may also come in the middle of what the last step has set off.

**Order and depth.** Steps belong to threads: an operation, a watch's events. By default the first
thread that can go on does, in a fixed order of priorities. Any other choice is a *change*: the
step's thread becomes the first, or the first becomes the last. ``depth`` is how many changes a run
may have; every run with no more is tried, or is equal to one that is (as Burckhardt et al., "A
randomized scheduler with probabilistic guarantees of finding bugs", with all for some).

**Equal states.** A process that gets the same steps, with the same contents, in the same order is
in the same state. So a state is what is stored, and what each process has been told so far: where
it was met before with as much depth left, the run ends early. Independent steps of two processes
give one state in either order.

**Going back** is not needed: where there is a choice, the whole process forks, and its child goes
the other way while it waits. What is known and counted is in memory that all of them share.
"""

import asyncio
import math
import mmap
import os
import struct
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from extender.lab.clock import VirtualTimeLoop
from extender.model.errors import VReplicaError

T = TypeVar("T")

THREAD: Final[ContextVar[str]] = ContextVar("THREAD", default="")
"""To which thread the steps of the running code belong."""
FAULT: Final = "fault"
"""Thread of what goes wrong: it never comes first, so each fault is a change of its own."""
STEPS_MAX: Final = 2_000
"""Of one run; more are an operation that never ends."""


class EndlessRun(VReplicaError):
    """A run of more than ``STEPS_MAX`` steps."""


class ExploredLoop(VirtualTimeLoop):
    """Virtual time that stands still while a director has something to do. ``idle``: nothing is
    ready to run.
    """

    director: Callable[[bool], bool] | None = None
    """(idle) -> whether it has done something."""

    def _advance(self, timeout: float | None) -> None:
        if self.director is None or not self.director(timeout is None or timeout > 0):
            super()._advance(timeout)


@dataclass(frozen=True, slots=True)
class Step:
    """Something that may happen next. ``process``: who is told of it, "" for the API server alone;
    ``told``: what.
    """

    thread: str
    process: str
    what: str
    take: Callable[[], object]
    told: Hashable = None

    def __str__(self) -> str:
        return f"{self.process}: {self.what}"


@dataclass(slots=True)
class Trail:
    """One run: the numbers of its choices (0 is the default), and its steps in words."""

    chosen: list[int] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    merged: bool = False
    """It ended in a state that was met before."""


class Known:
    """States met, with the depth that was left: a hash table that forked processes share. Also what
    they have counted.
    """

    _ITEM: Final = struct.Struct("<qq")
    _COUNTERS: Final = ("runs", "states", "merged", "steps", "failed", "stopped")

    def __init__(self, *, states_max: int = 1 << 20) -> None:
        self._size = 2 * states_max
        self._states_max = states_max
        self._memory = mmap.mmap(-1, (self._size + len(self._COUNTERS)) * self._ITEM.size)

    def count(self, counter: str, more: int = 0) -> int:
        """Add to a counter; what it says now."""
        at = (self._size + self._COUNTERS.index(counter)) * self._ITEM.size
        value, _ = self._ITEM.unpack_from(self._memory, at)
        if more:
            self._ITEM.pack_into(self._memory, at, value + more, 0)
        return int(value + more)

    def met(self, state: Hashable, left: int) -> bool:
        """Whether this state was met with as much left; it is now. Raises EndlessRun where there
        are too many.
        """
        number = hash(state) or 1
        slot = number % self._size
        while True:
            found, seen_left = self._ITEM.unpack_from(self._memory, slot * self._ITEM.size)
            if found == number and seen_left >= left:
                return True
            if found in {0, number}:
                break
            slot = (slot + 1) % self._size
        if not found and self.count("states", 1) > self._states_max:
            raise EndlessRun(f"more than {self._states_max} states")
        self._ITEM.pack_into(self._memory, slot * self._ITEM.size, number, left)
        return False


class Fork:
    """Tries all that can be chosen: each but the default in a process of its own, with one change
    less left.
    """

    def __init__(self, known: Known, *, depth: int, go_on: Callable[[], bool]) -> None:
        self.known = known
        self.left = depth
        self.is_child = False
        self._go_on = go_on

    def choose(self, choices: int) -> int:
        """A choice of so many, for this process. 0: the default."""
        loop = asyncio.get_running_loop()
        for other in range(1, choices if self.left else 1):
            if not self._go_on():
                self.known.count("stopped", 1)
                break
            child = os.fork()
            if not child:
                # asyncio forgets in a child which loop runs; here it goes on running.
                asyncio._set_running_loop(loop)
                self.is_child = True
                self.left -= 1
                return other
            os.waitpid(child, 0)
        return 0


class Director:
    """Decides the order of one run. ``more_steps``: steps beside those that code waits for, in no
    thread's way.

    ``world``: what is stored, for comparing states. Threads not named in ``order`` come behind
    those that are. ``choices``: what to choose first, from the start; then ``fork`` chooses, or the
    default is taken.
    """

    def __init__(
        self,
        *,
        fork: Fork | None = None,
        choices: Sequence[int] = (),
        order: Sequence[str],
        more_steps: Callable[[], Iterator[Step]],
        world: Callable[[], Hashable],
    ) -> None:
        self.trail = Trail()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when nothing is left to happen, or the state is known."""
        self._choices = choices
        self._order = list(order)
        self._more_steps = more_steps
        self._world = world
        self._fork = fork
        self._waiting: dict[int, Step] = {}
        self._made = 0
        self._told: dict[str, int] = {}
        self._running = ""
        self._turns = 0
        """Of the loop, since the last step."""

    async def step(
        self, process: str, what: str, told: Hashable = None, *, or_else: str = "", of: str = ""
    ) -> bool:
        """Wait for the director to choose this step; False where it chose ``or_else``, a fault,
        instead.

        ``of``: whose fault it is, where that is not the process that the step is of.
        """
        released: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        numbers = (self._made, self._made + 1)
        self._made += 2

        def take(as_asked: bool) -> None:
            for number in numbers:
                self._waiting.pop(number, None)
            if not released.done():
                released.set_result(as_asked)

        self._waiting[numbers[0]] = Step(THREAD.get(), process, what, partial(take, True), told)
        if or_else:
            self._waiting[numbers[1]] = Step(
                FAULT, of or process, or_else, partial(take, False), told
            )
        try:
            return await released
        finally:
            take(False)

    def turn(self, idle: bool) -> bool:
        """The loop's turn. True: something was done, and no time passes."""
        if self.ended.done():
            return False
        self._turns += 1
        if not idle:
            return self._interrupt()
        steps = self._in_order([*self._waiting.values(), *self._more_steps()])
        if not steps:
            self._end()
            return True
        if self._decide(2 * len(steps) - 1 if len(steps) > 1 else 1):
            self._follow(steps)
        return True

    def _end(self) -> None:
        """Nothing is left to happen. From here on it does not matter who came first."""
        if self._fork is not None:
            self.trail.merged = self._fork.known.met(
                (frozenset(self._told.items()), self._world()), 0
            )
        self.ended.set_result(None)

    def _interrupt(self) -> bool:
        """In the middle of what a step has set off: go on, or let the same process be told
        something more.
        """
        steps = self._in_order([*self._waiting.values(), *self._more_steps()])
        steps = [step for step in steps if step.process == self._running and step.thread != FAULT]
        if not (self._running and steps and self._decide(1 + len(steps))):
            return False
        chosen = self.trail.chosen[-1]
        if chosen:
            self._take(steps[chosen - 1], "in between, ")
        return bool(chosen)

    def _decide(self, choices: int) -> bool:
        """Make the next choice; False where the run ends instead."""
        position, chosen = len(self.trail.chosen), 0
        if position >= STEPS_MAX:
            raise EndlessRun(f"more than {STEPS_MAX} steps: {self.trail.steps[-5:]}")
        if position < len(self._choices):
            chosen = self._choices[position]
        elif self._fork is not None and choices > 1:
            if self._fork.known.met(self._state(), self._fork.left):
                self.trail.merged = True
                self.ended.set_result(None)
                return False
            chosen = self._fork.choose(choices)
        self.trail.chosen.append(chosen)
        return True

    def _follow(self, steps: list[Step]) -> None:
        """Take the chosen step: one to ``n - 1`` make its thread the first, more put the first
        thread behind all.
        """
        chosen = self.trail.chosen[-1]
        step = steps[chosen] if chosen < len(steps) else steps[chosen - len(steps) + 1]
        if chosen >= len(steps):
            self._put(steps[0].thread, len(self._order))
        elif chosen:
            self._put(step.thread, 0)
        self._take(step)

    def _put(self, thread: str, position: int) -> None:
        if thread == FAULT:
            return
        if thread in self._order:
            self._order.remove(thread)
        self._order.insert(position, thread)

    def _take(self, step: Step, how: str = "") -> None:
        self.trail.steps.append(f"{how}{step}" if step.process else step.what)
        if step.process:
            at = self._turns if how else 0
            self._told[step.process] = hash(
                (self._told.get(step.process, 0), at, step.what, step.told)
            )
        self._running, self._turns = step.process, 0
        step.take()

    def _in_order(self, steps: list[Step]) -> list[Step]:
        rank = {thread: number for number, thread in enumerate(self._order)}
        last = {FAULT: math.inf}
        return sorted(
            steps, key=lambda step: last.get(step.thread, rank.get(step.thread, len(rank)))
        )

    def _state(self) -> Hashable:
        waiting = frozenset((s.process, s.what, s.told, s.thread) for s in self._waiting.values())
        told = frozenset(self._told.items())
        return hash((waiting, told, self._world(), tuple(self._order), self._running, self._turns))


def run_explored(main: Callable[[ExploredLoop], Coroutine[Any, Any, T]]) -> T:
    """Run ``main(loop)`` on an ``ExploredLoop``, to its end."""
    loop = ExploredLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.director = None
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
