"""``vreplica``, also installed as ``kubectl-vreplica``: the parser, and how a command ends.

Each command has a module in ``commands``.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from extender import __version__
from extender.cli.commands import (
    adapter_kit,
    cluster,
    completion,
    config,
    doctor,
    explain,
    plan,
    record,
    replay,
    run,
    serve,
    simulate,
    top,
)
from extender.cli.terminal.completing import Known, complete
from extender.cli.terminal.exit_status import BROKEN_PIPE, ERROR, INTERRUPTED, OK
from extender.cli.terminal.reference import reference
from extender.kube.first_errors import describe_error
from extender.model.errors import VReplicaError
from extender.telemetry.logs import LogFormat, set_up

COMMANDS: Final = (
    serve, run, cluster, plan, explain, top, doctor, record, replay, config, simulate, adapter_kit,
    completion,
)  # fmt: skip
"""In the order of --help."""
PROG: Final = "vreplica"
PLUGIN: Final = "kubectl-vreplica"
"""The name under which kubectl calls the program."""
COMPLETE: Final = "__complete"
"""Called by the completion of shells and kubectl, not by people."""
REFERENCE: Final = "__reference"
"""Prints docs/cli.md."""
NO_LAB: Final = (
    "this installation has no embedded cluster: the container image leaves it out. Install the "
    "Python package vreplica-scheduler to use `run`, `cluster`, `simulate` and `adapter-kit`"
)
PLUGIN_COMPLETION: Final = "kubectl_complete-vreplica"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status. An expected error is one line on stderr, without a
    traceback.
    """
    called = Path(sys.argv[0]).name if argv is None else ""
    words = list(sys.argv[1:] if argv is None else argv)
    prog = "kubectl vreplica" if called == PLUGIN else PROG
    parser = new_parser(prog)
    if (answer := _for_programs(parser, called, words)) is not None:
        print(answer, end="")
        return OK
    options = parser.parse_args(words)
    set_up(options.log_level, LogFormat(options.log_format))
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return _to_the_end(command, options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader is gone. Drop what is still buffered, or the interpreter fails on it again as
        # it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
        return BROKEN_PIPE
    except (VReplicaError, OSError, ModuleNotFoundError) as error:
        print(f"{prog}: {_line_of(error)}", file=sys.stderr)
        return ERROR


def _line_of(error: Exception) -> str:
    """Describe an error that ends a command in one line. Raises it again if it is a bug of this
    program.
    """
    match error:
        case ModuleNotFoundError():
            if (error.name or "").split(".")[:2] != ["extender", "lab"]:
                raise error
            return NO_LAB
        case OSError(filename=name, strerror=why) if name and why:
            # For example a certificate that does not load.
            return f"{name}: {why}"
    # For example a port that is taken, or an API server that cannot be reached.
    return describe_error(error)


def _to_the_end(command: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run the command and flush its output: only then is it known whether the reader is gone."""
    status = command(options)
    sys.stdout.flush()
    return status


def new_parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog=prog, description="vreplica-aware scheduling for Kubernetes"
    )
    parser.add_argument(
        "--version", action="version", version=f"{PROG} {__version__}", help="print it, and end"
    )
    parser.add_argument(
        "--log-level",
        default="warning",
        choices=["debug", "info", "warning", "error"],
        help="of what is told on standard error (default: %(default)s)",
    )
    parser.add_argument(
        "--log-format",
        default="text",
        choices=["text", "json"],
        help="of what is told on standard error; json: an object a line (default: %(default)s)",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return parser


def _for_programs(parser: argparse.ArgumentParser, called: str, words: Sequence[str]) -> str | None:
    """The output for shells, kubectl and the documentation; None for a command."""
    if words == [REFERENCE]:
        return reference(parser)
    if called != PLUGIN_COMPLETION and words[:1] != [COMPLETE]:
        return None
    typed = words[1:] if words[:1] == [COMPLETE] else words
    known: Known = {
        ("explain", "name"): partial(_names, "explained"),
        ("explain", "namespace"): partial(_names, "namespaces"),
        ("doctor", "namespace"): partial(_names, "namespaces"),
        ("plan", "namespace"): partial(_names, "namespaces"),
        ("plan", "drain"): partial(_names, "drained"),
        ("plan", "fail"): partial(_names, "drained"),
        ("plan", "pool"): partial(_names, "pools"),
        ("plan", "profile"): _profiles,
        ("plan", "set"): partial(_fields, over_time=False),
        ("replay", "profile"): _profiles,
        ("replay", "set"): partial(_fields, over_time=True),
    }
    found = complete(parser, typed, known)
    return "\n".join(found.lines()) + "\n"


def _names(wanted: str, given: Mapping[str, str]) -> Sequence[str]:
    from extender.cli.query.object_names import names  # noqa: PLC0415

    return names(wanted, given)


def _profiles(_given: Mapping[str, str]) -> list[str]:
    from extender.engine.policy.profiles import BUILT_IN_PROFILES  # noqa: PLC0415

    return sorted(BUILT_IN_PROFILES)


def _fields(_given: Mapping[str, str], *, over_time: bool) -> list[str]:
    from extender.whatif.settings import OVER_TIME, SETTINGS  # noqa: PLC0415

    return [f"{field}=" for field in sorted(OVER_TIME if over_time else SETTINGS)]


if __name__ == "__main__":
    sys.exit(main())
