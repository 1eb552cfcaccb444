"""The lines of a recording, and how they are read and written (docs/record-replay.md). Pure.

::

    {"header": {"format": "vreplica-recording", "formatVersion": 1, ...}}  a snapshot begins: forget
                                                                           everything known
    {"at": 1.5, "seq": 7, "put": {"kind": "Pod", ...}}                     an object came or changed
    {"at": 1.5, "seq": 8, "gone": {"kind": "Pod", "key": "ns/name"}}
    {"at": 1.5, "seq": 9, "decision": {"cause": "place", "vpod": ..., "target": {"pod-0": 3}, ...}}
    {"at": 1.5, "seq": 10, "reserve": {"pool", "vpod", "owner", "shares": {"pod-0": [3, 1]},
                                       "expires": 31.5}}
    {"at": 1.5, "seq": 11, "release": {"pool", "vpod", "owner"}}
    {"at": 1.5, "seq": 12, "expire": {"now": 31.6}}
    {"at": 1.5, "seq": 13, "forget": {"pods": ["ns/pod-3"]}}
    {"at": 1.5, "seq": 14, "close": {"pool", "ordinals": [7, 8]}}
    {"at": 1.5, "seq": 15, "abandon": {"pool", "pods": ["pod-3"]}}
    {"synced": {"seq": 6}}                                                 the snapshot is complete
    {"gap": {"why": "..."}}                                                entries are missing here

``at`` is wall-clock time in epoch seconds. ``seq`` is the place in the journal. It only rises, with
gaps: changes that no decision looks at have a number, but no line. Unknown keys of a line are
ignored. An unknown kind of line and a newer ``formatVersion`` are refused.
"""

from collections.abc import Mapping
from typing import Final

from extender.engine.pods.bits import bits
from extender.model.errors import InvalidObject
from extender.model.ledger import Share
from extender.model.moves import Move, MoveReason
from extender.model.objects import ORDINAL_MAX
from extender.model.reading import COUNT_MAX, mapping, sequence, text
from extender.whatif.recording.entries import (
    Abandon,
    Cause,
    Close,
    Decided,
    Entry,
    EntryContent,
    Expire,
    Forget,
    Gap,
    Gone,
    Header,
    Line,
    Put,
    Release,
    Reserve,
    Synced,
)
from extender.whatif.recording.objects import KINDS, Extra, manifest_of, object_from

FORMAT: Final = "vreplica-recording"
FORMAT_VERSION: Final = 1
LINE_BYTES_MAX: Final = 4 * 2**20
"""Limit of one line: many times the JSON of the largest ledger."""

SECONDS_MAX: Final = 1e11
"""Three thousand years after the epoch. The limit bounds loops that count seconds one by one."""

Json = Mapping[str, object]


# -- writing ---------------------------------------------------------------------------------------


def line_to_json(line: Line) -> dict[str, object]:
    """Write a line."""
    match line:
        case Header():
            fields = {key: value for key, value in line._asdict().items() if value or key == "at"}
            return {"header": {"format": FORMAT, "formatVersion": FORMAT_VERSION, **fields}}
        case Synced(seq):
            return {"synced": {"seq": seq}}
        case Gap(why):
            return {"gap": {"why": why}}
        case Entry(at, seq, content):
            return {"at": round(at, 3), "seq": seq, **_content_to_json(content)}


def _content_to_json(content: EntryContent) -> dict[str, object]:  # noqa: PLR0911 - a table of the kinds of entries
    match content:
        case Put(obj):
            manifest, extra = manifest_of(obj)
            assumed = {"assumed": True} if extra.assumed else {}
            return {
                "put": manifest,
                **assumed,
                **({"source": extra.source} if extra.source else {}),
            }
        case Gone():
            return {"gone": content._asdict()}
        case Reserve(pool, vpod, owner, shares, expires_at):
            plain = {name: [share.vreplicas, share.weight] for name, share in shares.items()}
            return {
                "reserve": {
                    "pool": pool,
                    "vpod": vpod,
                    "owner": owner,
                    "shares": plain,
                    "expires": expires_at,
                }
            }
        case Release():
            return {"release": content._asdict()}
        case Expire():
            return {"expire": content._asdict()}
        case Forget(pods):
            return {"forget": {"pods": list(pods)}}
        case Close(pool, ordinals):
            return {"close": {"pool": pool, "ordinals": list(bits(ordinals))}}
        case Abandon(pool, pods):
            return {"abandon": {"pool": pool, "pods": sorted(pods)}}
        case Decided():
            return {"decision": _decided_to_json(content)}


