"""``vreplica config``: checks, shows and describes configuration files, and turns Knative's
ConfigMaps into a profile.

``check`` reads each file as its program does, and also looks for mistakes that no program refuses
(``extender.cli.lint``). ``view`` prints the effective settings of a file, with every default.
"""

import json
from collections.abc import Sequence

import yaml

from extender.cli.lint.files import check_files
from extender.cli.lint.report import document_of_report, exit_status, text_of_report
from extender.cli.terminal.output import print_result
from extender.config.model import Config
from extender.config.profiles import open_config, read_config_map
from extender.config.schema import config_schema
from extender.config.view import document_of, rows_of
from extender.engine.policy.knative_configmap import knative_document


def run_check(paths: Sequence[str], *, output: str = "text", strict: bool = False) -> int:
    """Check files and print the findings. Return the exit status of ``cli.lint.report``."""
    report = check_files(paths)
    if output == "text":
        print(text_of_report(report))
    else:
        print_result(
            document_of_report(report), "yaml" if output == "yaml" else "json", lambda: None
        )
    return exit_status(report, strict=strict)


def run_view(path: str, *, output: str = "yaml") -> int:
    """Print the effective configuration of a file, or the defaults for "". Raises InvalidObject."""
    file = open_config(path) if path else None
    config = file.config if file is not None else Config()
    if output == "table":
        rows = rows_of(config, file.document if file is not None else None)
        heads = dict(zip(rows[0], ("SETTING", "VALUE", "FROM", "RELOAD"), strict=True))
        widths = {name: max(len(row[name]) for row in [heads, *rows]) for name in heads}
        for row in [heads, *rows]:
            print("  ".join(row[name].ljust(widths[name]) for name in heads).rstrip())
    elif output == "json":
        print(json.dumps(document_of(config), indent=2))
    else:
        print(yaml.safe_dump(document_of(config), sort_keys=False, allow_unicode=True), end="")
    return 0


def run_schema() -> int:
    """Print the JSON schema of the configuration file."""
    print(schema_text(), end="")
    return 0


def schema_text() -> str:
    """The JSON schema, as in manifests/config.schema.json."""
    return json.dumps(config_schema(), indent=2) + "\n"


def run_import_knative(
    name: str, scheduler: str, descheduler: str, *, ignore_unknown: bool = False
) -> int:
    """Print a ``profiles`` entry for Knative's ConfigMaps in these files ("" for none). Raises
    InvalidObject.
    """
    document = knative_document(
        name,
        read_config_map(scheduler),
        read_config_map(descheduler) if descheduler else None,
        ignore_unknown=ignore_unknown,
    )
    print(yaml.safe_dump({"profiles": [document]}, sort_keys=False), end="")
    return 0
