"""Bytes of a ledger are room as slots are: for sizing, sharing and telling. One namespace gets half
of a pod's.

Keys here have 290 bytes, as names of 250 characters make them: 205 of a namespace are its share,
412 of all fill a ledger.
"""

import random
from collections.abc import Iterable
from typing import Any

import pytest

from extender.engine.pods.claims import ENTRY_BYTES_MAX, entry_bytes
from extender.engine.policy.framework import Weighted
from extender.engine.policy.ordinals import LowestOrdinalPriority
from extender.engine.policy.profile import KNATIVE_1_16_RULES, Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.engine.rebalance.relocation import relocate
from extender.engine.scaling.scale_down import (
    advised_count,
    ordinals_to_close,
    waits_for_closed,
)
from extender.engine.scaling.size import anyone, plan_scale
from extender.engine.state.ledger_room import LedgerRoom
from extender.model.ledger import Share, encode_ledger
from extender.model.moves import Move, MoveReason
from extender.model.names import LEDGER_BYTES_MAX, TENANT_BYTES_MAX
from extender.model.objects import Scaling, ScalingMode
from extender.model.reasons import ConflictReason
from extender.node.bind_ledger import bind_ledger_of
from extender.whatif.candidates import candidates_of
from extender.whatif.overview import Overview
from tests.engine.scaling.plans import plan_of
from tests.support.builders import POOL, Scene, a_node, a_pod, a_pool, a_stateful_set
from tests.support.placing import place
from tests.support.worlds import Naive, World

AFRESH = Profile(
    name="knative-1.16", scores=(Weighted(LowestOrdinalPriority(), 1),), rules=KNATIVE_1_16_RULES
)
PROFILES = [*BUILT_IN_PROFILES.values(), AFRESH]
SHARE = 205
"""Entries of ``long_names`` that are a namespace's share: one more and it gets no further one."""

of_every_profile = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)


def long_names(namespace: str, count: int) -> list[str]:
    """Keys of 290 bytes."""
    width = 290 - len(namespace) - 1
    return [f"{namespace}/{str(index).rjust(4, '0').rjust(width, 'v')}" for index in range(count)]


def ledger_of(namespace: str, count: int) -> dict[str, int]:
    return dict.fromkeys(long_names(namespace, count), 1)


FULL = {**ledger_of("greedy", 210), **ledger_of("other", 202)}
"""A ledger without bytes for anybody; greedy has its share of it, other has not quite."""


def a_scene(
    profile: Profile = PROFILES[0], *, replicas: int = 2, slots: int = 5_000, **pool
) -> Scene:
    scene = Scene(replicas=replicas, slots=slots, **pool)
    scene.pool.set_profile(profile)
    return scene


def published(scene: Scene, keys: Iterable[str], ordinal: int) -> Scene:
    """The vpods of these keys have one vreplica each there, and say so."""
    for key in keys:
        namespace, _, name = key.partition("/")
        scene.vpod(name, 1, {ordinal: 1}, namespace=namespace)
    return scene


def target(scene: Scene, name: str) -> dict[str, int]:
    key = next(key for key in scene.pool.vpods if key.endswith(f"/{name}"))
    return dict(place(scene.pool, scene.pool.vpods[key]).target)


# -- the counts ------------------------------------------------------------------------------------


def test_a_full_share_and_a_full_ledger_are_still_written():
    share = ledger_of("greedy", SHARE)
    assert (
        sum(map(entry_bytes, share))
        <= TENANT_BYTES_MAX
        < sum(map(entry_bytes, share)) + ENTRY_BYTES_MAX
    )
    assert (
        len(encode_ledger({key: Share(2**31 - 1, 2**31 - 1) for key in FULL})) <= LEDGER_BYTES_MAX
    )


@pytest.mark.parametrize("seed", range(6))
def test_what_is_counted_by_differences_is_what_counting_anew_finds(seed):
    rng = random.Random(seed)
    world = World()
    for made in (a_node(), a_pool(5_000), a_stateful_set(3)):
        world.put(made)
    keys = [*long_names("greedy", 260), *long_names("other", 260)]
    for step in range(16):
        ordinal, some = rng.randrange(4), rng.sample(keys, rng.randrange(420))
        match rng.randrange(6):
            case 0 | 1 | 2:
                world.put(
                    a_pod(ordinal, dict.fromkeys(some, 1), uid=f"{ordinal}-{rng.randrange(3)}")
                )
            case 3:
                for key in rng.sample(keys, 90):
                    share = {f"dispatcher-{ordinal}": Share(rng.randrange(3))}
                    world.reserve("test", POOL, key, share, float(step + rng.randrange(9)))
            case 4:
                world.expire(float(step))
            case _:
                world.put(a_stateful_set(rng.randrange(5), rng.randrange(2)))
        digest = world.state.digest()
        assert digest[POOL] == Naive(world, POOL).digest()
        assert digest == world.rebuilt().state.digest()


