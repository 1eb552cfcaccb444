"""``Batch``: the decisions that one ``commit`` writes, and what has become of them so far."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from extender.engine.placing.plan import Decision


@dataclass(slots=True)
class Committed:
    """What became of decisions. A vpod that is in neither dict nor in ``waiting`` has changed since
    its decision; the handler of that change has queued it again.
    """

    failed: dict[str, str] = field(default_factory=dict)
    """vpod key -> why its decision was not wholly written: it is decided again."""
    reported: dict[str, Decision] = field(default_factory=dict)
    """vpod key -> its decision, which its status now shows, with moves of earlier decisions that
    were not reported yet (I4): what there is to report.
    """
    waiting: set[str] = field(default_factory=set)
    """vpods whose decision is written as far as adapters have handed over. ``HandOvers`` has them
    decided again.
    """


@dataclass(slots=True)
class Batch(Committed):
    """One ``commit`` at work."""

    _: KW_ONLY
    owner: object
    """Owner of the reservations that these decisions made; later reservations have another
    owner.
    """
    pool: str
    """The pool of all decisions, by its key."""
    decisions: dict[str, Decision]
    published: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """What the vpods published when they were decided."""
    unknown: set[str] = field(default_factory=set)
    """vpods with a write of unknown outcome: their reservations must not be released."""
    written: set[str] = field(default_factory=set)
    """vpods whose status this batch has written: any write for an older version of them fails."""
    unshown: set[str] = field(default_factory=set)
    """Those of ``reported`` whose status does not show the decision yet."""
    stale: set[str] = field(default_factory=set)
    """vpods that have changed since the decision, and are queued again."""
    assignment_at_check: dict[str, str | None] = field(default_factory=dict)
    """Pod name -> the text of its assignment when it was found that shares may leave its ledger.
    The write fails if the adapter is told something else meanwhile.
    """
    refused: dict[str, str] = field(default_factory=dict)
    """vpod key -> which write the API server forbids, and why."""

    def fall_short(self, vpods: Iterable[str], why: str) -> None:
        """Record that these vpods' decisions were not wholly written. The first reason counts."""
        for key in vpods:
            self.failed.setdefault(key, why)
