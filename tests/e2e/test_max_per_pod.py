"""``spec.placement.maxPerPod`` on a real control plane: the pool grows for it, and no pod ever gets
more of the vpod.
"""

from functools import partial
from pathlib import Path

import pytest

from extender.kube.api import VPODS, ApiError, Obj, PatchType
from extender.model.decode import vpod_from
from tests.e2e.backend import Backend
from tests.e2e.scenario import System
from tests.e2e.waiting import NotYet, eventually

PODS_MAX = 3


async def test_a_pool_grows_until_each_pod_has_no_more_than_the_limit(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(PODS_MAX)
        await system.pool(maxPods=PODS_MAX)
        tenant = await backend.namespace("tenant")
        vpod = system.vpod(tenant, "source-0", 5, placement={"maxPerPod": 2})
        await backend.api.create(VPODS, tenant, vpod)
        await eventually(partial(_has, system, tenant, [2, 2, 1]), 60.0, "three pods have it")
        await system.want(tenant, "source-0", 9)
        await eventually(partial(_has, system, tenant, [2, 2, 2]), 60.0, "three pods are full")
        patch = {"spec": {"placement": {"maxPerPod": 3}}}
        await backend.api.patch(VPODS, tenant, "source-0", patch, patch_type=PatchType.MERGE)
        await eventually(partial(_has, system, tenant, [3, 3, 3]), 60.0, "all are placed")
        await system.watcher.catch_up()
        for seen in system.watcher.of(VPODS):
            known = vpod_from(seen.object)
            assert max(known.placements.values(), default=0) <= known.max_per_pod


async def test_a_limit_below_one_is_refused(backend: Backend, tmp_path: Path):
    async with System(backend, tmp_path) as system:
        await system.pool()
        tenant = await backend.namespace("tenant")
        vpod: Obj = system.vpod(tenant, "source-0", 5, placement={"maxPerPod": 0})
        with pytest.raises(ApiError, match=r"placement\.maxPerPod"):
            await backend.api.create(VPODS, tenant, vpod)


async def _has(system: System, tenant: str, counts: list[int]) -> bool:
    stored = await system.backend.api.get(VPODS, tenant, "source-0")
    found = sorted(vpod_from(stored).placements.values(), reverse=True)
    if found != counts:
        raise NotYet(f"it has {found}")
    return True
