"""The listener for adapters, as the chart makes it: what comes with it, and what does not."""

from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml

from extender.lab.embedded import EVICTION_WEBHOOK
from tests.manifests.chart import RenderFailed, Values, objects, render
from tests.manifests.test_chart_schedule import BY_TOKEN, config_of, pod_of, rendered, rules_of
from tests.support.configs import config_from
from webhook.evictions import API_TIMEOUT_S

pytestmark = pytest.mark.usefixtures("needs_helm")

ON: Values = {
    "adapters": {
        "enabled": True,
        "namespaces": ["knative-eventing"],
        "allowedServiceAccounts": ["ingress/router"],
    }
}


def extender_of(
    found: dict[tuple[str, str], dict[str, Any]], name: str = "vreplica-scheduler"
) -> dict[str, Any]:
    containers = pod_of(found, name)["containers"]
    (extender,) = (each for each in containers if each["name"] == "extender")
    return dict(extender)


def test_without_it_nothing_of_it_is_there():
    text = "\n".join(render({}).values())
    for word in ("adapters-tls", "tokenreviews", "https-adapters", "vreplica-adapters\n"):
        assert word not in text


def test_adapters_reach_every_replica_by_one_name():
    found = rendered(**ON)
    service = found["Service", "vreplica-adapters"]["spec"]
    assert (service["clusterIP"], "sessionAffinity" in service) == ("None", False)
    assert "tokenreviews" in rules_of(found)
    config = config_from(config_of(found)).adapters
    assert (config.port, config.audience) == (10264, "vreplica.dev")
    assert config.allowed_service_accounts == ("ingress/router",)
    (port,) = (one for one in extender_of(found)["ports"] if one["name"] != "http-health")
    assert (port["name"], port["containerPort"]) == ("https-adapters", 10264)
    assert service["ports"][0]["targetPort"] == port["name"]


@pytest.mark.parametrize("name", ["", "blue"])
def test_the_files_that_the_configuration_names_are_mounted(name: str):
    found = rendered(**ON, **BY_TOKEN, **({"fullnameOverride": name} if name else {}))
    workload = name or "vreplica-scheduler"
    config = config_from(
        yaml.safe_load(found["ConfigMap", f"{workload}-config"]["data"]["service-config.yaml"])
    )
    mounted = {mount["mountPath"] for mount in extender_of(found, workload)["volumeMounts"]}
    for tls in (config.schedule.tls, config.adapters.tls):
        for file in (tls.cert_file, tls.key_file):
            assert str(PurePosixPath(file).parent) in mounted


def test_adapters_and_routers_find_its_authorities_in_their_namespaces():
    found = objects(render(ON))
    ours = [obj for obj in found if obj["metadata"]["name"] == "vreplica-adapters-ca"]
    places = sorted((obj["kind"], obj["metadata"]["namespace"]) for obj in ours)
    kinds = ("ConfigMap", "Role", "RoleBinding")
    namespaces = ("vreplica-system", "knative-eventing", "ingress")
    assert places == sorted((kind, each) for kind in kinds for each in namespaces)
    upkeep = pod_of(rendered(**ON), "vreplica-webhook-upkeep")["containers"]
    assert [container["name"] for container in upkeep] == ["upkeep", "adapters-upkeep"]
    assert [word for word in upkeep[1]["command"] if "ca-config-map" in word] == [
        f"--ca-config-map={each}/vreplica-adapters-ca" for each in namespaces
    ]
    assert "--service=vreplica-system/vreplica-adapters" in upkeep[1]["command"]


def test_both_listeners_have_certificates_and_services_of_their_own():
    found = rendered(**ON, **BY_TOKEN)
    for name in ("schedule", "adapters"):
        assert ("Secret", f"vreplica-{name}-certificate") in found
        assert ("Service", f"vreplica-{name}") in found
    (rule,) = found["Role", "vreplica-webhook-upkeep"]["rules"]
    assert rule["resourceNames"] == [
        f"vreplica-{each}-certificate" for each in ("webhook", "schedule", "adapters")
    ]
    ports = {one["name"] for one in extender_of(found)["ports"]}
    assert {"https-schedule", "https-adapters"} < ports
    assert rules_of(found).count("tokenreviews") == 1
    names = [each["name"] for each in pod_of(found, "vreplica-webhook-upkeep")["volumes"]]
    assert names == ["service-config", "tmp", "schedule-tmp", "adapters-tmp"]


