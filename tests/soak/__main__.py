"""``python -m tests.soak --backend embedded|real --minutes M [--seed S] [--json FILE]``: exit 1 if
something breaks or grows.

A line a round (about a minute) goes to standard output, the summary as JSON to FILE or, without
samples, to the end of the output. What the programs logged stays where the last line says if the
soak has failed. The same seed draws the same operations and faults; how they fall on the programs'
work is not repeatable: this is real time.
"""

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import uvloop

from tests.e2e.build import ControlPlaneUnavailable, ready_binaries
from tests.e2e.controlplane import ControlPlane
from tests.e2e.embedded import EmbeddedBackend
from tests.e2e.real import RealBackend
from tests.soak.run import Report, Soak, write

CLUSTER: Final = (sys.executable, "-m", "tests.soak.cluster")


async def embedded(directory: Path, seed: int, minutes: float) -> Report:
    """On the embedded cluster, whose API misbehaves."""
    program = (*CLUSTER, "--seed", str(seed))
    async with EmbeddedBackend(directory, program) as backend:
        return await Soak(backend, directory, seed=seed).run(minutes)


async def real(control_plane: ControlPlane, directory: Path, seed: int, minutes: float) -> Report:
    """On a real control plane."""
    async with RealBackend(control_plane, directory) as backend:
        return await Soak(backend, directory, seed=seed).run(minutes)


def run(options: argparse.Namespace, directory: Path) -> Report:
    """Starts what the back end needs, and the soak."""
    if options.backend == "embedded":
        return uvloop.run(embedded(directory, options.seed, options.minutes))
    control_plane = ControlPlane(ready_binaries(), directory / "controlplane")
    asyncio.run(control_plane.start())
    try:
        return uvloop.run(real(control_plane, directory, options.seed, options.minutes))
    finally:
        control_plane.stop()


def main(arguments: list[str]) -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--backend", choices=["embedded", "real"], default="embedded")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="0: drawn and told")
    parser.add_argument("--json", type=Path, help="where the whole summary goes")
    options = parser.parse_args(arguments)
    options.seed = options.seed or random.SystemRandom().randrange(1, 1_000_000)
    directory = Path(tempfile.mkdtemp(prefix="vreplica-soak-"))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.stdout.write(
        f"--backend {options.backend} --minutes {options.minutes:g} --seed {options.seed}\n"
    )
    try:
        report = run(options, directory)
    except ControlPlaneUnavailable as error:
        sys.stdout.write(f"skipped: {error}\n")
        return 0
    if options.json is not None:
        write(report, options.json)
    summary = report.summary()
    del summary["samples"]
    sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    sys.stdout.write(report.verdict() + "\n")
    if report.failures():
        sys.stdout.write(f"logs: {directory}\n")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
