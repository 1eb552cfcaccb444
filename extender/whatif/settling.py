"""Finds the state that a cluster reaches by itself: places, grows and, if asked, moves in turn,
until nothing changes.

It works as the service does, but in rounds. Each vpod is decided and reserved as by the placer.
Once all are decided, the decisions count as written (ledger and status), so the slots that a move
has freed can be used. Pods come as in ``growth``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from extender.engine.placing.plan import Decision
from extender.engine.rebalance.move_plan import Limits, placed_by_moves
from extender.engine.rebalance.moves import Advice, by_profile, plan_moves
from extender.engine.rebalance.relocation import relocations
from extender.engine.scaling.scale_down import count_without_empty, ordinals_to_close
from extender.engine.scaling.size import plan_scale, waiting_without_growth
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.ledger import Share
from extender.model.moves import Move
from extender.model.objects import VPod, placement_order
from extender.whatif.growth import autoscale, bind_missing
from extender.whatif.trial import OutOfTime, Trial, never

ROUNDS_MAX: Final = 20
MOVES_AT_ONCE: Final = 1_000_000
"""No budget: the question is where the moves end, not how long they take."""


@dataclass(slots=True)
class Settled:
    """The last decision of each vpod of a pool, by key, and the evictor's moves with their
    reasons.
    """

    decisions: dict[str, Decision] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)

    @property
    def unplaced(self) -> int:
        """Vreplicas without a place."""
        return sum(decision.pending for decision in self.decisions.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What may happen until a pool has settled. ``last``: keys of vpods that are decided after all
    others.

    ``grow``: missing pods come, and the autoscaler adds pods that it needs. ``held``: ordinals that
    find no node. If there are any, the autoscaler adds none, because new pods would be of the same
    kind. ``compact``: the evictor empties pods and balances as it would over time.
    """

    last: frozenset[str] = frozenset()
    grow: bool = False
    compact: bool = False
    held: frozenset[int] = frozenset()


def settle(
    state: ClusterState, key: str, course: Course, *, expired: Callable[[], bool] = never
) -> Settled:
    """Change ``state``, the caller's own, until the pool ``key`` has settled. Vpods are decided in
    the order of their keys. Raises OutOfTime once ``expired``.
    """
    pool, settled = state.pool(key), Settled()
    undecided = vpods = sorted(pool.vpods, key=lambda vpod: (vpod in course.last, vpod))
    for _ in range(ROUNDS_MAX):
        trial = Trial(state, expired)
        if course.grow:
            bind_missing(trial, pool, but=course.held)
        freed = _decide(trial, pool, undecided, settled)
        if course.grow and not course.held:
            replicas, made = _replicas(pool), _make_room_first(state, pool)
            settled.moves += made
            if not made:
                autoscale(trial, pool, undecided)
            freed = freed or bool(made) or _replicas(pool) != replicas
        if course.compact:
            made = _compact(state, pool, shrink=course.grow, expired=expired)
            settled.moves += made
            freed = freed or bool(made)
        undecided = [vpod for vpod in vpods if _is_open(pool, settled.decisions[vpod])]
        # If nothing was freed, vpods that have found no room will find none.
        if not freed or not (undecided or course.compact):
            break
    return settled


def _is_open(pool: PoolState, decision: Decision) -> bool:
    """Whether another decision may place more of a vpod: some of it found no room, or its pool
    admits another number by now.
    """
    vpod = pool.vpods[decision.vpod]
    return decision.pending > 0 or vpod.not_admitted != decision.explanation.not_admitted


def _replicas(pool: PoolState) -> int:
    return pool.stateful_set.replicas if pool.stateful_set is not None else 0


def _decide(trial: Trial, pool: PoolState, keys: Iterable[str], settled: Settled) -> bool:
    """Decide these vpods in turn, and count the decisions as written. Return whether that has freed
    slots.
    """
    changed: list[Decision] = []
    freed = False
    for key in keys:
        before = pool.decided_of(key)
        decision = settled.decisions[key] = trial.decide(pool, pool.vpods[key])
        if dict(decision.target) != before or decision.target != pool.vpods[key].placements:
            changed.append(decision)
            freed = freed or any(
                count > decision.target.get(name, 0) for name, count in before.items()
            )
    commit(trial.state, pool, changed)
    return freed


