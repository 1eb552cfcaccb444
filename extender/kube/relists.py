"""``Relists``: who asks a reflector for a list waits for one that begins afterwards.

Lists count from 1. Nothing is kept for who asks, so any number may ask while no list succeeds.
"""

import asyncio


class Relists:
    """The lists of one reflector, which fail or end up in its sink."""

    def __init__(self) -> None:
        self._begun = 0
        self._in_sink = 0
        self._listed = asyncio.Event()
        """Set, and replaced, when a list is in the sink."""

    @property
    def following(self) -> int:
        """The list that begins next."""
        return self._begun + 1

    def begin(self) -> int:
        """A list begins. Return which."""
        self._begun += 1
        return self._begun

    def end(self, which: int) -> None:
        """That list is in the sink."""
        self._in_sink = which
        self._listed.set()
        self._listed = asyncio.Event()

    def has(self, which: int) -> bool:
        """Whether that list, or a later one, is in the sink."""
        return self._in_sink >= which

    async def wait(self, which: int) -> None:
        """Wait until that list, or a later one, is in the sink."""
        while not self.has(which):
            await self._listed.wait()
