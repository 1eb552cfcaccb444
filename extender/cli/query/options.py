"""Options of ``plan`` and ``explain`` that say where the objects come from."""

import argparse
from typing import TYPE_CHECKING

from extender.cli.terminal.cluster_access import access_of, add_cluster_options
from extender.cli.terminal.output import add_output_option
from extender.cli.terminal.replica_access import add_replica_options, replica_of
from extender.model.errors import InvalidObject
from extender.model.names import CONFIG_KIND

if TYPE_CHECKING:
    from extender.cli.query.where import Where


def add_where(parser: argparse.ArgumentParser) -> None:
    """Add the options: files, a running service, or (neither) the live cluster."""
    parser.add_argument(
        "-f", "--filename", metavar="FILE", action="append", default=[],
        help="objects from files, - for standard input; without -f and --server the live cluster "
            "is read",
    )  # fmt: skip
    parser.add_argument(
        "--config", metavar="FILE", default="", help=f"{CONFIG_KIND}: profiles of your own"
    )
    add_output_option(parser)
    add_replica_options(parser)
    add_cluster_options(parser, namespace=False)


def where_from(options: argparse.Namespace) -> "Where":
    """Read the options of ``add_where``. Raises InvalidObject."""
    from extender.cli.query.where import Where  # noqa: PLC0415
    from extender.config.profiles import profiles_of  # noqa: PLC0415

    chosen = [
        flag for flag, given in (("-f", options.filename), ("--server", options.server)) if given
    ]
    chosen += ["--kubeconfig"] * bool(options.kubeconfig) + ["--context"] * bool(options.context)
    if len(chosen) > 1 and chosen != ["--kubeconfig", "--context"]:
        raise InvalidObject("options", chosen[1], f"does not go together with {chosen[0]}")
    return Where(
        files=tuple(options.filename),
        replica=replica_of(options),
        cluster=access_of(options),
        profiles=profiles_of(options.config),
    )
