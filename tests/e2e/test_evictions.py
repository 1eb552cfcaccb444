"""Evictions of adapter pods wait for the hand-over, and kubectl drain waits with them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from extender.kube.api import PODS, ApiError, Conflict, Forbidden, Invalid, PatchType
from extender.kube.client import KubeApi
from extender.model.decode import pod_from
from extender.model.eviction import eviction_of
from extender.model.moves import MoveReason
from extender.model.names import ACKNOWLEDGED_ANNOTATION, ASSIGNMENT_ANNOTATION, EVICTING_ANNOTATION
from extender.service.placing.annotation_patch import annotation_path
from tests.e2e.backend import Backend
from tests.e2e.operations import cordon, drain_node, on_nodes
from tests.e2e.real import RealBackend
from tests.e2e.scenario import POOL, System
from tests.e2e.waiting import NotYet
from tests.manifests.chart import objects, render
from webhook.evictions import UNLED_S

pytestmark = pytest.mark.usefixtures("_helm_and_kubectl")

KINDS = ("Validating", "ClusterRole", "Role")
ANSWERS_S = 0.5
"""An adapter takes so long for what it is told."""


class WithEvictions(System):
    """With what the chart installs for evictions where adapters are served."""

    async def install_manifests(self) -> None:
        await super().install_manifests()
        rendered = objects(render({"adapters": {"enabled": True}}))
        await self.backend.apply([obj for obj in rendered if obj["kind"].startswith(KINDS)])


class Adapters:
    """Stand-ins for the adapters of all pods: each does what its pod is told, and the service's
    account says so. ``gaps``: shares that an adapter let go of and nobody else served.
    """

    def __init__(self, system: System, api: KubeApi) -> None:
        self._system = system
        self._api = api
        self.serving: dict[str, set[str]] = {}
        self.gaps: list[str] = []

    async def run(self) -> None:
        said: dict[str, str] = {}
        while True:
            for obj in await self._system.adapters():
                pod = pod_from(obj)
                text = pod.assignment_text
                if text is None or pod.deleting or not pod.ready or said.get(pod.uid) == text:
                    continue
                assignment = orjson.loads(text)
                self._do(pod.name, assignment["shares"])
                if await self._acknowledge(pod.name, text, assignment["generation"]):
                    said[pod.uid] = text
            await asyncio.sleep(ANSWERS_S)

    def _do(self, name: str, shares: dict[str, dict[str, str]]) -> None:
        mine = {key for key, share in shares.items() if share["state"] == "Serve"}
        lost = self.serving.get(name, set()) - mine
        self.serving[name] = mine
        for key in lost:
            if not any(key in others for others in self.serving.values()):
                self.gaps.append(f"{key} on {name}")

    async def _acknowledge(self, name: str, text: str, generation: int) -> bool:
        said = orjson.dumps({"generation": generation, "serving": len(self.serving[name])}).decode()
        patch = [
            {"op": "test", "path": annotation_path(ASSIGNMENT_ANNOTATION), "value": text},
            {"op": "add", "path": annotation_path(ACKNOWLEDGED_ANNOTATION), "value": said},
        ]
        namespace = self._system.namespace
        try:
            await self._api.patch(PODS, namespace, name, patch, patch_type=PatchType.JSON)
        except (Conflict, Invalid):
            return False
        return True

    async def all_serve(self) -> bool:
        """Every share of a ledger is served by its pod's adapter."""
        for pod in map(pod_from, await self._system.adapters()):
            if set(pod.ledger) != self.serving.get(pod.name, set()):
                raise NotYet(f"{pod.name} serves {sorted(self.serving.get(pod.name, ()))}")
        return True


@contextlib.asynccontextmanager
async def adapters(system: System) -> AsyncIterator[Adapters]:
    config = await system.kubeconfig_for("vreplica-system/vreplica-scheduler")
    api = await KubeApi.connect(kubeconfig=str(config))
    known = Adapters(system, api)
    task = asyncio.create_task(known.run())
    try:
        yield known
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await api.close()


