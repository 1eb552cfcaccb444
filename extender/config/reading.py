"""Reads a document as a ``Config``, strictly. Returns all errors, each with its field.

An unknown field, a wrong type or a value out of range is an error, so that a typing error does not
silently become a default. A field that is null, such as an empty one in YAML, has its default.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from extender.config.document import Document, InvalidField
from extender.config.model import Config
from extender.config.nearest import did_you_mean, nearest
from extender.config.rules import broken_rules
from extender.config.settings import BY_PATH, SECTIONS, SETTINGS, Entry, ValueKind, with_values
from extender.model.names import CONFIG_API_VERSION, CONFIG_KIND
from extender.model.safe_repr import safe_repr

Json = Mapping[str, object]
_HEAD: Final[Mapping[str, str]] = MappingProxyType(
    {"apiVersion": CONFIG_API_VERSION, "kind": CONFIG_KIND}
)
READ_BY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "KubeSchedulerConfiguration": "kube-scheduler's --config; `vreplica config check` lints it",
        "Policy": "kube-scheduler's --policy-config-file; `vreplica config check` lints it",
        "VPod": "an object of the cluster: `kubectl apply -f`, or `vreplica plan -f`",
        "AdapterPool": "an object of the cluster: `kubectl apply -f`, or `vreplica plan -f`",
        "ConfigMap": "an object of the cluster; a profile names Knative's under knativeConfigMaps",
        "Config": "a kubeconfig: name it under clientConnection.kubeconfig",
    }
)
"""Kinds that people pass by mistake -> who reads them."""


def config_of(document: Document) -> Config:
    """Read a document. Raises InvalidField for the first error in the file's order."""
    config, problems = read_config(document)
    if config is None:
        raise problems[0]
    return config


def read_config(document: Document) -> tuple[Config | None, list[InvalidField]]:
    """Return the configuration, or None if there are errors, and all errors in the file's order."""
    problems = [document.with_place(error) for error in _wrong_head(document)]
    if problems:
        return None, problems
    reader = _SettingsReader(document)
    values = reader.values()
    if not reader.problems:
        config = with_values(Config(), values)
        errors = [
            InvalidField(document.subject, rule.path, rule.problem, hint=rule.hint)
            for rule in broken_rules(config)
        ]
        if not errors:
            return config, []
        reader.problems += errors
    placed = [document.with_place(error) for error in reader.problems]
    return None, sorted(placed, key=lambda error: error.place)


def _wrong_head(document: Document) -> list[InvalidField]:
    """Return the errors in apiVersion and kind. If there are any, the rest is not read."""
    value, subject = document.value, document.subject
    if value is not None and not isinstance(value, Mapping):
        return [InvalidField(subject, "", f"must be a mapping, not {safe_repr(value)}")]
    wrong = []
    for name, expected in _HEAD.items():
        found = value.get(name) if value is not None else None
        if found == expected:
            continue
        read_by = READ_BY.get(found, "") if isinstance(found, str) else ""
        hint = f"this {found} is {read_by}" if read_by else ""
        got = f", not {safe_repr(found)}" if found is not None else ""
        wrong.append(InvalidField(subject, name, f"must be {expected}{got}", hint=hint))
    # If the file is of another kind, report that first.
    return sorted(wrong, key=lambda error: not error.hint)


