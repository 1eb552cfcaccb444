"""``vreplica simulate``: run the shipped service under seeded faults, in virtual time."""

import argparse
import sys
from typing import TYPE_CHECKING

from extender.cli.terminal.parsing import Commands
from extender.cli.terminal.progress import Progress
from extender.model.errors import VReplicaError

if TYPE_CHECKING:
    from extender.lab.simulation.run import Trial


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    simulate = commands.add_parser(
        "simulate",
        help="the service under seeded faults, in virtual time, its invariants checked after each "
        "write",
    )
    simulate.add_argument(
        "--seeds", type=int, default=20, metavar="N", help="how many (default: %(default)s)"
    )
    simulate.add_argument(
        "--seed", type=int, default=1, metavar="S", help="the first (default: %(default)s)"
    )
    simulate.add_argument(
        "--profile", default="", metavar="FILE", help="rates of faults (YAML); default: drawn"
    )
    simulate.add_argument("--events", type=int, metavar="N", help="of the workload, of each seed")
    simulate.add_argument("--plain", action="store_true", help="one pool with the defaults")
    simulate.add_argument(
        "--only", default="", metavar="NUMBERS", help="only these events, such as 0-5,17"
    )
    simulate.add_argument(
        "--only-faults", default="", metavar="KINDS", help="only these kinds of faults, or none"
    )
    simulate.add_argument("--faults", action="store_true", help="list the kinds of faults, and end")
    simulate.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="processes (default: %(default)s)"
    )
    simulate.add_argument("--trace", action="store_true", help="print each thing that happened")
    simulate.add_argument(
        "--no-shrink", action="store_true", help="do not look for a shorter run that fails"
    )
    simulate.add_argument(
        "-q", "--quiet", action="store_true", help="print only what failed, and the sum"
    )
    simulate.add_argument(
        "-o",
        "--output",
        choices=["table", "json", "yaml"],
        default="table",
        help="json: one object a line for each seed; yaml: one document each (default: table)",
    )
    simulate.set_defaults(command=_run)


def trials_of(options: argparse.Namespace) -> "tuple[Trial, ...]":
    """Make a trial for each seed that the command line asks for. Raises ProfileError, OSError."""
    from extender.cli.simulation import seeds  # noqa: PLC0415

    more = {"events": options.events} if options.events is not None else {}
    return seeds.trials(
        range(options.seed, options.seed + options.seeds),
        plain=options.plain,
        profile=seeds.read_profile(options.profile),
        only=seeds.numbers_from(options.only) if options.only else None,
        faults=seeds.kinds_from(options.only_faults) if options.only_faults else None,
        **more,
    )


def _run(options: argparse.Namespace) -> int:
    from extender.cli.simulation import seeds  # noqa: PLC0415

    if options.faults:
        seeds.print_kinds()
        return 0
    if options.seeds < 1 or options.jobs < 1:
        raise VReplicaError("--seeds and --jobs must be at least 1")
    trials = trials_of(options)
    for_tools = options.output != "table"
    with Progress("simulating", unit="seeds", total=len(trials)) as progress:
        # A terminal that shows one line for each seed needs no other progress.
        shown = sys.stdout.isatty() and not (options.quiet or for_tools)
        return seeds.run_simulation(
            seeds.SimulateOptions(
                trials=trials,
                jobs=options.jobs,
                trace=options.trace,
                shrink=not options.no_shrink,
                output=options.output,
                quiet=options.quiet,
                progress=(lambda _done: None) if shown else progress,
            )
        )
