"""``vreplica config``: check, view and describe configuration files; import Knative's."""

import argparse

from extender.cli.terminal.parsing import Commands
from extender.model.names import CONFIG_KIND

_CHECK_EPILOG = (
    "exit status: 0 nothing is wrong, or warnings only; 1 there are errors (with --strict: or "
    "warnings), or a file could "
    "not be read; 2 wrong options"
)


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    config = commands.add_parser(
        "config", help="check and show configuration files, import Knative's"
    )
    actions = config.add_subparsers(title="actions", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check",
        help=f"look for mistakes in {CONFIG_KIND}, KubeSchedulerConfiguration, Policy and webhook "
        f"registration files",
        epilog=_CHECK_EPILOG,
    )
    check.add_argument("files", metavar="FILE", nargs="+")
    check.add_argument("-o", "--output", choices=["text", "json", "yaml"], default="text")
    check.add_argument("--strict", action="store_true", help="warnings too end with status 1")
    check.set_defaults(command=_check)
    view = actions.add_parser(
        "view", help="print the effective configuration, every default filled in"
    )
    view.add_argument(
        "file", metavar="FILE", nargs="?", default="", help="without it: the defaults"
    )
    view.add_argument("-o", "--output", choices=["yaml", "json", "table"], default="yaml")
    view.set_defaults(command=_view)
    schema = actions.add_parser("schema", help=f"print the JSON schema of {CONFIG_KIND}")
    schema.set_defaults(command=_schema)
    imported = actions.add_parser(
        "import-knative", help="print the profile that Knative's ConfigMaps describe"
    )
    imported.add_argument(
        "--name", default="knative-policies", help="of the profile (default: %(default)s)"
    )
    imported.add_argument(
        "--scheduler", metavar="FILE", required=True, help="the scheduler's ConfigMap"
    )
    imported.add_argument(
        "--descheduler", metavar="FILE", default="", help="the descheduler's ConfigMap"
    )
    imported.add_argument(
        "--ignore-unknown",
        action="store_true",
        help="leave out names that are no plugin, as Knative does",
    )
    imported.set_defaults(command=_import)


def _check(options: argparse.Namespace) -> int:
    from extender.cli.lint.command import run_check  # noqa: PLC0415

    return run_check(options.files, output=options.output, strict=options.strict)


def _view(options: argparse.Namespace) -> int:
    from extender.cli.lint.command import run_view  # noqa: PLC0415

    return run_view(options.file, output=options.output)


def _schema(_options: argparse.Namespace) -> int:
    from extender.cli.lint.command import run_schema  # noqa: PLC0415

    return run_schema()


def _import(options: argparse.Namespace) -> int:
    from extender.cli.lint.command import run_import_knative  # noqa: PLC0415

    return run_import_knative(
        options.name, options.scheduler, options.descheduler, ignore_unknown=options.ignore_unknown
    )
