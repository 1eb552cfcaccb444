"""``vreplica adapter-kit``: play the scheduler against an adapter, and report what breaks the
contract.
"""

import argparse
import asyncio
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from extender.cli.terminal.exit_status import ERROR, OK
from extender.cli.terminal.output import add_output_option, plain, print_result
from extender.cli.terminal.parsing import Commands, seconds
from extender.cli.terminal.progress import Progress
from extender.model.errors import VReplicaError

if TYPE_CHECKING:
    from extender.lab.adapter_kit.run import Kit, Result
    from extender.lab.adapter_kit.running import Running

URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
"""Begins a URL. No command does."""


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    kit = commands.add_parser(
        "adapter-kit",
        help="play the scheduler against an adapter in any language, and report what breaks the "
        "contract",
        epilog="exit status: 0 all rules that were played are kept, 1 one is broken, or none could "
        "be played (an unknown rule, a command that cannot be started, no adapter at the URL), 2 "
        "a wrong command line",
    )
    kit.add_argument(
        "command_line",
        metavar="URL|COMMAND",
        nargs="*",
        help="the command starts the adapter, with its arguments after --; it is started once a "
        "rule. With https://HOST:PORT, an adapter is checked that runs already: the kit listens "
        "there and at PORT+1, and waits until the adapter connects",
    )
    kit.add_argument(
        "--rule", action="append", default=[], metavar="NAME", help="only this rule; repeatable"
    )
    kit.add_argument("--rules", action="store_true", help="list the rules, and end")
    kit.add_argument(
        "--exclusive", action="store_true", help="also what the mode Exclusive asks for (leases)"
    )
    kit.add_argument(
        "--within",
        type=seconds,
        default=10.0,
        metavar="TIME",
        help="how long the adapter may take for a step (default: 10s)",
    )
    kit.add_argument(
        "--jobs",
        type=int,
        default=4,
        metavar="N",
        help="rules at a time; with a URL always one (default: %(default)s)",
    )
    kit.add_argument(
        "--folder",
        type=Path,
        help="with a URL: holds ca.crt and token for the adapter, and is kept, so that an adapter "
        "that runs on can be checked again (default: a temporary one)",
    )
    kit.add_argument(
        "--wait-seconds",
        type=seconds,
        default=60.0,
        metavar="N",
        help="with a URL: how long the adapter may take to connect, at first and after each rule "
        "(default: 60)",
    )
    add_output_option(kit)
    kit.set_defaults(command=partial(_run, kit))


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from extender.lab.adapter_kit.rules import RULES  # noqa: PLC0415

    if options.rules:
        rows = [{"rule": rule.name, "text": rule.text} for rule in RULES]
        print_result(rows, options.output, lambda: _print_rules(rows))
        return OK
    try:
        kit, takes_minutes = _chosen(options)
    except VReplicaError as error:
        parser.error(str(error))
    return _report(kit, options, takes_minutes=takes_minutes)


def _chosen(options: argparse.Namespace) -> tuple["Kit | Running", bool]:
    """Raises VReplicaError if the command line is wrong."""
    if not options.command_line:
        raise VReplicaError(
            "adapter-kit needs the command that starts the adapter, the https:// URL at which one "
            "that runs already looks for the scheduler, or --rules"
        )
    if options.jobs < 1:
        raise VReplicaError("--jobs must be at least 1")
    if URL.match(options.command_line[0]):
        return _running(options), True
    return _kit(options), False


def _kit(options: argparse.Namespace) -> "Kit":
    from extender.lab.adapter_kit.judging import Patience  # noqa: PLC0415
    from extender.lab.adapter_kit.run import Kit  # noqa: PLC0415

    if options.folder is not None:
        raise VReplicaError("--folder is for a URL: a command gets a folder for each rule")
    return Kit(
        command=options.command_line,
        names=options.rule,
        exclusive=options.exclusive,
        patience=Patience(step_s=options.within, start_s=max(20.0, options.within)),
        jobs=options.jobs,
    )


def _running(options: argparse.Namespace) -> "Running":
    from extender.lab.adapter_kit.address import addresses_from  # noqa: PLC0415
    from extender.lab.adapter_kit.judging import Patience  # noqa: PLC0415
    from extender.lab.adapter_kit.running import Running  # noqa: PLC0415

    url, *more = options.command_line
    if more:
        raise VReplicaError(f"nothing may follow the URL {url}, but {more[0]!r} does")
    return Running(
        addresses=addresses_from(url),
        announce=lambda text: print(plain(text), file=sys.stderr, flush=True),
        folder=options.folder,
        wait_s=options.wait_seconds,
        names=options.rule,
        exclusive=options.exclusive,
        patience=Patience(step_s=options.within, start_s=max(20.0, options.within)),
    )


def _report(kit: "Kit | Running", options: argparse.Namespace, *, takes_minutes: bool) -> int:
    with Progress("checking", unit="rules", total=len(kit.rules())) as progress:
        # A log needs no progress of less than a minute.
        shown = takes_minutes or sys.stderr.isatty()
        try:
            results = asyncio.run(kit.run(lambda _result: progress.add() if shown else None))
        except* OSError as errors:
            why = errors.exceptions[0]
            raise VReplicaError(f"the adapter cannot be started: {why}") from None
    rows = [_row(result) for result in results]
    print_result(rows, options.output, lambda: _print_results(rows))
    if not any(result.work_was_seen for result in results):
        print(
            "No work was seen: the rules are judged by what the adapter says. Let it write its "
            "work to $VREPLICA_WORK_LOG.",
            file=sys.stderr,
        )
    return ERROR if any(row["outcome"] == "broken" for row in rows) else OK


def _row(result: "Result") -> dict[str, str]:
    row = {
        "rule": result.rule.name,
        "outcome": str(result.outcome),
        "text": result.rule.text,
        "expected": result.expected,
        "seen": result.seen,
    }
    return {name: value for name, value in row.items() if value}


def _print_rules(rows: list[dict[str, str]]) -> None:
    for row in rows:
        print(f"{row['rule']:<18} {row['text']}")


def _print_results(rows: list[dict[str, str]]) -> None:
    for row in rows:
        print(f"{row['outcome']:<8} {row['rule']:<18} {row['text']}")
        if "expected" in row:
            print(f"{'':<8} expected: {plain(row['expected'])}")
        if "seen" in row:
            print(f"{'':<8} seen: {plain(row['seen'])}")
    broken, skipped = (
        sum(row["outcome"] == outcome for row in rows) for outcome in ("broken", "skipped")
    )
    print(f"{len(rows)} rules, {broken} broken{f', {skipped} skipped' if skipped else ''}")
