"""``Recorder``: writes what a source reports into files, until it is stopped
(docs/record-replay.md).

.. code-block:: text

    snapshot --> changes after N, again and again --(file is full)--> snapshot in the next file
        ^             |
        '- {"gap"} ---'  changes are lost: too slow, another process, or no answer for a while

There are two sources. ``ReplicaSource`` asks a replica for its log: objects, reservations and
decisions. ``ClusterSource`` watches a cluster, so that any scheduler can be recorded, Knative's
too. It has objects only: the published placements show what was decided. Both hold only a ring of
recent lines.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from extender import __version__
from extender.cli.recordings.recording_file import RecordingFile, line_of, read_lines
from extender.cli.terminal.replica import Replica, ReplicaError
from extender.service.http.recording_buffer import Lost, RecordingBuffer, as_lines
from extender.service.watching.caches import Caches
from extender.whatif.recording.entries import Entry, Gap, Header, Synced

log: Final = logging.getLogger(__name__)

WAIT_S: Final = 5.0
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 30.0
PATH: Final = "/v1/decisions"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a source was recorded. ``seq`` is valid only within the same journal."""

    journal: str = ""
    seq: int = 0


class Source(Protocol):
    """Used by one recorder at a time. Both methods raise ReplicaError if the source does not
    answer.
    """

    def snapshot(self) -> AsyncIterator[bytes]:
        """Yield the lines of a snapshot, from the header to the position after it."""
        ...

    async def after(self, position: Position, wait_s: float) -> tuple[list[bytes], Position]:
        """The lines after a position, perhaps none, and the next position. Raises Lost."""
        ...


class ReplicaSource:
    """The log of a replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def snapshot(self) -> AsyncIterator[bytes]:
        """See Source."""
        return self._replica.lines(PATH)

    async def after(self, position: Position, wait_s: float) -> tuple[list[bytes], Position]:
        """See Source."""
        asked = {"since": str(position.seq), "journal": position.journal, "wait": f"{wait_s:g}"}
        try:
            lines = [
                line async for line in self._replica.lines(PATH, asked, timeout_s=wait_s + 30.0)
            ]
        except ReplicaError as error:
            if error.status == 410:
                raise Lost(str(error)) from error
            raise
        end = line_of(lines.pop(), "the answer's last line") if lines else None
        if not isinstance(end, Synced):
            raise ReplicaError(f"{self._replica.url} does not say how far its answer goes")
        return lines, Position(position.journal, end.seq)


class ClusterSource:
    """A watched cluster. ``caches`` must be filled. ``now``: epoch seconds."""

    def __init__(self, caches: Caches, *, now: Callable[[], float]) -> None:
        self._ring = RecordingBuffer(
            caches.state, now=now, header=lambda: Header("cluster", 0.0, __version__, "cluster")
        )

    def snapshot(self) -> AsyncIterator[bytes]:
        """See Source."""
        self._ring.begin()
        return self._ring.snapshot()

    async def after(self, position: Position, wait_s: float) -> tuple[list[bytes], Position]:
        """See Source."""
        lines, seq = await self._ring.after(position.seq, wait_s)
        return lines, Position(position.journal, seq)


class Recorder:
    """Writes what ``source`` reports into ``file``, until cancelled. ``position``: where the file
    ends, if an old file is continued.
    """

    def __init__(
        self,
        source: Source,
        file: RecordingFile,
        *,
        position: Position | None = None,
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._file = file
        self._on_written = on_written
        self.position = position
        self.header: Header | None = None
        """The header of the newest snapshot."""
        self.gaps = 0
        self._failures = 0

    async def run(self) -> None:
        """Record until cancelled. Raises ReplicaError if the first snapshot fails, OSError for the
        file.
        """
        try:
            if not self._file.is_open:
                await self._snapshot(anew=True)
            elif self.position is None:
                await self._gap("the recording was ended, and goes on")
            while True:
                try:
                    await self._step()
                    self._failures = 0
                except Lost as error:
                    await self._gap(str(error))
                except ReplicaError as error:
                    await self._wait_out(error)
                self._file.flush()
                self._on_written()
        finally:
            self._file.close()

    async def _step(self) -> None:
        if self.position is None:
            await self._snapshot()
            return
        lines, self.position = await self._source.after(self.position, WAIT_S)
        for some in lines:
            self._file.write(some)
        if self._file.full:
            await self._next_file(self.position)

    async def _next_file(self, before: Position) -> None:
        """Begin another file with a snapshot. Changes before that snapshot still go into the old
        file, so nothing is lost.
        """
        await self._snapshot(anew=True)
        begun = self.position
        try:
            while begun is not None and before.journal == begun.journal and before.seq < begun.seq:
                lines, before = await self._source.after(before, 0.0)
                kept = [raw for some in lines for raw in some.splitlines(keepends=True)]
                self._file.write_before(b"".join(raw for raw in kept if _seq_of(raw) <= begun.seq))
        except Lost as error:
            self.gaps += 1
            log.warning("the end of the file before is missing: %s", error)
            self._file.write_before(as_lines([Gap(str(error)[:300])]))
        finally:
            self._file.finish_before()

    async def _snapshot(self, *, anew: bool = False) -> None:
        """Write a snapshot; with ``anew``, into another file. That file is begun when the first
        line arrives, so without an answer there is no file.
        """
        self.position = None
        header: Header | None = None
        end: Synced | None = None
        async for lines in self._source.snapshot():
            if anew:
                self._file.anew()
                anew = False
            for raw in lines.splitlines(keepends=True):
                # The lines of a snapshot are read too: a recording must be playable.
                line = line_of(raw, "a line of the snapshot")
                header = line if isinstance(line, Header) else header
                end = line if isinstance(line, Synced) else None
            self._file.write(lines)
        if header is None or end is None:
            raise ReplicaError("the snapshot is not whole")
        self.header = header
        self.position = Position(header.journal, end.seq)

    async def _gap(self, why: str) -> None:
        self.gaps += 1
        log.warning("something is missing in the recording: %s", why)
        self._file.write(as_lines([Gap(why[:300])]))
        self.position = None

    async def _wait_out(self, error: ReplicaError) -> None:
        delay_s = min(RETRY_S * 2 ** min(self._failures, 10), RETRY_MAX_S)
        self._failures += 1
        log.warning("trying again in %g s: %s", delay_s, error)
        await asyncio.sleep(delay_s)


def _seq_of(raw: bytes) -> int:
    line = line_of(raw, "a line of the log")
    return line.seq if isinstance(line, Entry) else 0


def position_of(file: RecordingFile) -> Position | None:
    """Where a file ends, to continue from; None if that is not known. Raises InvalidObject,
    OSError.
    """
    journal, seq = "", -1
    for _, line in read_lines(file.path):
        match line:
            case Header():
                journal, seq = line.journal, -1
            case Synced() | Entry():
                seq = line.seq
            case Gap():
                seq = -1
            case None:
                pass
    return Position(journal, seq) if journal and seq >= 0 else None
