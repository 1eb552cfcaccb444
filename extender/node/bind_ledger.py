"""``bind_ledger_of``: the ledger that a bind writes on an adapter pod. It has two parts.

- *Standing*: what vpods already have on this ordinal. That is the last known ledger of the
  ordinal's previous pod, and the placements that vpods publish there. (Our view of the statuses may
  lag behind that ledger; I2.)
- *Added*: pending vreplicas, which have no place yet. The round robin of placing gives them out as
  if every unbound pod of the pool were bound. So the pods of a growing pool share the load as they
  bind.

At filter the added part is an estimate, by which prioritize scores nodes. A bind writes it only at
the replica that leads the pool, and only if the profile places by round robin
(``adds_at_bind``). A profile with plugins, for instance, looks at zones and nodes, which unbound
pods do not have. Otherwise a pod is bound with its standing vreplicas alone, and the placer adds
the rest once the watch shows the pod bound.

Some are never added: vreplicas that take amounts of the pool's dimensions, those of vpods with
``maxPerPod``, and the first ones of a gang. The placer places them.

The annotation has a limit in bytes. If standing and added vreplicas together exceed it, all added
ones wait.
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
    """The ledger that a pod gets when it is bound. ``added`` is the part that was pending: vpod
    key -> vreplicas.
    """

    ledger: Ledger
    added: Mapping[str, int]
    text: str
    """``ledger`` as the placements annotation has it."""


def bind_ledger_of(
    pool: PoolState,
    pod: AdapterPod,
    *,
    slots: int,
    with_added: bool,
    allows: Callable[[VPod], bool],
    placements_from_former_pool: Mapping[str, Share] = EMPTY_LEDGER,
) -> BindLedger:
    """Return the ledger of ``pod`` for a bind, within ``slots``. ``with_added`` adds pending
    vreplicas, if the ledger has bytes for them. Raises LedgerTooLarge if the standing ones alone do
    not fit.

    ``allows`` says whether the pool selects a vpod's namespace, so that the vpod may get slots.
    ``placements_from_former_pool`` is what vpods of other pools still publish on this pod: they
    have left this pool, and their status does not say so yet.
    """
    standing = ledger_of_ordinal(pool, pod.name, slots, placements_from_former_pool)
    ledger = dict(standing)
    added: dict[str, int] = {}
    if with_added and pod.ordinal is not None:
        free = slots - sum(share.slots for share in ledger.values())
        for key, count in _added(pool, pod.ordinal, slots, allows).items():
            share = Share(count, pool.vpods[key].weight)
            there = ledger.get(key)
            if share.slots <= free and (there is None or there[1:] == share[1:]):
                free -= share.slots
                added[key] = count
                ledger[key] = Share(
                    count + (there.vreplicas if there is not None else 0), share.weight
                )
    if added:
        with suppress(LedgerTooLarge):
            return BindLedger(ledger, added, encode_ledger(ledger))
    return BindLedger(standing, {}, encode_ledger(standing))


def adds_at_bind(profile: Profile) -> bool:
    """Return whether the write that binds a pod may give it pending vreplicas: only if the profile
    places by round robin.

    Plugins, and Knative 1.16's filling up, choose pods in another way. A profile that drops
    vreplicas from unavailable pods would drop the added ones before the watch shows the bind.
    """
    rules = profile.rules
    return not profile.has_plugins and rules.round_robin and rules.keep_on_unavailable


def ledger_of_ordinal(
    pool: PoolState,
    pod_name: str,
    slots: int,
    placements_from_former_pool: Mapping[str, Share],
    *,
    with_last: bool = True,
) -> dict[str, Share]:
    """Return the ordinal's standing vreplicas, cut so that they never overcommit ``slots`` or the
    pool's dimensions (I1).

    The ledger of the last pod returns as it was, weights included, even if that pod was abandoned:
    our view of the vpods may lag behind it (I2). If there is no room for all, earlier ones win:

    1. what both that ledger and a status have;
    2. what only that ledger has;
    3. what only a status has, which has changed since;
    4. what vpods that have left this pool still publish here.

    The leader corrects surplus vreplicas and outdated weights at once. ``with_last=False`` leaves
    out the ledger of the last pod.
    """
    known = pool.pods.get(pod_name)
    most = pool.capacities
    if known is None:
        return within_slots(slots, dict(placements_from_former_pool), capacities=most)
    published = {key: claim.status for key, claim in known.claims.items() if claim.published}
    held = known.last_ledger if with_last else {}
    covered = {
        key: held[key]._replace(vreplicas=min(share.vreplicas, held[key].vreplicas))
        for key, share in published.items()
        if key in held
    }
    in_order = covered, held, published, placements_from_former_pool
    return within_slots(slots, *in_order, capacities=most)


def ledger_of(
    pool: PoolState,
    pod: AdapterPod,
    slots: int,
    placements_from_former_pool: Mapping[str, Share],
) -> Ledger:
    """Return the ledger from which writes to a bound pod start: its own or, if that is missing or
    unreadable, the standing vreplicas of its ordinal.

    So the first write after another scheduler bound the pod, or after a person spoilt the
    annotation, covers all placements (I2).
    """
    if pod.ledger_text is not None and not pod.ledger_error:
        return pod.ledger
    return ledger_of_ordinal(pool, pod.name, slots, placements_from_former_pool)


def _added(
    pool: PoolState, ordinal: int, slots: int, allows: Callable[[VPod], bool]
) -> dict[str, int]:
    """Vpod key -> pending vreplicas that ``ordinal`` would get if all unbound pods were bound."""
    if not pool.vpods_with_pending:
        return {}
    ledgers = LedgerRoom(pool)
    free, returning = _free_once_bound(pool, ordinal, slots, ledgers)
    room = sum(1 << there for there, left in free.items() if left > 0)
    added: dict[str, int] = {}
    for key in list(pool.vpods_with_pending):
        vpod = pool.vpods[key]
        if not allows(vpod):
            continue
        if vpod.per_vreplica or vpod.max_per_pod or pool.comes_as_a_whole(vpod):
            continue
        pending = max(0, vpod.vreplicas - pool.decided_vreplicas(key) - returning.get(key, 0))
        own = pool.ordinals_of(
            {name: claim.decided.vreplicas for name, claim in pool.claims_of(key).items()}
        )
        given, _ = round_robin(
            ledgers.open_to(room, key), own, free.__getitem__, pending, vpod.weight
        )
        ledgers.give(key, given)
        for there, count in given.items():
            free[there] -= count * vpod.weight
            if free[there] <= 0:
                room &= ~(1 << there)
        if given.get(ordinal):
            added[key] = given[ordinal]
        if not room >> ordinal & 1:
            break
    return added


def _free_once_bound(
    pool: PoolState, ordinal: int, slots: int, ledgers: LedgerRoom
) -> tuple[dict[int, int], dict[str, int]]:
    """Return two things: free slots by ordinal, of ``ordinal``, which has ``slots``, and of all
    unbound pods; and, by vpod key, the vreplicas that come back with these pods. Enters the latter
    into ``ledgers``.
    """
    free: dict[int, int] = {}
    returning: dict[str, int] = {}
    asked = pool.by_ordinal.get(ordinal)
    for known in (pool.unbound if asked is None else {**pool.unbound, asked.name: asked}).values():
        if not pool.is_member(known):
            continue
        back = _returning(pool, known)
        for key, share in back.items():
            returning[key] = returning.get(key, 0) + share.vreplicas
        there = known.ordinal
        if there is not None and _open(pool, known) and (known.awaits_node or there == ordinal):
            # Each pod counts with its own size, so that the binds of all these pods compute the
            # same plan.
            for key in back:
                ledgers.give(key, (there,))
            free[there] = (
                (slots if there == ordinal else known.capacity) - known.held - ledger_slots(back)
            )
    return free, returning


def _open(pool: PoolState, known: PodClaims) -> bool:
    """Whether an ordinal may get new vreplicas once it is bound."""
    return not (known.leaving or pool.is_closed(known))


def _returning(pool: PoolState, known: PodClaims) -> dict[str, Share]:
    """What only the ordinal's previous pod was seen to carry: no placement counts it, and it
    returns with the ordinal.
    """
    back: dict[str, Share] = {}
    if known.name in pool.abandoned:
        return back  # its vreplicas are placed elsewhere
    for key, share in known.last_ledger.items():
        claim = known.claims.get(key)
        extra = share.vreplicas - (claim.decided.vreplicas if claim is not None else 0)
        if extra > 0:
            back[key] = share._replace(vreplicas=extra)
    return back


def within_slots(
    slots: int, *in_order: Mapping[str, Share], capacities: Amounts = NO_AMOUNTS
) -> dict[str, Share]:
    """Combine mappings of vpod key -> share, cut to ``slots`` and ``capacities`` in all (I1).

    A vpod in several of them gets its largest share, with the weight and amounts of the first one.
    If there is not enough for all, earlier mappings go first, and within each the vpods in the
    order of their keys, so that every replica cuts alike. A share may be cut to part of its
    vreplicas.
    """
    free, left = slots, dict(capacities)
    ledger: dict[str, Share] = {}
    for shares in in_order:
        for key, share in sorted(shares.items()):
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
