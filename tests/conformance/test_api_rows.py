"""Knative's own tests of its scheduler, row by row, against the Python API and the running
service.

Each row runs on the embedded cluster: the vpods have Knative's getters only (``SampleVPod``), the
scheduler is made as Knative's ``statefulset.New`` is, and the reservations are in the ledgers of
the adapter pods.
"""

from collections.abc import Iterable, Mapping

import pytest

from extender.scheduling_api import InsufficientSlots, Placement
from extender.scheduling_api.statefulset import StatefulSetScheduler
from tests.conformance.api_rows import (
    AUTOSCALE,
    COMPACT,
    SCHEDULE,
    STATE,
    AutoscaleRow,
    CompactRow,
    Other,
    ScheduleRow,
    StateRow,
)
from tests.support.scheduling import (
    SOURCE,
    STATEFUL_SET,
    SampleVPod,
    VPodClient,
    a_scheduler,
    by_ordinal,
    controller,
    placed,
)
from tests.support.service import World, until

VPOD = ("source-namespace", "source-name")


def ledgers(held: Iterable[tuple[str, str, Mapping[int, int]]]) -> dict[int, dict[str, int]]:
    """Ordinal -> ledger, of (namespace, name, ordinal -> vreplicas)."""
    found: dict[int, dict[str, int]] = {}
    for namespace, name, counts in held:
        for ordinal, count in counts.items():
            if count:
                found.setdefault(ordinal, {})[f"{namespace}/{name}@{SOURCE}"] = count
    return found


async def a_world(
    replicas: int,
    held: Mapping[int, Mapping[str, int]],
    *,
    bound: Iterable[int] | None = None,
    **pool,
) -> World:
    world = await World.create(replicas=replicas, **pool)
    there = set(range(replicas)) if bound is None else set(bound)
    for ordinal in range(replicas):
        node = f"node-{ordinal % 3}" if ordinal in there else ""
        await world.pod(ordinal, held.get(ordinal, {}), node=node, slots=pool["slots"])
    return world


def create(client: VPodClient, others: Iterable[Other]) -> list[SampleVPod]:
    return [client.create(o.namespace, o.name, o.vreplicas, o.placements) for o in others]


async def answer(scheduler: StatefulSetScheduler, vpod: SampleVPod) -> tuple[list[Placement], int]:
    try:
        return await scheduler.Schedule(vpod), 0
    except InsufficientSlots as error:
        return error.placements, error.left


@pytest.mark.parametrize("row", SCHEDULE, ids=lambda row: row.id)
async def test_schedule(row: ScheduleRow):
    held = ledgers(
        [(*VPOD, row.reserved), *((o.namespace, o.name, o.placements) for o in row.others)]
    )
    bound = None if row.pods_bound is None else range(row.pods_bound)
    world = await a_world(
        row.replicas, held, bound=bound, slots=row.capacity, minPodsPerVPod=row.min_replicas
    )
    client = VPodClient()
    create(client, row.others)
    vpod = client.create(*VPOD, row.vreplicas, row.placements)
    async with a_scheduler(world, client, checked=False) as scheduler:  # some begin overcommitted
        placements, left = await answer(scheduler, vpod)
        reserved = await scheduler.Reserved()
    assert (by_ordinal(placements), left) == (row.expected, row.left)
    for name, count in placements:
        assert reserved[vpod.key][name] >= count


@pytest.mark.parametrize("row", AUTOSCALE, ids=lambda row: row.id)
async def test_autoscale(row: AutoscaleRow):
    held = ledgers((o.namespace, o.name, o.placements) for o in row.vpods)
    period_s = 1 if row.scale_down else 3600
    world = await a_world(row.replicas, held, slots=10, scaleDownPeriodSeconds=period_s)
    client = VPodClient()
    create(client, row.vpods)
    async with a_scheduler(world, client, checked=False, refresh_period_s=0.2) as scheduler:
        async with controller(client, scheduler):
            await scheduler.resync()
            await until(world.replicas, row.expected, timeout_s=10)
        state = await scheduler.state()
    assert state.total_expected_vreplicas() == sum(o.vreplicas for o in row.vpods)
    assert client.lists > 0


@pytest.mark.parametrize("row", COMPACT, ids=lambda row: row.id)
async def test_compact(row: CompactRow):
    there = range(row.replicas)
    held = ledgers(
        (o.namespace, o.name, {n: count for n, count in o.placements.items() if n in there})
        for o in row.vpods
    )
    world = await a_world(row.replicas, held, slots=10, maxPods=row.replicas)
    client = VPodClient()
    create(client, row.vpods)
    pods = {f"{STATEFUL_SET}-{ordinal}": {"metadata": ordinal} for ordinal in there}
    async with a_scheduler(world, client, pod_lister=pods.get) as scheduler:
        await scheduler.resync()
    for vpod in row.vpods:
        evicted = [placement for _, key, placement in client.evicted if key.name == vpod.name]
        assert evicted == placed(row.expected.get(vpod.name, {}))
    assert [pod for pod, _, _ in client.evicted if pod is not None] == []


@pytest.mark.parametrize("row", STATE, ids=lambda row: row.id)
async def test_state(row: StateRow):
    bound = set(range(row.replicas)) - row.unbound
    held = ledgers(
        (o.namespace, o.name, {n: count for n, count in o.placements.items() if n in bound})
        for o in row.vpods
    )
    world = await a_world(row.replicas, held, bound=bound, slots=10)
    client = VPodClient()
    vpods = create(client, row.vpods)
    async with a_scheduler(world, client) as scheduler:
        state = await scheduler.state()
    keys = [vpod.key for vpod in vpods]
    assert state.free_cap == (row.free_cap_here or row.free_cap)
    assert (state.replicas, state.capacity) == (row.replicas, 10)
    assert state.stateful_set_name == STATEFUL_SET
    assert state.schedulable_pods == row.schedulable_pods
    assert state.free_capacity() == row.free_capacity
    assert state.pending == dict(zip(keys, row.pending, strict=True))
    assert state.expected_vreplica_by_vpod == {vpod.key: vpod.wanted for vpod in vpods}
    spread = row.pod_spread_here or row.pod_spread
    assert state.pod_spread == {
        key: {f"{STATEFUL_SET}-{ordinal}": count for ordinal, count in counts.items()}
        for key, counts in zip(keys, spread, strict=True)
    }


def test_a_row_differs_where_it_says_why():
    for row in STATE:
        differs = bool(row.free_cap_here or row.pod_spread_here)
        assert differs == (row.difference is not None), row.id
