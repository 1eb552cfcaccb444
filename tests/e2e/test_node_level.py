"""The node level: which zone and node an adapter pod gets, by what it carries (filter,
prioritize).
"""

from collections import Counter
from pathlib import Path
from typing import Final

from extender.kube.api import NODES
from extender.model.decode import pod_from
from extender.model.names import ZONE_LABEL
from extender.model.objects import AdapterPod
from tests.e2e.backend import Backend, nodes_ready
from tests.e2e.operations import delete_pod, fail_nodes, ledgers, on_nodes, published
from tests.e2e.scenario import POOL, System
from tests.e2e.waiting import NotYet, eventually

ZONES: Final = 3


async def test_a_growing_pool_spreads_over_zones_and_nodes(backend: Backend, tmp_path: Path):
    async with System(backend, tmp_path) as system:
        nodes = await backend.add_nodes(2 * ZONES, zones=ZONES)
        await system.pool(minPods=2 * ZONES)
        adapters = await system.settled(pods=2 * ZONES)
        assert sorted(adapter.node for adapter in adapters) == sorted(nodes)
        await system.vpods(4, 2 * ZONES)
        await system.settled(pods=2 * ZONES)
        zones = await zones_of(system)
        for vpod in (await system.all_vpods()).values():
            at = {adapter.name: zones[adapter.node] for adapter in adapters}
            lost = Counter[str]()
            for name, count in vpod.placements.items():
                lost[at[name]] += count
            assert max(lost.values()) == 2, f"a third of {vpod.key} in each zone: {lost}"


async def test_a_pod_that_comes_back_prefers_its_previous_node_to_an_empty_one(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(ZONES, zones=ZONES)
        await system.pool(minPods=ZONES)
        await system.settled(pods=ZONES)
        await system.vpods(4, ZONES)
        before = await system.settled(pods=ZONES)
        await backend.add_nodes(ZONES, zones=ZONES)
        for adapter in before:
            await delete_pod(system, adapter.name)
            await system.came_back(adapter)
            await system.settled(pods=ZONES)
        after = await system.settled(pods=ZONES)
        assert places(after) == places(before)
        assert ledgers(after) == ledgers(before)


async def test_under_a_hard_zone_rule_the_pods_of_a_failed_zone_wait_for_it(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2 * ZONES, zones=ZONES)
        namespace = await system.pool(profile="ha", minPods=2 * ZONES)
        await system.settled(pods=2 * ZONES)
        await system.vpods(6, 2 * ZONES)
        before = await system.settled(pods=2 * ZONES)
        standing = published(system)
        zones = await zones_of(system)
        failing = [name for name, zone in zones.items() if zone == "zone-1"]
        away = on_nodes(before, failing)
        assert len(away) == 2
        await fail_nodes(system, failing)
        for name in sorted(away):
            await delete_pod(system, name, grace_s=0)
        for name in sorted(away):
            await system.event(namespace, name, "FailedScheduling", "4 ZoneSkewExceeded")
        assert not await nodes_of_pods(system, away)
        for name in failing:
            await backend.recover_node(name)
        await nodes_ready(backend.api, failing)
        after = await system.settled(pods=2 * ZONES)
        assert on_nodes(after, failing) == away
        assert ledgers(after) == ledgers(before)
        assert published(system) == standing


async def test_a_pod_of_a_zone_that_is_removed_comes_back_in_another(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(ZONES, zones=ZONES)
        await system.pool(profile="ha", minPods=ZONES)
        await system.settled(pods=ZONES)
        await system.vpods(4, 2 * ZONES)
        before = await system.settled(pods=ZONES)
        (gone,) = [name for name, zone in (await zones_of(system)).items() if zone == "zone-2"]
        (name,) = on_nodes(before, [gone])
        await backend.remove_node(gone)
        await delete_pod(system, name, grace_s=0)

        async def bound() -> bool:
            if not await nodes_of_pods(system, {name}):
                raise NotYet(f"{name} has no node")
            return True

        await eventually(bound, 20.0, f"{POOL}'s pod of the removed zone has a node")


async def zones_of(system: System) -> dict[str, str]:
    """Node -> zone."""
    page = await system.backend.api.list_page(NODES)
    return {
        str(obj["metadata"]["name"]): str(obj["metadata"]["labels"][ZONE_LABEL])
        for obj in page.items
    }


async def nodes_of_pods(system: System, names: set[str]) -> set[str]:
    """Those of the pods that have a node."""
    adapters = [pod_from(obj) for obj in await system.adapters()]
    return {adapter.name for adapter in adapters if adapter.name in names and adapter.node}


def places(adapters: list[AdapterPod]) -> dict[str, str]:
    """Pod name -> node."""
    return {adapter.name: adapter.node for adapter in adapters}
