"""Since when an ordinal is not Ready, and when it is given up."""

import pytest

from extender.engine.rebalance.absence import Absences
from extender.model.assignment import Acknowledged, encode_acknowledged
from tests.support.builders import Scene, a_node

AT_100 = "1970-01-01T00:01:40Z"


def scene(after_s: int | None = 60, **pod) -> Scene:
    """Two pods, of which ordinal 1 is as the test says."""
    made = Scene(replicas=2, reschedule_after_s=after_s).pod(0, ready=True)
    return made.pod(1, **{"ready": True, **pod}).vpod("a", 2, {0: 1, 1: 1})


def lost(*ordinals: int) -> frozenset[str]:
    return frozenset(f"dispatcher-{ordinal}" for ordinal in ordinals)


NOTHING: tuple[frozenset[str], None] = (frozenset(), None)


def test_pods_that_are_ready_are_never_given_up():
    assert Absences().look(scene().pool, 1e9) == NOTHING


@pytest.mark.parametrize(
    "ready_since",
    [
        pytest.param(AT_100, id="long ago by its node's clock"),
        pytest.param("2100-01-01T00:00:00Z", id="in the future by its node's clock"),
    ],
)
def test_a_pod_that_is_not_ready_is_given_up_when_its_time_has_passed_by_our_clock(ready_since):
    absences, pool = Absences(), scene(ready=False, ready_since=ready_since).pool
    assert absences.look(pool, 500.0) == (lost(), 560.0)
    assert absences.look(pool, 559.9) == (lost(), 560.0)
    assert absences.look(pool, 560.0) == (lost(1), None)
    assert absences.since("dispatcher-1") == 500.0


HEARD = encode_acknowledged(Acknowledged(1, 1, renewed="2026-11-29T08:00:00Z"))


def leases(*expired: bool) -> Scene:
    """Pods whose adapters' leases have run out, or have not."""
    made = Scene(replicas=len(expired), reschedule_after_s=60)
    for ordinal, lost in enumerate(expired):
        has = None if lost else HEARD
        made.pod(ordinal, ready=not lost, lease_expired=lost, acknowledged_text=has)
    return made


@pytest.mark.parametrize(
    "expired", [(False, True), (False, True, False), (True, False, True, False)]
)
def test_pods_whose_leases_have_run_out_are_given_up_if_they_are_no_more_than_half(expired):
    absences, made = Absences(), leases(*expired)
    assert absences.look(made.pool, 500.0) == (lost(), 560.0)
    found = lost(*(ordinal for ordinal, gone in enumerate(expired) if gone))
    assert absences.look(made.pool, 560.0) == (found, None)


@pytest.mark.parametrize("expired", [(True,), (True, True), (True, True, False)])
def test_leases_that_have_run_out_in_most_pods_give_no_pod_up(expired):
    absences, made = Absences(), leases(*expired)
    assert absences.look(made.pool, 500.0) == NOTHING
    assert absences.look(made.pool, 900.0) == NOTHING


def test_leases_of_most_pods_count_from_when_most_others_are_heard_again():
    absences, made = Absences(), leases(True, True)
    absences.look(made.pool, 500.0)
    made.pod(0, ready=True, acknowledged_text=HEARD)
    assert absences.look(made.pool, 900.0) == (lost(), 960.0)


def test_a_pod_that_has_never_acknowledged_says_nothing_about_the_way_to_the_service():
    absences, made = Absences(), leases(True, False)
    made.pod(1, ready=True)
    assert absences.look(made.pool, 500.0) == NOTHING
    assert absences.look(made.pool, 900.0) == NOTHING


def test_while_no_adapter_is_heard_pods_that_are_not_ready_are_given_up_in_time():
    absences, made = Absences(), leases(True, True)
    made.pod(0, ready=False)
    assert absences.look(made.pool, 500.0) == (lost(), 560.0)
    assert absences.look(made.pool, 560.0) == (lost(0), None)


def test_a_pod_whose_lease_has_run_out_and_whose_probe_then_fails_was_not_back():
    """With a liveness probe it would never have been given up."""
    absences, made = Absences(), leases(False, True)
    for at in range(500, 560, 10):
        fails = at % 20 == 0
        since = f"1970-01-01T00:{at // 60:02}:{at % 60:02}Z"
        made.pod(1, ready=False, lease_expired=not fails, ready_since=since)
        assert absences.look(made.pool, float(at)) == (lost(), 560.0)
    assert absences.look(made.pool, 560.0) == (lost(1), None)


def test_who_has_only_watched_goes_on_from_what_it_has_seen():
    absences, pool = Absences(), scene(ready=False, ready_since=AT_100).pool
    absences.note(pool, 500.0)
    assert absences.look(pool, 560.0) == (lost(1), None)


def test_a_setting_that_comes_later_counts_from_what_was_seen_before():
    absences, made = Absences(), scene(None, ready=False)
    assert absences.look(made.pool, 500.0) == NOTHING
    assert absences.look(scene(60, ready=False).pool, 560.0) == (lost(1), None)


def test_a_pod_that_was_ready_unseen_begins_anew():
    absences, made = Absences(), scene(ready=False, ready_since=AT_100)
    absences.look(made.pool, 500.0)
    made.pod(1, ready=False, ready_since="1970-01-01T00:01:50Z")
    assert absences.look(made.pool, 550.0) == (lost(), 610.0)


