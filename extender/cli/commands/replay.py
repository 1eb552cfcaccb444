"""``vreplica replay``: play a recording, perhaps with another profile, other settings or another
version.
"""

import argparse

from extender.cli.terminal.exit_status import DIFFERENT
from extender.cli.terminal.output import add_output_option
from extender.cli.terminal.parsing import Commands, setting
from extender.model.names import CONFIG_KIND


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    replay = commands.add_parser(
        "replay",
        help="a recording under another profile, other settings or another version: what differs",
        description="Play a recording of `record`: every decision again, on the state on which it "
        "was made; and what "
        "it would have come to with --profile and --set. Reads only the files.",
    )
    replay.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="of `record`; several in their order, FILE.2 FILE.1 FILE",
    )
    replay.add_argument(
        "--profile", metavar="NAME", default="", help="place every pool by this profile"
    )
    replay.add_argument(
        "--config", metavar="FILE", default="", help=f"{CONFIG_KIND}: profiles of your own"
    )
    replay.add_argument(
        "--set",
        metavar="FIELD=NUMBER",
        type=setting(over_time=True),
        action="append",
        default=[],
        help="a field of every AdapterPool's spec, such as slotsPerPod=22",
    )
    replay.add_argument(
        "--first",
        metavar="N",
        type=int,
        default=20,
        help="decisions that differ to show (default: %(default)s)",
    )
    replay.add_argument(
        "--check",
        action="store_true",
        help=f"exit with {DIFFERENT} where a decision is made otherwise",
    )
    add_output_option(replay)
    replay.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from extender.cli.recordings.replay import replay_files  # noqa: PLC0415

    return replay_files(options)
