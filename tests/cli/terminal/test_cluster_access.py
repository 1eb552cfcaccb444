import argparse
from pathlib import Path

import pytest

from extender.cli.terminal.cluster_access import (
    ClusterAccess,
    access_of,
    add_cluster_options,
    open_cluster,
)
from extender.kube import access as access_module
from extender.kube.api import PODS, ConnectError
from extender.kube.read_only import WriteRefused

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: home
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts:
- {name: home, context: {cluster: c, user: u}}
- {name: work, context: {cluster: c, user: u, namespace: team-a}}
"""


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return path


def access(*arguments: str) -> ClusterAccess:
    parser = argparse.ArgumentParser()
    add_cluster_options(parser)
    return access_of(parser.parse_args(arguments))


@pytest.mark.parametrize(
    ("arguments", "namespace"),
    [
        pytest.param((), "default", id="a context without one"),
        pytest.param(("--context", "work"), "team-a", id="the context's"),
        pytest.param(("--context", "work", "-n", "team-b"), "team-b", id="the option comes first"),
    ],
)
async def test_the_namespace_is_the_one_that_kubectl_would_take(
    kubeconfig: Path, arguments: tuple[str, ...], namespace: str
):
    async with open_cluster(access("--kubeconfig", str(kubeconfig), *arguments)) as cluster:
        assert cluster.namespace == namespace


async def test_the_environment_says_where_the_kubeconfig_is(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
):
    other = kubeconfig.with_name("other")
    other.write_text("apiVersion: v1\nkind: Config\ncurrent-context: work\n")
    monkeypatch.setenv("KUBECONFIG", f"{other}:{kubeconfig}")
    async with open_cluster(access()) as cluster:
        assert cluster.namespace == "team-a", (
            "of several files the first that says something counts"
        )


async def test_in_a_pod_it_is_the_service_accounts(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
):
    token = kubeconfig.with_name("token")
    token.write_text("secret")
    kubeconfig.with_name("namespace").write_text("team-c\n")
    monkeypatch.setattr(access_module, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(access_module, "_in_cluster", _in_cluster)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    async with open_cluster(access()) as cluster:
        assert cluster.namespace == "team-c"


def _in_cluster(*, client_configuration, **_) -> None:
    client_configuration.host = "http://127.0.0.1:1"


async def test_a_question_cannot_write(kubeconfig: Path):
    async with open_cluster(access("--kubeconfig", str(kubeconfig))) as cluster:
        with pytest.raises(WriteRefused):
            await cluster.api.delete(PODS, "default", "a")


async def test_without_a_cluster_it_says_what_was_looked_for(kubeconfig: Path):
    with pytest.raises(ConnectError, match=r"no kubeconfig given, .*config does not exist"):
        async with open_cluster(access()):
            pass
