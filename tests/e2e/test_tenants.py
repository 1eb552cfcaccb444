"""Who may use a pool: its namespaceSelector, with the webhook and without it, and labels that
change while all runs.
"""

from pathlib import Path

from extender.kube.api import NAMESPACES, VPODS, ApiError, PatchType
from extender.model.decode import pod_from
from extender.model.objects import AdapterPod
from tests.e2e.backend import Backend
from tests.e2e.scenario import System
from tests.e2e.waiting import NotYet, eventually

PAID = {"matchLabels": {"tier": "paid"}}


async def test_tenants_use_the_pools_that_select_them_and_no_others(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2)
        await system.pool(namespaceSelector=PAID, minPods=1)
        paid, other = (
            await backend.namespace("paid", {"tier": "paid"}),
            await backend.namespace("other"),
        )
        await system.vpods(2, 4, tenant=paid)
        before = await system.settled(pods=1)

        # With the webhook it is refused as it is written,
        async def refused() -> bool:
            try:
                await backend.api.create(VPODS, other, system.vpod(other, "source-0", 4))
            except ApiError as error:
                return (error.status, "does not select namespace" in error.message) == (422, True)
            # The webhook has not seen the namespace yet, and then it only warns.
            await backend.api.delete(VPODS, other, "source-0")
            raise NotYet("it was accepted")

        await eventually(refused, 10.0, "the VPod is refused", interval_s=0.3)
        # and without it nothing is placed, and the condition says why.
        assert system.webhook is not None
        await system.webhook.kill()
        await system.vpods(1, 4, tenant=other)
        await eventually(
            lambda: _is(system, f"{other}/source-0", "TenantNotAllowed", 0), 15.0, "told why"
        )
        await system.event(other, "source-0", "FailedScheduling", "TenantNotAllowed")
        assert [adapter.ledger for adapter in await _adapters(system)] == [a.ledger for a in before]
        await _label(backend, other, "paid")
        await eventually(lambda: _is(system, f"{other}/source-0", "AllPlaced", 4), 15.0, "placed")
        # Who is no longer selected keeps what stands, and gets no more.
        await _label(backend, other, None)
        await system.want(other, "source-0", 7)
        await eventually(
            lambda: _is(system, f"{other}/source-0", "TenantNotAllowed", 4), 15.0, "no more"
        )
        await _label(backend, other, "paid")
        await system.settled(pods=1)


async def _adapters(system: System) -> list[AdapterPod]:
    return [pod_from(obj) for obj in await system.adapters()]


async def _label(backend: Backend, namespace: str, tier: str | None) -> None:
    patch = {"metadata": {"labels": {"tier": tier}}}
    await backend.api.patch(NAMESPACES, "", namespace, patch, patch_type=PatchType.MERGE)


async def _is(system: System, key: str, reason: str, placed: int) -> bool:
    vpod = (await system.all_vpods())[key]
    scheduled = [entry for entry in vpod.conditions if entry.type == "Scheduled"]
    if [entry.reason for entry in scheduled] != [reason] or vpod.scheduled_vreplicas != placed:
        raise NotYet(f"{scheduled} {dict(vpod.placements)}")
    return True
