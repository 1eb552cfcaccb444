"""``-o``: prints the result of a command as a table, JSON or YAML, on standard output.

JSON and YAML have the same data under the same names. A table shows what people want first.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

Format: TypeAlias = Literal["table", "json", "yaml"]
FORMATS: Final[tuple[Format, ...]] = ("table", "json", "yaml")


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """Add ``-o/--output``."""
    parser.add_argument(
        "-o",
        "--output",
        choices=FORMATS,
        default="table",
        help="how the result is written (default: table)",
    )


def print_result(result: object, output: Format, table: Callable[[], None]) -> None:
    """Print plain data. ``table`` prints it for people."""
    match output:
        case "json":
            print(json.dumps(result))
        case "yaml":
            import yaml  # noqa: PLC0415

            dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
            print(
                yaml.dump(_for_yaml(result), Dumper=dumper, sort_keys=False, allow_unicode=True),
                end="",
            )
        case "table":
            table()


def _for_yaml(value: object) -> object:
    """Convert to what YAML's safe writer accepts: plain dicts, lists and strings."""
    match value:
        case Mapping():
            return {str(key): _for_yaml(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_for_yaml(inner) for inner in value]
        case str():
            return str(value)
        case _:
            return value


def plain(text: object) -> str:
    """Make foreign text safe for a terminal: replace characters that move the cursor or begin a
    line.
    """
    return "".join(c if c.isprintable() else "?" for c in str(text))
