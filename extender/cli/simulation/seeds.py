"""``vreplica simulate``: runs seeds, one after the other or in parallel. For each that fails,
prints the command that runs it again.
"""

import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import yaml

from extender.cli.terminal.output import Format, print_result
from extender.lab.simulation.run import Outcome, Trial, simulate
from extender.lab.simulation.shrink import shrink
from extender.lab.simulation.world.profile import (
    ALL_KINDS,
    DRAWN,
    FaultProfile,
    ProfileError,
    profile_from,
)
from extender.model.yaml_errors import NOT_YAML, why_not_yaml

PROBLEMS_MAX = 20
COLLECT_AFTER_OBJECTS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """``jobs``: processes. ``output``: for tools, one object for each seed on standard output.
    ``quiet``: only failed seeds. ``progress``: called with the number of finished seeds.
    """

    trials: tuple[Trial, ...]
    jobs: int = 1
    trace: bool = False
    shrink: bool = True
    output: Format = "table"
    quiet: bool = False
    progress: Callable[[int], None] = lambda _done: None

    @property
    def for_tools(self) -> bool:
        """Whether standard output is for tools, and texts for people go to standard error."""
        return self.output != "table"

    @property
    def people(self) -> TextIO:
        """Where texts for people go."""
        return sys.stderr if self.for_tools else sys.stdout


def read_profile(name: str) -> FaultProfile:
    """Read a fault profile from a file; "" gives the default. Raises ProfileError, OSError."""
    if not name:
        return DRAWN
    try:
        return replace(profile_from(yaml.safe_load(Path(name).read_bytes())), file=name)
    except ProfileError as error:
        raise ProfileError(f"{name}: {error}") from error
    except NOT_YAML as error:
        raise ProfileError(f"{name}: not YAML: {why_not_yaml(error)}") from error


def numbers_from(text: str) -> frozenset[int]:
    """Read ``1,4-7`` or ``none``. Raises ProfileError."""
    if text == "none":
        return frozenset()
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise ProfileError(
                f"--only: {part!r} is neither a number nor two with a - between them"
            )
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def kinds_from(text: str) -> frozenset[str]:
    """Read ``watchDropped,killReplica`` or ``none``. Raises ProfileError for an unknown kind."""
    names = frozenset() if text == "none" else frozenset(text.split(","))
    profile_from({"faults": dict.fromkeys(names, 0.0)})
    return names


def print_kinds() -> None:
    """Print every kind of fault, one a line."""
    for kind in ALL_KINDS:
        print(f"{kind.name:20} per {kind.per:14} up to {kind.most:<6g} {kind.what}")


def run_simulation(options: SimulateOptions) -> int:
    """Run all seeds. Return 0 if every one has passed, else 1."""
    _prepare_process()
    started = time.monotonic()
    failed: list[Outcome] = []
    totals: Counter[str] = Counter()
    for number, outcome in enumerate(_outcomes(options), start=1):
        totals["events"] += len(outcome.events)
        totals["faults"] += outcome.faults.total()
        _print_outcome(outcome, options)
        if not outcome.passed:
            failed.append(outcome)
            _explain(outcome, options)
        options.progress(number)
    elapsed_s = time.monotonic() - started
    passed = len(options.trials) - len(failed)
    print(
        f"{passed} passed, {len(failed)} failed; {totals['events']} events and {totals['faults']} "
        f"faults in "
        f"{elapsed_s:.0f} s, {60 * len(options.trials) / max(elapsed_s, 0.001):.0f} seeds a minute",
        file=options.people,
    )
    return 1 if failed else 0


def _outcomes(options: SimulateOptions) -> Iterator[Outcome]:
    if options.jobs <= 1 or len(options.trials) <= 1:
        for trial in options.trials:
            yield _simulate_one(trial, keep_trace=options.trace)
        return
    with ProcessPoolExecutor(options.jobs, initializer=_prepare_process) as pool:
        yield from pool.map(_simulate_one, options.trials, chunksize=4)


def _prepare_process() -> None:
    """Set up a process for its trials."""
    # The faults make the simulated service log warnings; the trace shows them better.
    logging.disable(logging.CRITICAL)
    # Objects of a trial live as long as its history, so frequent garbage collection costs time and
    # finds almost nothing. Modules are frozen: no collection looks at them. A world is one large
    # cycle, and is collected after its trial.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS)


def _simulate_one(trial: Trial, *, keep_trace: bool = False) -> Outcome:
    outcome = simulate(trial, keep_trace=keep_trace)
    gc.collect()
    return outcome


def _print_outcome(outcome: Outcome, options: SimulateOptions) -> None:
    if options.trace and not options.for_tools:
        print("\n".join(outcome.trace))
    if options.for_tools:
        document = dict(sorted(_as_json(outcome).items()))
        if options.output == "yaml":
            print("---")
        print_result(document, options.output, lambda: None)
        sys.stdout.flush()
    elif not options.quiet or not outcome.passed:
        print(outcome.line(), flush=True)


def _explain(outcome: Outcome, options: SimulateOptions) -> None:
    """Print what was wrong, the command that runs it again, and the shortest failing form that was
    found.
    """
    to = options.people
    _print_problems(outcome, to)
    if not options.shrink:
        return
    shorter = shrink(outcome.trial)
    if shorter is not None:
        events, kinds = len(shorter.events), len(shorter.faults)
        print(f"  shortest: {events} events, {kinds} kinds of faults", file=to)
        _print_problems(shorter, to)


def _print_problems(outcome: Outcome, to: TextIO) -> None:
    for problem in outcome.problems[:PROBLEMS_MAX]:
        print(f"    {problem}", file=to)
    print(f"  replay: vreplica simulate {outcome.trial.command()} --trace", file=to, flush=True)


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "seed": outcome.trial.seed,
        "passed": outcome.passed,
        "problems": outcome.problems[:PROBLEMS_MAX],
        "events": len(outcome.events),
        "faults": dict(outcome.faults),
        "moves": outcome.moves,
        "settledSeconds": outcome.settled_s,
        "atRestSeconds": outcome.rested_s,
        "trace": outcome.digest,
        "replay": f"vreplica simulate {outcome.trial.command()}",
    }


def trials(seeds: Iterable[int], **of: Any) -> tuple[Trial, ...]:
    """One trial for each seed, with the same other settings."""
    return tuple(Trial(seed, **of) for seed in seeds)
