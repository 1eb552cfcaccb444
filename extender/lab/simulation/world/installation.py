"""The objects of a simulated world that an administrator applies before any process starts."""

from extender.kube.api import (
    ADAPTERPOOLS,
    CRDS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    Obj,
)
from extender.lab.apiserver.cluster import Cluster
from extender.lab.embedded import EVICTION_WEBHOOK, node_object, stateful_set_object
from extender.lab.simulation.world import streams
from extender.lab.simulation.world.objects import pool_object
from extender.lab.simulation.world.scale import NS, TENANTS, ZONES, Scale
from extender.model.names import OWN_NAMESPACE
from extender.shipped import manifests


async def install(cluster: Cluster, scale: Scale) -> None:
    """Create the shipped manifests, nodes, and pools with a StatefulSet each."""
    await _install_service(cluster, scale)
    for index in range(scale.nodes):
        node = node_object(f"node-{index}", f"zone-{index % ZONES}", slots=scale.node_slots)
        await cluster.create(NODES, "", node)
    spec: Obj = {"slotsPerPod": scale.slots_per_pod, "minPods": scale.min_pods}
    if scale.max_pods is not None:
        spec["maxPods"] = scale.max_pods
    for pool, more in zip(scale.pool_names, scale.pools, strict=True):
        stateful_set = stateful_set_object(pool, namespace=NS, replicas=0, pool="")
        if "rollout" in more:
            stateful_set["spec"]["updateStrategy"] = {"type": "OnDelete"}
        await cluster.create(STATEFULSETS, NS, stateful_set)
        sources = {"sources": [streams.source(pool)]} if scale.sources else {}
        await cluster.create(ADAPTERPOOLS, NS, pool_object(pool, **{**spec, **more, **sources}))


async def _install_service(cluster: Cluster, scale: Scale) -> None:
    for path in ("crds/adapterpools.yaml", "crds/vpods.yaml", "crds/vreplicaquotas.yaml"):
        for definition in manifests(path):
            await cluster.create(CRDS, "", definition)
    if scale.sources:
        await cluster.create(CRDS, "", streams.definition())
    for namespace in (OWN_NAMESPACE, NS, *TENANTS):
        labels = scale.labels.get(namespace, {})
        await cluster.create(
            NAMESPACES, "", {"metadata": {"name": namespace, "labels": dict(labels)}}
        )
    for lease in scale.lease_names:
        await install_lease(cluster, lease)
    hook = manifests("base/webhook-configurations.yaml")[0]
    await cluster.create(MUTATING_WEBHOOKS, "", hook)
    if any(pool.get("handoff") for pool in scale.pools):
        await cluster.create(VALIDATING_WEBHOOKS, "", EVICTION_WEBHOOK)


async def install_lease(cluster: Cluster, name: str) -> None:
    """Create a Lease that nobody has ever held."""
    await cluster.create(LEASES, OWN_NAMESPACE, {"metadata": {"name": name}})