def _decided_to_json(decided: Decided) -> dict[str, object]:
    return {
        "cause": str(decided.cause),
        "pool": decided.pool,
        "vpod": decided.vpod,
        "wanted": decided.wanted,
        "slotsPerVReplica": decided.weight,
        "target": dict(decided.target),
        "left": decided.left,
        **({"reason": decided.reason} if decided.reason else {}),
        **({"detail": decided.detail} if decided.detail else {}),
        **(
            {"refused": [[count, why] for why, count in decided.refused]} if decided.refused else {}
        ),
        **({"moves": [_move_to_json(move) for move in decided.moves]} if decided.moves else {}),
        **({"asked": [_move_to_json(move) for move in decided.asked]} if decided.asked else {}),
    }


def _move_to_json(move: Move) -> dict[str, object]:
    return {
        "from": move.from_pod,
        "to": move.to_pod,
        "vreplicas": move.vreplicas,
        "reason": str(move.reason),
    }


# -- reading ---------------------------------------------------------------------------------------


def line_from(document: object, subject: str) -> Line:
    """Read a line. Raises InvalidObject, which names ``subject``, for anything else."""
    if not isinstance(document, Mapping):
        raise InvalidObject(subject, "", "is no JSON object")
    try:
        if "header" in document:
            return _header(mapping(document, "header"), subject)
        if "synced" in document:
            return Synced(_seq(mapping(document, "synced"), subject))
        if "gap" in document:
            return Gap(text(document, "gap", "why"))
        at = _seconds(document, "at", subject)
        return Entry(at, _seq(document, subject), _content(document, subject))
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidObject(subject, "", f"cannot be read: {error}"[:300]) from error


def _header(header: Json, subject: str) -> Header:
    if header.get("format") != FORMAT:
        raise InvalidObject(
            subject, "header.format", f"must be {FORMAT}: is it a recording of ours?"
        )
    version = _number(header, "formatVersion", subject)
    if version > FORMAT_VERSION:
        raise InvalidObject(
            subject,
            "header.formatVersion",
            f"{version} is newer than {FORMAT_VERSION}, which this version reads",
        )
    return Header(
        text(header, "source"),
        _seconds(header, "at", subject),
        text(header, "version"),
        text(header, "identity"),
        text(header, "leader"),
        text(header, "journal"),
        tuple(str(name) for name in sequence(header, "profiles")),
    )


def _content(document: Json, subject: str) -> EntryContent:
    for name, read in READERS.items():
        if name in document:
            return read(document, subject)
    raise InvalidObject(subject, "", f"none of header, synced, gap, {', '.join(READERS)} is there")


def _put(document: Json, _subject: str) -> EntryContent:
    extra = Extra(document.get("assumed") is True, text(document, "source"))
    return Put(object_from(mapping(document, "put"), extra))


def _gone(document: Json, subject: str) -> EntryContent:
    inner = mapping(document, "gone")
    kind = _text(inner, "kind", subject)
    if kind not in KINDS:
        raise InvalidObject(subject, "gone.kind", f"must be one of {', '.join(KINDS)}")
    return Gone(kind, _text(inner, "key", subject))


def _reserve(document: Json, subject: str) -> EntryContent:
    inner = mapping(document, "reserve")
    shares = {}
    for name, value in mapping(inner, "shares").items():
        if not isinstance(value, list) or len(value) != 2:
            raise InvalidObject(
                subject, f"reserve.shares.{name}", "must be [vreplicas, slotsPerVReplica]"
            )
        vreplicas, weight = (_count(one, subject, f"reserve.shares.{name}") for one in value)
        shares[name] = Share(vreplicas, max(1, weight))
    return Reserve(
        *_of_vpod(inner, subject),
        _text(inner, "owner", subject),
        shares,
        _seconds(inner, "expires", subject),
    )


