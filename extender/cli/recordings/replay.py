"""Runs ``vreplica replay``."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from extender.cli.recordings.recording_file import read_lines
from extender.cli.recordings.replay_view import print_report
from extender.cli.terminal.exit_status import DIFFERENT
from extender.cli.terminal.output import print_result
from extender.cli.terminal.progress import Progress
from extender.config.profiles import profiles_of
from extender.engine.policy.profile import Profile
from extender.model.errors import InvalidObject
from extender.whatif.recording.entries import Entry, Header, Line
from extender.whatif.recording.player import Changes
from extender.whatif.recording.report import Replay, Span


def replay_files(options: argparse.Namespace) -> int:
    """Play the files and print the report. Raises InvalidObject, OSError."""
    files = [Path(name) for name in options.files]
    profiles = profiles_of(options.config)
    changes = _changes(options, profiles)
    total = sum(file.stat().st_size for file in files)
    with Progress("reading", unit="bytes", total=2 * total) as progress:
        span = _span(files, progress)
        replay = Replay(span, profiles=profiles, changes=changes, first=max(0, options.first))
        for read, line in _lines(files):
            replay.take(line)
            progress(total + read)
        replay.end()
    result = replay.to_json()
    print_result(result, options.output, lambda: print_report(result))
    return DIFFERENT if options.check and replay.differing else 0


def _changes(options: argparse.Namespace, profiles: Mapping[str, Profile]) -> Changes:
    if options.profile and options.profile not in profiles:
        raise InvalidObject(
            "--profile",
            "",
            f"{options.profile!r} is not known (known: {', '.join(sorted(profiles))})",
        )
    return Changes(options.profile, dict(options.set))


def _lines(files: list[Path]) -> Iterator[tuple[int, Line | None]]:
    """The lines of all files, with the number of bytes read so far. Raises InvalidObject."""
    before = 0
    for file in files:
        read = 0
        try:
            for read, line in read_lines(file):
                yield before + read, line
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidObject(str(file), "", f"cannot be read: {error}") from error
        before += read


def _span(files: list[Path], progress: Progress) -> Span:
    """When the recording begins and ends. Raises InvalidObject if the files are not a recording."""
    begin = end = None
    for read, line in _lines(files):
        if begin is None and not isinstance(line, Header):
            raise InvalidObject(
                str(files[0]), "", "does not begin with a header: is it a recording of `record`?"
            )
        if isinstance(line, Header | Entry):
            begin = line.at if begin is None else min(begin, line.at)
            end = line.at if end is None else max(end, line.at)
        progress(read)
    if begin is None or end is None:
        raise InvalidObject(str(files[0]), "", "is empty")
    return Span(begin, end)
