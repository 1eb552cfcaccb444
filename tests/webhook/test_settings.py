import os
from pathlib import Path

import pytest

from webhook.cli import main
from webhook.mutate import Stamp
from webhook.settings import Settings, SettingsError, parser, settings_from
from webhook.validate import DEFAULT_WRITERS


def settings(*arguments: str) -> Settings:
    return settings_from(parser().parse_args(["--cert-dir", "certs", *arguments]))


def config(tmp_path: Path, text: str) -> str:
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.vreplica.dev/v1alpha1\nkind: VReplicaSchedulerConfiguration\n" + text
    )
    return str(file)


def test_defaults():
    got = settings()
    assert (got.port, got.cert_dir, got.secret) == (8443, "certs", None)
    assert got.stamp == Stamp("vreplica-scheduler", slots_resource=False)
    assert got.rules.writers == DEFAULT_WRITERS
    assert got.hosts == (
        "vreplica-webhook.vreplica-system.svc",
        "vreplica-webhook.vreplica-system.svc.cluster.local",
    )


@pytest.mark.parametrize(
    ("text", "options", "requested"),
    [
        pytest.param("", [], False, id="neither"),
        pytest.param("slotsResource: true\n", [], True, id="the file"),
        pytest.param("slotsResource: false\n", ["--slots-resource"], True, id="the option"),
    ],
)
def test_pods_request_the_resource_where_the_file_or_the_option_says_so(
    tmp_path, text, options, requested
):
    assert settings("--config", config(tmp_path, text), *options).stamp.slots_resource is requested


def test_accounts_are_named_short_or_in_full():
    got = settings(
        "--service-account",
        "ns/one",
        "system:serviceaccount:ns:two",
        "--service-account",
        "ns/three",
    )
    assert got.rules.writers == {
        f"system:serviceaccount:ns:{name}" for name in ("one", "two", "three")
    }


@pytest.mark.parametrize(
    ("options", "name"),
    [([], "vreplica-scheduler"), (["--registration", "blue"], "blue")],
)
def test_the_registrations_have_the_name_that_is_given(options: list[str], name: str):
    assert settings(*options).registration == name


def test_the_certificate_is_also_for_the_host_of_the_url():
    assert settings("--url", "https://127.0.0.1:9443").hosts[-1] == "127.0.0.1"


def test_a_certificate_of_somebody_elses_is_two_files():
    options = parser().parse_args(
        ["--tls-cert-file", "/tls/tls.crt", "--tls-private-key-file", "/tls/tls.key"]
    )
    got = settings_from(options)
    assert (got.cert_files, got.cert_dir, got.secret) == (
        ("/tls/tls.crt", "/tls/tls.key"),
        "",
        None,
    )
    with pytest.raises(SettingsError, match="must be set together"):
        settings_from(parser().parse_args(["--tls-cert-file", "/tls/tls.crt"]))
    with pytest.raises(SettingsError, match="must be set together"):
        settings("--tls-private-key-file", "/tls/tls.key")


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_directory_that_cannot_be_written_holds_somebody_elses_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_writable: bool
):
    # A mounted Secret is a read-only file system; root may write into any other directory.
    monkeypatch.setattr(os, "access", lambda path, mode: is_writable)
    got = settings_from(parser().parse_args(["--cert-dir", str(tmp_path)]))
    if is_writable:
        assert (got.cert_dir, got.cert_files) == (str(tmp_path), None)
    else:
        assert (got.cert_dir, got.cert_files) == (
            "",
            (f"{tmp_path}/tls.crt", f"{tmp_path}/tls.key"),
        )


def test_the_services_configuration_file_gives_the_connection(tmp_path):
    file = config(
        tmp_path,
        "clientConnection: {kubeconfig: /k, context: c, qps: 7, burst: 9}\n",
    )
    got = settings("--config", file)
    assert (got.kubeconfig, got.context, got.qps, got.burst) == ("/k", "c", 7.0, 9)
    assert settings("--config", file, "--kubeconfig", "/other").kubeconfig == "/other"


@pytest.mark.parametrize(
    ("text", "lease"),
    [
        ("leaderElection: {resourceNamespace: n, resourceName: l}\n", ("n", "l")),
        ("leaderElection: {leaderElect: false}\n", None),
    ],
)
def test_the_lease_of_the_configuration_file_says_whether_anybody_leads(tmp_path, text, lease):
    assert settings("--config", config(tmp_path, text)).lease == lease


def test_without_a_configuration_file_no_lease_is_read():
    assert settings().lease is None


def test_the_profiles_of_the_configuration_file_are_known_beside_the_built_in_ones(tmp_path):
    got = settings("--config", config(tmp_path, "profiles: [{name: nightly}]\n"))
    assert {"default", "nightly"} <= got.rules.profiles


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("server: [", "config.yaml", id="no YAML"),
        pytest.param("kind: Other\n", "kind: occurs twice, first on line 2", id="another kind"),
        pytest.param("clientConnection: 7\n", "clientConnection", id="no mapping"),
        pytest.param(
            "profiles: {name: x}\n", "profiles: must be a list", id="profiles that are no list"
        ),
        pytest.param("clientConnection: {qps: many}\n", "many", id="no number"),
        pytest.param(
            "clientConection: {qps: 5}\n", "did you mean clientConnection", id="a typing error"
        ),
        pytest.param("clientConnection: {}x\n", "config.yaml", id="broken"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, text, says):
    with pytest.raises(SettingsError, match=says):
        settings("--config", config(tmp_path, text))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["--cert-dir", "d", "--url", "http://x:1"], "--url http://x:1", id="no https"),
        pytest.param(
            ["--secret", "name"], "--secret name: expected NAMESPACE/NAME", id="no namespace"
        ),
        pytest.param(
            ["--cert-dir", "d", "--service", "a/b/c"], "--service a/b/c", id="too many parts"
        ),
        pytest.param(
            ["--cert-dir", "d", "--config", "/does/not/exist"], "/does/not/exist", id="no file"
        ),
    ],
)
def test_wrong_settings_end_with_2_and_one_line(capsys, arguments, says):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_whoever_renews_a_certificate_of_somebody_elses_is_not_us():
    files = ["--tls-cert-file", "/tls/tls.crt", "--tls-private-key-file", "/tls/tls.key"]
    with pytest.raises(SettingsError, match="--upkeep=only"):
        settings_from(parser().parse_args([*files, "--upkeep=only"]))
    assert settings("--upkeep=only").upkeep == "only"
    with pytest.raises(SettingsError, match=r"--ca-config-map.*--upkeep=only"):
        settings("--ca-config-map=callers/ca")
    named = settings("--upkeep=only", "--ca-config-map=a/ca", "--ca-config-map=b/ca")
    assert named.ca_config_maps == (("a", "ca"), ("b", "ca"))
    assert settings().upkeep == "own"
