"""Who may connect to the extender: TLS versions, client certificates, names; and what is told of
their ends.
"""

import ssl
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from extender.config.model import ServerConfig, TlsConfig
from extender.kube.serving import tls
from extender.kube.serving.tls import server_context
from tests.service.authority import Authority, client_context, only_old_tls
from tests.service.http.test_server import NODES, serving
from tests.support.service import World, filter_args


async def test_with_a_client_ca_only_its_clients_are_served(tmp_path: Path):
    authority, stranger = Authority(tmp_path, "ca"), Authority(tmp_path, "stranger")
    cert_file, key_file = authority.issue("serving")
    tls = TlsConfig(cert_file=cert_file, key_file=key_file, client_ca_file=str(authority.file))
    world = await World.create()
    await world.pod(0)
    body = filter_args(await world.pod_object(0), NODES)
    async with serving(world, tls=tls) as it:
        assert it.server.url.startswith("https://")
        good = client_context(authority, authority.issue("kube-scheduler"))
        assert (await it.post("filter", body, ssl=good))[0] == 200
        for certificate in (None, stranger.issue("somebody")):
            context = client_context(authority, certificate)
            with pytest.raises(aiohttp.ClientError):
                await it.post("filter", body, ssl=context)


def closed_to_all_but(authority: Authority, *allowed: str) -> TlsConfig:
    cert_file, key_file = authority.issue("serving")
    return TlsConfig(
        cert_file=cert_file,
        key_file=key_file,
        client_ca_file=str(authority.file),
        allowed_clients=allowed,
    )


@pytest.mark.parametrize(
    ("allowed", "common_name", "status"),
    [
        pytest.param("kube-scheduler", "kube-scheduler", 200, id="its common name is on the list"),
        pytest.param("localhost", "anybody", 200, id="its subjectAltName is on the list"),
        pytest.param("kube-scheduler", "somebody", 403, id="neither is"),
        pytest.param("kube-scheduler", "kube-scheduler2", 403, id="a longer name"),
    ],
)
async def test_of_the_clients_of_the_ca_only_those_on_the_list_are_served(
    tmp_path: Path, allowed: str, common_name: str, status: int
):
    authority = Authority(tmp_path, "ca")
    world = await World.create()
    await world.pod(0)
    body = filter_args(await world.pod_object(0), NODES)
    context = client_context(authority, authority.issue(common_name))
    async with serving(world, tls=closed_to_all_but(authority, allowed)) as it:
        got, text = await it.post("filter", body, ssl=context)
        async with it.session.get(f"{it.server.url}/state.json", ssl=context) as reply:
            assert (got, reply.status) == (status, status)
        assert ("allowedClients" in text) is (status == 403)


async def test_a_list_of_clients_that_changes_at_work_holds_for_connections_that_are_open(
    tmp_path: Path,
):
    authority = Authority(tmp_path, "ca")
    world = await World.create()
    await world.pod(0)
    body = filter_args(await world.pod_object(0), NODES)
    context = client_context(authority, authority.issue("kube-scheduler"))
    config = closed_to_all_but(authority, "kube-scheduler")
    async with serving(world, tls=config) as it:
        assert (await it.post("filter", body, ssl=context))[0] == 200
        for allowed, status in (("somebody", 403), ("kube-scheduler", 200)):
            it.server.reconfigure(
                ServerConfig(port=0, tls=replace(config, allowed_clients=(allowed,)))
            )
            assert (await it.post("filter", body, ssl=context))[0] == status


@pytest.mark.parametrize("refuses", [False, True])
async def test_tls_1_1_is_refused(tmp_path: Path, refuses: bool, monkeypatch: pytest.MonkeyPatch):
    """The control shows that the client can: it is served where the minimum is lowered."""
    authority = Authority(tmp_path, "ca")
    client = only_old_tls(client_context(authority, authority.issue("kube-scheduler")))
    world = await World.create()
    if not refuses:
        monkeypatch.setattr(tls, "server_context", lambda: only_old_tls(server_context()))
    async with serving(world, tls=closed_to_all_but(authority, "kube-scheduler")) as it:
        asked = it.session.get(f"{it.server.url}/livez", ssl=client)
        if refuses:
            with pytest.raises(aiohttp.ClientConnectorError):
                await asked
        else:
            async with asked as reply:
                assert reply.status == 200


def end_of(file: str) -> float:
    return x509.load_pem_x509_certificate(Path(file).read_bytes()).not_valid_after_utc.timestamp()


