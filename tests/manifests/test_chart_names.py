"""The chart's names: what an installation is called, and that two of them share nothing."""

import re
from typing import Any

import pytest
import yaml

from tests.manifests.chart import RenderFailed, Values, objects, render
from tests.manifests.patches import identity

pytestmark = pytest.mark.usefixtures("needs_helm")

EVERYTHING: Values = {
    "config": {"leaderElection": {"buckets": 2}},
    "metrics": {
        "enabled": True,
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
    "schedule": {"enabled": True, "allowedServiceAccounts": ["a/b"]},
    "adapters": {"enabled": True, "namespaces": ["c"]},
    "sources": {"knative": True, "kinds": [{"group": "example.com", "resource": "things"}]},
}
MODES: dict[str, Values] = {
    "sidecar": {},
    "deployment": {"kubeScheduler": {"mode": "deployment"}, "certManager": {"enabled": True}},
}


def rendered(values: Values, **where: Any) -> dict[tuple[str, str, str], dict[str, Any]]:
    """All objects but the CRDs, which are the API and belong to no installation."""
    own = {"crds": {"install": False}, **values}
    return {identity(obj): obj for obj in objects(render(own, hooks=True, **where))}


def names_in(found: dict[tuple[str, str, str], dict[str, Any]], kind: str) -> set[str]:
    return {obj["metadata"]["name"] for key, obj in found.items() if key[0] == kind}


@pytest.mark.parametrize("release", ["vreplica-scheduler", "prod", "a-vreplica"])
def test_without_an_override_names_are_the_same_for_every_release(release: str):
    assert rendered({}, release=release).keys() == rendered({}).keys()


@pytest.mark.parametrize("mode", MODES)
def test_two_installations_share_no_object(mode: str):
    values = {**EVERYTHING, **MODES[mode]}
    first = rendered(values, namespace="one")
    second = rendered({**values, "fullnameOverride": "blue"}, namespace="two")
    assert len(second) == len(first)
    assert not first.keys() & second.keys()


@pytest.mark.parametrize("mode", MODES)
def test_two_installations_in_one_namespace_share_no_object_and_select_no_pod_of_each_other(
    mode: str,
):
    values = {**EVERYTHING, **MODES[mode]}
    first = rendered(values)
    second = rendered({**values, "fullnameOverride": "blue"})
    assert not first.keys() & second.keys()
    for ours, theirs in ((first, second), (second, first)):
        pods = [
            obj["spec"]["template"]["metadata"]["labels"]
            for obj in theirs.values()
            if obj["kind"] == "Deployment"
        ]
        for obj in ours.values():
            if obj["kind"] == "Service":
                wanted = obj["spec"]["selector"].items()
                assert not any(wanted <= labels.items() for labels in pods), obj["metadata"]


@pytest.mark.parametrize("mode", MODES)
def test_nothing_in_an_installation_with_another_name_is_named_by_the_default(mode: str):
    values = {**EVERYTHING, **MODES[mode], "fullnameOverride": "blue"}
    found = rendered(values, namespace="two")
    of_ours = re.compile(
        r"vreplica-(scheduler|webhook|kube-scheduler|tokens|schedule|adapters|extender|ca|ledger)\b"
    )
    free = {  # Programs, paths, the image and what the software is called, not an installation.
        *("part-of: vreplica-scheduler", "image: vreplica-scheduler", "- vreplica-webhook"),
        *("name: vreplica-kube-scheduler", "user: vreplica-kube-scheduler"),
        *("audience: vreplica-schedule", "The vreplica-scheduler, its"),
        *("/vreplica-schedule-tls", "/vreplica-adapters-tls", "/vreplica-extender-tls"),
    }
    for key, obj in found.items():
        if key[0] == "PrometheusRule" or "dashboard" in key[2]:
            continue
        for line in yaml.safe_dump(obj, width=1000).splitlines():
            if of_ours.search(line) and not line.strip().startswith("#"):
                assert any(each in line for each in free), (key, line)


CONFIG_MAPS = ("blue-config", "blue-kube-scheduler-config")


def test_programs_are_told_the_names_of_their_installation():
    found = rendered({"fullnameOverride": "blue"}, namespace="two")
    by_kind_and_name = {(key[0], obj["metadata"]["name"]): obj for key, obj in found.items()}
    maps = {name: by_kind_and_name["ConfigMap", name]["data"] for name in CONFIG_MAPS}
    service = yaml.safe_load(maps["blue-config"]["service-config.yaml"])
    assert service["leaderElection"]["resourceName"] == "blue"
    assert service["leaderElection"]["resourceNamespace"] == "two"
    assert service["schedulerNames"] == ["blue"]
    scheduler = yaml.safe_load(maps["blue-kube-scheduler-config"]["config.yaml"])
    assert scheduler["leaderElection"]["resourceName"] == "blue-kube-scheduler"
    assert scheduler["profiles"][0]["schedulerName"] == "blue"
    webhook = by_kind_and_name["Deployment", "blue-webhook"]
    command = webhook["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[0] == "vreplica-webhook"
    assert {
        "--secret=two/blue-webhook-certificate",
        "--service=two/blue-webhook",
        "--service-account=two/blue",
        "--registration=blue",
        "--scheduler-name=blue",
    } <= set(command)
    role = by_kind_and_name["ClusterRole", "blue-webhook-upkeep"]
    assert role["rules"][0]["resourceNames"] == ["blue"]
    assert names_in(found, "Lease") == {"blue"}


@pytest.mark.parametrize(
    ("release", "name", "full"),
    [
        pytest.param("prod", "vreplicas", "prod-vreplicas", id="release and name"),
        pytest.param("prod-vreplicas", "vreplicas", "prod-vreplicas", id="name in the release"),
        pytest.param("r" * 53, "vreplicas", "r" * 48, id="cut where a Service has room"),
    ],
)
def test_name_override_follows_the_release(release: str, name: str, full: str):
    found = rendered({"nameOverride": name}, release=release)
    assert f"{full}-webhook" in names_in(found, "Service")
    assert full in names_in(found, "ClusterRole")


def test_all_namespaced_objects_go_to_the_namespace_that_is_given():
    before = rendered({}, namespace="ours")
    after = rendered({"namespaceOverride": "theirs"}, namespace="ours")
    assert {key[1] for key in before} == {"", "ours", "kube-system"}
    assert {key[1] for key in after} == {"", "theirs", "kube-system"}
    # No reference of one object to another stays behind, in usernames and URLs neither.
    assert "ours" not in re.findall(r"\w+", yaml.safe_dump(list(after.values())))


def expressions(values: Values, name: str) -> list[str]:
    (policy,) = (
        obj
        for obj in rendered(values).values()
        if obj["kind"] == "ValidatingAdmissionPolicy" and obj["metadata"]["name"] == name
    )
    spec = policy["spec"]
    return [each["expression"] for each in [*spec.get("matchConditions", []), *spec["validations"]]]


def test_services_of_other_installations_may_write_ledgers_and_statuses():
    values = {"admissionPolicies": {"otherWriters": ["two/blue"]}}
    ours = "'system:serviceaccount:vreplica-system:vreplica-scheduler'"
    theirs = "'system:serviceaccount:two:blue'"
    user = "request.userInfo.username"
    (status,) = expressions(values, "vreplica-statuses")
    assert status == f"{user} == {ours} || {user} == {theirs}"
    for name in ("vreplica-ledger", "vreplica-ledger-in-bindings"):
        assert expressions(values, name)[0] == f"{user} != {ours} && {user} != {theirs}"
    # What the service itself may not do is each installation's own to say.
    for name in ("vreplica-service-pods", "vreplica-service-bindings"):
        assert expressions(values, name) == expressions({}, name)


def accounts(values: Values) -> tuple[set[str], set[str]]:
    """ServiceAccounts that are made, and those that pods run as or bindings name."""
    found = rendered(values)
    used = {
        obj["spec"]["template"]["spec"]["serviceAccountName"]
        for obj in found.values()
        if obj["kind"] == "Deployment"
    }
    for obj in found.values():
        if obj["kind"].endswith("RoleBinding"):
            used |= {subject["name"] for subject in obj["subjects"]}
    return names_in(found, "ServiceAccount"), used


def test_service_accounts_of_yours_are_used_and_not_made():
    given = {"create": False, "name": "central"}
    made, used = accounts({"extender": {"serviceAccount": given}})
    assert used - made == {"central", "central-tokens"}
    assert made == {"vreplica-kube-scheduler", "vreplica-webhook", "vreplica-webhook-upkeep"}
    status = expressions({"extender": {"serviceAccount": given}}, "vreplica-statuses")
    assert status == [
        "request.userInfo.username == 'system:serviceaccount:vreplica-system:central'"
    ]


def test_service_accounts_that_are_named_are_made():
    made, used = accounts({"webhook": {"serviceAccount": {"name": "admission"}}})
    assert {"admission", "admission-upkeep"} <= made == used


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fullnameOverride": "Blue"}, "fullnameOverride"),
        ({"nameOverride": "b" * 49}, "nameOverride"),
        ({"namespaceOverride": "a.b"}, "namespaceOverride"),
        ({"admissionPolicies": {"otherWriters": ["blue"]}}, "otherWriters"),
        (
            {"webhook": {"serviceAccount": {"name": "vreplica-scheduler"}}},
            "each process needs an account of its own",
        ),
    ],
)
def test_a_name_that_cannot_be_is_refused_with_its_path(values: Values, message: str):
    with pytest.raises(RenderFailed, match=message):
        render(values)
