"""Where the chart has programs listen: what its values say, and then everything that reaches them
goes there.
"""

from typing import Any

import pytest
import yaml

from extender.config.model import Config
from tests.manifests.chart import RenderFailed, Values, objects, render
from tests.support.configs import config_from

HTTPS: Values = {"certManager": {"enabled": True}, "kubeScheduler": {"mode": "deployment"}}
METRICS: Values = {"metrics": {"enabled": True}}


pytestmark = pytest.mark.usefixtures("needs_helm")


class Rendered:
    def __init__(self, **values: Any) -> None:
        self.objects = objects(render(values))

    def config_map(self, name: str, file: str) -> str:
        (text,) = (
            obj["data"][file]
            for obj in self.objects
            if obj["kind"] == "ConfigMap"
            and file in obj["data"]
            and name in obj["metadata"]["name"]
        )
        return str(text)

    @property
    def config(self) -> Config:
        """As the service reads it."""
        return config_from(
            yaml.safe_load(self.config_map("vreplica-scheduler-config", "service-config.yaml"))
        )

    @property
    def url_prefix(self) -> str:
        found = yaml.safe_load(self.config_map("vreplica-kube-scheduler-config", "config.yaml"))
        return str(found["extenders"][0]["urlPrefix"])

    def container(self, deployment: str) -> dict[str, Any]:
        (found,) = (
            obj
            for obj in self.objects
            if obj["kind"] == "Deployment" and obj["metadata"]["name"] == deployment
        )
        return dict(found["spec"]["template"]["spec"]["containers"][0])

    @property
    def policy_rules(self) -> list[Any]:
        """Who may reach the extender, and at which ports."""
        (found,) = (
            obj
            for obj in self.objects
            if (obj["kind"], obj["metadata"]["name"]) == ("NetworkPolicy", "vreplica-scheduler")
        )
        return list(found["spec"]["ingress"])

    @property
    def probes(self) -> dict[str, Any]:
        """Where the extender's probes go, by path."""
        container = self.container("vreplica-scheduler")
        found = [
            container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
        ]
        return {probe.pop("path"): probe for probe in found}


def test_without_values_the_extender_is_on_loopback_and_the_webhook_says_nothing():
    found = Rendered()
    assert found.config.server.host == "127.0.0.1"
    assert found.url_prefix == "http://127.0.0.1:10261/v1"
    assert not [word for word in found.container("vreplica-webhook")["command"] if "--host" in word]


def test_a_loopback_of_ipv6_is_where_kube_scheduler_goes():
    found = Rendered(config={"server": {"host": "::1"}})
    assert found.config.server.host == "::1"
    assert found.url_prefix == "http://[::1]:10261/v1"


@pytest.mark.parametrize("values", [HTTPS, METRICS, {**HTTPS, **METRICS}])
def test_hosts_that_are_given_are_not_overwritten(values: Values):
    host = "::" if "certManager" in values else "::1"
    server = Rendered(**values, config={"server": {"host": host, "healthHost": "::"}}).config.server
    assert (server.host, server.health_host) == (host, "::")


@pytest.mark.parametrize("values", [{}, HTTPS, METRICS, {**HTTPS, **METRICS}])
def test_a_kubelet_asks_for_health_at_the_pods_address_and_starts_no_program(values: Values):
    found = Rendered(**values)
    port = "http-metrics" if "metrics" in values else "http-health"
    assert found.probes == {path: {"port": port} for path in ("/livez", "/readyz")}
    server = found.config.server
    ports = {each["name"]: each for each in found.container("vreplica-scheduler")["ports"]}
    assert ports[port]["containerPort"] == server.health_port
    assert server.health_host == "0.0.0.0"
    assert server.health_metrics is ("metrics" in values)
    assert port not in str(found.policy_rules) or "metrics" in values


def test_on_a_nodes_network_health_is_on_its_loopback_and_the_kubelet_asks_there():
    values: Values = {"extender": {"hostNetwork": True}}
    found = Rendered(**values)
    assert found.config.server.health_host == "127.0.0.1"
    assert {probe["host"] for probe in found.probes.values()} == {"127.0.0.1"}
    found = Rendered(**values, **METRICS)
    assert found.config.server.health_host == "0.0.0.0"
    assert not [probe for probe in found.probes.values() if "host" in probe]


def test_health_where_no_kubelet_reaches_it_is_refused():
    with pytest.raises(RenderFailed, match=r"config\.server\.healthHost: a kubelet does not reach"):
        Rendered(config={"server": {"healthHost": "::1"}})


@pytest.mark.parametrize(
    ("workload", "deployment"),
    [
        ("extender", "vreplica-scheduler"),
        ("webhook", "vreplica-webhook"),
        ("kubeScheduler", "vreplica-kube-scheduler"),
    ],
)
def test_the_numbers_of_probes_are_values(workload: str, deployment: str):
    given = {"initialDelaySeconds": 7, "timeoutSeconds": 9}
    values = {**HTTPS, workload: {**HTTPS.get(workload, {}), "livenessProbe": given}}
    before = Rendered(**HTTPS).container(deployment)
    after = Rendered(**values).container(deployment)
    assert after["livenessProbe"] == {**before["livenessProbe"], **given}
    assert after["readinessProbe"] == before["readinessProbe"]


def test_without_tls_a_host_beyond_loopback_is_refused():
    with pytest.raises(RenderFailed, match=r"config\.server\.host: :: is not loopback"):
        Rendered(config={"server": {"host": "::"}})


def test_the_webhook_listens_where_its_value_says():
    assert (
        "--host=fd00::1"
        in Rendered(webhook={"host": "fd00::1"}).container("vreplica-webhook")["command"]
    )
