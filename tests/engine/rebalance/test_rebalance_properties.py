"""Whatever the pool is like: moves keep their limits, lose nothing, overcommit nothing, and come to
an end.
"""

import random

import pytest
from hypothesis import example, given, settings, strategies as st

from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.draft import without_one
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.engine.rebalance.relocation import is_published, relocate
from extender.engine.rebalance.repetition import LeftBehind
from extender.engine.scaling.size import plan_scale
from extender.engine.state.pool_state import PoolState
from extender.lab.simulation.checkers.evenness import unevenness
from extender.model.ledger import Share
from extender.model.moves import Move, MoveReason
from extender.model.objects import ordinal_of
from tests.engine.scaling.plans import closed_by_autoscaler
from tests.support import worlds
from tests.support.builders import POOL, Scene, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.placing import place
from tests.support.worlds import Naive, World


@st.composite
def busy_worlds(draw) -> World:
    """Healthy pods on two nodes, seldom one being drained, and vpods that stand on most of them;
    not full.
    """
    world = World()
    for name, zone in (("node-0", "z0"), ("node-1", "z1")):
        world.put(a_node(name, zone))
    replicas, slots = draw(st.integers(2, 5)), draw(st.integers(3, 8))
    world.put(a_stateful_set(replicas))
    most = dict(draw(worlds.capacities))
    world.put(a_pool(slots, capacities=tuple(most.items())))
    free = dict.fromkeys(range(replicas), slots)
    left = {ordinal: dict(most) for ordinal in range(replicas)}
    ledgers: dict[int, dict[str, Share]] = {ordinal: {} for ordinal in range(replicas)}
    for name in worlds.VPODS:
        weight, placements = draw(st.sampled_from([1, 1, 2])), {}
        amounts = tuple(
            (name, one) for name, one in draw(worlds.amounts) if one <= most.get(name, 0)
        )
        for ordinal in range(replicas):
            count = min(
                draw(st.integers(0, 2)),
                free[ordinal] // weight,
                *(left[ordinal][name] // amount for name, amount in amounts),
            )
            for dimension, amount in amounts:
                left[ordinal][dimension] -= count * amount
            if count:
                placements[ordinal] = count
                free[ordinal] -= count * weight
                ledgers[ordinal][f"tenant/{name}"] = Share(count, weight, amounts)
        wanted = sum(placements.values())
        fields = {"per_vreplica": amounts, "max_per_pod": draw(worlds.limits)}
        world.put(a_vpod(name, wanted, placements, weight=weight, **fields))
    for ordinal, ledger in ledgers.items():
        drained = draw(st.integers(0, 9)) == 9
        world.put(a_pod(ordinal, ledger, node=f"node-{ordinal % 2}", unschedulable=drained))
    return world


any_worlds = st.one_of(busy_worlds(), worlds.worlds())
profiles = st.sampled_from(sorted(BUILT_IN_PROFILES)).map(BUILT_IN_PROFILES.__getitem__)
bit_sets = st.integers(0, 63)


def carry_out(world: World, moves: list[Move]) -> list[Move]:
    """As the placer does it, each vpod's moves at once; those that were made."""
    done: list[Move] = []
    for key in dict.fromkeys(move.vpod for move in moves):
        mine = [move for move in moves if move.vpod == key]
        decision = relocate(world.state.pool(POOL), world.vpods[key], mine)
        if decision is not None:
            world.write(decision)
            done += decision.moves
    return done


def placed(pool: PoolState) -> dict[str, dict[str, int]]:
    return {key: pool.decided_of(key) for key in pool.claims_by_vpod}


def totals(pool: PoolState) -> dict[str, int]:
    return {key: pool.decided_vreplicas(key) for key in pool.claims_by_vpod}


def given_a_profile(world: World, profile) -> PoolState:
    pool = world.state.pool(POOL)
    pool.set_profile(profile)
    return pool


@settings(max_examples=150, deadline=None)
@given(
    world=any_worlds,
    profile=profiles,
    closed=bit_sets,
    abandoned=st.frozensets(worlds.ordinals.map("dispatcher-{}".format), max_size=2),
    budget=st.integers(0, 9),
    cooling=st.frozensets(worlds.vpod_names.map("tenant/{}".format)),
)
def test_every_move_keeps_the_limits_and_has_room(
    world, profile, closed, abandoned, budget, cooling
):
    pool = given_a_profile(world, profile)
    world.close(POOL, closed)
    world.abandon(POOL, abandoned)
    naive = Naive(world, POOL)
    plan = plan_moves(
        pool, Limits(budget=budget, cooling=cooling.__contains__), Advice(vpods=sorted(world.vpods))
    )
    assert sum(move.vreplicas for move in plan) <= budget
    taken: dict[tuple[str, str], int] = {}
    given_to: dict[str, int] = {}
    for move in plan:
        assert move.vreplicas > 0
        taken[move.vpod, move.from_pod] = taken.get((move.vpod, move.from_pod), 0) + move.vreplicas
        slots = move.vreplicas * world.vpods[move.vpod].weight
        given_to[move.to_pod] = given_to.get(move.to_pod, 0) + slots
        to, source = ordinal_of(move.to_pod), ordinal_of(move.from_pod)
        assert naive.schedulable(move.to_pod)
        assert to is not None
        assert not closed >> to & 1
        assert move.to_pod != move.from_pod
        if move.reason is MoveReason.COMPACTION:
            assert source is not None
            assert closed >> source & 1
            assert to < source
        if move.reason in {MoveReason.COMPACTION, MoveReason.POLICY}:
            assert move.vpod not in cooling
        if move.reason is MoveReason.RESCHEDULE:
            assert move.from_pod in abandoned
    for (vpod, name), count in taken.items():
        assert count <= naive.placed_of(vpod).get(name, 0)
    for name, slots in given_to.items():
        assert slots <= naive.capacity(name) - naive.held(name)
    assert_limits_are_kept(world, naive, plan)
    for dimension, most in pool.capacities:
        amounts: dict[str, int] = {}
        for move in plan:
            each = dict(world.vpods[move.vpod].per_vreplica).get(dimension, 0)
            amounts[move.to_pod] = amounts.get(move.to_pod, 0) + move.vreplicas * each
        for name, amount in amounts.items():
            assert amount <= max(0, most - naive.held_amount(dimension, name)), dimension


def assert_limits_are_kept(world: World, naive: Naive, plan: list[Move]) -> None:
    """No pod gets more of a vpod than its maxPerPod."""
    for key, name in {(move.vpod, move.to_pod) for move in plan}:
        come = sum(m.vreplicas for m in plan if (m.vpod, m.to_pod) == (key, name))
        gone = sum(m.vreplicas for m in plan if (m.vpod, m.from_pod) == (key, name))
        there = naive.placed_of(key).get(name, 0) - gone + come
        assert there <= (world.vpods[key].max_per_pod or there)


@settings(max_examples=80, deadline=None)
@given(world=any_worlds, profile=profiles, closed=bit_sets, budget=st.integers(1, 5))
def test_planning_and_moving_again_and_again_ends_loses_nothing_and_overcommits_nothing(
    world, profile, closed, budget
):
    pool = given_a_profile(world, profile)
    world.close(POOL, closed)
    before, over = totals(pool), {pod.name for pod in pool.pods.values() if pod.overcommitted}
    total = sum(before.values())
    plan: list[Move] = []
    memory = LeftBehind()
    advice = Advice(
        vpods=sorted(world.vpods),
        returns=lambda key, placements: memory.returns(world.vpods[key], placements),
    )
    for _ in range(20 * (total + 1)):
        memory.look(pool)
        limits = Limits(budget=budget, fixed=lambda key: not is_published(pool, key))
        plan = plan_moves(pool, limits, advice)
        if not plan:
            break
        for key in {move.vpod for move in plan}:
            memory.leave(world.vpods[key], pool.decided_of(key))
        assert sum(m.vreplicas for m in carry_out(world, plan)) == sum(m.vreplicas for m in plan), (
            plan
        )
        assert totals(pool) == before
        assert {pod.name for pod in pool.pods.values() if pod.overcommitted} <= over
    else:
        pytest.fail(f"no end under {profile.name}: {placed(pool)} {plan}")


@settings(max_examples=40, deadline=None)
@given(world=st.one_of(busy_worlds(), worlds.worlds(weights=False, tidy=True)), closed=bit_sets)
def test_compaction_only_stops_where_the_highest_load_does_not_fit_below(world, closed):
    pool = world.state.pool(POOL)
    world.close(POOL, closed)
    for _ in range(50):
        plan = [m for m in plan_moves(pool, Limits(budget=3)) if m.reason is MoveReason.COMPACTION]
        if not plan:
            break
        carry_out(world, plan)
    loaded = [
        p for p in pool.members() if p.decided and p.ordinal is not None and closed >> p.ordinal & 1
    ]
    if loaded and not any(
        p.draining or p.decided > p.capacity or not pool.is_member(p) for p in pool.pods.values()
    ):
        highest = loaded[-1]
        room = sum(
            max(0, p.free)
            for o, p in pool.by_ordinal.items()
            if o < highest.ordinal and pool.room >> o & 1
        )
        unknown = [key for key in highest.claims if key not in pool.vpods]
        # Placing takes these away (tests/engine/rebalance/test_rebalance.py): a vpod that wants
        # none and publishes one, say.
        too_many = [
            key
            for key in highest.claims
            if key in pool.vpods and pool.decided_vreplicas(key) > pool.vpods[key].vreplicas
        ]
        heavy = max(
            (world.vpods[key].weight for key in highest.claims if key in pool.vpods), default=1
        )
        # With vreplicas of several slots, less than one may be left over on every pod. With further
        # dimensions, any number of slots may.
        lost = (heavy - 1) * sum(1 for ordinal in pool.by_ordinal if ordinal < highest.ordinal)
        limited = any(pool.vpods[key].max_per_pod for key in highest.claims if key in pool.vpods)
        fits = room >= highest.decided + lost and not limited
        assert unknown or too_many or not fits or pool.capacities


NODES_OF_THE_ZONES = ("z0", "z0", "z1", "z1", "z2")
"""Index of the node -> zone."""


@settings(max_examples=400, deadline=None)
@given(
    pods=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 3)), min_size=5),
    profile=st.sampled_from(("spread", "ha")),
)
@example(pods=[(0, 0, 0), (0, 2, 0), (2, 2, 0), (3, 0, 0), (4, 0, 0)], profile="spread")
def test_each_policy_move_of_a_vpod_is_an_improvement_even_if_the_others_are_not_made(
    pods, profile
):
    """A move may fail, for example because its destination gets no ready (seed 621)."""
    scene = Scene(replicas=len(pods), slots=6, min_pods=len(pods))
    for index, zone in enumerate(NODES_OF_THE_ZONES):
        scene.node(a_node(f"node-{index}", zone))
    for ordinal, (node, count, others) in enumerate(pods):
        ledger = {"tenant/a": count, f"tenant/v{ordinal}": others}
        ledger = {key: number for key, number in ledger.items() if number}
        scene.pod(ordinal, ledger, node=f"node-{node}")
        scene.vpod(f"v{ordinal}", others, {ordinal: others} if others else None)
    placements = {ordinal: count for ordinal, (_, count, _) in enumerate(pods) if count}
    scene.vpod("a", sum(placements.values()), placements)
    scene.pool.set_profile(BUILT_IN_PROFILES[profile])

    def place_of(name: str) -> tuple[str, str]:
        node = pods[ordinal_of(name) or 0][0]
        return NODES_OF_THE_ZONES[node], f"node-{node}"

    before = scene.pool.decided_of("tenant/a")
    plan = plan_moves(scene.pool, Limits(budget=9), Advice(vpods=["tenant/a"]))
    made = [move for move in plan if move.vpod == "tenant/a" and move.reason is MoveReason.POLICY]
    for move in made:
        left = without_one(before, move.from_pod)
        alone = {**left, move.to_pod: left.get(move.to_pod, 0) + 1}
        assert unevenness(alone, place_of) < unevenness(before, place_of), (move, plan)


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
)
def test_a_policy_that_never_rests_is_stopped_by_the_states_it_has_left(counts, seed):
    world = a_settled_world(counts, 6, 3)
    pool = world.state.pool(POOL)
    memory, rng = LeftBehind(), random.Random(seed)

    def restless(_pool, _vpod, placements):
        source = rng.choice(sorted(placements))
        return source, rng.choice(
            [f"dispatcher-{o}" for o in range(3) if f"dispatcher-{o}" != source]
        )

    advice = Advice(
        better=restless,
        vpods=sorted(world.vpods),
        returns=lambda key, placements: memory.returns(world.vpods[key], placements),
    )
    visited = {key: [pool.decided_of(key)] for key in world.vpods}
    for _ in range(60):
        memory.look(pool)
        plan = plan_moves(pool, Limits(budget=2), advice)
        for key in {move.vpod for move in plan}:
            memory.leave(world.vpods[key], pool.decided_of(key))
        carry_out(world, plan)
        for key in {move.vpod for move in plan}:
            assert pool.decided_of(key) not in visited[key]
            visited[key].append(pool.decided_of(key))
    # 3 vreplicas on 3 pods have 10 placements: without the memory every round would move.
    assert all(len(states) <= 10 for states in visited.values())


