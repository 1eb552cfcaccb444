"""The configuration file: strict, and every error names its field."""

import copy
from typing import Any

import pytest
import yaml

from extender.config import document
from extender.config.model import Config, Mode, TlsConfig
from extender.model.errors import InvalidObject
from extender.model.names import CONFIG_API_VERSION, CONFIG_KIND
from tests.support.configs import config_from, load_config

HEAD: dict[str, Any] = {"apiVersion": CONFIG_API_VERSION, "kind": CONFIG_KIND}


def with_field(path: str, value: object) -> dict[str, Any]:
    document = copy.deepcopy(HEAD)
    section = document
    *sections, name = path.split(".")
    for step in sections:
        section = section.setdefault(step, {})
    section[name] = value
    return document


def test_everything_has_a_default():
    assert config_from(HEAD) == Config()


def test_every_field_is_read():
    document = yaml.safe_load(f"""
        apiVersion: {CONFIG_API_VERSION}
        kind: {CONFIG_KIND}
        server: {{host: 0.0.0.0, port: 1, deadlineSeconds: 2.5, shutdownDelaySeconds: 7,
                  healthPort: 2, healthHost: 0.0.0.0, insecure: true,
                  tls: {{certFile: c, keyFile: k, clientCAFile: ca, allowedClients: [a, b]}}}}
        leaderElection: {{leaderElect: false, resourceNamespace: n, resourceName: r,
                          leaseDurationSeconds: 30, renewDeadlineSeconds: 20,
                          retryPeriodSeconds: 4}}
        clientConnection: {{kubeconfig: f, context: x, qps: 1.5, burst: 3}}
        mode: shadow
        profiles: [{{name: nightly}}]
    """)
    read = config_from(document)
    assert (read.server.host, read.server.port, read.server.deadline_s) == ("0.0.0.0", 1, 2.5)
    assert (read.server.shutdown_delay_s, read.server.health_port, read.server.insecure) == (
        7,
        2,
        True,
    )
    assert read.server.health_host == "0.0.0.0"
    assert read.server.tls == TlsConfig(
        cert_file="c", key_file="k", client_ca_file="ca", allowed_clients=("a", "b")
    )
    election = read.leader_election
    assert (election.leader_elect, election.resource_namespace, election.resource_name) == (
        False,
        "n",
        "r",
    )
    assert (election.lease_duration_s, election.renew_deadline_s, election.retry_period_s) == (
        30,
        20,
        4,
    )
    client = read.client_connection
    assert (client.kubeconfig, client.context, client.qps, client.burst) == ("f", "x", 1.5, 3)
    assert (read.mode, read.profiles) == (Mode.SHADOW, ({"name": "nightly"},))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("apiVersion", "v1"),
        ("kind", "KubeSchedulerConfiguration"),
        ("kind", 3),
        ("server", []),
        ("server.tls", "x"),
        ("server.port", 65536),
        ("server.port", -1),
        ("server.port", "10261"),
        ("server.port", True),
        ("server.port", 10261.7),
        ("server.prot", 1),
        ("server.host", 7),
        ("server.deadlineSeconds", 0),
        ("server.deadlineSeconds", float("nan")),
        ("server.deadlineSeconds", float("inf")),
        ("server.shutdownDelaySeconds", -1),
        ("server.insecure", "yes"),
        ("server.tls.allowedClients", "kube-scheduler"),
        ("server.tls.allowedClients", ["x"] * 101),
        ("leaderElection.leaderElect", "yes"),
        ("leaderElection.leaseDurationSeconds", 15.5),
        ("clientConnection.qps", 0),
        ("clientConnection.burst", 0),
        ("clientConnection.burst", 1.5),
        ("clientConnection.contentType", "json"),
        ("mode", "passive"),
        ("pools.namespace", ["adapters"]),
        ("pools.namespaces", "adapters"),
        ("pools.namespaces", [f"n-{index}" for index in range(101)]),
        ("profiles", {"name": "x"}),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(path, value):
    with pytest.raises(InvalidObject) as caught:
        config_from(with_field(path, value), "f.yaml")
    assert str(caught.value).startswith(f"f.yaml: {path}: ")


CERTIFICATE = {"certFile": "c", "keyFile": "k"}


