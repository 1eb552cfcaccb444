"""The predicates and priorities of a legacy Policy file, read as kube-scheduler 1.22 reads them."""

from typing import Any

import pytest

from extender.config.kube_scheduler import CapacityRatio, Policy
from extender.config.kube_scheduler_file import read_policy
from extender.config.policy import (
    DEFAULT_PREDICATES,
    DEFAULT_PRIORITIES,
    MANDATORY_PREDICATES,
    WEIGHT_MAX,
)


def read(**fields: Any) -> tuple[Policy, list[str]]:
    config, errors = read_policy({"kind": "Policy", "apiVersion": "v1", **fields})
    assert config.policy is not None
    return config.policy, [f"{error.field}: {error.detail}" for error in errors]


def test_without_lists_the_default_sets_run():
    policy, errors = read()
    assert (policy.predicates, policy.priorities) == (DEFAULT_PREDICATES, DEFAULT_PRIORITIES)
    assert errors == []


def test_empty_lists_are_no_predicates_but_the_mandatory_ones_and_no_priorities():
    policy, errors = read(predicates=[], priorities=[])
    assert (policy.predicates, policy.priorities) == (MANDATORY_PREDICATES, {})
    assert errors == []


def test_former_names_are_understood_and_equal_priority_is_none():
    policy, errors = read(
        predicates=[{"name": "PodFitsPorts"}],
        priorities=[
            {"name": "ServiceSpreadingPriority", "weight": 3},
            {"name": "EqualPriority", "weight": 1},
        ],
    )
    assert policy.predicates == MANDATORY_PREDICATES | {"PodFitsHostPorts"}
    assert (policy.priorities, errors) == ({"SelectorSpreadPriority": 3}, [])


def test_labels_of_all_entries_are_one_plugin():
    def present(*labels: str, there: bool) -> dict[str, Any]:
        return {"labelsPresence": {"labels": list(labels), "presence": there}}

    def preferred(label: str, *, there: bool) -> dict[str, Any]:
        return {"labelPreference": {"label": label, "presence": there}}

    policy, errors = read(
        predicates=[
            {"name": "A", "argument": present("a", "b", there=True)},
            {"name": "B", "argument": present("c", there=False)},
        ],
        priorities=[
            {"name": "C", "weight": 2, "argument": preferred("d", there=True)},
            {"name": "D", "weight": 2, "argument": preferred("e", there=False)},
        ],
    )
    assert (policy.present_labels, policy.absent_labels) == (("a", "b"), ("c",))
    assert policy.preferred_labels == (("d", True), ("e", False))
    assert "CheckNodeLabelPresence" in policy.predicates
    assert (policy.priorities, errors) == ({"NodeLabel": 2}, [])


LABEL_PREFERENCE = {"labelPreference": {"label": "a", "presence": True}}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        pytest.param(
            {"predicates": [{"name": "Nothing"}]},
            'predicates[0].name: predicate type not found for "Nothing"',
            id="an unknown predicate",
        ),
        pytest.param(
            {"priorities": [{"name": "Nothing", "weight": 1}]},
            'priorities[0].name: priority type not found for "Nothing"',
            id="an unknown priority",
        ),
        pytest.param(
            {"priorities": [{"name": "LeastRequestedPriority", "weight": 0}]},
            "priorities[0].weight: priority LeastRequestedPriority should have a positive weight "
            "applied to it or it has overflown",
            id="no weight",
        ),
        pytest.param(
            {"priorities": [{"name": "LeastRequestedPriority", "weight": WEIGHT_MAX}]},
            "priorities[0].weight: priority LeastRequestedPriority should have a positive weight "
            "applied to it or it has overflown",
            id="too much weight",
        ),
        pytest.param(
            {"predicates": [{"name": "A", "argument": {}}]},
            "predicates[0].argument: exactly 1 predicate argument is required, numArgs: 0",
            id="an empty argument",
        ),
        pytest.param(
            {"predicates": [{"name": "A", "argument": "b"}]},
            "predicates[0].argument: exactly 1 predicate argument is required, numArgs: 0",
            id="an argument that is no object",
        ),
        pytest.param(
            {
                "priorities": [
                    {"name": "A", "weight": 1, "argument": LABEL_PREFERENCE},
                    {"name": "B", "weight": 2, "argument": LABEL_PREFERENCE},
                ]
            },
            'priorities[1].weight: LabelPreference  priority "B" has a different weight with "A"',
            id="preferences of different weights",
        ),
        pytest.param(
            {
                "predicates": [
                    {"name": name, "argument": {"labelsPresence": asked}}
                    for name, asked in (
                        ("A", {"labels": ["a", "b"], "presence": True}),
                        ("B", {"labels": ["b"], "presence": False}),
                    )
                ]
            },
            'predicates: detecting at least one label (e.g., "b") that exist in both the '
            "present(['a', 'b']) and absent(['b']) label list",
            id="a label that must be there and must not",
        ),
        pytest.param(
            {"hardPodAffinitySymmetricWeight": 101},
            "hardPodAffinitySymmetricWeight: not in valid range [0-100]",
            id="the symmetric weight",
        ),
    ],
)
def test_what_kube_scheduler_refuses_is_named(fields: dict[str, Any], error: str):
    _, errors = read(**fields)
    assert errors == [error]


