"""``python -m tests.compiled PURE COMPILED``: the compiled core decides as the source does, trace
by trace.

Runs in ``COMPILED`` (a copy of the tree with its extensions, ``make compiled``) and in ``PURE`` the
same seeds of the simulation, under faults, and compares the hashes of their traces: every write,
every answer, every time. Fails where one differs, where the compiled tree has no extensions, and
where the other one has some.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from hatch_build import MODULES

ARGUMENTS: Final = ("--events", "60", "--no-shrink", "-o", "json")
_WHERE: Final = """
import importlib, sys
for name in sys.argv[1:]:
    print(importlib.import_module(name).__file__)
"""


def modules() -> list[str]:
    """Names of what is compiled."""
    return [module.removesuffix(".py").replace("/", ".") for module in MODULES]


def run(tree: Path, *arguments: str) -> str:
    """Output of Python in a tree that is the first on its path."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env={"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{tree}: {done.stderr[-2000:] or done.stdout[-2000:]}")
    return done.stdout


def files(tree: Path) -> Iterable[str]:
    """Where its modules come from."""
    return run(tree, "-c", _WHERE, *modules()).splitlines()


def traces(tree: Path, seeds: int, seed: int) -> dict[int, str]:
    """Seed -> hash of its trace."""
    out = run(
        tree,
        "-m",
        "extender.cli.main",
        "simulate",
        "--seed",
        str(seed),
        "--seeds",
        str(seeds),
        *ARGUMENTS,
    )
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {outcome["seed"]: outcome["trace"] for outcome in found}


def main(arguments: list[str]) -> int:
    """0 where all is the same."""
    parser = argparse.ArgumentParser(prog="python -m tests.compiled", description=__doc__)
    parser.add_argument("pure", type=Path)
    parser.add_argument("compiled", type=Path)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    pure, compiled = options.pure.resolve(), options.compiled.resolve()
    for tree, wanted in ((pure, False), (compiled, True)):
        for file in files(tree):
            if file.endswith(".py") is wanted or not file.startswith(str(tree)):
                raise SystemExit(f"{tree} takes {file}")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(
            lambda tree: traces(tree, options.seeds, options.seed), (pure, compiled)
        )
    differing = sorted(seed for seed in first if first[seed] != second.get(seed))
    print(
        f"{len(first)} seeds from {options.seed}: {len(differing)} traces differ "
        f"{differing[:10] or ''}"
    )
    return 1 if differing or len(first) != options.seeds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
