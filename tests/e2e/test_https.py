"""kube-scheduler calls the extender over HTTPS with the shipped config-https.yaml, as the cluster's
own would.
"""

import shutil
import ssl
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.e2e.backend import Backend
from tests.e2e.objects import MANIFESTS, extender_at, load, write_json
from tests.e2e.processes import VENV_BIN, Probe, free_port
from tests.e2e.real import RealBackend
from tests.e2e.replica import Replica
from tests.e2e.scenario import SLOTS_PER_POD, Setup, System
from tests.e2e.waiting import NotYet, eventually
from tests.service.authority import Authority, client_context

CONFIG = MANIFESTS / "kube-scheduler" / "config-https.yaml"
SERVER_NAME: str = yaml.safe_load(CONFIG.read_text())["extenders"][0]["tlsConfig"]["serverName"]
CLIENT_NAME = "vreplica-kube-scheduler"


class HttpsSystem(System):
    """The installation beside a kube-scheduler that runs elsewhere: the extender beyond loopback,
    by TLS both ways.
    """

    def __init__(self, backend: Backend, directory: Path) -> None:
        super().__init__(backend, directory, Setup(slots_resource=True))
        self.authority = Authority(directory, "extender-ca")
        self.service_url = f"https://127.0.0.1:{free_port()}"
        self.clients_trusted = directory / "clients-trusted.crt"
        self.clients_trusted.write_bytes(self.authority.pem)
        self.client = self.authority.issue(CLIENT_NAME)
        self.tls = client_context(self.authority, self.client)

    async def _start_schedulers(self) -> None:
        (config,) = load(CONFIG)
        config = extender_at(config, self.service_url)
        (extender,) = config["extenders"]
        certificate, key = self.client
        extender["tlsConfig"] |= {
            "caFile": str(self.authority.file),
            "certFile": certificate,
            "keyFile": key,
        }
        assert (extender["tlsConfig"]["insecure"], extender["enableHTTPS"]) == (False, True)
        await self.backend.start_scheduler(config)

    async def replica(self, url: str = "") -> Replica:
        plain = await super().replica(url)
        config = yaml.safe_load(plain.config.read_text())
        certificate, key = self.authority.issue("serving", SERVER_NAME)
        config["server"] |= {
            "host": "0.0.0.0",
            "tls": {
                "certFile": certificate,
                "keyFile": key,
                "clientCAFile": str(self.clients_trusted),
                "allowedClients": [CLIENT_NAME],
            },
        }
        return Replica(write_json(plain.config, config), plain.url, self.tls)

    async def start(self, replica: Replica) -> None:
        command: list[str | Path] = [
            VENV_BIN / "vreplica",
            "--log-level",
            "info",
            "serve",
            "--config",
            replica.config,
        ]
        replica.process = self.backend.processes.start("service", command)
        await replica.process.ready(Probe(f"{replica.url}/readyz", self.tls))


async def test_pods_are_bound_with_their_vreplicas_over_https_and_strangers_are_kept_out(
    backend: Backend, tmp_path: Path
):
    async with HttpsSystem(backend, tmp_path) as system:
        await backend.add_nodes(3)
        await system.pool()
        tenant = await system.vpods(5, 8)
        adapters = await system.settled(pods=2)
        assert (
            sum(share.vreplicas for adapter in adapters for share in adapter.ledger.values()) == 40
        )
        requests = await system.requests()
        assert requests["filter"] >= 2
        assert requests["prioritize"] >= 2
        assert requests["bind"] >= 2
        await _strangers(system)
        await system.want(tenant, "source-0", 8 + SLOTS_PER_POD)
        await system.settled(pods=3)
        assert (await system.requests())["bind"] >= 3


async def test_kube_schedulers_client_certificate_and_its_ca_are_replaced_without_restarting_it(
    real: RealBackend, tmp_path: Path
):
    """It reads its certificate anew for each connection, and what it had is trusted no more once
    its CA is taken away.
    """
    async with HttpsSystem(real, tmp_path) as system:
        await real.add_nodes(3)
        await system.pool()
        tenant = await system.vpods(5, 8)
        await system.settled(pods=2)
        old = client_context(system.authority, system.client)
        other = tmp_path / "other"
        other.mkdir()
        authority = Authority(other, "other-ca")
        certificate = authority.issue(CLIENT_NAME)
        system.clients_trusted.write_bytes(system.authority.pem + authority.pem)
        # Its connection ends with the service; the next one is made with the new certificate.
        assert system.service.process is not None
        await system.service.process.kill()
        for new, file in zip(certificate, system.client, strict=True):
            shutil.copy(new, file)
        system.tls = client_context(system.authority, certificate)
        system.service.tls = system.tls
        await system.start(system.service)
        assert await _is_served(system, old)
        system.clients_trusted.write_bytes(authority.pem)
        await eventually(lambda: _is_refused(system, old), 20.0, "the old CA is trusted no more")
        await system.want(tenant, "source-0", 8 + SLOTS_PER_POD)
        await system.settled(pods=3)
        assert (await system.requests())["bind"] >= 1


async def _is_served(system: HttpsSystem, tls: ssl.SSLContext) -> bool:
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
            session.get(f"{system.service_url}/livez", ssl=tls) as reply,
        ):
            return reply.status == 200
    except aiohttp.ClientError:
        return False


async def _is_refused(system: HttpsSystem, tls: ssl.SSLContext) -> bool:
    if await _is_served(system, tls):
        raise NotYet("still served")
    return True


async def _strangers(system: HttpsSystem) -> None:
    other = client_context(system.authority, system.authority.issue("somebody-else"))
    nobody = client_context(system.authority, None)
    foreign_authority = Authority(system.authority.folder, "another-ca")
    foreign = client_context(system.authority, foreign_authority.issue(CLIENT_NAME))
    body = {"PodName": "a", "PodNamespace": "b", "PodUID": "c", "Node": "d"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{system.service_url}/v1/bind", json=body, ssl=other) as reply:
            assert reply.status == 403, (
                "of the same authority, under a name that is not on the list"
            )
        for context in (nobody, foreign):
            with pytest.raises(aiohttp.ClientError):
                await session.post(f"{system.service_url}/v1/bind", json=body, ssl=context)
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"{system.service_url.replace('https', 'http')}/v1/bind", json=body)
