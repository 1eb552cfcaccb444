"""What changes between filter and bind: the bind is refused, tried again, and nothing is overcommitted."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import aiohttp
import orjson
from aiohttp import web

from extender.core.decode import pod_from
from extender.core.names import PLACEMENTS_ANNOTATION
from extender.kube.api import PODS, PatchType
from extender.kube.client import KubeApi
from tests.e2e.backend import Backend
from tests.e2e.processes import free_port
from tests.e2e.scenario import SERVICE_ACCOUNT, SLOTS_PER_POD, Setup, System

BeforeBind = Callable[[dict[str, Any]], Awaitable[None]]


class Proxy:
    """Between kube-scheduler and the extender: hands everything on, a bind only after ``before_bind`` has returned."""

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.target = ""
        self.before_bind: BeforeBind | None = None
        self.answers: list[tuple[str, str]] = []
        """Pod name and ``Error`` of each bind, in order."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/{path:.*}", self._forward)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", int(self.url.rpartition(":")[2])).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _forward(self, request: web.Request) -> web.Response:
        body = await request.read()
        is_bind = request.path.endswith("/bind")
        if is_bind and self.before_bind is not None:
            await self.before_bind(orjson.loads(body))
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                self.target + request.path, data=body, headers={"Content-Type": request.content_type}
            ) as reply,
        ):
            content = await reply.read()
            if is_bind:
                self.answers.append((orjson.loads(body)["PodName"], orjson.loads(content).get("Error", "")))
            return web.Response(status=reply.status, body=content, content_type=reply.content_type)


async def test_a_ledger_that_changes_between_filter_and_bind_has_the_bind_refused_and_tried_again(
    backend: Backend, tmp_path: Path
):
    async with Proxy() as proxy, System(backend, tmp_path, Setup(extender_url=proxy.url)) as system:
        proxy.target = system.service_url
        await backend.add_nodes(3)
        namespace = await system.pool()
        other = await KubeApi.connect(kubeconfig=str(await backend.token_for(SERVICE_ACCOUNT)))
        foreign = f'{{"elsewhere/other":{SLOTS_PER_POD}}}'
        edited: list[str] = []

        async def write_first(bind: dict[str, Any]) -> None:
            """Another writer with our rights is faster, once for each pod."""
            if bind["PodUID"] not in edited:
                edited.append(bind["PodUID"])
                patch = {"metadata": {"annotations": {PLACEMENTS_ANNOTATION: foreign}}}
                await other.patch(PODS, namespace, bind["PodName"], patch, patch_type=PatchType.MERGE)

        proxy.before_bind = write_first
        try:
            await system.vpods(5, 8)
            adapters = await system.settled(pods=2)
        finally:
            await other.close()
        for adapter in adapters:
            answers = [error for name, error in proxy.answers if name == adapter.name]
            assert answers[0].startswith("LedgerChanged")
            assert answers[-1] == ""
            await system.event(namespace, adapter.name, "FailedBinding", "LedgerChanged")
            # The Error of the reply is what kube-scheduler tells in an event of its own.
            await system.event(namespace, adapter.name, "FailedScheduling", "LedgerChanged")
            history = [pod_from(version.object) for version in system.watcher.of(PODS, adapter.key)]
            assert foreign in [version.ledger_text for version in history if not version.node]
            assert foreign not in [version.ledger_text for version in history if version.node]


async def test_a_bind_that_was_already_done_is_a_success(backend: Backend, tmp_path: Path):
    async with System(backend, tmp_path) as system:
        nodes = await backend.add_nodes(2)
        namespace = await system.pool(minPods=1)
        (adapter,) = await system.settled(pods=1)
        bind = {
            "PodName": adapter.name,
            "PodNamespace": namespace,
            "PodUID": adapter.uid,
            "Node": adapter.node,
        }
        again = await _bind(system, bind)
        assert again == {"Error": ""}
        (other,) = set(nodes) - {adapter.node}
        elsewhere = await _bind(system, {**bind, "Node": other})
        assert elsewhere["Error"].startswith("PodAlreadyBound")
        (stored,) = await system.adapters()
        assert stored["metadata"]["resourceVersion"] == adapter.resource_version


async def _bind(system: System, body: dict[str, str]) -> dict[str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{system.service_url}/v1/bind", json=body) as reply,
    ):
        answer: dict[str, str] = await reply.json()
        return answer
