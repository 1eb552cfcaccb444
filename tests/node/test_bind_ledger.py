"""What a pod carries when it is bound: what stood on its ordinal, and its part of what is
pending.
"""

import pytest
from hypothesis import given, settings

from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.scaling.size import anyone
from extender.model.ledger import Share, encode_ledger, ledger_slots
from extender.model.objects import AdapterPod, LabelSelector
from extender.node.bind_ledger import adds_at_bind, bind_ledger_of, ledger_of_ordinal
from tests.support import worlds
from tests.support.builders import POOL, Scene
from tests.support.worlds import Naive

TEAM_X = LabelSelector(match_labels={"team": "x"})


def carried(
    scene: Scene, ordinal: int, *, with_added: bool = True
) -> tuple[dict[str, int], dict[str, int]]:
    """(ledger, added) of an ordinal's pod, as vpod name -> vreplicas."""
    pod = scene.pool.pods[f"dispatcher-{ordinal}"].pod
    assert pod is not None
    slots = scene.pool.pods[pod.name].capacity
    bind_ledger = bind_ledger_of(
        scene.pool,
        pod,
        slots=slots,
        with_added=with_added,
        allows=lambda v: scene.state.selects(POOL, v),
    )
    ledger = {key.partition("/")[2]: share.vreplicas for key, share in bind_ledger.ledger.items()}
    return ledger, {key.partition("/")[2]: count for key, count in bind_ledger.added.items()}


class TestStanding:
    def test_it_is_what_vpods_publish_there(self):
        scene = Scene().pod(0, node="").vpod("a", 3, {0: 2, 1: 1}).vpod("b", 1, {0: 1})
        assert carried(scene, 0, with_added=False) == ({"a": 2, "b": 1}, {})

    def test_it_is_also_what_the_last_incarnation_carried(self):
        scene = Scene().pod(0, {"tenant/a": 2}).vpod("a", 2).no_pod(0).pod(0, node="", uid="next")
        assert carried(scene, 0) == ({"a": 2}, {})

    def test_the_pending_pods_own_annotation_is_only_advice(self):
        scene = Scene().pod(0, {"tenant/a": 9}, node="").vpod("a", 1, {0: 1})
        assert carried(scene, 0) == ({"a": 1}, {})

    def test_what_a_vpod_that_is_gone_had_there_comes_back_for_its_successor_of_the_same_name(self):
        scene = (
            Scene()
            .vpod("a", 2)
            .pod(0, {"tenant/a": 2})
            .no_pod(0)
            .no_vpod("a")
            .pod(0, node="", uid="next")
        )
        assert carried(scene, 0) == ({"a": 2}, {})

    def test_what_a_vpod_had_there_comes_back_also_before_the_vpod_is_known(self):
        scene = Scene().pod(0, {"tenant/late": Share(2, 3)}).no_pod(0).pod(0, node="", uid="next")
        assert carried(scene, 0) == ({"late": 2}, {})

    def test_where_slots_do_not_suffice_what_is_published_comes_before_what_is_only_in_ledgers(
        self,
    ):
        scene = (
            Scene(slots=5).pod(0, {"tenant/a": 3, "tenant/b": 2}).vpod("a", 3).vpod("b", 2, {0: 2})
        )
        scene.no_pod(0).pod(0, node="", uid="next", slots=3)
        assert carried(scene, 0) == ({"a": 1, "b": 2}, {})

    def test_a_status_that_the_last_ledger_never_covered_takes_no_room_of_one_that_it_did(self):
        # The watch of vpods is behind that of pods: "a" has left, its room was given to "b", and
        # "b" has published it.
        scene = Scene(slots=7).pod(0, {"tenant/b": 5}).vpod("b", 5).vpod("a", 1, {0: 1}, weight=3)
        scene.no_pod(0).pod(0, node="", uid="next")
        assert carried(scene, 0) == ({"b": 5}, {})

    @pytest.mark.parametrize(
        "weight", [1, 3], ids=["a view of it that is behind", "what it weighs by now"]
    )
    def test_the_last_ledger_comes_back_with_the_weights_it_had(self, weight: int):
        scene = Scene(slots=9).pod(0, {"tenant/a": Share(3, 2), "tenant/b": 3}).vpod("b", 3, {0: 3})
        scene.vpod("a", 3, {0: 3}, weight=weight).no_pod(0).pod(0, node="", uid="next")
        assert ledger_of_ordinal(scene.pool, "dispatcher-0", 9, {}) == {
            "tenant/a": Share(3, 2),
            "tenant/b": Share(3),
        }

    def test_the_larger_of_both_counts(self):
        scene = (
            Scene()
            .pod(0, {"tenant/a": 4})
            .vpod("a", 4, {0: 1})
            .no_pod(0)
            .pod(0, node="", uid="next")
        )
        assert carried(scene, 0, with_added=False) == ({"a": 4}, {})


