"""Decides which settings of a changed file a running replica takes. Pure.

``merge`` returns the configuration in force after a reload: the old one with the live settings of
the new one, all of them or none. This configuration must be valid on its own. Otherwise no setting
is taken, and all wait for a restart. For example, a file may move ``host`` to loopback and empty
``allowedClients``. Only a restart moves ``host``. Until then, the empty list would open the present
address to every client of the CA.
"""

from dataclasses import dataclass

from extender.config.model import Config, Reload
from extender.config.rules import broken_rules
from extender.config.settings import SETTINGS, Entry, with_values


@dataclass(frozen=True, slots=True)
class Reloaded:
    """``config`` is in force after the reload. ``taken`` and ``waiting`` are paths of changed
    settings: those in force, and those that wait for a restart.
    """

    config: Config
    taken: tuple[str, ...]
    waiting: tuple[str, ...]


def merge(now: Config, new: Config) -> Reloaded:
    """Decide what to take if ``now`` is in force and the file says ``new``."""
    changed = [entry for entry in SETTINGS if entry.of(now) != entry.of(new)]
    live = [entry for entry in changed if entry.setting.reload is Reload.LIVE]
    merged = with_values(now, {entry.attributes: entry.of(new) for entry in live})
    if live and next(broken_rules(merged), None) is not None:
        live, merged = [], now
    return Reloaded(merged, _paths(live), _paths([entry for entry in changed if entry not in live]))


def _paths(entries: list[Entry]) -> tuple[str, ...]:
    return tuple(entry.path for entry in entries)
