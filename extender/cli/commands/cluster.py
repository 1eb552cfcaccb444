"""``vreplica cluster``: run only the embedded cluster."""

import argparse

from extender.cli.terminal.parsing import Commands, asyncio_run, port


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    cluster = commands.add_parser(
        "cluster", help="only the embedded cluster, for kubectl and for tests"
    )
    cluster.add_argument("--host", default="127.0.0.1", help="to listen on (default: %(default)s)")
    cluster.add_argument("--port", type=port, default=0, help="0: any free one")
    cluster.add_argument("--kubeconfig-out", metavar="FILE", help="write a kubeconfig for it")
    cluster.add_argument(
        "--scheduler-config",
        metavar="FILE",
        action="append",
        default=[],
        help="run kube-scheduler's loop with this file",
    )
    cluster.add_argument(
        "--select-host",
        choices=("round-robin", "random"),
        default="round-robin",
        help="how its kube-scheduler chooses among equal nodes: they take turns, as up to 1.15, or "
        "one is drawn, as since 1.16 (default: %(default)s)",
    )
    cluster.add_argument(
        "--seed", type=int, default=1, help="of everything that is drawn by chance"
    )
    cluster.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from extender.config.document import read_file  # noqa: PLC0415
    from extender.lab.demo import run_cluster  # noqa: PLC0415

    configs = [read_file(name) for name in options.scheduler_config]
    return asyncio_run(
        lambda: run_cluster(
            host=options.host,
            port=options.port,
            kubeconfig_out=options.kubeconfig_out,
            scheduler_configs=configs,
            seed=options.seed,
            select_host=options.select_host,
        )
    )
