"""Request bodies in memory: each has a limit, and all together have one.

Bytes are counted as they arrive, not as they are announced, so that a client which announces much and sends nothing
takes nothing from the others; and nobody waits for room: who would go beyond it is refused, since two that wait for each
other's room would both be late. A body is whole or there is none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from extender.core.errors import VReplicaError


class BodyTooLarge(VReplicaError):
    """One body is over its limit (413): the same request will never pass."""


class BodiesTooLarge(VReplicaError):
    """All bodies together are over theirs (503): the same request may pass in a moment."""


class BodyStream(Protocol):
    """A body as it arrives: aiohttp's ``StreamReader``."""

    async def readany(self) -> bytes:
        """What is there, at least a byte; empty at the end."""
        ...


class BodyBudget:
    """What the bodies of one server's requests may take, in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0

    @contextmanager
    def share(self) -> Iterator["BodyShare"]:
        """One request's share, which is given back at the end of the context."""
        share = BodyShare(self)
        try:
            yield share
        finally:
            self.bytes_used -= share.bytes_used

    def take(self, size_bytes: int) -> None:
        """So many more are in memory. Raises BodiesTooLarge: then they must not be kept."""
        if self.bytes_used + size_bytes > self.bytes_max:
            raise BodiesTooLarge(f"{self.bytes_used} bytes of request bodies are in memory already")
        self.bytes_used += size_bytes


class BodyShare:
    """One request's part of a ``BodyBudget``."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.bytes_used = 0

    async def read(self, body: BodyStream, *, bytes_max: int, announced: int | None) -> bytes:
        """The whole body. ``announced``: its Content-Length. Raises BodyTooLarge, BodiesTooLarge, the stream's errors."""
        if (announced or 0) > bytes_max:
            raise BodyTooLarge(f"the body is larger than {bytes_max} bytes")
        parts = []
        while part := await body.readany():
            if self.bytes_used + len(part) > bytes_max:
                raise BodyTooLarge(f"the body is larger than {bytes_max} bytes")
            self._budget.take(len(part))
            self.bytes_used += len(part)
            parts.append(part)
        return b"".join(parts)
