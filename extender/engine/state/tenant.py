"""``Tenant``: the vpods of one tenant of a pool, as they ask, and what is admitted of them."""

from typing import Final

from extender.engine.state.admission import Wanted
from extender.model.objects import VPod

UNLIMITED: Final = 1 << 62
"""More slots than any pool has."""
ABOVE_ALL_PRIORITIES: Final = 1 << 31
"""Above every priority."""
_LAST: Final = "~"
"""Sorts after every creation time."""


class Tenant:
    """One tenant. A pool without ``spec.tenancy`` has one, with all of its vpods."""

    __slots__ = (
        "_order",
        "admitted",
        "allowance",
        "demand",
        "demand_raised",
        "guarantee",
        "kept",
        "lent",
        "limit",
        "name",
        "patient",
        "slots_admitted",
        "slots_asked",
        "slots_used",
        "surplus",
        "vpods",
        "waiting",
        "wanted",
        "weight",
    )

    def __init__(self, name: str, guarantee: int, limit: int | None, weight: int) -> None:
        self.name = name
        self.guarantee = guarantee
        self.limit = UNLIMITED if limit is None else limit
        self.weight = weight
        self.vpods: dict[str, VPod] = {}
        self.wanted: dict[str, Wanted] = {}
        self.demand = self.demand_raised = self.slots_used = self.surplus = self.slots_asked = 0
        """Slots: what its vpods want now, what they would want with enough pods, what they use,
        what of that they no longer want, and what they ask for.
        """
        self.allowance = UNLIMITED
        """Slots that it may use: its limit, or its fair share if that is less."""
        self.admitted: dict[str, int] | None = None
        """vpod key -> vreplicas, in ``in_order``. None: all that is wanted."""
        self.slots_admitted = 0
        self.kept = 0
        """Slots of its allowance that are kept for a vpod which needs more of them."""
        self.waiting: list[str] = []
        """Vpods that are not admitted wholly, in the order in which they are lent something."""
        self._order: list[str] | None = None
        self.lent = False
        self.patient = 0
        """Its vpods that take nothing from others."""

    def set(self, key: str, vpod: VPod | None, wanted: Wanted | None) -> None:
        """Take a vpod with what it wants; None: it is no longer there."""
        old = self.vpods.get(key)
        if old is None or vpod is None or _precedence(old) != _precedence(vpod):
            self._order = None
        if old is not None:
            self._add(self.vpods.pop(key), self.wanted.pop(key), -1)
        if vpod is not None and wanted is not None:
            self.vpods[key], self.wanted[key] = vpod, wanted
            self._add(vpod, wanted, 1)

    def in_order(self) -> list[str]:
        """Its vpods, those first that get slots first."""
        if self._order is None:
            ordered = sorted((_precedence(vpod), key) for key, vpod in self.vpods.items())
            self._order = [key for _, key in ordered]
        return self._order

    @property
    def capped_demand(self) -> int:
        """What it wants within its limit."""
        return min(self.demand, self.limit)

    @property
    def lending_order(self) -> tuple[bool, float]:
        """Who has borrowed already keeps it. Then come those who have least for their weight."""
        borrowed = max(0, self.slots_admitted - self.guarantee)
        return (self.slots_used <= self.slots_admitted, borrowed / self.weight)

    def lend(self, most: int, *, one: bool) -> int:
        """Admit more vreplicas of one vpod, of at most so many slots. Return their slots, 0 if
        there are none. ``one``: a single vreplica, or as many as are of use together, because other
        tenants have their turn.
        """
        if self.admitted is None:
            return 0
        for index, key in enumerate(self.waiting):
            wanted = self.wanted[key]
            least = max(1, wanted.least - self.admitted[key])
            if wanted.weight * least <= most:
                missing = wanted.now - self.admitted[key]
                count = least if one else min(missing, most // wanted.weight)
                self.admitted[key] += count
                self.slots_admitted += count * wanted.weight
                self.lent = True
                if count == missing:
                    del self.waiting[index]
                return count * wanted.weight
        return 0

    def _add(self, vpod: VPod, wanted: Wanted, times: int) -> None:
        weight = vpod.weight * times
        self.demand += wanted.now * weight
        self.demand_raised += wanted.raised * weight
        self.slots_used += wanted.used * weight
        self.slots_asked += vpod.vreplicas * weight
        self.patient += times * (not wanted.preempts)
        self.surplus += max(0, wanted.used - wanted.now) * weight


def _precedence(vpod: VPod) -> tuple[int, str, str]:
    """The order in which a tenant's vpods get slots: by priority, and by age among equals."""
    return (-vpod.priority, vpod.created_at or _LAST, vpod.key)
