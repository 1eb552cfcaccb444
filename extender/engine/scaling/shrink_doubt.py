"""``ShrinkDoubt``: ordinals that a scale-down which nobody has heard of since may still remove.
Pure.

A scale is written with the version that was read as its precondition. Where the answer is lost the
write may still be under way, and happens later if the StatefulSet is of that version still. What it
would remove was closed and empty when it was sent; opened again meanwhile, something may stand
there when it arrives (seed 13566111). So these ordinals stay closed until a newer version is seen,
or no request lives that long.

A new leader knows of no such write, and its predecessor may have sent one: then all that could be
removed is in doubt, the highest ordinals that hold nothing.
"""

from extender.model.objects import StatefulSet
from extender.model.resource_versions import parse_version


class ShrinkDoubt:
    """Of one StatefulSet. Times are the caller's clock, in seconds."""

    def __init__(self) -> None:
        self._ordinals = 0
        self._uid = ""
        self._version = ""
        self.until = float("-inf")
        """When it ends at the latest."""

    @property
    def noted(self) -> bool:
        """Whether a doubt was begun, and nobody has found its end yet."""
        return bool(self._ordinals)

    def begin(self, ordinals: int, *, uid: str, version: str, until: float) -> None:
        """These ordinals, a bit set, may be removed by a write for this version of the
        StatefulSet.
        """
        if version == self._version and uid == self._uid:
            ordinals |= self._ordinals
            until = max(until, self.until)
        self._ordinals, self._uid, self._version, self.until = ordinals, uid, version, until

    def ordinals(self, stateful_set: StatefulSet, now: float) -> int:
        """Those still in doubt, a bit set; ``stateful_set``: as last seen."""
        if self._ordinals and (now >= self.until or self._is_settled_by(stateful_set)):
            self._ordinals = 0
        return self._ordinals

    def _is_settled_by(self, stateful_set: StatefulSet) -> bool:
        if stateful_set.uid != self._uid:
            return True
        seen, asked = parse_version(stateful_set.resource_version), parse_version(self._version)
        # Of versions that are no numbers nobody can say which is newer: the clock ends it.
        return seen is not None and asked is not None and seen > asked
