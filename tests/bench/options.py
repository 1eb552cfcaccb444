"""``Options``: what the caller of ``python -m tests.bench`` asked for."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """``only``: names of benches, all where empty. ``short``: fewer sizes and repetitions, for CI.
    ``seed``: of all workloads.
    """

    only: tuple[str, ...] = ()
    short: bool = False
    json_lines: bool = False
    seed: int = 1


def options_from(arguments: Sequence[str], names: Sequence[str]) -> Options:
    """Read the command line. Exits with 2 for a bench that there is not."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Measure, each figure beside its peer."
    )
    parser.add_argument("--only", default="", help=f"some of: {', '.join(names)}; default: all")
    parser.add_argument("--short", action="store_true", help="fewer sizes and repetitions")
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="json: a line for each figure"
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    only = tuple(name for name in given.only.split(",") if name)
    if unknown := [name for name in only if name not in names]:
        parser.error(f"there is no bench {unknown[0]!r}; there are {', '.join(names)}")
    return Options(only, given.short, given.format == "json", given.seed)
