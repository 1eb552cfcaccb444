"""``Adapter``: the edge around ``Machine``. It reads the clock, calls back, and ends in time.

Four tasks run while an adapter is open, and none of them waits for a callback::

    Listener.listen   the stream of assignments, from any replica
    Listener.read     the downward-API file, while no replica answers
    Speaker.speak     acknowledgements
    _watch            what is due: deadlines, leases, repetitions

Each feeds the machine. Then ``_act`` does what the machine wants done.
"""

import asyncio
import logging
import math
import os
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Self

from vreplica_adapter.callbacks import Callback, Callbacks, checked
from vreplica_adapter.listening import Listener
from vreplica_adapter.machine import Machine, Reconnect
from vreplica_adapter.progress import Cancel, Limits, Outcome, Problem, Progress, Start, Step
from vreplica_adapter.service import Access, Service
from vreplica_adapter.share import Share
from vreplica_adapter.speaking import Speaker
from vreplica_adapter.timing import Timing, running_and_suspended_s
from vreplica_adapter.wire import read_assignment

FOLDER: Final = Path("/var/run/vreplica")
"""Where the pod's template mounts the token, the CA and the assignment, unless an argument or
``$VREPLICA_DIR`` says otherwise.
"""
PROBLEMS_KEPT: Final = 100
LAST_WORDS_S: Final = 2.0
"""For the last acknowledgement, if the grace period has as much left."""

_log: Final = logging.getLogger("vreplica_adapter")