@pytest.mark.parametrize("seed", range(6))
def test_what_a_plan_counts_is_what_the_state_does_once_it_is_reserved(seed):
    rng = random.Random(seed)
    before, scene = (
        a_scene(replicas=4).pod(0, ledger_of("greedy", 150)).pod(1, FULL).pods(2) for _ in range(2)
    )
    keys = [*long_names("greedy", 400), *long_names("third", 300), "tenant/short"]
    ledgers = LedgerRoom(before.pool)
    for number in range(700):
        key, ordinals = rng.choice(keys), rng.sample(range(3), 2)
        if number == 300:
            tried, ledgers = ledgers, ledgers.copy()
            tried.give(keys[0], range(3))
        ledgers.give(key, ordinals)
        shares = {f"dispatcher-{ordinal}": Share(1) for ordinal in ordinals}
        scene.pool.reserve("test", key, shares, expires_at=9.0)
        assert ledgers.open_to(0b111, keys[number]) == scene.pool.room_for(keys[number])


# -- sharing ---------------------------------------------------------------------------------------


@of_every_profile
def test_a_namespace_that_has_its_share_gets_no_further_entry_there_and_another_one_does(profile):
    scene = a_scene(profile, replicas=1).pod(0, ledger_of("greedy", SHARE))
    scene.vpod("more", 1, namespace="greedy").vpod("a", 2)
    assert target(scene, "more") == {}
    assert target(scene, "a") == {"dispatcher-0": 2}


@of_every_profile
def test_it_goes_where_its_share_is_not_spent(profile):
    scene = a_scene(profile).pod(0, ledger_of("greedy", SHARE)).pod(1, ledger_of("other", SHARE))
    scene.vpod("more", 3, namespace="greedy")
    assert target(scene, "more") == {"dispatcher-1": 3}


@of_every_profile
def test_a_vpod_that_is_in_the_ledger_already_grows_there(profile):
    scene = a_scene(profile, replicas=1).pod(0, {**ledger_of("greedy", SHARE), "greedy/a": 1})
    scene.vpod("a", 4, {0: 1}, namespace="greedy")
    assert target(scene, "a") == {"dispatcher-0": 4}


@of_every_profile
def test_what_stands_stays_also_over_the_share(profile):
    scene = a_scene(profile).pod(0, ledger_of("greedy", 300)).pods(1)
    last = long_names("greedy", 300)[-1].partition("/")[2]
    scene.vpod(last, 1, {0: 1}, namespace="greedy")
    assert target(scene, last) == {"dispatcher-0": 1}
    assert plan_moves(scene.pool, Limits(budget=100), Advice(vpods=list(scene.pool.vpods))) == []


def test_with_its_entries_a_namespace_gets_its_share_back():
    scene = a_scene(replicas=1).pod(0, ledger_of("greedy", SHARE)).vpod("a", 1, namespace="greedy")
    assert scene.pool.tenant_room.spent == {"greedy": 1}
    scene.pod(0, ledger_of("greedy", SHARE - 1))
    assert scene.pool.tenant_room.spent == {}
    assert target(scene, "a") == {"dispatcher-0": 1}


@pytest.mark.parametrize("name", ["default", "knative"])
def test_a_bind_carries_no_more_of_a_namespace_than_its_share(name):
    scene = a_scene(BUILT_IN_PROFILES[name], replicas=1).pod(0, node="")
    for key in long_names("greedy", 300):
        scene.vpod(key.partition("/")[2], 1, namespace="greedy")
    scene.vpod("a", 2)
    pod = a_pod(0, node="")
    bind_ledger = bind_ledger_of(scene.pool, pod, slots=5_000, with_added=True, allows=anyone)
    assert (
        sum(map(entry_bytes, (key for key in bind_ledger.ledger if key.startswith("greedy/"))))
        <= TENANT_BYTES_MAX
    )
    assert len(bind_ledger.added) == SHARE + 1
    assert bind_ledger.added["tenant/a"] == 2


