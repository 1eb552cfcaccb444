"""The conformance runner on small made-up folders, and the suites' ways to say no."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import assumecache_cases, schedule_cases, state_cases
from tests.conformance.result import Case, Difference
from tests.conformance.runner import lines, main, run_folder, suites
from tests.conformance.volume_binder_cases import VolumeBinderCases

RULE = Difference("a rule", "its reason")


def by_field(case: Case) -> str | Difference | None:
    """A suite: the case says what to answer."""
    return {"agrees": None, "differs": RULE, "fails": "no match"}[case["answer"]]


def folder(path: Path, **files: object) -> Path:
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def cases(*answers: str) -> list[Case]:
    return [
        {"id": f"{answer} #{number}", "answer": answer} for number, answer in enumerate(answers)
    ]


def printed(path: Path | None) -> list[str]:
    return list(lines(run_folder(path, {"a.json": by_field, "b.json": by_field})))


def test_outcomes_are_counted_per_file_and_differences_by_rule(tmp_path: Path) -> None:
    folder(tmp_path, a=cases("agrees", "differs", "differs"), b=cases("agrees"), c=cases("fails"))
    assert printed(tmp_path) == [
        "a.json: 1 agree, 2 named difference (67%), 0 fail",
        "       2 a rule: its reason",
        "b.json: 1 agree, 0 named difference, 0 fail",
        "c.json: no suite yet, not counted",
        "2 passed, 0 failed, 2 skipped",
    ]


def test_failures_are_told_at_the_end(tmp_path: Path) -> None:
    output = printed(folder(tmp_path, a=cases("agrees", "fails")))
    assert output[-3:] == ["FAIL a.json fails #1", "    no match", "1 passed, 1 failed, 0 skipped"]


def test_only_the_first_failures_are_told_in_full(tmp_path: Path) -> None:
    output = printed(folder(tmp_path, a=cases(*["fails"] * 25)))
    assert sum(line.startswith("FAIL") for line in output) == 20
    assert output[-2:] == ["... and 5 more failures", "0 passed, 25 failed, 0 skipped"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param([{"id": "x", "answer": "unknown"}], id="suite raises"),
        pytest.param([{}], id="case without fields"),
        pytest.param(["text"], id="case is no object"),
        pytest.param({"cases": []}, id="file is no list"),
    ],
)
def test_what_cannot_be_read_is_a_failure(tmp_path: Path, content: object) -> None:
    assert printed(folder(tmp_path, a=content))[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_file_that_is_no_json_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[")
    assert printed(tmp_path)[-1] == "0 passed, 1 failed, 0 skipped"


def test_nothing_to_run_says_why_and_passes(tmp_path: Path) -> None:
    for path, reason in (
        (None, "no folder"),
        (tmp_path, "no case files"),
        (tmp_path / "x", "not a folder"),
    ):
        output = printed(path)
        assert reason in output[0]
        assert output[1:] == ["0 passed, 0 failed, 0 skipped"]
    written: list[str] = []
    assert (
        main([], written.append)
        == main([""], written.append)
        == main([str(tmp_path)], written.append)
        == 0
    )


def test_the_exit_status_is_1_where_a_case_fails(tmp_path: Path) -> None:
    folder(tmp_path, assumecache=[{"id": "x", "suite": "unheard of", "steps": []}])
    written: list[str] = []
    assert main([str(tmp_path)], written.append) == 1
    assert written[-1] == "0 passed, 1 failed, 0 skipped"


def test_every_suite_is_found() -> None:
    assert {
        "assumecache.json",
        "schedule_v_new.json",
        "schedule_v_new_observed.json",
        "state_v_new.json",
    } <= (suites().keys())


# -- assumecache -----------------------------------------------------------------------------------


def item(ref: str, version: int, **fields: object) -> dict[str, Any]:
    return {"ref": ref, "name": "x", "namespace": "ns", "resourceVersion": str(version), **fields}


def script(
    *steps: dict[str, Any], suite: str = "util/assumecache", index: str | None = None
) -> Case:
    return {"id": "made up", "suite": suite, "index": index, "steps": list(steps)}


ADD = {"op": "add", "object": item("o", 5)}
HANDLER = {"op": "add_handler", "handler": "h"}


def get(ref: str, op: str = "get") -> dict[str, Any]:
    return {"op": op, "key": "ns/x", "expect": {"ref": ref}}


def events(*expected: dict[str, Any]) -> dict[str, Any]:
    return {"op": "events", "handler": "h", "ordered": True, "expect": list(expected)}


ASSUME_7 = {"op": "assume", "object": item("n", 7), "expect": {"error": None}}
UPDATE_6 = {"op": "update", "object": item("w", 6)}
PASSIVE = "volumebinding/passive_assume_cache"


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        pytest.param(script(ADD, get("o")), None, id="agrees"),
        pytest.param(script(ADD, get("o"), suite=PASSIVE), None, id="agrees, passive"),
        pytest.param(
            script(
                HANDLER,
                {"op": "delete", "object": item("o", 5)},
                events({"what": "add", "obj": None}),
            ),
            "delete of an unknown key tells nobody",
            id="delete of unknown",
        ),
        pytest.param(
            script(ADD, HANDLER, events(), index="namespace"),
            "an indexed cache has an initial list too",
            id="handler of indexed",
        ),
        pytest.param(
            script(ADD, ASSUME_7, UPDATE_6, get("o", "get_api")),
            "the watch is recorded behind an assumption",
            id="event behind an assumption",
        ),
        pytest.param(
            script(
                {"op": "add", "object": item("o", 5, uid="new")},
                {"op": "delete", "object": item("p", 4, uid="old")},
                {"op": "get", "key": "ns/x", "expect": {"error": "not_found"}},
            ),
            "the late delete of a previous incarnation is ignored",
            id="late delete",
        ),
        pytest.param(
            script(
                {"op": "check_bindings", "bindings": None, "provisioned_pvcs": []},
                suite="volumebinding/binder",
            ),
            "a volume binder has no lists that are nil",
            id="nil bindings",
        ),
    ],
)
def test_assume_cache_scripts_agree_or_differ_by_rule(case: Case, rule: str | None) -> None:
    outcome = assumecache_cases.check(case)
    assert (outcome.rule if isinstance(outcome, Difference) else outcome) == rule


ENVIRONMENT: Case = {
    "id": "environment",
    "kind": "environment",
    "storage_classes": [],
    "bind_timeout_seconds": 10,
    "annotations": {
        "bind_completed": "pv.kubernetes.io/bind-completed",
        "bound_by_controller": "pv.kubernetes.io/bound-by-controller",
        "selected_node": "volume.kubernetes.io/selected-node",
    },
    "steps": [],
}
NO_CLAIM = {
    "op": "find_pod_volumes",
    "pod": {
        "name": "p",
        "namespace": "ns",
        "volumes": [{"name": "v", "persistentVolumeClaim": "c"}],
    },
    "node": {"name": "node1", "labels": {}},
}
MISSING = 'error getting PVC "ns/c": persistentvolumeclaims "ns/c" not found'


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ({**NO_CLAIM, "expect": {"error": True, "error_text": MISSING, "reasons": []}}, None),
        ({**NO_CLAIM, "expect": {"error": True, "error_text": "x", "reasons": []}}, "expected x"),
        ({**NO_CLAIM, "expect": {"error": False, "reasons": []}}, "expected no error"),
        ({"op": "jump"}, "unknown op"),
    ],
    ids=["agrees", "another text", "no error", "unknown op"],
)
def test_a_volume_binder_script_that_differs_fails(step: dict[str, Any], told: str | None) -> None:
    cases = VolumeBinderCases()
    case = script(step, suite="volumebinding/binder")
    assert cases.check(case) == "no case named environment was before this one"
    assert cases.check(ENVIRONMENT) is None
    found = cases.check(case)
    assert found is None if told is None else told in str(found)


@pytest.mark.parametrize(
    ("case", "told"),
    [
        pytest.param(script(ADD, get("other")), "expected {'ref': 'other'}", id="wrong object"),
        pytest.param(script({"op": "jump"}), "unknown op 'jump'", id="unknown op"),
        pytest.param(
            script({"op": "jump"}, suite=PASSIVE), "unknown op 'jump'", id="unknown op, passive"
        ),
        pytest.param(script(suite="util/other"), "unknown suite", id="unknown suite"),
        pytest.param(
            script(
                {**ASSUME_7, "expect": {"error": "any"}},
                ADD,
                {**ASSUME_7, "expect": {"error": "any"}},
            ),
            "expected error any, found None",
            id="no error",
        ),
        pytest.param(
            script(ADD, ASSUME_7, UPDATE_6, {"op": "jump"}),
            "unknown op",
            id="unknown op where a rule holds",
        ),
    ],
)
def test_assume_cache_scripts_fail(case: Case, told: str) -> None:
    outcome = assumecache_cases.check(case)
    assert isinstance(outcome, str)
    assert told in outcome


# -- state and schedule ----------------------------------------------------------------------------


def world(*statuses: dict[str, int], wanted: int = 2, pods: int = 2, **fields: Any) -> Case:
    """A case of ``pods`` pods of 10 slots and, for every status, a vpod v0, v1, ... that wants
    ``wanted``.
    """
    return {
        "id": "made up",
        "statefulset": {"namespace": "ns", "name": "s"},
        "capacity": 10,
        "min_replicas": 0,
        "replicas": pods,
        "pods": [{"name": f"s-{ordinal}", "node": "n"} for ordinal in range(pods)],
        "vpods": [
            {
                "namespace": "t",
                "name": f"v{number}",
                "vreplicas": wanted,
                "placements": [
                    {"podName": pod, "vreplicas": count} for pod, count in status.items()
                ],
            }
            for number, status in enumerate(statuses)
        ],
        "reserved": None,
        **fields,
    }


def expecting(case: Case, *answers: tuple[str, dict[str, int], int]) -> Case:
    """A sequence with Knative's answers: vpod, placements, left."""
    vpods = case["vpods"]
    state = state_cases.derived(state_cases.World.of(case, vpods))
    free = state.pop("freeCapacity")
    steps = [
        {
            "key": f"t/{name}",
            "placements": [{"podName": pod, "vreplicas": count} for pod, count in answer.items()],
            "left": left,
        }
        for name, answer, left in answers
    ]
    return {
        **case,
        "kind": "schedule_sequence",
        "informer_replicas": case.get("informer_replicas", case["replicas"]),
        "schedule": [step["key"] for step in steps],
        "expected": {"state": state, "free_capacity": free, "steps": steps},
    }


