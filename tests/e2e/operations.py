"""What people, controllers and failing machines do to an installation: one call each, by the API
that they use.

Theory of operation. A scenario tells its story with these and with ``Backend``; each returns when
the API server has taken it, or where that is said, when what follows from it can be seen. Nothing
here looks at what our programs make of it.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from extender.kube.api import NODES, PODS, STATEFULSETS, VPODS, NotFound, Obj, PatchType
from extender.model.decode import pod_from
from extender.model.ledger import Ledger
from extender.model.names import UNSCHEDULABLE_ANNOTATION
from extender.model.objects import AdapterPod
from tests.e2e.backend import node_failed
from tests.e2e.build import BuildFailed, ControlPlaneUnavailable, ready_binaries
from tests.e2e.scenario import POOL, System, is_placed
from tests.e2e.waiting import NotYet, eventually

ROLL_TIMEOUT_S: Final = 60.0
DRAIN_TIMEOUT_S: Final = 30


# -- pods ------------------------------------------------------------------------------------------


async def mark_unschedulable(system: System, pod: str, *, unschedulable: bool = True) -> None:
    """Our annotation, by a person who drains the pod, or takes that back."""
    patch = {
        "metadata": {"annotations": {UNSCHEDULABLE_ANNOTATION: "true" if unschedulable else None}}
    }
    await system.backend.api.patch(PODS, system.namespace, pod, patch, patch_type=PatchType.MERGE)


async def evict(system: System, pod: str) -> None:
    """Through the eviction API, as kubectl drain and the cluster autoscaler do."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": system.namespace},
    }
    answer = await system.raw.post(
        f"/api/v1/namespaces/{system.namespace}/pods/{pod}/eviction", body
    )
    assert answer.status == 201, f"{pod} was not evicted: {answer.status} {answer.message}"


async def fail_pod(system: System, pod: str) -> None:
    """Its kubelet gives it up: phase Failed, as after an eviction for memory."""
    patch = {"status": {"phase": "Failed", "reason": "Evicted"}}
    await system.backend.api.patch(
        PODS, system.namespace, pod, patch, patch_type=PatchType.MERGE, subresource="status"
    )


async def delete_pod(system: System, pod: str, *, grace_s: int | None = None) -> None:
    """kubectl delete pod; ``grace_s`` 0 is its --force, which asks no kubelet."""
    await system.backend.api.delete(PODS, system.namespace, pod, grace_period_s=grace_s)


async def terminating(system: System, pods: Iterable[str]) -> None:
    """Returns when the deletion of these pods was asked for: they stay until their kubelet, or
    force, ends them.
    """
    names = set(pods)

    async def look() -> bool:
        going = {
            str(obj["metadata"]["name"])
            for obj in await system.adapters()
            if obj["metadata"].get("deletionTimestamp")
        }
        if names - going:
            raise NotYet(f"{sorted(names - going)} are not")
        return True

    await system.eventually(look, 30.0, f"{sorted(names)} are being deleted")


# -- nodes -----------------------------------------------------------------------------------------


async def cordon(system: System, node: str, *, unschedulable: bool = True) -> None:
    """kubectl cordon, or uncordon."""
    patch = {"spec": {"unschedulable": unschedulable or None}}
    await system.backend.api.patch(NODES, "", node, patch, patch_type=PatchType.MERGE)


async def drain_node(system: System, node: str) -> None:
    """kubectl drain, where there is a kubectl beside the control plane's programs; else the calls
    that it makes.
    """
    try:
        program = ready_binaries().program("kubectl")
    except (ControlPlaneUnavailable, BuildFailed):
        await cordon(system, node)
        adapters = [pod_from(obj) for obj in await system.adapters()]
        await asyncio.gather(*(evict(system, name) for name in on_nodes(adapters, [node])))
        return
    flags = [f"--kubeconfig={system.backend.kubeconfig}", f"--timeout={DRAIN_TIMEOUT_S}s"]
    process = system.backend.processes.start("kubectl", [program, "drain", node, *flags])
    assert await process.wait(DRAIN_TIMEOUT_S + 5.0) == 0, process.log_tail()


async def fail_nodes(system: System, nodes: Iterable[str]) -> None:
    """All of them lose their power at once; returns when the cluster has noticed."""
    names = list(nodes)
    for name in names:
        await system.backend.fail_node(name)
    await asyncio.gather(*(node_failed(system.backend.api, name) for name in names))


async def out_of_service(system: System, node: str) -> None:
    """kubectl taint: somebody has seen that the machine is off. The pod garbage collector removes
    its Terminating pods.
    """
    api = system.backend.api
    stored = await api.get(NODES, "", node)
    taint = {
        "key": "node.kubernetes.io/out-of-service",
        "value": "nodeshutdown",
        "effect": "NoExecute",
    }
    patch = {
        "metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]},
        "spec": {"taints": [*stored["spec"].get("taints", []), taint]},
    }
    await api.patch(NODES, "", node, patch, patch_type=PatchType.MERGE)


