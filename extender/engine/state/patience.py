"""``Patience``: which vpods of a pool have waited long enough to take slots from others.

A pool with ``spec.preemption`` that may still get pods is patient: vpods wait for these pods. A
vpod that has waited for ``patienceSeconds``, and could take slots from vpods of a lower priority,
is *overdue*. While there is one, only the pods that there are count for what the pool admits, and
only vpods that are overdue take slots from others.

It stays overdue until it no longer waits, also if nobody has anything left that it could take.
Otherwise these others would get back what they have given, and lose it again.
"""

from collections.abc import Collection, Iterable


class Patience:
    """What one pool remembers. ``overdue``: keys of vpods."""

    __slots__ = ("_since", "overdue")

    def __init__(self) -> None:
        self.overdue: frozenset[str] = frozenset()
        self._since: dict[str, float] = {}

    def copy(self) -> "Patience":
        """The same memory, for another state of the pool."""
        other = Patience()
        other.overdue, other._since = self.overdue, dict(self._since)
        return other

    def forget(self, key: str) -> bool:
        """The vpod is gone. One of its name that comes again has not waited. Return whether
        ``overdue`` has changed.
        """
        self._since.pop(key, None)
        before = self.overdue
        self.overdue -= {key}
        return self.overdue != before

    def look(
        self, could_take: Iterable[str], waiting: Collection[str], patience_s: int, now: float
    ) -> bool:
        """Look at the pool again. Return whether ``overdue`` has changed.

        ``waiting``: keys of the vpods that wait. ``could_take``: those of them that could take
        slots from others. ``now``: seconds, of any clock.
        """
        before = self.overdue
        counted = {*could_take, *(key for key in before if key in waiting)}
        self._since = {key: self._since.get(key, now) for key in counted}
        self.overdue = frozenset(
            key for key, since in self._since.items() if now - since >= patience_s
        )
        return self.overdue != before
