"""The work log: what an adapter really does, beside what it says.

An adapter that is checked appends a line to ``$VREPLICA_WORK_LOG`` for each piece of work, with the
epoch that the piece would carry to an outside system::

    {"share": "team-a/orders", "epoch": 7}
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

READ_BYTES_MAX: Final = 1024 * 1024
"""Of one look."""


class WorkLog:
    """Reads the lines that are new at each look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._counts: Counter[tuple[str, int]] = Counter()

    @property
    def is_used(self) -> bool:
        """Whether a piece of work has been seen."""
        return bool(self._counts)

    def count(self, key: str, epoch: int | None = None) -> int:
        """Pieces of work on a share so far, of an epoch or of all."""
        return sum(
            count
            for (of, with_epoch), count in self._counts.items()
            if of == key and epoch in {None, with_epoch}
        )

    def read(self, complain: Callable[[str], None]) -> Iterator[tuple[str, int]]:
        """Yield share and epoch of each new line. ``complain`` hears of lines that are none."""
        try:
            with self.path.open("rb") as log:
                log.seek(self._offset)
                content = log.read(READ_BYTES_MAX)
        except FileNotFoundError:
            return
        whole, newline, _ = content.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        for line in whole.splitlines():
            try:
                fields = json.loads(line)
                key, epoch = str(fields["share"]), int(fields["epoch"])
            except (ValueError, TypeError, KeyError):
                complain(f"a line of its work log cannot be read: {line[:80]!r}")
                continue
            self._counts[key, epoch] += 1
            yield key, epoch
