"""What holds for every plan, on random states; and a slow oracle of DESIGN 5.1 that must agree with
``place``.
"""

from hypothesis import given, settings, strategies as st

from extender.engine.placing.plan import Decision
from extender.model.ledger import Share
from extender.model.objects import VPod, ordinal_of, placement_order
from tests.support import worlds
from tests.support.builders import POOL, Scene, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.placing import place
from tests.support.worlds import Naive, World

TIGHT = settings(max_examples=30, deadline=None)


def by_name(world: World) -> list[VPod]:
    return [world.vpods[key] for key in sorted(world.vpods)]


def decide(world: World, vpod: VPod) -> Decision:
    return place(world.state.pool(POOL), vpod)


def over(naive: Naive) -> dict[str, int]:
    return {name: max(0, naive.placed(name) - naive.capacity(name)) for name in naive.names}


def over_in(naive: Naive, dimension: str, most: int) -> dict[str, int]:
    return {name: max(0, naive.placed_amount(dimension, name) - most) for name in naive.names}


def dimensions(naive: Naive) -> dict[str, int]:
    return dict(naive.pool.capacities) if naive.pool is not None else {}


def fits_an_empty_pod(naive: Naive, vpod: VPod) -> bool:
    most = dimensions(naive)
    return vpod.weight <= naive.slots_per_pod and all(
        amount <= most.get(dimension, 0) for dimension, amount in vpod.per_vreplica
    )


def slow_place(naive: Naive, vpod: VPod) -> tuple[dict[str, int], int]:
    """DESIGN 5.1, one vreplica at a time, from the objects: (pod name -> vreplicas, left)."""
    kept, drained = _keep(naive, vpod)
    while True:
        able = [name for name in naive.names if naive.schedulable(name)]
        wanted = vpod.vreplicas
        if wanted:
            standing = [name for name in kept if kept[name]]
            wanted = max(wanted, min(naive.min_pods_per_vpod, max(len(able), len(standing))))
        if sum(kept.values()) <= wanted:
            break
        _take_one(kept, naive, vpod)
    missing = wanted - sum(kept.values())
    able = sorted(able, key=placement_order)
    # What leaves a pod gets room before what waits, and stays where there is none.
    leaving = min(missing, sum(drained.values()))
    held = _round_robin(naive, vpod, kept, able, leaving)
    stays = held
    for name in sorted(drained, key=placement_order):
        back = min(drained[name], stays)
        kept[name] = kept.get(name, 0) + back
        stays -= back
    left = held + _round_robin(naive, vpod, kept, able, missing - leaving)
    return {name: count for name, count in kept.items() if count}, left


