"""``python -m tests.mutants``: break the code on purpose, one mutant after the other, and see that
each is caught.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS
from tests.mutants.runner import BaselineFails, Outcome, Verdict, run_mutants


def main() -> int:
    """0 if every mutant was killed, 1 if one survived or does not apply any more, 2 where nothing
    can be said.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="names that contain this"
    )
    parser.add_argument(
        "--share",
        type=_share,
        default=(1, 1),
        metavar="K/N",
        help="one of N equal shares, drawn by --seed",
    )
    parser.add_argument("--seed", default="", help="another seed draws other shares")
    parser.add_argument("--list", action="store_true", help="print the mutants, and end")
    parser.add_argument(
        "--jobs", type=int, default=2, metavar="N", help="side by side (default: %(default)s)"
    )
    options = parser.parse_args()
    chosen = [
        m for m in MUTANTS if not options.only or any(part in m.name for part in options.only)
    ]
    chosen = share_of(chosen, *options.share, seed=options.seed)
    if options.list:
        for mutant in chosen:
            _say(f"{mutant.name:60} {mutant.file}: {mutant.why}")
        return 0
    if not chosen or options.jobs < 1:
        parser.error("no mutant has such a name" if not chosen else "--jobs must be at least 1")
    return _run(chosen, options.jobs)


def share_of(mutants: Sequence[Mutant], number: int, shares: int, *, seed: str) -> list[Mutant]:
    """Share ``number`` (from 1) of so many, in the order of the list. All shares of a seed are all
    mutants, each once.
    """
    order = list(range(len(mutants)))
    random.Random(seed).shuffle(order)
    return [mutants[index] for index in sorted(order[number - 1 :: shares])]


def _share(text: str) -> tuple[int, int]:
    number, _, shares = text.partition("/")
    if not (number.isdecimal() and shares.isdecimal() and 1 <= int(number) <= int(shares)):
        raise argparse.ArgumentTypeError(f"{text!r} is no share, such as 1/5")
    return int(number), int(shares)


def _run(chosen: list[Mutant], jobs: int) -> int:
    began = time.monotonic()
    outcomes: list[Outcome] = []
    try:
        for outcome in run_mutants(chosen, jobs=jobs):
            outcomes.append(outcome)
            mutant = outcome.mutant
            _say(f"{outcome.verdict:14} {outcome.took_s:6.1f} s  {mutant.name} ({mutant.file})")
    except BaselineFails as error:
        _say(f"without any mutant this fails, so nothing can be said:\n{error}")
        return 2
    others = [outcome for outcome in outcomes if outcome.verdict is not Verdict.KILLED]
    for outcome in others:
        _say(f"\n{outcome.verdict}: {outcome.mutant.name}\n{outcome.said}")
    killed = len(outcomes) - len(others)
    _say(f"\n{killed} of {len(outcomes)} mutants killed in {time.monotonic() - began:.0f} s")
    return 1 if others else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
