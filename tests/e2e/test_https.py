"""kube-scheduler calls the extender over HTTPS with the shipped config-https.yaml, as the cluster's own would."""

import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.e2e.backend import Backend
from tests.e2e.objects import MANIFESTS, extender_at, load, write_json
from tests.e2e.processes import VENV_BIN, Probe, free_port
from tests.e2e.replica import Replica
from tests.e2e.scenario import SLOTS_PER_POD, System
from tests.service.authority import Authority, client_context

CONFIG = MANIFESTS / "kube-scheduler" / "config-https.yaml"
SERVER_NAME: str = yaml.safe_load(CONFIG.read_text())["extenders"][0]["tlsConfig"]["serverName"]
CLIENT_NAME = "vreplica-kube-scheduler"


class TlsReplica(Replica):
    """A replica whose pages want a client certificate."""

    def __init__(self, config: Path, url: str, tls: ssl.SSLContext) -> None:
        super().__init__(config, url)
        self.tls = tls

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path, ssl=self.tls) as reply:
            return reply.status, await reply.text()

    async def state(self) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/state.json", ssl=self.tls) as reply,
        ):
            state: dict[str, Any] = await reply.json()
            return state


class HttpsSystem(System):
    """The installation beside a kube-scheduler that runs elsewhere: the extender beyond loopback, by TLS both ways."""

    def __init__(self, backend: Backend, directory: Path) -> None:
        super().__init__(backend, directory)
        self.authority = Authority(directory, "extender-ca")
        self.service_url = f"https://127.0.0.1:{free_port()}"
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
                "clientCAFile": str(self.authority.file),
                "allowedClients": [CLIENT_NAME],
            },
        }
        return TlsReplica(write_json(plain.config, config), plain.url, self.tls)

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
        assert sum(share.vreplicas for adapter in adapters for share in adapter.ledger.values()) == 40
        requests = await system.requests()
        assert requests["filter"] >= 2
        assert requests["prioritize"] >= 2
        assert requests["bind"] >= 2
        await _strangers(system)
        await system.want(tenant, "source-0", 8 + SLOTS_PER_POD)
        await system.settled(pods=3)
        assert (await system.requests())["bind"] >= 3


async def _strangers(system: HttpsSystem) -> None:
    other = client_context(system.authority, system.authority.issue("somebody-else"))
    nobody = client_context(system.authority, None)
    foreign_authority = Authority(system.authority.folder, "another-ca")
    foreign = client_context(system.authority, foreign_authority.issue(CLIENT_NAME))
    body = {"PodName": "a", "PodNamespace": "b", "PodUID": "c", "Node": "d"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{system.service_url}/v1/bind", json=body, ssl=other) as reply:
            assert reply.status == 403, "of the same authority, under a name that is not on the list"
        for context in (nobody, foreign):
            with pytest.raises(aiohttp.ClientError):
                await session.post(f"{system.service_url}/v1/bind", json=body, ssl=context)
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"{system.service_url.replace('https', 'http')}/v1/bind", json=body)
