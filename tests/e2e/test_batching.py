"""Adapter pods spread over zones also with what kube-scheduler turns on next.

Theory of operation. Kubernetes 1.37 with OpportunisticBatching and GenericWorkload on. With the
first, a pod that equals the one before gets the next best node of that one's list as a hint: filter
would be asked about that node alone, and prioritize not be called. kube-scheduler gives no hints
while an extender is configured (computeBatchablePlugins, 1.35 to 1.37), and this suite notices if
that changes. A profile under which the pods of a StatefulSet count as equal is among the rows: by
default their labels and the default spread constraints keep them from that. With the second feature
all pods of a PodGroup are decided in one cycle, before any of them is bound.
"""

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from extender.kube.api import NODES, Obj
from extender.model.names import ZONE_LABEL
from tests.e2e.build import VERSIONS, kubernetes_module
from tests.e2e.controlplane import ControlPlane, Settings
from tests.e2e.real import RealBackend
from tests.e2e.scenario import System

ZONES: Final = 3
PODS: Final = 12
SETTINGS: Final = Settings(
    feature_gates=("OpportunisticBatching", "GenericWorkload"),
    runtime_config="scheduling.k8s.io/v1beta1=true",
)
pytestmark = pytest.mark.skipif(
    kubernetes_module().folder != VERSIONS[-1],
    reason=f"the features are those of Kubernetes {VERSIONS[-1]}",
)
GROUPS: Final = "/apis/scheduling.k8s.io/v1beta1/namespaces/{}/podgroups"
_ARGS: Final = {"apiVersion": "kubescheduler.config.k8s.io/v1"}
_EQUAL: Final = [
    {
        "name": "PodTopologySpread",
        "args": {
            **_ARGS,
            "kind": "PodTopologySpreadArgs",
            "defaultingType": "List",
            "defaultConstraints": [],
        },
    },
    {
        "name": "InterPodAffinity",
        "args": {
            **_ARGS,
            "kind": "InterPodAffinityArgs",
            "ignorePreferredTermsOfExistingPods": True,
        },
    },
]
"""Plugin arguments under which pods of a StatefulSet count as equal."""


class AsShipped(System):
    """An installation whose kube-scheduler spreads pods as well, by what it has assumed."""

    least_in_a_zone = PODS // ZONES


class EqualPods(System):
    """An installation to whose kube-scheduler the pods of a StatefulSet are equal. Only prioritize
    spreads them. It does not know where kube-scheduler has assumed a pod until bind is called, so
    the next pods may go to the same zone.
    """

    least_in_a_zone = PODS // ZONES // 2

    async def scheduler_config(self) -> Obj:
        """As ``System``, with plugin arguments that leave nothing in which the pods differ."""
        config = await super().scheduler_config()
        config["profiles"][0]["pluginConfig"] = _EQUAL
        return config


async def pods_by_zone(system: System) -> list[int]:
    """How many adapter pods each zone has."""
    nodes = (await system.backend.api.list_page(NODES)).items
    zones = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE_LABEL] for node in nodes}
    adapters = await system.settled(pods=PODS)
    return sorted(Counter(zones[adapter.node] for adapter in adapters).values())


@pytest.mark.parametrize("kind", [AsShipped, EqualPods], ids=["as shipped", "equal pods"])
async def test_twelve_pods_at_once_spread_over_zones(
    own_control_plane: ControlPlane, tmp_path: Path, kind: type[AsShipped | EqualPods]
):
    async with (
        RealBackend(own_control_plane, tmp_path) as backend,
        kind(backend, tmp_path) as system,
    ):
        await backend.add_nodes(2 * ZONES, zones=ZONES)
        await system.pool(minPods=PODS)
        assert min(await pods_by_zone(system)) >= kind.least_in_a_zone
        asked = await system.requests()
        assert asked["prioritize"] >= PODS, f"kube-scheduler reuses scores: {asked}"


async def test_twelve_pods_of_one_gang_spread_over_zones(
    own_control_plane: ControlPlane, tmp_path: Path
):
    async with (
        RealBackend(own_control_plane, tmp_path) as backend,
        System(backend, tmp_path) as system,
    ):
        await backend.add_nodes(2 * ZONES, zones=ZONES)
        group = {
            "metadata": {"name": "gang"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": PODS}}},
        }
        system.namespace = await backend.namespace("adapters")
        answer = await system.raw.post(GROUPS.format(system.namespace), group)
        assert answer.status == 201, answer
        await system.pool(minPods=PODS, pod_spec={"schedulingGroup": {"podGroupName": "gang"}})
        assert await pods_by_zone(system) == [PODS // ZONES] * ZONES
