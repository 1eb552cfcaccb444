"""``filter.narrowTo`` with the registration that goes with it: few nodes pass, the best ones, and
nothing else is different.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from extender.kube.api import Obj
from tests.e2e.backend import Backend
from tests.e2e.extender_proxy import Filtered, Proxy
from tests.e2e.objects import MANIFESTS, load
from tests.e2e.scenario import SLOTS_PER_POD, Setup, System, adapter_pool
from tests.e2e.test_node_level import zones_of
from tests.e2e.waiting import NotYet, eventually

ZONES: Final = 3


class NarrowSystem(System):
    """The installation for large clusters: filter passes ``narrow_to`` nodes, and prioritize is not
    registered.
    """

    def __init__(self, backend: Backend, directory: Path, proxy: Proxy, narrow_to: int) -> None:
        super().__init__(backend, directory, Setup(extender_url=proxy.url))
        proxy.target = self.service_url
        self._narrow_to = narrow_to

    async def service_config(self) -> Obj:
        return {**await super().service_config(), "filter": {"narrowTo": self._narrow_to}}

    async def scheduler_config(self) -> Obj:
        (config,) = load(MANIFESTS / "kube-scheduler" / "config-narrow.yaml")
        return config


async def test_the_best_few_nodes_pass_and_pods_spread_over_zones_and_nodes_without_prioritize(
    backend: Backend, tmp_path: Path
):
    async with Proxy() as proxy, NarrowSystem(backend, tmp_path, proxy, narrow_to=2) as system:
        nodes = await backend.add_nodes(2 * ZONES, zones=ZONES)
        namespace = await system.pool(minPods=1)
        # One after the other: of pods that come at once, the later ones are asked about before the
        # first are bound.
        for pods in range(1, 2 * ZONES + 1):
            await backend.apply([adapter_pool(namespace, minPods=pods)])
            await system.settled(pods=pods)
        await system.vpods(10, 2 * ZONES)
        adapters = await system.settled(pods=2 * ZONES)
        for filtered in first_of_each(proxy.filters):
            assert sorted(filtered.asked) == sorted(nodes)
            assert len(filtered.passed) == 2, "of six nodes on which the pod fits"
            assert not filtered.refused, "what is left out is not refused"
        assert len(first_of_each(proxy.filters)) == 2 * ZONES
        assert (await system.requests())["prioritize"] == 0
        zones = await zones_of(system)
        assert Counter(zones[adapter.node] for adapter in adapters) == {
            f"zone-{index}": 2 for index in range(ZONES)
        }
        assert sorted(adapter.node for adapter in adapters) == sorted(nodes)


async def test_who_finds_no_node_is_told_all_reasons_and_placed_with_a_new_one(
    backend: Backend, tmp_path: Path
):
    async with Proxy() as proxy, NarrowSystem(backend, tmp_path, proxy, narrow_to=1) as system:
        roomy = await backend.add_nodes(2, slots=SLOTS_PER_POD)
        await backend.add_nodes(2, cpu=2)
        namespace = await system.pool(cpu="4")
        await system.vpods(6, 8)

        async def told() -> str:
            """The name of the pod that has no node."""
            for obj in await system.adapters():
                name = str(obj["metadata"]["name"])
                notes = [event.get("note", "") for event in await system.events(namespace, name)]
                if any(
                    "2 Insufficient cpu" in note and "2 NodeSlotsExceeded" in note for note in notes
                ):
                    assert not obj["spec"].get("nodeName")
                    return name
            raise NotYet("no pod was told both")

        refused = await eventually(told, 30.0, "a pod without a node is told why")
        assert sorted(proxy.filters[0].asked) == sorted(roomy), (
            "kube-scheduler itself left the small ones out"
        )
        assert len(proxy.filters[0].passed) == 1
        (new,) = await backend.add_nodes(1, slots=SLOTS_PER_POD)
        adapters = await system.settled(pods=3)
        assert {adapter.name: adapter.node for adapter in adapters}[refused] == new
        assert (await system.requests())["prioritize"] == 0


def first_of_each(filters: Iterable[Filtered]) -> list[Filtered]:
    """What was said of each pod when it was asked about first: the next time more nodes pass."""
    first: dict[str, Filtered] = {}
    for filtered in filters:
        first.setdefault(filtered.pod_uid, filtered)
    return list(first.values())