CPU = (("cpu", 2),)


@pytest.mark.parametrize(("together", "added"), [(1, 2), (2, 0)])
def test_pending_vreplicas_that_are_needed_together_wait_for_the_placer(together: int, added: int):
    scene = Scene(replicas=1).pod(0, node="").vpod("b", 1).vpod("a", 2, min_available=together)
    expected = {"b": 1} | ({"a": added} if added else {})
    assert carried(scene, 0) == (expected, expected)


class TestDimensions:
    def test_what_stands_is_cut_to_a_capacity_that_was_lowered(self):
        scene = Scene(replicas=1, capacities=(("cpu", 5),)).pod(0, {"tenant/a": Share(3, 1, CPU)})
        scene.vpod("a", 3, {0: 3}, per_vreplica=CPU).no_pod(0).pod(0, node="", uid="next")
        pod = scene.pool.pods["dispatcher-0"].pod
        assert pod is not None
        ledger = bind_ledger_of(scene.pool, pod, slots=20, with_added=False, allows=anyone).ledger
        assert ledger == {"tenant/a": Share(2, 1, CPU)}

    def test_pending_vreplicas_that_take_some_wait_for_the_placer(self):
        scene = Scene(replicas=1, capacities=(("cpu", 5),)).pod(0, node="").vpod("b", 1)
        assert carried(scene.vpod("a", 1, per_vreplica=CPU), 0) == ({"b": 1}, {"b": 1})


class TestPlanned:
    def test_pending_vreplicas_come_with_the_pod_that_binds(self):
        scene = Scene(slots=5, replicas=1).pod(0, node="").vpod("a", 3)
        assert carried(scene, 0) == ({"a": 3}, {"a": 3})

    def test_only_the_leader_plans(self):
        scene = Scene(slots=5, replicas=1).pod(0, node="").vpod("a", 3)
        assert carried(scene, 0, with_added=False) == ({}, {})

    def test_pods_still_to_come_share_what_is_pending(self):
        scene = Scene(slots=5, replicas=2).pod(0, node="").pod(1, node="").vpod("a", 5)
        assert [carried(scene, ordinal)[1] for ordinal in (0, 1)] == [{"a": 3}, {"a": 2}]

    def test_what_is_added_comes_on_top_of_what_stands_there(self):
        scene = Scene(slots=5, replicas=1).pod(0, node="").vpod("a", 4, {0: 1})
        assert carried(scene, 0) == ({"a": 4}, {"a": 3})

    def test_pods_of_different_sizes_agree_on_who_takes_what(self):
        scene = Scene(slots=10, replicas=2).pod(0, node="", slots=2).pod(1, node="", slots=10)
        scene.vpod("b", 2, {1: 2}).vpod("a", 2)
        assert [carried(scene, ordinal)[1] for ordinal in (0, 1)] == [{"a": 1}, {"a": 1}]

    def test_a_pod_that_is_being_drained_gets_nothing_new(self):
        scene = (
            Scene(slots=5, replicas=2)
            .pod(0, node="", unschedulable=True)
            .pod(1, node="")
            .vpod("a", 4)
        )
        assert [carried(scene, ordinal)[1] for ordinal in (0, 1)] == [{}, {"a": 4}]

    def test_a_closed_ordinal_gets_nothing_new_and_what_stands_there_comes_back(self):
        scene = Scene(slots=5, replicas=2).pod(0, node="").pod(1, node="").vpod("a", 4, {0: 1})
        scene.pool.set_closed(0b1)
        assert [carried(scene, ordinal) for ordinal in (0, 1)] == [
            ({"a": 1}, {}),
            ({"a": 3}, {"a": 3}),
        ]

    def test_a_pod_given_up_gets_nothing_new_and_covers_what_may_be_published_unseen(self):
        # Seed 31026: the statuses of vpods that the last pod held were behind, and it was bound
        # without them.
        scene = (
            Scene(slots=5, replicas=2)
            .pod(0, {"tenant/a": 2, "tenant/b": 1})
            .vpod("a", 2)
            .vpod("b", 2, {0: 1})
        )
        scene.no_pod(0).pod(0, node="", uid="next").pod(1, node="")
        scene.pool.set_abandoned(frozenset({"dispatcher-0"}))
        assert carried(scene, 0) == ({"a": 2, "b": 1}, {})
        assert carried(scene, 1) == ({"a": 2, "b": 1}, {"a": 2, "b": 1})

    def test_a_tenant_that_the_pool_does_not_select_gets_nothing(self):
        scene = Scene(slots=5, replicas=1, namespace_selector=TEAM_X).pod(0, node="").vpod("a", 3)
        assert carried(scene, 0) == ({}, {})
        scene.namespace("tenant", team="x")
        assert carried(scene, 0) == ({"a": 3}, {"a": 3})

    def test_a_vpod_that_is_being_deleted_gets_nothing(self):
        scene = Scene(slots=5, replicas=1).pod(0, node="").vpod("a", 3, deleting=True)
        assert carried(scene, 0) == ({}, {})

    def test_an_ordinal_that_is_gone_gets_nothing(self):
        scene = Scene(slots=5, replicas=1).pod(3, node="").vpod("a", 3)
        assert carried(scene, 3) == ({}, {})

    def test_pending_vreplicas_wait_if_the_ledger_has_no_bytes_for_them(self):
        scene = Scene(slots=10_000, replicas=1).pod(0, node="").vpod("waits" + "x" * 220, 1)
        from_former_pool = {f"tenant/{index:04}{'x' * 227}": Share(1) for index in range(539)}
        bind_ledger = bind_ledger_of(
            scene.pool,
            _pod(scene),
            slots=10_000,
            with_added=True,
            allows=anyone,
            placements_from_former_pool=from_former_pool,
        )
        assert bind_ledger.added == {}
        assert bind_ledger.ledger == from_former_pool
        assert bind_ledger.text == encode_ledger(bind_ledger.ledger)

    def test_a_weighted_vreplica_goes_only_where_all_of_it_fits(self):
        scene = Scene(slots=5, replicas=1).pod(0, node="").vpod("a", 3, weight=2)
        bind_ledger = bind_ledger_of(
            scene.pool, _pod(scene), slots=5, with_added=True, allows=anyone
        )
        assert bind_ledger.ledger == {"tenant/a": Share(2, 2)}


