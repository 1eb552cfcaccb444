"""The predicates and priorities of a legacy Policy file, read as kube-scheduler 1.22 reads them."""

from typing import Any

import pytest

from extender.config.kube_scheduler import Policy
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


def test_what_the_embedded_scheduler_lacks_is_no_error_of_the_file():
    policy, errors = read(
        predicates=[
            {"name": "Zone", "argument": {"serviceAffinity": {"labels": ["zone"]}}},
            {"name": "CheckServiceAffinity"},
        ],
        priorities=[
            {"name": "X", "weight": 1, "argument": {"serviceAntiAffinity": {"label": "zone"}}}
        ],
    )
    assert errors == []
    assert policy.not_simulated == (
        "serviceAffinity",
        "CheckServiceAffinity",
        "serviceAntiAffinity",
    )
