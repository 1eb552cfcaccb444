"""Adapter pods leave nodes that have been tainted, if their pool has opted in."""

from pathlib import Path
from typing import Any

from extender.kube.api import ADAPTERPOOLS, NODES, Obj, PatchType
from extender.model.names import POOL_LABEL
from tests.e2e.backend import Backend
from tests.e2e.objects import resource_of
from tests.e2e.real import RealBackend
from tests.e2e.scenario import POOL, SYSTEM_NAMESPACE, System
from tests.e2e.test_doctor import examined
from tests.e2e.waiting import NotYet, eventually

TAINT = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
RBAC = "rbac.authorization.k8s.io"


def evicting(namespace: str) -> list[Obj]:
    """The right to evict the pods of a namespace, for the service's account."""
    metadata = {"name": "evict", "namespace": namespace}
    account = {
        "kind": "ServiceAccount",
        "name": "vreplica-scheduler",
        "namespace": SYSTEM_NAMESPACE,
    }
    rule = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    ref = {"apiGroup": RBAC, "kind": "Role", "name": "evict"}
    kinds: list[Obj] = [
        {"kind": "Role", "rules": [rule]},
        {"kind": "RoleBinding", "roleRef": ref, "subjects": [account]},
    ]
    return [{"apiVersion": f"{RBAC}/v1", "metadata": metadata, **one} for one in kinds]


def budget(namespace: str, min_available: int) -> Obj:
    """A PodDisruptionBudget for the pool's pods."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "dispatchers", "namespace": namespace},
        "spec": {
            "minAvailable": min_available,
            "selector": {"matchLabels": {POOL_LABEL: POOL}},
        },
    }


def deployment() -> Obj:
    """The service's Deployment, of no pods: a scenario runs the service as a process. Doctor takes
    from it which account may evict.
    """
    labels = {"app": "vreplica-scheduler"}
    container = {"name": "scheduler", "image": "vreplica-scheduler:e2e"}
    spec = {"serviceAccountName": "vreplica-scheduler", "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "vreplica-scheduler", "namespace": SYSTEM_NAMESPACE},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


async def a_pool(system: System) -> None:
    """A pool that has opted in, with one pod and a second node for it."""
    await system.backend.apply([deployment()])
    await system.backend.add_nodes(2)
    await system.pool(
        scaleDownPeriodSeconds=1,
        descheduling={"reasons": ["NodeTaints"], "minPodAgeSeconds": 0},
    )


async def may_evict(system: System) -> None:
    """The shipped roles lack the right: only the chart's rbac.descheduling grants it. The embedded
    cluster asks for no rights.
    """
    if isinstance(system.backend, RealBackend):
        await system.backend.apply(evicting(system.namespace))


async def taint(system: System, node: str) -> None:
    patch = {"spec": {"taints": [TAINT]}}
    await system.backend.api.patch(NODES, "", node, patch, patch_type=PatchType.MERGE)


async def told(system: System, reason: str) -> Obj:
    """The pool's condition PodsMisplaced, when it has that reason."""

    async def look() -> Obj:
        pool = await system.backend.api.get(ADAPTERPOOLS, system.namespace, POOL)
        conditions: list[Obj] = pool.get("status", {}).get("conditions", [])
        found = next((one for one in conditions if one["type"] == "PodsMisplaced"), None)
        if found is None or found["reason"] != reason:
            raise NotYet(str(found))
        return found

    return await eventually(look, 60.0, f"PodsMisplaced has the reason {reason}")


async def diagnosed(system: System) -> dict[str, Any]:
    """What doctor says of descheduling."""
    _, checks = await examined(system)
    return checks["descheduling"]


async def all_well(system: System) -> None:
    """Doctor finds no misplaced pod. The service says so up to two looks after the evicted pod is
    Ready: until then PodsMisplaced has the reason EvictedPodNotReady, or is as before the taint.
    """

    async def look() -> bool:
        found = await diagnosed(system)
        if found["verdict"] != "ok":
            raise NotYet(str(found))
        return True

    await eventually(look, 60.0, "doctor finds no misplaced pod")


async def test_a_pod_leaves_a_tainted_node_and_comes_back_with_its_vreplicas(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await a_pool(system)
        await may_evict(system)
        await system.vpods(1, 4)
        (before,) = await system.settled(pods=1)
        await taint(system, before.node)
        await system.came_back(before, 60.0)
        (after,) = await system.settled(pods=1)
        assert after.ledger == before.ledger
        assert after.node != before.node
        await system.event(system.namespace, f"{POOL}-0", "Descheduled", "NodeTaints")
        await all_well(system)


async def test_a_budget_holds_the_pod_until_it_is_relaxed(backend: Backend, tmp_path: Path):
    async with System(backend, tmp_path) as system:
        await a_pool(system)
        await may_evict(system)
        await backend.apply([budget(system.namespace, 1)])
        await system.vpods(1, 4)
        (before,) = await system.settled(pods=1)
        await taint(system, before.node)
        condition = await told(system, "DisruptionBudget")
        assert condition["status"] == "True"
        assert f"{POOL}-0 (NodeTaints)" in condition["message"]
        await system.event(system.namespace, POOL, "DeschedulingRefused", "disruption budget")
        (line,) = (await diagnosed(system))["evidence"]
        assert "DisruptionBudget: 1 pod stands on a node that it should have left" in line
        (still,) = await system.settled(pods=1)
        assert (still.uid, still.node) == (before.uid, before.node)
        relaxed = budget(system.namespace, 0)
        await backend.apply([relaxed])
        try:
            await system.came_back(before, 60.0)
            (after,) = await system.settled(pods=1)
            assert (after.ledger, after.node != before.node) == (before.ledger, True)
            await told(system, "NoneMisplaced")
        finally:
            await backend.api.delete(resource_of(relaxed), system.namespace, "dispatchers")


async def test_without_the_right_pods_stay_and_all_else_goes_on_until_it_is_granted(
    real: RealBackend, tmp_path: Path
):
    async with System(real, tmp_path) as system:
        await a_pool(system)
        await system.vpods(1, 4)
        (before,) = await system.settled(pods=1)
        await taint(system, before.node)
        condition = await told(system, "EvictionForbidden")
        assert "rbac.descheduling" in condition["message"]
        await system.event(system.namespace, POOL, "DeschedulingRefused", "403")
        diagnosis = await diagnosed(system)
        assert diagnosis["verdict"] == "error"
        missing, stays = diagnosis["evidence"]
        assert f"may not create pods/eviction in namespace {system.namespace}" in missing
        assert "EvictionForbidden" in stays
        await system.vpods(2, 4)
        (still,) = await system.settled(pods=1)
        assert (still.uid, sum(share.vreplicas for share in still.ledger.values())) == (
            before.uid,
            12,
        )
        await real.apply(evicting(system.namespace))
        await system.came_back(before, 90.0)
        (after,) = await system.settled(pods=1)
        assert (after.ledger, after.node != before.node) == (still.ledger, True)
        await told(system, "NoneMisplaced")
        assert (await diagnosed(system))["verdict"] == "ok"
        system.forget_audit()