@pytest.mark.parametrize(
    ("profile", "plans"),
    [
        ("default", True),
        ("ha", False),
        ("spread", False),
        ("pack", False),
        ("knative", False),
        ("knative-maxfillup", False),
    ],
)
def test_pending_vreplicas_are_bound_with_a_pod_only_where_the_profile_deals_them_out(
    profile, plans
):
    assert adds_at_bind(BUILT_IN_PROFILES[profile]) is plans


def _pod(scene: Scene) -> AdapterPod:
    pod = scene.pool.pods["dispatcher-0"].pod
    assert pod is not None
    return pod


@settings(max_examples=60, deadline=None)
@given(worlds.worlds())
def test_for_every_pending_pod_of_any_pool(world):
    pool, naive = world.state.pool(POOL), Naive(world, POOL)
    added: dict[str, int] = {}
    for state in [state for state in pool.pods.values() if state.awaits_node]:
        slots = state.capacity
        bind_ledger = bind_ledger_of(pool, state.pod, slots=slots, with_added=True, allows=anyone)
        standing = ledger_of_ordinal(pool, state.name, slots, {})
        assert ledger_slots(bind_ledger.ledger) <= slots, "never more than its slots (I1)"
        for dimension, most in pool.capacities:
            taken = sum(worlds.taken(share, dimension) for share in bind_ledger.ledger.values())
            assert taken <= most, "never more than its dimensions (I1)"
        published = {
            v.key: v.placements[state.name]
            for v in naive.vpods.values()
            if v.placements.get(state.name)
        }
        covered = {
            key: min(n, state.last_ledger.get(key, Share(0)).vreplicas)
            for key, n in published.items()
        }
        what = published if not state.last_ledger else covered
        fits = sum(count * naive.vpods[key].weight for key, count in what.items()) <= slots
        for dimension, most in pool.capacities:
            each = {key: dict(naive.vpods[key].per_vreplica).get(dimension, 0) for key in what}
            fits = fits and sum(count * each[key] for key, count in what.items()) <= most
        if fits:
            assert all(standing[key].vreplicas >= n for key, n in what.items() if n), "covered (I2)"
        for key, share in bind_ledger.ledger.items():
            assert share.weight == naive.vpods[key].weight
            already = standing.get(key, Share(0)).vreplicas
            assert share.vreplicas == already + bind_ledger.added.get(key, 0)
        for key, count in bind_ledger.added.items():
            added[key] = added.get(key, 0) + count
    for key, count in added.items():
        assert count <= naive.vpods[key].vreplicas - sum(naive.placed_of(key).values()), (
            "no more than is missing"
        )
