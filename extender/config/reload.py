"""What a changed file changes: which settings, and which of them a replica that runs may take.
Pure.

``merge`` gives the configuration that is in force after a reload: the old one with the live
settings of the new one, all of them or none. That one has to stand on its own: a list of allowed
clients that goes with an address which only a restart brings would otherwise open the address of
today. Then nothing is taken, and everything waits for the restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from extender.config.model import Config, Reload
from extender.config.rules import broken_rules
from extender.config.settings import SETTINGS, Entry


@dataclass(frozen=True, slots=True)
class Reloaded:
    """``config``: in force from now on. ``taken``, ``waiting``: paths of settings that changed, and
    of those that wait.
    """

    config: Config
    taken: tuple[str, ...]
    waiting: tuple[str, ...]


def merge(now: Config, new: Config) -> Reloaded:
    """What to do where ``now`` is in force, and the file says ``new``."""
    changed = [entry for entry in SETTINGS if entry.of(now) != entry.of(new)]
    live = [entry for entry in changed if entry.setting.reload is Reload.LIVE]
    merged = _with(now, {entry.attributes: entry.of(new) for entry in live})
    if live and next(broken_rules(merged), None) is not None:
        live, merged = [], now
    return Reloaded(merged, _paths(live), _paths([entry for entry in changed if entry not in live]))


def _paths(entries: list[Entry]) -> tuple[str, ...]:
    return tuple(entry.path for entry in entries)


def _with(instance: Any, values: Mapping[tuple[str, ...], object]) -> Any:
    """A copy of a dataclass with other values, by their attributes."""
    changes: dict[str, Any] = {}
    below: dict[str, dict[tuple[str, ...], object]] = {}
    for (first, *rest), value in values.items():
        if rest:
            below.setdefault(first, {})[tuple(rest)] = value
        else:
            changes[first] = value
    for name, inner in below.items():
        changes[name] = _with(getattr(instance, name), inner)
    return replace(instance, **changes)
