"""Runs an author's callbacks, each as a task: at most one a share, so at most as many as shares."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from vreplica_adapter.progress import Outcome, Progress, Step
from vreplica_adapter.share import Share

Callback: TypeAlias = Callable[[Share], Awaitable[None]]
Finished: TypeAlias = Callable[[Progress, Outcome, str], None]

_WHY_CHARS_MAX = 500


def checked(step: Step, callback: Callback) -> Callback:
    """Return the callback. Raises TypeError if it is no async function: it would fail each time."""
    function: object = callback
    while isinstance(function, partial):
        function = function.func
    call = getattr(type(function), "__call__", None)  # noqa: B004 (not the one of a class itself)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
        return callback
    raise TypeError(f"{step} must be an async function, not {callback!r:.200}")


class Callbacks:
    """``finished`` is called once for each ``start``, after the callback has ended."""

    def __init__(self, callbacks: Mapping[Step, Callback], finished: Finished) -> None:
        self._callbacks = callbacks
        self._finished = finished
        self._tasks: dict[Progress, asyncio.Task[None]] = {}

    def start(self, progress: Progress, step: Step, share: Share) -> None:
        """Call ``step`` for a share that has no callback running."""
        task = asyncio.create_task(self._call(step, share), name=f"{step} {progress.key}")
        self._tasks[progress] = task
        task.add_done_callback(lambda ended: self._ended(progress, ended))

    def cancel(self, progress: Progress) -> None:
        """Cancel the callback that runs for a share."""
        self._tasks[progress].cancel()

    async def close(self, within_s: float) -> list[str]:
        """Cancel all that run, and return the names of those that have not ended in time."""
        clock = asyncio.get_running_loop().time
        until = clock() + within_s
        tasks = set(self._tasks.values())
        for task in tasks:
            if not task.cancelling():  # else it cleans up already, and would be interrupted
                task.cancel()
        while tasks and clock() < until:
            # The end of one callback may begin another: on_stop follows the one that was cancelled.
            await asyncio.wait(tasks, timeout=until - clock(), return_when=asyncio.FIRST_COMPLETED)
            tasks = set(self._tasks.values())
        for task in tasks:
            task.cancel()
        return sorted(task.get_name() for task in tasks)

    async def _call(self, step: Step, share: Share) -> None:
        callback = self._callbacks.get(step)
        if callback is not None:
            await callback(share)

    def _ended(self, progress: Progress, task: asyncio.Task[None]) -> None:
        del self._tasks[progress]
        if task.cancelled():
            self._finished(progress, Outcome.CANCELLED, "it was cancelled")
        elif (error := task.exception()) is not None:
            self._finished(progress, Outcome.FAILED, repr(error)[:_WHY_CHARS_MAX])
        else:
            self._finished(progress, Outcome.DONE, "")
