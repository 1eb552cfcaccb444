"""Shows the effective configuration with all defaults, as a document or as table rows."""

from collections.abc import Mapping
from typing import Any

from extender.config.document import Document
from extender.config.model import Config
from extender.config.settings import SECTIONS, SETTINGS
from extender.model.names import CONFIG_API_VERSION, CONFIG_KIND

Row = dict[str, str]


def document_of(config: Config) -> dict[str, Any]:
    """Return the file that sets all of ``config``. ``reading.config_of`` reads it back."""
    document: dict[str, Any] = {"apiVersion": CONFIG_API_VERSION, "kind": CONFIG_KIND}
    sections = {"": document}
    for path in SECTIONS:
        above, _, name = path.rpartition(".")
        sections[path] = sections[above][name] = {}
    for entry in SETTINGS:
        above, _, name = entry.path.rpartition(".")
        sections[above][name] = plain(entry.of(config))
    return document


def plain(value: Any) -> Any:
    """Return a setting's value as a file has it: enumerations as text, whole numbers without a
    point, sets as sorted lists.
    """
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def rows_of(config: Config, file: Document | None) -> list[Row]:
    """Return a row for each setting: its value, where that comes from, and how a change takes
    effect.
    """
    return [
        {
            "setting": entry.path,
            "value": _short(entry.path, plain(entry.of(config))),
            "from": _origin(entry.path, file),
            "reload": str(entry.setting.reload),
        }
        for entry in SETTINGS
    ]


def _short(path: str, value: Any) -> str:
    if path in {"profiles", "loadSources"}:
        return ", ".join(str(one.get("name")) for one in value) or "[]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(value) or "[]"
    return '""' if value == "" else str(value)


def _origin(path: str, file: Document | None) -> str:
    """``default``, or ``line N`` of the file."""
    value: object = file.value if file is not None else None
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if file is None or value is None:
        return "default"
    return f"line {file.place(path).line}"
