"""``vreplica top``: show pools, pods and waiting vpods, live."""

import argparse
from typing import Final

from extender.cli.terminal.cluster_access import add_cluster_options
from extender.cli.terminal.output import add_output_option
from extender.cli.terminal.parsing import Commands, asyncio_run, seconds
from extender.cli.terminal.replica_access import add_replica_options
from extender.cli.top.sorting import SORTS

INTERVAL_S: Final = 2.0


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    top = commands.add_parser(
        "top",
        help="pools, pods, tenants and vpods that wait, live",
        description="Of a running replica (--server), or of a cluster, by watching it. Keys: q "
        "quit, p pause, s sort.",
    )
    top.add_argument(
        "what",
        nargs="?",
        choices=("all", "tenants"),
        default="all",
        help="tenants: only what tenants have of pools with spec.tenancy (default: all)",
    )
    top.add_argument(
        "--once", action="store_true", help="print it once, and end; so it does without a terminal"
    )
    top.add_argument(
        "--interval",
        metavar="TIME",
        type=seconds,
        default=INTERVAL_S,
        help="between two looks (default: 2s)",
    )
    top.add_argument(
        "--sort", choices=SORTS, default=SORTS[0], help="pods by this (default: %(default)s)"
    )
    add_output_option(top)
    add_replica_options(top)
    add_cluster_options(top, namespace=False)
    top.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from extender.cli.top.screen import top  # noqa: PLC0415

    return asyncio_run(lambda: top(options))
