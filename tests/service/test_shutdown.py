"""SIGTERM to the real program, against the embedded cluster over HTTP: what happens in which order,
and how fast.
"""

import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from extender.kube.api import LEASES, Obj
from extender.lab.apiserver.cluster import Cluster
from extender.lab.http.server import HttpApiServer
from tests.support.service import World, bind_args, filter_args, until

log = logging.getLogger(__name__)

START_TIMEOUT_S = 45.0

pytestmark = [pytest.mark.timeout(90), pytest.mark.slow]


class SlowBinding(HttpApiServer):
    """An API server whose answer to a Binding waits for ``go_on``."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/binding"):
            self.reached.set()
            await self.go_on.wait()
        return await super()._answer(request)


class Program:
    """``vreplica serve`` as a process, and what it says over HTTP."""

    def __init__(
        self, process: asyncio.subprocess.Process, url: str, session: aiohttp.ClientSession
    ) -> None:
        self.process, self.url, self.session = process, url, session

    async def status(self, path: str) -> int:
        """0 where nobody listens."""
        try:
            async with self.session.get(self.url + path, headers={"Connection": "close"}) as reply:
                return reply.status
        except aiohttp.ClientConnectionError:
            return 0

    async def is_(self, path: str, status: int) -> bool:
        return await self.status(path) == status

    async def post(self, verb: str, body: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        async with self.session.post(f"{self.url}/v1/{verb}", data=body, headers=headers) as reply:
            return reply.status, await reply.read()


@asynccontextmanager
async def running(server: HttpApiServer, folder: Path, port: int) -> AsyncIterator[Program]:
    """The program with the shipped election, ready and leading."""
    config = {
        "apiVersion": "config.vreplica.dev/v1alpha1",
        "kind": "VReplicaSchedulerConfiguration",
        "server": {"port": port},
        "clientConnection": {"kubeconfig": str(folder / "kubeconfig")},
    }
    write(folder / "kubeconfig", server.kubeconfig())
    write(folder / "config.yaml", config)
    arguments = [
        "-m",
        "extender.cli.main",
        "--log-level",
        "info",
        "serve",
        "--config",
        str(folder / "config.yaml"),
    ]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    try:
        async with aiohttp.ClientSession() as session:
            program = Program(process, f"http://127.0.0.1:{port}", session)
            await until(lambda: program.is_("/readyz", 200), timeout_s=START_TIMEOUT_S)
            yield program
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))


async def holds(world: World, *, somebody: bool) -> bool:
    page = await world.cluster.list_page(LEASES)
    return bool(page.items) and bool(await world.lease_holder()) is somebody


async def binding(
    program: Program, server: SlowBinding, pod: Obj
) -> "asyncio.Task[tuple[int, bytes]]":
    """A bind that has reached the API server; until the replica has caught up it is refused, and
    tried again.
    """
    reached = asyncio.ensure_future(server.reached.wait())
    while True:
        bind = asyncio.create_task(program.post("bind", bind_args(pod, "node-1")))
        await asyncio.wait({bind, reached}, return_when=asyncio.FIRST_COMPLETED)
        if reached.done():
            return bind
        await asyncio.sleep(0.05)


async def test_sigterm_is_unready_at_once_and_ends_once_the_bind_is_done_and_the_lease_free(
    tmp_path: Path, unused_tcp_port: int
):
    world = await World.create()
    await world.vpod("a", 2)
    await world.pod(0)
    pod = await world.pod_object(0)
    server = SlowBinding(world.cluster)
    await server.start()
    async with running(server, tmp_path, unused_tcp_port) as program:
        await until(lambda: holds(world, somebody=True), timeout_s=30)
        async with program.session.get(f"{program.url}/metrics") as reply:
            assert 'vreplica_scheduler_api_requests_total{lane="leases"}' in await reply.text()
        bind = await binding(program, server, pod)
        began = time.perf_counter()
        seen: dict[str, float] = {}

        async def note(what: str, happens) -> None:
            await happens
            seen[what] = time.perf_counter() - began

        program.process.send_signal(signal.SIGTERM)
        notes = [
            asyncio.create_task(note("bind answered", asyncio.shield(bind))),
            asyncio.create_task(note("ended", program.process.wait())),
        ]
        await note("unready", until(lambda: program.is_("/readyz", 503), timeout_s=5))
        assert await program.status("/livez") == 200, (
            "it still listens: a probe must not kill it while it drains"
        )
        status, text = await program.post("filter", filter_args(pod, ["node-0"]))
        assert (status, text) == (503, b"shutting down\n")
        assert await world.lease_holder(), "the lease is kept for as long as binds write"
        assert set(seen) == {"unready"}
        let_go = time.perf_counter() - began
        server.go_on.set()
        await asyncio.gather(*notes)
        assert not await world.lease_holder(), "the lease is released before it ends"
        assert await program.is_("/livez", 0)
        assert await bind == (200, b'{"Error":""}')
        assert program.process.returncode == 0
    await server.stop()
    assert list(seen) == ["unready", "bind answered", "ended"]
    log.info("seconds after SIGTERM: %s; the bind was let go at %.3f", seen, let_go)
    assert seen["ended"] - let_go < 5
    assert await world.node_of(0) == "node-1"


async def test_sigterm_with_a_bind_that_never_ends_is_obeyed_after_the_verbs_deadline(
    tmp_path: Path, unused_tcp_port: int
):
    world = await World.create()
    await world.pod(0)
    pod = await world.pod_object(0)
    server = SlowBinding(world.cluster)
    await server.start()
    async with running(server, tmp_path, unused_tcp_port) as program:
        await until(lambda: holds(world, somebody=True), timeout_s=30)
        bind = await binding(program, server, pod)
        program.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(15):
            status, body = await bind
            assert await program.process.wait() == 0
        assert (status, b"not answered within 4 s" in body) == (200, True)
        assert await world.lease_holder() == ""
    server.go_on.set()
    await server.stop()
