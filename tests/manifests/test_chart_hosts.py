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
    def probe(self) -> str:
        """The program of the extender's probe."""
        return str(self.container("vreplica-scheduler")["livenessProbe"]["exec"]["command"][-1])


def test_without_values_the_extender_is_on_loopback_and_the_webhook_says_nothing():
    found = Rendered()
    assert found.config.server.host == "127.0.0.1"
    assert found.url_prefix == "http://127.0.0.1:10261/v1"
    assert 'HTTPConnection("127.0.0.1", 10261' in found.probe
    assert not [word for word in found.container("vreplica-webhook")["command"] if "--host" in word]


def test_a_loopback_of_ipv6_is_where_kube_scheduler_and_the_probes_go():
    found = Rendered(config={"server": {"host": "::1"}})
    assert found.config.server.host == "::1"
    assert found.url_prefix == "http://[::1]:10261/v1"
    assert 'HTTPConnection("::1", 10261' in found.probe


@pytest.mark.parametrize("values", [HTTPS, METRICS, {**HTTPS, **METRICS}])
def test_hosts_that_are_given_are_not_overwritten(values: Values):
    host = "::" if "certManager" in values else "::1"
    server = Rendered(
        **values, config={"server": {"host": host, "healthHost": "::1"}}
    ).config.server
    assert (server.host, server.health_host) == (host, "::1")


def test_the_probes_of_an_extender_behind_tls_go_to_where_its_health_is():
    assert 'HTTPConnection("127.0.0.1", 10262' in Rendered(**HTTPS).probe
    server = {"host": "::", "healthHost": "::"}
    assert 'HTTPConnection("::1", 10262' in Rendered(**HTTPS, config={"server": server}).probe


def test_without_tls_a_host_beyond_loopback_is_refused():
    with pytest.raises(RenderFailed, match=r"config\.server\.host: :: is not loopback"):
        Rendered(config={"server": {"host": "::"}})


def test_the_webhook_listens_where_its_value_says():
    assert (
        "--host=fd00::1"
        in Rendered(webhook={"host": "fd00::1"}).container("vreplica-webhook")["command"]
    )