def test_a_bind_counts_what_the_last_pod_carried():
    scene = (
        a_scene(replicas=1).pod(0, ledger_of("greedy", SHARE)).no_pod(0).pod(0, node="", uid="next")
    )
    scene.vpod("more", 1, namespace="greedy").vpod("a", 1)
    bind_ledger = bind_ledger_of(
        scene.pool, a_pod(0, node=""), slots=5_000, with_added=True, allows=anyone
    )
    assert bind_ledger.added == {"tenant/a": 1}


# -- moves -----------------------------------------------------------------------------------------


@of_every_profile
@pytest.mark.parametrize(
    ("there", "moving"),
    [
        pytest.param(FULL, "tenant", id="a full ledger"),
        pytest.param(ledger_of("greedy", SHARE), "greedy", id="a share that is spent"),
    ],
)
def test_nothing_is_moved_into_a_ledger_without_bytes(profile, there, moving):
    scene = a_scene(profile).pod(0, there).pod(1, {f"{moving}/a": 2}, unschedulable=True)
    scene.vpod("a", 2, {1: 2}, namespace=moving)
    assert plan_moves(scene.pool, Limits(budget=100)) == []
    move = Move(f"{moving}/a", "dispatcher-1", "dispatcher-0", 2, MoveReason.DRAIN)
    assert relocate(scene.pool, scene.pool.vpods[move.vpod], [move]) is None


@of_every_profile
def test_a_pod_is_not_begun_to_be_emptied_whose_entries_do_not_all_fit_below(profile):
    keys = long_names("greedy", 290)
    scene = (
        a_scene(profile).pod(0, dict.fromkeys(keys[:150], 1)).pod(1, dict.fromkeys(keys[150:], 1))
    )
    published(published(scene, keys[:150], 0), keys[150:], 1)
    scene.pool.set_closed(0b10)
    assert plan_moves(scene.pool, Limits(budget=1_000)) == []


def test_what_is_moved_tells_no_other_reason_for_what_is_left():
    nearly = {**dict(list(FULL.items())[:-9]), "tenant/a": 1}
    scene = (
        a_scene(slots=500, replicas=3)
        .pod(0, FULL)
        .pod(1, nearly)
        .pod(2, {"tenant/a": 1}, unschedulable=True)
    )
    scene.vpod("a", 200, {1: 1, 2: 1})
    move = Move("tenant/a", "dispatcher-2", "dispatcher-1", 1, MoveReason.DRAIN)
    decision = relocate(scene.pool, scene.pool.vpods["tenant/a"], [move])
    assert decision is not None
    told = place(scene.pool, scene.pool.vpods["tenant/a"]).explanation.reason
    assert decision.explanation.reason is told is ConflictReason.LEDGER_TOO_LARGE


# -- sizing ----------------------------------------------------------------------------------------


@of_every_profile
def test_a_pool_grows_for_who_finds_slots_and_no_bytes(profile):
    scene = a_scene(profile, replicas=1).pod(0, FULL).vpod("a", 1)
    assert plan_of(scene).wanted == 2


@of_every_profile
def test_a_pool_grows_for_who_has_its_share_of_the_bytes(profile):
    scene = (
        a_scene(profile, replicas=1)
        .pod(0, ledger_of("greedy", SHARE))
        .vpod("a", 1, namespace="greedy")
    )
    assert plan_of(scene).wanted == 2


@of_every_profile
def test_pods_to_come_have_bytes_of_their_own(profile):
    scene = published(a_scene(profile).pod(0, FULL).pod(1, node=""), FULL, 0).vpod("a", 1)
    assert plan_of(scene).wanted == 2


@of_every_profile
def test_a_pool_that_may_not_grow_says_so(profile):
    scene = a_scene(profile, replicas=1, max_pods=1).pod(0, FULL).vpod("a", 1)
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert (plan.limited, plan.wanted, plan.unlimited, plan.unschedulable) == (True, 1, 2, True)


@of_every_profile
def test_for_however_many_long_names_a_pool_grows_until_all_have_a_place(profile):
    scene = a_scene(profile, replicas=1).pods(0)
    names = [key.partition("/")[2] for key in long_names("greedy", 1_500)]
    for name in names:
        scene.vpod(name, 1, namespace="greedy")
    scene.vpod("a", 3)
    seen = [1]
    for _ in range(6):
        for key in list(scene.pool.vpods_with_pending):
            decision = place(scene.pool, scene.pool.vpods[key])
            scene.pool.reserve("placer", key, decision.shares({}), expires_at=9.0)
        assert scene.pool.decided_vreplicas("tenant/a") == 3, "another tenant finds bytes at once"
        if (count := plan_of(scene).wanted) <= seen[-1]:
            break
        scene.stateful_set(count).pods(*range(seen[-1], count))
        seen.append(count)
    assert scene.pool.vpods_with_pending == {}
    assert seen[-1] == 8, f"1500 / 205, and no more: {seen}"


