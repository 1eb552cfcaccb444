"""What a pool admits of each vpod, so that its tenants share its slots."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.scaling.size import plan_scale
from extender.engine.state.tenancy import TenantUse
from extender.model.objects import LabelSelector, Scaling, ScalingMode
from extender.model.tenancy import Preemption, Tenancy, VReplicaQuota
from tests.support.builders import POOL, Scene, a_pool, a_vpod
from tests.support.placing import place

MANY = 2**31 - 1


def a_scene(max_pods: int | None = 10, slots: int = 20, **tenancy) -> Scene:
    """A pool of at most 200 slots whose tenants are namespaces."""
    replicas = 2 if max_pods is None else min(2, max_pods)
    return Scene(replicas=replicas, slots=slots, max_pods=max_pods, tenancy=Tenancy(**tenancy))


def ask(scene: Scene, name: str, vreplicas: int, placements=None, **fields) -> Scene:
    """The vpod ``name`` wants so many vreplicas; unless told otherwise, in a namespace of its
    own.
    """
    return scene.vpod(name, vreplicas, placements, **{"namespace": name, **fields})


def quota(scene: Scene, namespace: str, **fields) -> Scene:
    name = fields.pop("name", "quota")
    scene.state.quota_changed(
        None, VReplicaQuota(namespace=namespace, name=name, pool=POOL, **fields)
    )
    return scene


def admitted(scene: Scene) -> dict[str, int]:
    """vpod name -> vreplicas that its pool admits."""
    return {vpod.name: vpod.vreplicas for vpod in scene.pool.vpods.values()}


def uses(scene: Scene) -> list[TenantUse]:
    """What the tenants have."""
    return scene.pool.tenant_uses()


def use_of(scene: Scene, tenant: str) -> TenantUse:
    return {one.tenant: one for one in uses(scene)}[tenant]


def pods_needed(scene: Scene) -> tuple[int, int]:
    """With and without maxPods, as far as a pool counts what it cannot have."""
    plan = plan_scale(scene.pool)
    assert plan is not None
    return plan.wanted, plan.unlimited


def test_without_tenancy_everything_is_admitted():
    scene = ask(Scene(max_pods=10), "greedy", MANY)
    assert admitted(scene) == {"greedy": MANY}


def test_while_the_pool_has_room_for_all_everything_is_admitted():
    scene = a_scene()
    ask(ask(scene, "a", 100), "b", 100)
    assert admitted(scene) == {"a": 100, "b": 100}


def test_a_tenant_gets_no_more_than_its_limit():
    scene = ask(a_scene(default_limit=50), "greedy", MANY)
    assert admitted(scene) == {"greedy": 50}
    left_out = scene.pool.vpods["greedy/greedy"].not_admitted
    assert left_out is not None
    assert (left_out.vreplicas, left_out.within_limit) == (MANY - 50, 0)
    assert left_out.why == "the limit of tenant greedy is 50 slots"
    assert scene.pool.vpods["greedy/greedy"].asked == MANY


def test_a_limit_counts_slots_and_not_vreplicas():
    assert admitted(ask(a_scene(default_limit=50), "heavy", 100, weight=7)) == {"heavy": 7}


def test_a_late_tenant_gets_its_share_of_what_a_greedy_one_has():
    scene = ask(a_scene(), "greedy", MANY, {0: 20, 1: 20})
    assert admitted(scene) == {"greedy": 200}
    ask(scene, "late", 2)
    assert admitted(scene) == {"greedy": 198, "late": 2}


def test_a_guarantee_is_kept_however_many_others_want_the_pool():
    scene = quota(a_scene(), "a", guarantee=120)
    for name in ("a", "b", "c", "d"):
        ask(scene, name, 150)
    assert admitted(scene) == {"a": 140, "b": 20, "c": 20, "d": 20}


def test_a_quota_takes_the_place_of_the_pools_defaults():
    scene = quota(a_scene(default_limit=5), "a", limit=30)
    ask(ask(scene, "a", 100), "b", 100)
    assert admitted(scene) == {"a": 30, "b": 5}


def test_of_two_quotas_for_a_tenant_the_older_one_counts():
    scene = quota(a_scene(), "a", name="new", limit=9, created_at="2026-01-02T00:00:00Z")
    quota(scene, "a", name="old", limit=7, created_at="2026-01-01T00:00:00Z")
    assert admitted(ask(scene, "a", 100)) == {"a": 7}


def test_a_quota_that_goes_makes_way_for_the_default():
    scene = ask(a_scene(default_limit=5), "a", 100)
    its = VReplicaQuota(namespace="a", name="quota", pool=POOL, limit=30)
    scene.state.quota_changed(None, its)
    assert admitted(scene) == {"a": 30}
    scene.state.quota_changed(its, None)
    assert admitted(scene) == {"a": 5}
    assert scene.state.quotas == {}


def test_a_quota_that_changes_is_a_change_of_the_pool_whatever_is_admitted():
    scene = ask(a_scene(), "a", 3)
    before = uses(scene), scene.pool.revision
    quota(scene, "a", guarantee=7)
    assert uses(scene) != before[0]
    assert scene.pool.revision != before[1], "what follows from the pool is not valid any more"


def test_namespaces_with_one_label_are_one_tenant():
    scene = a_scene(default_limit=10, tenant_label="team")
    scene.namespace("a1", team="a").namespace("a2", team="a").namespace("b")
    ask(ask(ask(scene, "a1", 6), "a2", 6), "b", 12)
    assert admitted(scene) == {"a1": 6, "a2": 4, "b": 10}
    assert {one.tenant for one in uses(scene)} == {"a", "namespace/b"}
    scene.namespace("a2", team="c")
    assert admitted(scene) == {"a1": 6, "a2": 6, "b": 10}


def test_what_is_used_stays_admitted_and_the_oldest_comes_next():
    scene = a_scene(default_limit=10)
    ask(scene, "young", 8, {0: 4}, namespace="t", created_at="2026-01-03T00:00:00Z")
    ask(scene, "middle", 8, namespace="t", created_at="2026-01-02T00:00:00Z")
    ask(scene, "old", 3, namespace="t", created_at="2026-01-01T00:00:00Z")
    assert admitted(scene) == {"young": 4, "middle": 3, "old": 3}


def test_if_a_limit_is_lowered_the_youngest_lose_first():
    scene = a_scene(default_limit=20)
    ask(scene, "old", 8, {0: 8}, namespace="t", created_at="2026-01-01T00:00:00Z")
    ask(scene, "young", 8, {1: 8}, namespace="t", created_at="2026-01-03T00:00:00Z")
    quota(scene, "t", limit=10)
    assert admitted(scene) == {"old": 8, "young": 2}


def test_what_a_smaller_vpod_still_publishes_is_not_free_yet():
    scene = a_scene(default_limit=10)
    ask(scene, "first", 8, {0: 8}, namespace="t")
    ask(scene, "next", 8, namespace="t")
    assert admitted(scene) == {"first": 8, "next": 2}
    ask(scene, "first", 3, {0: 8}, namespace="t")
    assert admitted(scene) == {"first": 3, "next": 2}
    ask(scene, "next", 6, namespace="t")
    assert admitted(scene) == {"first": 3, "next": 2}
    ask(scene, "first", 3, {0: 3}, namespace="t")
    assert admitted(scene) == {"first": 3, "next": 6}


def test_what_a_ledger_still_has_after_a_move_costs_nobody_anything():
    scene = a_scene(default_limit=20).pod(0, {"t/old": 10}).pod(1, {"t/old": 10})
    ask(scene, "old", 10, {1: 10}, namespace="t", created_at="2026-01-01T00:00:00Z")
    ask(scene, "young", 10, {1: 10}, namespace="t", created_at="2026-01-02T00:00:00Z")
    assert admitted(scene) == {"old": 10, "young": 10}
    assert place(scene.pool, scene.pool.vpods["t/old"]).target == {"dispatcher-1": 10}


def test_what_leaves_a_ledger_is_free_for_the_others_of_the_tenant():
    scene = a_scene(default_limit=20).pod(0, {"t/old": 10}).pod(1, {"t/old": 10})
    ask(scene, "old", 10, {1: 10}, namespace="t", created_at="2026-01-01T00:00:00Z")
    ask(scene, "young", 10, namespace="t", created_at="2026-01-02T00:00:00Z")
    assert admitted(scene) == {"old": 10, "young": 0}
    scene.pod(0, {})
    assert admitted(scene) == {"old": 10, "young": 10}


def test_a_vpod_that_asks_for_fewer_takes_nothing_from_a_younger_one():
    scene = a_scene(default_limit=20)
    ask(scene, "old", 2, {0: 10}, namespace="t", created_at="2026-01-01T00:00:00Z")
    ask(scene, "young", 10, {1: 10}, namespace="t", created_at="2026-01-02T00:00:00Z")
    quota(scene, "t", limit=12)
    assert admitted(scene) == {"old": 2, "young": 10}


def test_what_is_decided_and_not_published_yet_is_used_too():
    scene = a_scene(default_limit=10).pods(0, 1)
    scene.vpod("next", 10, namespace="tenant", created_at="2026-01-02T00:00:00Z")
    scene.reserve("next", 0, 10)
    scene.vpod("old", 10, namespace="tenant", created_at="2026-01-01T00:00:00Z")
    assert admitted(scene) == {"next": 10, "old": 0}


def test_what_a_ledger_no_longer_has_is_free_for_others():
    scene = a_scene(default_limit=10).pod(0, {"t/first": 8})
    ask(scene, "first", 3, {0: 3}, namespace="t")
    ask(scene, "next", 8, namespace="t")
    assert admitted(scene) == {"first": 3, "next": 2}
    scene.pod(0, {"t/first": 3})
    assert admitted(scene) == {"first": 3, "next": 7}


def test_what_a_vpod_has_in_its_former_pool_is_not_used_in_its_new_one():
    scene = a_scene(default_limit=10).pod(0, {"t/young": 10})
    ask(scene, "young", 10, {0: 10}, namespace="t", created_at="2026-01-02T00:00:00Z")
    moved = a_vpod("moved", 10, namespace="t", created_at="2026-01-01T00:00:00Z")
    moved = replace(moved, placements={"other-0": 10})
    scene.state.vpod_changed(None, moved)
    assert admitted(scene) == {"young": 10, "moved": 0}


def test_a_namespace_whose_labels_say_the_same_of_it_costs_no_counting():
    scene = a_scene(default_limit=10, tenant_label="team")
    scene.namespace("a", team="x")
    ask(scene, "a", 20)
    assert admitted(scene) == {"a": 10}
    assert scene.pool.tenancy is not None
    scene.namespace("a", team="x", tier="gold").namespace("b", tier="gold")
    assert not scene.pool.tenancy.is_dirty
    scene.namespace("a", team="y")
    assert scene.pool.tenancy.is_dirty


def test_slots_that_end_within_a_heavy_vreplica_are_lent():
    scene = a_scene(max_pods=1, slots=20)
    ask(ask(scene, "heavy", 9, weight=7), "light", 30)
    # Their shares are 10 and 10 slots: one heavy vreplica leaves 3.
    assert admitted(scene) == {"heavy": 1, "light": 13}
    assert use_of(scene, "light").share == 10


def test_what_was_lent_stays_with_its_borrower():
    scene = a_scene(max_pods=1, slots=20)
    ask(ask(ask(scene, "heavy", 9, weight=9), "x", 30, {0: 12}), "y", 30, {0: 8})
    assert admitted(scene) == {"heavy": 0, "x": 12, "y": 8}


def test_the_placer_takes_away_what_is_no_longer_admitted():
    scene = a_scene(max_pods=2).pod(0, {"greedy/greedy": 20}).pod(1, {"greedy/greedy": 20})
    ask(scene, "greedy", MANY, {0: 20, 1: 20})
    ask(scene, "late", 5)
    decision = place(scene.pool, scene.pool.vpods["greedy/greedy"])
    assert sum(decision.target.values()) == 35
    assert not decision.moves


def test_minpodspervpod_raises_nobody_beyond_what_is_admitted():
    scene = Scene(max_pods=10, tenancy=Tenancy(default_limit=2), min_pods_per_vpod=3).pods(0, 1, 2)
    ask(scene, "a", 1)
    assert admitted(scene) == {"a": 2}
    assert scene.pool.vpods["a/a"].asked == 1
    decision = place(scene.pool, scene.pool.vpods["a/a"])
    assert decision.target == {"dispatcher-0": 1, "dispatcher-1": 1}
    assert decision.explanation.is_satisfied
    assert not decision.explanation.exceeds_quota


def test_who_is_raised_in_part_and_has_no_room_is_told_that_some_is_left():
    """Seed 280000883: the answer to a caller was that nothing is left."""
    scene = Scene(slots=2, tenancy=Tenancy(default_limit=4), min_pods_per_vpod=3).pods(0, 1, 2)
    ask(quota(scene, "b", limit=6), "b", 3, {0: 1, 1: 1, 2: 1}, weight=2)
    ask(scene, "a", 1, weight=2)
    requested = scene.pool.admitted(a_vpod("a", 1, namespace="a", weight=2))
    assert requested == scene.pool.vpods["a/a"]
    explanation = place(scene.pool, requested).explanation
    assert (explanation.pending, explanation.wanted, explanation.asked) == (2, 2, 2)


@pytest.mark.parametrize(
    ("asked", "count"), [(9, 4), (5, 4), (3, 3), (0, 0)], ids=["more", "as many", "fewer", "none"]
)
def test_another_form_of_a_vpod_gets_no_more_than_is_admitted_and_says_what_is_left(asked, count):
    scene = ask(a_scene(default_limit=4), "a", 5)
    form = scene.pool.admitted(a_vpod("a", asked, namespace="a"))
    assert (form.vreplicas, form.asked) == (count, asked)


def test_pods_that_are_not_there_raise_nobody():
    scene = Scene(max_pods=2, tenancy=Tenancy(default_limit=5), min_pods_per_vpod=4).pods(0)
    ask(scene, "a", 1, {0: 1}, namespace="t", created_at="2026-01-01T00:00:00Z")
    ask(scene, "b", 9, namespace="t", created_at="2026-01-02T00:00:00Z")
    assert admitted(scene) == {"a": 1, "b": 4}
    scene.pods(1)
    assert admitted(scene) == {"a": 2, "b": 3}


def test_the_pool_does_not_grow_to_raise_a_vpod_beyond_its_tenants_limit():
    """Seed 3045 of pools with tenancy: at two pods it wanted three, and at three two."""
    scene = Scene(replicas=2, max_pods=9, tenancy=Tenancy(default_limit=6), min_pods_per_vpod=3)
    scene.pods(0, 1)
    ask(scene, "a", 1, {0: 1, 1: 1}, weight=3, namespace="t")
    assert (admitted(scene), pods_needed(scene)) == ({"a": 2}, (1, 1))
    scene.stateful_set(3).pods(2)
    assert (admitted(scene), pods_needed(scene)) == ({"a": 2}, (1, 1))


def test_the_pool_grows_for_what_a_limit_allows_and_no_further():
    scene = ask(a_scene(default_limit=50), "greedy", MANY)
    assert pods_needed(scene) == (3, 3)
    quota(scene, "greedy", limit=400)
    assert pods_needed(scene) == (10, 20)


def test_a_vpod_that_no_pod_can_hold_takes_no_share():
    scene = a_scene(max_pods=1, slots=20)
    ask(ask(scene, "unfit", 5, weight=21), "a", 20)
    assert admitted(scene) == {"unfit": 5, "a": 20}
    assert scene.pool.vpods["unfit/unfit"].not_admitted is None  # its reason is another


def test_a_pool_that_others_size_shares_the_slots_that_it_has():
    scene = Scene(
        replicas=2, slots=10, tenancy=Tenancy(), scaling=Scaling(mode=ScalingMode.EXTERNAL)
    )
    ask(ask(scene, "a", 100), "b", 100)
    assert admitted(scene) == {"a": 10, "b": 10}
    scene.stateful_set(4)
    assert admitted(scene) == {"a": 20, "b": 20}


def test_a_pool_that_others_size_takes_nothing_away_while_its_stateful_set_is_not_known():
    scene = Scene(
        replicas=2, slots=10, tenancy=Tenancy(), scaling=Scaling(mode=ScalingMode.EXTERNAL)
    ).pod(0, {"a/a": 10})
    ask(scene, "a", 10, {0: 10})
    known = scene.pool.stateful_set
    scene.state.stateful_set_changed(known, None)
    assert admitted(scene) == {"a": 10}
    assert place(scene.pool, scene.pool.vpods["a/a"]).target == {"dispatcher-0": 10}


def test_a_lower_maxpods_takes_nothing_away_while_the_pods_are_there():
    scene = Scene(replicas=4, slots=10, max_pods=4, tenancy=Tenancy())
    ask(ask(scene, "a", 100, {0: 10, 1: 10}), "b", 100, {2: 10, 3: 10})
    known = scene.pool.adapter_pool
    scene.state.adapter_pool_changed(known, a_pool(10, max_pods=2, tenancy=Tenancy(), generation=2))
    assert admitted(scene) == {"a": 20, "b": 20}
    scene.stateful_set(2)
    assert admitted(scene) == {"a": 10, "b": 10}


def test_a_pool_that_gives_up_tenancy_admits_everything_again():
    scene = ask(a_scene(default_limit=5), "a", 100)
    assert admitted(scene) == {"a": 5}
    known = scene.pool.adapter_pool
    scene.state.adapter_pool_changed(known, a_pool(max_pods=10, generation=2))
    assert admitted(scene) == {"a": 100}
    assert scene.pool.vpods["a/a"].not_admitted is None


def test_others_are_told_if_more_of_them_is_admitted():
    told = []
    scene = a_scene(max_pods=1, slots=20)
    scene.state.on_admitted = lambda pool, vpod: told.append((pool, vpod))
    ask(ask(scene, "a", 30), "b", 30)
    assert admitted(scene) == {"a": 10, "b": 10}
    told.clear()
    scene.no_vpod("b")
    assert admitted(scene) == {"a": 20}
    assert told == [(POOL, "a/a")]


def test_a_vpod_that_may_be_raised_now_is_told_although_it_asks_for_the_same():
    told = []
    scene = Scene(max_pods=2, tenancy=Tenancy(default_limit=3), min_pods_per_vpod=2).pods(0, 1)
    ask(scene, "b", 2, {0: 1, 1: 1}, namespace="t")
    ask(scene, "a", 1, {0: 1}, namespace="t")
    assert admitted(scene) == {"a": 1, "b": 2}
    scene.state.on_admitted = lambda _pool, vpod: told.append(vpod)
    quota(scene, "t", limit=4)
    assert admitted(scene) == {"a": 1, "b": 2}
    assert told == ["t/a"]


def test_who_may_be_raised_does_not_depend_on_who_was_looked_at_last():
    """Seed 4009 of pools with tenancy: three vpods told each other for ever that they were next."""
    scene = Scene(max_pods=9, tenancy=Tenancy(default_limit=8), min_pods_per_vpod=4).pods(0)
    for name in ("a", "b", "c"):
        ask(scene, name, 1, namespace="t", created_at="2026-01-01T00:00:00Z")
    raised = {vpod.name for vpod in scene.pool.vpods.values() if vpod.not_admitted is None}
    for name in ("a", "b", "c", "a"):
        scene.pool.reconsider(f"t/{name}")
        assert {
            vpod.name for vpod in scene.pool.vpods.values() if vpod.not_admitted is None
        } == raised


TENANTS = ("t0", "t1", "t2")
LIMIT = 15

a_change = st.one_of(
    st.tuples(
        st.just("vpod"),
        st.integers(0, 5),
        st.integers(0, 30),
        st.integers(1, 4),
        st.dictionaries(st.integers(0, 1), st.integers(0, 6), max_size=2),
        st.sampled_from([0, 0, 5, 9]),
        st.sampled_from([0, 0, 0, 2, 5]),
    ),
    st.tuples(st.just("gone"), st.integers(0, 5)),
    st.tuples(st.just("quota"), st.sampled_from(TENANTS), st.integers(0, 8), st.integers(8, 20)),
)

SHARING = [
    pytest.param({"tenancy": Tenancy(default_limit=LIMIT)}, id="tenants"),
    pytest.param(
        {"tenancy": Tenancy(default_limit=LIMIT), "preemption": Preemption()},
        id="tenants with priorities",
    ),
    pytest.param({"preemption": Preemption()}, id="priorities"),
]


class World:
    """A scene to which changes come one by one, and what is there after them."""

    def __init__(self, sharing: Mapping[str, Any]) -> None:
        self.sharing = sharing
        self.scene = self.empty()
        self.vpods: dict[str, dict[str, Any]] = {}
        self.quotas: dict[str, VReplicaQuota] = {}

    def empty(self) -> Scene:
        return Scene(replicas=2, max_pods=2, slots=10, **self.sharing)

    def change(self, change) -> None:
        match change:
            case "vpod", number, vreplicas, weight, placements, priority, least:
                name = f"v{number}"
                if name in self.vpods:  # a weight cannot be changed
                    weight = self.vpods[name]["weight"]
                self.vpods[name] = {
                    "vreplicas": vreplicas,
                    "weight": weight,
                    "placements": placements,
                    "namespace": TENANTS[number % 3],
                    "created_at": f"2026-01-0{number + 1}T00:00:00Z",
                    "priority": priority,
                    "preempts": bool(number % 4),
                    "min_available": least,
                    "max_per_pod": (vreplicas + number) % 5 if number > 2 else 0,
                }
                self.scene.vpod(name, **self.vpods[name])
            case "gone", number:
                if self.vpods.pop(f"v{number}", None) is not None:
                    self.scene.no_vpod(f"v{number}")
            case "quota", tenant, guarantee, limit:
                new = VReplicaQuota(
                    namespace=tenant, name="quota", pool=POOL, guarantee=guarantee, limit=limit
                )
                self.scene.state.quota_changed(self.quotas.get(tenant), new)
                self.quotas[tenant] = new

    def limit_of(self, tenant: str) -> int:
        if "tenancy" not in self.sharing:
            return MANY
        limit = self.quotas[tenant].limit if tenant in self.quotas else LIMIT
        assert limit is not None
        return limit

    def anew(self) -> Scene:
        scene = self.empty()
        for one in self.quotas.values():
            scene.state.quota_changed(None, one)
        for name, fields in self.vpods.items():
            scene.vpod(name, **fields)
        return scene


@pytest.mark.parametrize("sharing", SHARING)
@settings(max_examples=300)
@given(changes=st.lists(a_change, min_size=1, max_size=12))
def test_after_any_changes_the_same_is_admitted_as_from_nothing(sharing, changes):
    world = World(sharing)
    for change in changes:
        world.change(change)
        assert admitted(world.scene) == admitted(world.anew())


@pytest.mark.parametrize("sharing", SHARING)
@settings(max_examples=300)
@given(changes=st.lists(a_change, min_size=1, max_size=12))
def test_no_tenant_and_no_pool_is_given_more_than_it_may_have(sharing, changes):
    world = World(sharing)
    for change in changes:
        world.change(change)
        pool = world.scene.pool
        slots = dict.fromkeys(TENANTS, 0)
        assert pool.adapter_pool is not None
        vpods = [
            vpod
            for vpod in pool.vpods.values()
            if sum(vpod.placements.values()) or not pool.adapter_pool.misfit_together(vpod)
        ]
        for vpod in vpods:
            assert 0 <= vpod.vreplicas <= vpod.asked
            used = sum(vpod.placements.values())
            assert not 0 < vpod.vreplicas < min(vpod.least, used or vpod.least)
            # Beyond maxPerPod on each of the two pods, it is told to wait for pods, not for quota.
            most = max(used, 2 * vpod.max_per_pod) if vpod.max_per_pod else vpod.vreplicas
            slots[vpod.namespace] += min(vpod.vreplicas, most) * vpod.weight
        for tenant, count in slots.items():
            assert count <= world.limit_of(tenant), (tenant, slots)
        assert sum(slots.values()) <= 20, slots
        for vpod in pool.vpods.values():
            if vpod not in vpods:  # it keeps what it has
                slots[vpod.namespace] += sum(vpod.placements.values()) * vpod.weight
        for vpod in vpods:
            # Nobody who fits into what is left waits.
            if vpod.not_admitted is not None and vpod.vreplicas < vpod.asked:
                limit = world.limit_of(vpod.namespace)
                surplus = any(
                    sum(one.placements.values()) > one.vreplicas for one in pool.vpods.values()
                )
                least = min(vpod.least, sum(vpod.placements.values()) or vpod.least)
                next_ones = vpod.weight * max(1, least - vpod.vreplicas)
                assert (
                    surplus
                    or sum(slots.values()) + next_ones > 20
                    or slots[vpod.namespace] + next_ones > limit
                ), (vpod.key, slots)


@pytest.mark.parametrize(
    ("vpod", "below"),
    [
        pytest.param({"vreplicas": 5, "placements": {0: 2}}, True, id="more would fit"),
        pytest.param({"vreplicas": 5, "placements": {0: 4}}, False, id="it has its guarantee"),
        pytest.param({"vreplicas": 2, "placements": {0: 2}}, False, id="it asks for no more"),
        pytest.param({"vreplicas": 3}, True, id="it asks for less and has nothing"),
        pytest.param(
            {"vreplicas": 5, "placements": {0: 1}, "weight": 3}, False, id="none so heavy fits"
        ),
        pytest.param({"vreplicas": 5, "min_available": 4}, True, id="as many as it needs together"),
        pytest.param({"vreplicas": 5, "min_available": 5}, False, id="it needs more together"),
        pytest.param(
            {"vreplicas": 5, "placements": {0: 2}, "min_available": 4},
            True,
            id="as many as are missing of those",
        ),
        pytest.param(
            {"vreplicas": 5, "placements": {0: 2}, "min_available": 5},
            False,
            id="more are missing of those",
        ),
        pytest.param({"vreplicas": 5, "deleting": True}, False, id="it is being deleted"),
        pytest.param({"vreplicas": 5, "weight": 21}, False, id="no pod can hold it"),
    ],
)
def test_a_tenant_is_below_its_guarantee_if_what_waits_would_fit_in_it(vpod, below):
    scene = ask(a_scene(default_guarantee=4).pods(0), "a", **vpod)
    assert use_of(scene, "a").is_below_guarantee is below


def test_a_tenant_whose_limit_is_below_its_guarantee_misses_nothing_beyond_the_limit():
    scene = ask(a_scene(default_guarantee=4, default_limit=3).pods(0), "a", 9, {0: 3})
    assert not use_of(scene, "a").is_below_guarantee


def test_guarantees_that_are_cut_since_they_are_too_many_are_not_met():
    scene = a_scene(max_pods=1, default_guarantee=15).pods(0)
    for name in ("a", "b"):
        ask(scene, name, 15, {0: 10})
    assert [one.is_below_guarantee for one in uses(scene)] == [True, True]


def test_a_vpod_of_a_namespace_that_the_pool_does_not_select_misses_no_guarantee():
    pool = a_pool(
        max_pods=2,
        tenancy=Tenancy(default_guarantee=4),
        namespace_selector=LabelSelector(match_labels={"team": "a"}),
    )
    scene = ask(Scene(replicas=1).pods(0), "b", 9)
    scene.state.adapter_pool_changed(scene.pool.adapter_pool, pool)
    assert not use_of(scene, "b").is_below_guarantee
