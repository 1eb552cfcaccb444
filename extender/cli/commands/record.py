"""``vreplica record``: write what a replica or a cluster sees and decides to a file."""

import argparse

from extender.cli.terminal.cluster_access import add_cluster_options
from extender.cli.terminal.parsing import Commands, asyncio_run, seconds, size_bytes
from extender.cli.terminal.replica_access import add_replica_options


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    record = commands.add_parser(
        "record",
        help="what a replica, or a cluster, sees and decides, into a file for `replay`",
        description="Record a running replica (--server): objects, reservations and decisions. Or "
        "a cluster, by "
        "watching it: objects only, whoever schedules there. Ends after --for, or with Ctrl-C.",
    )
    record.add_argument("-o", "--output-file", metavar="FILE", required=True, help="JSON lines")
    record.add_argument(
        "--for",
        dest="for_s",
        metavar="TIME",
        type=seconds,
        help="such as 10m; default: until Ctrl-C",
    )
    record.add_argument("--resume", action="store_true", help="go on with FILE where it ends")
    record.add_argument(
        "--force", action="store_true", help="begin FILE anew where it exists; it becomes FILE.1"
    )
    record.add_argument(
        "--max-size",
        metavar="SIZE",
        type=size_bytes,
        default=256 * 2**20,
        help="of one file (default: 256Mi)",
    )
    record.add_argument(
        "--keep",
        metavar="N",
        type=int,
        default=4,
        help="files: FILE, FILE.1, ... (default: %(default)s)",
    )
    add_replica_options(record)
    add_cluster_options(record, namespace=False)
    record.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from extender.cli.recordings.record import record  # noqa: PLC0415

    return asyncio_run(lambda: record(options))
