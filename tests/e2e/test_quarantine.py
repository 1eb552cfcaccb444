"""``spec.quarantine`` on a real control plane: the condition is written beside the others, nothing
more is placed, and a person ends it.
"""

from functools import partial
from pathlib import Path

from extender.kube.api import PODS, VPODS, PatchType
from extender.lab.clock import wall_clock
from extender.model.decode import vpod_from
from extender.model.names import RELEASED_ANNOTATION
from extender.model.timestamps import timestamp
from tests.e2e.backend import Backend
from tests.e2e.scenario import System
from tests.e2e.waiting import NotYet, eventually


async def test_a_vpod_whose_pods_crash_gets_no_further_place_until_it_is_released(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2)
        await system.pool(minPods=2, maxPods=2, quarantine={"crashedPods": 2})
        tenant = await backend.namespace("tenant")
        vpod = system.vpod(tenant, "source-0", 4, placement={"maxPerPod": 3})
        await backend.api.create(VPODS, tenant, vpod)
        await eventually(partial(_says, system, tenant, "Scheduled", "AllPlaced"), 60.0)
        for ordinal in range(2):
            await _crash(system, f"dispatcher-{ordinal}")
        await eventually(partial(_says, system, tenant, "Quarantined", "PodsCrashed"), 30.0)
        await system.want(tenant, "source-0", 6)
        await eventually(partial(_says, system, tenant, "Scheduled", "Quarantined"), 30.0)
        stamp = {"metadata": {"annotations": {RELEASED_ANNOTATION: timestamp(wall_clock() + 1.0)}}}
        await backend.api.patch(VPODS, tenant, "source-0", stamp, patch_type=PatchType.MERGE)
        await eventually(partial(_says, system, tenant, "Quarantined", "Released"), 30.0)
        await eventually(partial(_says, system, tenant, "Scheduled", "AllPlaced"), 30.0)


async def _crash(system: System, name: str) -> None:
    container = {
        "name": "adapter",
        "image": "adapter",
        "imageID": "adapter",
        "ready": True,
        "restartCount": 1,
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
    }
    status = {"status": {"containerStatuses": [container]}}
    await system.backend.api.patch(
        PODS,
        system.namespace,
        name,
        status,
        patch_type=PatchType.MERGE,
        subresource="status",
    )


async def _says(system: System, tenant: str, kind: str, reason: str) -> bool:
    vpod = vpod_from(await system.backend.api.get(VPODS, tenant, "source-0"))
    known = {one.type: one.reason for one in vpod.conditions}
    if known.get(kind) != reason:
        raise NotYet(f"{known}, {dict(vpod.placements)}")
    return True