DOWN = [{"name": "s-0", "node": ""}, {"name": "s-1", "node": "n"}]
ANNOTATED = [{"name": "s-0", "node": "n", "unschedulable": True}]


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        pytest.param(
            expecting(
                world({}, {}), ("v0", {"s-0": 1, "s-1": 1}, 0), ("v1", {"s-0": 1, "s-1": 1}, 0)
            ),
            None,
            id="agrees",
        ),
        pytest.param(
            expecting(world({"s-1": 2}, reserved={}), ("v0", {"s-0": 1, "s-1": 1}, 0)),
            "the published status counts",
            id="status without reservation",
        ),
        pytest.param(
            expecting(world({}, wanted=0, min_replicas=2), ("v0", {"s-0": 1, "s-1": 1}, 0)),
            "a vpod of 0 vreplicas gets none",
            id="wants nothing",
        ),
        pytest.param(
            expecting(world({"s-0": 2}) | {"pods": DOWN}, ("v0", {"s-1": 2}, 0)),
            "placements outlive a restart of their pod",
            id="pod is pending",
        ),
        pytest.param(
            expecting(world({"s-0": 2}, pods=1) | {"pods": ANNOTATED}, ("v0", {}, 2)),
            "draining waits for room",
            id="pod is annotated",
        ),
        pytest.param(
            expecting(world({}, informer_replicas=1), ("v0", {"s-0": 2}, 0)),
            "one count of replicas",
            id="stale watch",
        ),
        pytest.param(
            expecting(world({"s-1": 0}, wanted=1), ("v0", {"s-1": 1}, 0)),
            "a placement of no vreplicas is no placement",
            id="zero entry",
        ),
    ],
)
def test_schedule_cases_agree_or_differ_by_rule(case: Case, rule: str | None) -> None:
    outcome = schedule_cases.check_sequence(case)
    assert (outcome.rule if isinstance(outcome, Difference) else outcome) == rule


