"""Pods marked for a kube-scheduler that others share: 0 of ``vreplica.dev/slots`` keeps no pod from
a node that comes, grows, or loses a taint.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from extender.kube.api import NODES, PODS, Obj, PatchType
from extender.model.names import SLOTS_RESOURCE
from tests.e2e.backend import Backend
from tests.e2e.scenario import POOL, QUICK_ELECTION, Setup, System

POD_CPUS = 3
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


async def patched(backend: Backend, node: str, patch: Obj, subresource: str = "") -> None:
    await backend.api.patch(
        NODES, "", node, patch, patch_type=PatchType.MERGE, subresource=subresource
    )


async def a_node_comes(backend: Backend, _node: str) -> None:
    await backend.add_nodes(1, cpu=POD_CPUS + 1)


async def a_node_grows(backend: Backend, node: str) -> None:
    more = {"cpu": str(POD_CPUS + 1)}
    await patched(backend, node, {"status": {"capacity": more, "allocatable": more}}, "status")


async def a_taint_goes(backend: Backend, node: str) -> None:
    await patched(backend, node, {"spec": {"taints": None}})


Change = Callable[[Backend, str], Awaitable[None]]


@pytest.mark.parametrize("change", [a_node_comes, a_node_grows, a_taint_goes])
async def test_a_marked_pod_that_waits_is_bound_when(
    backend: Backend, tmp_path: Path, change: Change
):
    setup = Setup(slots_resource=True, election=QUICK_ELECTION)
    async with System(backend, tmp_path, setup) as system:
        tainted = change is a_taint_goes
        (node,) = await backend.add_nodes(1, cpu=POD_CPUS + 1 if tainted else POD_CPUS - 1)
        if tainted:
            await patched(backend, node, {"spec": {"taints": [TAINT]}})
        namespace = await system.pool(cpu=str(POD_CPUS), minPods=1)
        why = "untolerated taint" if tainted else "Insufficient cpu"
        await system.event(namespace, f"{POOL}-0", "FailedScheduling", why, timeout_s=30.0)
        await change(backend, node)
        await system.settled(pods=1)
        pod = await backend.api.get(PODS, namespace, f"{POOL}-0")
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["requests"][SLOTS_RESOURCE] == "0"