def test_one_zone_rule_over_two_zones_grows_for_bytes_too():
    scene = a_scene(BUILT_IN_PROFILES["ha"]).node(a_node("n0", "z0")).node(a_node("n1", "z1"))
    scene.node(a_node("node-0", "z0"))
    scene.pod(0, FULL, node="n0").pod(1, FULL, node="n1").vpod("a", 2)
    assert plan_of(scene).wanted == 4


@of_every_profile
def test_pods_that_the_bytes_need_are_not_closed(profile):
    keys = long_names("greedy", SHARE + 20)
    scene = (
        a_scene(profile)
        .pod(0, dict.fromkeys(keys[:SHARE], 1))
        .pod(1, dict.fromkeys(keys[SHARE:], 1))
    )
    published(published(scene, keys[:SHARE], 0), keys[SHARE:], 1)
    plan = plan_scale(scene.pool)
    assert plan is not None
    assert ordinals_to_close(scene.pool, plan) == 0


@of_every_profile
def test_others_are_not_advised_to_remove_pods_that_the_bytes_need(profile):
    """Knative's formulas advised it, though what is placed above has no room below."""
    keys = long_names("greedy", SHARE + 20)
    scaling = Scaling(mode=ScalingMode.EXTERNAL)
    scene = (
        a_scene(profile, scaling=scaling)
        .pod(0, dict.fromkeys(keys[:SHARE], 1))
        .pod(1, dict.fromkeys(keys[SHARE:], 1))
    )
    published(published(scene, keys[:SHARE], 0), keys[SHARE:], 1)
    assert advised_count(scene.pool, plan_of(scene)) == 2


def test_a_closed_pod_without_bytes_is_no_help_to_who_waits():
    scene = (
        a_scene(slots=430)
        .pod(0, {"tenant/b": 430})
        .pod(1, FULL)
        .vpod("b", 430, {0: 430})
        .vpod("a", 1)
    )
    scene.pool.set_closed(0b10)
    assert waits_for_closed(scene.pool) is None
    scene.pod(1, ledger_of("greedy", SHARE)).vpod("c", 1, namespace="greedy")
    assert waits_for_closed(scene.pool) == ("tenant/a", True)
    scene.no_vpod("a")
    assert waits_for_closed(scene.pool) is None


# -- telling ---------------------------------------------------------------------------------------


@of_every_profile
@pytest.mark.parametrize(
    ("there", "namespace", "text"),
    [
        pytest.param(FULL, "tenant", "ledger too large", id="a full ledger"),
        pytest.param(
            ledger_of("greedy", SHARE),
            "greedy",
            "its namespace has half of the ledger",
            id="a share that is spent",
        ),
    ],
)
def test_who_finds_slots_and_no_bytes_is_told_so(profile, there, namespace, text):
    scene = (
        a_scene(profile).pod(0, there).pod(1, {"tenant/b": 5_000}).vpod("a", 3, namespace=namespace)
    )
    vpod = scene.pool.vpods[f"{namespace}/a"]
    decision = place(scene.pool, vpod)
    assert decision.explanation.reason is ConflictReason.LEDGER_TOO_LARGE
    assert dict(decision.explanation.refused) == {text: 1, "no free slots": 1}
    first, second = candidates_of(scene.pool, vpod, decision).rows
    fields = ("verdict", "reason", "text")
    assert [first[field] for field in fields] == ["refused", "LedgerTooLarge", text]
    assert [second[field] for field in fields] == ["refused", "InsufficientSlots", "no free slots"]


@of_every_profile
def test_who_would_find_no_slots_either_is_told_of_slots(profile):
    scene = a_scene(profile, replicas=1, slots=len(FULL) + 1).pod(0, FULL).vpod("a", 1, weight=2)
    explanation = place(scene.pool, scene.pool.vpods["tenant/a"]).explanation
    assert (explanation.reason, explanation.refused) == (
        ConflictReason.INSUFFICIENT_SLOTS,
        (("no free slots", 1),),
    )


def test_slots_that_nobody_can_take_for_want_of_bytes_are_closed_and_not_free():
    scene = a_scene(replicas=1).pod(0, FULL)
    counts = scene.pool.slot_counts()
    assert counts == (5_000, len(FULL), 0, 5_000 - len(FULL))
    made = Overview(scene.state)
    for _ in made.steps():
        pass
    pods: Any = made.to_json()["pods"]
    (row,) = pods
    assert row["state"] == "ledger full"
