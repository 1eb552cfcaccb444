"""All settings in one flat list, read from the dataclasses of ``model``."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_origin, get_type_hints

from extender.config.model import METADATA_KEY, Config, Setting


class ValueKind(Enum):
    """What a setting's value is."""

    TEXT = "string"
    CHOICE = "one of a few strings"
    FLAG = "boolean"
    WHOLE = "integer"
    NUMBER = "number"
    TEXTS = "list of strings"
    MAPPINGS = "list of objects"


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting. ``path`` leads to it in the file (``server.tls.certFile``), ``attributes`` in a
    ``Config``.
    """

    path: str
    attributes: tuple[str, ...]
    kind: ValueKind
    type: type
    default: Any
    setting: Setting

    def of(self, config: Config) -> Any:
        """Return its value in a configuration."""
        value: Any = config
        for name in self.attributes:
            value = getattr(value, name)
        return value

    @property
    def choices(self) -> tuple[str, ...]:
        """All values of a CHOICE; empty for other kinds."""
        return tuple(str(one) for one in self.type) if issubclass(self.type, Enum) else ()


_KINDS: Final[Mapping[type, ValueKind]] = {
    str: ValueKind.TEXT,
    bool: ValueKind.FLAG,
    int: ValueKind.WHOLE,
    float: ValueKind.NUMBER,
    frozenset: ValueKind.TEXTS,
    tuple: ValueKind.TEXTS,
}


def _entries(
    model: type, path: str, attributes: tuple[str, ...], sections: dict[str, str]
) -> list[Entry]:
    """Return the settings of a dataclass, and add its sections to ``sections``."""
    hints = get_type_hints(model)
    found: list[Entry] = []
    for one in fields(model):
        setting: Setting = one.metadata[METADATA_KEY]
        hint = hints[one.name]
        where, names = f"{path}{setting.name}", (*attributes, one.name)
        if is_dataclass(hint) and isinstance(hint, type):
            sections[where] = setting.text
            found += _entries(hint, f"{where}.", names, sections)
            continue
        plain: type = get_origin(hint) or hint
        assert one.default is not MISSING, where
        if issubclass(plain, Enum):
            kind = ValueKind.CHOICE
        elif plain is tuple and hint.__args__[0] is not str:
            kind = ValueKind.MAPPINGS
        else:
            kind = _KINDS[plain]
        found.append(Entry(where, names, kind, plain, one.default, setting))
    return found


_sections: Final[dict[str, str]] = {}
SETTINGS: Final[tuple[Entry, ...]] = tuple(_entries(Config, "", (), _sections))
"""Every setting of the file, in the order of the dataclasses."""
BY_PATH: Final[Mapping[str, Entry]] = MappingProxyType({entry.path: entry for entry in SETTINGS})
SECTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_sections,
        "filter": "How filter answers.",
        "pools": "Which AdapterPools are served.",
        "logging": "What is logged.",
    }
)
"""Every section of the file -> its description."""

T = TypeVar("T")


def with_values(config: T, values: Mapping[tuple[str, ...], object]) -> T:
    """Return a copy of a ``Config``, or of a section, with other values, by their attributes."""
    changes: dict[str, object] = {}
    below: dict[str, dict[tuple[str, ...], object]] = {}
    for (first, *rest), value in values.items():
        if rest:
            below.setdefault(first, {})[tuple(rest)] = value
        else:
            changes[first] = value
    for name, inner in below.items():
        changes[name] = with_values(getattr(config, name), inner)
    return replace(config, **changes)  # type: ignore[type-var]  # a dataclass