def _release(document: Json, subject: str) -> EntryContent:
    inner = mapping(document, "release")
    return Release(*_of_vpod(inner, subject), _text(inner, "owner", subject))


def _expire(document: Json, subject: str) -> EntryContent:
    inner = mapping(document, "expire")
    return Expire(_seconds(inner, "now", subject))


def _forget(document: Json, _subject: str) -> EntryContent:
    return Forget(tuple(str(key) for key in sequence(mapping(document, "forget"), "pods")))


def _close(document: Json, subject: str) -> EntryContent:
    inner = mapping(document, "close")
    ordinals = 0
    for value in sequence(inner, "ordinals"):
        ordinal = _count(value, subject)
        if ordinal > ORDINAL_MAX:
            raise InvalidObject(subject, "close.ordinals", f"must not exceed {ORDINAL_MAX}")
        ordinals |= 1 << ordinal
    return Close(_text(inner, "pool", subject), ordinals)


def _abandon(document: Json, subject: str) -> EntryContent:
    inner = mapping(document, "abandon")
    return Abandon(
        _text(inner, "pool", subject), frozenset(str(name) for name in sequence(inner, "pods"))
    )


def _decision(document: Json, subject: str) -> EntryContent:
    inner = mapping(document, "decision")
    pool, vpod = _of_vpod(inner, subject)
    return Decided(
        Cause(text(inner, "cause")),
        pool,
        vpod,
        _number(inner, "wanted", subject),
        _number(inner, "slotsPerVReplica", subject),
        {name: _count(value, subject) for name, value in mapping(inner, "target").items()},
        _number(inner, "left", subject),
        text(inner, "reason"),
        text(inner, "detail"),
        tuple(
            (str(item[1]), _count(item[0], subject)) for item in _pairs(inner, "refused", subject)
        ),
        tuple(_move(item, vpod, subject) for item in sequence(inner, "moves")),
        tuple(_move(item, vpod, subject) for item in sequence(inner, "asked")),
    )


READERS: Final = {
    "put": _put,
    "decision": _decision,
    "reserve": _reserve,
    "release": _release,
    "gone": _gone,
    "expire": _expire,
    "forget": _forget,
    "close": _close,
    "abandon": _abandon,
}


def _move(item: object, vpod: str, subject: str) -> Move:
    if not isinstance(item, Mapping):
        raise InvalidObject(subject, "moves", "must be objects")
    vreplicas = _number(item, "vreplicas", subject)
    return Move(
        vpod, text(item, "from"), text(item, "to"), vreplicas, MoveReason(text(item, "reason"))
    )


def _pairs(inner: Json, field: str, subject: str) -> list[list[object]]:
    pairs = []
    for item in sequence(inner, field):
        if not isinstance(item, list) or len(item) != 2:
            raise InvalidObject(subject, field, "must be pairs")
        pairs.append(item)
    return pairs


def _of_vpod(inner: Json, subject: str) -> tuple[str, str]:
    return _text(inner, "pool", subject), _text(inner, "vpod", subject)


def _text(inner: Json, field: str, subject: str) -> str:
    value = text(inner, field)
    if not value:
        raise InvalidObject(subject, field, "is required")
    return value


def _seconds(inner: Json, field: str, subject: str) -> float:
    value = inner.get(field)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= SECONDS_MAX
    ):
        raise InvalidObject(subject, field, f"must be seconds, from 0 to {SECONDS_MAX:.0f}")
    return float(value)


def _number(inner: Json, field: str, subject: str) -> int:
    return _count(inner.get(field), subject, field)


def _seq(inner: Json, subject: str) -> int:
    """A ``seq`` may be greater than a count of vreplicas."""
    value = inner.get("seq")
    if type(value) is not int or value < 0:
        raise InvalidObject(subject, "seq", "must be a count")
    return value


def _count(value: object, subject: str, field: str = "") -> int:
    if type(value) is not int or not 0 <= value <= COUNT_MAX:
        raise InvalidObject(subject, field, "must be a count")
    return value
