"""Runs ``vreplica record``."""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from extender.cli.recordings.recorder import (
    ClusterSource,
    Position,
    Recorder,
    ReplicaSource,
    Source,
    position_of,
)
from extender.cli.recordings.recording_file import RecordingFile
from extender.cli.terminal.cluster_access import access_of, open_watched
from extender.cli.terminal.output import plain
from extender.cli.terminal.progress import Progress
from extender.cli.terminal.replica import open_replica
from extender.cli.terminal.replica_access import replica_of
from extender.model.errors import InvalidObject


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
        async with _source(options) as source:
            recorder = Recorder(
                source,
                file,
                position=position if options.server else None,
                on_written=lambda: progress(file.lines),
            )
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(options.for_s):
                        await recorder.run()
            finally:
                progress.end()
                _print_summary(file, recorder)
    return 0


@asynccontextmanager
async def _source(options: argparse.Namespace) -> AsyncIterator[Source]:
    """Open what is recorded until the block ends: a replica, or else a cluster."""
    if options.server:
        async with open_replica(replica_of(options)) as replica:
            yield ReplicaSource(replica)
        return
    async with open_watched(access_of(options)) as (_, caches):
        yield ClusterSource(caches, now=time.time)


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


def _print_summary(file: RecordingFile, recorder: Recorder) -> None:
    header = recorder.header
    if header is None and recorder.position is None:
        return
    gaps = f", {recorder.gaps} gaps" if recorder.gaps else ""
    print(f"{file.path}: {file.lines:,} lines{gaps}", file=sys.stderr)
    if header is not None and header.source == "replica" and header.leader != header.identity:
        leader = plain(header.leader) or "nobody"
        print(
            f"vreplica record: {plain(header.identity)} does not lead, so it decides nothing; "
            f"{leader} leads",
            file=sys.stderr,
        )