async def evict(system: System, pod: str, **options: object):
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": system.namespace},
        "deleteOptions": options,
    }
    path = f"/api/v1/namespaces/{system.namespace}/pods/{pod}/eviction"
    return await system.raw.post(path, body)


async def is_marked(system: System, pod: str) -> bool:
    obj = await system.backend.api.get(PODS, system.namespace, pod)
    return eviction_of(pod_from(obj)) is not None


async def test_kubectl_drain_waits_until_every_share_is_served_elsewhere(
    backend: Backend, tmp_path: Path
):
    async with WithEvictions(backend, tmp_path) as system:
        await backend.add_nodes(4)
        await system.pool(handoff={"mode": "Overlap"}, minPods=3)
        async with adapters(system) as known:
            await system.vpods(6, 4)
            before = await system.settled()
            await system.eventually(known.all_serve, 30.0, "all is served")
            system.watcher.may_move = frozenset({MoveReason.EVICTED})
            name = f"{POOL}-0"
            (node,) = (pod.node for pod in before if pod.name == name)

            await cordon(system, node)
            dry = await evict(system, name, dryRun=["All"])
            assert (dry.status, await is_marked(system, name)) == (429, False)
            refused = await evict(system, name)
            assert (refused.status, refused.body["reason"]) == (429, "TooManyRequests")
            assert f"pod {system.namespace}/{name} of AdapterPool" in refused.message
            assert await is_marked(system, name)

            await drain_node(system, node)
            assert known.gaps == []
            after = await system.settled()
            await system.eventually(known.all_serve, 30.0, "all is served")
            assert not on_nodes(after, [node])
            assert known.gaps == []


async def test_while_no_replica_leads_evictions_wait_for_nobody(real: RealBackend, tmp_path: Path):
    async with WithEvictions(real, tmp_path) as system:
        await real.add_nodes(2)
        await system.pool(handoff={"mode": "Overlap"}, minPods=2)
        async with adapters(system) as known:
            await system.vpods(2, 4)
            await system.settled()
            await system.eventually(known.all_serve, 30.0, "all is served")
            assert system.service.process is not None
            await system.service.process.kill()

            async def is_evicted() -> bool:
                if (await evict(system, f"{POOL}-0")).status == 429:
                    raise NotYet("429")
                return True

            killed_at = time.monotonic()
            await system.eventually(is_evicted, UNLED_S + 30.0, "the eviction is allowed")
            assert time.monotonic() - killed_at > UNLED_S  # the next leader might have come
        await system.start(system.service)
        await system.settled()


async def test_the_webhook_may_write_that_annotation_of_adapter_pods_and_nothing_else(
    real: RealBackend, tmp_path: Path
):
    async with WithEvictions(real, tmp_path) as system:
        await real.add_nodes(1)
        await system.pool(minPods=1)
        await system.settled(pods=1)
        config = await system.kubeconfig_for("vreplica-system/vreplica-webhook")
        webhook = await KubeApi.connect(kubeconfig=str(config))
        allowed = {"metadata": {"annotations": {EVICTING_ANNOTATION: "x"}}}
        name = f"{POOL}-0"

        async def write(api, patch) -> None:
            await api.patch(PODS, system.namespace, name, patch, patch_type=PatchType.MERGE)

        try:
            await write(webhook, allowed)
            for refused in (
                {"metadata": {"annotations": {"vreplica.dev/placements": '{"t/a":1}'}}},
                {"metadata": {"annotations": {"other": "x"}}},
                {"metadata": {"labels": {"other": "x"}}},
                {"spec": {"activeDeadlineSeconds": 5}},
            ):
                with pytest.raises((Forbidden, Invalid)):
                    await write(webhook, refused)
        finally:
            await webhook.close()
        system.forget_audit()  # what was refused on purpose
        with pytest.raises(ApiError, match="only the scheduler service may change annotation"):
            await write(real.api, {"metadata": {"annotations": {EVICTING_ANNOTATION: "y"}}})
