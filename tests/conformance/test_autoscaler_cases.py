"""The autoscaler's and the helpers' suites on made-up cases: agreeing, differing by a rule, and
failing.
"""

from typing import Any

import pytest

from tests.conformance.autoscaler_cases import check_new, check_old
from tests.conformance.helpers_cases import check as check_helper
from tests.conformance.result import Case, Difference


def a_case(*statuses: dict[str, int], wanted: int = 2, pods: int = 2, **fields: Any) -> Case:
    """A pass over ``pods`` pods of 10 slots on node n; for every status, a vpod that wants
    ``wanted``.
    """
    return {
        "id": "made up",
        "kind": "autoscale",
        "statefulset": {"namespace": "ns", "name": "s"},
        "capacity": 10,
        "min_replicas": 0,
        "replicas": pods,
        "scale_down": True,
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
        **fields,
    }


def an_old_case(*statuses: dict[str, int], **fields: Any) -> Case:
    node = {
        "name": "n",
        "labels": {"topology.kubernetes.io/zone": "z"},
        "unschedulable": False,
        "taints": [],
    }
    policy = {
        "scheduler_policy_type": "MAXFILLUP",
        "scheduler_policy": None,
        "descheduler_policy": None,
    }
    return a_case(*statuses, **{"nodes": [node], **policy, **fields})


def expecting(case: Case, replicas: int, *evictions: tuple[str, str, int], **more: Any) -> Case:
    listed = [{"vpod": vpod, "podName": pod, "vreplicas": count} for vpod, pod, count in evictions]
    return {**case, "expected": {"replicas": replicas, "evictions": listed, **more}}


def by_policy(
    *priorities: tuple[str, int], predicates: tuple[str, ...] = ("PodFitsResources",)
) -> dict[str, Any]:
    args = '{"MaxSkew": 1}'
    scheduler = {
        "predicates": [{"name": name, "args": None} for name in predicates],
        "priorities": [
            {"name": name, "weight": weight, "args": args} for name, weight in priorities
        ],
    }
    return {"scheduler_policy_type": "", "scheduler_policy": scheduler}


def rule_of(outcome: str | Difference | None) -> str | None:
    return outcome.rule if isinstance(outcome, Difference) else outcome


ZONES = by_policy(("AvailabilityZonePriority", 1))
UNREADY = {
    "name": "n",
    "labels": {},
    "unschedulable": False,
    "taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}],
}

READY = {
    "name": "m",
    "labels": {"topology.kubernetes.io/zone": "z"},
    "unschedulable": False,
    "taints": [],
}
N = {**READY, "name": "n"}
CORDONED = {**N, "unschedulable": True}
SWITCHED_OFF = by_policy(("AvailabilityNodePriority", 0), ("LowestOrdinalPriority", 1))


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        pytest.param(
            expecting(a_case({"s-0": 2}), 1), None, id="one pod is enough, and the other empty"
        ),
        pytest.param(
            expecting(a_case({}, {}, {}, wanted=1, capacity=2, min_replicas=3, pods=3), 3),
            "a pool is sized by what needs a place",
            id="raised targets are not counted",
        ),
        pytest.param(
            expecting(a_case({"s-1": 2}), 1),
            "scale-down empties pods first",
            id="over what is placed",
        ),
        pytest.param(
            expecting(a_case({"s-0": 5, "s-3": 4}, wanted=9, pods=1), 1, ("t/v0", "s-3", 4)),
            None,
            id="what is on an ordinal that is gone",
        ),
        pytest.param(
            {"kind": "constant", "expected": {}}, "a Lease decides who leads", id="constant"
        ),
        pytest.param(
            {
                "kind": "loop",
                "capacity": 10,
                "replicas": 3,
                "refresh_period_seconds": 2,
                "expected": {
                    "replicas": 0,
                    "within_seconds": 4,
                    "stops_within_seconds_of_cancel": 1,
                },
            },
            None,
            id="the loop",
        ),
    ],
)
def test_passes_of_today_agree_or_differ_by_rule(case: Case, rule: str | None) -> None:
    assert rule_of(check_new(case)) == rule


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        pytest.param(expecting(an_old_case({"s-0": 2}), 1), None, id="agrees"),
        pytest.param(
            expecting(an_old_case({"s-0": 2}, wanted=3, **ZONES), 3),
            "a pool is sized by what needs a place",
            id="pods for what is pending",
        ),
        pytest.param(
            {
                **an_old_case({"s-1": 2}) | {"nodes": []},
                "expected": {"state_error": "node not found"},
            },
            "an unknown node stops only its own pod",
            id="unknown node",
        ),
        pytest.param(
            expecting(an_old_case({}, wanted=3, nodes=[UNREADY, READY], **ZONES), 4),
            "a node that is not Ready takes no new work",
            id="not Ready",
        ),
        pytest.param(
            expecting(an_old_case({}, pods=1, **by_policy(predicates=())), 2),
            "no policy at all is MAXFILLUP",
            id="no policy",
        ),
        pytest.param(
            expecting(an_old_case({}, pods=1, wanted=2, nodes=[READY, N], **SWITCHED_OFF), 3),
            "a priority of weight 0 is switched off",
            id="weight 0",
        ),
        pytest.param(
            expecting(an_old_case({}, pods=1, wanted=2, nodes=[CORDONED], **ZONES), 0),
            "a factor of no nodes is 1",
            id="no node takes work",
        ),
        pytest.param(
            expecting(an_old_case({}, **by_policy(("Luck", 1))), 3),
            "what a policy cannot mean is refused",
            id="unknown priority",
        ),
        pytest.param(
            expecting(an_old_case({"s-5": 0}, wanted=0, pods=0), 0, error="pod not found"),
            "a placement on a pod that is gone stops nothing",
            id="pod that is gone",
        ),
    ],
)
def test_passes_up_to_1_16_agree_or_differ_by_rule(case: Case, rule: str | None) -> None:
    assert rule_of(check_old(case)) == rule


