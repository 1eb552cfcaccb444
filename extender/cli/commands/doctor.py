"""``vreplica doctor``: examine a live cluster."""

import argparse

from extender.cli.terminal.cluster_access import access_of, add_cluster_options
from extender.cli.terminal.output import add_output_option
from extender.cli.terminal.parsing import Commands, asyncio_run
from extender.cli.terminal.replica_access import add_replica_options, replica_of
from extender.model.names import COMPONENT, OWN_NAMESPACE

_EPILOG = (
    "exit status: 0 no check has found an error; 1 one has (with --strict: or a warning, or "
    "something that could not be "
    "seen), or there is no cluster to examine, or nothing of it may be read; 2 wrong options"
)


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    doctor = commands.add_parser(
        "doctor",
        help="examine a live cluster: installation, certificates, pods, ledgers",
        epilog=_EPILOG,
    )
    doctor.add_argument(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        default=OWN_NAMESPACE,
        help="where the service runs (default: %(default)s)",
    )
    doctor.add_argument(
        "--name",
        metavar="NAME",
        default=COMPONENT,
        help="full name of the installation, after the chart's fullnameOverride or nameOverride "
        "(default: %(default)s)",
    )
    doctor.add_argument(
        "--strict", action="store_true", help="warnings and unknowns too end with status 1"
    )
    add_output_option(doctor)
    add_replica_options(doctor, told="also ask this replica")
    add_cluster_options(doctor, namespace=False)
    doctor.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from extender.cli.doctor.checks.names import InstallationNames  # noqa: PLC0415
    from extender.cli.doctor.command import run_doctor  # noqa: PLC0415

    return asyncio_run(
        lambda: run_doctor(
            access_of(options),
            namespace=options.namespace,
            names=InstallationNames(options.name),
            replica=replica_of(options) if options.server else None,
            output=options.output,
            strict=options.strict,
        )
    )