async def test_the_ends_of_the_certificates_in_use_are_metrics_kube_schedulers_too(tmp_path: Path):
    authority = Authority(tmp_path, "ca")
    world = await World.create()
    client = authority.issue("kube-scheduler")
    tls_config = closed_to_all_but(authority, "kube-scheduler", "another")
    async with serving(world, tls=tls_config) as it:
        name = "vreplica_scheduler_client_certificate_expiry_timestamp_seconds"
        url = f"{it.server.url}/metrics"
        async with it.session.get(
            url, ssl=client_context(authority, authority.issue("stranger"))
        ) as reply:
            assert reply.status == 403
        async with it.session.get(url, ssl=client_context(authority, client)) as reply:
            text = await reply.text()
    ends = {
        line.split()[0]: float(line.split()[1])
        for line in text.splitlines()
        if line.startswith(name)
    }
    assert ends == {f'{name}{{client="kube-scheduler"}}': end_of(client[0])}
    ours = "vreplica_scheduler_certificate_expiry_timestamp_seconds"
    for certificate, file in (
        ("serving", tls_config.cert_file),
        ("client_ca", tls_config.client_ca_file),
    ):
        (line,) = (
            each
            for each in text.splitlines()
            if each.startswith(f'{ours}{{certificate="{certificate}"')
        )
        assert float(line.split()[1]) == end_of(file)


async def test_a_client_ca_that_is_taken_away_is_trusted_no_more_and_connections_that_exist_go_on(
    tmp_path: Path,
):
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    trusted = tmp_path / "clients.crt"
    trusted.write_bytes(old.pem + new.pem)
    cert_file, key_file = old.issue("serving")
    config = TlsConfig(cert_file=cert_file, key_file=key_file, client_ca_file=str(trusted))
    of_old, of_new = (client_context(old, each.issue(f"{each.name}-client")) for each in (old, new))
    world = await World.create()
    async with serving(world, tls=config) as it:
        url = f"{it.server.url}/livez"

        async def is_served(context: ssl.SSLContext) -> bool:
            connector = aiohttp.TCPConnector(force_close=True)
            async with aiohttp.ClientSession(connector=connector) as session:
                try:
                    async with session.get(url, ssl=context) as reply:
                        return reply.status == 200
                except aiohttp.ClientError:
                    return False

        assert (await is_served(of_old), await is_served(of_new)) == (True, True)
        async with it.session.get(url, ssl=of_old) as reply:
            assert reply.status == 200
        trusted.write_bytes(new.pem)
        assert it.server.certificate is not None
        it.server.certificate.look()
        assert (await is_served(of_old), await is_served(of_new)) == (False, True)
        async with it.session.get(url, ssl=of_old) as reply:  # the connection that it has
            assert reply.status == 200


async def test_beyond_loopback_without_tls_it_warns_loudly(caplog: pytest.LogCaptureFixture):
    world = await World.create()
    async with serving(world, host="0.0.0.0", insecure=True):
        assert "INSECURE: the extender is served without TLS on 0.0.0.0" in caplog.text


async def test_probes_without_a_certificate_find_health_and_metrics_on_loopback_and_nothing_else(
    tmp_path: Path, unused_tcp_port: int
):
    authority = Authority(tmp_path, "ca")
    world = await World.create()
    tls_config = closed_to_all_but(authority, "kube-scheduler")
    async with serving(world, tls=tls_config, health_port=unused_tcp_port) as it:
        found = {}
        for path in ("/livez", "/healthz", "/readyz", "/metrics", "/state.json", "/v1/bind"):
            async with it.session.get(it.server.health_url + path) as reply:
                found[path] = reply.status
    assert [path for path, status in found.items() if status == 200] == [
        "/livez",
        "/healthz",
        "/readyz",
        "/metrics",
    ]
    assert found["/v1/bind"] == 404


async def test_a_health_port_without_metrics_answers_health_and_nothing_else(
    unused_tcp_port: int,
):
    world = await World.create()
    options = {"health_port": unused_tcp_port, "health_metrics": False}
    async with serving(world, **options) as it:
        for path in ("/livez", "/healthz", "/readyz"):
            async with it.session.get(it.server.health_url + path) as reply:
                assert (reply.status, await reply.text()) == (200, "ok\n")
        for path in ("/metrics", "/state.json", "/v1/explain", "/ui", "/v1/stream"):
            async with it.session.get(it.server.health_url + path) as reply:
                assert reply.status == 404, path
        for verb in ("bind", "filter", "schedule"):
            async with it.session.post(f"{it.server.health_url}/v1/{verb}", json={}) as reply:
                assert reply.status == 404, verb
        async with it.session.get(it.server.url + "/metrics") as reply:
            assert reply.status == 200, "where the verbs are"


async def test_health_and_metrics_are_served_to_a_scraper_and_the_verbs_stay_on_loopback(
    unused_tcp_port: int,
):
    world = await World.create()
    async with serving(world, health_port=unused_tcp_port, health_host="127.0.0.2") as it:
        assert it.server.health_url == f"http://127.0.0.2:{unused_tcp_port}"
        async with it.session.get(it.server.health_url + "/metrics") as reply:
            assert reply.status == 200
        async with it.session.post(it.server.health_url + "/v1/bind", json={}) as reply:
            assert reply.status == 404
        assert it.server.url.startswith("http://127.0.0.1:")
        with pytest.raises(aiohttp.ClientConnectorError):
            await it.session.get(f"http://127.0.0.1:{unused_tcp_port}/metrics")
