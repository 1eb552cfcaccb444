"""What changes between filter and bind: the bind is refused, tried again, and nothing is
overcommitted.
"""

from pathlib import Path
from typing import Any

import aiohttp

from extender.kube.api import PODS, PatchType
from extender.kube.client import KubeApi
from extender.model.decode import pod_from
from extender.model.names import PLACEMENTS_ANNOTATION
from tests.e2e.backend import Backend
from tests.e2e.extender_proxy import Proxy
from tests.e2e.scenario import SERVICE_ACCOUNT, SLOTS_PER_POD, Setup, System


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
                await other.patch(
                    PODS, namespace, bind["PodName"], patch, patch_type=PatchType.MERGE
                )

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
