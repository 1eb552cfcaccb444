"""The assignment: what an adapter pod is told about the vreplicas that it carries, and the
acknowledgement: what the adapter has said of it.

Both are JSON in annotations of the pod, so they survive every process:

.. code-block:: text

    vreplica.dev/assignment    {"generation": 42, "pod": "adapters/dispatcher-3", "uid": "..",
                                "shares": {"team-a/orders": {"vreplicas": 3, "weight": 1, "of": 8,
                                                             "epoch": 7130, "state": "Serve"}}}
                               (with "leaseSeconds": 30 after the UID, if the pool is exclusive)
    vreplica.dev/acknowledged  {"generation": 42, "serving": 11, "busy": ["team-a/orders"]}
                               (with "renewed" and perhaps "expired", if the pool is exclusive)

A share's ``state`` says what the adapter is to do. ``peer``, ``deadline`` and ``intent`` are there
while the share is handed over. ``engine.placing.handover`` has the rules.

An assignment is derived from the pod's ledger and is never ahead of it. ``generation`` grows with
each change. A pod's first one is a number of ``Epochs``, so it is greater than those that the same
pod had before its annotation was removed. ``of`` counts all vreplicas that the vpod asks for.

``epoch`` is a fencing token for writes to outside systems. Whenever a pod gets a share that it did
not have, that share has a greater epoch than any that was stored before for the same vpod. It stays
as it is while the pod keeps the share, however many vreplicas it has. See ``Epochs``. Shares of one
vpod that come to several pods at once have epochs in no certain order, and they may be equal.

In a pool with ``identity: Indexed``, a share has ``indexes``, such as "0-1,5": which of the vpod's
vreplicas are here (``engine.placing.indexes``). Then the epoch grows whenever the pod gets an index
that it did not have, because another pod may have had that one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from extender.model.errors import InvalidObject
from extender.model.indexes import indexes_from, indexes_text
from extender.model.ledger import Ledger
from extender.model.names import ACKNOWLEDGED_BYTES_MAX, ASSIGNMENT_BYTES_MAX
from extender.model.reading import Json, decode_json
from extender.model.safe_repr import safe_repr

_INT64_MAX: Final = 2**63 - 1


class AssignmentTooLarge(ValueError):
    """An annotation that would be longer than its limit."""


DRAINS_BYTES: Final = 1024
"""Kept free for drains, which take more bytes than what is served. So some can always begin."""


class ShareState(StrEnum):
    """What an adapter is to do with a share."""

    PREPARE = "Prepare"
    """Get ready, and do not serve yet."""
    SERVE = "Serve"
    DRAIN = "Drain"
    """Finish, and let go by the deadline. A peer serves the share already."""


class AssignedShare(NamedTuple):
    """The vreplicas of one vpod that a pod carries. ``of``: all vreplicas of the vpod.

    ``peer``: name of a pod that has the share before or after this one. ``deadline``: when a share
    that is drained is taken away, RFC 3339. ``intent``: why it goes. ``indexes``: see
    ``model.indexes``. Each is "" if there is none.
    """

    vreplicas: int
    weight: int
    of: int
    epoch: int
    state: ShareState = ShareState.SERVE
    peer: str = ""
    deadline: str = ""
    intent: str = ""
    indexes: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one pod is told. ``pod``: its key; ``shares``: by vpod key."""

    generation: int
    pod: str
    uid: str
    shares: Mapping[str, AssignedShare]
    lease_s: int = 0
    """leaseSeconds: the adapter serves for so long after its last acknowledgement at most. 0: it
    needs no lease.
    """


class ShareInstruction(NamedTuple):
    """What an adapter is told to do with one share: fields of ``AssignedShare``. ``vreplicas``: not
    all that the ledger has; None for all. ``indexes``: a set, None in pools without indexes.
    ``epoch_over``: an epoch that is no greater was given before one of the indexes was another
    pod's. ``of``: at least so many, because minPodsPerVPod has raised the vpod's number.
    """

    state: ShareState = ShareState.SERVE
    peer: str = ""
    deadline: str = ""
    intent: str = ""
    vreplicas: int | None = None
    indexes: int | None = None
    epoch_over: int = 0
    of: int = 0


def serve(_vpod: str, _current: AssignedShare | None) -> ShareInstruction:
    """What is told in a pool that hands nothing over."""
    return ShareInstruction()


