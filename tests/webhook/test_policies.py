"""The shipped admission policies say the same as ``/validate`` and the other manifests; that they
work is for end-to-end tests.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from extender.model import names
from webhook.validate import DEFAULT_WRITERS, GUARDED_ANNOTATIONS

FILE: Final = Path(__file__).parents[2] / "manifests" / "base" / "admission-policies.yaml"
DOCUMENTS: Final[list[Any]] = [doc for doc in yaml.safe_load_all(FILE.read_text()) if doc]
POLICIES: Final = {
    doc["metadata"]["name"]: doc for doc in DOCUMENTS if doc["kind"] == "ValidatingAdmissionPolicy"
}
BINDINGS: Final = [doc for doc in DOCUMENTS if doc["kind"] == "ValidatingAdmissionPolicyBinding"]


def resources(policy: Any) -> set[str]:
    return {
        r for rule in policy["spec"]["matchConstraints"]["resourceRules"] for r in rule["resources"]
    }


def test_every_policy_is_bound_and_denies():
    assert sorted(binding["spec"]["policyName"] for binding in BINDINGS) == sorted(POLICIES)
    assert all(binding["spec"]["validationActions"] == ["Deny"] for binding in BINDINGS)
    assert len(DOCUMENTS) == len(POLICIES) + len(BINDINGS)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
def test_an_expression_that_fails_refuses_and_only_the_service_is_let_through(policy: Any):
    assert policy["spec"]["failurePolicy"] == "Fail"
    (writer,) = DEFAULT_WRITERS
    text = json.dumps(policy)
    if (
        policy["metadata"]["name"] == "vreplica-sources"
    ):  # that is a right which people may be given
        assert "'claim'" in text
        assert "system:serviceaccount:" not in text
    else:
        assert f"'{writer}'" in text
        assert text.count("system:serviceaccount:") == 1
    assert all(validation["reason"] == "Forbidden" for validation in policy["spec"]["validations"])
    assert all(validation["message"] for validation in policy["spec"]["validations"])


def test_they_guard_what_validate_guards_on_every_way_in():
    ledger, bindings = POLICIES["vreplica-ledger"], POLICIES["vreplica-ledger-in-bindings"]
    assert {"pods", "pods/status"} < resources(ledger)
    assert resources(bindings) == {"pods/binding", "bindings"}
    assert resources(POLICIES["vreplica-statuses"]) == {
        "vpods/status",
        "adapterpools/status",
        "vreplicaquotas/status",
    }
    for policy in (ledger, bindings):
        text = json.dumps(policy)
        assert all(f"'{key}'" in text for key in GUARDED_ANNOTATIONS)
    assert f"'{names.POOL_LABEL}'" in json.dumps(ledger)


def test_the_service_may_write_every_annotation_that_nobody_else_may():
    (own,) = (
        variable["expression"]
        for variable in POLICIES["vreplica-service-pods"]["spec"]["variables"]
        if variable["name"] == "own"
    )
    assert all(f"'{key}'" in own for key in (*GUARDED_ANNOTATIONS, names.RETRY_ANNOTATION))
