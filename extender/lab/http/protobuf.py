"""Decodes the protobuf bodies that kubectl sends, for a few kinds, into the same objects as from
JSON.

``kubectl create namespace`` and ``kubectl drain`` use typed clients, which send protobuf whatever
the server prefers. They accept answers in JSON. Field numbers are those of the ``generated.proto``
files of k8s.io/api and k8s.io/apimachinery. Other kinds are refused with 415.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from extender.kube.api import Obj

MAGIC: Final = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX: Final = 10


class NotProtobuf(ValueError):
    """The bytes are no message, or their kind is not supported."""


@dataclass(frozen=True)
class _Message:
    """Field number -> JSON name, by type of field. Other field numbers are skipped."""

    texts: Mapping[int, str] = field(default_factory=dict)
    numbers: Mapping[int, str] = field(default_factory=dict)
    maps: Mapping[int, str] = field(default_factory=dict)
    lists: Mapping[int, str] = field(default_factory=dict)
    messages: Mapping[int, "tuple[str, _Message]"] = field(default_factory=dict)


_METADATA: Final = _Message(
    texts={1: "name", 2: "generateName", 3: "namespace"},
    maps={11: "labels", 12: "annotations"},
    lists={14: "finalizers"},
)
_DELETE_OPTIONS: Final = _Message(
    numbers={1: "gracePeriodSeconds"},
    texts={4: "propagationPolicy"},
    lists={5: "dryRun"},
    messages={2: ("preconditions", _Message(texts={1: "uid", 2: "resourceVersion"}))},
)
_OBJECT: Final = _Message(messages={1: ("metadata", _METADATA)})
_KINDS: Final[Mapping[tuple[str, str], _Message]] = {
    ("v1", "Namespace"): _OBJECT,
    ("v1", "ConfigMap"): _Message(messages={1: ("metadata", _METADATA)}, maps={2: "data"}),
    ("policy/v1", "Eviction"): _Message(
        messages={1: ("metadata", _METADATA), 2: ("deleteOptions", _DELETE_OPTIONS)}
    ),
    ("v1", "DeleteOptions"): _DELETE_OPTIONS,
}


def decode(body: bytes) -> Obj:
    """Return the object in a body. Raises NotProtobuf."""
    if not body.startswith(MAGIC):
        raise NotProtobuf("no protobuf of Kubernetes")
    envelope = _read(
        body[len(MAGIC) :],
        _Message(messages={1: ("type", _Message(texts={1: "apiVersion", 2: "kind"}))}),
    )
    kind = envelope.get("type") or {}
    message = _KINDS.get((kind.get("apiVersion", ""), kind.get("kind", "")))
    if message is None:
        raise NotProtobuf("no kind that is read as protobuf")
    raw = next((value for number, value in _fields(body[len(MAGIC) :]) if number == 2), b"")
    return {**kind, **_read(_bytes(raw), message)}


def _read(raw: bytes, message: _Message) -> Obj:
    found: Obj = {}
    for number, value in _fields(raw):
        if number in message.texts:
            if value:
                found[message.texts[number]] = _text(value)
        elif number in message.numbers:
            found[message.numbers[number]] = _integer(value)
        elif number in message.maps:
            entry = _read(_bytes(value), _Message(texts={1: "key", 2: "value"}))
            of_map = found.setdefault(message.maps[number], {})
            of_map[entry.get("key", "")] = entry.get("value", "")
        elif number in message.lists:
            found.setdefault(message.lists[number], []).append(_text(value))
        elif number in message.messages:
            name, inner = message.messages[number]
            found[name] = _read(_bytes(value), inner)
    return found


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, bytes or unsigned integer) for each field. Raises NotProtobuf."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        value: bytes | int
        if wire == _VARINT:
            value, at = _varint(raw, at)
        else:
            if wire == _BYTES:
                size, at = _varint(raw, at)
            elif wire in (_FIXED64, _FIXED32):
                size = 8 if wire == _FIXED64 else 4
            else:
                raise NotProtobuf(f"no wire type {wire}")
            if at + size > len(raw):
                raise NotProtobuf("a field goes beyond its message")
            value, at = raw[at : at + size], at + size
        yield number, value


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(raw[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise NotProtobuf("an integer does not end")


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise NotProtobuf("an integer where a message or text is expected")
    return value


def _text(value: object) -> str:
    return _bytes(value).decode("utf-8", "replace")


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise NotProtobuf("no integer where one is expected")
    return value - 2**64 if value >= 2**63 else value
