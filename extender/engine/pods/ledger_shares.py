"""``LedgerShares``: which tenants have their share of the bytes of which ledgers. Derived as
``room`` is, never rebuilt.

A ledger has ``LEDGER_BYTES_MAX`` bytes, and who names its vpods at length fills one long before the
pod's slots are taken. So one namespace gets half of them, ``TENANT_BYTES_MAX``: another tenant
always finds some. What stands stays (I4), also over that share.

As long as a ledger is no longer than ``TENANT_ROOM_BYTES_MAX`` nobody can have more of it, and
nothing is counted: a comparison for each new entry is all that it costs. From then on the pod is
*crowded*, and its bytes are counted by namespace.
"""

from extender.engine.pods.bits import bits
from extender.engine.pods.claims import TENANT_ROOM_BYTES_MAX, PodClaims, tenant_of


class LedgerShares:
    """Bit sets over a pool's ordinals. Changed by ``PoolState`` only."""

    __slots__ = ("crowded", "spent")

    def __init__(self) -> None:
        self.crowded = 0
        """The pods of whose ledgers a tenant may have its share."""
        self.spent: dict[str, int] = {}
        """Namespace -> the pods on which it gets no further entry; never 0."""

    def clear(self) -> None:
        """No pod has an ordinal any more."""
        self.crowded, self.spent = 0, {}

    def mark(self, pod: PodClaims, ordinal: int) -> None:
        """A pod, as it is, has that ordinal from now on."""
        if pod.tenant_bytes is not None:
            self.crowded |= 1 << ordinal
            for tenant in pod.tenant_bytes:
                self._follow(pod, tenant, ordinal)

    def entry_changed(self, pod: PodClaims, ordinal: int | None, key: str, change: int) -> None:
        """An entry, ``change`` bytes (fewer than 0 where it has gone), has changed a ledger that is
        crowded now, or was.

        ``ordinal``: None where it has none in the pool. The pod's claims and ``ledger_bytes`` say
        so already.
        """
        tenant = tenant_of(key)
        known = pod.tenant_bytes
        if known is None:
            pod.tenant_bytes = pod.bytes_by_tenant()
        elif left := known.get(tenant, 0) + change:
            known[tenant] = left
        else:
            known.pop(tenant, None)
        crowded = pod.ledger_bytes > TENANT_ROOM_BYTES_MAX
        if ordinal is not None:
            self.crowded = (
                self.crowded | 1 << ordinal if crowded else self.crowded & ~(1 << ordinal)
            )
            self._follow(pod, tenant, ordinal)
        if not crowded:
            pod.tenant_bytes = None

    def _follow(self, pod: PodClaims, tenant: str, ordinal: int) -> None:
        has = (pod.tenant_bytes or {}).get(tenant, 0)
        others = self.spent.get(tenant, 0) & ~(1 << ordinal)
        if after := others | (1 << ordinal if has > TENANT_ROOM_BYTES_MAX else 0):
            self.spent[tenant] = after
        else:
            self.spent.pop(tenant, None)

    def full(self, pods: dict[int, PodClaims]) -> int:
        """The pods, of those by ordinal, whose ledgers have no room for one more entry of
        anybody.
        """
        return sum(1 << ordinal for ordinal in bits(self.crowded) if pods[ordinal].ledger_full)
