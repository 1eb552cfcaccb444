"""``python -m tests.bench.guard [--write]``: fail where a ratio has become much worse than the
stored one.

Theory of operation. Only ratios to a peer of the same run are compared (``Result``): they are much
the same on any machine. The short form of ``BENCHES`` runs once; what is worse than ``BASELINE`` by
more than ``LOSS_MAX`` is measured once more, and only what is worse again fails, for a neighbour on
the machine may have hit one side of a pair. What is stored and was not measured fails, too: a row
that is called otherwise now would be guarded by nothing. A bench that is skipped, which is said, is
no failure, and what the baseline does not know is no loss. ``--write`` stores what was measured,
worst of two runs.
"""

import argparse
import json
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench import registry
from tests.bench.options import Options
from tests.bench.result import Result

BASELINE: Final = Path(__file__).with_name("baseline.json")
BENCHES: Final = ("engine", "webhook", "verbs")
LOSS_MAX: Final = 2.0
"""Times as bad as stored."""
HIGHER_IS_BETTER: Final = frozenset({"rebuiltRatio"})
"""How many times as long something else takes; all other ratios are costs."""
GUARDED: Final = frozenset(
    {"costRatio", "rebuiltRatio", "referenceRatio", "yardstickRatio", "noOpRatio", "cpuToGoRatio"}
)
"""Those that differ little from run to run: of processor time, not of latencies."""

Ratios = Mapping[str, float]
"""What was measured, in words -> ratio."""


@dataclass(frozen=True)
class Loss:
    """A ratio that is worse than it was by ``times``."""

    what: str
    was: float
    found: float
    times: float

    def __str__(self) -> str:
        return f"{self.what}: {self.found:.2f}, was {self.was:.2f} ({self.times:.1f} times as bad)"


def ratios_of(results: Iterable[Result]) -> dict[str, float]:
    """The guarded ratios of some results."""
    found: dict[str, float] = {}
    for result in results:
        case = " ".join([result.bench, *(f"{name}={value}" for name, value in result.case.items())])
        for name, value in result.figures.items():
            if name in GUARDED and isinstance(value, int | float) and value > 0:
                found[f"{case} {name}"] = float(value)
    return found


def losses(stored: Ratios, found: Ratios, most: float = LOSS_MAX) -> list[Loss]:
    """What is worse than stored by more than ``most`` times, the worst first."""
    worse: list[Loss] = []
    for what in stored.keys() & found.keys():
        was, now = stored[what], found[what]
        times = was / now if what.rpartition(" ")[2] in HIGHER_IS_BETTER else now / was
        if times > most:
            worse.append(Loss(what, was, now, times))
    return sorted(worse, key=lambda loss: -loss.times)


def confirmed(first: list[Loss], second: list[Loss]) -> list[Loss]:
    """Those of the second run that the first had, too."""
    names = {loss.what for loss in first}
    return [loss for loss in second if loss.what in names]


def missing(stored: Ratios, found: Ratios, skipped: Collection[str]) -> list[str]:
    """What is stored and was not measured, but for the benches that were skipped; sorted."""
    return sorted(
        what for what in stored.keys() - found.keys() if what.partition(" ")[0] not in skipped
    )


def measured(benches: Iterable[str]) -> tuple[dict[str, float], set[str]]:
    """One short run, and the benches that were skipped."""
    found: dict[str, float] = {}
    skipped: set[str] = set()
    for name in benches:
        try:
            found |= ratios_of(registry.BENCHES[name](Options(short=True)))
        except registry.Skipped as reason:
            skipped.add(name)
            sys.stderr.write(f"{name}: skipped, {reason}\n")
    return found, skipped


def main(arguments: list[str] | None = None) -> int:
    """0 where nothing is much worse, 1 where something is twice in a row, or was not measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.guard", description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help=f"store what is measured in {BASELINE.name}"
    )
    if parser.parse_args(arguments).write:
        write(measured(BENCHES)[0], measured(BENCHES)[0])
        return 0
    stored: dict[str, float] = json.loads(BASELINE.read_text())
    found, skipped = measured(BENCHES)
    first = losses(stored, found)
    again = sorted({loss.what.partition(" ")[0] for loss in first})
    lost = confirmed(first, losses(stored, measured(again)[0])) if again else []
    gone = missing(stored, found, skipped)
    for line in (*lost, *(f"{what}: stored, not measured" for what in gone)):
        sys.stdout.write(f"{line}\n")
    compared = len(stored.keys() & found.keys())
    sys.stdout.write(
        f"{compared} ratios compared with {BASELINE.name}, {len(first)} worse once, {len(lost)} "
        f"twice, {len(gone)} not measured\n"
    )
    return 1 if lost or gone else 0


def write(*runs: Ratios) -> None:
    """Store the worse of some runs, rounded."""
    worst: dict[str, float] = {}
    for what, ratio in (item for run in runs for item in run.items()):
        higher = what.rpartition(" ")[2] in HIGHER_IS_BETTER
        known = worst.get(what, ratio)
        worst[what] = round(min(known, ratio) if higher else max(known, ratio), 2)
    BASELINE.write_text(json.dumps(dict(sorted(worst.items())), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
