"""kubectl reads the embedded cluster as any other."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.build import ControlPlaneUnavailable, ready_binaries
from tests.e2e.embedded import EmbeddedBackend
from tests.e2e.scenario import POOL, System
from tests.e2e.waiting import NotYet, eventually


@pytest.fixture(scope="module")
def kubectl() -> Path:
    try:
        program = ready_binaries().folder / "kubectl"
    except ControlPlaneUnavailable as reason:
        pytest.skip(str(reason))
    if not program.exists():
        pytest.skip("no kubectl beside the control plane's programs")
    return program


async def _run(kubectl: Path, system: System, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        kubectl,
        f"--kubeconfig={system.backend.kubeconfig}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(20.0):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def test_kubectl_gets_describes_and_watches(embedded: EmbeddedBackend, tmp_path: Path, kubectl: Path):
    async with System(embedded, tmp_path) as system:
        await embedded.add_nodes(3)
        namespace = await system.pool()
        tenant = await system.vpods(5, 8)
        await system.settled(pods=2)
        header, *rows = (await _run(kubectl, system, "get", "vpods", "-A")).splitlines()
        assert header.split()[:2] == ["NAMESPACE", "NAME"]
        assert [row.split()[:2] for row in rows] == [[tenant, f"source-{index}"] for index in range(5)]
        pools = await _run(kubectl, system, "get", "adapterpools", "-n", namespace)
        assert pools.splitlines()[1].split()[0] == POOL
        described = await _run(kubectl, system, "describe", "vpod", "source-0", "-n", tenant)
        assert "AllPlaced" in described
        assert "Scheduled" in described.partition("Events:")[2]
        pod = await _run(kubectl, system, "describe", "pod", f"{POOL}-0", "-n", namespace)
        assert "Successfully assigned" in pod
        assert "vreplica.dev/placements" in pod
        await _watches(kubectl, system, tenant)


async def _watches(kubectl: Path, system: System, tenant: str) -> None:
    """A change is seen by a watch that was there before it."""
    arguments = [
        f"--kubeconfig={system.backend.kubeconfig}",
        "get",
        "vpods",
        "-n",
        tenant,
        "-w",
        "-o",
        "name",
    ]
    watch = system.backend.processes.start("kubectl", [kubectl, *arguments])

    async def seen(lines: int) -> bool:
        text = watch.log.read_text()
        if len(text.splitlines()) < lines:
            raise NotYet(text)
        return True

    await eventually(lambda: seen(5), 10.0, "the list")
    await system.want(tenant, "source-3", 4)
    await eventually(lambda: seen(6), 10.0, "the change")
    assert watch.log.read_text().splitlines()[5] == "vpod.vreplica.dev/source-3"
    await watch.kill()
