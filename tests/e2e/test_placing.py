"""A pool grows, its vpods are placed, and a pod that comes back has what it had."""

from pathlib import Path

import pytest

from extender.kube.api import PODS, VPODS
from extender.model.decode import pod_from
from extender.model.ledger import Ledger, ledger_slots
from extender.model.names import PLACEMENTS_ANNOTATION, SCHEDULER_NAME
from extender.model.objects import AdapterPod
from tests.e2e.backend import Backend, pods_ready
from tests.e2e.objects import pod
from tests.e2e.scenario import POOL, SLOTS_PER_POD, Setup, System
from tests.e2e.waiting import NotYet, eventually


@pytest.mark.parametrize(
    "node_cache_capable",
    [pytest.param(True, id="node names only"), pytest.param(False, id="full nodes")],
)
async def test_a_pool_grows_from_nothing_and_all_forty_vpods_are_placed(
    backend: Backend, tmp_path: Path, node_cache_capable: bool
):
    async with System(backend, tmp_path, Setup(node_cache_capable=node_cache_capable)) as system:
        await backend.add_nodes(6)
        await system.pool()
        for _ in range(4):
            await system.vpods(10, 8)
        adapters = await system.settled(pods=40 * 8 // SLOTS_PER_POD)
        assert sum(ledger_slots(adapter.ledger) for adapter in adapters) == 320
        nodes = [adapter.node for adapter in adapters]
        assert max(nodes.count(node) for node in nodes) <= 4  # 16 pods on 6 nodes
        requests = await system.requests()
        assert requests["bind"] == 16
        assert requests["filter"] >= 16


async def test_an_adapter_pod_that_is_deleted_comes_back_with_its_placements(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(6)
        namespace = await system.pool()
        await system.vpods(20, 8)
        before = {adapter.name: adapter for adapter in await system.settled(pods=8)}
        published = {version.key: version.number for version in system.watcher.of(VPODS)}
        await backend.api.delete(PODS, namespace, f"{POOL}-3")
        await system.came_back(before[f"{POOL}-3"])
        after = {adapter.name: adapter for adapter in await system.settled(pods=8)}
        assert _ledgers(after) == _ledgers(before)
        assert {version.key: version.number for version in system.watcher.of(VPODS)} == published


async def test_pods_without_the_label_are_bound_plainly_and_only_those_that_name_us_are_asked(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, Setup(default_scheduler=True)) as system:
        await backend.add_nodes(3)
        await system.pool()
        namespace = await backend.namespace("plain")
        plain = [pod(namespace, f"plain-{index}") for index in range(3)]
        named = [
            pod(namespace, f"named-{index}", schedulerName=SCHEDULER_NAME) for index in range(3)
        ]
        for obj in plain + named:
            obj["metadata"]["labels"] = {"app": "plain"}
        stored = await backend.apply([*plain, *named])
        await pods_ready(backend.api, namespace, "app=plain", 6)
        assert all("annotations" not in obj["metadata"] for obj in stored)
        for obj in stored:
            bound = await backend.api.get(PODS, namespace, obj["metadata"]["name"])
            assert PLACEMENTS_ANNOTATION not in bound["metadata"].get("annotations", {})
        assert await system.requests() == {"filter": 3, "prioritize": 3, "bind": 3, "preempt": 0}


async def test_without_room_everybody_is_told_why_and_a_new_node_is_all_that_it_takes(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2, slots=SLOTS_PER_POD)
        namespace = await system.pool()
        tenant = await system.vpods(6, 8)
        refused = await _the_pod_without_a_node(system, 3)
        await system.event(namespace, refused, "FailedScheduling", "2 NodeSlotsExceeded")
        vpods = await system.all_vpods()
        assert sum(vpod.scheduled_vreplicas for vpod in vpods.values()) == 2 * SLOTS_PER_POD
        waiting = [vpod for vpod in vpods.values() if vpod.scheduled_vreplicas < 8]
        assert waiting
        for vpod in waiting:
            (scheduled,) = [entry for entry in vpod.conditions if entry.type == "Scheduled"]
            assert (scheduled.status, scheduled.reason) == ("False", "InsufficientSlots")
            await system.event(tenant, vpod.name, "FailedScheduling")
        await backend.add_nodes(1, slots=SLOTS_PER_POD)
        adapters = await system.settled(pods=3)
        assert len({adapter.node for adapter in adapters}) == 3


async def test_a_kube_scheduler_that_counts_the_slots_itself_refuses_by_its_own_count(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path, Setup(slots_counted=True)) as system:
        await backend.add_nodes(2, slots=SLOTS_PER_POD)
        namespace = await system.pool()
        await system.vpods(6, 8)
        refused = await _the_pod_without_a_node(system, 3)
        await system.event(
            namespace, refused, "FailedScheduling", "2 Insufficient vreplica.dev/slots"
        )
        await backend.add_nodes(1, slots=SLOTS_PER_POD)
        adapters = await system.settled(pods=3)
        assert len({adapter.node for adapter in adapters}) == 3


def _ledgers(adapters: dict[str, AdapterPod]) -> dict[str, Ledger]:
    return {name: adapter.ledger for name, adapter in adapters.items()}


async def _the_pod_without_a_node(system: System, pods: int) -> str:
    """Waits until all but one of ``pods`` are bound and full; the name of that one."""

    async def look() -> str:
        adapters = [pod_from(obj) for obj in await system.adapters()]
        full = [a for a in adapters if a.node and ledger_slots(a.ledger) == SLOTS_PER_POD]
        published = sum(vpod.scheduled_vreplicas for vpod in (await system.all_vpods()).values())
        if (
            len(adapters) != pods
            or len(full) != pods - 1
            or published != (pods - 1) * SLOTS_PER_POD
        ):
            raise NotYet(
                f"{[(a.name, a.node, ledger_slots(a.ledger)) for a in adapters]}, {published} "
                f"published"
            )
        return next(adapter.name for adapter in adapters if not adapter.node)

    return await eventually(look, 30.0, "all but one are bound")
