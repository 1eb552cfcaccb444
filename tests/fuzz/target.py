"""``Target``: one thing that reads bytes from outside, and the promises that it makes about
them.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import orjson

RECORDINGS: Final = Path(__file__).parents[1] / "contract" / "recordings"
WORD_CHARS_MAX: Final = 60


class Target:
    """``run`` raises only findings: whatever it documents as refused is an outcome.

    A target is opened once, in a running loop, and then given one input after the other: none may
    leave anything behind that ``check`` can see.
    """

    name = ""
    structural = 0.85
    """The share of inputs that stay JSON, mostly."""
    slow_s = 0.25
    """CPU time of one input of at most 64 KiB, beyond which it is a finding."""
    inputs_share = 1.0
    """Of the inputs asked for: a target that is slow for reasons of its own (sockets, YAML) takes
    fewer.
    """

    def __init__(self) -> None:
        self.seeds: list[bytes] = []
        self.words: tuple[str, ...] = ()
        """What the dictionary has beside all keys and short texts of the seeds."""

    async def open(self) -> None:
        """Build what ``run`` needs, and ``seeds``."""

    async def run(self, data: bytes) -> str:
        """The outcome of one input. Raises whatever is wrong."""
        raise NotImplementedError

    async def check(self) -> None:
        """Raises Broken where the inputs so far have left something behind."""

    async def close(self) -> None:
        """Undo ``open``."""

    def dictionary(self) -> list[str]:
        """Keys and short texts of the seeds, and ``words``."""
        found = set(self.words)
        for seed in self.seeds:
            try:
                _collect(orjson.loads(seed), found)
            except orjson.JSONDecodeError:
                continue
        return sorted(found)


def _collect(value: object, found: set[str]) -> None:
    if isinstance(value, str) and len(value) <= WORD_CHARS_MAX:
        found.add(value)
    elif isinstance(value, dict):
        found.update(key for key in value if len(key) <= WORD_CHARS_MAX)
        for inner in value.values():
            _collect(inner, found)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, found)


def recorded(*names: str) -> list[bytes]:
    """The request bodies of these recordings."""
    return [
        orjson.dumps(orjson.loads((RECORDINGS / f"{name}.json").read_bytes())["request"])
        for name in names
    ]


def any_json(data: bytes) -> object:
    """What an input that is to be JSON holds; ValueError where it is none. As lenient as JSON
    readers come.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def in_any_case(document: object, key: str) -> Iterable[object]:
    """All values of a key, whatever its letter case: as Go finds them."""
    if isinstance(document, Mapping):
        yield from (value for name, value in document.items() if name.lower() == key.lower())
