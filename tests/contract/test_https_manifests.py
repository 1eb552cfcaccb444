"""The shipped HTTPS installation: the component for the extender and config-https.yaml for
kube-scheduler fit together.
"""

from pathlib import Path
from typing import Any

import yaml

from extender.config.model import LOOPBACK
from tests.support.configs import load_config

MANIFESTS = Path(__file__).parents[2] / "manifests"
COMPONENT = MANIFESTS / "components" / "https"
CONFIG = load_config(str(COMPONENT / "service-config.yaml"))
BASE_CONFIG = load_config(str(MANIFESTS / "base" / "service-config.yaml"))


def document(path: Path) -> Any:
    [found] = yaml.safe_load_all(path.read_text())
    return found


def patch(kind: str) -> Any:
    """What the component changes of the base's object of that kind."""
    patches = yaml.safe_load_all((COMPONENT / "patches.yaml").read_text())
    [found] = [obj for obj in patches if obj["kind"] == kind]
    return found


DEPLOYMENT = patch("Deployment")["spec"]["template"]["spec"]
[EXTENDER] = [each for each in DEPLOYMENT["containers"] if each["name"] == "extender"]
[HTTPS] = document(MANIFESTS / "kube-scheduler" / "config-https.yaml")["extenders"]


def test_the_configuration_is_the_base_but_for_where_it_serves_and_for_whom():
    assert CONFIG.leader_election == BASE_CONFIG.leader_election
    assert CONFIG.client_connection == BASE_CONFIG.client_connection
    assert CONFIG.server.host == "0.0.0.0"
    assert CONFIG.server.deadline_s == BASE_CONFIG.server.deadline_s
    assert not CONFIG.server.insecure


def test_certificates_are_where_the_secret_is_mounted():
    [mount] = EXTENDER["volumeMounts"]
    [volume] = [each for each in DEPLOYMENT["volumes"] if each["name"] == mount["name"]]
    assert mount["readOnly"] is True
    files = (
        CONFIG.server.tls.cert_file,
        CONFIG.server.tls.key_file,
        CONFIG.server.tls.client_ca_file,
    )
    assert {str(Path(name).parent) for name in files} == {mount["mountPath"]}
    told = (COMPONENT / "kustomization.yaml").read_text()
    assert volume["secret"]["secretName"] in told
    assert all(f"--from-file={Path(name).name}" in told for name in files)
    assert {item["path"] for item in volume["secret"]["items"]} == {
        Path(name).name for name in files
    }


def test_kube_scheduler_calls_the_name_and_port_that_the_service_has():
    service = patch("Service")
    metadata = service["metadata"]
    [port] = [each for each in service["spec"]["ports"] if "$patch" not in each]
    host = f"{metadata['name']}.{metadata['namespace']}.svc"
    assert HTTPS["urlPrefix"] == f"https://{host}:{port['port']}/v1"
    assert HTTPS["tlsConfig"]["serverName"] == host
    [container_port] = EXTENDER["ports"]
    assert (port["targetPort"], container_port["containerPort"]) == (
        container_port["name"],
        CONFIG.server.port,
    )


def test_the_client_that_config_https_tells_of_is_the_one_on_the_list():
    [allowed] = CONFIG.server.tls.allowed_clients
    assert (
        f"(common name {allowed},"
        in (MANIFESTS / "kube-scheduler" / "config-https.yaml").read_text()
    )


def base_pod() -> dict[str, Any]:
    """The pod's spec in the base, which the component patches."""
    objects = yaml.safe_load_all((MANIFESTS / "base" / "scheduler.yaml").read_text())
    [base] = [obj for obj in objects if obj["kind"] == "Deployment"]
    return dict(base["spec"]["template"]["spec"])


def test_probes_ask_where_no_client_certificate_is_needed():
    container = base_pod()["containers"][0]
    for probe, path in (
        ("startupProbe", "/livez"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ):
        assert container[probe]["httpGet"] == {"path": path, "port": "http-health"}
        assert probe not in EXTENDER
    [port] = [port for port in container["ports"] if port["name"] == "http-health"]
    assert port["containerPort"] == CONFIG.server.health_port
    assert CONFIG.server.health_host not in LOOPBACK
    assert not CONFIG.server.health_metrics


def test_it_stops_within_the_pods_grace():
    grace_s = base_pod()["terminationGracePeriodSeconds"]
    assert CONFIG.server.shutdown_delay_s + 10 + 2 < grace_s, "delay, drain, events"
