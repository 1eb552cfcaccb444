"""``Trace``: what happened in a run. Two runs are compared by it."""

import asyncio
import hashlib


class Trace:
    """One line for each thing that happened. Equal hashes mean equal runs."""

    def __init__(self, *, keep: bool = False) -> None:
        self._hash = hashlib.sha256()
        self._keep = keep
        self.lines: list[str] = []
        self.count = 0

    def __call__(self, line: str) -> None:
        """Add a line with the present time."""
        line = f"{asyncio.get_running_loop().time():.6f} {line}"
        self.count += 1
        self._hash.update(line.encode())
        if self._keep:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of the hash."""
        return self._hash.hexdigest()[:16]