class _SettingsReader:
    """Reads every setting of a document. A setting that cannot be read is a problem, and has its
    default.
    """

    def __init__(self, document: Document) -> None:
        self._subject = document.subject
        self._root = document.value
        self.problems: list[InvalidField] = []
        self._readers: Mapping[ValueKind, Callable[[Entry, object], object]] = {
            ValueKind.TEXT: self._text,
            ValueKind.CHOICE: self._choice,
            ValueKind.FLAG: self._flag,
            ValueKind.WHOLE: self._number,
            ValueKind.NUMBER: self._number,
            ValueKind.TEXTS: self._texts,
            ValueKind.MAPPINGS: self._mappings,
        }

    def values(self) -> Mapping[tuple[str, ...], object]:
        """Return the values of all settings, keyed by their attribute path in ``Config``."""
        sections: dict[str, Json] = {"": self._section("", self._root)}
        for path in SECTIONS:
            above, _, name = path.rpartition(".")
            sections[path] = self._section(path, sections[above].get(name))
        for path, section in sections.items():
            self._refuse_unknown(path, section)
        return {entry.attributes: self._value(entry, sections) for entry in SETTINGS}

    def wrong(self, path: str, problem: str, hint: str = "") -> None:
        """Note a problem."""
        self.problems.append(InvalidField(self._subject, path, problem, hint=hint))

    def _section(self, path: str, value: object) -> Json:
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return value
        known = [entry.setting.name for entry in SETTINGS if entry.path.startswith(f"{path}.")]
        self.wrong(path, "must be a mapping", f"with fields such as {', '.join(known[:3])}")
        return {}

    def _refuse_unknown(self, path: str, section: Json) -> None:
        known = _known_below(path)
        for name in section:
            if name not in known:
                where = f"{path}.{name}" if path else name
                self.wrong(where, "unknown field", _hint_for(path, name, known))

    def _value(self, entry: Entry, sections: Mapping[str, Json]) -> object:
        above, _, name = entry.path.rpartition(".")
        raw = sections[above].get(name)
        if raw is None:
            return entry.default
        found = self._readers[entry.kind](entry, raw)
        return entry.default if found is None else found

    def _text(self, entry: Entry, raw: object) -> object:
        if not isinstance(raw, str):
            hint = "put it in quotes" if isinstance(raw, int | float) else ""
            self.wrong(entry.path, f"must be a string, not {safe_repr(raw)}", hint)
            return None
        return raw if self._is_name(entry, entry.path, raw) else None

    def _is_name(self, entry: Entry, path: str, raw: str) -> bool:
        """Whether the setting, or one item of it at ``path``, matches the setting's pattern."""
        pattern = entry.setting.pattern
        if not pattern or re.fullmatch(pattern, raw) is not None:
            return True
        self.wrong(
            path,
            f"must be a Kubernetes name, not {safe_repr(raw)}",
            "use lower-case letters and digits, with - between them",
        )
        return False

    def _choice(self, entry: Entry, raw: object) -> object:
        if isinstance(raw, str) and raw in entry.choices:
            return entry.type(raw)
        hint = did_you_mean(raw, entry.choices) if isinstance(raw, str) else ""
        known = ", ".join(one or '""' for one in entry.choices)
        self.wrong(entry.path, f"must be one of {known}", hint)
        return None

    def _flag(self, entry: Entry, raw: object) -> object:
        if isinstance(raw, bool):
            return raw
        self.wrong(entry.path, f"must be true or false, not {safe_repr(raw)}")
        return None

    def _number(self, entry: Entry, raw: object) -> object:
        low, high = entry.setting.minimum, entry.setting.maximum
        whole = entry.kind is ValueKind.WHOLE
        kinds = int if whole else int | float
        plain = isinstance(raw, kinds) and not isinstance(raw, bool)
        if plain and (low is None or low <= raw) and (high is None or raw <= high):  # type: ignore[operator]
            return raw if whole else float(raw)  # type: ignore[arg-type]
        what = "whole number" if whole else "number"
        hint = (
            "remove the quotes"
            if isinstance(raw, str) and raw.replace(".", "", 1).isdigit()
            else ""
        )
        self.wrong(
            entry.path,
            f"must be a {what} from {low:.12g} to {high:.12g}, not {safe_repr(raw)}",
            hint,
        )
        return None

    def _items(self, entry: Entry, raw: object) -> list[object] | None:
        if isinstance(raw, list) and len(raw) <= entry.setting.items_max:
            return raw
        self.wrong(entry.path, f"must be a list of at most {entry.setting.items_max} items")
        return None

    def _texts(self, entry: Entry, raw: object) -> object:
        items = self._items(entry, raw)
        bad = [
            index for index, item in enumerate(items or ()) if not isinstance(item, str) or not item
        ]
        for index in bad:
            self.wrong(f"{entry.path}[{index}]", "must be a string that is not empty")
        if not items or bad:
            return None
        texts = [str(item) for item in items]
        wrong = [
            text
            for index, text in enumerate(texts)
            if not self._is_name(entry, f"{entry.path}[{index}]", text)
        ]
        return None if wrong else entry.type(texts)

    def _mappings(self, entry: Entry, raw: object) -> object:
        items = self._items(entry, raw)
        bad = [index for index, item in enumerate(items or ()) if not isinstance(item, Mapping)]
        for index in bad:
            self.wrong(f"{entry.path}[{index}]", "must be a mapping")
        return None if not items or bad else entry.type(items)


def _known_below(section: str) -> list[str]:
    """Return the names of a section's fields. The section "" is the file itself."""
    prefix = f"{section}." if section else ""
    paths = [*SECTIONS, *BY_PATH]
    names = {path[len(prefix) :] for path in paths if path.startswith(prefix)}
    return [*(() if section else _HEAD), *sorted(name for name in names if "." not in name)]


def _hint_for(section: str, name: str, known: list[str]) -> str:
    """Return a hint for an unknown field: a known field with this name or one like it, in this
    section or another, else all fields of the section.
    """
    elsewhere = {path.rpartition(".")[2]: path for path in [*BY_PATH, *SECTIONS]}
    if name in elsewhere:
        return f"did you mean {elsewhere[name]}?"
    if hint := did_you_mean(name, known):
        return hint
    if near := nearest(name, elsewhere):
        return f"did you mean {elsewhere[near]}?"
    return f"known fields{f' of {section}' if section else ''}: {', '.join(known)}"
