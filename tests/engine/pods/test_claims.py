"""What a pod holds: the sums of its claims, whose reservation they are, and what its next
incarnation brings back.
"""

from extender.model.ledger import Share, ledger_slots
from extender.node.bind_ledger import ledger_of_ordinal
from tests.support.builders import Scene
from tests.support.placing import place


def test_the_next_incarnation_that_comes_without_the_end_of_the_last_brings_its_ledger_back():
    scene = Scene().pod(0, {"tenant/a": 2}).vpod("a", 2).pod(0, node="", uid="next")
    assert ledger_of_ordinal(scene.pool, "dispatcher-0", 20, {}) == {"tenant/a": Share(2)}


def test_only_the_owner_releases_what_it_has_reserved():
    scene = Scene().pods(0).vpod("a", 2).reserve("a", 0, 2, owner="one")
    scene.pool.release("another", "tenant/a")
    assert scene.pool.decided_of("tenant/a") == {"dispatcher-0": 2}
    scene.pool.release("one", "tenant/a")
    assert scene.pool.decided_of("tenant/a") == {}


def test_a_pod_has_no_more_slots_than_its_pool_gives_each():
    scene = Scene(slots=5).pod(0, slots=9).pod(1, slots=3)
    assert [scene.pool.pods[f"dispatcher-{ordinal}"].capacity for ordinal in (0, 1)] == [5, 3]


def test_a_full_pod_has_no_room():
    scene = Scene(slots=2).pod(0, {"tenant/a": 2}).pod(1, {"tenant/a": 1})
    assert scene.pool.room == 0b10


def test_what_a_decision_takes_away_is_held_until_it_is_written():
    scene = Scene(slots=5).pod(0, {"tenant/a": 4}).vpod("a", 1, {0: 4}).reserve("a", 0, 1)
    pod = scene.pool.pods["dispatcher-0"]
    assert (pod.decided, pod.held, pod.free) == (1, 4, 1)


def test_heavy_vreplicas_hold_all_their_slots():
    scene = Scene(slots=20).pod(0, {"tenant/a": Share(2, 3)})
    assert scene.pool.free_of(0) == 14


def test_a_status_that_says_what_the_ledger_does_holds_nothing_more():
    scene = Scene(slots=20).pod(0, {"tenant/a": Share(2, 3)}).vpod("a", 2, {0: 2}, weight=3)
    assert scene.pool.free_of(0) == 14
    assert scene.pool.decided_of("tenant/a") == {"dispatcher-0": 2}
    assert scene.pod(0, {}).pool.free_of(0) == 14, "it is published still"
    assert scene.no_vpod("a").pool.free_of(0) == 20


def test_a_status_that_comes_down_to_the_ledger_frees_what_it_published():
    scene = Scene(slots=20).pod(0, {"tenant/a": Share(2)}).vpod("a", 5, {0: 5})
    assert scene.pool.free_of(0) == 15
    assert scene.vpod("a", 2, {0: 2}).pool.free_of(0) == 18


def test_a_status_that_repeats_the_ledger_leaves_a_reservation_as_it_is():
    scene = Scene(slots=20).pod(0, {"tenant/a": Share(2)}).reserve("a", 0, 1).vpod("a", 2, {0: 2})
    assert scene.pool.decided_of("tenant/a") == {"dispatcher-0": 1}
    assert scene.pool.free_of(0) == 18


def test_a_ledger_adds_up_by_weight():
    assert ledger_slots({"tenant/a": Share(2, 3), "tenant/b": Share(1)}) == 7


def test_an_overcommitted_pod_of_heavy_vreplicas_comes_back_under_its_slots():
    scene = (
        Scene(slots=5, replicas=1).pod(0, {"tenant/a": Share(3, 2)}).vpod("a", 3, {0: 3}, weight=2)
    )
    assert place(scene.pool, scene.pool.vpods["tenant/a"]).target == {"dispatcher-0": 2}


def test_the_annotation_of_a_pod_that_is_not_bound_claims_nothing():
    scene = Scene(slots=20).pod(0, {"tenant/a": 9}, node="").vpod("a", 1, {0: 1})
    assert (scene.pool.pods["dispatcher-0"].held, scene.pool.decided_vreplicas("tenant/a")) == (
        1,
        1,
    )
