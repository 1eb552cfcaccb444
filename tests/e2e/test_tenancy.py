"""Tenants share a pool on a real control plane: a greedy one gets its share and no more, and late
ones get theirs within seconds.
"""

from functools import partial
from pathlib import Path
from typing import Final

import pytest

from extender.kube.api import PRIORITYCLASSES, VPODS, VREPLICAQUOTAS, ApiError, Obj
from extender.model.names import API_VERSION
from extender.model.reading import condition_in, text, value_at
from tests.e2e.backend import Backend
from tests.e2e.scenario import POOL, SLOTS_PER_POD, System
from tests.e2e.waiting import NotYet, eventually

MANY: Final = 2**31 - 1
LATE: Final = tuple(f"late-{number}" for number in range(5))
PODS: Final = 3


async def test_a_greedy_tenant_leaves_late_ones_their_share(backend: Backend, tmp_path: Path):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2)
        await system.pool(maxPods=PODS, minPods=1, tenancy={})
        greedy = await backend.namespace("greedy")
        await system.vpods(1, MANY, tenant=greedy)
        slots = PODS * SLOTS_PER_POD
        await eventually(partial(_has, system, greedy, slots), 60.0, "it has the whole pool")
        late = [await backend.namespace(name) for name in LATE]
        for namespace in late:
            await system.vpods(1, 2, tenant=namespace)
        for namespace in late:
            await eventually(partial(_has, system, namespace, 2), 15.0, "a late one has its 2")
        await eventually(partial(_has, system, greedy, slots - 10), 15.0, "the greedy one the rest")
        vpod = await _vpod(system, greedy)
        assert text(condition_in(vpod, "Scheduled"), "reason") == "QuotaExceeded"
        await system.event(greedy, "source-0", "FailedScheduling", "QuotaExceeded")
        # A guarantee is kept against it, and a limit holds.
        await _set_quota(system, late[0], guarantee=30, limit=40)
        await system.want(late[0], "source-0", 100)
        await eventually(partial(_has, system, late[0], 40), 15.0, "no more than its limit")
        await eventually(partial(_has, system, greedy, slots - 8 - 40), 15.0, "the rest")
        await eventually(partial(_quota_says, system, late[0], 40, 60), 15.0, "the quota tells it")


async def test_an_important_vpod_takes_what_others_have(backend: Backend, tmp_path: Path):
    """In a pool that cannot grow, and in one whose pods find no node in time."""
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2)
        await system.pool(maxPods=1, minPods=1, preemption={"patienceSeconds": 5})
        name = f"important-{system.namespace}"
        await _create_class(system, name, 1000)
        batch = await system.vpods(1, SLOTS_PER_POD)
        await eventually(partial(_has, system, batch, SLOTS_PER_POD), 60.0, "it has the whole pool")
        tenant = await backend.namespace("important")

        async def taken() -> bool:
            """The webhook may not have seen the class yet."""
            vpod = system.vpod(tenant, "source-0", 4, priorityClassName=name)
            try:
                await backend.api.create(VPODS, tenant, vpod)
            except ApiError as error:
                if error.status != 403 or "no PriorityClass" not in error.message:
                    raise
                raise NotYet(error.message) from None
            return True

        await eventually(taken, 15.0, "its class is known")
        vpod = await _vpod(system, tenant)
        assert vpod["spec"]["priority"] == 1000
        assert vpod["spec"]["preemptionPolicy"] == "PreemptLowerPriority"
        await eventually(partial(_has, system, tenant, 4), 15.0, "the important one has its 4")
        await eventually(partial(_has, system, batch, SLOTS_PER_POD - 4), 5.0, "the other the rest")
        condition = condition_in(await _vpod(system, batch), "Scheduled")
        assert (condition["status"], condition["reason"]) == ("False", "Preempted")
        await system.event(batch, "source-0", "FailedScheduling", "Preempted")
        # It gives back what it does not want any more.
        await system.want(tenant, "source-0", 1)
        await eventually(partial(_has, system, batch, SLOTS_PER_POD - 1), 15.0, "given back")


async def test_a_class_that_does_not_exist_is_refused(backend: Backend, tmp_path: Path):
    async with System(backend, tmp_path) as system:
        await system.pool(maxPods=1)
        tenant = await backend.namespace("tenant")
        vpod = system.vpod(tenant, "source-0", 1, priorityClassName="none-such")
        with pytest.raises(ApiError) as refused:
            await backend.api.create(VPODS, tenant, vpod)
        assert refused.value.status == 403
        assert "no PriorityClass with name 'none-such' was found" in refused.value.message


async def test_admission_refuses_quotas_that_cannot_be(backend: Backend, tmp_path: Path):
    async with System(backend, tmp_path) as system:
        await system.pool(maxPods=PODS, minPods=0, tenancy={"defaultLimit": 10})
        tenant, other = await backend.namespace("one"), await backend.namespace("other")
        await _set_quota(system, other, guarantee=50)

        async def refused() -> bool:
            try:
                await _set_quota(system, tenant, guarantee=11)
            except ApiError as error:
                return (error.status, "cannot be kept" in error.message) == (422, True)
            # The webhook has not seen the pool or the other quota yet.
            await backend.api.delete(VREPLICAQUOTAS, tenant, "quota")
            raise NotYet("it was accepted")

        await eventually(refused, 10.0, "the guarantee is refused", interval_s=0.3)
        with pytest.raises(ApiError, match="guarantee must not be more than limit"):
            await _set_quota(system, tenant, guarantee=3, limit=2)


async def _set_quota(system: System, namespace: str, **spec: int) -> None:
    quota = {
        "apiVersion": API_VERSION,
        "kind": "VReplicaQuota",
        "metadata": {"name": "quota"},
        "spec": {"poolRef": {"namespace": system.namespace, "name": POOL}, **spec},
    }
    await system.backend.api.create(VREPLICAQUOTAS, namespace, quota)


async def _create_class(system: System, name: str, value: int) -> None:
    obj = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    await system.backend.api.create(PRIORITYCLASSES, "", obj)


async def _vpod(system: System, namespace: str) -> Obj:
    return await system.backend.api.get(VPODS, namespace, "source-0")


async def _has(system: System, namespace: str, vreplicas: int) -> bool:
    placed = value_at(await _vpod(system, namespace), ("status", "scheduledVReplicas"))
    if placed != vreplicas:
        raise NotYet(f"{namespace} has {placed} of {vreplicas}")
    return True


async def _quota_says(system: System, namespace: str, used: int, waiting: int) -> bool:
    quota = await system.backend.api.get(VREPLICAQUOTAS, namespace, "quota")
    told = [value_at(quota, ("status", name)) for name in ("usedSlots", "waitingSlots")]
    if told != [used, waiting]:
        raise NotYet(f"{told}")
    return text(condition_in(quota, "Active"), "reason") == "Counts"
