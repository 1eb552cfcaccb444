"""``Batch``: the decisions that one ``commit`` writes, and what has become of them so far."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from extender.engine.placing.plan import Decision


@dataclass(slots=True)
class Committed:
    """What became of decisions: a vpod that is in neither has changed since, and is queued by
    whoever saw that.
    """

    failed: dict[str, str] = field(default_factory=dict)
    """vpod key -> why not all of its decision was written: it is to be decided again."""
    told: dict[str, Decision] = field(default_factory=dict)
    """vpod key -> its decision, as its status says now, with the moves of earlier ones that nobody
    has been told (I4).
    """


@dataclass(slots=True)
class Batch(Committed):
    """One ``commit`` at work."""

    _: KW_ONLY
    owner: object
    """Whose reservations the decisions are: what they are about, and nothing that has come since.
    """
    decisions: dict[str, Decision]
    published: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """What was published when they were decided."""
    unknown: set[str] = field(default_factory=set)
    """vpods with a write whose outcome is unknown: their reservations must not be released."""
    written: set[str] = field(default_factory=set)
    """vpods whose status this batch has written: whatever was decided on an older version of them
    fails.
    """
    stale: set[str] = field(default_factory=set)
    """vpods that have changed since the decision. Whoever saw the change has queued them again."""
    refused: dict[str, str] = field(default_factory=dict)
    """vpod key -> what the API server forbids to write for it, and why."""

    def fall_short(self, vpods: Iterable[str], why: str) -> None:
        """Not all of these vpods' decisions is written; the first reason counts."""
        for key in vpods:
            self.failed.setdefault(key, why)
