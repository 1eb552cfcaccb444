"""Loads third-party plugins from Python entry points of the group ``vreplica_scheduler.plugins``.

::

    [project.entry-points."vreplica_scheduler.plugins"]
    CheapNodesFirst = "acme_placing:CHEAP_NODES_FIRST"     # a PluginFactory of that name

They are loaded whenever a configuration file with profiles is read. A plugin's code runs inside the
decisions, so install only packages that you trust. A plugin that cannot be loaded stops the start:
a profile that names it could not be used.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from extender.engine.policy.registry import PluginFactory, Registry, with_plugins
from extender.model.errors import VReplicaError

GROUP: Final = "vreplica_scheduler.plugins"


class BrokenPlugin(VReplicaError):
    """An entry point that cannot be loaded or is no PluginFactory."""

    def __init__(self, entry_point: str, problem: str) -> None:
        super().__init__(f"plugin entry point {entry_point}: {problem}")


def load_entry_points(found: Iterable[EntryPoint] | None = None) -> Registry:
    """Return the built-in plugins and those of ``found``, by default all entry points of this
    Python.

    Raises BrokenPlugin. Raises InvalidObject if a plugin has the name of a built-in one, has
    another name than its entry point, or has no role.
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