@pytest.mark.parametrize(
    ("case", "offered"),
    [
        pytest.param(
            expecting(world({}, wanted=0, min_replicas=2), ("v0", {"s-0": 1, "s-1": 1}, 0)),
            "profile knative",
            id="a rule that a profile switches off",
        ),
        pytest.param(
            expecting(world({"s-1": 2}, reserved={}), ("v0", {"s-0": 1, "s-1": 1}, 0)),
            "",
            id="a rule that no profile switches off",
        ),
        pytest.param(
            expecting(
                world({"s-1": 2}, {}, reserved={}) | {"min_replicas": 2},
                ("v1", {"s-0": 1, "s-1": 1}, 0),
                ("v0", {"s-0": 1, "s-1": 1}, 0),
            ),
            "",
            id="the one that no profile switches off counts",
        ),
    ],
)
def test_a_difference_says_which_profile_has_the_old_behaviour(case: Case, offered: str) -> None:
    outcome = schedule_cases.check_sequence(case)
    assert isinstance(outcome, Difference)
    assert outcome.offered == offered


@pytest.mark.parametrize(
    ("case", "told"),
    [
        pytest.param(
            expecting(world({}), ("v0", {"s-0": 2}, 0)), "without any rule", id="no rule holds"
        ),
        pytest.param(
            expecting(world({"s-1": 2}, reserved={}), ("v0", {"s-0": 2}, 0)),
            "without the published status counts: expected",
            id="a rule holds but does not explain it",
        ),
        pytest.param({**expecting(world({})), "kind": "dance"}, "unknown kind", id="unknown kind"),
        pytest.param(
            {**expecting(world({})), "schedule": ["t/v0"]}, "not those of the schedule", id="steps"
        ),
    ],
)
def test_schedule_cases_fail(case: Case, told: str) -> None:
    outcome = schedule_cases.check_sequence(case)
    assert isinstance(outcome, str)
    assert told in outcome


