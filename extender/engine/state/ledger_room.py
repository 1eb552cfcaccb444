"""``LedgerRoom``: which ledgers still have bytes for which vpods, as a plan goes on. Pure; does not
change the state.

It is for plans of many vpods of which none is reserved: sizing, compaction, and what a bind adds. A
decision about one vpod uses ``PoolState.room_for``. Both refuse a ledger that is full, and a ledger
of which the vpod's namespace has used up its share (``TenantRoom``), unless the vpod has an entry
there already. A vpod's entry counts once for each pod, with the greatest length that it can have.
An entry that a vpod is about to leave still counts, because the ledger that is written next has it.
"""

from collections.abc import Iterable

from extender.engine.pods.claims import (
    ROOM_BYTES_MAX,
    TENANT_ROOM_BYTES_MAX,
    entry_bytes,
    tenant_of,
)
from extender.engine.state.pool_state import PoolState


class LedgerRoom:
    """Begins with the present ledgers, and with empty ones for pods to come. ``give``
    adds entries.
    """

    def __init__(self, pool: PoolState) -> None:
        self._pool = pool
        self._pods = pool.by_ordinal
        self._full = pool.tenant_room.full(pool.by_ordinal)
        self._spent = dict(pool.tenant_room.spent)
        self._own: dict[str, int] = {}
        """vpod key -> bit set of the pods with an entry of it, for vpods that were asked about."""
        self._bytes: dict[int, int] = {}
        """Ordinal -> bytes of its ledger, for ledgers that were given something."""
        self._by_tenant: dict[int, dict[str, int]] = {}
        """Ordinal -> namespace -> bytes given, and the state's own bytes once the ledger is
        crowded.
        """
        self._whole = 0
        """Bit set of the ordinals for which ``_by_tenant`` includes the state's own bytes."""

    def copy(self) -> "LedgerRoom":
        """A copy, to try something."""
        other = LedgerRoom(self._pool)
        other._full, other._whole = self._full, self._whole
        other._spent, other._own, other._bytes = (
            dict(self._spent),
            dict(self._own),
            dict(self._bytes),
        )
        other._by_tenant = {ordinal: dict(known) for ordinal, known in self._by_tenant.items()}
        return other

    def open_to(self, ordinals: int, key: str) -> int:
        """Those of ``ordinals`` whose ledgers have bytes for one more vreplica of a vpod."""
        ordinals &= ~self._full
        if self._spent and (spent := self._spent.get(tenant_of(key), 0) & ordinals):
            ordinals &= ~(spent & ~self._own_of(key))
        return ordinals

    def give(self, key: str, ordinals: Iterable[int]) -> None:
        """Give vreplicas on these ordinals to a vpod."""
        own = self._own_of(key)
        for ordinal in ordinals:
            if not own >> ordinal & 1:
                own |= 1 << ordinal
                self._enter(ordinal, tenant_of(key), self._entry_bytes(key))
        self._own[key] = own

    def _own_of(self, key: str) -> int:
        own = self._own.get(key)
        if own is None:
            own = self._own[key] = self._pool.entries_of(key)
        return own

    def _entry_bytes(self, key: str) -> int:
        vpod = self._pool.vpods.get(key)
        return entry_bytes(key) if vpod is None else entry_bytes(key, vpod.per_vreplica)

    def _enter(self, ordinal: int, tenant: str, size: int) -> None:
        pod = self._pods.get(ordinal)
        known = self._by_tenant.setdefault(ordinal, {})
        known[tenant] = known.get(tenant, 0) + size
        before = self._bytes.get(ordinal)
        if before is None:
            before = pod.ledger_bytes if pod is not None else 0
        total = self._bytes[ordinal] = before + size
        if total <= TENANT_ROOM_BYTES_MAX:
            return
        bit = 1 << ordinal
        if total > ROOM_BYTES_MAX:
            self._full |= bit
        if not self._whole & bit:
            self._whole |= bit
            for name, there in (pod.bytes_by_tenant() if pod is not None else {}).items():
                known[name] = known.get(name, 0) + there
        if known[tenant] > TENANT_ROOM_BYTES_MAX:
            self._spent[tenant] = self._spent.get(tenant, 0) | bit
