"""``kubectl vreplica``: kubectl finds us in $PATH, runs us, and asks us for completion."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

import extender
from tests.e2e.embedded import EmbeddedBackend
from tests.e2e.scenario import System


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment whose $PATH has our programs, as their installation has them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("kubectl-vreplica", "kubectl_complete-vreplica"):
        program = folder / name
        program.write_text(
            f"#!{sys.executable}\nimport sys\nfrom extender.cli.main import "
            f"main\nsys.exit(main())\n"
        )
        program.chmod(0o755)
    source = str(Path(extender.__file__).parents[1])
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": source}


async def run(kubectl: Path, environment: dict[str, str], *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        kubectl,
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30.0):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def test_kubectl_runs_us_by_our_name_there(kubectl: Path, installed: dict[str, str]):
    said = await run(kubectl, installed, "vreplica", "--help")
    assert said.startswith("usage: kubectl vreplica")
    assert "replay" in said


async def test_kubectl_lists_us_among_its_plug_ins(kubectl: Path, installed: dict[str, str]):
    assert "kubectl-vreplica" in await run(kubectl, installed, "plugin", "list", "--name-only")


async def test_kubectl_asks_us_what_completes_a_line(kubectl: Path, installed: dict[str, str]):
    said = await run(kubectl, installed, "__complete", "vreplica", "rep")
    assert [line.split("\t")[0] for line in said.splitlines()] == ["replay", ":4"]


async def test_through_kubectl_we_read_the_cluster_that_the_kubeconfig_names(
    embedded: EmbeddedBackend, tmp_path: Path, kubectl: Path, installed: dict[str, str]
):
    async with System(embedded, tmp_path) as system:
        await embedded.add_nodes(3)
        namespace = await system.pool()
        await system.vpods(3, 4)
        await system.settled(pods=1)
        environment = {**installed, "KUBECONFIG": str(system.backend.kubeconfig)}
        said = await run(kubectl, environment, "vreplica", "top", "--once")
        assert f"{namespace}/" in said
