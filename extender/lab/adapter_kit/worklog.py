"""The work log: what an adapter really does, beside what it says.

An adapter that is checked appends a line to ``$VREPLICA_WORK_LOG`` for each piece of work, with the
epoch that the piece would carry to an outside system::

    {"share": "team-a/orders", "epoch": 7}

In a pool with ``identity: Indexed`` a line also has the ``index`` that the piece was for.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

READ_BYTES_MAX: Final = 1024 * 1024
"""Of one look."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work. ``index``: None if the adapter does not say it."""

    key: str
    epoch: int
    index: int | None = None


class WorkLog:
    """Reads the lines that are new at each look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._counts: Counter[Piece] = Counter()
        self._times: dict[tuple[str, int], list[float]] = {}

    @property
    def is_used(self) -> bool:
        """Whether a piece of work has been seen."""
        return bool(self._counts)

    @property
    def has_indexes(self) -> bool:
        """Whether a piece of work has said its index."""
        return any(piece.index is not None for piece in self._counts)

    def skip(self) -> None:
        """Take nothing that is there already: it was written for somebody else."""
        self._offset = self.path.stat().st_size if self.path.exists() else 0

    def count(self, key: str, epoch: int | None = None, index: int | None = None) -> int:
        """Pieces of work on a share so far, of an epoch and an index or of all."""
        return sum(
            count
            for piece, count in self._counts.items()
            if piece.key == key and epoch in {None, piece.epoch} and index in {None, piece.index}
        )

    def times(self, key: str, epoch: int | None = None) -> list[float]:
        """When work on a share was seen, of an epoch or of all, in order."""
        found = (
            times
            for (of_key, of_epoch), times in self._times.items()
            if of_key == key and epoch in {None, of_epoch}
        )
        return sorted(chain.from_iterable(found))

    def read(self, now: float, complain: Callable[[str], None]) -> Iterator[Piece]:
        """Yield the piece of each new line. ``complain`` hears of lines that are none."""
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
                index = fields.get("index")
                piece = Piece(
                    str(fields["share"]),
                    int(fields["epoch"]),
                    None if index is None else int(index),
                )
            except (ValueError, TypeError, KeyError, AttributeError):
                complain(f"a line of its work log cannot be read: {line[:80]!r}")
                continue
            self._counts[piece] += 1
            self._times.setdefault((piece.key, piece.epoch), []).append(now)
            yield piece
