"""``vreplica doctor`` on a whole installation: it finds nothing wrong, and then the one thing that
is.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from extender.kube.api import VPODS, Preconditions
from tests.e2e.backend import Backend
from tests.e2e.operations import fail_nodes
from tests.e2e.processes import VENV_BIN
from tests.e2e.scenario import System


async def diagnosis(kubeconfig: Path, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit status and checks by name."""
    process = await asyncio.create_subprocess_exec(
        VENV_BIN / "vreplica",
        *("doctor", "--kubeconfig", str(kubeconfig), "-o", "json", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60.0):
        out, errors = await process.communicate()
    assert process.returncode in {0, 1}, errors.decode()
    return process.returncode or 0, {check["name"]: check for check in json.loads(out)["checks"]}


async def examined(system: System, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The same of a scenario's installation and its service."""
    return await diagnosis(system.backend.kubeconfig, "--server", system.service_url, *options)


def wrong(checks: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """All that is not well, and what could not be seen."""
    return {
        name: check["evidence"]
        for name, check in checks.items()
        if check["verdict"] not in {"ok", "skipped"}
    }


async def test_the_doctor_finds_nothing_and_then_what_is_wrong(backend: Backend, tmp_path: Path):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(3)
        await system.pool()
        tenant = await system.vpods(5, 8)
        pods = await system.settled(pods=2)
        status, checks = await examined(system, "--strict")
        assert (wrong(checks), status) == ({}, 0)
        assert checks["served"]["verdict"] == "ok", "the nodes were read"
        await backend.api.create(VPODS, tenant, system.vpod(tenant, "lost", 1, "nowhere"))
        status, checks = await examined(system)
        assert status == 1
        assert set(wrong(checks)) == {"pool-names", "capacity"}
        assert f"VPod {tenant}/lost asks for AdapterPool" in checks["pool-names"]["evidence"][0]
        await backend.api.delete(VPODS, tenant, "lost", preconditions=Preconditions())
        node = pods[0].node
        await fail_nodes(system, [node])
        status, checks = await examined(system, "--strict")
        assert status == 1
        assert set(wrong(checks)) == {"served"}
        assert f"node {node} is not Ready" in " ".join(wrong(checks)["served"])
