"""How assignments arrive: the stream of any replica, and the file while no replica answers."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Protocol

from vreplica_adapter.fields import DOCUMENT_BYTES_MAX, WireError
from vreplica_adapter.service import Service, ServiceError, told_of
from vreplica_adapter.timing import Backoff, Timing


class Take(Protocol):
    """Takes a document. ``news``: the service has sent it just now. Raises WireError."""

    def __call__(self, document: bytes, /, *, news: bool) -> None:  # noqa: D102 (the class says it)
        ...


class Listener:
    """``listen`` and ``read`` are two tasks that never end by themselves. Both pass documents to
    ``take``, which decides which of them is newer.
    """

    def __init__(
        self,
        service: Service,
        file: Path,
        take: Take,
        report: Callable[[str], None],
        timing: Timing,
        at_most_s: Callable[[], float],
    ) -> None:
        """``at_most_s``: the limit of waits after failures, beside the one of ``timing``."""
        self._service, self._file, self._take = service, file, take
        self._report, self._timing, self._at_most_s = report, timing, at_most_s
        self._reconnect = asyncio.Event()
        self._heard = False
        """A replica has sent an assignment on the stream that is open."""
        self._refused = asyncio.Event()
        """An attempt has failed."""

    def reconnect(self) -> None:
        """End the stream that is open, and open one at another replica."""
        self._reconnect.set()

    async def listen(self) -> None:
        """Follow streams, one after the other."""
        clock = asyncio.get_running_loop().time
        backoff = Backoff(self._timing.retry_s, self._timing.retry_max_s)
        while True:
            began, retry_after_s = clock(), 0.0
            try:
                await self._follow_until_reconnect()
            except Exception as error:  # noqa: BLE001 (whatever breaks here, what is served goes on)
                self._refused.set()
                retry_after_s = error.retry_after_s if isinstance(error, ServiceError) else 0.0
                self._report(f"no assignments: {told_of(error)}")
            self._heard = False
            self._service.avoid()
            if clock() - began > self._timing.retry_max_s:
                backoff.reset()
            await asyncio.sleep(backoff.next_s(retry_after_s, self._at_most_s()))

    async def _follow_until_reconnect(self) -> None:
        """Raises ServiceError and WireError."""
        self._reconnect.clear()
        follow = asyncio.create_task(self._follow(), name="follow")
        wanted = asyncio.create_task(self._reconnect.wait(), name="reconnect")
        try:
            await asyncio.wait({follow, wanted}, return_when=asyncio.FIRST_COMPLETED)
            if follow.done():
                await follow
        finally:
            for task in (follow, wanted):
                task.cancel()
            await asyncio.wait({follow, wanted})

    async def _follow(self) -> None:
        async with aclosing(self._service.lines("/v1/assignment")) as lines:
            async for line in lines:
                self._take(line, news=True)
                self._heard = True

    async def read(self) -> None:
        """Look at the file while no replica answers, and take what is new in it."""
        last = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.file_after_s):
                await self._refused.wait()
        while True:
            document = last if self._heard else self._document_in_file()
            if document != last:
                last = document
                try:
                    self._take(document, news=False)
                except WireError as error:
                    self._report(f"{self._file} cannot be read: {error}")
            await asyncio.sleep(self._timing.poll_s)

    def _document_in_file(self) -> bytes:
        """Empty if there is no file, or no assignment in it yet."""
        try:
            with self._file.open("rb") as content:
                return content.read(DOCUMENT_BYTES_MAX + 1).strip()
        except OSError:
            return b""
