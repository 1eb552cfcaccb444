"""The files of a recording: lines, with a limit of bytes for each file and a limit of files.

``FILE`` is the newest. When it is full, it becomes ``FILE.1``, the former ``FILE.1`` becomes
``FILE.2``, and so on; the oldest is removed. Each begins with a header and a snapshot, so each can
be played alone. A process that is killed leaves at most one incomplete line. Reading stops there
and says so; continuing the file cuts the line off.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import orjson

from extender.model.errors import InvalidObject
from extender.whatif.recording.entries import Line
from extender.whatif.recording.lines import LINE_BYTES_MAX, line_from

FILE_BYTES: Final = 256 * 2**20
FILES_KEPT: Final = 4


class RecordingFile:
    """Appends to ``path``. ``files_max`` includes the newest. Call ``anew`` or ``go_on`` before
    ``write``.
    """

    def __init__(
        self, path: Path, *, bytes_max: int = FILE_BYTES, files_max: int = FILES_KEPT
    ) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._file: IO[bytes] | None = None
        self._before: IO[bytes] | None = None
        self._size = 0
        self.lines = 0
        """Lines written to all files."""

    @property
    def full(self) -> bool:
        """Whether the next snapshot should go into another file."""
        return self._size >= self._bytes_max

    @property
    def is_open(self) -> bool:
        """Whether lines can be written."""
        return self._file is not None

    def anew(self) -> None:
        """Begin a file. The present one stays open for ``write_before``. Raises OSError."""
        self.finish_before()
        self._before, self._file = self._file, None
        if self.path.exists():
            for number in range(self._files_max - 1, 0, -1):
                newer = self._numbered(number - 1)
                if newer.exists():
                    newer.replace(self._numbered(number))
        self._file = self.path.open("xb" if self._files_max > 1 else "wb")
        self._size = 0

    def go_on(self) -> None:
        """Continue the file, without an incomplete last line. Raises OSError."""
        self.close()
        self._file = self.path.open("r+b")
        self._size = _whole_lines(self._file)
        self._file.truncate(self._size)
        self._file.seek(self._size)

    def write(self, lines: bytes) -> None:
        """Append complete lines. Raises OSError, for example if the disk is full."""
        if self._file is None:
            raise ValueError("a recording is written after anew() or go_on()")
        self._file.write(lines)
        self._size += len(lines)
        self.lines += lines.count(b"\n")

    def write_before(self, lines: bytes) -> None:
        """Append complete lines to the file before this one. Raises OSError."""
        if self._before is not None:
            self._before.write(lines)
            self.lines += lines.count(b"\n")

    def finish_before(self) -> None:
        """Close the file before this one."""
        if self._before is not None:
            self._before.close()
            self._before = None

    def flush(self) -> None:
        """Pass what is written to the operating system, so that others can read it."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the files."""
        self.finish_before()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path


def _whole_lines(file: IO[bytes]) -> int:
    """The length up to the end of the last complete line."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - LINE_BYTES_MAX)
        file.seek(start)
        if (found := file.read(end - start).rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0


def read_lines(path: Path) -> Iterator[tuple[int, Line | None]]:
    """Yield each line with the number of bytes read so far; at the end None for an incomplete line.

    Raises OSError; InvalidObject, which names file and line.
    """
    read = 0
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(LINE_BYTES_MAX + 1):
            number += 1
            read += len(raw)
            subject = f"{path}, line {number}"
            if len(raw) > LINE_BYTES_MAX:
                raise InvalidObject(subject, "", f"is longer than {LINE_BYTES_MAX} bytes")
            if not raw.endswith(b"\n"):
                yield read, None
                return
            yield read, line_of(raw, subject)


def line_of(raw: bytes, subject: str) -> Line:
    """Read one line. Raises InvalidObject."""
    try:
        document = orjson.loads(raw)
    except ValueError as error:
        raise InvalidObject(subject, "", f"is no JSON: {error}") from error
    return line_from(document, subject)
