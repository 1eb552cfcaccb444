"""``StateObserver``: learns of everything that changes a ``ClusterState``, in order.

A decision depends only on what has come into the state before it: objects, reservations, and which
ordinals are closed or abandoned. So an empty state that takes in a list of these changes repeats
every decision (``extender.whatif.recording``). Without an observer, a change costs one comparison
with None.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from extender.model.ledger import Share
from extender.model.objects import AdapterPod, AdapterPool, Namespace, Node, StatefulSet, VPod
from extender.model.tenancy import VReplicaQuota

Recorded: TypeAlias = (
    AdapterPod | AdapterPool | Namespace | Node | StatefulSet | VPod | VReplicaQuota
)
"""An object of a kind that decisions look at."""


class StateObserver(Protocol):
    """Called by a state within the change, so it must neither wait nor change anything. Pools and
    vpods are given by their keys.
    """

    def changed(self, old: Recorded | None, new: Recorded | None) -> None:
        """An object came, changed or went."""
        ...

    def reserved(
        self, pool: str, owner: object, vpod: str, shares: Mapping[str, Share], expires_at: float
    ) -> None:
        """Shares (by pod) were reserved until ``expires_at`` (s, the clock of ``expired``)."""
        ...

    def released(self, pool: str, owner: object, vpod: str) -> None:
        """Everything that ``owner`` had reserved for a vpod was released."""
        ...

    def expired(self, now: float) -> None:
        """Reservations that expired by ``now`` were dropped, in all pools."""
        ...

    def forgotten(self, pods: Sequence[str]) -> None:
        """What these pods' former incarnations held was forgotten."""
        ...

    def closed(self, pool: str, ordinals: int, in_doubt: int) -> None:
        """The ordinals of this bit set, and no others, take nothing new from now on. ``in_doubt``:
        those of them that are not being emptied.
        """
        ...

    def abandoned(self, pool: str, pods: frozenset[str]) -> None:
        """These pods, and no others, are abandoned from now on."""
        ...
