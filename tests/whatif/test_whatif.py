"""What if: the difference is the change's doing alone, and the same as doing it and waiting."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.scaling.size import POOL_PODS_MAX
from extender.engine.state.cluster_state import ClusterState
from extender.model.errors import InvalidObject
from extender.model.ledger import Share
from extender.model.tenancy import Tenancy
from extender.whatif.left_out import pools_asked
from extender.whatif.request import FIELDS, change_from
from extender.whatif.settling import commit
from extender.whatif.snapshot import Snapshot
from extender.whatif.targets import Target, TargetKind
from extender.whatif.whatif import Change, what_if
from tests.support.builders import NS, POOL, Scene, a_node, a_vpod
from tests.support.placing import place
from tests.whatif.scenes import scenes

HUNGRY = (("cpu", 3),)
DRAWN = settings(max_examples=30, deadline=None)


def asked(scene: Scene, change: Change) -> Any:
    return what_if(Snapshot.of(scene.state, [POOL]), change)


def drained(what: str, name: str, **more) -> Change:
    return Change(drain=(Target(TargetKind(what), name),), **more)


def three_zones(**fields) -> Scene:
    scene = Scene(replicas=3, slots=6, **fields)
    for ordinal in range(3):
        scene.node(a_node(f"n{ordinal}", f"z{ordinal}")).pod(ordinal, {}, node=f"n{ordinal}")
    return scene


def done_and_waited_for(state: ClusterState) -> dict[str, dict[str, int]]:
    """Every vpod decided by name and written, again and again until nothing changes: where
    each is.
    """
    pool = state.pool(POOL)
    for _ in range(10):
        before = {key: pool.decided_of(key) for key in pool.vpods}
        for key in sorted(pool.vpods):
            decision = place(pool, pool.vpods[key])
            pool.reserve("done", key, decision.shares(pool.decided_of(key)), expires_at=1e9)
        for key in sorted(pool.vpods):
            commit(state, pool, [place(pool, pool.vpods[key])])
        if before == {key: pool.decided_of(key) for key in pool.vpods}:
            break
    return {key: pool.decided_of(key) for key in pool.vpods}


@DRAWN
@given(scenes(), st.booleans())
def test_nothing_asked_for_is_nothing_changed(scene, autoscale):
    answer = asked(scene, Change(autoscale=autoscale))
    summary = answer["summary"]
    assert (answer["vpods"], summary["moved"]) == ([], 0)
    assert summary["unplacedAfter"] == summary["unplacedSettled"]


@DRAWN
@given(scenes(), st.data())
def test_a_drain_is_what_marking_the_pods_comes_to(scene, data):
    pods = [pod.name for pod in scene.pool.members() if pod.pod is not None]
    if not pods:
        return
    name = data.draw(st.sampled_from(pods))
    answer = asked(scene, drained("pod", name))
    state = Snapshot.of(scene.state, [POOL]).state()
    before = done_and_waited_for(state)
    pod = state.pool(POOL).pods[name].pod
    assert pod is not None
    state.pod_changed(pod, replace(pod, unschedulable=True))
    after = done_and_waited_for(state)
    rows = {row["name"]: (row["settled"], row["after"]) for row in answer["vpods"]}
    changed = {key: (before[key], after[key]) for key in before if before[key] != after[key]}
    assert {key: row for key, row in rows.items() if row[0] != row[1]} == changed


@DRAWN
@given(scenes())
def test_nobodys_state_is_touched(scene):
    before = scene.state.digest()
    asked(scene, Change(autoscale=True, compact=True, add=(a_vpod("new", 3),)))
    assert scene.state.digest() == before


def test_a_zones_drain():
    scene = three_zones().vpod("a", 6, {0: 2, 1: 2, 2: 2})
    answer = asked(scene, drained("zone", "z0"))
    assert answer["vpods"][0]["after"] == {"dispatcher-1": 3, "dispatcher-2": 3}
    assert answer["summary"] == {
        "moved": 2,
        "movedSettled": 0,
        "vpodsChanged": 1,
        "unplacedBefore": 0,
        "unplacedSettled": 0,
        "unplacedAfter": 0,
        "podsBefore": 3,
        "podsSettled": 3,
        "podsAfter": 3,
        "podsImagined": 0,
        "overcommittedAfter": 0,
        "outOfService": 0,
        "unserved": 0,
        "vpodsOutOfService": 0,
    }
    assert answer["pools"][0]["zones"][0] == {
        "zone": "z0",
        "before": 2,
        "after": 0,
        "vpodsLostBefore": 0,
        "vpodsLostAfter": 0,
    }


def test_what_has_no_room_elsewhere_stays_and_waits():
    scene = three_zones().vpod("a", 18)
    answer = asked(scene, drained("node", "n1"))
    (row,) = answer["vpods"]
    assert (row["after"], row["unplaced"], row["moved"]) == (row["settled"], 6, 0)
    assert row["reasons"][0] == "InsufficientSlots"


def test_with_the_autoscaler_pods_come_where_nodes_are_left():
    scene = three_zones().vpod("a", 18)
    answer = asked(scene, drained("node", "n1", autoscale=True))
    assert (answer["summary"]["podsBefore"], answer["summary"]["podsAfter"]) == (3, 4)
    assert (answer["summary"]["moved"], answer["summary"]["unplacedAfter"]) == (6, 0)


def failing(what: str, name: str, **more) -> Change:
    return Change(fail=(Target(TargetKind(what), name),), **more)


def test_where_a_node_fails_nothing_moves_and_what_is_out_of_service_is_said():
    scene = (
        three_zones(reschedule_after_s=None).vpod("a", 6, {0: 2, 1: 2, 2: 2}).vpod("b", 1, {0: 1})
    )
    answer = asked(scene, failing("node", "n0"))
    summary = answer["summary"]
    assert (summary["moved"], summary["outOfService"], summary["vpodsOutOfService"]) == (0, 3, 1)
    assert answer["notes"] == [
        f"pool {POOL}: 1 pod and 3 vreplicas would be away, with all that 1 vpod has; nothing "
        f"moves, the pods come back with "
        "what they hold (rescheduleAfterSeconds is null)"
    ]


def test_where_a_zone_fails_for_longer_than_the_pool_waits_what_has_room_moves():
    scene = three_zones(reschedule_after_s=300).vpod("a", 6, {0: 2, 1: 2, 2: 2})
    answer = asked(scene, failing("zone", "z0"))
    assert answer["vpods"][0]["after"] == {"dispatcher-1": 3, "dispatcher-2": 3}
    assert (answer["summary"]["moved"], answer["summary"]["outOfService"]) == (2, 2)
    assert "after 300 s what has room elsewhere" in answer["notes"][0]


def test_a_pod_that_fails_is_taken_for_lost_in_time():
    scene = three_zones(reschedule_after_s=300).vpod("a", 6, {0: 2, 1: 2, 2: 2})
    assert asked(scene, failing("pod", "dispatcher-0"))["summary"]["moved"] == 2


@pytest.mark.parametrize(("what", "name"), [("pod", "dispatcher-0"), ("node", "n0")])
def test_nothing_is_moved_onto_what_fails(what, name):
    scene = three_zones(reschedule_after_s=None, min_pods=3)
    for ordinal, vpod in enumerate("abc"):
        ledger = {f"tenant/{vpod}": 2}
        scene.pod(ordinal, ledger, node=f"n{ordinal}", ready=True).vpod(vpod, 2, {ordinal: 2})
    change = failing(what, name, settings={"minPods": 1}, autoscale=True, compact=True)
    (pool,) = asked(scene, change)["pools"]
    moves = [(move["vpod"], move["from"], move["to"]) for move in pool["evictions"]]
    assert moves == [("tenant/c", "dispatcher-2", "dispatcher-1")]


def test_a_bare_name_is_enough_where_only_one_thing_has_it():
    scene = three_zones().vpod("a", 6, {0: 2, 1: 2, 2: 2})
    for name in ("dispatcher-0", "n0", "z0"):
        assert asked(scene, Change(drain=(Target(None, name),)))["summary"]["moved"] == 2


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("n1", "n1 has several meanings: say node/n1 or zone/n1", id="two"),
        pytest.param(
            "x", "x is no pod, node or zone that is known: say pod/x or node/x or zone/x", id="none"
        ),
    ],
)
def test_a_bare_name_that_does_not_say_what_is_meant(name, problem):
    scene = three_zones().node(a_node("other", "n1"))
    with pytest.raises(InvalidObject) as refused:
        asked(scene, Change(fail=(Target(None, name),)))
    assert problem in str(refused.value)


def test_larger_pods_take_what_waits():
    summary = asked(three_zones().vpod("a", 21), Change(settings={"slotsPerPod": 7}))["summary"]
    assert (summary["unplacedBefore"], summary["unplacedSettled"], summary["unplacedAfter"]) == (
        21,
        3,
        0,
    )


NO_CPU = "'0/4 nodes are available: 4 Insufficient cpu.'"


def test_what_waits_today_is_said_and_pods_that_kube_scheduler_refuses_stay_without_a_node():
    scene = three_zones().pod(2, node="", refusal=NO_CPU).vpod("a", 18, {0: 6, 1: 6})
    answer = asked(scene, drained("zone", "z0", autoscale=True))
    summary = answer["summary"]
    assert (summary["unplacedBefore"], summary["unplacedSettled"], summary["unplacedAfter"]) == (
        6,
        6,
        12,
    )
    assert (summary["podsImagined"], summary["podsBefore"], summary["podsAfter"]) == (0, 3, 4)
    assert answer["notes"] == [
        f"pool {POOL}: kube-scheduler finds no node for 1 of its pods: {NO_CPU}; so it stays here, "
        f"and no pod more is thought "
        "to find one"
    ]


def test_a_pod_that_is_refused_for_what_our_rules_say_too_may_come_once_they_allow_it():
    scene = three_zones().pod(
        2, node="", slots=6, slots_request=6, refusal="'0/4 nodes are available'"
    )
    for name in ("n0", "n1", "n2", "node-0"):
        scene.node(a_node(name, f"z{name[-1]}", slots=5))
    answer = asked(scene.vpod("a", 15), Change(settings={"slotsPerPod": 5}, autoscale=True))
    assert (answer["pools"][0]["podsRefused"], answer["summary"]["unplacedAfter"]) == (0, 0)


def test_vpods_of_a_pool_that_nobody_has_made_are_counted_and_told():
    scene = three_zones()
    scene.vpod("lost", 3, pool=f"{NS}/nobodys")
    answer: Any = what_if(Snapshot.of(scene.state, pools_asked(scene.state)), Change())
    assert answer["summary"]["unplacedAfter"] == 3
    assert answer["notes"] == [
        f"pool {NS}/nobodys does not exist: 1 vpod asks for it (tenant/lost) and gets nothing"
    ]


def test_a_pod_beyond_the_replicas_is_told():
    scene = three_zones()
    scene.pod(7, {}, node="n0")
    assert asked(scene, Change())["notes"] == [
        f"pool {POOL}: 1 pod is beyond the 3 replicas of StatefulSet dispatcher and counts for "
        f"nothing: dispatcher-7"
    ]


def test_a_pod_that_is_only_thought_of_comes_with_what_is_not_known():
    answer = asked(three_zones().vpod("a", 21), Change(autoscale=True))
    assert (answer["summary"]["podsImagined"], answer["summary"]["podsAfter"]) == (1, 4)
    assert answer["notes"] == [
        "1 pod that has no node today would get one as far as is known: CPU, memory, volumes and "
        "affinity between pods are not known here"
    ]


def test_without_the_autoscaler_it_is_said_that_the_pool_would_grow():
    answer = asked(three_zones().vpod("a", 18, {0: 6, 1: 6, 2: 6}), drained("node", "n1"))
    assert answer["notes"] == [
        f"pool {POOL} would grow from 3 to 4 pods: --autoscale counts them in"
    ]


def test_what_comes_by_itself_is_told_beside_and_not_as_the_changes_doing():
    scene = (
        three_zones().pod(0, {"tenant/a": 2}, node="n0", unschedulable=True).vpod("a", 4, {0: 2})
    )
    summary = asked(scene, Change())["summary"]
    assert (summary["moved"], summary["movedSettled"]) == (0, 2)
    assert (summary["unplacedBefore"], summary["unplacedSettled"]) == (2, 0)


def test_smaller_pods_lose_what_is_too_much():
    scene = three_zones().vpod("a", 15, {0: 5, 1: 5, 2: 5})
    answer = asked(scene, Change(settings={"slotsPerPod": 4}))
    assert answer["vpods"][0]["after"] == {"dispatcher-0": 4, "dispatcher-1": 4, "dispatcher-2": 4}
    assert (answer["summary"]["unplacedAfter"], answer["summary"]["overcommittedAfter"]) == (3, 0)


def test_what_a_pod_would_have_too_much_of_is_told_with_its_figures():
    """Nobody knows the vpod, so nobody takes it off the pod."""
    scene = Scene(replicas=1, capacities=(("cpu", 4),)).pod(0, {"tenant/x": Share(3, 1, HUNGRY)})
    answer = asked(scene, Change())
    assert answer["summary"]["overcommittedAfter"] == 1
    assert answer["notes"] == [f"pool {POOL}: too much would be on dispatcher-0 (9 of 4 cpu)"]


def test_what_is_free_of_dimensions_is_told_as_free_slots_are():
    scene = Scene(replicas=1, slots=10, capacities=(("cpu", 9),)).pod(0, {})
    added = Change(add=(a_vpod("new", 2, per_vreplica=HUNGRY),))
    (row,) = asked(scene, added)["pools"]
    assert (row["freeCapacitiesBefore"], row["freeCapacitiesAfter"]) == ({"cpu": 9}, {"cpu": 3})


def test_another_profile_counts_for_what_is_placed_anew():
    scene = (
        Scene(replicas=2, slots=10)
        .node(a_node("n1", "z1"))
        .pod(0, {})
        .pod(1, {"tenant/b": 10}, node="n1")
    )
    scene.vpod("b", 10, {1: 10}).vpod("a", 2, {0: 2})
    pool = asked(scene, Change(profile="ha", add=(a_vpod("new", 4),)))["pools"][0]
    assert (pool["profileBefore"], pool["profileAfter"], pool["unplacedAfter"]) == (
        "default",
        "ha",
        3,
    )


def test_added_vpods_come_after_all_that_are_there():
    scene = three_zones().vpod("z", 16)
    answer = asked(scene, Change(add=(a_vpod("a", 4),)))
    (row,) = answer["vpods"]
    assert (row["name"], row["new"], row["unplaced"], sum(row["after"].values())) == (
        "tenant/a",
        True,
        2,
        2,
    )


def test_compaction_empties_what_is_not_needed():
    scene = three_zones().vpod("a", 3, {0: 1, 1: 1, 2: 1})
    answer = asked(scene, drained("zone", "z2", compact=True, autoscale=True))
    assert answer["summary"]["podsAfter"] == 1
    assert answer["vpods"] == [] or answer["vpods"][0]["after"] == {"dispatcher-0": 3}


def test_a_floor_that_is_lowered_lets_the_pool_shrink():
    scene = three_zones(min_pods=3).vpod("a", 12, {0: 4, 1: 4, 2: 4})
    answer = asked(scene, Change(settings={"minPods": 2}, autoscale=True, compact=True))
    assert (answer["summary"]["podsAfter"], answer["summary"]["moved"]) == (2, 4)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            drained("pod", "x-0"), "adapter pod x-0 is not known (known: dispatcher-0, ", id="pod"
        ),
        pytest.param(
            drained("node", "x"), "node x is not known (known: n0, n1, n2, node-0)", id="node"
        ),
        pytest.param(drained("zone", "x"), "zone x is not known (known: z0, z1, z2)", id="zone"),
        pytest.param(Change(profile="x"), "'x' is not known (known: default, ", id="profile"),
        pytest.param(Change(add=(a_vpod("a", 1),)), "vpod tenant/a is there already", id="vpod"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_what_is(change, problem):
    with pytest.raises(InvalidObject) as refused:
        asked(three_zones().vpod("a", 1), change)
    assert problem in str(refused.value)


def test_a_pod_may_be_named_with_its_namespace():
    scene = three_zones().vpod("a", 3)
    assert asked(scene, drained("pod", f"{NS}/dispatcher-0"))["summary"]["moved"] == 1


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param(
            {"drains": []}, "drains: is not known (known: pool, drain, fail, set", id="a field"
        ),
        pytest.param({"drain": "pod/x"}, "drain: must be a list", id="no list"),
        pytest.param({"drain": ["pod/"]}, "drain[0]: must be pod/NAME", id="no name"),
        pytest.param(
            {"fail": ["\0" * 999]}, "fail[0]: must be pod/NAME", id="what cannot be shown"
        ),
        pytest.param(
            {"set": {"slotsPerPod": "22"}}, "set.slotsPerPod: must be an integer", id="a text"
        ),
        pytest.param(
            {"set": {"slots": 1}}, "set.slots: is not known (known: slotsPerPod", id="a setting"
        ),
        pytest.param({"autoscale": 1}, "autoscale: must be true or false", id="no flag"),
        pytest.param({"profile": 1}, "profile: must be a text", id="no text"),
        pytest.param({"addVPods": [1]}, "addVPods[0]: must be an object", id="no object"),
        pytest.param(
            {"addVPods": [{"namespace": "T", "name": "a", "vreplicas": 1}]},
            "addVPods[0].namespace: must be a name",
            id="no name of a namespace",
        ),
        pytest.param(
            {"addVPods": [{"namespace": "t", "name": "a"}]},
            "addVPods[0].vreplicas: is required",
            id="no count",
        ),
        pytest.param({"addTenants": ["a"]}, "addTenants[0]: must be an object", id="no tenant"),
        pytest.param(
            {"addTenants": [{"name": "a/b", "slots": 1}]},
            "addTenants[0].name: must be a namespace or a value of a label, not 'a/b'",
            id="no name of a tenant",
        ),
        pytest.param(
            {"addTenants": [{"name": "a", "slots": 0}]},
            "addTenants[0].slots: must be an integer from 1 to",
            id="a tenant that asks for nothing",
        ),
        pytest.param(
            {"addTenants": [{"name": "a", "slots": 1, "limit": 3}]},
            "addTenants[0].limit: is not known (known: name, slots)",
            id="an unknown field of a tenant",
        ),
        pytest.param(
            {"addTenants": [{"name": "a", "slots": 1}] * 2},
            "addTenants[1].name: a is there twice",
            id="a tenant twice",
        ),
        pytest.param(
            {"addTenants": [{"name": f"t{n}", "slots": 1} for n in range(101)]},
            "addTenants: must be a list of at most 100",
            id="too many tenants",
        ),
    ],
)
def test_a_wrong_request_names_the_field(document, problem):
    with pytest.raises(InvalidObject) as refused:
        change_from(document, pool=POOL)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("field", "added"),
    [
        ("addVPods", {"namespace": "t", "name": "a", "vreplicas": 1}),
        ("addTenants", {"name": "t", "slots": 1}),
    ],
)
def test_added_vpods_and_tenants_need_one_pool(field, added):
    with pytest.raises(InvalidObject, match=f"pool: is required with {field}"):
        change_from({field: [added]}, pool="")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param(
            {"addVPods": [{"namespace": "t", "name": n, "vreplicas": 50_001} for n in "ab"]},
            "addVPods: must ask for at most 100000 vreplicas in all, not 100002",
            id="vreplicas",
        ),
        pytest.param(
            {
                "addVPods": [{"namespace": "t", "name": "a", "vreplicas": 50_001}],
                "addTenants": [{"name": "b", "slots": 50_000}],
            },
            "addVPods: must ask for at most 100000 vreplicas in all, not 100001",
            id="vreplicas of vpods and tenants",
        ),
        pytest.param(
            {"addTenants": [{"name": "b", "slots": 100_001}]},
            "addTenants: must ask for at most 100000 vreplicas in all, not 100001",
            id="slots of a tenant",
        ),
        pytest.param(
            {"set": {"slotsPerPod": 100_001}},
            "set.slotsPerPod: must be at most 100000, not 100001",
            id="slots of a pod",
        ),
        pytest.param(
            {"set": {"maxPods": POOL_PODS_MAX + 1}}, "set.maxPods: must be at most", id="pods"
        ),
    ],
)
def test_what_would_take_minutes_is_refused(document, said):
    """Found by review: one request, which no deadline ended, kept all other questions waiting."""
    with pytest.raises(InvalidObject, match=said):
        change_from(document, pool=POOL)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**33) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [*FIELDS, "slotsPerPod", "name", "namespace", "vreplicas", "slots", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*FIELDS, "x"]), JSON, max_size=4))
def test_no_request_raises_anything_but_an_error_of_ours(document):
    said = ""
    try:
        change_from(document, pool=POOL)
    except InvalidObject as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 600


def test_what_a_tenants_limit_leaves_out_has_no_place():
    scene = Scene(tenancy=Tenancy(default_limit=10)).pods(0, 1)
    answer = asked(scene, Change(add=(a_vpod("new", 30, namespace="t"),)))
    [row] = answer["vpods"]
    assert sum(row["after"].values()) == 10
    assert row["unplaced"] == answer["summary"]["unplacedAfter"] == 20
    assert row["reasons"] == ["QuotaExceeded", "the limit of tenant t is 10 slots"]


def test_what_a_vpod_gives_back_goes_to_another_of_its_tenant_whatever_their_names():
    scene = Scene(tenancy=Tenancy(default_limit=10)).pod(0, {"t/z": 8})
    scene.vpod("z", 3, {0: 8}, namespace="t", created_at="2026-01-01T00:00:00Z")
    scene.vpod("a", 8, namespace="t", created_at="2026-01-02T00:00:00Z")
    answer = asked(scene, Change())
    assert answer["vpods"] == []
    assert answer["summary"]["unplacedSettled"] == 1
