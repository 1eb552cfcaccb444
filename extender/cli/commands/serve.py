"""``vreplica serve``: run one replica of the service against a cluster."""

import argparse
import random
import time

from extender.cli.terminal.parsing import Commands, asyncio_run
from extender.telemetry import trace_export, tracing


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    serve = commands.add_parser("serve", help="run one replica of the service against a cluster")
    serve.add_argument(
        "--config", required=True, metavar="FILE", help="VReplicaSchedulerConfiguration"
    )
    serve.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from extender.config.profiles import open_config  # noqa: PLC0415
    from extender.service.app import serve  # noqa: PLC0415
    from extender.service.reloading import Watched  # noqa: PLC0415

    path = options.config
    file = open_config(path)
    watched = Watched(file.watched, lambda: open_config(path).watched)
    trace_export.start("vreplica-scheduler")
    try:
        return asyncio_run(
            lambda: serve(
                file.config,
                now=time.time,
                rng=random.Random(),
                profiles=file.profiles,
                watched=watched,
            )
        )
    finally:
        tracing.stop()