def test_with_cert_manager_it_makes_the_certificate():
    found = rendered(**ON, certManager={"enabled": True})
    certificate = found["Certificate", "vreplica-adapters"]["spec"]
    assert certificate["secretName"] == "vreplica-adapters-tls"
    assert "vreplica-adapters.vreplica-system.svc" in certificate["dnsNames"]
    assert ("Certificate", "vreplica-schedule") not in found
    assert ("Secret", "vreplica-adapters-certificate") not in found
    assert ("ConfigMap", "vreplica-adapters-ca") not in found


def test_a_secret_of_your_own_is_taken_and_nobody_else_makes_one():
    found = rendered(adapters={**ON["adapters"], "tls": {"secretName": "mine"}})
    assert ("Secret", "vreplica-adapters-certificate") not in found
    (volume,) = (
        each
        for each in pod_of(found, "vreplica-scheduler")["volumes"]
        if each["name"] == "adapters-tls"
    )
    assert volume["secret"]["secretName"] == "mine"
    assert [item["key"] for item in volume["secret"]["items"]] == ["tls.crt", "tls.key"]


def test_in_shadow_mode_nobody_is_served():
    found = rendered(**ON, config={"mode": "shadow"})
    assert ("Service", "vreplica-adapters") not in found
    assert "tokenreviews" not in rules_of(found)
    assert "adapters" not in config_of(found)


def test_evictions_wait_where_adapters_are_served_unless_a_value_says_otherwise():
    def of(**adapters: Any) -> tuple[list[str], bool, bool]:
        found = rendered(adapters=adapters)
        hooks = found["ValidatingWebhookConfiguration", "vreplica-scheduler"]["webhooks"]
        rules = found["ClusterRole", "vreplica-webhook"]["rules"]
        paths = [
            one["clientConfig"]["service"]["path"]
            for one in hooks
            if "pods/eviction" in one["rules"][0]["resources"]
        ]
        may_patch = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]} in rules
        return paths, may_patch, ("ValidatingAdmissionPolicy", "vreplica-webhook-pods") in found

    assert of(enabled=True) == (["/evict"], True, True)
    assert of(enabled=True, evictions=False) == ([], False, False)
    assert of(enabled=False) == ([], False, False)


@pytest.mark.parametrize("value", ["descheduling", "rollouts"])
def test_the_service_may_evict_only_where_a_value_says_so(value: str):
    assert "pods/eviction" not in rules_of(rendered())
    assert rules_of(rendered(rbac={value: True})).count("pods/eviction") == 1


def test_an_eviction_is_never_blocked_by_an_outage_and_never_waits_long():
    found = rendered(**ON)["ValidatingWebhookConfiguration", "vreplica-scheduler"]["webhooks"]
    (hook,) = (one for one in found if one["name"] == "evictions.vreplica.dev")
    assert (hook["failurePolicy"], hook["sideEffects"]) == ("Ignore", "NoneOnDryRun")
    assert hook["timeoutSeconds"] > API_TIMEOUT_S
    simulated = dict(EVICTION_WEBHOOK["webhooks"][0])
    assert {key: hook[key] for key in simulated if key not in {"clientConfig", "rules"}} == {
        key: value for key, value in simulated.items() if key not in {"clientConfig", "rules"}
    }


@pytest.mark.parametrize("peers", [[], [{"namespaceSelector": {}}]])
def test_the_network_policy_lets_in_who_is_named(peers: list[dict[str, Any]]):
    found = rendered(**ON, networkPolicy={"adaptersFrom": peers})
    ingress = found["NetworkPolicy", "vreplica-scheduler"]["spec"]["ingress"]
    (rule,) = (each for each in ingress if each["ports"][0]["port"] == "https-adapters")
    assert rule.get("from", []) == peers


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"adapters": {"enabled": True, "port": 10261}}, "adapters.port"),
        ({**BY_TOKEN, "adapters": {"enabled": True, "port": 10263}}, "adapters.port"),
        ({**ON, "webhook": {"enabled": False}}, "adapters.tls.secretName"),
        ({"adapters": {"allowedServiceAccounts": ["router"]}}, "allowedServiceAccounts"),
        ({"adapters": {"tls": {"allowedClients": ["a"]}}}, "allowedClients"),
        ({"config": {"adapters": {"port": 1}}}, "adapters"),
    ],
    ids=["port", "the other's port", "no certificate", "no namespace", "no certificates", "twice"],
)
def test_what_cannot_be_is_refused(values: Values, path: str):
    with pytest.raises(RenderFailed, match=path):
        render(values)
