"""``Topology``: the nodes of the cluster that take work, and their zones, as every pool sees them."""

from extender.core.model import Node


class Topology:
    """Nodes that take new work. One object shared by all pools; changed by ``State`` only."""

    def __init__(self) -> None:
        self.zone_of: dict[str, str] = {}
        """Node name -> zone, for nodes that take work."""
        self.nodes_in: dict[str, int] = {}
        """Zone -> number of its nodes that take work; never 0."""
        self.known_in: dict[str, int] = {}
        """Zone -> number of its nodes, whether or not they take work; never 0."""

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went."""
        if old is not None:
            _less(self.known_in, old.zone)
            if self.zone_of.pop(old.name, None) is not None:
                _less(self.nodes_in, old.zone)
        if new is not None:
            self.known_in[new.zone] = self.known_in.get(new.zone, 0) + 1
            if new.takes_work:
                self.zone_of[new.name] = new.zone
                self.nodes_in[new.zone] = self.nodes_in.get(new.zone, 0) + 1


def _less(counts: dict[str, int], zone: str) -> None:
    counts[zone] -= 1
    if not counts[zone]:
        del counts[zone]
