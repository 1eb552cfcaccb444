"""Adapter pods leave nodes that have been tainted, if their pool has opted in."""

from pathlib import Path

from extender.kube.api import NODES, PatchType
from tests.e2e.backend import Backend
from tests.e2e.scenario import POOL, System

TAINT = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


async def test_a_pod_leaves_a_tainted_node_and_comes_back_with_its_vreplicas(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2)
        await system.pool(
            scaleDownPeriodSeconds=1,
            descheduling={"reasons": ["NodeTaints"], "minPodAgeSeconds": 0},
        )
        await system.vpods(1, 4)
        (before,) = await system.settled(pods=1)
        patch = {"spec": {"taints": [TAINT]}}
        await backend.api.patch(NODES, "", before.node, patch, patch_type=PatchType.MERGE)
        await system.came_back(before, 40.0)
        (after,) = await system.settled(pods=1)
        assert after.ledger == before.ledger
        assert after.node != before.node
        await system.event(system.namespace, f"{POOL}-0", "Descheduled", "NodeTaints")