def test_a_pod_that_is_told_not_to_be_ready_after_its_node_has_failed_does_not_begin_anew():
    absences, made = Absences(), scene(ready=True, ready_since=AT_100).node(a_node(ready=False))
    absences.look(made.pool, 500.0)
    made.pod(1, ready=False, ready_since="1970-01-01T00:02:20Z")
    assert lost(1) <= absences.look(made.pool, 560.0)[0]


def test_a_pool_without_the_setting_gives_up_nothing():
    assert Absences().look(scene(None, ready=False, ready_since=AT_100).pool, 1e9) == NOTHING


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda s: s.no_pod(1), id="its pod is gone"),
        pytest.param(lambda s: s.pod(1, node=""), id="its pod has no node"),
        pytest.param(lambda s: s.pod(1, ready=False), id="its condition has no time"),
        pytest.param(
            lambda s: s.pod(1, ready=False, ready_since="yesterday"), id="its time is unreadable"
        ),
        pytest.param(lambda s: s.pod(1, ready=True, finished=True), id="its pod has finished"),
        pytest.param(
            lambda s: s.pod(1, ready=True, ready_since=AT_100, node="gone"), id="its node is gone"
        ),
        pytest.param(
            lambda s: s.node(a_node("bad", ready=False)).pod(
                1, ready=True, ready_since=AT_100, node="bad"
            ),
            id="its node is unreachable, and nobody has told the pod",
        ),
    ],
)
def test_every_absence_counts_from_when_it_is_first_seen(make):
    absences, pool = Absences(), make(scene()).pool
    assert absences.look(pool, 1000.0) == (lost(), 1060.0)
    assert absences.look(pool, 1060.0) == (lost(1), None)


def test_a_cordoned_node_makes_nobody_absent():
    made = scene().node(a_node("cordoned", cordoned=True)).pod(1, ready=True, node="cordoned")
    assert Absences().look(made.pool, 1e9) == NOTHING


def test_a_pod_that_comes_back_is_taken_back_and_begins_anew_when_it_goes_again():
    absences, made = Absences(), scene(ready=False, ready_since=AT_100)
    absences.note(made.pool, 140.0)
    assert absences.look(made.pool, 200.0) == (lost(1), None)
    made.pod(1, ready=True)
    assert absences.look(made.pool, 201.0) == NOTHING
    made.no_pod(1)
    assert absences.look(made.pool, 210.0) == (lost(), 270.0)


def test_a_new_incarnation_that_is_not_ready_either_does_not_begin_anew():
    absences, made = Absences(), scene().no_pod(1)
    absences.look(made.pool, 80.0)
    made.pod(1, ready=False, ready_since=AT_100, uid="another")
    assert absences.look(made.pool, 139.0) == (lost(), 140.0)


@pytest.mark.parametrize(
    ("waits_s", "due"),
    [
        pytest.param(4.0, 560.0, id="made anew because it fails"),
        pytest.param(5.0, 575.0, id="there was no machine"),
        pytest.param(900.0, 1470.0, id="and it was given up meanwhile"),
    ],
)
def test_a_pod_that_has_waited_for_a_machine_gets_its_time_to_start(waits_s: float, due: float):
    """With a node autoscaler each pod was given up as soon as its node was there, and replaced."""
    absences, made = Absences(), scene().no_pod(1)
    absences.look(made.pool, 500.0)
    made.pod(1, node="", uid="another")
    absences.look(made.pool, 510.0)
    absences.look(made.pool, 511.0)
    made.pod(1, ready=False, uid="another")
    assert absences.look(made.pool, 510.0 + waits_s) == (lost(), due)
    assert absences.look(made.pool, 510.0 + waits_s + 1.0) == (lost(), due)


def test_a_pod_whose_bindings_fail_again_and_again_is_given_up_in_time():
    """It is assumed during each of them."""
    absences, made = Absences(), scene().pod(1, node="")
    for at in range(500, 560, 10):
        assert absences.look(made.pool, float(at)) == (lost(), 560.0)
        made.pod(1, ready=False, assumed=True)
        absences.look(made.pool, at + 1.0)
        made.pod(1, node="")
    assert absences.look(made.pool, 560.0) == (lost(1), None)


def test_an_ordinal_that_the_statefulset_has_lost_is_none_of_its_business():
    absences, made = Absences(), scene(ready=False, ready_since=AT_100)
    absences.note(made.pool, 100.0)
    made.stateful_set(1)
    assert absences.look(made.pool, 1e9) == NOTHING


def test_a_longer_time_takes_back_what_is_not_over_it():
    absences, made = Absences(), scene(ready=False, ready_since=AT_100)
    absences.note(made.pool, 100.0)
    assert absences.look(made.pool, 200.0) == (lost(1), None)
    other = scene(600, ready=False, ready_since=AT_100)
    assert absences.look(other.pool, 200.0) == (lost(), 700.0)


def test_given_up_pods_take_nothing_new():
    absences, made = Absences(), scene(ready=False, ready_since=AT_100)
    absences.note(made.pool, 100.0)
    made.pool.set_abandoned(absences.look(made.pool, 1e6)[0])
    assert made.pool.room == 0b01
