"""``ShrinkDoubt``: ordinals that an unanswered scale-down may still remove. Pure.

A scale is written with the version that was read as its precondition. If the answer is lost, the
write may still be under way, and succeeds later if the StatefulSet still has that version. The
ordinals that it removes were closed and empty when it was sent. If they are opened again, something
may be placed there when it arrives (simulation seed 13566111). So these ordinals stay closed until
a newer version is seen, or until no request can live that long.

A new leader does not know of such a write of its predecessor. So everything that it could remove is
in doubt: the highest ordinals that hold nothing.
"""

from extender.model.objects import StatefulSet
from extender.model.resource_versions import parse_version


class ShrinkDoubt:
    """The doubt about one StatefulSet. Times are the caller's clock, in seconds."""

    def __init__(self) -> None:
        self._ordinals = 0
        self._uid = ""
        self._version = ""
        self.until = float("-inf")
        """When the doubt ends at the latest."""

    @property
    def noted(self) -> bool:
        """Whether a doubt was begun, and its end has not been noticed yet."""
        return bool(self._ordinals)

    def begin(self, ordinals: int, *, uid: str, version: str, until: float) -> None:
        """Note that a write for this version of the StatefulSet may remove these ordinals (a bit
        set).
        """
        if version == self._version and uid == self._uid:
            ordinals |= self._ordinals
            until = max(until, self.until)
        self._ordinals, self._uid, self._version, self.until = ordinals, uid, version, until

    def ordinals(self, stateful_set: StatefulSet, now: float) -> int:
        """Bit set of the ordinals still in doubt. ``stateful_set``: as last seen."""
        if self._ordinals and (now >= self.until or self._is_settled_by(stateful_set)):
            self._ordinals = 0
        return self._ordinals

    def _is_settled_by(self, stateful_set: StatefulSet) -> bool:
        if stateful_set.uid != self._uid:
            return True
        seen, asked = parse_version(stateful_set.resource_version), parse_version(self._version)
        # If versions are no numbers, nobody can say which is newer. Then the clock ends the doubt.
        return seen is not None and asked is not None and seen > asked
