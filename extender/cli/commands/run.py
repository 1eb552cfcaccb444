"""``vreplica run``: run the whole system on an embedded cluster."""

import argparse

from extender.cli.terminal.output import add_output_option, print_result
from extender.cli.terminal.parsing import Commands, asyncio_run


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    run = commands.add_parser(
        "run", help="the whole system on an embedded cluster, with a live table"
    )
    how = run.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="end by itself once the story is told")
    how.add_argument(
        "--empty", action="store_true", help="no story: nodes only, to apply objects of your own to"
    )
    add_output_option(run)
    run.add_argument("--seed", type=int, default=1, help="of everything that is drawn by chance")
    run.add_argument(
        "--kubeconfig-out", metavar="FILE", default="", help="write the cluster's kubeconfig there"
    )
    run.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from extender.lab.demo import DemoOptions, run_demo  # noqa: PLC0415

    def show(result: dict[str, object]) -> None:
        print_result(result, options.output, lambda: None)

    demo = DemoOptions(
        once=options.once,
        empty=options.empty,
        seed=options.seed,
        kubeconfig_out=options.kubeconfig_out,
        show=show if options.output != "table" else None,
    )
    return asyncio_run(lambda: run_demo(demo))
