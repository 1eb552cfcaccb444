"""Third parties' plugins, found through Python entry points of the group
``vreplica_scheduler.plugins``.

::

    [project.entry-points."vreplica_scheduler.plugins"]
    CheapNodesFirst = "acme_placing:CHEAP_NODES_FIRST"     # a PluginFactory of that name

Read once, at start. Installing a package is trusting it: what it registers runs inside the
decisions. A plugin that cannot be loaded stops the start, as a profile that names it could not be
kept.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from extender.engine.policy.registry import PluginFactory, Registry, with_plugins
from extender.model.errors import VReplicaError

GROUP: Final = "vreplica_scheduler.plugins"


class BrokenPlugin(VReplicaError):
    """An entry point that cannot be loaded, or gives no plugin. ``entry_point`` names it."""

    def __init__(self, entry_point: str, problem: str) -> None:
        super().__init__(f"plugin entry point {entry_point}: {problem}")
        self.entry_point = entry_point


def load_entry_points(found: Iterable[EntryPoint] | None = None) -> Registry:
    """The built-in plugins and those of all installed packages; ``found``: None for the entry
    points of this Python.

    Raises BrokenPlugin, or InvalidObject where a name is already taken.
    """
    added: dict[str, PluginFactory] = {}
    for point in entry_points(group=GROUP) if found is None else found:
        label = f"{point.name} = {point.value}"
        if point.name in added:
            raise BrokenPlugin(label, "another package has registered that name")
        added[point.name] = _load(point, label)
    return with_plugins(added)


def _load(point: EntryPoint, label: str) -> PluginFactory:
    try:
        factory = point.load()
    except Exception as error:
        raise BrokenPlugin(label, f"cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(factory, PluginFactory):
        raise BrokenPlugin(label, f"must be a PluginFactory, not {type(factory).__name__}")
    return factory
