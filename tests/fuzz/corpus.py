"""The corpus: for each target the inputs that had an outcome of their own, as small as they could
be made, one JSON line each.

    {"outcome": "WireError N Pod: expected ...", "text": "..."}       UTF-8
    {"outcome": "...", "zlib": "base64 of the compressed bytes"}      all else, and what is long

All files together stay below 1 MiB. ``test_corpus`` replays them in seconds.
"""

import asyncio
import base64
import time
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from tests.fuzz.findings import Hung
from tests.fuzz.target import Target

FOLDER: Final = Path(__file__).parent / "corpus"
FILE_BYTES_MAX: Final = 36 * 1024
"""One target's. Not all fill it: ``test_corpus`` holds them together to 1 MiB."""
LINE_BYTES_MAX: Final = 1_500
PLAIN_BYTES_MAX: Final = 300
MINIMISE_S: Final = 0.1
"""CPU time for one input."""
MINIMISE_ALL_S: Final = 5.0
"""CPU time for all new inputs of a target; what is over is kept as it is."""


def load(name: str) -> list[tuple[str, bytes]]:
    """(outcome, input) of a target's corpus; nothing where there is none yet."""
    path = FOLDER / f"{name}.jsonl"
    if not path.exists():
        return []
    return [_entry(orjson.loads(line)) for line in path.read_bytes().splitlines()]


def save(name: str, entries: Mapping[str, bytes]) -> int:
    """Write a target's corpus, the shortest inputs first as far as there is room; how many were
    written.
    """
    lines: list[bytes] = []
    size = 0
    for outcome, data in sorted(entries.items(), key=lambda entry: (len(entry[1]), entry[0])):
        line = _line(outcome, data)
        if len(line) > LINE_BYTES_MAX or size + len(line) + 1 > FILE_BYTES_MAX:
            continue
        lines.append(line)
        size += len(line) + 1
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    return len(lines)


def _line(outcome: str, data: bytes) -> bytes:
    entry = {"outcome": outcome}
    try:
        plain = data.decode()
        short = len(data) <= PLAIN_BYTES_MAX
    except UnicodeDecodeError:
        plain, short = "", False
    if short:
        entry["text"] = plain
    else:
        entry["zlib"] = base64.b64encode(zlib.compress(data, 9)).decode()
    return orjson.dumps(entry)


def _entry(entry: Mapping[str, str]) -> tuple[str, bytes]:
    if "text" in entry:
        return entry["outcome"], entry["text"].encode()
    return entry["outcome"], zlib.decompress(base64.b64decode(entry["zlib"]))


async def minimised(target: Target, outcome: str, data: bytes) -> bytes:
    """A smaller input with the same outcome: parts of its JSON are left out, then pieces of its
    bytes.
    """
    until = time.thread_time() + MINIMISE_S

    async def still(candidate: bytes) -> bool:
        try:
            return await target.run(candidate) == outcome
        except (Exception, Hung):  # noqa: BLE001 - another outcome is no finding here
            return False

    while time.thread_time() < until:
        for candidate in _smaller(data):
            if time.thread_time() >= until:
                break
            if len(candidate) < len(data) and await still(candidate):
                data = candidate
                break
        else:
            break
        await asyncio.sleep(0)
    return data


def _smaller(data: bytes) -> Iterable[bytes]:
    try:
        tree = orjson.loads(data)
        if orjson.loads(orjson.dumps(tree)) == tree:
            yield from (orjson.dumps(smaller) for smaller in _pruned(tree))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError):
        pass
    size = len(data) // 2
    while size >= 1 and len(data) < 20_000:
        for start in range(0, len(data), size):
            yield data[:start] + data[start + size :]
        size = size // 2 if size > 8 else 0


def _pruned(tree: Any) -> Iterable[Any]:
    """The tree without one of its parts, larger parts first."""
    if isinstance(tree, dict):
        for key in tree:
            yield {name: value for name, value in tree.items() if name != key}
        for key, value in tree.items():
            for smaller in _pruned(value):
                yield {**tree, key: smaller}
    elif isinstance(tree, list):
        for index in range(len(tree)):
            yield tree[:index] + tree[index + 1 :]
        for index, value in enumerate(tree[:20]):
            for smaller in _pruned(value):
                yield [*tree[:index], smaller, *tree[index + 1 :]]
    elif isinstance(tree, str) and len(tree) > 1:
        yield tree[: len(tree) // 2]
