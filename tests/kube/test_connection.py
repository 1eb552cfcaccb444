import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kubernetes_asyncio.config import incluster_config

from extender.kube import connection
from extender.kube.api import PODS, ApiError, ConnectError, OutcomeUnknown
from extender.kube.client import KubeApi
from extender.kube.connection import open_connection
from tests.kube.apiserver import ApiServer, answer, kubeconfig, serve, status

OBJ = {"metadata": {"name": "a"}}


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "KUBERNETES_SERVICE_PORT",
        "HTTP_PROXY",
        "http_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for localhost with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "cert.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@pytest.mark.parametrize(
    ("cluster", "trusted"),
    [
        pytest.param({}, False, id="unknown CA"),
        pytest.param({"certificate-authority": "CERT"}, False, id="known CA, other name"),
        pytest.param(
            {"certificate-authority": "CERT", "tls-server-name": "localhost"},
            True,
            id="known CA and name",
        ),
        pytest.param({"insecure-skip-tls-verify": False}, False, id="told to verify"),
        pytest.param({"insecure-skip-tls-verify": True}, True, id="told not to verify"),
    ],
)
async def test_certificates_are_verified_unless_the_kubeconfig_says_otherwise(
    tmp_path: Path, certificate: Path, cluster: dict[str, Any], trusted: bool
):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    async with serve(ApiServer([answer(OBJ)]), tls) as server:
        known = {
            key: str(certificate) if value == "CERT" else value for key, value in cluster.items()
        }
        async with await KubeApi.connect(
            kubeconfig=kubeconfig(tmp_path, server.url, cluster=known)
        ) as api:
            if trusted:
                assert await api.get(PODS, "ns", "a") == OBJ
            else:
                with pytest.raises(OutcomeUnknown, match="ConnectionFailed"):
                    await api.get(PODS, "ns", "a")
    assert len(server.seen) == trusted


async def test_a_token_file_is_read_again_when_the_server_says_401(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("old\n")
    async with serve(ApiServer([status(401, "Unauthorized"), answer(OBJ)])) as server:
        path = kubeconfig(tmp_path, server.url, user={"tokenFile": str(token)})
        async with await KubeApi.connect(kubeconfig=path) as api:
            token.write_text("new\n")
            assert await api.create(PODS, "ns", OBJ) == OBJ
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]


async def test_a_401_that_no_fresh_token_cures_is_an_error(tmp_path: Path):
    async with serve(ApiServer([status(401, "Unauthorized")])) as server:
        path = kubeconfig(tmp_path, server.url, user={"token": "only"})
        async with await KubeApi.connect(kubeconfig=path) as api:
            with pytest.raises(ApiError, match="401"):
                await api.create(PODS, "ns", OBJ)
    assert len(server.seen) == 1


async def test_an_old_token_is_refreshed_while_requests_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection, "REFRESH_PERIOD_S", 0.0)
    token = tmp_path / "token"
    token.write_text("old")
    async with serve(ApiServer([answer(OBJ)])) as server:
        path = kubeconfig(tmp_path, server.url, user={"tokenFile": str(token)})
        async with await KubeApi.connect(kubeconfig=path) as api:
            token.write_text("new")
            await api.get(PODS, "ns", "a")
            await api.get(PODS, "ns", "a")
            token.unlink()
            await api.get(PODS, "ns", "a")
            await api.get(PODS, "ns", "a")
    tokens = [seen.headers["Authorization"] for seen in server.seen]
    assert tokens == ["Bearer old", "Bearer new", "Bearer new", "Bearer new"]


async def test_in_a_pod_its_service_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: Path
):
    (tmp_path / "token").write_text("sa\n")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(certificate))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = await open_connection()
    assert found.base_url == "https://[fd00::1]:443"
    assert found.credentials.access().authorization == "Bearer sa"
    (tmp_path / "token").write_text("next\n")
    assert await found.credentials.renew(found.credentials.access())
    assert found.credentials.access().authorization == "Bearer next"
    await found.close()


async def test_a_kubeconfig_named_by_the_environment_comes_before_the_pods_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, "http://named:1"))
    found = await open_connection()
    assert found.base_url == "http://named:1"
    await found.close()


async def test_a_proxy_of_the_environment_is_used_except_where_it_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inside")
    for host, proxy in {"outside": "http://proxy:3128", "inside": None}.items():
        found = await open_connection(kubeconfig=kubeconfig(tmp_path, f"http://{host}:1"))
        assert found.credentials.access().proxy == proxy
        await found.close()


@pytest.mark.parametrize(
    ("content", "context", "says"),
    [
        pytest.param(None, "", "no such file", id="no file"),
        pytest.param("[", "", "kubeconfig", id="not YAML"),
        pytest.param("just text", "", "kubeconfig", id="not a mapping"),
        pytest.param("", "", "kubeconfig", id="empty"),
        pytest.param("SERVERLESS", "", "no server", id="no server"),
        pytest.param("GOOD", "elsewhere", "elsewhere", id="no such context"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_a_clear_error(
    tmp_path: Path, content: str | None, context: str, says: str
):
    path = tmp_path / "kubeconfig"
    if content in {"GOOD", "SERVERLESS"}:
        kubeconfig(
            tmp_path, "http://x:1" if content == "GOOD" else "", cluster={"tls-server-name": "x"}
        )
    elif content is not None:
        path.write_text(content)
    with pytest.raises(ConnectError, match=says):
        await KubeApi.connect(kubeconfig=str(path), context=context)


async def test_with_nothing_to_be_found_it_says_what_is_missing():
    with pytest.raises(ConnectError, match="no kubeconfig given"):
        await KubeApi.connect()


async def test_closing_ends_a_refresh_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = await open_connection(kubeconfig=kubeconfig(tmp_path, "http://x:1"))

    async def hang(*, force_refresh: bool) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(found.credentials, "_read", hang)
    monkeypatch.setattr(connection, "REFRESH_PERIOD_S", 0.0)
    found.credentials.access()
    await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await found.close()
