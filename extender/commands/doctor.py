"""``vreplica doctor``: examine a live cluster."""

import argparse
from urllib.parse import urlsplit

from extender.terminal.parsing import Commands, asyncio_run

_EPILOG = (
    "exit status: 0 no check has found an error; 1 one has (with --strict: or a warning, or something that could not be "
    "seen); 2 there is no cluster to examine"
)


def add(commands: Commands) -> None:
    """Put it on the command line."""
    doctor = commands.add_parser(
        "doctor", help="examine a live cluster: installation, certificates, pods, ledgers", epilog=_EPILOG
    )
    doctor.add_argument("--kubeconfig", default="", metavar="FILE", help="default: as kubectl finds it")
    doctor.add_argument("--context", default="", help="of the kubeconfig (default: the current one)")
    doctor.add_argument(
        "--namespace", default="vreplica-system", help="where the service runs (default: %(default)s)"
    )
    doctor.add_argument("--server", type=_url, metavar="URL", help="also ask this replica of the service")
    doctor.add_argument("-o", "--output", choices=["table", "json", "yaml"], default="table")
    doctor.add_argument("--strict", action="store_true", help="warnings and unknowns too end with status 1")
    doctor.set_defaults(command=_run)


def _url(value: str) -> str:
    if urlsplit(value).scheme not in {"http", "https"} or not urlsplit(value).hostname:
        raise argparse.ArgumentTypeError(f"{value!r} is no URL such as http://127.0.0.1:10261")
    return value


def _run(options: argparse.Namespace) -> int:
    from extender.doctor.command import run_doctor  # noqa: PLC0415

    return asyncio_run(
        lambda: run_doctor(
            kubeconfig=options.kubeconfig,
            context=options.context,
            namespace=options.namespace,
            server=options.server or "",
            output=options.output,
            strict=options.strict,
        )
    )
