"""``vreplica explain``: explain why a vpod or an adapter pod is where it is, and what would place
the rest of a vpod.
"""

import argparse

from extender.cli.query.options import add_where, where_from
from extender.cli.terminal.parsing import Commands, ask


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    explain = commands.add_parser(
        "explain",
        help="why a vpod or an adapter pod is where it is, and what would place the rest",
        epilog="exit status: 0 answered, 1 could not answer, 2 wrong options, 3 no such object, 4 "
        "something waits (--check)",
    )
    explain.add_argument(
        "name", metavar="VPOD|POD", help="NAME, NAMESPACE/NAME, vpod/NAME or pod/NAME"
    )
    explain.add_argument(
        "-n", "--namespace", metavar="NAMESPACE", default="", help="of a name without one"
    )
    add_where(explain)
    explain.add_argument(
        "--check", action="store_true", help="exit with 4 if something of it has no place"
    )
    explain.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from extender.cli.query.explain import run_explain  # noqa: PLC0415

    where = where_from(options)
    return ask(lambda: run_explain(where, options.name, output=options.output, check=options.check))