def test_a_row_of_the_table_agrees_with_its_reservations() -> None:
    case = world({"s-0": 2})
    case["vpod"], case["other_vpods"] = case.pop("vpods")[0], []
    answer = {"placements": [{"podName": "s-0", "vreplicas": 2}], "error_detail": None}
    assert schedule_cases.check_table({**case, "expected": answer}) is None
    assert isinstance(schedule_cases.check_table({**case, "expected": answer, "kind": "x"}), str)


STATE = {
    "freeCap": [7, 10],
    "schedulablePods": [0, 1],
    "capacity": 10,
    "replicas": 2,
    "statefulSetName": "s",
    "podSpread": {"t/v0": {"s-0": 3}},
    "pending": {"t/v0": 0},
    "expectedVReplicas": {"t/v0": 2},
    "freeCapacity": 17,
}


@pytest.mark.parametrize(
    ("case", "changed", "rule"),
    [
        pytest.param(world({"s-0": 3}), {}, None, id="agrees"),
        pytest.param(
            world({"s-0": 3, "s-1": 0}),
            {"podSpread": {"t/v0": {"s-0": 3, "s-1": 0}}, "freeCap": [7, 10]},
            None,
            id="zero entry",
        ),
        pytest.param(
            world({"s-0": 3}, nodes=[{"name": "n", "unschedulable": True, "taints": []}]),
            {},
            "a bad node takes no new work",
            id="cordoned",
        ),
    ],
)
def test_state_cases_agree_or_differ_by_rule(
    case: Case, changed: dict[str, object], rule: str | None
) -> None:
    expected = {**STATE, **changed}
    outcome = state_cases.check({**case, "expected": expected})
    assert (outcome.rule if isinstance(outcome, Difference) else outcome) == rule


