"""An installation with other names than the default ones: doctor looks for its objects, and for
those of no other.
"""

from dataclasses import replace

from extender.cli.doctor.checks.names import DEFAULT_NAMES, InstallationNames
from extender.cli.doctor.checks.verdict import CheckResult, Verdict
from extender.cli.doctor.examine import examine
from tests.cli.doctor.scene import Scene

BLUE = InstallationNames("blue")


def test_all_names_follow_the_full_name():
    assert (BLUE.webhook, BLUE.upkeep, BLUE.certificate_secret) == (
        "blue-webhook",
        "blue-webhook-upkeep",
        "blue-webhook-certificate",
    )
    assert BLUE.policy("vreplica-service-pods") == "blue-service-pods"


def test_the_default_names_begin_with_the_short_prefix():
    assert (DEFAULT_NAMES.service, DEFAULT_NAMES.webhook) == (
        "vreplica-scheduler",
        "vreplica-webhook",
    )
    assert DEFAULT_NAMES.policy("vreplica-ledger") == "vreplica-ledger"


def test_a_lease_is_of_the_first_bucket_or_of_another_one_and_of_no_other_installation():
    ours = ("blue", "blue.01-of-04")
    theirs = ("blue-two", "blue-kube-scheduler", "vreplica-scheduler")
    assert all(map(BLUE.has_lease, ours))
    assert not any(map(BLUE.has_lease, theirs))


def results_as(names: InstallationNames) -> dict[str, CheckResult]:
    """What is said of a scene with the default names by who looks for others."""
    facts = replace(Scene().facts(), names=names)
    return {one.check.name: one.result for one in examine(facts)}


def test_the_objects_of_another_installation_are_not_taken_for_those_of_this_one():
    results = results_as(BLUE)
    for name, says in {
        "deployments": "vreplica-system/blue is not there",
        "leader": "no Lease vreplica-system/blue",
        "admission-policies": "ValidatingAdmissionPolicy blue-ledger is not there",
        "webhook-registration": "no MutatingWebhookConfiguration blue",
    }.items():
        assert says in " ".join((results[name].summary, *results[name].evidence))
        assert results[name].verdict in {Verdict.ERROR, Verdict.WARNING}


def test_a_renamed_installation_that_kubectl_has_applied_is_not_repaired_with_the_default_names():
    facts = Scene().facts()
    (first, *_) = facts.of("deployments").items
    blue = {**first, "metadata": {"name": "blue", "namespace": "vreplica-system"}}
    listed = {**facts.listed, "deployments": replace(facts.of("deployments"), items=(blue,))}
    examined = examine(replace(facts, names=BLUE, listed=listed))
    (policies,) = [one.result for one in examined if one.check.name == "admission-policies"]
    assert policies.fix.startswith("Apply the chart's objects again: helm template with")
    assert "fullnameOverride: blue" in policies.fix
