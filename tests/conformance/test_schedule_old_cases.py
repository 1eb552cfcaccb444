"""The suite of Knative's scheduling up to 1.16 on small made-up cases: what agrees, what is
excused, what fails.
"""

from typing import Any

import pytest

from extender.engine.placing.plan import Decision
from extender.engine.state.collector import reserved_of
from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod
from tests.conformance import schedule_old_cases
from tests.conformance.result import Case, Difference
from tests.support.placing import place

POLICY: dict[str, Any] = {
    "predicates": [{"name": "PodFitsResources", "args": None}],
    "priorities": [{"name": "LowestOrdinalPriority", "weight": 1, "args": None}],
}
DESCHEDULER = {
    "predicates": [],
    "priorities": [{"name": "RemoveWithHighestOrdinalPriority", "weight": 1, "args": None}],
}
NODES = [{"name": "n", "labels": {}, "unschedulable": False, "taints": []}]
Answer = tuple[dict[int, int], int]


def a_case(status: dict[int, int], wanted: int, **fields: Any) -> Case:
    """Two pods of 5 slots and the vpod t/v; MAXFILLUP unless told otherwise."""
    return {
        "id": "made up",
        "kind": "schedule_sequence",
        "statefulset": {"namespace": "ns", "name": "s"},
        "capacity": 5,
        "replicas": 2,
        "pods": [{"name": f"s-{ordinal}", "node": "n"} for ordinal in range(2)],
        "nodes": NODES,
        "vpods": [
            {"namespace": "t", "name": "v", "vreplicas": wanted, "placements": entries(status)}
        ],
        "reserved": None,
        "scheduler_policy_type": "MAXFILLUP",
        "scheduler_policy": None,
        "descheduler_policy": None,
        **fields,
    }


def entries(placements: dict[int, int]) -> list[dict[str, Any]]:
    return [
        {"podName": f"s-{ordinal}", "vreplicas": count} for ordinal, count in placements.items()
    ]


def with_policies(
    scheduler: dict[str, Any] | None, descheduler: dict[str, Any] | None = None
) -> Case:
    return {
        "scheduler_policy_type": "",
        "scheduler_policy": scheduler,
        "descheduler_policy": descheduler,
    }


def outcome_of(
    case: Case, *answers: Answer, state: dict[str, Any] | None = None
) -> str | Difference | None:
    steps = [
        {"key": "t/v", "placements": entries(placements), "left": left, "reserved_after": {}}
        for placements, left in answers
    ]
    expected = {"state": state or {"freeCap": [], "capacity": 5}, "steps": steps}
    return schedule_old_cases.check_sequence(
        {**case, "schedule": ["t/v"] * len(steps), "expected": expected}
    )


def predicates(*items: tuple[str, str | None]) -> dict[str, Any]:
    return {**POLICY, "predicates": [{"name": name, "args": args} for name, args in items]}


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        pytest.param(a_case({}, 7), ({0: 5, 1: 2}, 0), id="MAXFILLUP"),
        pytest.param(
            a_case({1: 3}, 4, **with_policies(POLICY)), ({0: 4}, 0), id="policies place afresh"
        ),
        pytest.param(
            a_case({1: 3}, 11, **with_policies(POLICY)),
            ({1: 3}, 1),
            id="a failed attempt changes nothing",
        ),
        pytest.param(
            a_case({0: 3, 1: 3}, 4, **with_policies(POLICY, DESCHEDULER)),
            ({0: 3, 1: 1}, 0),
            id="descheduler",
        ),
    ],
)
def test_the_old_behaviour_is_offered(case: Case, answer: Answer) -> None:
    assert outcome_of(case, answer) is None


