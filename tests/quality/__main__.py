"""``python -m tests.quality [--short] [--only A,B] [--instances N] [--seed S]``: how far placements
are from the optimum that a solver finds.
"""

import argparse
import sys
from typing import Final

from extender.cli.terminal.progress import Progress
from tests.quality.bounds import BOUNDS, UNPROVEN_MAX
from tests.quality.rows import ROWS
from tests.quality.table import HEADER, Figures, aligned, broken, line, measured

INSTANCES: Final = 200
INSTANCES_SHORT: Final = 40


def main(arguments: list[str]) -> int:
    """1 if a short run breaks a bound, otherwise 0."""
    options = _options(arguments)
    number = options.instances or (INSTANCES_SHORT if options.short else INSTANCES)
    only = [part for part in options.only.split(",") if part]
    rows = [row for row in ROWS if not only or any(part in row.name for part in only)]
    if not rows:
        sys.stderr.write(f"no row has {options.only!r} in its name\n")
        return 2
    progress = Progress("measured", unit="rows")
    found: list[Figures] = []
    for row in rows:
        found.append(measured(row, options.seed, number))
        progress.add(1)
    progress.end()
    sys.stdout.write(f"{aligned([HEADER, *map(line, found)])}\n")
    if not options.short:
        return 0
    sentences = [text for figures in found for text in broken(figures, BOUNDS, UNPROVEN_MAX)]
    for text in sentences:
        sys.stdout.write(f"BROKEN {text}\n")
    return int(bool(sentences))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.quality", description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer instances, held to bounds")
    parser.add_argument("--only", default="", help="rows with one of these in their names")
    parser.add_argument("--instances", type=int, default=0, help="instances of each row")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
