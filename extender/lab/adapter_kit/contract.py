"""What an adapter may do and say, given what it was told: pure, without I/O.

An adapter learns of an assignment at some moment after it was sent, and says so by acknowledging
it. So what it does at a moment must be right by one of the assignments from the last that it has
acknowledged to the newest that it was told. Acknowledgements and work are taken in the order in
which they happened: the caller reads the work log before it takes an acknowledgement.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from extender.lab.adapter_kit.worklog import Piece
from extender.model.assignment import (
    Acknowledgement,
    AssignedShare,
    Assignment,
    ShareState,
    acknowledgement_from,
)
from extender.model.errors import InvalidObject
from extender.model.indexes import indexes_from

REVOKED_GRACE_S: Final = 0.5
"""How long work may go on after the adapter has acknowledged that a share is gone: its end and the
acknowledgement happen at once.
"""
VIOLATIONS_MAX: Final = 100


class Answer(NamedTuple):
    """To a request."""

    status: int
    body: Mapping[str, object]
    retry_after_s: int = 0


class Contract:
    """One adapter pod. ``violations``: what the adapter has done wrong, in order."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._told: dict[int, Assignment] = {}
        self.said: Acknowledgement | None = None
        """The last acknowledgement that was taken."""
        self.outdated: int | None = None
        """The generation of the last acknowledgement, if it was refused because of a newer one."""
        self.violations: list[str] = []
        self._said_at = 0.0
        self._epochs: dict[tuple[str, int | None], int] = {}
        """The epoch under which each index of each share was last seen to be worked on."""

    def tell(self, assignment: Assignment) -> None:
        """Take that the adapter is told ``assignment`` from now on."""
        self._told[assignment.generation] = assignment

    @property
    def newest(self) -> Assignment:
        """The newest assignment."""
        return self._told[max(self._told)]

    def hear(self, body: bytes, now: float) -> Answer:
        """Take an acknowledgement, and answer as the service does."""
        try:
            said = acknowledgement_from(body)
        except InvalidObject as error:
            return self._refuse(400, f"its acknowledgement is malformed: {error}")
        if said.uid != self._uid:
            return self._refuse(403, f"it acknowledges with the UID {said.uid[:80]!r}")
        newest, self.outdated = self.newest, None
        if said.generation > newest.generation:
            return self._refuse(
                409, f"it acknowledges generation {said.generation}, which it was not told"
            )
        if self.said is not None and said.generation < self.said.generation:
            self.violate(
                f"it acknowledges generation {said.generation} after {self.said.generation}"
            )
        if said.generation < newest.generation:
            self.outdated = said.generation
            return Answer(
                409, {"error": "another generation by now", "generation": newest.generation}
            )
        if problem := said.problem(newest):
            return self._refuse(422, f"its acknowledgement is wrong: {problem}")
        for key in sorted(said.serving):
            if newest.shares[key].state is ShareState.PREPARE:
                self.violate(f"it says that it serves {key}, which it was told to prepare only")
        self.said, self._said_at = said, now
        return Answer(200, {"generation": said.generation, "stored": True})

    def work(self, piece: Piece, now: float) -> None:
        """Take that a piece of work was done for a share."""
        key, epoch, index = piece.key, piece.epoch, piece.index
        before = self._epochs.get((key, index))
        if self._may_work(piece, before, now):
            self._epochs[key, index] = epoch
        else:
            of_index = "" if index is None else f" index {index} of"
            self.violate(f"it works on{of_index} {key} with epoch {epoch}, {self._why(key)}")

    def _may_work(self, piece: Piece, before: int | None, now: float) -> bool:
        from_generation = self.said.generation if self.said is not None else -1
        for generation in sorted(self._told):
            share = self._told[generation].shares.get(piece.key)
            if generation < from_generation:
                continue
            if generation > from_generation:
                if share is not None and _asks_for_work(share, piece):
                    return True
            elif self._may_work_as_said(share, piece, before, now):
                return True
        return False

    def _may_work_as_said(
        self, share: AssignedShare | None, piece: Piece, before: int | None, now: float
    ) -> bool:
        """By the assignment that was acknowledged last."""
        assert self.said is not None
        key, epoch = piece.key, piece.epoch
        if share is None:
            return epoch == before and now <= self._said_at + REVOKED_GRACE_S
        if key in self.said.drained:
            return False
        if _asks_for_work(share, piece):
            return True
        is_changing = key in self.said.busy or key not in self.said.serving
        return share.state is ShareState.SERVE and is_changing and epoch == before

    def _why(self, key: str) -> str:
        share = self.newest.shares.get(key)
        if share is None:
            return "which is not assigned to it"
        if self.said is not None and key in self.said.drained:
            return "of which it has said that it is drained"
        which = f" the indexes {share.indexes}" if share.indexes else ""
        return f"which it was told to {share.state.lower()}{which} with epoch {share.epoch}"

    def _refuse(self, status: int, problem: str) -> Answer:
        self.violate(problem)
        return Answer(status, {"error": problem})

    def violate(self, problem: str) -> None:
        """Note what the adapter has done wrong."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(problem)


def _asks_for_work(share: AssignedShare, piece: Piece) -> bool:
    if share.state is ShareState.PREPARE or share.epoch != piece.epoch:
        return False
    if piece.index is None or not share.indexes:
        return True
    return piece.index >= 0 and indexes_from(share.indexes) >> piece.index & 1 == 1