def next_assignment(  # noqa: PLR0913 (each is another part of what is told)
    before: Assignment | None,
    pod: tuple[str, str],
    ledger: Ledger,
    of: Mapping[str, int],
    next_epoch: Callable[[], int],
    instruct: Callable[[str, AssignedShare | None], ShareInstruction] = serve,
    *,
    lease_s: int = 0,
) -> Assignment | None:
    """Return what a pod is told after ``before``, None if that is still right.

    ``before``: the pod's own assignment, None if it has none. ``pod``: key and UID. ``of``: vpod
    key -> its vreplicas, for the vpods that exist. ``next_epoch``: called once if there are shares
    that are new here, for their epoch, or if there is no assignment yet, for its generation.
    ``instruct``: (vpod key, what the pod is told now) -> what it is to do. ``lease_s``: see
    ``Assignment``.

    A share that is served again after it was drained counts as new: another pod may have served it
    meanwhile.
    """
    key, uid = pod
    known = before.shares if before is not None else {}
    instructions = {vpod: instruct(vpod, known.get(vpod)) for vpod in ledger}
    new = {vpod for vpod, told in instructions.items() if _is_new(known.get(vpod), told)}
    epoch = next_epoch() if before is None or new else 0
    shares = {}
    for vpod, share in ledger.items():
        current, told = known.get(vpod), instructions[vpod]
        if told.vreplicas == 0:
            continue
        wanted = of.get(vpod) or (current.of if current is not None else share.vreplicas)
        shares[vpod] = AssignedShare(
            share.vreplicas if told.vreplicas is None else told.vreplicas,
            share.weight,
            max(wanted, told.of, (told.indexes or 0).bit_length()),
            current.epoch if current is not None and vpod not in new else epoch,
            told.state,
            told.peer,
            told.deadline,
            told.intent,
            indexes_text(told.indexes or 0),
        )
    if before is not None and (shares, lease_s) == (before.shares, before.lease_s):
        return None
    generation = before.generation + 1 if before is not None else epoch
    return Assignment(generation, key, uid, shares, lease_s)


def _is_new(current: AssignedShare | None, told: ShareInstruction) -> bool:
    if current is None or (
        current.state is ShareState.DRAIN and told.state is not ShareState.DRAIN
    ):
        return True
    if told.indexes is None:
        return False
    return current.epoch <= told.epoch_over or told.indexes & ~indexes_from(current.indexes) != 0


class Epochs:
    """Gives epochs from 1, each greater than all that are known to be stored.

    An epoch is the newest resourceVersion of pods that this replica knows, and no greater number.
    The write that stores it gets a greater version. A later leader has seen that write, so all that
    it gives is greater, although the pod with the epoch may be gone by then. A failed write leaves
    no trace: the same epoch is given again until something is stored.

    ``note`` adds the epochs that are stored. They count where they are ahead of the versions: after
    a restore of etcd, and until the watch has brought this replica's own writes.
    """

    def __init__(self, seen_version: Callable[[], int]) -> None:
        self._seen_version = seen_version
        self._stored = 0

    def note(self, assignment: Assignment) -> None:
        """Give only greater epochs than those of ``assignment``, which is stored, from now on."""
        self._stored = max(
            self._stored, max((share.epoch for share in assignment.shares.values()), default=0)
        )

    def next(self, at_least: int = 0) -> int:
        """Return the next epoch. ``at_least``: a resourceVersion that may be newer than those that
        the watch has brought.
        """
        return max(self._seen_version(), at_least, self._stored + 1)


