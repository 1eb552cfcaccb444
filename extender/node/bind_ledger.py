"""``bind_ledger_of``: the ledger that a bind writes on an adapter pod. It has two parts.

- *Standing*: what vpods already have on this ordinal. That is the last known ledger of the
  ordinal's previous pod, and the placements that vpods publish there. (Our view of the statuses may
  lag behind that ledger; I2.)
- *Planned*: pending vreplicas of vpods that are not fully placed. The round robin of placing
  distributes them as if every pending pod of the pool were bound. So the pods of a growing pool
  share the load as they bind.

At filter the plan is an estimate, by which prioritize scores nodes. A bind writes the planned part
only at the replica that leads the pool, and only if the profile places by round robin
(``plans_at_bind``). A profile with plugins, for instance, looks at zones and nodes, which pending
pods do not have. Otherwise a pod is bound with its standing vreplicas alone, and the placer adds
the rest once the watch shows the pod bound.

Vreplicas that take amounts of the pool's dimensions are never planned. The placer adds them.

The annotation has a limit in bytes. If standing and planned vreplicas together exceed it, all
planned ones wait.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from extender.engine.placing.grow import round_robin
from extender.engine.pods.claims import PodClaims
from extender.engine.policy.profile import Profile
from extender.engine.state.ledger_room import LedgerRoom
from extender.engine.state.pool_state import PoolState
from extender.model.amounts import NO_AMOUNTS, Amounts
from extender.model.errors import LedgerTooLarge
from extender.model.ledger import EMPTY_LEDGER, Ledger, Share, encode_ledger, ledger_slots
from extender.model.objects import AdapterPod, VPod


@dataclass(frozen=True, slots=True)
class BindLedger:
    """The ledger that a pod gets when it is bound. ``planned`` is the part that was pending: vpod
    key -> vreplicas.
    """

    ledger: Ledger
    planned: Mapping[str, int]
    text: str
    """``ledger`` as the placements annotation has it."""


def bind_ledger_of(
    pool: PoolState,
    pod: AdapterPod,
    *,
    slots: int,
    with_planned: bool,
    allows: Callable[[VPod], bool],
    placements_from_former_pool: Mapping[str, Share] = EMPTY_LEDGER,
) -> BindLedger:
    """Return the ledger of ``pod`` for a bind, within ``slots``. ``with_planned`` adds pending
    vreplicas, if the ledger has bytes for them. Raises LedgerTooLarge if the standing ones alone do
    not fit.

    ``allows`` says whether the pool selects a vpod's namespace, so that the vpod may get slots.
    ``placements_from_former_pool`` is what vpods of other pools still publish on this pod: they
    have left this pool, and their status does not say so yet.
    """
    standing = ledger_of_ordinal(pool, pod.name, slots, placements_from_former_pool)
    ledger = dict(standing)
    planned: dict[str, int] = {}
    if with_planned and pod.ordinal is not None:
        free = slots - sum(share.slots for share in ledger.values())
        for key, count in _planned(pool, pod.ordinal, slots, allows).items():
            share = Share(count, pool.vpods[key].weight)
            there = ledger.get(key)
            if share.slots <= free and (there is None or there[1:] == share[1:]):
                free -= share.slots
                planned[key] = count
                ledger[key] = Share(
                    count + (there.vreplicas if there is not None else 0), share.weight
                )
    if planned:
        with suppress(LedgerTooLarge):
            return BindLedger(ledger, planned, encode_ledger(ledger))
    return BindLedger(standing, {}, encode_ledger(standing))


def plans_at_bind(profile: Profile) -> bool:
    """Return whether the write that binds a pod may give it pending vreplicas: only if the profile
    places by round robin.

    Plugins, and Knative 1.16's filling up, choose pods in another way. A profile that drops
    vreplicas from unavailable pods would drop the planned ones before the watch shows the bind.
    """
    rules = profile.rules
    return not profile.has_plugins and rules.round_robin and rules.keep_on_unavailable


def ledger_of_ordinal(
    pool: PoolState,
    pod_name: str,
    slots: int,
    placements_from_former_pool: Mapping[str, Share],
) -> dict[str, Share]:
    """Return the ordinal's standing placements, cut so that they never overcommit ``slots`` or the
    pool's dimensions (I1).

    The ledger of the last pod returns as it was, weights included. It returns even if that pod was
    given up, or if no status is known to publish it: our view of the vpods may lag behind. It comes
    before placements that are published but not in that ledger, because such a status has changed
    since (I2). The leader corrects surplus vreplicas and outdated weights at once.
    """
    state = pool.pods.get(pod_name)
    most = pool.capacities
    if state is None:
        return within_slots(slots, dict(placements_from_former_pool), capacities=most)
    published = {key: claim.status for key, claim in state.claims.items() if claim.published}
    held = state.last_ledger
    covered = {
        key: held[key]._replace(vreplicas=min(share.vreplicas, held[key].vreplicas))
        for key, share in published.items()
        if key in held
    }
    sources = covered, held, published, placements_from_former_pool
    return within_slots(slots, *sources, capacities=most)


def ledger_of(
    pool: PoolState,
    pod: AdapterPod,
    slots: int,
    placements_from_former_pool: Mapping[str, Share],
) -> Ledger:
    """Return the ledger from which writes to a bound pod start: its own or, if that is missing or
    unreadable, the standing placements of its ordinal.

    So the first write after another scheduler bound the pod, or after a person spoilt the
    annotation, covers all placements (I2).
    """
    if pod.ledger_text is not None and not pod.ledger_error:
        return pod.ledger
    return ledger_of_ordinal(pool, pod.name, slots, placements_from_former_pool)


def _planned(
    pool: PoolState, ordinal: int, slots: int, allows: Callable[[VPod], bool]
) -> dict[str, int]:
    """Vpod key -> vreplicas that ``ordinal`` would get if all pending pods were bound."""
    if not pool.vpods_with_pending:
        return {}
    ledgers = LedgerRoom(pool)
    free, returning = _free_once_bound(pool, ordinal, slots, ledgers)
    room = sum(1 << there for there, left in free.items() if left > 0)
    planned: dict[str, int] = {}
    for key in list(pool.vpods_with_pending):
        vpod = pool.vpods[key]
        if not allows(vpod):
            continue
        if vpod.per_vreplica:
            continue
        missing = max(0, vpod.vreplicas - pool.decided_vreplicas(key) - returning.get(key, 0))
        own = pool.ordinals_of(
            {name: claim.decided.vreplicas for name, claim in pool.claims_of(key).items()}
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


def _free_once_bound(
    pool: PoolState, ordinal: int, slots: int, ledgers: LedgerRoom
) -> tuple[dict[int, int], dict[str, int]]:
    """Return the free slots of ``ordinal``, which has ``slots``, and of all pending pods, and the
    vreplicas that return with them, by vpod key. Enters the latter into ``ledgers``.
    """
    free: dict[int, int] = {}
    returning: dict[str, int] = {}
    asked = pool.by_ordinal.get(ordinal)
    for state in (pool.unbound if asked is None else {**pool.unbound, asked.name: asked}).values():
        if not pool.is_member(state):
            continue
        back = _returning(pool, state)
        for key, share in back.items():
            returning[key] = returning.get(key, 0) + share.vreplicas
        there = state.ordinal
        if there is not None and _open(pool, state) and (state.pending or there == ordinal):
            # Each pod counts with its own size, so that the binds of all these pods compute the
            # same plan.
            for key in back:
                ledgers.give(key, (there,))
            free[there] = (
                (slots if there == ordinal else state.capacity) - state.held - ledger_slots(back)
            )
    return free, returning


def _open(pool: PoolState, state: PodClaims) -> bool:
    """Whether an ordinal may get new vreplicas once it is bound."""
    return not (state.leaving or pool.is_closed(state))


def _returning(pool: PoolState, state: PodClaims) -> dict[str, Share]:
    """What only the ordinal's previous pod was seen to carry: no placement counts it, and it
    returns with the ordinal.
    """
    back: dict[str, Share] = {}
    if state.name in pool.abandoned:
        return back  # given up (rescheduleAfterSeconds): its vreplicas are placed elsewhere
    for key, share in state.last_ledger.items():
        claim = state.claims.get(key)
        extra = share.vreplicas - (claim.decided.vreplicas if claim is not None else 0)
        if extra > 0:
            back[key] = share._replace(vreplicas=extra)
    return back


def within_slots(
    slots: int, *sources: Mapping[str, Share], capacities: Amounts = NO_AMOUNTS
) -> dict[str, Share]:
    """Combine the shares of all sources (vpod key -> share), cut to ``slots`` and ``capacities`` in
    all (I1).

    A vpod in several sources gets its largest share, with the weight and amounts of the first
    source. If there is not enough for all, earlier sources go first, and within a source the vpods
    in the order of their keys, so that every replica cuts alike. A share may be cut to part of its
    vreplicas.
    """
    free, left = slots, dict(capacities)
    ledger: dict[str, Share] = {}
    for source in sources:
        for key, share in sorted(source.items()):
            had, weight, amounts = ledger.get(key, share._replace(vreplicas=0))
            limited = [(name, amount) for name, amount in amounts if name in left]
            more = min(share.vreplicas - had, free // weight)
            for name, amount in limited:
                more = min(more, left[name] // amount)
            if more > 0:
                ledger[key] = Share(had + more, weight, amounts)
                free -= more * weight
                for name, amount in limited:
                    left[name] -= more * amount
    return ledger
