"""etcd is killed again and again while vpods come: the API server fails, then goes on, and nothing
that was placed moves.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from extender.kube.api import NODES
from tests.e2e.backend import condition
from tests.e2e.controlplane import ControlPlane
from tests.e2e.operations import published
from tests.e2e.real import RealBackend
from tests.e2e.scenario import System
from tests.e2e.waiting import NotYet, eventually

KILLS: Final = 5
AWAY_S: Final = 2.0
"""Longer than a request of ours waits between two tries, shorter than a lease."""
VPODS_A_KILL: Final = 4
KWOKS: Final = 6
"""Starts that are tried. All of them take longer than tests usually may."""
READY_S: Final = 30.0
"""kwok takes a node's lease over in 8 s, or never (``ControlPlane.node_numbers``)."""


async def all_ready(system: System) -> bool:
    """Whether every node and every bound pod is Ready."""
    nodes = (await system.backend.api.list_page(NODES)).items
    bound = [pod for pod in await system.adapters() if pod["spec"].get("nodeName")]
    waiting = [
        obj["metadata"]["name"] for obj in (*nodes, *bound) if condition(obj, "Ready") != "True"
    ]
    if waiting:
        raise NotYet(str(waiting))
    return True


async def settle_with_nodes(control_plane: ControlPlane, system: System) -> None:
    """Returns when every node and every bound pod is Ready, and all is placed.

    A kubelet writes again what it could not write while etcd was away. kwok does not, may even stop
    renewing its nodes' leases, and sometimes leaves a node out when it starts anew. Without nodes,
    nothing can be placed. So all of it is tried with another kwok.
    """
    for _ in range(KWOKS - 1):
        await control_plane.restart_kwok()
        with suppress(TimeoutError):
            await eventually(lambda: all_ready(system), READY_S)
            await system.settled()
            return
    await control_plane.restart_kwok()
    await eventually(lambda: all_ready(system), 60.0, "every node and every bound pod is Ready")
    await system.settled()


@pytest.mark.timeout(420)
async def test_vpods_come_while_etcd_is_killed_five_times_and_nothing_moves(
    own_control_plane: ControlPlane, tmp_path: Path
):
    async with (
        RealBackend(own_control_plane, tmp_path) as backend,
        System(backend, tmp_path) as system,
    ):
        await backend.add_nodes(6)
        await system.pool()
        tenant = await system.vpods(VPODS_A_KILL, 5, prefix="before")
        await system.settled()
        placed = published(system)
        for kill in range(KILLS):
            await system.vpods(VPODS_A_KILL, 5, tenant=tenant, prefix=f"kill-{kill}")
            await own_control_plane.kill_etcd(AWAY_S)
        await settle_with_nodes(own_control_plane, system)
        after = published(system)
        assert {key: after[key] for key in placed} == placed
        assert len(after) == VPODS_A_KILL * (KILLS + 1)
