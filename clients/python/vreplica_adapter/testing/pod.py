"""``FakePod``: what the service knows of one pod, and what that pod has said."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from vreplica_adapter.adapter import Adapter
from vreplica_adapter.progress import Limits
from vreplica_adapter.timing import Timing
from vreplica_adapter.wire import (
    Acknowledgement,
    Assignment,
    ShareDocument,
    State,
    read_acknowledgement,
    write_assignment,
)

Lines: TypeAlias = "asyncio.Queue[bytes | None]"
"""What a stream sends. None ends it in the middle of a line."""


class Answer(NamedTuple):
    """To an acknowledgement. ``again``: it may be said again a moment later."""

    status: int
    body: Mapping[str, object]
    again: bool = False


WITHIN_S: Final = 5.0
"""How long tests wait for an acknowledgement, unless told otherwise."""
ACKNOWLEDGEMENTS_KEPT: Final = 10_000

QUICK: Final = Timing(
    request_s=1.0,
    retry_s=0.01,
    retry_max_s=0.05,
    file_after_s=0.1,
    poll_s=0.02,
    pace_s=0.005,
    load_s=0.05,
)
"""For adapters in tests."""


class FakePod:
    """One adapter pod. ``FakeScheduler.pod`` makes it.

    Each change makes a new generation and sends it. ``serving``, ``ready`` and ``drained`` wait
    until the pod has acknowledged the newest one with that.
    """

    def __init__(self, name: str, url: str, file: Path, assignment: Assignment) -> None:
        self.name = name
        self.url = url
        """Of the service, as this pod knows it."""
        self.file = file
        """What the downward API would write. ``write_file`` writes it."""
        self.assignment = assignment
        """The newest."""
        self.acknowledgements: deque[Acknowledgement] = deque(maxlen=ACKNOWLEDGEMENTS_KEPT)
        self.load: dict[str, float] = {}
        """What was reported last, by share."""
        self.streams: set[Lines] = set()
        """Of the adapters that listen."""
        self.changed: Callable[[], None] = lambda: None
        """Called after each new generation."""
        self._heard = asyncio.Event()

    def adapter(self, **arguments: Any) -> Adapter:
        """Return an adapter that talks to this environment. Arguments as for ``Adapter``."""
        ours: dict[str, Any] = {
            "urls": [self.url],
            "assignment_file": self.file,
            "handle_sigterm": False,
            "grace_s": 2.0,
            "timing": QUICK,
            "limits": Limits(retry_s=0.01, stop_s=1.0, cancel_s=0.1),
        }
        return Adapter(**ours | arguments)

    def assign(self, key: str, vreplicas: int = 1, **fields: Any) -> None:
        """Give the pod a share, or change one. ``fields`` are those of ``ShareDocument``; what is
        not said stays, except that the state becomes ``Serve`` unless it is said.
        """
        before = self.assignment.shares.get(key, ShareDocument(State.SERVE, vreplicas))
        changes = {"state": State.SERVE, "deadline": None, "peer": "", "intent": ""} | fields
        self._change({key: replace(before, vreplicas=vreplicas, **changes)})

    def prepare(self, key: str, vreplicas: int = 1, **fields: Any) -> None:
        """Tell the pod to get ready."""
        self.assign(key, vreplicas, state=State.PREPARE, **fields)

    def drain(self, key: str, within_s: float | None = None, **fields: Any) -> None:
        """Tell the pod to let go of a share that it has."""
        deadline = None if within_s is None else datetime.now(UTC) + timedelta(seconds=within_s)
        share = self.assignment.shares[key]
        self.assign(key, share.vreplicas, state=State.DRAIN, deadline=deadline, **fields)

    def revoke(self, key: str) -> None:
        """Take a share away, drained or not."""
        self._change({key: None})

    def lease(self, lease_s: float | None) -> None:
        """Make the pool exclusive, with this lease, or end that."""
        self.assignment = replace(self.assignment, lease_s=lease_s)
        self._change({})

    def _change(self, changes: dict[str, ShareDocument | None]) -> None:
        shares = dict(self.assignment.shares) | changes
        self.assignment = replace(
            self.assignment,
            generation=self.assignment.generation + 1,
            shares=MappingProxyType({k: share for k, share in shares.items() if share is not None}),
        )
        self.send(self.document())
        self.changed()

    def document(self) -> bytes:
        """Return the newest assignment as the service sends it."""
        return write_assignment(self.assignment)

    def send(self, line: bytes) -> None:
        """Send a line to whoever listens: an old assignment, for example, or none at all."""
        for stream in self.streams:
            stream.put_nowait(line)

    def write_file(self, document: bytes | None = None) -> None:
        """Write the newest assignment, or ``document``, to ``file``, as the kubelet does."""
        new = self.file.with_suffix(".new")
        new.write_bytes(self.document() if document is None else document)
        new.replace(self.file)

    @contextmanager
    def losing_news(self) -> Iterator[None]:
        """Send no change to those who listen: their replica hears of nothing any more."""
        streams, self.streams = self.streams, set()
        try:
            yield
        finally:
            self.streams |= streams

    def hear(self, document: bytes) -> Answer:
        """Take an acknowledgement. Raises WireError."""
        said, load = read_acknowledgement(document)
        named = {*said.serving, *said.draining, *said.drained, *said.busy, *load}
        newest = self.assignment.generation
        if said.uid != self.assignment.uid:
            return Answer(403, {"error": f"uid {said.uid} is another pod's"})
        if said.generation != newest:
            error = f"generation {said.generation} is not {newest}"
            return Answer(409, {"error": error, "generation": newest}, said.generation > newest)
        if unknown := named - set(self.assignment.shares):
            return Answer(422, {"error": f"unknown shares: {', '.join(sorted(unknown))}"})
        self.acknowledgements.append(said)
        self.load |= load
        self._heard.set()
        return Answer(200, {"generation": newest})

    async def until(
        self, heard: Callable[[Acknowledgement], bool], within_s: float = WITHIN_S
    ) -> Acknowledgement:
        """Wait for an acknowledgement of the newest generation that ``heard`` is true of, and
        return it. Raises TimeoutError with the last one that has come.
        """
        try:
            async with asyncio.timeout(within_s):
                while True:
                    last = self.acknowledgements[-1] if self.acknowledgements else None
                    newest = self.assignment.generation
                    if last is not None and last.generation == newest and heard(last):
                        return last
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            last = self.acknowledgements[-1] if self.acknowledgements else None
            raise TimeoutError(f"of generation {self.assignment.generation}: {last}") from None

    async def serving(self, key: str, within_s: float = WITHIN_S) -> None:
        """Wait until the pod serves a share as it was told."""
        await self.until(lambda said: key in said.serving and key not in said.busy, within_s)

    async def ready(self, key: str, within_s: float = WITHIN_S) -> None:
        """Wait until the pod has prepared a share."""
        await self.until(
            lambda said: key not in (*said.serving, *said.draining, *said.drained, *said.busy),
            within_s,
        )

    async def drained(self, key: str, within_s: float = WITHIN_S) -> None:
        """Wait until the pod has let go of a share."""
        await self.until(lambda said: key in said.drained, within_s)
