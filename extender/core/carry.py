"""What an adapter pod carries when it is bound: the ordinal's standing placements, and pending vreplicas on top.

*Standing* is what vpods already have on this ordinal: their published placements there, and what the ordinal's
previous incarnation was last seen to carry (our view of the statuses may lag behind its ledger; I2).
*Planned* is what vpods that are not fully placed would get if every pending pod of the pool were already there: the
same round robin as placing, over the pods still to come, so the pods of a growing pool share the load as they bind.
"""

from dataclasses import dataclass

from extender.core.claims import PodState
from extender.core.ledger import Ledger, Share
from extender.core.model import AdapterPod
from extender.core.plan import round_robin
from extender.core.pool_state import PoolState


@dataclass(frozen=True, slots=True)
class Carry:
    """The ledger that a pod gets when it is bound. ``planned``: the part that was pending, vpod key -> vreplicas."""

    ledger: Ledger
    planned: dict[str, int]


def carry_of(pool: PoolState, pod: AdapterPod, *, slots: int, with_planned: bool) -> Carry:
    """What ``pod`` shall carry, within ``slots``. ``with_planned``: on the leader only, which alone places."""
    ledger = standing_of(pool, pod.name, slots)
    planned: dict[str, int] = {}
    if with_planned and pod.ordinal is not None:
        free = slots - sum(share.slots for share in ledger.values())
        for key, count in _planned(pool, pod.ordinal, slots).items():
            share = Share(count, pool.vpods[key].weight)
            there = ledger.get(key)
            if share.slots <= free and (there is None or there.weight == share.weight):
                free -= share.slots
                planned[key] = count
                ledger[key] = Share(count + (there.vreplicas if there is not None else 0), share.weight)
    return Carry(ledger, planned)


def standing_of(pool: PoolState, pod_name: str, slots: int) -> dict[str, Share]:
    """The ordinal's standing placements, cut so that they never overcommit ``slots`` (I1): published ones first."""
    state = pool.pods.get(pod_name)
    if state is None:
        return {}
    ledger: dict[str, Share] = {}
    free = slots
    published = {key: claim.status for key, claim in sorted(state.claims.items()) if claim.published}
    for source in (published, dict(sorted(state.last_ledger.items()))):
        for key, share in source.items():
            vpod = pool.vpods.get(key)
            known = ledger.get(key)
            if vpod is None or (known is not None and known.vreplicas >= share.vreplicas):
                continue
            if known is not None:
                free += known.slots
            count = min(share.vreplicas, free // vpod.weight)
            if count > 0:
                ledger[key] = Share(count, vpod.weight)
                free -= ledger[key].slots
            elif known is not None:
                free -= known.slots
    return ledger


def _planned(pool: PoolState, ordinal: int, slots: int) -> dict[str, int]:
    """Vpod key -> vreplicas that would come to ``ordinal`` if all pending pods were there."""
    free: dict[int, int] = {}
    room = 0
    for state in pool.members():
        if state.ordinal is not None and (state.pending or state.ordinal == ordinal):
            free[state.ordinal] = _free_when_bound(state, slots)
            room |= (1 << state.ordinal) if free[state.ordinal] > 0 else 0
    planned: dict[str, int] = {}
    for key in list(pool.unplaced):
        vpod = pool.vpods[key]
        missing = vpod.vreplicas - pool.placed_vreplicas(key)
        own = _ordinals_of(pool, key)
        added, _ = round_robin(room, own, free.__getitem__, missing, vpod.weight)
        for there, count in added.items():
            free[there] -= count * vpod.weight
            if free[there] <= 0:
                room &= ~(1 << there)
        if added.get(ordinal):
            planned[key] = added[ordinal]
        if not room >> ordinal & 1:
            break
    return planned


def _free_when_bound(state: PodState, slots: int) -> int:
    stamped = state.pod.slots if state.pod is not None else None
    return (slots if stamped is None else min(slots, stamped)) - state.held


def _ordinals_of(pool: PoolState, key: str) -> int:
    own = 0
    for name, claim in pool.claims_of(key).items():
        ordinal = pool.pods[name].ordinal
        if ordinal is not None and claim.placed.vreplicas:
            own |= 1 << ordinal
    return own
