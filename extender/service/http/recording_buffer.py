"""``RecordingBuffer``: a ring of the changes and decisions of a state, kept while somebody records.

It holds only references, because objects never change. They become lines when a client fetches
them, some at a time, so that other tasks run in between. A snapshot too is a list of references,
taken at one moment.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

import orjson

from extender.engine.state.cluster_state import ClusterState
from extender.model.errors import VReplicaError
from extender.whatif.recording.entries import Entry, Header, Line, Synced
from extender.whatif.recording.entry_writer import EntryWriter, MakeEntry, snapshot_of
from extender.whatif.recording.lines import line_to_json

ENTRIES_MAX: Final = 50_000
"""In the ring. Beyond this the oldest are dropped, and clients that have not fetched them get an
error.
"""
FETCHED_MAX: Final = 5_000
"""Fetched at once."""
SLICE_ENTRIES: Final = 100
"""Entries made into lines without a pause, in some 3 ms."""


class Lost(VReplicaError):
    """The requested entries are no longer kept: begin anew, with a snapshot."""


class RecordingBuffer:
    """Records from ``begin`` to ``end``. ``now``: epoch seconds. ``header``: a snapshot's header,
    without time and journal.
    """

    def __init__(
        self, state: ClusterState, *, now: Callable[[], float], header: Callable[[], Header]
    ) -> None:
        self._state = state
        self._now = now
        self._header = header
        self._kept: deque[tuple[float, int, MakeEntry]] = deque(maxlen=ENTRIES_MAX)
        self._seq = 0
        self._begun = 0
        self._more = asyncio.Event()
        self.writer = EntryWriter(self._keep)
        self.journal = ""
        """Name of the present recording; "" if there is none."""

    def begin(self) -> None:
        """Begin to record, unless that goes on already."""
        if not self.journal:
            self._begun += 1
            self.journal = f"{self._header().identity}-{self._begun}"
            self._state.observed_by(self.writer)

    def end(self) -> None:
        """End the recording and forget it."""
        if self.journal:
            self._state.observed_by(None)
        self.journal = ""
        self._kept.clear()

    def _keep(self, entry: MakeEntry) -> None:
        if self.journal:
            self._seq += 1
            self._kept.append((self._now(), self._seq, entry))
            self._more.set()

    async def snapshot(self) -> AsyncIterator[bytes]:
        """Yield all that is known now as lines, some at a time. The last line has the number to
        continue from.
        """
        at, seq = self._now(), self._seq
        header = self._header()._replace(at=at, journal=self.journal)
        known = list(snapshot_of(self._state))
        yield as_lines([header])
        for start in range(0, len(known), SLICE_ENTRIES):
            yield as_lines(Entry(at, seq, what) for what in known[start : start + SLICE_ENTRIES])
            await asyncio.sleep(0)
        yield as_lines([Synced(seq)])

    async def after(self, since: int, wait_s: float = 0.0) -> tuple[list[bytes], int]:
        """Return lines of what came after ``since``, and the number of the last one. Waits for the
        first. Raises Lost.
        """
        if wait_s > 0:
            await self._grow(since, wait_s)
        oldest = self._kept[0][1] if self._kept else self._seq + 1
        if since > self._seq or since + 1 < oldest:
            raise Lost(f"what comes after {since} is not kept any more")
        first = since + 1 - oldest
        wanted = [self._kept[i] for i in range(first, min(len(self._kept), first + FETCHED_MAX))]
        lines = []
        for start in range(0, len(wanted), SLICE_ENTRIES):
            made = (entry(at, seq) for at, seq, entry in wanted[start : start + SLICE_ENTRIES])
            lines.append(as_lines(line for line in made if line is not None))
            await asyncio.sleep(0)
        return lines, wanted[-1][1] if wanted else since

    async def _grow(self, since: int, wait_s: float) -> None:
        """Wait up to ``wait_s`` for something after ``since``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self._seq <= since:
                    self._more.clear()
                    await self._more.wait()


def as_lines(lines: Iterable[Line]) -> bytes:
    """Encode lines of a recording."""
    return b"".join(
        orjson.dumps(line_to_json(line), option=orjson.OPT_APPEND_NEWLINE) for line in lines
    )
