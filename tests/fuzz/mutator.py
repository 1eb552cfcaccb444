"""``Mutator``: from good inputs to hostile ones, seeded and fast (about 30,000 a second for a body
of 1 KiB).

Two kinds of change. *Structural*, for inputs that are JSON: at a random path a value is replaced,
removed, wrapped, given twice, swapped with another one, taken from another seed, or a key changes
its letter case. *Textual*, for any bytes: flips, cuts, repetitions, splices of two seeds, words of
the target's dictionary.

Some hostile JSON no encoder writes: doubled keys, NaN, 1e999, lone surrogates, a thousand levels of
nesting. So values and keys carry marks (``~RAW3~``, ``~DUP~name``) through the encoder and are
replaced in its output.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

BYTES_MAX: Final = 64 * 1024
SEEDS_MAX: Final = 400
GROWN_MAX: Final = 4000
"""Times that an input may be made larger: 200 times 200 of a pod's list are gigabytes, cut to
``BYTES_MAX`` afterwards.
"""
"""Seeds with those that were found on the way; beyond it a new one takes a random other one's
place.
"""
STRUCTURAL_SHARE: Final = 0.85
GIVEN_SHARE: Final = 0.6
"""How often a structural change starts from a seed of the beginning."""

Path = tuple[str | int, ...]

_NESTED: Final = (
    b"[" * 300 + b"]" * 300,
    b"[" * 1000 + b"]" * 1000,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'{"a":' * 990 + b"[]" + b"}" * 990,
    b"[" * 3000,
)
_RAW: Final = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"-0",
    b"-0.0",
    b"1e-400",
    b"00",
    b"+1",
    b"0x10",
    b"1.",
    b".5",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"1" * 400,
    b"1" * 5000,
    b"1e2",
    b"3.0",
    b"nul",
    b"undefined",
    b"'x'",
    b"",
    b'"\\ud800"',
    b'"\\udfff\\ud800"',
    b'"\\u0000"',
    b'"\\x00"',
    b'"\x00"',
    b'"\xff\xfe"',
    b'"\xed\xa0\x80"',
    b'"\xc0\xaf"',
    b'"\\u202e\\u2028"',
    b"{,}",
    b"[,]",
    b"[1,]",
    b'{"a":1,"a":2}',
    b'{"a":1,}',
    b"/**/1",
    b"tru\\u0065",
    *_NESTED,
)
"""JSON, and what is none, as it may stand where a value is expected."""
_NUMBERS: Final = (
    0,
    1,
    -1,
    2,
    10,
    20,
    21,
    127,
    128,
    253,
    254,
    100_000,
    100_001,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**63 - 1,
    -(2**31),
    -(2**63),
    2**64 - 1,
    0.0,
    0.5,
    1.0,
    -1.5,
    1e18,
    1e300,
    5e-324,
)
_TEXTS: Final = (
    "",
    " ",
    "a",
    "0",
    "1",
    "-1",
    "20",
    "true",
    "null",
    "~",
    "/",
    "//",
    "a/b",
    "..",
    "../../x",
    "a" * 63,
    "a" * 64,
    "a" * 253,
    "a" * 254,
    "a" * 2000,
    "-",
    "a-",
    "a-0",
    "dispatcher-0",
    "dispatcher-99999999999",
    "dispatcher-100001",
    "dispatcher-٣",
    "é",
    "\u0130",
    "\u017f",
    "\u212a",
    "\x00",
    "\n",
    "\r\n",
    "\x1b[31m",
    "\u202e",
    "\ufeff",
    "\U0001f600",
    "%s",
    "{0}",
    "{x!r}",
    "$(id)",
    "<script>",
    "'\"",
    "\\",
    "\\u0041",
    "{}",
    "[]",
    '{"a/b":1}',
    '{"a/b":[1,2]}',
    "1Ki",
    "1e3",
    "2000m",
    "1.5",
    "+1",
    "2026-01-01T00:00:00Z",
    "2026-13-45T99:99:99Z",
    "default",
    "vreplica-scheduler",
    "*",
    "_x",
    "@",
    "a/b@c.d",
    "a@b@c",
)
_PLAIN: Final = (
    b"null",
    b"true",
    b"false",
    b"[]",
    b"{}",
    b"[[]]",
    b"[null]",
    b'{"":null}',
    b"[{}]",
    b'{"a":{"b":{"c":[]}}}',
)
"""As text: each is a value of its own, which further changes may change."""
_BYTES: Final = (
    b"{}[]\":,\\/0123456789-+.eEnulltruefalse \t\r\n\x00\x1b\x7f\x80\xc3\xed\xff~&*!|>%@`#?=;'()"
)


class Mutator:
    """An endless stream of inputs. ``words``: names and texts that mean something to the target."""

    def __init__(
        self,
        rng: random.Random,
        seeds: Sequence[bytes],
        words: Sequence[str],
        *,
        structural: float = STRUCTURAL_SHARE,
    ) -> None:
        self._rng = rng
        self._structural = structural
        self._words = tuple(words)
        self._texts = (*_TEXTS, *words)
        self._seeds: list[bytes] = []
        self._paths: list[tuple[bytes, list[Path]]] = []
        """Seeds that are JSON objects or lists, with the paths in them."""
        self._raw: list[bytes] = []
        self._grown = 1
        """How many times larger the input under way was made, in all."""
        for seed in seeds:
            self.add(seed)
        self._given = self._paths[:]
        """Those of the beginning: what was found on the way is mostly refused, and says less about
        what is taken.
        """
        self._changes: tuple[Callable[[Any, str | int, Any], None], ...] = (
            self._delete,
            self._replace,
            self._replace,
            self._replace,
            self._raw_value,
            self._alter,
            self._alter,
            self._double_key,
            self._change_case,
            self._insert,
            self._insert,
            self._wrap,
            self._graft,
            self._grow,
        )

    def add(self, seed: bytes) -> None:
        """Take one more input to start from."""
        if len(seed) > BYTES_MAX:
            return
        if len(self._seeds) >= SEEDS_MAX:
            place = self._rng.randrange(len(self._seeds))
            self._seeds[place] = seed
        else:
            self._seeds.append(seed)
        try:
            tree = orjson.loads(seed)
        except orjson.JSONDecodeError:
            return
        if isinstance(tree, dict | list) and tree:
            if len(self._paths) >= SEEDS_MAX:
                self._paths.pop(self._rng.randrange(len(self._paths)))
            self._paths.append((seed, _paths_of(tree)))

    def next(self) -> bytes:
        """One input of at most ``BYTES_MAX`` bytes."""
        rng = self._rng
        if self._paths and rng.random() < self._structural:
            data = self._structured()
            if rng.random() < 0.03:
                data = self._textual(data)
        else:
            data = self._textual(rng.choice(self._seeds))
        return data[:BYTES_MAX]

    # -- structural --------------------------------------------------------------------------------

    def _structured(self) -> bytes:
        rng = self._rng
        # The smaller one of two: small inputs are faster, and lose less of what matters to one
        # change.
        places = self._given if self._given and rng.random() < GIVEN_SHARE else self._paths
        one, other = (
            places[int(rng.random() * len(places))],
            places[int(rng.random() * len(places))],
        )
        seed, paths = one if len(one[0]) < len(other[0]) or rng.random() < 0.2 else other
        root = [orjson.loads(seed)]
        self._raw, self._grown = [], 1
        for _ in range(1 if rng.random() < 0.5 else 2 + int(rng.random() * 4)):
            parent, key = self._place(root, paths)
            if str(key).startswith("~DUP") or (
                isinstance(parent[key], str) and parent[key].startswith("~RAW")
            ):
                continue  # a mark stays whole
            self._changes[int(rng.random() * len(self._changes))](parent, key, root)
        return self._encoded(root[0])

    def _encoded(self, tree: object) -> bytes:
        try:
            data = orjson.dumps(tree, option=orjson.OPT_NON_STR_KEYS)
        except TypeError:  # nested too deep for the encoder, by several wraps
            return self._rng.choice(self._seeds)
        for index, raw in enumerate(self._raw):
            data = data.replace(b'"~RAW%d~"' % index, raw)
        return data.replace(b'"~DUP~', b'"')

    def _place(self, root: list[Any], paths: list[Path]) -> tuple[Any, str | int]:
        """A container and a key in it. Half of the time any place, half of the time one near the
        root.
        """
        rng = self._rng
        here: Any = root
        key: str | int = 0
        if rng.random() < 0.6:
            for step in paths[int(rng.random() * len(paths))]:
                inner = here[key]
                if not _has(inner, step):
                    break
                here, key = inner, step
            return here, key
        while rng.random() < 0.8:
            inner = here[key]
            if isinstance(inner, dict) and inner:
                here, key = inner, rng.choice(tuple(inner))
            elif isinstance(inner, list) and inner:
                here, key = inner, int(rng.random() * len(inner))
            else:
                break
        return here, key

    def _value(self) -> object:
        rng = self._rng
        kind = rng.random()
        if kind < 0.3:
            return rng.choice(_NUMBERS)
        if kind < 0.65:
            return rng.choice(self._texts)
        if kind < 0.9:
            return orjson.loads(rng.choice(_PLAIN))
        return rng.randrange(-5, 200)

    def _delete(self, parent: Any, key: str | int, root: Any) -> None:
        if parent is not root:
            del parent[key]

    def _replace(self, parent: Any, key: str | int, root: Any) -> None:
        parent[key] = self._value()

    def _raw_value(self, parent: Any, key: str | int, root: Any) -> None:
        parent[key] = f"~RAW{len(self._raw)}~"
        self._raw.append(self._rng.choice(_RAW))

    def _alter(self, parent: Any, key: str | int, root: Any) -> None:
        """A value near the one that is there."""
        rng, value = self._rng, parent[key]
        match value:
            case bool() | None:
                parent[key] = rng.choice((True, False, None, 0, 1, "true", ""))
            case int() | float():
                parent[key] = rng.choice(
                    (value + 1, value - 1, -value, str(value), float(value), [value])
                )
            case str():
                parent[key] = self._altered_text(value)
            case list():
                rng.shuffle(value)
            case dict():
                for name in rng.sample(tuple(value), len(value) // 2):
                    del value[name]
            case _:
                pass

    def _altered_text(self, text: str) -> str:
        rng = self._rng
        at = int(rng.random() * (len(text) + 1))
        match int(rng.random() * 6):
            case 0:
                return text[:at]
            case 1:
                return text[:at] + rng.choice(self._texts) + text[at:]
            case 2:
                return (
                    text[:at]
                    + chr(rng.choice((0, 9, 10, 27, 34, 92, 127, 0x130, 0x202E, 0xFFFD, 0x1F600)))
                    + text[at:]
                )
            case 3:
                return text.swapcase()
            case 4:
                return ((text or "x") * rng.choice((2, 10, 100)))[:BYTES_MAX]
            case _:
                return text[at:] + text[:at]

    def _double_key(self, parent: Any, key: str | int, root: Any) -> None:
        if isinstance(parent, dict) and isinstance(key, str):
            parent["~DUP~" + key] = self._value() if self._rng.random() < 0.7 else parent[key]

    def _change_case(self, parent: Any, key: str | int, root: Any) -> None:
        if isinstance(parent, dict) and isinstance(key, str):
            rng = self._rng
            other = rng.choice(
                (key.lower(), key.upper(), key.swapcase(), key.title(), key.replace("s", "\u017f"))
            )
            value = parent[key] if rng.random() < 0.5 else parent.pop(key)
            parent[other] = value

    def _insert(self, parent: Any, key: str | int, root: Any) -> None:
        rng, value = self._rng, self._value()
        if rng.random() < 0.4 and self._words:
            value = {rng.choice(self._words): value}
        if isinstance(parent, dict):
            parent[rng.choice(self._texts)] = value
        elif parent is not root:
            parent.insert(int(key), value)

    def _wrap(self, parent: Any, key: str | int, root: Any) -> None:
        rng, value = self._rng, parent[key]
        for _ in range(1 if rng.random() < 0.9 else rng.choice((30, 120, 240))):
            value = [value] if rng.random() < 0.5 else {rng.choice(self._texts): value}
        parent[key] = value

    def _graft(self, parent: Any, key: str | int, root: Any) -> None:
        """A part of another seed, or of the same one."""
        rng = self._rng
        seed, paths = rng.choice(self._paths)
        there, name = self._place([orjson.loads(seed)], paths)
        parent[key] = there[name]

    def _grow(self, parent: Any, key: str | int, root: Any) -> None:
        """Many of what is there once."""
        rng, value = self._rng, parent[key]
        times = rng.choice((2, 3, 20, 200))
        self._grown *= times
        if self._grown > GROWN_MAX:
            return
        match value:
            case list() if value:
                parent[key] = (value * times)[:2000]
            case dict() if value:
                name, first = next(iter(value.items()))
                value.update({f"{name}{index}": first for index in range(times)})
            case str():
                parent[key] = (value or "x")[:200] * times
            case _:
                parent[key] = [value] * times

    # -- textual -----------------------------------------------------------------------------------

    def _textual(self, data: bytes) -> bytes:
        rng = self._rng
        body = bytearray(data)
        for _ in range(1 if rng.random() < 0.5 else 2 + int(rng.random() * 5)):
            at = int(rng.random() * (len(body) + 1))
            match int(rng.random() * 9):
                case 0 if body:
                    body[at % len(body)] ^= 1 << int(rng.random() * 8)
                case 1 if body:
                    body[at % len(body)] = rng.choice(_BYTES)
                case 2:
                    body[at:at] = bytes(rng.choices(_BYTES, k=1 + int(rng.random() * 3)))
                case 3:
                    del body[at : at + 1 + int(rng.random() * rng.choice((1, 8, 64)))]
                case 4:
                    body[at:at] = body[at : at + 40] * rng.choice((1, 2, 50))
                case 5:
                    body[at:at] = rng.choice(_RAW)
                case 6:
                    body[at:at] = rng.choice(self._texts).encode()
                case 7:
                    other = rng.choice(self._seeds)
                    body[at:] = other[int(rng.random() * (len(other) + 1)) :]
                case _:
                    del body[at:]
        return bytes(body)


def _has(container: object, step: str | int) -> bool:
    """Whether there is something at that step of a path, in a tree that may have changed since."""
    if isinstance(container, list):
        return isinstance(step, int) and step < len(container)
    return isinstance(container, dict) and step in container


def _paths_of(tree: object) -> list[Path]:
    """The path of every value, that of the root (no steps) first."""
    paths: list[Path] = [()]
    pending: list[tuple[Path, object]] = [((), tree)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, dict):
            inner: list[tuple[str | int, object]] = list(value.items())
        elif isinstance(value, list):
            inner = list(enumerate(value[:50]))
        else:
            continue
        for key, child in inner:
            paths.append((*path, key))
            pending.append(((*path, key), child))
    return paths
