"""What a service decides on a cluster is recorded, from its replica and by watching, and comes out
the same again.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import extender
from tests.e2e.backend import Backend
from tests.e2e.scenario import System
from tests.e2e.waiting import NotYet, eventually


async def vreplica(*arguments: object) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "extender.cli.main",
        *(str(argument) for argument in arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(extender.__file__).parents[1])},
    )
    out, errors = await process.communicate()
    return process.returncode or 0, out.decode(), errors.decode()


async def begun(path: Path) -> None:
    async def has_snapshot() -> bool:
        if not await asyncio.to_thread(_has_snapshot, path):
            raise NotYet(str(path))
        return True

    await eventually(has_snapshot, 30.0, f"a snapshot in {path}")


def _has_snapshot(path: Path) -> bool:
    return path.exists() and '"synced"' in path.read_text()


async def test_a_replica_and_its_cluster_are_recorded_and_the_replay_decides_the_same(
    backend: Backend, tmp_path: Path
):
    of_replica, of_cluster = tmp_path / "replica.jsonl", tmp_path / "cluster.jsonl"
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(6)
        await system.pool()
        recordings = [
            asyncio.create_task(
                vreplica("record", "--server", system.service_url, "-o", of_replica, "--for", "20s")
            ),
            asyncio.create_task(
                vreplica(
                    "record", "--kubeconfig", backend.kubeconfig, "-o", of_cluster, "--for", "20s"
                )
            ),
        ]
        await begun(of_replica)
        await begun(of_cluster)
        for _ in range(2):
            await system.vpods(10, 8)
        await system.settled(pods=8)
        for status, _, errors in await asyncio.gather(*recordings):
            assert status == 0, errors
    status, out, errors = await vreplica("replay", of_replica, "--check", "-o", "json")
    report = json.loads(out)
    assert status == 0, (errors, report["decisions"])
    assert report["decisions"]["compared"] >= 20
    assert (
        report["outcome"]["recorded"]["podsAtEnd"]
        == report["outcome"]["rehearsed"]["podsAtEnd"]
        == 8
    )
    status, out, errors = await vreplica("replay", of_cluster, "--profile", "ha", "-o", "json")
    assert status == 0, errors
    report = json.loads(out)
    assert report["recording"]["source"] == "cluster"
    assert report["outcome"]["recorded"]["unplacedAtEnd"] == 0
