"""The listener for controllers in other pods, as the chart makes it: what comes with it, and what
does not.
"""

from typing import Any

import pytest
import yaml

from tests.manifests.chart import RenderFailed, Values, objects, render
from tests.support.configs import config_from

pytestmark = pytest.mark.usefixtures("needs_helm")

ACCOUNT = "knative-eventing/kafka-controller"
BY_TOKEN: Values = {"schedule": {"enabled": True, "allowedServiceAccounts": [ACCOUNT]}}


def rendered(**values: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects(render(values))}


def config_of(found: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    data = found["ConfigMap", "vreplica-scheduler-config"]["data"]
    loaded: dict[str, Any] = yaml.safe_load(data["service-config.yaml"])
    return loaded


def rules_of(found: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    rules = found["ClusterRole", "vreplica-scheduler"]["rules"]
    return [resource for rule in rules for resource in rule["resources"]]


def pod_of(found: dict[tuple[str, str], dict[str, Any]], name: str) -> dict[str, Any]:
    pod: dict[str, Any] = found["Deployment", name]["spec"]["template"]["spec"]
    return pod


def test_without_it_nothing_of_it_is_there():
    text = "\n".join(render({}).values())
    for word in ("schedule-tls", "tokenreviews", "https-schedule", "vreplica-schedule\n"):
        assert word not in text


def test_callers_with_tokens_reach_every_replica_by_one_name():
    found = rendered(**BY_TOKEN)
    service = found["Service", "vreplica-schedule"]["spec"]
    assert (service["clusterIP"], "sessionAffinity" in service) == ("None", False)
    assert "tokenreviews" in rules_of(found)
    schedule = config_of(found)["schedule"]
    assert schedule["allowedServiceAccounts"] == [ACCOUNT]
    config = config_from(config_of(found))
    assert (config.server.host, config.schedule.port) == ("127.0.0.1", 10263)
    (extender,) = (
        each
        for each in pod_of(found, "vreplica-scheduler")["containers"]
        if each["name"] == "extender"
    )
    (port,) = (one for one in extender["ports"] if one["name"] != "http-health")
    assert (port["name"], port["containerPort"]) == ("https-schedule", 10263)
    assert service["ports"][0]["targetPort"] == port["name"]


def test_without_cert_manager_the_upkeep_makes_it_and_no_key_of_an_authority_is_mounted():
    found = rendered(**BY_TOKEN)
    upkeep = pod_of(found, "vreplica-webhook-upkeep")["containers"][1]
    assert "--upkeep=only" in upkeep["command"]
    assert "--service=vreplica-system/vreplica-schedule" in upkeep["command"]
    assert ("Secret", "vreplica-schedule-certificate") in found
    (rule,) = found["Role", "vreplica-webhook-upkeep"]["rules"]
    assert "vreplica-schedule-certificate" in rule["resourceNames"]
    (rule,) = found["Role", "vreplica-webhook"]["rules"]
    assert rule["resourceNames"] == ["vreplica-webhook-certificate"]
    (volume,) = (
        each
        for each in pod_of(found, "vreplica-scheduler")["volumes"]
        if each["name"] == "schedule-tls"
    )
    assert volume["secret"]["secretName"] == "vreplica-schedule-certificate"
    assert [item["key"] for item in volume["secret"]["items"]] == ["tls.crt", "tls.key"]


def test_callers_find_its_authorities_in_their_namespaces_and_only_there_they_may_be_written():
    accounts = [ACCOUNT, "knative-eventing/other", "tools/ask"]
    found = objects(render({"schedule": {"enabled": True, "allowedServiceAccounts": accounts}}))
    ours = [obj for obj in found if obj["metadata"]["name"] == "vreplica-schedule-ca"]
    kinds = ("ConfigMap", "Role", "RoleBinding")
    namespaces = ("vreplica-system", "knative-eventing", "tools")
    places = sorted((obj["kind"], obj["metadata"]["namespace"]) for obj in ours)
    assert places == sorted((kind, each) for kind in kinds for each in namespaces)
    for obj in ours:
        if obj["kind"] == "Role":
            (rule,) = obj["rules"]
            assert rule["resourceNames"] == ["vreplica-schedule-ca"]
            assert rule["verbs"] == ["get", "patch"]
        if obj["kind"] == "RoleBinding":
            (subject,) = obj["subjects"]
            assert (subject["name"], subject["namespace"]) == (
                "vreplica-webhook-upkeep",
                "vreplica-system",
            )
    (upkeep,) = (
        obj
        for obj in found
        if (obj["kind"], obj["metadata"]["name"]) == ("Deployment", "vreplica-webhook-upkeep")
    )
    command = upkeep["spec"]["template"]["spec"]["containers"][1]["command"]
    assert [word for word in command if "ca-config-map" in word] == [
        f"--ca-config-map={each}/vreplica-schedule-ca" for each in namespaces
    ]


def test_with_cert_manager_it_makes_the_certificate():
    found = rendered(**BY_TOKEN, certManager={"enabled": True})
    certificate = found["Certificate", "vreplica-schedule"]["spec"]
    assert certificate["secretName"] == "vreplica-schedule-tls"
    assert "vreplica-schedule.vreplica-system.svc" in certificate["dnsNames"]
    assert ("Secret", "vreplica-schedule-certificate") not in found
    assert ("ConfigMap", "vreplica-schedule-ca") not in found


def test_a_secret_of_your_own_is_taken_and_nobody_else_makes_one():
    schedule = {**BY_TOKEN["schedule"], "tls": {"secretName": "mine"}}
    found = rendered(schedule=schedule)
    assert ("Secret", "vreplica-schedule-certificate") not in found
    assert len(pod_of(found, "vreplica-webhook-upkeep")["containers"]) == 1


def test_callers_with_certificates_need_no_review_of_tokens():
    schedule = {"enabled": True, "tls": {"secretName": "mine", "allowedClients": ["controller"]}}
    found = rendered(schedule=schedule)
    assert "tokenreviews" not in rules_of(found)
    config = config_from(config_of(found)).schedule
    assert config.tls.client_ca_file.endswith("client-ca.crt")
    assert config.tls.allowed_clients == ("controller",)


def test_in_shadow_mode_nobody_is_served():
    found = rendered(**BY_TOKEN, config={"mode": "shadow"})
    assert ("Service", "vreplica-schedule") not in found
    assert "tokenreviews" not in rules_of(found)
    assert "schedule" not in config_of(found)


@pytest.mark.parametrize("peers", [[], [{"namespaceSelector": {}}]])
def test_the_network_policy_lets_in_who_is_named(peers: list[dict[str, Any]]):
    found = rendered(**BY_TOKEN, networkPolicy={"scheduleFrom": peers})
    ingress = found["NetworkPolicy", "vreplica-scheduler"]["spec"]["ingress"]
    (rule,) = (each for each in ingress if each["ports"][0]["port"] == "https-schedule")
    assert rule.get("from", []) == peers


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"schedule": {"enabled": True}}, "allowedServiceAccounts"),
        (
            {"schedule": {**BY_TOKEN["schedule"], "tls": {"allowedClients": ["a"]}}},
            "allowedServiceAccounts",
        ),
        ({"schedule": {**BY_TOKEN["schedule"], "port": 10261}}, "schedule.port"),
        ({**BY_TOKEN, "webhook": {"enabled": False}}, "schedule.tls.secretName"),
        ({"schedule": {"enabled": True, "tls": {"allowedClients": ["a"]}}}, "secretName"),
        ({"schedule": {"allowedServiceAccounts": ["kafka-controller"]}}, "allowedServiceAccounts"),
        ({"config": {"schedule": {"port": 1}}}, "schedule"),
    ],
    ids=["nobody", "both", "port", "no certificate", "no client CA", "no namespace", "twice"],
)
def test_what_cannot_be_is_refused(values: Values, path: str):
    with pytest.raises(RenderFailed, match=path):
        render(values)
