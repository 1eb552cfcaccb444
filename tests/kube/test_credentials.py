"""What changes on disk, or with an exec plugin, while we run: used without a restart, and never at
the cost of a request.
"""

import asyncio
import json
import os
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from extender.kube import connection
from extender.kube.api import PODS, ApiError
from extender.kube.client import KubeApi
from extender.kube.connection import open_connection
from tests.e2e.waiting import eventually
from tests.kube.apiserver import ApiServer, answer, kubeconfig, serve, status
from tests.service.authority import Authority

OBJ = {"metadata": {"name": "a"}}
FAR = "2999-01-01T00:00:00Z"
UNAUTHORIZED = status(401, "Unauthorized")


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is looked at again with each request."""
    monkeypatch.setattr(connection, "REFRESH_PERIOD_S", 0.0)


class Plugin:
    """An exec plugin: token ``token-N`` of its N-th run, good for centuries."""

    def __init__(self, folder: Path) -> None:
        self._runs = folder / "runs"
        self._script = folder / "plugin.py"
        self._script.write_text(
            "import json, pathlib\n"
            f"runs = pathlib.Path({str(self._runs)!r})\n"
            "count = len(runs.read_text()) + 1 if runs.exists() else 1\n"
            "runs.write_text('x' * count)\n"
            "status = {'token': f'token-{count}', 'expirationTimestamp': '" + FAR + "'}\n"
            "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': "
            "'ExecCredential', 'status': status}))\n"
        )

    @property
    def user(self) -> dict[str, Any]:
        return {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": ["-S", str(self._script)],
            }
        }

    @property
    def runs(self) -> int:
        return len(self._runs.read_text())


async def test_a_401_runs_an_exec_plugin_again_whatever_time_its_token_was_good_for(tmp_path: Path):
    plugin = Plugin(tmp_path)
    async with serve(ApiServer([answer(OBJ), UNAUTHORIZED, answer(OBJ)])) as server:
        path = kubeconfig(tmp_path, server.url, user=plugin.user)
        async with await KubeApi.connect(kubeconfig=path) as api:
            await api.get(PODS, "ns", "a")
            assert await api.create(PODS, "ns", OBJ) == OBJ
    tokens = [seen.headers["Authorization"] for seen in server.seen]
    assert tokens == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]
    assert plugin.runs == 2


async def test_an_exec_plugin_that_hangs_ends_with_the_refresh_that_waited_for_it(
    tmp_path: Path, at_once: None
):
    script, hangs = tmp_path / "plugin.sh", tmp_path / "hangs"
    script.write_text(
        # The pause: asyncio itself ends a process whose start is cancelled.
        f"if [ -e {hangs} ]; then sleep 0.2; echo $$ >> {hangs}; exec sleep 600; fi\n"
        'echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
        '"status": {"token": "t", "expirationTimestamp": "2000-01-01T00:00:00Z"}}\'\n'
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": [str(script)],
    }
    path = kubeconfig(tmp_path, "http://x:1", user={"exec": plugin})
    found = await open_connection(kubeconfig=path)
    hangs.touch()
    found.credentials.access()

    async def started() -> int:
        return int(hangs.read_text() or "0")

    async def is_gone() -> bool:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        return False

    process = await eventually(started, 15.0, "the plug-in hangs")
    await found.close()
    try:
        await eventually(is_gone, 5.0, "the plug-in is gone")
    except TimeoutError:
        os.kill(process, signal.SIGKILL)
        raise


async def test_an_exec_plugins_token_that_is_still_good_is_kept(tmp_path: Path, at_once: None):
    plugin = Plugin(tmp_path)
    async with serve(ApiServer([answer(OBJ)])) as server:
        path = kubeconfig(tmp_path, server.url, user=plugin.user)
        async with await KubeApi.connect(kubeconfig=path) as api:
            for _ in range(5):
                await api.get(PODS, "ns", "a")
    assert plugin.runs == 1


async def test_requests_that_get_a_401_together_run_an_exec_plugin_once(tmp_path: Path):
    plugin = Plugin(tmp_path)

    async def only_the_second(request: Any) -> Any:
        good = request.headers["Authorization"] == "Bearer token-2"
        return await (answer(OBJ) if good else UNAUTHORIZED)(request)

    async with serve(ApiServer([only_the_second])) as server:
        path = kubeconfig(tmp_path, server.url, user=plugin.user)
        async with await KubeApi.connect(kubeconfig=path) as api:
            await asyncio.gather(*(api.create(PODS, "ns", OBJ) for _ in range(20)))
    assert plugin.runs == 2


async def test_a_401_to_a_token_that_has_been_replaced_meanwhile_asks_nobody(tmp_path: Path):
    plugin = Plugin(tmp_path)
    found = await open_connection(kubeconfig=kubeconfig(tmp_path, "http://x:1", user=plugin.user))
    old = found.credentials.access()
    assert await found.credentials.renew(old)
    assert await found.credentials.renew(old)
    assert plugin.runs == 2
    await found.close()


async def test_a_401_during_a_refresh_in_the_background_runs_an_exec_plugin_again_all_the_same(
    tmp_path: Path, at_once: None
):
    plugin = Plugin(tmp_path)
    found = await open_connection(kubeconfig=kubeconfig(tmp_path, "http://x:1", user=plugin.user))
    refused = found.credentials.access()
    assert await found.credentials.renew(refused)
    assert plugin.runs == 2
    await found.close()


async def test_a_credential_that_nothing_cures_is_not_looked_for_again_and_again(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("old")
    loads = 0
    async with serve(ApiServer([UNAUTHORIZED])) as server:
        path = kubeconfig(tmp_path, server.url, user={"tokenFile": str(token)})
        found = await open_connection(kubeconfig=path)
        load = found.credentials._read

        async def counted(*, force_refresh: bool) -> Any:
            nonlocal loads
            loads += 1
            return await load(force_refresh=force_refresh)

        found.credentials._read = counted
        for _ in range(50):
            assert not await found.credentials.renew(found.credentials.access())
        await found.close()
    assert loads == 1


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(aiohttp.ClientConnectionError("no identity provider"), id="aiohttp"),
        pytest.param(RuntimeError("no output"), id="plugin"),
        pytest.param(AttributeError("None has no"), id="odd kubeconfig"),
    ],
)
async def test_whatever_a_renewal_dies_of_the_request_is_told_401(tmp_path: Path, error: Exception):
    async with serve(ApiServer([UNAUTHORIZED])) as server:
        path = kubeconfig(tmp_path, server.url, user={"token": "t"})
        async with await KubeApi.connect(kubeconfig=path) as api:

            async def fail(*, force_refresh: bool) -> Any:
                raise error

            api._transport._connection.credentials._read = fail
            with pytest.raises(ApiError, match="401"):
                await api.create(PODS, "ns", OBJ)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def copy(source: str, path: Path) -> Path:
    return write(path, Path(source).read_bytes())


def authority(folder: Path, name: str) -> Authority:
    folder.mkdir(exist_ok=True)
    return Authority(folder, name)


def by_certificate(folder: Path, server: ApiServer, ours: Authority, cert: Path, key: Path) -> str:
    """A kubeconfig of a user with a client certificate, at files that may change."""
    return kubeconfig(
        folder,
        server.url.replace("127.0.0.1", "localhost"),
        user={"client-certificate": str(cert), "client-key": str(key)},
        cluster={"certificate-authority": str(write(folder / "ca.crt", ours.pem))},
    )


def server_tls(server: Authority, clients: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*server.issue("localhost"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=clients.pem.decode())
    return context


async def test_a_client_certificate_that_is_renewed_on_disk_is_used_for_new_connections(
    tmp_path: Path, at_once: None
):
    ours = authority(tmp_path / "ca", "ca")
    cert, key = tmp_path / "client.crt", tmp_path / "client.key"

    def put(name: str) -> None:
        made = ours.issue(name)
        copy(made[0], cert)
        copy(made[1], key)

    names: list[str] = []

    async def note(request: Any) -> Any:
        names.append(request.get_extra_info("peercert")["subject"][-1][0][1])
        return await answer(OBJ)(request)

    put("first")
    async with serve(ApiServer([note]), server_tls(ours, ours)) as server:
        path = by_certificate(tmp_path, server, ours, cert, key)
        async with await KubeApi.connect(kubeconfig=path) as api:
            await api.get(PODS, "ns", "a")
            put("second")
            for _ in range(10):
                await api.get(PODS, "ns", "a")
    assert names[0] == "first"
    assert names[-1] == "second"


async def test_a_certificate_whose_key_is_not_there_yet_leaves_the_old_pair_in_use(
    tmp_path: Path, at_once: None
):
    ours = authority(tmp_path / "ca", "ca")
    first, second = ours.issue("first"), ours.issue("second")
    cert = copy(first[0], tmp_path / "client.crt")
    key = copy(first[1], tmp_path / "client.key")
    async with serve(ApiServer([answer(OBJ)]), server_tls(ours, ours)) as server:
        path = by_certificate(tmp_path, server, ours, cert, key)
        async with await KubeApi.connect(kubeconfig=path) as api:
            await api.get(PODS, "ns", "a")
            before = api._transport._connection.credentials.access()
            copy(second[0], cert)
            for _ in range(5):
                await api.get(PODS, "ns", "a")
            assert api._transport._connection.credentials.access() is before
            copy(second[1], key)
            for _ in range(5):
                await api.get(PODS, "ns", "a")
            assert api._transport._connection.credentials.access() is not before


async def test_a_ca_that_changes_on_disk_is_trusted_by_the_very_request_that_misses_it(
    tmp_path: Path,
):
    old, new = authority(tmp_path / "old", "ca"), authority(tmp_path / "new", "ca")
    ca = write(tmp_path / "ca.crt", old.pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*new.issue("localhost"))
    async with serve(ApiServer([answer(OBJ)]), tls) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        path = kubeconfig(tmp_path, url, cluster={"certificate-authority": str(ca)})
        async with await KubeApi.connect(kubeconfig=path) as api:
            ca.write_bytes(new.pem)
            assert await api.get(PODS, "ns", "a") == OBJ


def switch_context(path: Path, *, token: str) -> None:
    """As ``kubectl config use-context``, to another cluster; and the user gets another token."""
    document = json.loads(path.read_text())
    document["users"][0]["user"]["token"] = token
    document["clusters"].append({"name": "other", "cluster": {"server": "http://other:1"}})
    document["contexts"].append({"name": "there", "context": {"cluster": "other", "user": "u"}})
    document["current-context"] = "there"
    path.write_text(json.dumps(document))


async def test_a_kubeconfig_that_changes_on_disk_is_used_and_its_context_stays_the_first_one(
    tmp_path: Path, at_once: None
):
    async with serve(ApiServer([answer(OBJ)])) as server:
        path = Path(kubeconfig(tmp_path, server.url, user={"token": "first"}))
        async with await KubeApi.connect(kubeconfig=str(path)) as api:
            await api.get(PODS, "ns", "a")
            switch_context(path, token="second")
            for _ in range(5):
                await api.get(PODS, "ns", "a")
            assert api.server == server.url
    assert [server.seen[0].headers["Authorization"], server.seen[-1].headers["Authorization"]] == [
        "Bearer first",
        "Bearer second",
    ]


async def test_a_kubeconfig_that_names_another_server_is_not_taken_before_a_restart(
    tmp_path: Path, at_once: None, caplog: pytest.LogCaptureFixture
):
    async with serve(ApiServer([answer(OBJ)])) as server:
        path = kubeconfig(tmp_path, server.url, user={"token": "first"})
        async with await KubeApi.connect(kubeconfig=path) as api:
            await api.get(PODS, "ns", "a")
            kubeconfig(tmp_path, "http://other:1", user={"token": "second"})
            for _ in range(5):
                await api.get(PODS, "ns", "a")
    assert {seen.headers["Authorization"] for seen in server.seen} == {"Bearer first"}
    assert "http://other:1" in caplog.text
    assert "restart" in caplog.text


async def test_a_kubeconfig_that_is_broken_for_a_moment_costs_no_request(
    tmp_path: Path, at_once: None
):
    async with serve(ApiServer([answer(OBJ)])) as server:
        path = Path(kubeconfig(tmp_path, server.url, user={"token": "first"}))
        async with await KubeApi.connect(kubeconfig=str(path)) as api:
            await api.get(PODS, "ns", "a")
            write(path, b"{")
            for _ in range(3):
                await api.get(PODS, "ns", "a")
            os.unlink(path)
            for _ in range(3):
                await api.get(PODS, "ns", "a")
            kubeconfig(tmp_path, server.url, user={"token": "second"})
            for _ in range(5):
                await api.get(PODS, "ns", "a")
    assert server.seen[-1].headers["Authorization"] == "Bearer second"