def _keep(naive: Naive, vpod: VPod) -> tuple[dict[str, int], dict[str, int]]:
    kept: dict[str, int] = {}
    drained: dict[str, int] = {}
    for name, count in naive.placed_of(vpod.key).items():
        pod = naive.pods.get(name)
        runs = pod is not None and bool(pod.node) and not pod.finished
        if not naive.member(name) and not runs:
            continue
        others = naive.placed(name) - naive.placed_share(vpod.key, name).slots
        draining = not naive.member(name) or (pod is not None and pod.unschedulable)
        fits = max(0, (naive.capacity(name) - others) // vpod.weight)
        recorded = naive.sides(vpod.key, name)[0]
        if recorded.vreplicas and recorded.weight < vpod.weight:
            room = naive.capacity(name) - _others(naive, vpod, name)
            fits = min(fits, max(recorded.slots, room) // vpod.weight)
        for dimension, amount in vpod.per_vreplica:
            most = dimensions(naive)[dimension]
            own = worlds.taken(naive.placed_share(vpod.key, name), dimension)
            others = naive.placed_amount(dimension, name) - own
            fits = min(fits, max(0, (most - others) // amount))
            if recorded.vreplicas and dict(recorded.amounts).get(dimension, 0) < amount:
                room = most - _others_of(naive, vpod, name, dimension)
                fits = min(fits, max(worlds.taken(recorded, dimension), room, 0) // amount)
        (drained if draining else kept)[name] = min(count, fits)
    return kept, drained


def _take_one(kept: dict[str, int], naive: Naive, vpod: VPod) -> None:
    highest_first = sorted((name for name in kept if kept[name]), key=placement_order, reverse=True)
    unpublished = [
        name for name in highest_first if kept[name] > naive.sides(vpod.key, name)[1].vreplicas
    ]
    kept[(unpublished or highest_first)[0]] -= 1


def _round_robin(
    naive: Naive, vpod: VPod, kept: dict[str, int], able: list[str], missing: int
) -> int:
    own = [name for name in able if kept.get(name)]
    turn = [name for name in able if name not in own] + own
    roomy = [name for name in turn if naive.held(name) < naive.capacity(name)]
    progress = True
    while missing and progress:
        progress = False
        for name in roomy:
            if missing and _has_room(naive, vpod, name, kept.get(name, 0)):
                kept[name] = kept.get(name, 0) + 1
                missing -= 1
                progress = True
    return missing


def _has_room(naive: Naive, vpod: VPod, name: str, kept: int) -> bool:
    if _others(naive, vpod, name) + (kept + 1) * vpod.weight > naive.capacity(name):
        return False
    if vpod.max_per_pod and kept >= vpod.max_per_pod:
        return False
    most = dimensions(naive)
    return all(
        _others_of(naive, vpod, name, dimension) + (kept + 1) * amount <= most[dimension]
        for dimension, amount in vpod.per_vreplica
    )


def _others_of(naive: Naive, vpod: VPod, name: str, dimension: str) -> int:
    """What the other vpods hold of a dimension."""
    return sum(
        naive.held_amount_by(dimension, key, there)
        for key, there in naive.claimed
        if there == name and key != vpod.key
    )


def _others(naive: Naive, vpod: VPod, name: str) -> int:
    """Slots that the other vpods hold."""
    return sum(
        naive.held_by(key, there)
        for key, there in naive.claimed
        if there == name and key != vpod.key
    )


@settings(max_examples=80, deadline=None)
@given(worlds.worlds())
def test_every_plan_of_a_round_is_right(world):
    assert_plans_are_right(world)


@st.composite
def pools_with_dimensions(draw) -> World:
    """Healthy pods with many slots, and vpods that all take some of what the pods have beside."""
    world = World()
    replicas = draw(st.integers(1, 3))
    capacities = (("cpu", draw(st.integers(3, 7))), ("memory", draw(st.integers(4, 12))))
    for obj in (a_node(), a_stateful_set(replicas), a_pool(9, capacities=capacities)):
        world.put(obj)
    sizes = st.sampled_from(
        [(("cpu", 1),), (("cpu", 2),), (("memory", 3),), (("cpu", 1), ("memory", 4))]
    )
    for name in worlds.VPODS:
        each, weight = draw(sizes), draw(st.integers(1, 2))
        world.put(a_vpod(name, draw(st.integers(1, 9)), weight=weight, per_vreplica=each))
    for ordinal in range(replicas):
        ledger = {
            vpod.key: Share(draw(st.integers(0, 2)), vpod.weight, vpod.per_vreplica)
            for vpod in by_name(world)
        }
        world.put(a_pod(ordinal, {key: share for key, share in ledger.items() if share.vreplicas}))
    return world


@settings(max_examples=60, deadline=None)
@given(pools_with_dimensions())
def test_every_plan_in_a_pool_with_dimensions_is_right(world):
    assert_plans_are_right(world)


def assert_plans_are_right(world: World) -> None:
    for vpod in by_name(world):
        naive = Naive(world, POOL)
        decision = decide(world, vpod)
        if fits_an_empty_pod(naive, vpod):
            assert (dict(decision.target), decision.pending) == slow_place(naive, vpod)
            assert_nothing_is_lost(naive, vpod, decision)
        assert_steps_account_for_every_difference(naive.placed_of(vpod.key), decision)
        world.decide(decision)
        after = Naive(world, POOL)
        assert_no_pod_is_more_overcommitted(naive, after)
        if decision.pending and fits_an_empty_pod(naive, vpod):
            assert_no_room_is_left(after, vpod, decision)
        again = decide(world, vpod)
        assert_nothing_but_what_is_published_comes_back(decision, again, vpod)
        world.decide(again)
        last = decide(world, vpod)
        assert (dict(last.target), last.pending) == (dict(again.target), again.pending), (
            "decided again"
        )


def test_what_is_lost_with_its_ordinal_stays_lost_when_the_drain_is_decided_again():
    world = World()
    for obj in (a_node(), a_stateful_set(2, start=1), a_pool(1)):
        world.put(obj)
    for ordinal in (1, 2):
        world.put(a_pod(ordinal, {}, unschedulable=ordinal == 1))
    world.put(a_vpod("a", 6, {0: 1, 1: 1, 3: 1}))
    (vpod,) = by_name(world)
    first = decide(world, vpod)
    assert (dict(first.target), first.pending) == ({"dispatcher-2": 1}, 5), (
        "the drained one has the first claim"
    )
    world.decide(first)
    again = decide(world, vpod)
    assert (again.target, again.pending) == (first.target, first.pending)


def test_what_is_wanted_again_is_moved_off_each_overcommitted_pod_once():
    """Seed 620000113: no status could be written while fewer were wanted, and then more again."""
    world = World()
    for obj in (a_node(), a_stateful_set(3), a_pool(2)):
        world.put(obj)
    for ordinal in (0, 1):
        world.put(a_pod(ordinal, {"tenant/b": Share(2, 2), "tenant/a": Share(1)}))
    world.put(a_pod(2))
    world.put(a_vpod("b", 4, {0: 2, 1: 2}, weight=2))
    told: list[tuple[str, str, int]] = []
    for wanted in (0, 1, 2):
        world.put(a_vpod("a", wanted, {0: 1, 1: 1}))
        decision = decide(world, world.vpods["tenant/a"])
        world.decide(decision)
        told += [(move.from_pod, move.to_pod, move.vreplicas) for move in decision.moves if wanted]
    assert told == [("dispatcher-0", "dispatcher-2", 1), ("dispatcher-1", "dispatcher-2", 1)]


@st.composite
def full_pods(draw) -> World:
    """A pod that is full, by vpods that now want more or fewer vreplicas than there are, heavier or
    lighter ones.
    """
    ledger = draw(
        st.dictionaries(
            st.sampled_from(worlds.VPODS), worlds.shares, min_size=2, max_size=len(worlds.VPODS)
        )
    )
    world = World()
    recorded = {f"tenant/{name}": share for name, share in ledger.items()}
    slots = sum(share.slots for share in ledger.values())
    amounts = {
        dimension: sum(worlds.taken(share, dimension) for share in ledger.values())
        for dimension in worlds.DIMENSIONS
    }
    full = tuple((dimension, most) for dimension, most in amounts.items() if most)
    for obj in (a_node(), a_stateful_set(2), a_pool(slots, capacities=full)):
        world.put(obj)
    world.put(a_pod(0, recorded))
    for name, share in ledger.items():
        published = draw(st.integers(0, share.vreplicas))
        wanted, weight = draw(st.integers(0, 5)), draw(st.integers(1, 3))
        placements, each = {0: published} if published else {}, draw(worlds.amounts)
        world.put(a_vpod(name, wanted, placements, weight=weight, per_vreplica=each))
    return world


@settings(max_examples=200, deadline=None)
@given(full_pods())
def test_no_room_of_a_full_pod_is_promised_before_it_is_left(world):
    for vpod in by_name(world):
        before = Naive(world, POOL)
        decision = decide(world, vpod)
        if fits_an_empty_pod(before, vpod):
            assert (dict(decision.target), decision.pending) == slow_place(before, vpod)
        world.decide(decision)
        assert_no_pod_is_more_overcommitted(before, Naive(world, POOL))


def assert_nothing_but_what_is_published_comes_back(
    first: Decision, again: Decision, vpod: VPod
) -> None:
    """Decided again before it is written: the same, or a part of what the first took off a drained
    pod stays there.
    """
    for name in {*first.target, *again.target}:
        had, has = first.target.get(name, 0), again.target.get(name, 0)
        assert had == has or had < has <= vpod.placements.get(name, 0), name
    assert first.pending >= again.pending


def assert_nothing_is_lost(naive: Naive, vpod: VPod, decision: Decision) -> None:
    assert decision.scheduled + decision.pending >= vpod.vreplicas
    safe = sum(sum(part.values()) for part in _keep(naive, vpod))
    assert decision.scheduled >= min(vpod.vreplicas, safe)


def assert_no_room_is_left(after: Naive, vpod: VPod, decision: Decision) -> None:
    for name in filter(after.schedulable, after.names):
        full = after.held(name) >= after.capacity(name)
        kept = decision.target.get(name, 0)
        assert full or not _has_room(after, vpod, name, kept), "there was room"


def assert_no_pod_is_more_overcommitted(before: Naive, after: Naive) -> None:
    was = over(before)
    assert all(slots <= was.get(name, 0) for name, slots in over(after).items())
    promised = {name: max(0, before.held(name) - before.capacity(name)) for name in before.names}
    for name in after.names:
        assert after.held(name) - after.capacity(name) <= promised.get(name, 0), (
            "room is promised twice"
        )
    for dimension, most in dimensions(before).items():
        was = over_in(before, dimension, most)
        assert all(
            more <= was.get(name, 0) for name, more in over_in(after, dimension, most).items()
        )
        for name in after.names:
            over_before = max(0, before.held_amount(dimension, name) - most)
            assert after.held_amount(dimension, name) - most <= over_before, dimension


def assert_steps_account_for_every_difference(placed: dict[str, int], decision: Decision) -> None:
    change: dict[str, int] = {}
    for step in decision.explanation.steps:
        sign = {"added": 1, "dropped": -1, "trimmed": -1, "removed": -1}.get(step.step.value, 0)
        change[step.pod_name] = change.get(step.pod_name, 0) + sign * step.vreplicas
    for name in {*placed, *decision.target}:
        assert decision.target.get(name, 0) - placed.get(name, 0) == change.get(name, 0)


@TIGHT
@given(worlds.worlds(tidy=True))
def test_nothing_moves_where_enough_is_placed_and_nothing_is_dropped(world):
    naive = Naive(world, POOL)
    for vpod in by_name(world):
        placed = naive.placed_of(vpod.key)
        enough = sum(placed.values()) >= max(
            vpod.vreplicas, naive.min_pods_per_vpod if vpod.vreplicas else 0
        )
        dropped = [
            n
            for n in placed
            if not naive.member(n) or (n in naive.pods and naive.pods[n].unschedulable)
        ]
        if enough and not dropped:
            target = decide(world, vpod).target
            assert set(target) <= set(placed)
            assert all(count <= placed[name] for name, count in target.items())
            if sum(placed.values()) == vpod.vreplicas:
                assert dict(target) == placed


@TIGHT
@given(worlds.worlds())
def test_deciding_again_after_everything_is_written_changes_nothing(world):
    written = [decide_and_write(world, vpod) for vpod in by_name(world)]
    for decision in written:
        if not decision.pending:
            again = decide(world, world.vpods[decision.vpod])
            assert (dict(again.target), again.pending) == (dict(decision.target), 0)


def decide_and_write(world: World, vpod: VPod) -> Decision:
    decision = decide(world, vpod)
    world.write(decision)
    return decision


@TIGHT
@given(worlds.worlds(), st.randoms(use_true_random=False))
def test_the_order_in_which_objects_arrived_does_not_matter(world, rng):
    objects = world.objects()
    rng.shuffle(objects)
    other = world.rebuilt(objects)
    for vpod in by_name(world):
        mine, theirs = decide(world, vpod), decide(other, vpod)
        assert mine == theirs
        world.decide(mine)
        other.decide(theirs)


def test_a_very_large_vpod_is_decided_at_once():
    scene = Scene(slots=2**31 - 1, replicas=3).pods(0, 1, 2).vpod("a", 2**31 - 1)
    target = place(scene.pool, scene.pool.vpods["tenant/a"]).target
    assert {ordinal_of(name): count for name, count in target.items()} == {
        0: 715827883,
        1: 715827882,
        2: 715827882,
    }