def on_nodes(adapters: Iterable[AdapterPod], nodes: Iterable[str]) -> set[str]:
    """Names of the pods on those nodes."""
    names = set(nodes)
    return {adapter.name for adapter in adapters if adapter.node in names}


# -- workloads -------------------------------------------------------------------------------------


async def upgrade(system: System, image: str) -> None:
    """A new image in the StatefulSet's template."""
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]
    await system.backend.api.patch(
        STATEFULSETS, system.namespace, POOL, patch, patch_type=PatchType.JSON
    )


async def rolled(system: System, image: str, pods: int) -> list[Obj]:
    """The adapter pods, when all of them run that image."""

    async def look() -> list[Obj]:
        objects = await system.adapters(POOL)
        images = [obj["spec"]["containers"][0]["image"] for obj in objects]
        if images.count(image) != len(images) or len(images) != pods:
            raise NotYet(f"{images}")
        return objects

    return await system.eventually(look, ROLL_TIMEOUT_S, f"{pods} pods run {image}")


async def without_pods(system: System) -> None:
    """Returns when no adapter pod is left."""

    async def look() -> bool:
        if objects := await system.adapters(POOL):
            raise NotYet(f"{[obj['metadata']['name'] for obj in objects]}")
        return True

    await system.eventually(look, 30.0, "the StatefulSet's pods are gone")


# -- tenants ---------------------------------------------------------------------------------------


async def remove_vpods(system: System, tenant: str, names: Iterable[str]) -> None:
    """Tenants delete their vpods; one that is gone already is as well."""

    async def remove(name: str) -> None:
        try:
            await system.backend.api.delete(VPODS, tenant, name)
        except NotFound:
            return

    await asyncio.gather(*(remove(name) for name in names))


async def placed(system: System, tenant: str, timeout_s: float = 30.0) -> None:
    """Returns when all vpods of one namespace are placed, whatever the others wait for."""

    async def look() -> bool:
        vpods = [vpod for vpod in (await system.all_vpods()).values() if vpod.namespace == tenant]
        if waiting := [vpod.key for vpod in vpods if not is_placed(vpod)]:
            raise NotYet(f"{len(waiting)} of {len(vpods)} wait: {waiting[:5]}")
        return True

    await system.eventually(look, timeout_s, f"all vpods of {tenant} are placed")


async def told(
    system: System, tenant: str, status: str, reason: str, timeout_s: float = 15.0, *, of: str = ""
) -> None:
    """Returns when the Scheduled condition of all vpods of a namespace (``of``: whose names begin
    so) is that.
    """

    async def look() -> bool:
        seen: dict[str, str] = {}
        for vpod in (await system.all_vpods()).values():
            if vpod.namespace == tenant and vpod.name.startswith(of):
                said = [f"{c.status} {c.reason}" for c in vpod.conditions if c.type == "Scheduled"]
                seen[vpod.name] = said[0] if said else "nothing"
        if not seen or set(seen.values()) != {f"{status} {reason}"}:
            raise NotYet(str(seen))
        return True

    await system.eventually(look, timeout_s, f"vpods of {tenant} say {status} {reason}")


async def emptied(system: System, pods: Iterable[str], timeout_s: float = 45.0) -> None:
    """Returns when nothing is left in the ledgers of these pods."""
    names = set(pods)

    async def look() -> bool:
        adapters = [pod_from(obj) for obj in await system.adapters()]
        if left := {a.name: dict(a.ledger) for a in adapters if a.name in names and a.ledger}:
            raise NotYet(f"{left}")
        return True

    await system.eventually(look, timeout_s, f"{sorted(names)} hold nothing")


async def seen(look: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Returns at the moment when the watcher's history shows it: the middle of something."""

    async def check() -> bool:
        return look()

    await eventually(check, timeout_s, what, interval_s=0.01)


# -- what stands -----------------------------------------------------------------------------------


def published(system: System, tenant: str = "") -> dict[str, int]:
    """VPod -> number of the version in which its placements last changed, as far as the watcher has
    seen.
    """
    last: dict[str, tuple[int, object]] = {}
    for version in system.watcher.of(VPODS):
        if tenant and not version.key.startswith(f"{tenant}/"):
            continue
        placements = version.object.get("status", {}).get("placements", [])
        if version.key not in last or last[version.key][1] != placements:
            last[version.key] = (version.number, placements)
    return {key: number for key, (number, _) in last.items()}


def ledgers(adapters: Iterable[AdapterPod]) -> dict[str, Ledger]:
    """Pod name -> its ledger."""
    return {adapter.name: adapter.ledger for adapter in adapters}


def deletions(system: System) -> list[str]:
    """Names of the adapter pods that went, in that order."""
    return [version.key.partition("/")[2] for version in system.watcher.of(PODS) if version.gone]