def fitting(assignment: Assignment, before: Mapping[str, AssignedShare]) -> Assignment:
    """Return ``assignment`` as far as the annotation may hold it. ``before``: what is told now.

    Shares that are new and do not fit are left out, the last ones by their keys. Shares whose text
    has grown are told as before. ``DRAINS_BYTES`` stay free for drains, and drains that do not fit
    there either wait: their shares are told as before.
    """
    empty = len(_encoded(replace(assignment, shares={})))
    sizes = {key: _size(key, share) for key, share in assignment.shares.items()}
    most = ASSIGNMENT_BYTES_MAX - empty
    if sum(sizes.values()) <= most - DRAINS_BYTES:
        return assignment
    shares, told = dict(assignment.shares), {key: _size(key, before[key]) for key in before}
    drains = {
        key
        for key, share in shares.items()
        if key in before and share.state is ShareState.DRAIN and sizes[key] > told[key]
    }
    lasting = sum([told[key] if key in drains else size for key, size in sizes.items()])
    by_key = sorted(shares, reverse=True)
    for key in by_key:
        if lasting > most - DRAINS_BYTES and key not in before:
            lasting -= sizes[key]
            del shares[key]
    for key in by_key:
        grown = sizes[key] - told[key] if key in before and key not in drains else 0
        if lasting > most - DRAINS_BYTES and grown > 0:
            lasting -= grown
            shares[key] = before[key]
    left = most - sum([_size(key, share) for key, share in shares.items()])
    for key in by_key:
        if left < 0 and key in drains:
            left += sizes[key] - told[key]
            shares[key] = before[key]
    for key in by_key:  # a pool that becomes exclusive adds a lease
        if left < 0 and key in shares:
            left += _size(key, shares.pop(key))
    return replace(assignment, shares=shares)


def _size(key: str, share: AssignedShare) -> int:
    """Bytes of a share in the annotation, with a comma."""
    return len(orjson.dumps({key: _plain(share)})) - 1


def encode_assignment(assignment: Assignment) -> str:
    """Return the annotation's text. Raises AssignmentTooLarge (see ``fitting``)."""
    text = _encoded(assignment)
    if len(text) > ASSIGNMENT_BYTES_MAX:
        raise AssignmentTooLarge(
            f"the assignment of {len(text)} bytes is over the limit of {ASSIGNMENT_BYTES_MAX}"
        )
    return text.decode()


def _encoded(assignment: Assignment) -> bytes:
    return orjson.dumps(
        {
            "generation": assignment.generation,
            "pod": assignment.pod,
            "uid": assignment.uid,
            **({"leaseSeconds": assignment.lease_s} if assignment.lease_s else {}),
            "shares": {key: _plain(share) for key, share in sorted(assignment.shares.items())},
        }
    )


def _plain(share: AssignedShare) -> dict[str, object]:
    return {name: value for name, value in share._asdict().items() if value != ""}


def decode_assignment(text: str | None, uid: str = "") -> Assignment | None:
    """Read the annotation of the pod with this UID ("": of any).

    None if it is absent, or is not what ``encode_assignment`` has written: then a person has edited
    it, and it is written anew. None too if it has the UID of the ordinal's previous pod.
    """
    if not text:
        return None
    try:
        plain = orjson.loads(text)
        shares = {
            str(key): AssignedShare(
                _count(one["vreplicas"]),
                _count(one["weight"]),
                _count(one["of"]),
                _count(one["epoch"]),
                ShareState(one["state"]),
                str(one.get("peer", "")),
                str(one.get("deadline", "")),
                str(one.get("intent", "")),
                _indexes(one),
            )
            for key, one in plain["shares"].items()
        }
        generation, pod = _count(plain["generation"]), str(plain["pod"])
        told_uid, lease_s = str(plain["uid"]), _count(plain.get("leaseSeconds", 0))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if uid not in {"", told_uid}:
        return None
    return Assignment(generation, pod, told_uid, MappingProxyType(shares), lease_s)


def _indexes(share: Json) -> str:
    text = str(share.get("indexes", ""))
    if text and indexes_from(text).bit_count() != share["vreplicas"]:
        raise ValueError
    return text


_LEASE: Final = re.compile(r'"leaseSeconds":(\d{1,9})[,}]')
_HEAD_CHARS: Final = 1_000
"""More than what stands before the shares."""


def lease_of(assignment_text: str | None) -> int:
    """The lease (s) that an annotation tells of, without decoding it; 0 for none."""
    found = _LEASE.search(assignment_text, 0, _HEAD_CHARS) if assignment_text else None
    return int(found[1]) if found is not None else 0


_GENERATION: Final = re.compile(r'\{"generation":(\d{1,19})[,}]')


def generation_of(text: str | None) -> int:
    """The generation of an annotation of either kind, without decoding the rest of it; 0 for none,
    or for one that is not ours.
    """
    if text and (found := _GENERATION.match(text)):
        return int(found[1])
    known = decode_assignment(text) or decode_acknowledged(text)
    return known.generation if known is not None else 0


