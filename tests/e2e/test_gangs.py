"""VPods that need several vreplicas together, on a real control plane: each stored version of them
has as many, or none.
"""

from functools import partial
from pathlib import Path

import pytest

from extender.kube.api import VPODS, ApiError, PatchType
from extender.model.decode import vpod_from
from extender.model.reading import condition_in, text
from tests.e2e.backend import Backend
from tests.e2e.scenario import SLOTS_PER_POD, System
from tests.e2e.waiting import NotYet, eventually

TOGETHER = SLOTS_PER_POD + 10
PODS = 2


async def test_of_two_that_do_not_fit_together_one_waits_with_nothing(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2)
        await system.pool(maxPods=PODS, minPods=PODS)
        tenant = await backend.namespace("tenant")
        for index in range(2):
            vpod = system.vpod(tenant, f"source-{index}", TOGETHER, minAvailable=TOGETHER)
            await backend.api.create(VPODS, tenant, vpod)
        first = await eventually(partial(_one_of_two, system, tenant), 60.0, "one has all of it")
        (other,) = {"source-0", "source-1"} - {first}
        waiting = await backend.api.get(VPODS, tenant, other)
        assert text(condition_in(waiting, "Scheduled"), "reason") == "InsufficientSlots"
        await system.restart()
        await backend.api.delete(VPODS, tenant, first)
        await eventually(partial(_placed, system, tenant, other), 60.0, "now the other one has it")
        await system.watcher.catch_up()
        seen = {sum(vpod_from(v.object).placements.values()) for v in system.watcher.of(VPODS)}
        assert seen == {0, TOGETHER}


async def test_admission_refuses_more_together_than_the_pool_can_ever_hold(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await system.pool(maxPods=PODS, minPods=0)
        tenant = await backend.namespace("tenant")
        most = PODS * SLOTS_PER_POD
        fits = system.vpod(tenant, "source-0", most + 1, minAvailable=most)
        too_many = system.vpod(tenant, "source-1", most + 1, minAvailable=most + 1)
        await backend.api.create(VPODS, tenant, fits)

        async def refused() -> bool:
            try:
                await backend.api.create(VPODS, tenant, too_many)
            except ApiError as error:
                return "(spec.minAvailable) need 3 pods" in error.message
            # The webhook has not seen the pool yet.
            await backend.api.delete(VPODS, tenant, "source-1")
            raise NotYet("it was accepted")

        await eventually(refused, 10.0, "it is refused", interval_s=0.3)
        patch = {"spec": {"minAvailable": most + 1}}
        with pytest.raises(ApiError, match=r"spec\.minAvailable"):
            await backend.api.patch(VPODS, tenant, "source-0", patch, patch_type=PatchType.MERGE)


async def _one_of_two(system: System, tenant: str) -> str:
    for name in ("source-0", "source-1"):
        if await _has(system, tenant, name) == TOGETHER:
            return name
    raise NotYet("neither")


async def _placed(system: System, tenant: str, name: str) -> bool:
    if (found := await _has(system, tenant, name)) != TOGETHER:
        raise NotYet(f"{name} has {found}")
    return True


async def _has(system: System, tenant: str, name: str) -> int:
    stored = await system.backend.api.get(VPODS, tenant, name)
    return sum(vpod_from(stored).placements.values())
