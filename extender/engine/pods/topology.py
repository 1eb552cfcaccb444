"""``Topology``: the nodes of the cluster that take work, and their zones. All pools share it.

On which of the nodes a pool's pods can run depends on the template of its StatefulSet
(``node_fit``). ``hosting`` gives a view with only those nodes. It is made when first asked for,
follows every change of a node, and is shared by all pools whose templates require the same. A
node's heartbeat changes neither view.
"""

from collections import OrderedDict
from typing import Final

from extender.model.bounded import put_bounded
from extender.model.node_fit import NodeFit
from extender.model.objects import Node

HOSTINGS_MAX: Final = 256
"""Templates for which a view is kept. Of more, the oldest is made again when asked for."""


class Zones:
    """Nodes and their zones. ``fit``: only those that pods of this template can run on;
    None: all.
    """

    def __init__(self, fit: NodeFit | None = None) -> None:
        self._fit = fit
        self.zone_of: dict[str, str] = {}
        """Node name -> zone, for nodes that take work."""
        self.nodes_in: dict[str, int] = {}
        """Zone -> number of its nodes that take work; never 0."""
        self.known_in: dict[str, int] = {}
        """Zone -> number of its nodes, whether or not they take work; never 0."""

    def exchange(self, old: Node | None, new: Node | None) -> None:
        """Count ``new`` instead of ``old``, which was counted before."""
        if old is not None and self._counts(old):
            _less(self.known_in, old.zone)
            if self.zone_of.pop(old.name, None) is not None:
                _less(self.nodes_in, old.zone)
        if new is not None and self._counts(new):
            self.known_in[new.zone] = self.known_in.get(new.zone, 0) + 1
            if new.takes_work:
                self.zone_of[new.name] = new.zone
                self.nodes_in[new.zone] = self.nodes_in.get(new.zone, 0) + 1

    def _counts(self, node: Node) -> bool:
        return self._fit is None or self._fit.fits(node.name, node.labels, node.taints)


class Topology(Zones):
    """All nodes, and by ``hosting`` those of each template. All pools share one object, and only
    ``ClusterState`` changes it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, Node] = {}
        self._hosting: OrderedDict[NodeFit, Zones] = OrderedDict()

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went. ``old``: its last known form."""
        if old is not None:
            self._nodes.pop(old.name, None)
        if new is not None:
            self._nodes[new.name] = new
        if old is not None and new is not None and same_for_placing(old, new):
            return
        self.exchange(old, new)
        for zones in self._hosting.values():
            zones.exchange(old, new)

    def hosting(self, fit: NodeFit | None) -> Zones:
        """The nodes that pods of that template can run on; all nodes if nothing is known of it.

        The first call for a template looks at every node.
        """
        if fit is None:
            return self
        zones = self._hosting.get(fit)
        if zones is None:
            zones = Zones(fit)
            for node in self._nodes.values():
                zones.exchange(None, node)
            put_bounded(self._hosting, fit, zones, HOSTINGS_MAX)
        return zones

    def forget(self, fit: NodeFit) -> None:
        """Drop the view of a template that is gone. It is made again if another pool
        asks for it.
        """
        self._hosting.pop(fit, None)


def same_for_placing(old: Node, new: Node) -> bool:
    """Whether a node's change leaves alone which pods can run there and whether they take work."""
    return (old.zone, old.takes_work, old.taints) == (new.zone, new.takes_work, new.taints) and (
        old.labels == new.labels
    )


def _less(counts: dict[str, int], zone: str) -> None:
    counts[zone] -= 1
    if not counts[zone]:
        del counts[zone]