def a_settled_world(counts: list[int], slots: int, replicas: int) -> World:
    world = World()
    world.put(a_node())
    world.put(a_stateful_set(replicas))
    world.put(a_pool(slots))
    for ordinal in range(replicas):
        world.put(a_pod(ordinal, {}))
    for index, count in enumerate(counts):
        world.put(a_vpod(f"v{index}", count))
    place_all(world)
    return world


def pods_in_use(pool: PoolState) -> int:
    """One more than the highest ordinal that holds something."""
    return max(
        (pod.ordinal + 1 for pod in pool.members() if pod.decided and pod.ordinal is not None),
        default=0,
    )


def place_all(world: World) -> int:
    left = 0
    for key in sorted(world.vpods):
        decision = place(world.state.pool(POOL), world.vpods[key])
        world.write(decision)
        left += decision.pending
    return left


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9), max_size=5), st.integers(2, 6), st.integers(1, 6), st.integers(1, 7)
)
def test_closing_moving_and_scaling_down_ends_at_the_pods_that_are_wanted(
    counts, slots, replicas, budget
):
    world = a_settled_world(counts, slots, replicas)
    pool = world.state.pool(POOL)
    before = totals(pool)
    for _ in range(sum(counts) + replicas + 1):
        pool.set_closed(closed_by_autoscaler(pool))
        plan = plan_moves(pool, Limits(budget=budget))
        if not plan:
            break
        carry_out(world, plan)
        assert place_all(world) == max(0, sum(counts) - slots * replicas)
        assert totals(pool) == before, "nothing is lost, and placing brings nothing back"
        in_use = pods_in_use(pool)
        for pod in [
            pod for pod in world.pods.values() if pod.ordinal is not None and pod.ordinal >= in_use
        ]:
            world.remove(type(pod), pod.key)
        world.put(a_stateful_set(in_use))
    else:
        pytest.fail("oscillates")
    scale = plan_scale(pool)
    assert scale is not None
    assert pods_in_use(pool) <= scale.wanted


def test_a_decided_share_that_is_not_written_yet_counts_at_both_ends():
    world = a_settled_world([2, 2], 4, 2)
    pool = world.state.pool(POOL)
    world.reserve("test", POOL, "tenant/v0", {"dispatcher-0": Share(3)}, 1e9)
    world.close(POOL, 0b10)
    plan = plan_moves(pool, Limits(budget=9))
    assert plan == [], "dispatcher-0 holds 4 of 4 slots"