BAD_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
OLD_STATE = {
    **STATE,
    "lastOrdinal": 1,
    "numNodes": 1,
    "numZones": 1,
    "nodeToZoneMap": {"n": "z"},
    "schedulerPolicy": "MAXFILLUP",
    "nodeSpread": {"t/v0": {"n": 3}},
    "zoneSpread": {"t/v0": {"z": 3}},
    "reserved_after": {},
}


def old_world(**fields: Any) -> Case:
    """The world of OLD_STATE: vpod v0 has 3 vreplicas on s-0, both pods stand on node n in
    zone z.
    """
    node = {
        "name": "n",
        "labels": {"topology.kubernetes.io/zone": "z"},
        "unschedulable": False,
        "taints": [],
    }
    return {**world({"s-0": 3}), "nodes": [node], "scheduler_policy_type": "MAXFILLUP", **fields}


@pytest.mark.parametrize(
    ("fields", "changed", "rule"),
    [
        pytest.param({}, {}, None, id="agrees"),
        pytest.param({"reserved": {"t/v0": {"s-0": 3}}}, {}, None, id="committed by now"),
        pytest.param(
            {"reserved": {"t/v0": {"s-1": 2}, "t/gone": {"s-0": 1}}},
            {
                "freeCap": [6, 8],
                "freeCapacity": 14,
                "podSpread": {"t/v0": {"s-0": 3, "s-1": 2}},
                "nodeSpread": {"t/v0": {"n": 5}},
                "zoneSpread": {"t/v0": {"z": 5}},
                "reserved_after": {"t/v0": {"s-1": 2}, "t/gone": {"s-0": 1}},
            },
            None,
            id="reserved, also for a vpod that does not exist",
        ),
        pytest.param(
            {"reserved": {"t/v0": {"s-0": 1}}},
            {
                "freeCap": [9, 10],
                "freeCapacity": 19,
                "podSpread": {"t/v0": {"s-0": 1}},
                "nodeSpread": {"t/v0": {"n": 1}},
                "zoneSpread": {"t/v0": {"z": 1}},
                "reserved_after": {"t/v0": {"s-0": 1}},
            },
            "room is promised once a shrink is written",
            id="shrinks",
        ),
        pytest.param(
            {"reserved": {"t/v0": {}}},
            {"reserved_after": {"t/v0": {}}},
            "a reservation of no vreplicas ends once nothing is published",
            id="reserves nothing",
        ),
        pytest.param(
            {"nodes": [{"name": "n", "labels": {}, "unschedulable": False, "taints": [BAD_TAINT]}]},
            {"nodeToZoneMap": {"n": "unknown"}, "zoneSpread": {"t/v0": {"unknown": 3}}},
            "a node that is not Ready takes no new work",
            id="not-ready taint",
        ),
    ],
)
def test_old_state_cases_agree_or_differ_by_rule(
    fields: dict[str, Any], changed: dict[str, object], rule: str | None
) -> None:
    outcome = state_cases.check_old({**old_world(**fields), "expected": {**OLD_STATE, **changed}})
    assert (outcome.rule if isinstance(outcome, Difference) else outcome) == rule


def test_an_old_state_that_cannot_be_built_is_a_difference_only_where_a_node_is_unknown() -> None:
    error = {"state_error": 'node "n" not found'}
    outcome = state_cases.check_old({**old_world(nodes=[]), "expected": error})
    assert isinstance(outcome, Difference)
    assert outcome.rule == "an unknown node stops only its own pod"
    assert isinstance(state_cases.check_old({**old_world(), "expected": error}), str)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        pytest.param({"freeCapacity": 16}, "freeCapacity: expected 16, found 17", id="other value"),
        pytest.param({"novelty": 1}, "novelty: expected 1", id="unknown field"),
    ],
)
def test_state_cases_fail(changed: dict[str, object], told: str) -> None:
    outcome = state_cases.check({**world({"s-0": 3}), "expected": {**STATE, **changed}})
    assert isinstance(outcome, str)
    assert told in outcome


# -- extenders in turn -----------------------------------------------------------------------------