def awaits_acknowledgement(assignment_text: str | None, acknowledged_text: str | None) -> bool:
    """Whether an adapter has not acknowledged the newest assignment that is stored on its pod."""
    return generation_of(assignment_text) > generation_of(acknowledged_text)


def left_to_do(assignment_text: str | None, acknowledged_text: str | None) -> str:
    """What a pod's adapter has still to do, in words; "" if it serves as it is told. It mostly
    looks for words in the texts, because views ask for many pods.
    """
    if not assignment_text:
        return ""
    counts = {state: assignment_text.count(f'"state":"{state}"') for state in ShareState}
    counts[ShareState.SERVE] = unserved_shares(assignment_text, acknowledged_text)
    found = [f"{count} to {state.lower()}" for state, count in counts.items() if count]
    if awaits_acknowledgement(assignment_text, acknowledged_text):
        found.append("unacknowledged")
    if is_expired(acknowledged_text):
        found.append("lease expired")
    return ", ".join(found)


def unserved_shares(assignment_text: str, acknowledged_text: str | None) -> int:
    """How many shares an adapter was told to serve, and has said that it does not; 0 if it has not
    acknowledged the newest assignment.
    """
    if not acknowledged_text or '"busy":' not in acknowledged_text:
        return 0
    said = decode_acknowledged(acknowledged_text)
    if said is None or awaits_acknowledgement(assignment_text, acknowledged_text):
        return 0
    return max(0, assignment_text.count(f'"state":"{ShareState.SERVE}"') - said.serving)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _INT64_MAX:
        raise ValueError
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """What an adapter says of its assignment of ``generation``. ``busy``: shares for which it has
    not yet done what their state asks. ``load``: vpod key -> load, as for ``POST /v1/load``.
    """

    uid: str
    generation: int
    serving: frozenset[str]
    draining: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()
    load: Mapping[str, float] = field(default_factory=dict)

    def problem(self, assignment: Assignment) -> str:
        """Why its shares do not go with those of ``assignment``, or with each other; "" if they
        do. The caller has compared UID and generation.
        """
        for name in _LISTS:
            if unknown := getattr(self, name) - assignment.shares.keys():
                return f"{name} has {safe_repr(min(unknown), 300)}, which is not assigned"
        if both := self.serving & self.drained:
            return f"serving and drained both have {safe_repr(min(both), 300)}"
        return ""

    def undone(self, assignment: Assignment) -> frozenset[str]:
        """The shares of ``assignment`` for which the adapter has not yet done what their state
        asks: those in ``busy``, what it should serve and does not, what it has not let go, and what
        it should get ready for and lets go of instead. It does that when it is about to end.
        """
        done = {ShareState.SERVE: self.serving, ShareState.DRAIN: self.drained}
        return self.busy | {
            key
            for key, share in assignment.shares.items()
            if (
                key not in done[share.state]
                if share.state in done
                else key in self.draining or key in self.drained
            )
        }


_ALL: Final = "*"
"""Stands for the names of all shares."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What is stored of an acknowledgement: no load, and of what is served only the number."""

    generation: int
    serving: int
    busy: frozenset[str] = frozenset()
    """Shares for which the adapter has not yet done what their state asks."""
    all_busy: bool = False
    """Whether every share counts as one of ``busy``, because their names do not fit."""
    renewed: str = ""
    """With a lease: when it was last renewed, as far as that is stored (RFC 3339); else ""."""
    expired: bool = False
    """Whether the leader has found that the lease has run out (``pools.adapter_leases``)."""

    def is_busy(self, vpod: str) -> bool:
        """Whether the adapter has not yet done what the state of that share asks."""
        return self.all_busy or vpod in self.busy


NEVER_ACKNOWLEDGED: Final = Acknowledged(0, 0)
"""Of an adapter that was told of a lease and has said nothing. The annotation has it only with
``expired``.
"""


def acknowledged(acknowledgement: Acknowledgement, assignment: Assignment) -> Acknowledged:
    """Return what is to be stored of an acknowledgement of ``assignment``."""
    undone = acknowledgement.undone(assignment)
    serving = (
        1
        for key, share in assignment.shares.items()
        if share.state is ShareState.SERVE and key not in undone
    )
    return Acknowledged(assignment.generation, sum(serving), undone)


