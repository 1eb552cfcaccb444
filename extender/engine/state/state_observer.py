"""``StateObserver``: who is told of everything that changes a ``State``, in its order.

What a decision looks at is what has come into the state before it, and nothing else: objects,
reservations, and which ordinals are closed or given up. So a list of these changes, taken up by an
empty state one after the other, brings every decision back as it was made
(``extender.whatif.recording``). Nobody listens, mostly: then a change costs a look at None.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from extender.model.ledger import Share
from extender.model.objects import AdapterPod, AdapterPool, Namespace, Node, StatefulSet, VPod

Recorded: TypeAlias = AdapterPod | AdapterPool | Namespace | Node | StatefulSet | VPod
"""An object of a kind that decisions look at."""


class StateObserver(Protocol):
    """Told by one state, within the change: it must neither wait nor change anything. Pools and
    vpods by their keys.
    """

    def changed(self, old: Recorded | None, new: Recorded | None) -> None:
        """An object came, changed or went."""
        ...

    def reserved(
        self, pool: str, owner: object, vpod: str, shares: Mapping[str, Share], expires_at: float
    ) -> None:
        """Shares (by pod) were reserved, until ``expires_at`` (s, the clock of ``expired``)."""
        ...

    def released(self, pool: str, owner: object, vpod: str) -> None:
        """All that ``owner`` has reserved for a vpod was released."""
        ...

    def expired(self, now: float) -> None:
        """What was reserved until ``now``, in any pool, was dropped."""
        ...

    def forgotten(self, pods: Sequence[str]) -> None:
        """What these pods' former incarnations held counts no longer."""
        ...

    def closed(self, pool: str, ordinals: int) -> None:
        """The bit set of the ordinals that take nothing new is this one now."""
        ...

    def abandoned(self, pool: str, pods: frozenset[str]) -> None:
        """These pods, and no others, are given up now."""
        ...