def an_integration(node: str, **fields: object) -> Case:
    """Upstream's TestSchedulerExtender: three extenders, of which the second binds and the third
    has a node cache.
    """
    first, second = "machine1_2_3Predicate", "machine2_3_5Predicate"
    extenders = [
        {
            "name": "extender1",
            "predicates": [first],
            "prioritizers": [_prefer("machine2", 1)],
            "weight": 3,
        },
        {
            "name": "extender2",
            "predicates": [second],
            "prioritizers": [_prefer("machine3", 1)],
            "weight": 4,
            "binder": True,
            "managed_resources": ["test.com/slots"],
        },
        {
            "name": "extender3",
            "predicates": [["machine1", "machine2", "machine3"]],
            "prioritizers": [_prefer("machine2", 5)],
            "weight": 10,
            "nodeCacheCapable": True,
        },
    ]
    return {
        "id": "made up",
        "kind": "integration",
        "nodes": [f"machine{number}" for number in range(1, 6)],
        "pod": {"name": "p", "limits": {"test.com/slots": "1"}},
        "extenders": extenders,
        "expected": {"node": node, "bound_by_extender_index": 1},
        **fields,
    }


def _prefer(node: str, weight: int) -> dict[str, object]:
    return {"function": f"{node}Prioritizer", "weight": weight}


def test_several_extenders_in_turn_place_a_pod_together():
    check = suites()["extender.json"]
    assert check(an_integration("machine2")) is None
    assert "machine2" in str(check(an_integration("machine3")))


def test_a_pod_that_asks_for_no_managed_resource_is_bound_by_no_extender():
    check = suites()["extender.json"]
    expected = {"node": "machine2", "bound_by_extender_index": None}
    assert check(an_integration("", pod={"name": "p"}, expected=expected)) is None


def test_extenders_that_leave_no_node_place_nothing():
    check = suites()["extender.json"]
    case = an_integration("", nodes=["machine4"], expected={"error": True})
    assert check(case) is None


@pytest.mark.parametrize("cached", [True, False], ids=["names", "whole pods"])
def test_a_preempt_request_has_the_pods_as_they_are_with_neither_namespace_nor_node_added(
    cached: bool,
):
    def bare(name: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {"containers": None},
            "status": {},
        }

    pod = bare("p")
    pod["metadata"]["namespace"] = "ns"
    whole = {"n1": {"Pods": [bare("a")], "NumPDBViolations": 0}}
    meta = {"n1": {"Pods": [{"UID": "uid-a"}], "NumPDBViolations": 0}}
    sent = {
        "Pod": pod,
        "NodeNameToVictims": None if cached else whole,
        "NodeNameToMetaVictims": meta if cached else None,
    }
    case = {
        "id": "made up",
        "kind": "http",
        "call": "preempt",
        "config": {
            "urlSuffix": "/sched",
            "filterVerb": "",
            "prioritizeVerb": "",
            "bindVerb": "",
            "preemptVerb": "preempt",
            "weight": 1,
            "nodeCacheCapable": cached,
            "ignorable": False,
            "timeoutMs": 0,
        },
        "nodes": ["n1"],
        "node_pods": {"n1": ["a", "b"]},
        "candidate_victims": {"n1": ["a"]},
        "response": {
            "status": 200,
            "body": '{"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "c"}]}}}',
        },
        "request": {
            "method": "POST",
            "path": "/sched/preempt",
            "contentType": "application/json",
            "body": sent,
        },
        "request_count": 1,
        "expected": {
            "preempt": {
                "error": "extender: http://EXT/sched claims to preempt pod (UID: &{c}) on node: "
                "n1, "
                "but the pod is not found on that node",
                "supportsPreemption": True,
                "victims": {},
            }
        },
    }
    assert suites()["extender.json"](case) is None


def test_what_is_put_into_a_store_past_its_watch_is_listed_and_told_to_nobody():
    put = {"op": "store_add", "object": item("o", 5)}
    late = {"op": "assume", "object": item("n", 5), "expect": {"error": None}}
    assert (
        suites()["assumecache.json"](script(put, get("o"), late, get("n"), suite=PASSIVE)) is None
    )
