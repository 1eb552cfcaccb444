"""A pool grows from nothing on nodes that Karpenter makes for it, and shrinks until they
are gone.
"""

import math
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from extender.kube.api import ADAPTERPOOLS, NODES, PODS as PODS_RESOURCE, PatchType
from extender.model.moves import MoveReason
from extender.model.names import SLOTS_RESOURCE, ZONE_LABEL
from tests.e2e.build import KARPENTER, Binaries, ControlPlaneUnavailable, ready_binaries
from tests.e2e.controlplane import ControlPlane
from tests.e2e.karpenter import NODE_CPUS, ZONES, made_nodes, start_karpenter
from tests.e2e.operations import remove_vpods
from tests.e2e.real import RealBackend
from tests.e2e.scenario import POOL, Setup, System
from tests.e2e.waiting import NotYet, eventually

PODS: Final = 50
VPODS: Final = 10
VREPLICAS: Final = 60
POD_CPU: Final = "900m"
PODS_A_NODE: Final = NODE_CPUS
"""The rest of a node's cores is Karpenter's estimate of what a system needs."""
NODES_LEAST: Final = sum(
    math.ceil(len(range(zone, PODS, len(ZONES))) / PODS_A_NODE) for zone in range(len(ZONES))
)
"""With the pods spread evenly over the zones."""
GROWN_TIMEOUT_S: Final = 120.0
GONE_TIMEOUT_S: Final = 240.0
"""The pool shrinks by periods of a minute, and Karpenter looks twice before it takes a node away.
"""
SPREAD: Final = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "minDomains": len(ZONES),
            "topologyKey": ZONE_LABEL,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "dispatcher"}},
        }
    ]
}
"""What Karpenter can know of a zone rule: it reads the pod, not the pool's profile."""


@pytest.fixture(scope="module")
def binaries() -> Binaries:
    try:
        return ready_binaries(KARPENTER)
    except ControlPlaneUnavailable as reason:
        pytest.skip(str(reason))


async def test_a_pod_that_is_marked_for_a_shared_kube_scheduler_gets_its_node_too(
    own_control_plane: ControlPlane, binaries: Binaries, tmp_path: Path
):
    """It requests 0 of a resource that no node offers."""
    setup = Setup(slots_resource=True)
    async with (
        RealBackend(own_control_plane, tmp_path) as backend,
        System(backend, tmp_path, setup) as system,
    ):
        await start_karpenter(backend, binaries, tmp_path)
        namespace = await system.pool(cpu=POD_CPU, minPods=1)

        async def made() -> str:
            names = [str(node["metadata"]["name"]) for node in await made_nodes(backend)]
            if len(names) != 1:
                raise NotYet(f"nodes: {names}")
            return names[0]

        node = await eventually(made, GROWN_TIMEOUT_S, "a node for the pod")
        # The kwok provider copies what pods request into the node's status, where 0 slots are a
        # limit. A kubelet does not.
        none = {"capacity": {SLOTS_RESOURCE: None}, "allocatable": {SLOTS_RESOURCE: None}}
        await backend.api.patch(
            NODES,
            "",
            node,
            {"status": none},
            patch_type=PatchType.MERGE,
            subresource="status",
        )
        await system.settled(pods=1)
        pod = await backend.api.get(PODS_RESOURCE, namespace, f"{POOL}-0")
        assert pod["spec"]["nodeName"] == node
        assert pod["spec"]["containers"][0]["resources"]["requests"][SLOTS_RESOURCE] == "0"


async def resized(system: System, pods: int) -> None:
    """The pool gets so many pods at least."""
    patch = {"spec": {"minPods": pods}}
    await system.backend.api.patch(
        ADAPTERPOOLS, system.namespace, POOL, patch, patch_type=PatchType.MERGE
    )


@pytest.mark.long
@pytest.mark.timeout(480)
async def test_a_pool_gets_its_nodes_from_karpenter_and_gives_them_back(
    own_control_plane: ControlPlane, binaries: Binaries, tmp_path: Path
):
    async with (
        RealBackend(own_control_plane, tmp_path) as backend,
        System(backend, tmp_path) as system,
    ):
        # The vpods are placed on the first pods that come, and the profile prefers all of them. The
        # first move of a swap has the reason MakeRoom.
        system.watcher.may_move = frozenset({MoveReason.POLICY, MoveReason.MAKE_ROOM})
        await start_karpenter(backend, binaries, tmp_path)
        await system.pool(cpu=POD_CPU, pod_spec=SPREAD, profile="ha", minPods=0, maxPods=PODS)
        await resized(system, PODS)
        tenant = await system.vpods(VPODS, VREPLICAS)
        adapters = await system.settled(pods=PODS, timeout_s=GROWN_TIMEOUT_S)

        nodes = await made_nodes(backend)
        assert NODES_LEAST <= len(nodes) <= NODES_LEAST + 1
        zone_of = {
            node["metadata"]["name"]: node["metadata"]["labels"][ZONE_LABEL] for node in nodes
        }
        zones = Counter(zone_of[adapter.node] for adapter in adapters)
        assert max(zones.values()) - min(zones.values()) <= 1, zones

        await remove_vpods(system, tenant, [f"source-{index}" for index in range(VPODS)])
        await resized(system, 0)

        async def gone() -> bool:
            if left := await made_nodes(backend):
                raise NotYet(f"{len(left)} nodes, {len(await system.adapters())} pods")
            return True

        await eventually(
            gone, GONE_TIMEOUT_S, "the pool has shrunk, and Karpenter has taken its nodes away"
        )
