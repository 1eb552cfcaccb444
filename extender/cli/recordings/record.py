"""Runs ``vreplica record``."""

import argparse
import asyncio
import contextlib
import sys
import time
from pathlib import Path

from extender.cli.recordings.recorder import (
    ClusterSource,
    Position,
    Recorder,
    ReplicaSource,
    position_of,
)
from extender.cli.recordings.recording_file import RecordingFile
from extender.cli.terminal.cluster_access import access_of, open_cluster
from extender.cli.terminal.output import plain
from extender.cli.terminal.progress import Progress
from extender.cli.terminal.replica import open_replica
from extender.cli.terminal.replica_access import replica_of
from extender.model.errors import InvalidObject
from extender.service.watching.observer import watched


async def record(options: argparse.Namespace) -> int:
    """Record until the time is over or the task is cancelled. Raises InvalidObject, ReplicaError,
    NotReadable, OSError.
    """
    if options.keep < 1:
        raise InvalidObject("--keep", "", "must be at least 1")
    file = RecordingFile(
        Path(options.output_file), bytes_max=options.max_size, files_max=options.keep
    )
    position = _begin(file, resume=options.resume, force=options.force)
    with Progress("recording", unit="lines") as progress:
        ending = _Ending(file, options.for_s, progress)
        if not options.server:
            await _record_cluster(options, ending)
            return 0
        async with open_replica(replica_of(options)) as replica:
            source = ReplicaSource(replica)
            await ending.run(Recorder(source, file, position=position, on_written=ending.report))
    return 0


def _begin(file: RecordingFile, *, resume: bool, force: bool) -> Position | None:
    """Where to continue, None for a new snapshot. Raises InvalidObject if the file exists, without
    ``resume`` or ``force``.
    """
    if not file.path.exists():
        return None
    if resume:
        position = position_of(file)
        file.go_on()
        return position
    if not force:
        raise InvalidObject(
            str(file.path), "", "exists: --resume goes on with it, --force begins anew"
        )
    return None


async def _record_cluster(options: argparse.Namespace, ending: "_Ending") -> None:
    with Progress("first lists", unit="objects") as listing:
        async with (
            open_cluster(access_of(options)) as cluster,
            watched(cluster.api, progress=listing) as caches,
        ):
            listing.end()
            source = ClusterSource(caches, now=time.time)
            await ending.run(Recorder(source, ending.file, on_written=ending.report))


class _Ending:
    """How a recording proceeds and ends: after the given time, or by a signal. Both are normal
    ends.
    """

    def __init__(self, file: RecordingFile, for_s: float | None, progress: Progress) -> None:
        self.file = file
        self._for_s = for_s
        self._progress = progress

    def report(self) -> None:
        """Report progress: something was written."""
        self._progress(self.file.lines)

    async def run(self, recorder: Recorder) -> None:
        """Record, and report at the end what was written."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._for_s):
                    await recorder.run()
        finally:
            self._progress.end()
            self._print_summary(recorder)

    def _print_summary(self, recorder: Recorder) -> None:
        header = recorder.header
        if header is None and recorder.position is None:
            return
        gaps = f", {recorder.gaps} gaps" if recorder.gaps else ""
        print(f"{self.file.path}: {self.file.lines:,} lines{gaps}", file=sys.stderr)
        if header is not None and header.source == "replica" and header.leader != header.identity:
            leader = plain(header.leader) or "nobody"
            print(
                f"vreplica record: {plain(header.identity)} does not lead, so it decides nothing; "
                f"{leader} leads",
                file=sys.stderr,
            )
