"""Which vreplicas are served: kept up to date by differences, and equal to what adding up says."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from extender.engine.state.availability import (
    Availability,
    AvailableReason,
    Served,
    Unserved,
    availability_of,
    is_outdated,
    pool_availability,
    served_of,
    told_change,
)
from extender.engine.state.pool_state import PoolState
from extender.kube.events import clean_note
from extender.model.event_reasons import EventReason
from extender.model.objects import Condition, VPod
from tests.support.builders import POOL, Scene, a_node


def a_scene() -> Scene:
    """Three pods that serve, each on a node of its own."""
    scene = Scene(replicas=3)
    for index in range(3):
        scene.node(a_node(f"node-{index}", f"z{index}"))
        scene.pod(index, {}, node=f"node-{index}", ready=True)
    return scene


def the_pool(scene: Scene) -> PoolState:
    return scene.state.pools[POOL]


def test_vreplicas_on_pods_that_are_ready_are_served():
    scene = a_scene().vpod("a", 5, {0: 3, 1: 2})
    found = availability_of(the_pool(scene), "tenant/a", {"dispatcher-0": 3, "dispatcher-1": 2}, 5)
    assert (found.ready, found.reason, found.holds) == (5, AvailableReason.ALL_READY, True)
    assert found.message() == "5 of 5 vreplicas are on pods that are Ready"


@pytest.mark.parametrize(
    ("fields", "reason", "why"),
    [
        ({"ready": False}, AvailableReason.POD_NOT_READY, "the pod is not Ready"),
        (
            {"ready": False, "lease_expired": True},
            AvailableReason.LEASE_EXPIRED,
            "the adapter's lease has run out",
        ),
        (
            {"ready": True, "deleting": True},
            AvailableReason.POD_TERMINATING,
            "the pod is terminating",
        ),
        ({"ready": True, "finished": True}, AvailableReason.POD_NOT_READY, "the pod has finished"),
    ],
)
def test_a_pod_that_has_never_served_counts_at_once(fields, reason, why):
    scene = Scene(replicas=1).pod(0, {}, **fields).vpod("a", 2, {0: 2})
    found = availability_of(the_pool(scene), "tenant/a", {"dispatcher-0": 2}, 2)
    assert (found.ready, found.reason) == (0, reason)
    assert (
        found.message() == f"0 of 2 vreplicas are served; nobody serves 2 on dispatcher-0 ({why})"
    )


def test_a_pod_that_has_served_is_excused_until_its_time_is_over():
    scene = a_scene().vpod("a", 5, {0: 3, 1: 2})
    pool = the_pool(scene)
    scene.pod(0, {}, node="node-0", ready=False)
    assert pool.unserved == {}
    pool.end_excuse("dispatcher-0")
    assert pool.unserved == {"tenant/a": 3}
    scene.pod(0, {}, node="node-0", ready=True)
    assert pool.unserved == {}


def test_a_lost_node_is_the_worst_reason():
    scene = a_scene().vpod("a", 6, {0: 3, 1: 2, 2: 1})
    pool = the_pool(scene)
    scene.pod(0, {}, node="node-0", ready=True, deleting=True)
    scene.node(a_node("node-1", "z1", ready=False))
    for name in ("dispatcher-0", "dispatcher-1"):
        pool.end_excuse(name)
    found = availability_of(pool, "tenant/a", pool.vpods["tenant/a"].placements, 6)
    assert (found.ready, found.reason) == (1, AvailableReason.NODE_LOST)
    assert (
        "3 on dispatcher-0 (the pod is terminating), 2 on dispatcher-1 (node node-1 is not Ready)"
        in (found.message())
    )


def test_what_waits_for_a_place_is_not_available_and_its_pods_are_not_blamed():
    scene = a_scene()
    found = availability_of(the_pool(scene), "tenant/a", {"dispatcher-0": 3}, 5)
    assert (found.holds, found.reason) == (False, AvailableReason.NOT_ALL_PLACED)
    assert found.message() == "3 of 5 vreplicas are served: 2 are not placed"


def test_a_status_is_outdated_once_its_pods_say_otherwise():
    told = (Condition("Available", "True", "AllReady"),)
    scene = a_scene().vpod("a", 3, {0: 3}, ready_vreplicas=3, conditions=told)
    pool = the_pool(scene)
    assert not is_outdated(pool, pool.vpods["tenant/a"])
    scene.node(a_node("node-0", "z0", ready=False))
    assert not is_outdated(pool, pool.vpods["tenant/a"])
    pool.end_excuse("dispatcher-0")
    assert is_outdated(pool, pool.vpods["tenant/a"])
    new = (availability_of(pool, "tenant/a", {"dispatcher-0": 3}, 3).condition(),)
    assert not is_outdated(pool, replace(pool.vpods["tenant/a"], ready_vreplicas=0, conditions=new))


def test_a_status_is_outdated_once_as_many_are_down_on_another_pod():
    scene = a_scene().vpod("a", 4, {0: 2, 1: 2})
    pool = the_pool(scene)
    scene.pod(0, {}, node="node-0", ready=False)
    pool.end_excuse("dispatcher-0")
    told = (availability_of(pool, "tenant/a", pool.vpods["tenant/a"].placements, 4).condition(),)
    scene.vpod("a", 4, {0: 2, 1: 2}, ready_vreplicas=2, conditions=told)
    assert not is_outdated(pool, pool.vpods["tenant/a"])
    scene.pod(0, {}, node="node-0", ready=True)
    scene.pod(1, {}, node="node-1", ready=False)
    pool.end_excuse("dispatcher-1")
    assert is_outdated(pool, pool.vpods["tenant/a"])


FOREIGN = {"source": "stream.example.dev", "conditions_json": b""}


def the_stream(scene: Scene, conditions: tuple[Condition, ...], **fields) -> tuple[PoolState, VPod]:
    """A Stream with 3 vreplicas on pod 0. ``conditions``: of ours, as they are stored."""
    scene.vpod("s", 3, {0: 3}, conditions=conditions, **{**FOREIGN, **fields})
    pool = the_pool(scene)
    return pool, pool.vpods["tenant/s@stream.example.dev"]


@pytest.mark.parametrize(
    ("stored", "fields", "outdated"),
    [
        pytest.param(
            (Condition("Available", "False", "NodeLost", "0 of 3"),), {}, True, id="wrong"
        ),
        pytest.param(
            (Condition("Available", "True", "AllReady", "3 of 3"),), {}, False, id="right"
        ),
        pytest.param((Condition("Scheduled", "True", "AllPlaced", "all"),), {}, True, id="missing"),
        pytest.param((), {}, False, id="all of ours dropped"),
        pytest.param((Condition("Available", "False"),), {}, False, id="fields dropped"),
        pytest.param(
            (Condition("Available", "False", "NodeLost", "0 of 3"),),
            {"conditions_json": None},
            False,
            id="no place for conditions",
        ),
    ],
)
def test_a_foreign_status_is_outdated_only_by_the_conditions_that_we_write(
    stored, fields, outdated
):
    pool, stream = the_stream(a_scene(), stored, **fields)
    assert is_outdated(pool, stream) is outdated


def test_what_a_foreign_status_says_is_counted_as_that_of_a_vpod():
    scene = a_scene()
    pool, stream = the_stream(scene, ())
    assert served_of(stream) is None
    scene.pod(0, {}, node="node-0", ready=False)
    pool.end_excuse("dispatcher-0")
    placements = {"dispatcher-0": 3, "dispatcher-1": 4}
    now = availability_of(pool, "tenant/a", placements, 9)
    told = replace(stream, placements=placements, conditions=(now.condition(),))
    assert served_of(told) == Served("PodNotReady", 4, 3)
    assert served_of(told) == served_of(replace(told, source="", ready_vreplicas=now.ready))


def test_a_message_that_somebody_else_has_written_counts_nothing_as_served():
    _, stream = the_stream(a_scene(), (Condition("Available", "False", "NodeLost", "9" * 40),))
    assert served_of(stream) == Served("NodeLost", 0, 3)
    _, stream = the_stream(a_scene(), (Condition("Available", "True", "AllReady", "99 of 3"),))
    assert served_of(stream) == Served("AllReady", 3, 0)


@pytest.mark.parametrize("chars", [1, 40, 253])
def test_the_pods_that_a_message_names_are_stored_whole(chars):
    found = Availability(
        2**31 - 1,
        2**31 - 1,
        tuple(
            Unserved(
                f"{index}{'p' * 62}",
                2**20,
                AvailableReason.NODE_LOST,
                f"node {'n' * chars} is not Ready",
            )
            for index in range(9)
        ),
    )
    assert clean_note(found.message()) == found.message()
    assert f"1048576 on 0{'p' * 62} (node n" in found.message()
    named = found.message().count("is not Ready")
    assert found.message().endswith(f", and those on {9 - named} pods more")


LOST, NOT_READY, WAITS, READY = "NodeLost", "PodNotReady", "NotAllPlaced", "AllReady"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ((READY, 6, 0), (NOT_READY, 4, 2), EventReason.UNAVAILABLE),
        ((NOT_READY, 4, 2), (NOT_READY, 0, 6), EventReason.UNAVAILABLE),
        ((NOT_READY, 4, 2), (LOST, 4, 2), EventReason.UNAVAILABLE),
        ((LOST, 4, 2), (NOT_READY, 4, 2), None),
        ((LOST, 2, 4), (NOT_READY, 4, 2), None),
        ((NOT_READY, 4, 2), (NOT_READY, 3, 2), None),
        ((READY, 4, 0), (NOT_READY, 4, 2), None),
        ((WAITS, 0, 0), (NOT_READY, 0, 2), None),
        ((NOT_READY, 4, 2), (READY, 6, 0), EventReason.AVAILABLE),
        ((NOT_READY, 4, 2), (WAITS, 4, 0), EventReason.AVAILABLE),
        ((WAITS, 4, 0), (READY, 6, 0), None),
        (("", 0, 0), (NOT_READY, 0, 2), None),
    ],
)
def test_what_is_told_between_two_statuses(before, after, told):
    assert told_change(Served(*before), Served(*after)) is told


def recomputed(pool: PoolState) -> dict[str, int]:
    """The slow way to ``PoolState.unserved``."""
    found = {}
    for key, vpod in pool.vpods.items():
        down = [
            name for name in vpod.placements if (pod := pool.pods.get(name)) is None or pod.down
        ]
        if count := sum(vpod.placements[name] for name in down):
            found[key] = count
    return found


ORDINALS = st.integers(0, 2)
CHANGES = st.one_of(
    st.tuples(st.just("pod"), ORDINALS, st.booleans(), st.booleans()),
    st.tuples(st.just("no pod"), ORDINALS),
    st.tuples(st.just("node"), ORDINALS, st.booleans()),
    st.tuples(st.just("end"), ORDINALS),
    st.tuples(
        st.just("vpod"),
        st.sampled_from("ab"),
        st.dictionaries(ORDINALS, st.integers(1, 5), max_size=3),
    ),
    st.tuples(st.just("no vpod"), st.sampled_from("ab")),
    st.tuples(st.just("replicas"), st.integers(0, 3)),
)


@given(st.lists(CHANGES, max_size=30))
def test_what_is_kept_by_differences_equals_what_adding_up_says(changes):
    scene = a_scene()
    pool = the_pool(scene)
    for change in changes:
        make(scene, pool, *change)
        assert pool.unserved == recomputed(pool)
    found = pool_availability(pool)
    assert sum(pool.unserved.values()) == sum(item.vreplicas for item in found.unserved)


def make(scene: Scene, pool: PoolState, kind: str, *rest) -> None:
    """One of ``CHANGES``."""
    match kind:
        case "pod":
            ordinal, ready, deleting = rest
            scene.pod(ordinal, {}, node=f"node-{ordinal}", ready=ready, deleting=deleting)
        case "no pod":
            state = pool.pods.get(f"dispatcher-{rest[0]}")
            if state is not None and state.pod is not None:
                scene.no_pod(rest[0])
        case "node":
            scene.node(a_node(f"node-{rest[0]}", f"z{rest[0]}", ready=rest[1]))
        case "end":
            pool.end_excuse(f"dispatcher-{rest[0]}")
        case "vpod":
            scene.vpod(rest[0], 6, rest[1])
        case "no vpod":
            if f"tenant/{rest[0]}" in pool.vpods:
                scene.no_vpod(rest[0])
        case "replicas":
            scene.stateful_set(rest[0])


def test_what_runs_on_without_its_pool_is_available_though_nobody_looks_after_it():
    scene = Scene(replicas=1).pod(0, {"tenant/a": 2}, ready=True).vpod("a", 2, {0: 2})
    scene.state.adapter_pool_changed(scene.pool.adapter_pool, None)
    found = availability_of(scene.pool, "tenant/a", {"dispatcher-0": 2}, 2)
    assert (found.holds, found.reason) == (True, AvailableReason.ALL_READY)
