"""Who may connect to the extender: TLS versions, client certificates, names; and certificates replaced while it runs."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from extender.service import tls
from extender.service.config import TlsConfig
from extender.service.tls import ServingCertificate, _context
from tests.service.authority import Authority, client_context, only_old_tls
from tests.service.test_server import NODES, serving
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
        cert_file=cert_file, key_file=key_file, client_ca_file=str(authority.file), allowed_clients=allowed
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


@pytest.mark.parametrize("refuses", [False, True])
async def test_tls_1_1_is_refused(tmp_path: Path, refuses: bool, monkeypatch: pytest.MonkeyPatch):
    """The control shows that the client can: it is served where the minimum is lowered."""
    authority = Authority(tmp_path, "ca")
    client = only_old_tls(client_context(authority, authority.issue("kube-scheduler")))
    world = await World.create()
    if not refuses:
        monkeypatch.setattr(tls, "_context", lambda config: only_old_tls(_context(config)))
    async with serving(world, tls=closed_to_all_but(authority, "kube-scheduler")) as it:
        asked = it.session.get(f"{it.server.url}/livez", ssl=client)
        if refuses:
            with pytest.raises(aiohttp.ClientConnectorError):
                await asked
        else:
            async with asked as reply:
                assert reply.status == 200


def copy(source: str, target: str) -> None:
    Path(target).write_bytes(Path(source).read_bytes())


def remove(name: str) -> None:
    Path(name).unlink()


async def test_a_certificate_that_is_replaced_is_served_and_half_of_one_changes_nothing(tmp_path: Path):
    authority = Authority(tmp_path, "ca")
    cert_file, key_file = authority.issue("serving")
    certificate = ServingCertificate(TlsConfig(cert_file=cert_file, key_file=key_file))
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=certificate.context)
    port = server.sockets[0].getsockname()[1]

    async def served() -> int:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_context(authority, None), server_hostname="localhost"
        )
        raw = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return x509.load_der_x509_certificate(raw).serial_number

    first = await served()
    assert not certificate.reload_if_changed()
    other_cert, other_key = authority.issue("other")
    copy(other_cert, cert_file)
    assert not certificate.reload_if_changed(), "the key is still the old one"
    assert await served() == first
    copy(other_key, key_file)
    assert certificate.reload_if_changed()
    assert await served() not in {first, 0}
    remove(cert_file)
    assert not certificate.reload_if_changed(), "gone for a moment"
    server.close()
    await server.wait_closed()


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
