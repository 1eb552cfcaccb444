"""What an adapter pod carries when it is bound: the ordinal's standing placements, and pending
vreplicas on top.

*Standing* is what vpods already have on this ordinal: what the ordinal's previous incarnation was
last seen to carry, and their published placements there (our view of the statuses may lag behind
its ledger; I2). *Planned* is what vpods that are not fully placed would get if every pending pod of
the pool were already there: the same round robin as placing, over the pods still to come, so the
pods of a growing pool share the load as they bind.

A profile with plugins looks at zones and nodes, and the pods still to come have none: for it the
plan is only an estimate, by which prioritize chooses the node (``plans_at_bind``). Its pods are
bound with what stands there alone, and the placer gives them the rest, by the profile, as soon as
the watch shows them bound.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from extender.engine.placing.grow import round_robin
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.profile import Profile
from extender.engine.state.ledger_room import LedgerRoom
from extender.engine.state.pool_state import PoolState
from extender.model.ledger import EMPTY_LEDGER, Ledger, Share, ledger_slots
from extender.model.objects import AdapterPod, VPod


@dataclass(frozen=True, slots=True)
class BindLedger:
    """The ledger that a pod gets when it is bound. ``planned``: the part that was pending, vpod key
    -> vreplicas.
    """

    ledger: Ledger
    planned: dict[str, int]


def bind_ledger_of(
    pool: PoolState,
    pod: AdapterPod,
    *,
    slots: int,
    with_planned: bool,
    allows: Callable[[VPod], bool],
    placements_from_former_pool: Mapping[str, Share] = EMPTY_LEDGER,
) -> BindLedger:
    """What ``pod`` shall carry, within ``slots``; ``with_planned``: also what is pending.

    ``allows``: whether a vpod may be given anything, that is, whether the pool selects its
    namespace. ``placements_from_former_pool``: what vpods of other pools publish there: they have
    come from this one, and their status is not written anew yet.
    """
    ledger = ledger_of_ordinal(pool, pod.name, slots, placements_from_former_pool)
    planned: dict[str, int] = {}
    if with_planned and pod.ordinal is not None:
        free = slots - sum(share.slots for share in ledger.values())
        for key, count in _planned(pool, pod.ordinal, slots, allows).items():
            share = Share(count, pool.vpods[key].weight)
            there = ledger.get(key)
            if share.slots <= free and (there is None or there.weight == share.weight):
                free -= share.slots
                planned[key] = count
                ledger[key] = Share(
                    count + (there.vreplicas if there is not None else 0), share.weight
                )
    return BindLedger(ledger, planned)


def plans_at_bind(profile: Profile) -> bool:
    """Whether the write that binds a pod may give it pending vreplicas: where they are placed by
    round robin.

    Not where plugins choose among pods, Knative 1.16's filling up among them; nor where what is on
    a pod that takes no work yet is dropped, which would undo it before the watch shows the bind.
    """
    rules = profile.rules
    return not profile.has_plugins and rules.round_robin and rules.keep_on_unavailable


def ledger_of_ordinal(
    pool: PoolState,
    pod_name: str,
    slots: int,
    placements_from_former_pool: Mapping[str, Share] = EMPTY_LEDGER,
) -> dict[str, Share]:
    """The ordinal's standing placements, cut so that they never overcommit ``slots`` (I1).

    What its last pod held comes back as it was, weights included, also where the pod was given up
    and where we know of no status that publishes it: our view of the vpods may be behind. So it
    comes before what is published and was not held: a status that no ledger covers is one that has
    changed since (I2). What is too much, or weighs something else by now, is put right at once.
    """
    state = pool.pods.get(pod_name)
    if state is None:
        return within_slots(slots, dict(placements_from_former_pool))
    published = {key: claim.status for key, claim in state.claims.items() if claim.published}
    held = state.last_ledger
    covered = {
        key: Share(min(share.vreplicas, held[key].vreplicas), held[key].weight)
        for key, share in published.items()
        if key in held
    }
    return within_slots(slots, covered, held, published, placements_from_former_pool)


def ledger_of(
    pool: PoolState,
    pod: AdapterPod,
    slots: int,
    placements_from_former_pool: Mapping[str, Share] = EMPTY_LEDGER,
) -> Ledger:
    """What a bound pod's ledger has to go on from: itself, or, where none can be read, what stands
    on its ordinal.

    So whoever writes it first, after another scheduler has bound the pod or a person has spoilt it,
    covers all at once (I2).
    """
    if pod.ledger_text is not None and not pod.ledger_error:
        return pod.ledger
    return ledger_of_ordinal(pool, pod.name, slots, placements_from_former_pool)


def _planned(
    pool: PoolState, ordinal: int, slots: int, allows: Callable[[VPod], bool]
) -> dict[str, int]:
    """Vpod key -> vreplicas that would come to ``ordinal`` if all pending pods were there."""
    if not pool.unplaced:
        return {}
    ledgers = LedgerRoom(pool)
    free, returning = _to_come(pool, ordinal, slots, ledgers)
    room = sum(1 << there for there, left in free.items() if left > 0)
    planned: dict[str, int] = {}
    for key in list(pool.unplaced):
        vpod = pool.vpods[key]
        if not allows(vpod):
            continue
        missing = max(0, vpod.vreplicas - pool.placed_vreplicas(key) - returning.get(key, 0))
        own = pool.ordinals_of(
            {name: claim.placed.vreplicas for name, claim in pool.claims_of(key).items()}
        )
        added, _ = round_robin(
            ledgers.open_to(room, key), own, free.__getitem__, missing, vpod.weight
        )
        ledgers.give(key, added)
        for there, count in added.items():
            free[there] -= count * vpod.weight
            if free[there] <= 0:
                room &= ~(1 << there)
        if added.get(ordinal):
            planned[key] = added[ordinal]
        if not room >> ordinal & 1:
            break
    return planned


def _to_come(
    pool: PoolState, ordinal: int, slots: int, ledgers: LedgerRoom
) -> tuple[dict[int, int], dict[str, int]]:
    """Free slots of ``ordinal``, which has ``slots``, and of all pending pods; and what comes back
    with them, by vpod key.

    That is written into ``ledgers``.
    """
    free: dict[int, int] = {}
    returning: dict[str, int] = {}
    asked = pool.by_ordinal.get(ordinal)
    for state in (pool.to_come if asked is None else {**pool.to_come, asked.name: asked}).values():
        if not pool.is_member(state):
            continue
        back = _returning(pool, state)
        for key, share in back.items():
            returning[key] = returning.get(key, 0) + share.vreplicas
        there = state.ordinal
        if there is not None and _open(pool, state) and (state.pending or there == ordinal):
            # Every pod by its own size: they must agree on who takes what, whichever of them asks.
            for key in back:
                ledgers.give(key, (there,))
            free[there] = (
                (slots if there == ordinal else state.capacity) - state.held - ledger_slots(back)
            )
    return free, returning


def _open(pool: PoolState, state: PodClaims) -> bool:
    """Whether an ordinal may get anything new, once it is bound."""
    return not (state.leaving or pool.is_closed(state))


def _returning(pool: PoolState, state: PodClaims) -> dict[str, Share]:
    """What comes back with an ordinal and is placed nowhere yet: only its previous incarnation was
    seen to carry it.
    """
    back: dict[str, Share] = {}
    if state.name in pool.abandoned:
        return back  # given up (rescheduleAfterSeconds): it is placed elsewhere
    for key, share in state.last_ledger.items():
        claim = state.claims.get(key)
        extra = share.vreplicas - (claim.placed.vreplicas if claim is not None else 0)
        if extra > 0:
            back[key] = Share(extra, share.weight)
    return back


def within_slots(slots: int, *sources: Mapping[str, Share]) -> dict[str, Share]:
    """The shares of all sources (vpod key -> share), cut so that they never take more than
    ``slots`` together (I1).

    A vpod in several sources gets the largest of its shares. Where the slots do not suffice,
    earlier sources come first and in each of them the vpods in the order of their keys, so that
    every replica cuts the same; a share may be cut to part of its vreplicas. A vpod that has
    several weights gets that of the first source.
    """
    free = slots
    ledger: dict[str, Share] = {}
    for source in sources:
        for key, share in sorted(source.items()):
            known = ledger.get(key)
            had, weight = known if known is not None else (0, share.weight)
            if (more := min(share.vreplicas - had, free // weight)) > 0:
                ledger[key] = Share(had + more, weight)
                free -= more * weight
    return ledger
