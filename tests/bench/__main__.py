"""``python -m tests.bench [--only A,B] [--short] [--format json]``: measure, with each figure's
peer in the same run.
"""

import sys

from extender.cli.terminal.progress import Progress
from tests.bench.options import options_from
from tests.bench.registry import BENCHES, Skipped
from tests.bench.result import table


def main() -> int:
    """0, also where a bench was skipped: it is said why, on stderr."""
    options = options_from(sys.argv[1:], tuple(BENCHES))
    # A terminal gets each figure as it comes, below; a log the number of them.
    progress = Progress("measured", unit="figures")
    if sys.stderr.isatty():
        progress.end()
    for name, bench in BENCHES.items():
        if options.only and name not in options.only:
            continue
        results = []
        try:
            for result in bench(options):
                results.append(result)
                progress.add(1)
                if options.json_lines:
                    sys.stdout.write(result.json_line() + "\n")
                    sys.stdout.flush()
                elif sys.stderr.isatty():
                    sys.stderr.write(f"{result.json_line()}\n")
        except Skipped as reason:
            sys.stderr.write(f"{name}: skipped, {reason}\n")
        if results and not options.json_lines:
            sys.stdout.write(f"{table(results)}\n\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
