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

from collections.abc import Callable, Mapping
from typing import Final

from extender.engine.pods.bits import bits
from extender.model.amounts import NO_AMOUNTS, amounts_from
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
from extender.whatif.recording.objects import KINDS, object_from, put_of

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
            return put_of(obj)
        case Gone():
            return {"gone": content._asdict()}
        case Reserve(pool, vpod, owner, shares, expires_at):
            plain = {
                name: [
                    share.vreplicas,
                    share.weight,
                    *([dict(share.amounts)] if share.amounts else ()),
                ]
                for name, share in shares.items()
            }
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
        case Close(pool, ordinals, in_doubt):
            doubtful = {"inDoubt": list(bits(in_doubt))} if in_doubt else {}
            return {"close": {"pool": pool, "ordinals": list(bits(ordinals)), **doubtful}}
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
        **({"start": decided.start} if decided.start else {}),
    }


def _move_to_json(move: Move) -> dict[str, object]:
    return {
        "from": move.from_pod,
        "to": move.to_pod,
        "vreplicas": move.vreplicas,
        "reason": str(move.reason),
    }


# -- reading ---------------------------------------------------------------------------------------


class _Part:
    """One part of a line. What reads a field raises InvalidObject, which names ``subject``."""

    def __init__(self, line: Json, name: str, subject: str) -> None:
        self.line = line
        self.fields = mapping(line, name) if name else line
        self.subject = subject

    def wrong(self, field: str, problem: str) -> InvalidObject:
        return InvalidObject(self.subject, field, problem)

    def text(self, field: str) -> str:
        """A text that may be missing."""
        return text(self.fields, field)

    def name(self, field: str) -> str:
        if value := self.text(field):
            return value
        raise self.wrong(field, "is required")

    def names(self, field: str) -> tuple[str, ...]:
        return tuple(str(name) for name in sequence(self.fields, field))

    def seconds(self, field: str) -> float:
        value = self.fields.get(field)
        if type(value) not in {int, float} or not 0 <= value <= SECONDS_MAX:  # type: ignore[operator]
            raise self.wrong(field, f"must be seconds, from 0 to {SECONDS_MAX:.0f}")
        return float(value)  # type: ignore[arg-type]

    def seq(self) -> int:
        """A ``seq`` may be greater than a count of vreplicas."""
        value = self.fields.get("seq")
        if type(value) is not int or value < 0:
            raise self.wrong("seq", "must be a count")
        return value

    def number(self, field: str) -> int:
        return self.count(self.fields.get(field), field)

    def count(self, value: object, field: str = "") -> int:
        if type(value) is not int or not 0 <= value <= COUNT_MAX:
            raise self.wrong(field, "must be a count")
        return value

    def pair(self, value: object, field: str, problem: str) -> list[object]:
        if not isinstance(value, list) or len(value) != 2:
            raise self.wrong(field, problem)
        return value

    def moves(self, field: str) -> tuple[Move, ...]:
        return tuple(self._move(item) for item in sequence(self.fields, field))

    def _move(self, item: object) -> Move:
        if not isinstance(item, Mapping):
            raise self.wrong("moves", "must be objects")
        move = _Part(item, "", self.subject)
        count, reason = move.number("vreplicas"), MoveReason(move.text("reason"))
        return Move(self.name("vpod"), move.text("from"), move.text("to"), count, reason)


def line_from(document: object, subject: str) -> Line:
    """Read a line. Raises InvalidObject, which names ``subject``, for anything else."""
    if not isinstance(document, Mapping):
        raise InvalidObject(subject, "", "is no JSON object")
    try:
        if "header" in document:
            return _header(_Part(document, "header", subject))
        if "synced" in document:
            return Synced(_Part(document, "synced", subject).seq())
        if "gap" in document:
            return Gap(text(document, "gap", "why"))
        line = _Part(document, "", subject)
        return Entry(line.seconds("at"), line.seq(), _content(document, subject))
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidObject(subject, "", f"cannot be read: {error}"[:300]) from error


def _header(header: _Part) -> Header:
    if header.text("format") != FORMAT:
        raise header.wrong("header.format", f"must be {FORMAT}: is it a recording of ours?")
    version = header.number("formatVersion")
    if version > FORMAT_VERSION:
        newer = f"{version} is newer than {FORMAT_VERSION}, which this version reads"
        raise header.wrong("header.formatVersion", newer)
    return Header(
        header.text("source"),
        header.seconds("at"),
        header.text("version"),
        header.text("identity"),
        header.text("leader"),
        header.text("journal"),
        header.names("profiles"),
    )


def _content(document: Json, subject: str) -> EntryContent:
    for name, read in READERS.items():
        if name in document:
            return read(_Part(document, name, subject))
    raise InvalidObject(subject, "", f"none of header, synced, gap, {', '.join(READERS)} is there")


def _gone(part: _Part) -> EntryContent:
    kind = part.name("kind")
    if kind not in KINDS:
        raise part.wrong("gone.kind", f"must be one of {', '.join(KINDS)}")
    return Gone(kind, part.name("key"))


def _reserve(part: _Part) -> EntryContent:
    shares = {}
    for name, value in mapping(part.fields, "shares").items():
        field, what = f"reserve.shares.{name}", "must be [vreplicas, slotsPerVReplica]"
        size, amounts = value, NO_AMOUNTS
        if isinstance(value, list) and len(value) == 3:
            amounts = amounts_from(value[2], part.subject, field)
            size = value[:2]
        vreplicas, weight = (part.count(one, field) for one in part.pair(size, field, what))
        shares[name] = Share(vreplicas, max(1, weight), amounts)
    pool, vpod, owner = part.name("pool"), part.name("vpod"), part.name("owner")
    return Reserve(pool, vpod, owner, shares, part.seconds("expires"))


def _close(part: _Part) -> EntryContent:
    ordinals, in_doubt = _ordinals(part, "ordinals"), 0
    if "inDoubt" in part.fields:
        in_doubt = _ordinals(part, "inDoubt")
    return Close(part.name("pool"), ordinals, in_doubt)


def _ordinals(part: _Part, field: str) -> int:
    ordinals = 0
    for value in sequence(part.fields, field):
        ordinal = part.count(value)
        if ordinal > ORDINAL_MAX:
            raise part.wrong(f"close.{field}", f"must not exceed {ORDINAL_MAX}")
        ordinals |= 1 << ordinal
    return ordinals


def _decision(part: _Part) -> EntryContent:
    refused = [
        part.pair(item, "refused", "must be pairs") for item in sequence(part.fields, "refused")
    ]
    return Decided(
        Cause(part.text("cause")),
        part.name("pool"),
        part.name("vpod"),
        part.number("wanted"),
        part.number("slotsPerVReplica"),
        {name: part.count(value) for name, value in mapping(part.fields, "target").items()},
        part.number("left"),
        part.text("reason"),
        part.text("detail"),
        tuple((str(why), part.count(count)) for count, why in refused),
        part.moves("moves"),
        part.moves("asked"),
        part.count(part.fields.get("start", 0), "start"),
    )


READERS: Final[Mapping[str, Callable[[_Part], EntryContent]]] = {
    "put": lambda part: Put(object_from(part.line)),
    "decision": _decision,
    "reserve": _reserve,
    "release": lambda part: Release(part.name("pool"), part.name("vpod"), part.name("owner")),
    "gone": _gone,
    "expire": lambda part: Expire(part.seconds("now")),
    "forget": lambda part: Forget(part.names("pods")),
    "close": _close,
    "abandon": lambda part: Abandon(part.name("pool"), frozenset(part.names("pods"))),
}
