"""The entries of a recording. ``lines`` says how they are written. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from extender.engine.placing.plan import Decision
from extender.engine.state.state_observer import Recorded
from extender.model.ledger import Share
from extender.model.moves import Move
from extender.whatif.recording.objects import kind_of, put_of


class Cause(StrEnum):
    """What has decided: placing, the evictor, or a ``schedule`` call of a client that keeps its own
    status. ``gone``: the vpod no longer exists. ``stay``: placing, after a hand-over was taken
    back.
    """

    PLACE = "place"
    MOVE = "move"
    SCHEDULE = "schedule"
    GONE = "gone"
    STAY = "stay"


class Put(NamedTuple):
    """An object came or changed."""

    obj: Recorded


class Gone(NamedTuple):
    """An object went."""

    kind: str
    key: str


class Reserve(NamedTuple):
    """See ``StateObserver.reserved``. ``owner`` only tells whether two reservations have the same
    owner.
    """

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
    """See ``StateObserver.closed``: bit sets."""

    pool: str
    ordinals: int
    in_doubt: int = 0


class Abandon(NamedTuple):
    """See ``StateObserver.abandoned``."""

    pool: str
    pods: frozenset[str]


class Decided(NamedTuple):
    """The parts of a decision that are compared. ``wanted``, ``left``: vreplicas. ``asked``: the
    moves that it carries out. ``start``: the ordinal at which ties started.
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
    start: int = 0

    @property
    def outcome(self) -> tuple[Mapping[str, int], int, int]:
        """What makes two decisions the same, whatever their reasons: placements, weight, vreplicas
        left.
        """
        return self.target, self.weight, self.left


EntryContent: TypeAlias = (
    Put | Gone | Reserve | Release | Expire | Forget | Close | Abandon | Decided
)


class Entry(NamedTuple):
    """A change or a decision, with its time (epoch seconds) and number."""

    at: float
    seq: int
    content: EntryContent


class Header(NamedTuple):
    """The first line of a recording, and of each new snapshot in it.

    ``source``: ``replica`` or ``cluster``. ``journal`` identifies one process; a ``seq`` is valid
    only within the same journal.
    """

    source: str
    at: float
    version: str = ""
    identity: str = ""
    leader: str = ""
    journal: str = ""
    profiles: tuple[str, ...] = ()


class Synced(NamedTuple):
    """The snapshot is complete. The next entry is the one after ``seq``."""

    seq: int


class Gap(NamedTuple):
    """Entries are missing here."""

    why: str


Line: TypeAlias = Header | Synced | Gap | Entry


def decided(cause: Cause, decision: Decision, asked: tuple[Move, ...] = ()) -> Decided:
    """Make the entry of a decision. Callers do not record that no move was possible any more."""
    explanation = decision.explanation
    return Decided(
        cause,
        decision.pool,
        decision.vpod,
        explanation.wanted,
        decision.weight,
        dict(decision.target),
        decision.pending,
        str(explanation.reason or ""),
        explanation.detail,
        explanation.refused,
        decision.moves,
        asked,
        decision.tie_start,
    )


def entry_of_change(
    at: float, seq: int, old: Recorded | None, new: Recorded | None
) -> Entry | None:
    """The entry of a changed object; None if nothing that is recorded has changed."""
    if new is not None:
        if old is not None and put_of(old) == put_of(new):
            return None
        return Entry(at, seq, Put(new))
    return Entry(at, seq, Gone(kind_of(old), old.key)) if old is not None else None
