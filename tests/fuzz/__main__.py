"""``python -m tests.fuzz --target NAME|all --inputs N --seed S``: fuzz, print a line for each
target, and every finding.
"""

import argparse
import asyncio
import importlib.util
import logging
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import orjson

from tests.fuzz import corpus, runner
from tests.fuzz.findings import say
from tests.fuzz.registry import TARGETS
from tests.fuzz.target import Target

ADDRESS_BYTES_MAX: Final = 4 * 1024**3
"""So that an input that makes a value without end ends in a MemoryError of ours, and not of the
machine.
"""


def main() -> int:
    """1 where there are findings, 2 for a target that is not known."""
    options = _options()
    logging.disable(logging.CRITICAL)
    names = list(TARGETS) if options.target == "all" else options.target.split(",")
    unknown = sorted(set(names) - set(TARGETS))
    if unknown:
        say(f"unknown target {unknown[0]!r}; known are {', '.join(TARGETS)}")
        return 2
    if options.driver == "atheris" and importlib.util.find_spec("atheris") is None:
        say("--driver atheris needs the package atheris: pip install atheris")
        return 2
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES_MAX, ADDRESS_BYTES_MAX))
    failed = False
    for name in names:
        if options.rewrite_corpus:
            say(f"{name:17} {asyncio.run(_rewrite(name))} inputs kept")
            continue
        failed |= bool(asyncio.run(_fuzz(name, options)).findings)
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", default="all", help=f"all, or some of: {', '.join(TARGETS)}")
    parser.add_argument(
        "--inputs", type=int, default=10_000, help="for each target; slow ones take a share of it"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=random.SystemRandom().randrange(10**6),
        help="random, and printed",
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="for each target, at most"
    )
    parser.add_argument(
        "--driver",
        choices=("mutator", "atheris"),
        default="mutator",
        help="atheris: if it is installed",
    )
    parser.add_argument(
        "--keep", action="store_true", help="add inputs with new outcomes to the corpus"
    )
    parser.add_argument(
        "--rewrite-corpus",
        action="store_true",
        help="write down the outcomes that the corpus has now",
    )
    parser.add_argument(
        "--report", type=Path, help="append a JSON line for each target to this file"
    )
    return parser.parse_args()


async def _fuzz(name: str, options: argparse.Namespace) -> runner.Report:
    target = TARGETS[name]()
    inputs = max(1, int(options.inputs * target.inputs_share))
    until = time.monotonic() + options.minutes * 60
    kept = corpus.load(name)
    known = [data for _, data in kept]
    if options.driver == "atheris":
        # Beside libFuzzer's work ours is to look at what it has found, and to keep it.
        known, inputs = await _guided(target, inputs, known, options), 0
    run = await runner.fuzz_target(target, inputs, seed=options.seed, corpus=known, until=until)
    report = run.report
    say(f"{report.line()}  seed {options.seed}")
    for finding in report.findings.values():
        say(finding.told())
    if options.report is not None:
        with options.report.open("ab") as file:
            file.write(orjson.dumps(report.facts(options.seed)) + b"\n")
    if options.keep:
        await _keep(name, report, dict(kept))
    return report


async def _guided(
    target: Target, inputs: int, known: list[bytes], options: argparse.Namespace
) -> list[bytes]:
    """Run atheris; all that it holds to be worth keeping, of what it was given too."""
    await target.open()
    await target.close()
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), [*target.seeds, *known])
        flags = [f"-runs={inputs}", f"-seed={options.seed + 1}"]
        if options.minutes < float("inf"):
            flags.append(f"-max_total_time={max(1, int(options.minutes * 60))}")
        command = [sys.executable, "-m", "tests.fuzz.guided", target.name, folder, *flags]
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
        if status := await process.wait():
            raise SystemExit(f"{target.name}: atheris ended with status {status}")
        return _read(Path(folder))


def _write(folder: Path, inputs: list[bytes]) -> None:
    for index, data in enumerate(inputs):
        (folder / f"known-{index}").write_bytes(data)


def _read(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir())]


async def _keep(name: str, report: runner.Report, known: dict[str, bytes]) -> None:
    target = TARGETS[name]()
    await target.open()
    until = time.thread_time() + corpus.MINIMISE_ALL_S
    try:
        for outcome, data in sorted(report.outcomes.items()):
            if outcome not in known:
                in_time = time.thread_time() < until
                known[outcome] = await corpus.minimised(target, outcome, data) if in_time else data
    finally:
        await target.close()
    say(f"  {corpus.save(name, known)} of {len(known)} outcomes kept")


async def _rewrite(name: str) -> int:
    target = TARGETS[name]()
    await target.open()
    try:
        entries = {await target.run(data): data for _, data in corpus.load(name)}
    finally:
        await target.close()
    return corpus.save(name, entries)


if __name__ == "__main__":
    sys.exit(main())
