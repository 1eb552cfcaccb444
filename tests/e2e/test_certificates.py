"""Authorities change while the API server calls the webhook, which may not fail: every pod that is
created is stamped.

Two replicas of the webhook and its upkeep run in this process, with times that are minutes as
shipped cut to a second; everything else is as installed: the API server verifies them against the
caBundle that they publish, and RBAC decides what they may read and write.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from extender.kube.api import MUTATING_WEBHOOKS, SECRETS, PatchType
from extender.kube.client import KubeApi
from extender.model.names import POOL_LABEL, SLOTS_ANNOTATION
from tests.e2e import tcp_proxy
from tests.e2e.backend import Backend
from tests.e2e.objects import pod
from tests.e2e.processes import free_port
from tests.e2e.scenario import (
    POOL,
    SYSTEM_NAMESPACE,
    UPKEEP_ACCOUNT,
    WEBHOOK_ACCOUNT,
    Setup,
    System,
)
from tests.e2e.tcp_proxy import TcpProxy
from tests.e2e.waiting import NotYet, eventually
from webhook import publication, upkeep
from webhook.cli import UpkeepOnly, Webhook
from webhook.settings import Settings, UpkeepMode
from webhook.x509 import certificates_in, fingerprint

SECRET = "vreplica-webhook-certificate"
CONFIGURATION = "vreplica-scheduler"
CHANGES = 20
CALLERS = 4
REPLICAS = 2


@asynccontextmanager
async def a_program(
    system: System, url: str, port: int = 0, mode: UpkeepMode = UpkeepMode.OTHER_PROCESS
) -> AsyncIterator[Webhook | UpkeepOnly]:
    keeps = mode is UpkeepMode.ONLY
    kubeconfig = await system.kubeconfig_for(UPKEEP_ACCOUNT if keeps else WEBHOOK_ACCOUNT)
    api = await KubeApi.connect(
        kubeconfig=str(kubeconfig), context="", user_agent="vreplica-webhook", qps=50.0, burst=100
    )
    settings = Settings(
        host="127.0.0.1", port=port, secret=(SYSTEM_NAMESPACE, SECRET), url=url, upkeep=mode
    )
    program: Webhook | UpkeepOnly = UpkeepOnly(settings, api) if keeps else Webhook(settings, api)
    stop = asyncio.Event()
    running = asyncio.create_task(program.run(stop), name=f"webhook {port}")
    try:
        yield program
    finally:
        stop.set()
        await running
        await api.close()


async def stored(system: System) -> dict[str, bytes]:
    secret = await system.backend.api.get(SECRETS, SYSTEM_NAMESPACE, SECRET)
    # The manifests bring it empty.
    return {name: base64.b64decode(content) for name, content in secret.get("data", {}).items()}


async def published(system: System) -> bytes:
    found = await system.backend.api.get(MUTATING_WEBHOOKS, "", CONFIGURATION)
    return base64.b64decode(found["webhooks"][0]["clientConfig"].get("caBundle", ""))


async def changed(system: System, replicas: list[Webhook | UpkeepOnly], before: bytes) -> bytes:
    """The authority that signs, once it is another one, waits for nothing, and is served by all."""

    async def look() -> bytes:
        data = await stored(system)
        if not {"ca.crt", "tls.crt"} <= data.keys():
            raise NotYet("nothing is stored yet")
        signing = fingerprint(certificates_in(data["ca.crt"])[0])
        if (
            signing == before
            or "next-ca.key" not in data
            or await published(system) != data["ca.crt"]
        ):
            raise NotYet("not changed, or not published")
        served = {each._certificates.served_pem for each in replicas if isinstance(each, Webhook)}
        if served != {data["tls.crt"]}:
            raise NotYet("not served by all")
        return signing

    return await eventually(look, 60.0, "another authority signs", interval_s=0.1)


async def keep_creating(system: System, stop: asyncio.Event, caller: int) -> int:
    """Pods that were created (but not kept), every one of them stamped by the webhook."""
    probe = pod(system.namespace, f"{POOL}-{900 + caller}")
    probe["metadata"]["labels"] = {POOL_LABEL: POOL}
    path, created = f"/api/v1/namespaces/{system.namespace}/pods", 0
    while not stop.is_set():
        answer = await system.raw.request("POST", path, probe, query={"dryRun": "All"})
        assert answer.status == 201, answer
        assert SLOTS_ANNOTATION in answer.body["metadata"].get("annotations", {}), answer
        created += 1
        await asyncio.sleep(0.01)
    return created


async def test_no_call_is_lost_while_authorities_change(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(upkeep, "UPKEEP_PERIOD_S", 0.3)
    monkeypatch.setattr(upkeep, "FOLLOW_PERIOD_S", 0.3)
    monkeypatch.setattr(upkeep, "RETRY_PERIOD_S", 0.3)
    monkeypatch.setattr(publication, "PUBLISHED_BEFORE_USE_S", 1.0)
    # All of it shares this process: on a busy machine a connection may wait, and must not be given
    # up for that.
    monkeypatch.setattr(tcp_proxy, "CONNECT_TIMEOUT_S", 15.0)
    ports = [free_port() for _ in range(REPLICAS)]
    front = free_port()
    async with AsyncExitStack() as stack:
        system = await stack.enter_async_context(System(backend, tmp_path, Setup(webhook=False)))
        proxy = TcpProxy(("127.0.0.1", front), [("127.0.0.1", port) for port in ports])
        await proxy.start()
        stack.push_async_callback(proxy.stop)
        url = f"https://127.0.0.1:{front}"
        await stack.enter_async_context(a_program(system, url, mode=UpkeepMode.ONLY))
        replicas = [await stack.enter_async_context(a_program(system, url, port)) for port in ports]
        signing = await changed(system, replicas, b"")
        await system.pool()
        await eventually(lambda: system.stamps(POOL), 10.0, "pods are stamped")
        # From here on a call that fails is a pod that is not created.
        must = [
            {"op": "replace", "path": f"/webhooks/0/{name}", "value": value}
            for name, value in (("failurePolicy", "Fail"), ("timeoutSeconds", 15))
        ]
        await backend.api.patch(
            MUTATING_WEBHOOKS, "", CONFIGURATION, must, patch_type=PatchType.JSON
        )
        stop, signed = asyncio.Event(), {signing}
        async with asyncio.TaskGroup() as tasks:
            creating = [
                tasks.create_task(keep_creating(system, stop, caller)) for caller in range(CALLERS)
            ]
            for _ in range(CHANGES):
                lost = [{"op": "remove", "path": "/data/ca.key"}]
                await backend.api.patch(
                    SECRETS, SYSTEM_NAMESPACE, SECRET, lost, patch_type=PatchType.JSON
                )
                signing = await changed(system, replicas, signing)
                signed.add(signing)
            stop.set()
        assert len(signed) == CHANGES + 1
        assert all(task.result() > CHANGES for task in creating)
