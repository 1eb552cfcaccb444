"""Fair shares: how many of a pool's slots each tenant gets if not all can have what they ask for.

First, every tenant gets what it is guaranteed, as far as it asks for that. What is left is shared
by weighted max-min fairness, as in YARN's fair scheduler and for what Kueue's queues borrow: nobody
gets more than it asks for, and those who ask for more all get the same for each unit of weight.

Pure. Slots are whole, so a few are left after rounding, fewer than there are tenants. They go to
those with the greatest weights, and among these by name. So if a demand changes a little, few
tenants gain or lose one by rounding.
"""

from collections.abc import Sequence
from typing import NamedTuple


class TenantDemand(NamedTuple):
    """What one tenant asks for, in slots. ``demand`` is at most the tenant's limit."""

    tenant: str
    demand: int
    guarantee: int = 0
    weight: int = 1


def fair_shares(demands: Sequence[TenantDemand], slots: int) -> dict[str, int]:
    """Tenant -> its slots. Together they are ``slots``, or what is asked for if that is less."""
    asked = [min(one.demand, slots) for one in demands]
    guaranteed = [min(one.guarantee, most) for one, most in zip(demands, asked, strict=True)]
    left = slots - sum(guaranteed)
    if left < 0:
        # The pool has become smaller than its guarantees. So they shrink, in proportion.
        demands = [one._replace(weight=max(1, one.guarantee)) for one in demands]
        asked, guaranteed, left = guaranteed, [0] * len(demands), slots
    shares = {one.tenant: base for one, base in zip(demands, guaranteed, strict=True)}
    wanting = sorted(
        (
            ((most - base) / one.weight, most - base, one)
            for one, most, base in zip(demands, asked, guaranteed, strict=True)
            if most > base
        ),
        key=lambda item: (item[0], item[2].tenant),
    )
    weights = sum(one.weight for _, _, one in wanting)
    satisfied = 0
    for _, more, one in wanting:
        # Whoever asks for least for its weight comes first. If even that one cannot have all it
        # asks for, neither can those behind it.
        if more * weights > left * one.weight:
            break
        shares[one.tenant] += more
        left, weights, satisfied = left - more, weights - one.weight, satisfied + 1
    _share_rest([one for _, _, one in wanting[satisfied:]], shares, left, weights)
    return shares


def _share_rest(
    demands: Sequence[TenantDemand], shares: dict[str, int], left: int, weights: int
) -> None:
    """Share ``left`` slots by weight among tenants that all ask for more than that."""
    if not demands:
        return
    rest = left
    for one in demands:
        part = left * one.weight // weights
        shares[one.tenant] += part
        rest -= part
    for one in sorted(demands, key=lambda one: (-one.weight, one.tenant))[:rest]:
        shares[one.tenant] += 1
