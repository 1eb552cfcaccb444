"""``python -m tests.simulation --seeds N [--seed S] [--plain] [--trace]``: runs N seeds from S on; exit 1 if one fails."""

import argparse
import logging
import sys

from extender.simulation.run import Outcome, simulate

SEED_DEFAULT = 1


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def report(outcome: Outcome, *, plain: bool) -> None:
    say(outcome.line())
    if outcome.passed:
        return
    for problem in outcome.problems[:20]:
        say(f"  {problem}")
    options = " --plain --trace" if plain else " --trace"
    say(f"  replay: python -m tests.simulation --seeds 1 --seed {outcome.seed}{options}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many runs")
    parser.add_argument("--seed", type=int, default=SEED_DEFAULT, metavar="S", help="the first seed")
    parser.add_argument("--plain", action="store_true", help="one pool with the defaults")
    parser.add_argument("--trace", action="store_true", help="print each thing that happened")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    failed = 0
    for seed in range(options.seed, options.seed + options.seeds):
        outcome = simulate(seed, keep_trace=options.trace, plain=options.plain)
        if options.trace:
            say("\n".join(outcome.trace))
        report(outcome, plain=options.plain)
        failed += not outcome.passed
    say(f"{options.seeds - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