class Adapter:
    """What vreplica-scheduler places on this pod, as four callbacks. Use it as an async context
    manager.

    Each callback is an ``async`` function with a ``Share``, and returns when the share is where the
    name says. Only ``on_serve`` is needed. README.md says what each state means. Callbacks of
    different shares run side by side, and those of one share one after the other.

    ``urls``: the replicas, by default ``$VREPLICA_URLS``, separated by commas. ``token_file``,
    ``ca_file``, ``assignment_file``: by default ``token``, ``ca.crt`` and ``assignment`` in
    ``$VREPLICA_DIR``, or else ``/var/run/vreplica``, as far as they are there. ``lease_s``: the
    pool's ``leaseSeconds``, for a service whose assignments do not say it. ``grace_s``: from
    SIGTERM to the end, less than the pod's ``terminationGracePeriodSeconds``. ``handle_sigterm``:
    False if the program calls ``stop`` itself.
    """

    def __init__(  # noqa: PLR0913 (keywords)
        self,
        *,
        on_serve: Callback,
        on_prepare: Callback | None = None,
        on_drain: Callback | None = None,
        on_stop: Callback | None = None,
        urls: Sequence[str] | None = None,
        token_file: Path | str | None = None,
        ca_file: Path | str | None = None,
        assignment_file: Path | str | None = None,
        lease_s: float | None = None,
        grace_s: float = 25.0,
        handle_sigterm: bool = True,
        limits: Limits | None = None,
        timing: Timing | None = None,
        clock: Callable[[], float] = running_and_suspended_s,
    ) -> None:
        """Raises ValueError without URLs, and for those that would show the token to anybody.
        Raises TypeError for a callback that is no ``async`` function.
        """
        if (lease_s is not None and not 0 < lease_s < math.inf) or not 0 <= grace_s < math.inf:
            raise ValueError("lease_s must be a number above 0, and grace_s one from 0 on")
        given = {Step.PREPARE: on_prepare, Step.DRAIN: on_drain, Step.STOP: on_stop}
        callbacks = {Step.SERVE: checked(Step.SERVE, on_serve)} | {
            step: checked(step, callback)
            for step, callback in given.items()
            if callback is not None
        }
        access = Access(
            urls if urls is not None else _urls_of_environment(),
            _mounted(token_file, "token"),
            _mounted(ca_file, "ca.crt"),
        )
        self._limits, self._grace_s, self._clock = limits or Limits(), grace_s, clock
        self._handle_sigterm = handle_sigterm
        self._machine = Machine(limits=self._limits, lease_s=lease_s)
        self._callbacks = Callbacks(callbacks, self._finished)
        timing = timing or Timing()
        self._service = Service(access, request_s=timing.request_s, idle_s=timing.idle_s)
        file = Path(assignment_file or _folder() / "assignment")
        at_most_s = partial(self._machine.part_of_lease, 6)
        self._listener = Listener(self._service, file, self._take, self._report, timing, at_most_s)
        self._speaker = Speaker(
            self._service, self._machine, self._act, self._report, timing, clock
        )
        self._shares: dict[Progress, Share] = {}
        self.problems: deque[Problem] = deque(maxlen=PROBLEMS_KEPT)
        """What went wrong last: failed callbacks, lost leases, unreadable documents. Each is logged
        as a warning, too.
        """
        self._acted = asyncio.Event()
        self._moved = asyncio.Event()
        self._left = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        if self._tasks:
            raise RuntimeError("an Adapter is opened once")
        for work in (self._listener.listen, self._listener.read, self._speaker.speak, self._watch):
            self._tasks.append(asyncio.create_task(self._kept(work()), name=work.__name__))
        if self._handle_sigterm:
            try:
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop)
            except (NotImplementedError, RuntimeError, ValueError):
                self._handle_sigterm = False
                self._report("SIGTERM can be handled in the main thread only: call stop() instead")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let go of everything as after SIGTERM, within ``grace_s``."""
        self.stop()
        assert self._ending is not None
        try:
            await asyncio.shield(self._ending)
        finally:
            if self._handle_sigterm:
                asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
            for task in (*self._tasks, self._ending):
                task.cancel()
            try:
                await asyncio.wait({*self._tasks, self._ending})
                for name in await self._callbacks.close(self._limits.cancel_s):
                    self._report(f"{name} goes on although it was cancelled")
            finally:  # also if it is cancelled once more
                await self._service.close()

    def stop(self) -> None:
        """Let go of everything: what SIGTERM does. ``stopped`` returns when it is done."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="end")

    async def stopped(self) -> None:
        """Wait for SIGTERM or ``stop``, and until everything has been let go. Raises what has
        broken the adapter itself, which is a defect of the library.
        """
        await self._left.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def shares(self) -> Mapping[str, Share]:
        """The shares that are prepared, served or drained now, by key."""
        return {progress.key: share for progress, share in self._shares.items()}

    @property
    def generation(self) -> int:
        """Of the newest assignment; -1 before the first one."""
        return self._machine.generation

    def report_load(self, load: Mapping[str, float]) -> None:
        """Report the load of shares by key, in the pool's own measure. It goes out with the next
        acknowledgement, within 10 s. A share that is not this pod's by then is left out. Raises
        ValueError for what is no number from 0 on, and for what is no share's key.
        """
        self._speaker.report_load(load)

    def _take(self, document: bytes, *, news: bool) -> None:
        """Raises WireError."""
        assignment = read_assignment(document)
        self._machine.assign(assignment, self._clock(), datetime.now(UTC), news=news)
        if news and self._machine.lease_s is not None:
            self._speaker.again()
        self._act()

    def _finished(self, progress: Progress, outcome: Outcome, why: str) -> None:
        self._machine.finished(progress, outcome, why, self._clock())
        if progress.over:
            self._shares.pop(progress, None)
        self._act()

    def _act(self) -> None:
        """Do what the machine wants done, and wake who waits for it."""
        for action in self._machine.actions():
            match action:
                case Start():
                    progress = action.progress
                    new = Share(progress, self._may_act, self._clock)
                    share = self._shares.setdefault(progress, new)
                    self._callbacks.start(progress, action.step, share)
                case Cancel():
                    self._callbacks.cancel(action.progress)
                case Problem():
                    self._report(action.text, action.key)
                case Reconnect():
                    self._listener.reconnect()
        self._speaker.changed()
        self._acted.set()
        self._moved.set()

    def _may_act(self, progress: Progress, epoch: int) -> bool:
        return self._machine.may_act(progress, epoch, self._clock())

    def _report(self, text: str, key: str = "") -> None:
        self.problems.append(Problem(key, text))
        _log.warning("%s%s", f"{key}: " if key else "", text)

    async def _kept(self, work: Coroutine[object, object, None]) -> None:
        """Run one of the four. If it breaks, ``stopped`` says so instead of waiting for ever."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 (told by stopped)
            _log.exception("the adapter itself has failed, and lets go of everything")
            self._failure = error
            self.stop()

    async def _watch(self) -> None:
        while True:
            self._acted.clear()
            wait_s = self._machine.due_at() - self._clock()
            if wait_s > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s if wait_s < math.inf else None):
                        await self._acted.wait()
            else:
                self._machine.tick(self._clock())
                self._act()
                await asyncio.sleep(0)

    async def _end(self) -> None:
        """Let go of everything within the grace period, and say so."""
        now = self._clock()
        stop_s = min(self._limits.stop_s, self._grace_s / 4)
        self._machine.leave(now, now + self._grace_s - stop_s)
        self._act()
        try:
            async with asyncio.timeout(self._grace_s):
                await self._until(lambda: self._machine.left)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LAST_WORDS_S):
                        await self._until(
                            lambda: not (self._machine.unsaid() or self._machine.is_behind)
                        )
        except TimeoutError:
            names = ", ".join(list(self._machine.progress)[:10])
            self._report(f"the grace period is over, and these have not stopped: {names}")
        finally:
            self._left.set()

    async def _until(self, happens: Callable[[], bool]) -> None:
        while not happens():
            self._moved.clear()
            await self._moved.wait()


def _urls_of_environment() -> list[str]:
    return [url.strip() for url in os.environ.get("VREPLICA_URLS", "").split(",") if url.strip()]


def _mounted(given: Path | str | None, name: str) -> Path | None:
    """Return the file that is given, or the one that is mounted if there is one."""
    if given is not None:
        return Path(given)
    file = _folder() / name
    return file if file.exists() else None


def _folder() -> Path:
    return Path(os.environ.get("VREPLICA_DIR") or FOLDER)