def commit(state: ClusterState, pool: PoolState, decisions: Iterable[Decision]) -> None:
    """Write the decisions into ledgers and statuses."""
    shares: dict[str, dict[str, Share]] = {}
    for decision in decisions:
        key = decision.vpod
        for name in {*pool.claims_of(key), *decision.target}:
            share = decision.share(decision.target.get(name, 0))
            shares.setdefault(name, {})[key] = share
        for name in list(pool.claims_of(key)):
            if (claim := pool.claims_of(key).get(name)) is not None and claim.reserved is not None:
                pool.release(claim.owner, key)
        vpod = pool.vpods[key]
        if vpod.placements != decision.target:
            state.vpod_changed(vpod, _publishing(vpod, decision.target))
    _write_ledgers(state, pool, shares)


def _publishing(vpod: VPod, target: Mapping[str, int]) -> VPod:
    placements = {name: target[name] for name in sorted(target, key=placement_order)}
    return replace(vpod, placements=MappingProxyType(placements))


def _write_ledgers(
    state: ClusterState, pool: PoolState, shares: Mapping[str, Mapping[str, Share]]
) -> None:
    for name, new in shares.items():
        known = pool.pods.get(name)
        pod = known.pod if known is not None else None
        if pod is None or not pod.node or pod.finished:
            continue  # until the pod is bound, only the status has it
        ledger = {k: share for k, share in {**pod.ledger, **new}.items() if share.vreplicas}
        if ledger != pod.ledger:
            state.pod_changed(pod, replace(pod, ledger=MappingProxyType(ledger)))


def _make_room_first(state: ClusterState, pool: PoolState) -> list[Move]:
    """Make the moves that a pool tries before it grows. Return them."""
    allows = partial(state.selects, pool.key)
    plan = plan_scale(pool, allows)
    if plan is None or not pool.vpods_with_pending:
        return []
    waiting = waiting_without_growth(pool, allows, plan)
    if not placed_by_moves(pool, waiting):
        return []
    limits = Limits(budget=MOVES_AT_ONCE, emptying=0)
    return _carry_out(state, pool, plan_moves(pool, limits, Advice(waiting=waiting)))


def _carry_out(state: ClusterState, pool: PoolState, moves: Sequence[Move]) -> list[Move]:
    made: list[Move] = []
    for decision in relocations(pool, moves):
        commit(state, pool, [decision])
        made += decision.moves
    return made


def _compact(
    state: ClusterState, pool: PoolState, *, shrink: bool, expired: Callable[[], bool]
) -> list[Move]:
    """Run one period of the evictor without a budget. With ``shrink``, it also empties the pods
    that the autoscaler closes, and removes them.
    """
    allows = partial(state.selects, pool.key)
    plan = plan_scale(pool, allows)
    if shrink and plan is not None:
        pool.set_closed(ordinals_to_close(pool, plan, allows))

    def better(
        pool: PoolState, vpod: VPod, placements: Mapping[str, int]
    ) -> tuple[str, str] | None:
        if expired():
            raise OutOfTime("the time for moving is up")
        return by_profile(pool, vpod, placements)

    advice = Advice(
        better=better,
        vpods=[key for key, vpod in pool.vpods.items() if allows(vpod)],
        waiting=waiting_without_growth(pool, allows, plan) if plan is not None else (),
    )
    made = _carry_out(state, pool, plan_moves(pool, Limits(budget=MOVES_AT_ONCE), advice))
    if shrink:
        _remove_empty(state, pool)
    return made


def _remove_empty(state: ClusterState, pool: PoolState) -> None:
    stateful_set = pool.stateful_set
    count = count_without_empty(pool, state)
    if stateful_set is None or count >= stateful_set.replicas:
        return
    state.stateful_set_changed(stateful_set, replace(stateful_set, replicas=count))
    for ordinal in range(stateful_set.ordinals_start + count, stateful_set.ordinals.stop):
        known = pool.pods.get(f"{stateful_set.name}-{ordinal}")
        if known is not None and known.pod is not None:
            state.pod_changed(known.pod, None)
    pool.set_closed(0)
