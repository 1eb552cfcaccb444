"""Adapter pods leave nodes that have been tainted, if their pool has opted in."""

from pathlib import Path

from extender.kube.api import NODES, Obj, PatchType
from tests.e2e.backend import Backend
from tests.e2e.real import RealBackend
from tests.e2e.scenario import POOL, SYSTEM_NAMESPACE, System

TAINT = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


def evicting(namespace: str) -> list[Obj]:
    """The right to evict the pods of a namespace, for the service's account."""
    api_version, metadata = (
        "rbac.authorization.k8s.io/v1",
        {"name": "evict", "namespace": namespace},
    )
    account = {
        "kind": "ServiceAccount",
        "name": "vreplica-scheduler",
        "namespace": SYSTEM_NAMESPACE,
    }
    rule = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "evict"}
    return [
        {"apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": api_version,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": ref,
            "subjects": [account],
        },
    ]


async def test_a_pod_leaves_a_tainted_node_and_comes_back_with_its_vreplicas(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2)
        await system.pool(
            scaleDownPeriodSeconds=1,
            descheduling={"reasons": ["NodeTaints"], "minPodAgeSeconds": 0},
        )
        if isinstance(backend, RealBackend):
            # The shipped roles lack the right: only the chart's rbac.descheduling grants it.
            await backend.apply(evicting(system.namespace))
        await system.vpods(1, 4)
        (before,) = await system.settled(pods=1)
        patch = {"spec": {"taints": [TAINT]}}
        await backend.api.patch(NODES, "", before.node, patch, patch_type=PatchType.MERGE)
        await system.came_back(before, 60.0)
        (after,) = await system.settled(pods=1)
        assert after.ledger == before.ledger
        assert after.node != before.node
        await system.event(system.namespace, f"{POOL}-0", "Descheduled", "NodeTaints")
