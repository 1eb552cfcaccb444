"""Every suspension of a process's tasks, as it happens: where in the service's code it waits, and
what for.

``Watch`` wraps the coroutine of every task that a process creates, through the event loop's task
factory, and tells each time that it yields to the loop. Nothing is listed by hand: a place is read
off the suspended frames.

A process is what runs in a context where the simulation's ``PROCESS`` is set.
"""

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import Context
from dataclasses import dataclass
from functools import lru_cache, partial
from inspect import isasyncgen
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from extender.lab.clock import PROCESS

ROOT: Final = Path(__file__).parents[2]
WATCHED: Final = ("extender/service/", "extender/kube/")
"""Whose await expressions are places."""
FRAMES: Final = ("cr_frame", "gi_frame", "ag_frame")
AWAITED: Final = ("cr_await", "gi_yieldfrom", "ag_await")
STEPS: Final = frozenset({"async_generator_asend", "async_generator_athrow"})
"""What is awaited of an asynchronous generator: objects that do not tell which generator, but to
the collector.
"""
NETWORK: Final = "FaultyApi."
"""Whose frames tell how far a call has come."""


@dataclass(frozen=True, order=True)
class Expression:
    """An await expression, ``async with`` or ``async for``: where its text begins and ends."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, order=True)
class Place:
    """Where a task waits: its own await expressions and those of the task that made it, outermost
    first.

    ``phase``: how far an API call has come (on its way, being served, on its way back), "" for
    other waits.
    """

    path: tuple[Expression, ...]
    phase: str = ""

    def __str__(self) -> str:
        phase = f" ({self.phase})" if self.phase else ""
        return " > ".join(str(expression) for expression in self.path) + phase


@lru_cache(maxsize=100_000)
def _expression(code: CodeType, instruction: int) -> Expression | None:
    """The expression that an instruction belongs to; None where it is none of ours."""
    path = Path(code.co_filename)
    if ROOT not in path.parents:
        return None
    file = path.relative_to(ROOT).as_posix()
    if not file.startswith(WATCHED):
        return None
    line, end_line, column, end_column = list(code.co_positions())[instruction // 2]
    return Expression(file, line or 0, column or 0, end_line or 0, end_column or 0)


def _suspended(awaitable: Any) -> Iterator[FrameType]:
    """Frames of a suspended coroutine, outermost first, as far as Python shows them."""
    while awaitable is not None:
        if type(awaitable).__name__ in STEPS:
            awaitable = next(filter(isasyncgen, gc.get_referents(awaitable)), None)
        frame = next(
            (f for name in FRAMES if (f := getattr(awaitable, name, None)) is not None), None
        )
        if frame is None:
            return
        yield frame
        awaitable = next(
            (a for name in AWAITED if (a := getattr(awaitable, name, None)) is not None), None
        )


def _running() -> tuple[Expression, ...]:
    """The watched expressions on the stack right now: what makes a task."""
    found: list[Expression] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if (expression := _expression(frame.f_code, frame.f_lasti)) is not None:
            found.append(expression)
        frame = frame.f_back
    return tuple(reversed(found))


class _Watched:
    """Awaits a coroutine and tells each of its suspensions."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], told: Callable[[Place], None]) -> None:
        self._coroutine = coroutine
        self._told = told
        self._made_by = _running()

    def __await__(self) -> Generator[Any, Any, Any]:
        sent: object = None
        error: BaseException | None = None
        while True:
            try:
                awaited = (
                    self._coroutine.send(sent) if error is None else self._coroutine.throw(error)
                )
            except StopIteration as stop:
                return stop.value
            place = self._place()
            if place.path:
                self._told(place)
            sent, error = None, None
            try:
                sent = yield awaited
            except BaseException as thrown:  # noqa: BLE001 - whatever it is, it is the coroutine's
                error = thrown

    def _place(self) -> Place:
        path, phase = list(self._made_by), ""
        for frame in _suspended(self._coroutine):
            if (expression := _expression(frame.f_code, frame.f_lasti)) is not None:
                path.append(expression)
            if frame.f_code.co_qualname.startswith(NETWORK):
                phase = frame.f_code.co_qualname.removeprefix(NETWORK)
        return Place(tuple(path), phase)


class Watch:
    """Tells ``told(process, place)`` of each suspension of each task of each process, once it is
    installed.
    """

    def __init__(self, told: Callable[[str, Place], None]) -> None:
        self._told = told

    def install(self) -> None:
        """From now on tasks of the running loop are made by us."""
        asyncio.get_running_loop().set_task_factory(self._make)

    def _make(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Any,
        *,
        context: Context | None = None,
        **options: Any,
    ) -> "asyncio.Task[Any]":
        process = PROCESS.get() if context is None else context.get(PROCESS, "")
        if process and asyncio.iscoroutine(coroutine):
            coroutine = _run(_Watched(coroutine, partial(self._told, process)))
        return asyncio.Task(coroutine, loop=loop, context=context, **options)


def _run(watched: _Watched) -> Coroutine[Any, Any, Any]:
    async def run() -> Any:
        return await watched

    return run()