PENDING = {"pods": [{"name": "s-0", "node": ""}, {"name": "s-1", "node": "n"}]}
NOT_READY = [
    {**NODES[0], "taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}
]
EVEN_REMOVAL = [{"name": "RemoveWithEvenPodSpreadPriority", "weight": 1, "args": '{"MaxSkew": 1}'}]
OTHERS = [
    {"namespace": "t", "name": "v", "vreplicas": 5, "placements": []},
    {"namespace": "t", "name": "w", "vreplicas": 3, "placements": entries({0: 3})},
]
OTHERS_OF_6 = [{**OTHERS[0], "vreplicas": 6}, OTHERS[1]]
RESERVED = [
    {"namespace": "t", "name": "v", "vreplicas": 2, "placements": entries({0: 2})},
    {"namespace": "t", "name": "w", "vreplicas": 5, "placements": []},
]
TRIMMED = {
    "vpods": [
        {"namespace": "t", "name": "v", "vreplicas": 2, "placements": entries({0: 1})},
        {"namespace": "t", "name": "w", "vreplicas": 5, "placements": entries({0: 5})},
    ]
}
EVEN = {
    **POLICY,
    "priorities": [
        *POLICY["priorities"],
        {"name": "EvenPodSpread", "weight": 5, "args": '{"MaxSkew": 1}'},
    ],
}


@pytest.mark.parametrize(
    ("case", "answer", "rule"),
    [
        pytest.param(
            a_case({}, 3, **PENDING), ({0: 3}, 0), "only schedulable pods are filled", id="pending"
        ),
        pytest.param(
            a_case({1: 1, 0: 1}, 6),
            ({0: 1, 1: 5}, 0),
            "a vpod's pods are in the order of their ordinals",
            id="status in another order",
        ),
        pytest.param(
            a_case({}, 3, nodes=NOT_READY, **with_policies(POLICY)),
            ({0: 3}, 0),
            "a node that is not Ready takes no new work",
            id="not ready",
        ),
        pytest.param(
            a_case({}, 3, **with_policies(None)),
            ({}, 0),
            "missing vreplicas are placed without policies too",
            id="no policy",
        ),
        pytest.param(
            a_case({}, 7, **with_policies(predicates())),
            ({0: 7}, 0),
            "capacity always counts",
            id="no predicate for the room",
        ),
        pytest.param(
            a_case(
                {0: 3, 1: 3},
                5,
                **with_policies(
                    POLICY,
                    {"priorities": [*EVEN_REMOVAL, {**DESCHEDULER["priorities"][0], "weight": 9}]},
                ),
            ),
            ({0: 2, 1: 3}, 0),
            "weighted sums never wrap",
            id="wrap",
        ),
        pytest.param(
            a_case({0: 3, 1: 1}, 2, **with_policies(POLICY, DESCHEDULER)),
            ({0: 3}, 0),
            "an empty pod gives nothing away",
            id="emptied pod",
        ),
        pytest.param(
            a_case(
                {0: 5},
                2,
                **with_policies(
                    POLICY,
                    {**DESCHEDULER, "predicates": [{"name": "PodFitsResources", "args": None}]},
                ),
            ),
            ({0: 5}, 0),
            "too many are always taken away",
            id="descheduler with a predicate",
        ),
        pytest.param(
            a_case({1: 1}, 5, reserved={"t/v": {"s-0": 3}}, **with_policies(POLICY)),
            ({0: 2, 1: 3}, 0),
            "a failed attempt leaves nothing behind",
            id="own reservation",
        ),
        pytest.param(
            a_case({}, 5, vpods=OTHERS, reserved={"t/w": {"s-0": 1}}),
            ({0: 4, 1: 1}, 0),
            "room is promised once a shrink is written",
            id="another shrinks",
        ),
        pytest.param(
            a_case(
                {},
                6,
                vpods=OTHERS_OF_6,
                reserved={"t/w": {"s-0": 3, "s-1": 2}},
                **with_policies(POLICY),
            ),
            ({0: 2, 1: 4}, 0),
            "a reservation lasts until it is written",
            id="another reserves",
        ),
        pytest.param(
            a_case({}, 2, vpods=RESERVED, reserved={"t/w": {"s-0": 5}}),
            ({1: 2}, 0),
            "what is only reserved pushes nobody out",
            id="another reserves too much",
        ),
        pytest.param(
            a_case({}, 3, **with_policies({**POLICY, "priorities": []})),
            ({0: 1, 1: 2}, 0),
            "ties go to the lowest ordinal",
            id="ties: only totals",
        ),
        pytest.param(
            a_case({}, 3, **with_policies(predicates(("EvenPodSpread", "nope")))),
            ({}, 3),
            "what a policy cannot mean is refused",
            id="arguments",
        ),
    ],
)
def test_a_difference_on_purpose_is_named(case: Case, answer: Answer, rule: str) -> None:
    outcome = outcome_of(case, answer)
    assert isinstance(outcome, Difference), outcome
    assert (outcome.rule, outcome.offered) == (rule, "")


def test_an_unknown_name_is_refused_and_left_out_where_that_is_asked_for() -> None:
    policy = predicates(("PodFitsResources", None), ("Nope", None))
    outcome = outcome_of(a_case({}, 3, **with_policies(policy)), ({0: 3}, 0))
    assert isinstance(outcome, Difference)
    assert (outcome.rule, outcome.offered) == (
        "what a policy cannot mean is refused",
        "ignoreUnknown",
    )


def test_a_state_that_knative_cannot_build_is_named_where_a_node_is_unknown() -> None:
    case = {**a_case({}, 1), "expected": {"state_error": 'node "gone" not found'}}
    assert isinstance(schedule_old_cases.check_sequence(case), str)
    outcome = schedule_old_cases.check_sequence({**case, "nodes": []})
    assert isinstance(outcome, Difference)
    assert outcome.rule == "an unknown node stops only its own pod"


@pytest.mark.parametrize(
    ("case", "answer", "told"),
    [
        pytest.param(a_case({}, 7), ({0: 4, 1: 3}, 0), "no rule holds", id="another placement"),
        pytest.param(a_case({}, 7), ({0: 5, 1: 2}, 1), "left 1; found", id="another number left"),
        pytest.param(
            a_case({}, 3, **with_policies({**POLICY, "priorities": []})),
            ({0: 1, 1: 1}, 0),
            "no rule holds",
            id="ties and other totals",
        ),
    ],
)
def test_what_is_not_excused_fails(case: Case, answer: Answer, told: str) -> None:
    outcome = outcome_of(case, answer)
    assert isinstance(outcome, str)
    assert told in outcome


def test_a_case_of_unknown_shape_fails() -> None:
    assert isinstance(schedule_old_cases.check_sequence({"kind": "dance"}), str)
    assert isinstance(schedule_old_cases.check_table({"kind": "dance"}), str)
    steps = {**a_case({}, 1), "schedule": ["t/v"], "expected": {"state": {}, "steps": []}}
    assert "not those of the schedule" in str(schedule_old_cases.check_sequence(steps))


def test_another_state_fails() -> None:
    outcome = outcome_of(a_case({0: 2}, 2), ({0: 2}, 0), state={"freeCap": [4], "capacity": 5})
    assert isinstance(outcome, str)
    assert "freeCap: expected [4], found [3, 5]" in outcome


@pytest.mark.parametrize(
    ("status", "then", "reserved", "agrees"),
    [
        pytest.param(
            {0: 8, 1: 7}, {0: 1}, {"s-0": 1, "s-1": 7}, True, id="another pod keeps its own"
        ),
        pytest.param({0: 8, 1: 7}, {}, {}, True, id="nothing ends all"),
        pytest.param({0: 8}, {0: 1}, {"s-0": 8}, False, id="another count"),
    ],
)
def test_reservations_are_compared(
    status: dict[int, int], then: dict[int, int], reserved: dict[str, int], agrees: bool
) -> None:
    case = {
        "kind": "reserve_placements",
        "vpod": {"namespace": "t", "name": "v", "vreplicas": 15, "placements": entries(status)},
        "placements": entries(then) or None,
        "expected": {"reserved": reserved},
    }
    assert (schedule_old_cases.check_table(case) is None) == agrees


@pytest.mark.parametrize(
    ("case", "answer", "told"),
    [
        pytest.param(
            a_case({}, 7, **PENDING),
            ({0: 4, 1: 3}, 0),
            "by only schedulable pods are filled",
            id="a pending pod, and not filled up",
        ),
        pytest.param(
            a_case({}, 3, nodes=NOT_READY, **with_policies(POLICY)),
            ({1: 3}, 0),
            "by a node that is not Ready",
            id="a node that is not ready, and not the lowest ordinal",
        ),
        pytest.param(
            a_case({}, 5, vpods=OTHERS, reserved={"t/w": {"s-0": 1}}),
            ({0: 3, 1: 2}, 0),
            "by room is promised once a shrink is written",
            id="another shrinks, and not by so much",
        ),
        pytest.param(
            a_case({0: 3, 1: 1}, 2, **with_policies(POLICY, DESCHEDULER)),
            ({0: 2, 1: 1}, 0),
            "by an empty pod gives nothing away",
            id="a pod to be emptied, and not the highest ordinal",
        ),
        pytest.param(
            a_case({}, 2, reserved={"t/gone": {}}, **with_policies(POLICY)),
            ({1: 2}, 0),
            "no rule holds",
            id="an empty reservation",
        ),
        pytest.param(
            a_case({0: 0}, 2, **with_policies(POLICY)),
            ({1: 2}, 0),
            "no rule holds",
            id="an entry of nothing that no policy counts",
        ),
        pytest.param(
            a_case({0: 1}, 1, nodes=NODES, reserved={"t/w": {"s-1": 3}}, **with_policies(POLICY)),
            ({1: 1}, 0),
            "no rule holds",
            id="nothing to decide",
        ),
    ],
)
def test_a_rule_excuses_only_what_it_is_about(case: Case, answer: Answer, told: str) -> None:
    outcome = outcome_of(case, answer)
    assert isinstance(outcome, str), outcome
    assert told in outcome


def test_what_no_view_has_is_excused_where_it_plays_no_part_in_ours() -> None:
    case = a_case({}, 2, **TRIMMED, **with_policies(EVEN))
    outcome = outcome_of(case, ({0: 1}, 2))
    assert isinstance(outcome, Difference), outcome
    assert outcome.rule == "what is trimmed away no longer counts"


def test_what_no_view_has_is_not_excused_where_it_plays_a_part_in_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def counting_what_is_reserved(pool: PoolState, vpod: VPod) -> Decision:
        decision = place(pool, vpod)
        fewer = {
            name: count - len(reserved_of(pool, vpod.key))
            for name, count in decision.target.items()
        }
        return decision._replace(target=fewer)

    case = a_case({1: 1}, 5, reserved={"t/v": {"s-0": 3}}, **with_policies(POLICY))
    assert isinstance(outcome_of(case, ({0: 3, 1: 2}, 0)), Difference)
    monkeypatch.setattr(schedule_old_cases, "place", counting_what_is_reserved)
    assert isinstance(outcome_of(case, ({0: 3, 1: 2}, 0)), str)


@pytest.mark.parametrize(
    ("target", "left", "told"),
    [
        pytest.param({1: 5}, 1, "6 are placed or left of 7", id="lost"),
        pytest.param({0: 1, 1: 5}, 1, "s-0 takes no work", id="on a pod that takes no work"),
        pytest.param({1: 6}, 1, "s-1 has room for 5, not 6", id="overcommitted"),
        pytest.param(
            {1: 4}, 3, "3 are left and 1 slots are free", id="left although there is room"
        ),
        pytest.param({}, 7, "s-1 loses 1 of 1", id="moved for nothing"),
    ],
)
def test_an_unsound_answer_is_never_excused(
    monkeypatch: pytest.MonkeyPatch, target: dict[int, int], left: int, told: str
) -> None:
    def unsound(pool: PoolState, vpod: VPod) -> Decision:
        decision = place(pool, vpod)
        if not pool.pods["s-0"].schedulable:  # elsewhere it is as Knative takes it
            decision = decision._replace(
                target={f"s-{o}": n for o, n in target.items()}, pending=left
            )
        return decision

    monkeypatch.setattr(schedule_old_cases, "place", unsound)
    outcome = outcome_of(a_case({1: 1}, 7, **PENDING), ({0: 2, 1: 5}, 0))
    assert isinstance(outcome, str), outcome
    assert told in outcome
