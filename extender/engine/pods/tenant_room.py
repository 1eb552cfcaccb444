"""``TenantRoom``: which tenants have used up their share of the bytes of which ledgers. It
follows every change, as ``PoolState.room`` does, and is never rebuilt.

A ledger has ``LEDGER_BYTES_MAX`` bytes. A tenant with long vpod names fills one long before the
pod's slots are taken. So one namespace gets half of the bytes, ``TENANT_BYTES_MAX``, and another
tenant always finds some. What is placed stays (I4), even beyond that share.

While a ledger is no longer than ``TENANT_ROOM_BYTES_MAX``, no namespace can exceed its share, and
nothing is counted: a new entry costs one comparison. A pod with a longer ledger is *crowded*, and
its bytes are counted by namespace.
"""

from extender.engine.pods.bits import bits
from extender.engine.pods.claims import TENANT_ROOM_BYTES_MAX, PodClaims, tenant_of


class TenantRoom:
    """Bit sets over a pool's ordinals. Changed by ``PoolState`` only."""

    __slots__ = ("crowded", "spent")

    def __init__(self) -> None:
        self.crowded = 0
        """The crowded pods."""
        self.spent: dict[str, int] = {}
        """Namespace -> the pods on which it gets no further entry; never 0."""

    def clear(self) -> None:
        """Forget all ordinals."""
        self.crowded, self.spent = 0, {}

    def mark(self, pod: PodClaims, ordinal: int) -> None:
        """Take in a pod that has that ordinal from now on."""
        if pod.tenant_bytes is not None:
            self.crowded |= 1 << ordinal
            for tenant in pod.tenant_bytes:
                self._follow(pod, tenant, ordinal)

    def entry_changed(self, pod: PodClaims, ordinal: int | None, key: str, change: int) -> None:
        """Follow a change of an entry in a ledger that is crowded, or was.

        ``change``: bytes, negative if the entry has gone. ``ordinal``: None if the pod has none in
        the pool. The pod's claims and ``ledger_bytes`` have been changed already.
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
        """Bit set of those ``pods`` (by ordinal) whose ledgers have no room for one more entry of
        anybody.
        """
        return sum(1 << ordinal for ordinal in bits(self.crowded) if pods[ordinal].ledger_full)