RATIO = {"shape": [{"utilization": 0, "score": 10}], "resources": [{"name": "cpu", "weight": 1}]}


def ratio(name: str = "A", **fields: Any) -> dict[str, Any]:
    argument = {"requestedToCapacityRatioArguments": {**RATIO, **fields}}
    return {"name": name, "weight": 1, "argument": argument}


def test_arguments_of_services_and_of_the_capacity_ratio_are_gathered():
    anti = {"serviceAntiAffinity": {"label": "host"}}
    policy, errors = read(
        predicates=[{"name": "Zone", "argument": {"serviceAffinity": {"labels": ["zone"]}}}],
        priorities=[ratio(), {"name": "X", "weight": 3, "argument": anti}],
    )
    assert errors == []
    assert (policy.affinity_labels, policy.anti_affinity_labels) == (("zone",), ("host",))
    assert policy.capacity_ratio == CapacityRatio(((0, 10),), {"cpu": 1})
    assert "CheckServiceAffinity" in policy.predicates
    assert policy.priorities == {"RequestedToCapacityRatio": 1, "ServiceAffinity": 3}


AT = "priorities[0].argument.requestedToCapacityRatioArguments"


@pytest.mark.parametrize(
    ("priorities", "error"),
    [
        pytest.param(
            [ratio(), ratio("B")],
            'priorities[1].argument.requestedToCapacityRatioArguments: priority "B" redeclares '
            'custom priority "RequestedToCapacityRatio", from: "A"',
            id="twice",
        ),
        pytest.param(
            [ratio(shape=[])],
            f"{AT}.shape: at least one point must be specified",
            id="no shape",
        ),
        pytest.param(
            [ratio(shape=[{"utilization": 9, "score": 1}, {"utilization": 9, "score": 2}])],
            f"{AT}.shape: utilization values must be sorted in increasing order",
            id="a shape out of order",
        ),
        pytest.param(
            [ratio(shape=[{"utilization": 101, "score": 1}])],
            f"{AT}.shape[0].utilization: not in valid range [0, 100]",
            id="too much utilization",
        ),
        pytest.param(
            [ratio(shape=[{"utilization": 1, "score": "11"}])],
            f"{AT}.shape[0].score: not in valid range [0, 10]",
            id="a score that is no number",
        ),
        pytest.param(
            [ratio(resources=[{"name": "cpu"}])],
            f"{AT}.resources[0].weight: resource weight of cpu not in valid range [1, inf)",
            id="no weight",
        ),
        pytest.param(
            [ratio("RequestedToCapacityRatio")],
            'priorities[0].name: priority "RequestedToCapacityRatio" has the name of a plugin: its '
            "argument is ignored. Give it another name",
            id="a plugin's name",
        ),
    ],
)
def test_what_is_wrong_with_a_capacity_ratio_is_named(priorities: list[Any], error: str):
    _, errors = read(priorities=priorities)
    assert errors == [error]
