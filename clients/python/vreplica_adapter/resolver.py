"""``Resolver``: which pods serve a vpod, for those that send work to them."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, Self

from vreplica_adapter.fields import WireError
from vreplica_adapter.service import NOT_FOUND, Access, Service, ServiceError
from vreplica_adapter.timing import Backoff, Timing
from vreplica_adapter.wire import Placements, checked_key, read_placements

VPODS_MAX: Final = 200
"""Watches of one resolver. Each is a connection, and the service allows a caller so many."""

_log: Final = logging.getLogger("vreplica_adapter")


class Unresolved(Exception):
    """Nothing is known about the vpod: no replica has answered yet, or the service refuses."""


class Resolver:
    """Where vpods are served. Use it as an async context manager.

    The first question about a vpod opens a watch. Later ones are answered from what the watch has
    said last, also while the service is down. ``vpods_max`` are watched at a time: beyond that, the
    one that nobody has asked about for longest is forgotten. The other arguments are those of
    ``Adapter``.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        token_file: Path | str | None = None,
        ca_file: Path | str | None = None,
        vpods_max: int = VPODS_MAX,
        timing: Timing | None = None,
    ) -> None:
        """Raises ValueError as ``Adapter`` does."""
        if vpods_max < 1:
            raise ValueError("vpods_max must be at least 1")
        self._timing = timing or Timing()
        access = Access(
            urls, Path(token_file) if token_file else None, Path(ca_file) if ca_file else None
        )
        self._service = Service(
            access, request_s=self._timing.request_s, idle_s=self._timing.idle_s
        )
        self._vpods_max = vpods_max
        self._watches: OrderedDict[str, _Watch] = OrderedDict()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all watches."""
        tasks = [watch.task for watch in self._watches.values()]
        self._watches.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._service.close()

    async def resolve(self, vpod: str) -> Placements:
        """Return where a vpod (``namespace/name``) is served. It waits only if nothing has been
        heard about the vpod yet, one request's limit at most. Raises Unresolved, and WireError for
        what is no vpod's key.
        """
        watch = self._watches.get(vpod)
        if watch is None:
            watch = self._watches[vpod] = _Watch(checked_key(vpod), self._service, self._timing)
            while len(self._watches) > self._vpods_max:
                self._watches.popitem(last=False)[1].task.cancel()
        self._watches.move_to_end(vpod)
        if watch.placements is None:
            try:
                async with asyncio.timeout(self._timing.request_s):
                    await watch.answered.wait()
            except TimeoutError:
                raise Unresolved(f"no replica says where {vpod} is: {watch.problem}") from None
        if watch.placements is None:
            raise Unresolved(f"{vpod}: {watch.problem}")
        return watch.placements


class _Watch:
    """What is known about one vpod."""

    def __init__(self, vpod: str, service: Service, timing: Timing) -> None:
        self.placements: Placements | None = None
        self.problem = "none has answered"
        """Why ``placements`` is None, or is not renewed."""
        self.answered = asyncio.Event()
        self._vpod, self._service, self._timing = vpod, service, timing
        self.task = asyncio.create_task(self._run(), name=f"resolve {vpod}")

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        backoff = Backoff(self._timing.retry_s, self._timing.retry_max_s)
        while True:
            began, asked_s = clock(), 0.0
            try:
                await self._follow()
            except ServiceError as error:
                self._say(str(error))
                asked_s = error.retry_after_s
                if error.status == NOT_FOUND:
                    self.placements = None
                    self.answered.set()
            except Exception as error:  # noqa: BLE001 - nobody would notice a task that has ended
                self._say(str(error) if isinstance(error, WireError) else repr(error)[:500])
            if clock() - began > self._timing.retry_max_s:
                backoff.reset()
            await asyncio.sleep(backoff.next_s(asked_s))

    async def _follow(self) -> None:
        """Raises ServiceError and WireError."""
        name, _, kind = self._vpod.partition("@")
        query = {"kind": kind} if kind else {}
        async with aclosing(self._service.lines(f"/v1/placements/{name}", query)) as lines:
            async for line in lines:
                placements = read_placements(line)
                known = self.placements
                if known is None or placements.generation >= known.generation:
                    self.placements = placements
                self.answered.set()

    def _say(self, problem: str) -> None:
        self.problem = problem
        _log.warning("%s: not resolved anew: %s", self._vpod, problem)