def encode_acknowledged(known: Acknowledged) -> str:
    """Return the annotation's text, of at most ``ACKNOWLEDGED_BYTES_MAX`` bytes.

    If the names of the busy shares do not fit, all shares count as busy. A refusal would end the
    lease of an adapter that has just begun, so it could serve nothing (seed 20732048).
    """
    plain: dict[str, object] = {"generation": known.generation, "serving": known.serving}
    if known.busy:
        plain["busy"] = sorted(known.busy)
    lease: dict[str, object] = {"renewed": known.renewed} if known.renewed else {}
    if known.expired:
        lease["expired"] = True
    text = orjson.dumps({**plain, **lease})
    if known.all_busy or len(text) > ACKNOWLEDGED_BYTES_MAX:
        text = orjson.dumps({**plain, "busy": _ALL, **lease})
    return text.decode()


def decode_acknowledged(text: str | None) -> Acknowledged | None:
    """Read the annotation; None if it is absent or not ours, or only says that a lease has run out
    (``NEVER_ACKNOWLEDGED``).
    """
    if not text:
        return None
    try:
        plain = orjson.loads(text)
        busy = plain.get("busy", [])
        all_busy = busy == _ALL
        if not (all_busy or isinstance(busy, list)):
            return None
        known = Acknowledged(
            _count(plain["generation"]),
            _count(plain["serving"]),
            frozenset(() if all_busy else map(str, busy)),
            all_busy,
            str(plain.get("renewed", "")),
            plain.get("expired") is True,
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return known if known.generation else None


def is_expired(acknowledged_text: str | None) -> bool:
    """Whether the annotation says that the adapter's lease has run out. It only looks for the
    words: in a name, the quotes would be escaped.
    """
    return acknowledged_text is not None and '"expired":true' in acknowledged_text


def is_renewed(acknowledged_text: str | None) -> bool:
    """Whether the annotation says that the adapter has had a lease that has not run out."""
    return (
        acknowledged_text is not None
        and '"renewed":' in acknowledged_text
        and not is_expired(acknowledged_text)
    )


# -- what an adapter sends -------------------------------------------------------------------------

SHARES_MAX: Final = 5_000
"""In one list of a request."""
_LISTS: Final = ("serving", "draining", "drained", "busy")
_SUBJECT: Final = "acknowledgement"


def acknowledgement_from(body: bytes) -> Acknowledgement:
    """Decode a request. Fields that are not known are ignored: an adapter's library may be newer.
    Raises InvalidObject, which names the field.
    """
    try:
        root = decode_json(body)
    except ValueError as error:
        raise InvalidObject(_SUBJECT, "", f"the body {error}") from error
    if not isinstance(root, dict):
        raise InvalidObject(_SUBJECT, "", "the body is no object")
    uid, generation = root.get("uid"), root.get("generation")
    if not isinstance(uid, str) or not uid or len(uid) > 253:
        raise InvalidObject(_SUBJECT, "uid", "must be the pod's UID")
    if type(generation) is not int or not 1 <= generation <= _INT64_MAX:
        raise InvalidObject(
            _SUBJECT, "generation", f"must be a number from 1, not {safe_repr(generation, 80)}"
        )
    lists = {field: _keys(root, field) for field in _LISTS}
    return Acknowledgement(uid=uid, generation=generation, load=_load(root), **lists)


def _keys(root: Json, field: str) -> frozenset[str]:
    listed = root.get(field, [])
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise InvalidObject(_SUBJECT, field, "must be a list of vpod keys")
    if len(listed) > SHARES_MAX:
        raise InvalidObject(
            _SUBJECT, field, f"has {len(listed)} entries, and the limit is {SHARES_MAX}"
        )
    return frozenset(listed)


def _load(root: Json) -> Mapping[str, float]:
    load = root.get("load", {})
    if not isinstance(load, dict) or len(load) > SHARES_MAX:
        raise InvalidObject(
            _SUBJECT, "load", f"must be an object of at most {SHARES_MAX} numbers by vpod key"
        )
    for key, value in load.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidObject(
                _SUBJECT, f"load[{safe_repr(key, 80)}]", f"is no number: {safe_repr(value, 80)}"
            )
        if value < 0:
            raise InvalidObject(
                _SUBJECT, f"load[{safe_repr(key, 80)}]", f"is negative: {safe_repr(value, 80)}"
            )
    return {key: float(value) for key, value in load.items()}
