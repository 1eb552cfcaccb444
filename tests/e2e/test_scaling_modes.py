"""Pools whose StatefulSet others size (spec.scaling), beside somebody who changes replicas all the
time. The StatefulSet's replicas are only ever what that somebody has written.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from extender.kube.api import ADAPTERPOOLS, PODS, STATEFULSETS, PatchType
from extender.model.decode import pod_from
from extender.model.moves import MoveReason
from tests.e2e.backend import Backend
from tests.e2e.scenario import POOL, SLOTS_PER_POD, System
from tests.e2e.test_kubectl import run_kubectl
from tests.e2e.waiting import NotYet
from tests.support.tasks import at_work

PERIOD_S: Final = 2
"""scaleDownPeriodSeconds."""
Writer = Callable[[], Awaitable[int | None]]
"""Returns how many replicas somebody wants now; None: as many as there are."""


async def replicas_of(system: System) -> int:
    found = await system.backend.api.get(STATEFULSETS, system.namespace, POOL)
    return int(found["spec"]["replicas"])


async def write_replicas(system: System, replicas: int) -> None:
    patch = {"spec": {"replicas": replicas}}
    await system.backend.api.patch(
        STATEFULSETS, system.namespace, POOL, patch, patch_type=PatchType.MERGE
    )


async def advised(system: System) -> int | None:
    """What the pool's scale subresource says, as an HPA or KEDA would read it."""
    scale: dict[str, Any] = await system.backend.api.get(
        ADAPTERPOOLS, system.namespace, POOL, subresource="scale"
    )
    replicas = scale["status"]["replicas"]
    return int(replicas) if replicas else None


@contextlib.asynccontextmanager
async def somebody(system: System, wants: Writer) -> AsyncIterator[list[int]]:
    """Writes what it wants each second, and notes what others have written in between."""
    undone: list[int] = []

    async def work() -> None:
        last = await replicas_of(system)
        while True:
            now = await replicas_of(system)
            if now != last:
                undone.append(now)
            last = now
            wanted = await wants()
            if wanted is not None and wanted != now:
                await write_replicas(system, wanted)
                last = wanted
            await asyncio.sleep(1)

    async with at_work(work()):
        yield undone


async def test_a_pool_that_others_size_takes_what_they_give(backend: Backend, tmp_path: Path):
    numbers = iter((1, 3, 2, 4, 1, 3, *[2] * 1000))

    async def restless() -> int:
        return next(numbers)

    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2)
        await system.pool(
            scaling={"mode": "External"}, scaleDownPeriodSeconds=PERIOD_S, minPods=3, maxPods=3
        )
        system.watcher.others_shrink = True
        system.watcher.may_move = frozenset({MoveReason.ORDINAL_GONE})
        tenant = await system.vpods(1, SLOTS_PER_POD + 1)
        async with somebody(system, restless) as undone:
            await system.settled(pods=2)
        assert (undone, await replicas_of(system)) == ([], 2)
        await system.want(tenant, "source-0", 5 * SLOTS_PER_POD)
        await system.eventually(lambda: is_limited(system, "ExternalReplicas"), 15.0, "told")
        assert await replicas_of(system) == 2


async def test_pods_that_others_announce_to_remove_are_empty_when_they_go(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2)
        # kube-scheduler decides how much of which vpod is on the second pod. All of it may leave in
        # one period: a vpod that has moved in part has a cool-down.
        await system.pool(
            scaling={"mode": "External"},
            scaleDownPeriodSeconds=PERIOD_S,
            rebalance={"movesPerPeriod": SLOTS_PER_POD},
        )
        system.watcher.may_move = frozenset({MoveReason.COMPACTION})
        await write_replicas(system, 2)
        await system.vpods(2, SLOTS_PER_POD // 2)
        await system.settled()
        patch = {"spec": {"scaling": {"announcedReplicas": 1}}}
        await backend.api.patch(
            ADAPTERPOOLS, system.namespace, POOL, patch, patch_type=PatchType.MERGE
        )
        await system.eventually(lambda: is_empty(system, f"{POOL}-1"), 30.0, "emptied")
        await write_replicas(system, 1)
        (pod,) = await system.settled()
        assert pod.name == f"{POOL}-0"


async def test_who_follows_the_advice_gives_what_is_needed_and_takes_only_empty_pods(
    backend: Backend, tmp_path: Path, kubectl: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2)
        await system.pool(scaling={"mode": "Advise"}, scaleDownPeriodSeconds=PERIOD_S)
        system.watcher.may_move = frozenset({MoveReason.COMPACTION})
        tenant = await system.vpods(1, 2 * SLOTS_PER_POD + 1)
        async with somebody(system, lambda: advised(system)) as undone:
            await system.settled(pods=3)
            await system.want(tenant, "source-0", 1)
            await system.eventually(lambda: has_replicas(system, 1), 60.0, "the advice is taken")
            await system.settled(pods=1)
            said = await run_kubectl(
                kubectl,
                system,
                "scale",
                "adapterpool",
                POOL,
                "-n",
                system.namespace,
                "--replicas=2",
            )
            assert said == f"adapterpool.vreplica.dev/{POOL} scaled\n"
            await system.eventually(lambda: has_replicas(system, 2), 30.0, "it sets minPods")
        assert undone == []


async def has_replicas(system: System, replicas: int) -> bool:
    if (now := await replicas_of(system)) != replicas:
        raise NotYet(f"{now} replicas")
    return True


async def is_empty(system: System, name: str) -> bool:
    vpods = await system.all_vpods()
    if holders := [key for key, vpod in vpods.items() if name in vpod.placements]:
        raise NotYet(f"{name} still has {holders}")
    # A ledger is lowered after the status that shows it.
    pod = pod_from(await system.backend.api.get(PODS, system.namespace, name))
    if pod.ledger:
        raise NotYet(f"the ledger of {name} still has {[*pod.ledger]}")
    return True


async def is_limited(system: System, reason: str) -> bool:
    pool = await system.backend.api.get(ADAPTERPOOLS, system.namespace, POOL)
    (limited,) = [c for c in pool["status"]["conditions"] if c["type"] == "ScalingLimited"]
    if limited["reason"] != reason:
        raise NotYet(f"ScalingLimited is {limited['reason']}")
    return True