def compaction(case: Case, factor: int, *evictions: tuple[str, str, int]) -> Case:
    by_vpod = {vpod: [{"podName": pod, "vreplicas": count}] for vpod, pod, count in evictions}
    return {
        **case,
        "kind": "compact",
        "scale_up_factor": factor,
        "expected": {"evictions": by_vpod},
    }


def test_pods_that_are_not_needed_are_emptied_and_others_are_a_difference() -> None:
    case = an_old_case({"s-0": 8, "s-1": 2}, wanted=10)
    assert check_old(compaction(case, 1, ("t/v0", "s-1", 2))) is None
    assert rule_of(check_old(compaction(case, 2))) == "only pods that are not needed are emptied"
    assert isinstance(check_old(compaction(case, 1)), str), "the same pods, and yet not the same"


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        pytest.param(
            lambda: check_new(expecting(a_case({"s-0": 2}), 9)), "expected 9 pods", id="size"
        ),
        pytest.param(
            lambda: check_old(expecting(an_old_case({"s-0": 2}), 9)),
            "expected 9 pods",
            id="old size",
        ),
        pytest.param(
            lambda: check_new(expecting(a_case({"s-0": 2}, pods=1), 1, ("t/v0", "s-0", 2))),
            "expected evictions",
            id="evictions",
        ),
        pytest.param(
            lambda: check_old(expecting(an_old_case({"s-0": 2}), 1, error="x")),
            "expected the error x",
            id="error",
        ),
        pytest.param(
            lambda: check_old(expecting(an_old_case({}, pods=1, **by_policy(predicates=())), 9)),
            "expected 9 pods",
            id="no policy, and another size",
        ),
        pytest.param(
            lambda: check_old(
                expecting(an_old_case({}, pods=1, wanted=2, nodes=[READY, N], **SWITCHED_OFF), 9)
            ),
            "expected 9 pods",
            id="weight 0, and another size",
        ),
        pytest.param(
            lambda: check_old(
                expecting(an_old_case({}, pods=1, wanted=2, nodes=[CORDONED], **ZONES), 9)
            ),
            "expected 9 pods",
            id="no node takes work, and more pods",
        ),
        pytest.param(lambda: check_new({"kind": "dance"}), "unknown kind", id="kind"),
        pytest.param(
            lambda: check_helper({"function": "dance"}), "unknown function", id="function"
        ),
        pytest.param(
            lambda: check_helper(
                {"function": "total_vreplicas", "placements": None, "expected": 1}
            ),
            "expected 1, found 0",
            id="sum",
        ),
    ],
)
def test_what_is_otherwise_fails(outcome: Any, told: str) -> None:
    found = outcome()
    assert isinstance(found, str)
    assert told in found
