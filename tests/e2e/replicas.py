"""``Pair``: an installation with two replicas behind one address, and what is asked of them all the
time.

    kube-scheduler --front--> first or second           Prober --20 times a second--> first
                                                        Prober --20 times a second--> second

Theory of operation. As deployed, each replica has a kube-scheduler of its own beside it. Here one
kube-scheduler calls whichever replica takes the connection, so that a scenario sees the service's
failover and not the time that kube-scheduler's own needs. A ``Prober`` asks for what has no effect
on anything that is stored: filter and prioritize, of a pod that does not exist.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from extender.kube.api import NODES
from tests.e2e.backend import Backend
from tests.e2e.objects import write_json
from tests.e2e.processes import free_port
from tests.e2e.replica import Replica
from tests.e2e.scenario import Setup, System
from tests.e2e.tcp_proxy import Address, TcpProxy
from tests.e2e.waiting import NotYet, eventually

PROBE_PERIOD_S: Final = 0.05
PROBE_TIMEOUT_S: Final = 5.0
"""kube-scheduler's httpTimeout: what is answered later is a failure for it."""


@dataclass
class Probes:
    """What a ``Prober`` got, by path: answers, and failures in words."""

    answers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


class Pair(System):
    """``System`` with a second replica, which does not lead yet, and kube-scheduler in front of
    both.
    """

    def __init__(self, backend: Backend, directory: Path, **setup: Any) -> None:
        self.front = TcpProxy(("127.0.0.1", free_port()), [])
        self.credentials: dict[str, Any] = {}
        """URL of a replica -> the kubeconfig that it has read."""
        host, port = self.front.address
        super().__init__(backend, directory, Setup(extender_url=f"http://{host}:{port}", **setup))

    async def _install(self) -> None:
        await self.front.start()
        self._stack.push_async_callback(self.front.stop)
        await super()._install()
        self.second = await self.replica()
        await self.start(self.second)
        self.serve_by(self.service, self.second)

    async def replica(self, url: str = "") -> Replica:
        """As ``System``, with a token of its own."""
        replica = await super().replica(url)
        config = json.loads(replica.config.read_text())
        own = replica.config.with_suffix(".kubeconfig")
        kubeconfig = _copied(Path(config["clientConnection"]["kubeconfig"]), own)
        config["clientConnection"]["kubeconfig"] = str(own)
        write_json(replica.config, config)
        self.credentials[replica.url] = kubeconfig
        return replica

    def serve_by(self, *replicas: Replica) -> None:
        """kube-scheduler calls these from now on; connections that are there stay."""
        self.front.upstreams = [address_of(replica) for replica in replicas]

    async def leader(self) -> tuple[Replica, Replica]:
        """(who leads, the other one), when one of both does."""

        async def look() -> tuple[Replica, Replica]:
            for one, other in ((self.service, self.second), (self.second, self.service)):
                if (await one.state())["leading"]:
                    return one, other
            raise NotYet("nobody leads")

        return await eventually(look, 30.0, "one leads")

    @contextlib.asynccontextmanager
    async def probed(self, replica: Replica) -> AsyncIterator[Probes]:
        """Asks ``replica`` all the time."""
        pod_object = await self._unborn()
        page = await self.backend.api.list_page(NODES)
        body = {"Pod": pod_object, "NodeNames": [obj["metadata"]["name"] for obj in page.items]}
        probes = Probes()
        task = asyncio.create_task(_probe(replica, body, probes))
        try:
            yield probes
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _unborn(self) -> dict[str, Any]:
        """An adapter pod that is to be scheduled: the first one, under another UID."""
        (first, *_) = await self.adapters()
        del first["spec"]["nodeName"]
        first["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
        return first


def _copied(source: Path, to: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(source.read_text())
    write_json(to, content)
    return content


def address_of(replica: Replica) -> Address:
    """Where it listens."""
    host, _, port = replica.url.rpartition("://")[2].rpartition(":")
    return host, int(port)


async def _probe(replica: Replica, body: dict[str, Any], probes: Probes) -> None:
    loop = asyncio.get_running_loop()
    timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while True:
            started = loop.time()
            for path in ("/v1/filter", "/v1/prioritize"):
                if failure := await _asked(session, replica.url + path, body):
                    probes.failures.append(f"{path}: {failure}")
                else:
                    probes.answers[path] += 1
            took_s = loop.time() - started
            probes.slowest_s = max(probes.slowest_s, took_s)
            await asyncio.sleep(max(0.0, PROBE_PERIOD_S - took_s))


async def _asked(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> str:
    """Why this is no answer that kube-scheduler can work with; "" where it is one."""
    try:
        async with session.post(url, json=body) as reply:
            answer = await reply.json() if reply.status == 200 else await reply.text()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return repr(error)
    if not isinstance(answer, dict):
        fits = isinstance(answer, list) and {entry["Host"] for entry in answer} == set(
            body["NodeNames"]
        )
        return "" if fits else str(answer)
    return (
        "" if answer["NodeNames"] == body["NodeNames"] and not answer.get("Error") else str(answer)
    )
