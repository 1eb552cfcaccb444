"""Lock files as ``uv pip compile --generate-hashes`` writes them, read line by line: nothing is
resolved.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
REQUIREMENTS: Final = ROOT / "requirements"
_PIN: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\]+?))?\s*\\?$"
)
_HASH: Final = re.compile(r"--hash=(?P<algorithm>[a-z0-9]+):(?P<digest>[0-9a-f]+)\s*\\?$")


@dataclass(slots=True)
class Locked:
    """One package of a lock file."""

    name: str
    version: str
    marker: str = ""
    hashes: list[str] = field(default_factory=list)
    """SHA-256, in the file's order."""
    via: list[str] = field(default_factory=list)
    """Who asks for it, as the comment says: packages, and ``name (pyproject.toml)`` for ourselves.
    """


class LockError(Exception):
    """A line that pins nothing; the text names file and line."""


def canonical(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_in(text: str, name: str = "lock") -> list[Locked]:
    """What a lock file pins. Raises LockError where a line is neither a pin, nor a hash, nor a
    comment.
    """
    found: list[Locked] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words:
            continue
        if words.startswith("#"):
            if found:
                found[-1].via += _via(words)
        elif pin := _PIN.match(words):
            found.append(Locked(canonical(pin["name"]), pin["version"], pin["marker"] or ""))
        elif (digest := _HASH.match(words)) and found and digest["algorithm"] == "sha256":
            found[-1].hashes.append(digest["digest"])
        else:
            raise LockError(f"{name}:{number}: {words}")
    return found


def locked(name: str) -> list[Locked]:
    """What ``requirements/NAME.txt`` pins. Raises LockError, OSError."""
    return locked_in((REQUIREMENTS / f"{name}.txt").read_text(), f"{name}.txt")


def _via(comment: str) -> Iterator[str]:
    word = comment.removeprefix("#").strip().removeprefix("via").strip()
    if word and not word.startswith("-c "):
        yield word
