"""What a recording says, entry by entry (``lines``: how that is written). Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from extender.engine.placing.plan import Decision
from extender.engine.state.state_observer import Recorded
from extender.model.ledger import Share
from extender.model.moves import Move
from extender.whatif.recording.objects import kind_of, manifest_of


class Cause(StrEnum):
    """Who has decided: placing, the evictor, or a caller that keeps its own status; ``gone``: the
    vpod is.
    """

    PLACE = "place"
    MOVE = "move"
    SCHEDULE = "schedule"
    GONE = "gone"


class Put(NamedTuple):
    """An object came or changed."""

    obj: Recorded


class Gone(NamedTuple):
    """An object went."""

    kind: str
    key: str


class Reserve(NamedTuple):
    """See ``StateObserver.reserved``. ``owner``: only whether two are the same counts."""

    pool: str
    vpod: str
    owner: str
    shares: Mapping[str, Share]
    expires_at: float


class Release(NamedTuple):
    """See ``StateObserver.released``."""

    pool: str
    vpod: str
    owner: str


class Expire(NamedTuple):
    """See ``StateObserver.expired``."""

    now: float


class Forget(NamedTuple):
    """See ``StateObserver.forgotten``: keys of pods."""

    pods: tuple[str, ...]


class Close(NamedTuple):
    """See ``StateObserver.closed``: a bit set."""

    pool: str
    ordinals: int


class Abandon(NamedTuple):
    """See ``StateObserver.abandoned``."""

    pool: str
    pods: frozenset[str]


class Decided(NamedTuple):
    """A decision in the few words that are compared. ``wanted``, ``left``: vreplicas; ``asked``:
    the moves it carries out.
    """

    cause: Cause
    pool: str
    vpod: str
    wanted: int
    weight: int
    target: Mapping[str, int]
    left: int
    reason: str = ""
    detail: str = ""
    refused: tuple[tuple[str, int], ...] = ()
    moves: tuple[Move, ...] = ()
    asked: tuple[Move, ...] = ()

    @property
    def outcome(self) -> tuple[Mapping[str, int], int, int]:
        """Where all goes: two decisions with the same are the same, whatever words they have for
        it.
        """
        return self.target, self.weight, self.left


What: TypeAlias = Put | Gone | Reserve | Release | Expire | Forget | Close | Abandon | Decided


class Entry(NamedTuple):
    """A change or a decision, at its time (epoch seconds) and place."""

    at: float
    seq: int
    what: What


class Header(NamedTuple):
    """What a recording, or a new snapshot in one, begins with.

    ``source``: ``replica`` or ``cluster``. ``journal``: of one process; a ``seq`` means something
    in the same one only.
    """

    source: str
    at: float
    version: str = ""
    identity: str = ""
    leader: str = ""
    journal: str = ""
    profiles: tuple[str, ...] = ()


class Synced(NamedTuple):
    """The snapshot is whole; the next entry is the one after ``seq``."""

    seq: int


class Gap(NamedTuple):
    """Something is missing here."""

    why: str


Line: TypeAlias = Header | Synced | Gap | Entry


def decided(cause: Cause, decision: Decision, asked: tuple[Move, ...] = ()) -> Decided:
    """A decision as it is recorded. One that was not made, because no move was possible any more,
    is never recorded.
    """
    explanation = decision.explanation
    return Decided(
        cause,
        decision.pool,
        decision.vpod,
        explanation.wanted,
        decision.weight,
        dict(decision.target),
        decision.left,
        str(explanation.reason or ""),
        explanation.detail,
        explanation.refused,
        decision.moves,
        asked,
    )


def entry_of_change(
    at: float, seq: int, old: Recorded | None, new: Recorded | None
) -> Entry | None:
    """The entry of a changed object; None where nothing that is recorded has changed."""
    if new is not None:
        if old is not None and manifest_of(old) == manifest_of(new):
            return None
        return Entry(at, seq, Put(new))
    return Entry(at, seq, Gone(kind_of(old), old.key)) if old is not None else None
