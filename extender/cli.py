"""``vreplica``, also installed as ``kubectl-vreplica``: serve, run, cluster, plan, config.

Each command imports what it needs when it is called, so that ``--help`` and ``plan`` start fast.
"""

import argparse
import asyncio
import logging
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

from extender import __version__
from extender.core.errors import InvalidObject, VReplicaError
from extender.core.names import CONFIG_KIND
from extender.kube.one_line import OneLineFormatter


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status. Errors of ours are one line on stderr, never a traceback."""
    parser = _parser()
    options = parser.parse_args(argv)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=getattr(logging, options.log_level.upper()), handlers=[handler])
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except VReplicaError as error:
        print(f"vreplica: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except OSError as error:
        # A port that is taken, a certificate that does not load, an API server out of reach.
        print(f"vreplica: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vreplica", description="vreplica-aware scheduling for Kubernetes")
    parser.add_argument("--version", action="version", version=f"vreplica {__version__}")
    parser.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="run one replica of the service against a cluster")
    serve.add_argument("--config", required=True, metavar="FILE", help="VReplicaSchedulerConfiguration")
    serve.set_defaults(command=_serve)

    run = commands.add_parser("run", help="the whole system on an embedded cluster, with a live table")
    run.add_argument("--once", action="store_true", help="end by itself once the story is told")
    run.add_argument("-o", "--output", choices=["table", "json"], default="table")
    run.add_argument("--seed", type=int, default=1, help="of everything that is drawn by chance")
    run.set_defaults(command=_run)

    cluster = commands.add_parser("cluster", help="only the embedded cluster, for kubectl and for tests")
    cluster.add_argument("--host", default="127.0.0.1")
    cluster.add_argument("--port", type=_port, default=0, help="0: any free one")
    cluster.add_argument("--kubeconfig-out", metavar="FILE", help="write a kubeconfig for it")
    cluster.add_argument(
        "--scheduler-config",
        metavar="FILE",
        action="append",
        default=[],
        help="run kube-scheduler's loop with this file",
    )
    cluster.add_argument("--seed", type=int, default=1)
    cluster.set_defaults(command=_cluster)

    plan = commands.add_parser(
        "plan", help="what one round of placing would do to the objects in these files"
    )
    plan.add_argument(
        "-f", "--filename", metavar="FILE", action="append", required=True, help="- for standard input"
    )
    plan.add_argument("-o", "--output", choices=["table", "json"], default="table")
    plan.add_argument("--autoscale", action="store_true", help="also the number of pods that each pool needs")
    plan.add_argument("--compact", action="store_true", help="also what would be drained and compacted")
    plan.add_argument("--profile", metavar="NAME", default="", help="place every pool by this profile")
    plan.add_argument("--config", metavar="FILE", default="", help=f"{CONFIG_KIND}: profiles of your own")
    plan.set_defaults(command=_plan)
    _add_config(commands)
    _add_simulate(commands)
    return parser


def _add_simulate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    simulate = commands.add_parser(
        "simulate",
        help="the service under seeded faults, in virtual time, its invariants checked after each write",
    )
    simulate.add_argument(
        "--seeds", type=int, default=20, metavar="N", help="how many (default: %(default)s)"
    )
    simulate.add_argument("--seed", type=int, default=1, metavar="S", help="the first (default: %(default)s)")
    simulate.add_argument(
        "--profile", default="", metavar="FILE", help="rates of faults (YAML); default: drawn"
    )
    simulate.add_argument("--events", type=int, metavar="N", help="of the workload, of each seed")
    simulate.add_argument("--plain", action="store_true", help="one pool with the defaults")
    simulate.add_argument("--only", default="", metavar="NUMBERS", help="only these events, such as 0-5,17")
    simulate.add_argument(
        "--only-faults", default="", metavar="KINDS", help="only these kinds of faults, or none"
    )
    simulate.add_argument("--faults", action="store_true", help="list the kinds of faults, and end")
    simulate.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: %(default)s)")
    simulate.add_argument("--trace", action="store_true", help="print each thing that happened")
    simulate.add_argument("--no-shrink", action="store_true", help="do not look for a shorter run that fails")
    simulate.add_argument("-q", "--quiet", action="store_true", help="print only what failed, and the sum")
    simulate.add_argument("-o", "--output", choices=["table", "json"], default="table")
    simulate.set_defaults(command=_simulate)


def _add_config(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    config = commands.add_parser("config", help="check configuration files, import Knative's")
    actions = config.add_subparsers(title="actions", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check", help=f"read {CONFIG_KIND}, KubeSchedulerConfiguration or Policy files"
    )
    check.add_argument("files", metavar="FILE", nargs="+")
    check.set_defaults(command=_config_check)
    imported = actions.add_parser(
        "import-knative", help="print the profile that Knative's ConfigMaps describe"
    )
    imported.add_argument("--name", default="knative-policies", help="of the profile (default: %(default)s)")
    imported.add_argument("--scheduler", metavar="FILE", required=True, help="the scheduler's ConfigMap")
    imported.add_argument("--descheduler", metavar="FILE", default="", help="the descheduler's ConfigMap")
    imported.add_argument(
        "--ignore-unknown", action="store_true", help="leave out names that are no plugin, as Knative does"
    )
    imported.set_defaults(command=_config_import)


def _port(value: str) -> int:
    if not value.isdigit() or int(value) > 65535:
        raise argparse.ArgumentTypeError(f"{value!r} is not a port: 0 to 65535")
    return int(value)


def _serve(options: argparse.Namespace) -> int:
    from extender.app import serve  # noqa: PLC0415
    from extender.profiles import load_profiles  # noqa: PLC0415
    from extender.service.config import load_config  # noqa: PLC0415

    config = load_config(options.config)
    profiles = load_profiles(config, options.config)
    return _asyncio_run(lambda: serve(config, now=time.time, rng=random.Random(), profiles=profiles))


def _run(options: argparse.Namespace) -> int:
    from extender.demo import run_demo  # noqa: PLC0415

    return _asyncio_run(lambda: run_demo(once=options.once, output=options.output, seed=options.seed))


def _cluster(options: argparse.Namespace) -> int:
    from extender.demo import run_cluster  # noqa: PLC0415

    configs = [_text_of(name) for name in options.scheduler_config]
    return _asyncio_run(
        lambda: run_cluster(
            host=options.host,
            port=options.port,
            kubeconfig_out=options.kubeconfig_out,
            scheduler_configs=configs,
            seed=options.seed,
        )
    )


def _text_of(name: str) -> str:
    try:
        return Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidObject(name, "", f"cannot be read: {error}") from error


def _plan(options: argparse.Namespace) -> int:
    from extender.plan_cli import run_plan  # noqa: PLC0415
    from extender.profiles import load_profiles  # noqa: PLC0415
    from extender.service.config import Config, load_config  # noqa: PLC0415

    config = load_config(options.config) if options.config else Config()
    return run_plan(
        options.filename,
        output=options.output,
        autoscale=options.autoscale,
        compact=options.compact,
        profile=options.profile,
        profiles=load_profiles(config, options.config),
    )


def _config_check(options: argparse.Namespace) -> int:
    from extender.config_cli import run_check  # noqa: PLC0415

    return run_check(options.files)


def _config_import(options: argparse.Namespace) -> int:
    from extender.config_cli import run_import_knative  # noqa: PLC0415

    return run_import_knative(
        options.name, options.scheduler, options.descheduler, ignore_unknown=options.ignore_unknown
    )


def _asyncio_run(main_coroutine: Callable[[], Coroutine[None, None, int]]) -> int:
    """Run on uvloop; SIGTERM and SIGINT cancel, and a cancelled command has ended well."""
    import uvloop  # noqa: PLC0415

    async def supervised() -> int:
        task = asyncio.ensure_future(main_coroutine())
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            return 0

    return uvloop.run(supervised())


def _simulate(options: argparse.Namespace) -> int:
    from extender.simulation import command  # noqa: PLC0415

    if options.faults:
        command.print_kinds()
        return 0
    if options.seeds < 1 or options.jobs < 1:
        raise VReplicaError("--seeds and --jobs must be at least 1")
    more = {"events": options.events} if options.events is not None else {}
    trials = command.trials(
        range(options.seed, options.seed + options.seeds),
        plain=options.plain,
        profile=command.read_profile(options.profile),
        only=command.numbers_from(options.only) if options.only else None,
        faults=command.kinds_from(options.only_faults) if options.only_faults else None,
        **more,
    )
    return command.run_simulation(
        command.SimulateOptions(
            trials=trials,
            jobs=options.jobs,
            trace=options.trace,
            shrink=not options.no_shrink,
            json_lines=options.output == "json",
            quiet=options.quiet,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