@pytest.mark.parametrize(
    ("section", "fields", "named"),
    [
        pytest.param(
            "server", {"tls": {"certFile": "c"}}, "server.tls", id="a certificate without its key"
        ),
        pytest.param(
            "server",
            {"tls": {"clientCAFile": "c"}},
            "server.tls.clientCAFile",
            id="a CA without a certificate",
        ),
        pytest.param(
            "server",
            {"tls": {"certFile": "c", "keyFile": "k", "allowedClients": ["a"]}},
            "server.tls.allowedClients",
            id="names of clients that need no certificate",
        ),
        pytest.param(
            "server",
            {"host": "0.0.0.0", "tls": {"certFile": "c", "keyFile": "k", "clientCAFile": "ca"}},
            "server.tls.allowedClients",
            id="open to all clients of a CA",
        ),
        pytest.param(
            "server",
            {
                "tls": {
                    "certFile": "c",
                    "keyFile": "k",
                    "clientCAFile": "ca",
                    "allowedClients": ["a", ""],
                }
            },
            "server.tls.allowedClients[1]",
            id="a client without a name",
        ),
        pytest.param(
            "server",
            {"host": "0.0.0.0"},
            "server.host",
            id="open to all without client certificates",
        ),
        pytest.param(
            "server",
            {"host": "", "tls": {"certFile": "c", "keyFile": "k"}},
            "server.host",
            id="any host",
        ),
        pytest.param(
            "schedule",
            {"port": 1},
            "schedule.tls.certFile",
            id="controllers without TLS",
        ),
        pytest.param(
            "schedule",
            {"port": 1, "tls": CERTIFICATE},
            "schedule.allowedServiceAccounts",
            id="open to all controllers",
        ),
        pytest.param(
            "schedule",
            {"port": 1, "tls": {**CERTIFICATE, "clientCAFile": "ca"}},
            "schedule.tls.allowedClients",
            id="open to all certificates",
        ),
        pytest.param(
            "schedule",
            {"allowedServiceAccounts": ["knative-eventing"]},
            "schedule.allowedServiceAccounts[0]",
            id="an account without its namespace",
        ),
        pytest.param(
            "schedule",
            {"audience": ""},
            "schedule.audience",
            id="tokens for any server",
        ),
        pytest.param(
            "schedule",
            {"port": 10261, "tls": CERTIFICATE, "allowedServiceAccounts": ["a/b"]},
            "schedule.port",
            id="the extender's port",
        ),
        pytest.param("adapters", {"port": 1}, "adapters.tls.certFile", id="adapters without TLS"),
        pytest.param(
            "adapters", {"tls": {"certFile": "c"}}, "adapters.tls", id="a certificate without a key"
        ),
        pytest.param(
            "adapters",
            {"allowedServiceAccounts": ["router"]},
            "adapters.allowedServiceAccounts[0]",
            id="a router's account without its namespace",
        ),
        pytest.param("adapters", {"audience": ""}, "adapters.audience", id="adapters' tokens"),
        pytest.param(
            "adapters",
            {"port": 10261, "tls": CERTIFICATE},
            "adapters.port",
            id="adapters on the extender's port",
        ),
        pytest.param(
            "pools",
            {"namespaces": ["adapters", "Adapters"]},
            "pools.namespaces[1]",
            id="a namespace with capitals",
        ),
        pytest.param(
            "pools",
            {"namespaces": ["adapters/dispatcher"]},
            "pools.namespaces[0]",
            id="a pool for a namespace",
        ),
        pytest.param(
            "leaderElection",
            {"leaseDurationSeconds": 10},
            "leaderElection.leaseDurationSeconds",
            id="lease <= renew",
        ),
        pytest.param(
            "leaderElection",
            {"retryPeriodSeconds": 9},
            "leaderElection.renewDeadlineSeconds",
            id="renew <= 1.2 retry",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(section, fields, named):
    with pytest.raises(InvalidObject) as caught:
        config_from({**HEAD, section: fields})
    assert caught.value.field == named


def test_the_namespaces_of_pools_are_a_set_and_none_means_all():
    named = config_from({**HEAD, "pools": {"namespaces": ["b", "a", "b"]}})
    assert named.pool_namespaces == {"a", "b"}
    assert config_from({**HEAD, "pools": {"namespaces": []}}).pool_namespaces == frozenset()


def test_beyond_loopback_without_tls_is_for_those_who_say_that_it_is_insecure():
    assert config_from({**HEAD, "server": {"host": "0.0.0.0", "insecure": True}}).server.insecure


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(b"a: [", "is not YAML", id="not YAML"),
        pytest.param(b"\xff\xfe\xff", "is not YAML", id="not text"),
        pytest.param(b"a: 2024-13-45", "is not YAML", id="no such day"),
        pytest.param(b"a: " + b"[" * 1000, "is not YAML", id="very deep"),
        pytest.param(
            b"a: 1\n---\nb: 2\n", "expected a single document, found 2", id="two documents"
        ),
        pytest.param(b"", "apiVersion", id="empty"),
        pytest.param(b"- a", "must be a mapping", id="a list"),
        pytest.param(b"a" * 200, "must be a mapping", id="a word"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line(tmp_path, text, problem):
    path = tmp_path / "c.yaml"
    path.write_bytes(text)
    with pytest.raises(InvalidObject, match=problem) as caught:
        load_config(str(path))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(InvalidObject, match=r"nowhere.yaml: cannot be read"):
        load_config("nowhere.yaml")


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(document, "CONFIG_BYTES_MAX", 10)
    path = tmp_path / "c.yaml"
    path.write_text("apiVersion: x")
    with pytest.raises(InvalidObject, match="larger than"):
        load_config(str(path))


def test_a_good_file_is_read(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(HEAD))
    assert load_config(str(path)) == Config()
