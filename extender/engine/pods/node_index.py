"""``NodeIndex``: sets of nodes with which filter can answer for thousands of nodes at once.

kube-scheduler sends the names of up to all nodes with every pod, and nearly all nodes can take it.
So the index keeps the exceptions, and filter's cost depends on their number. It knows which names
are nodes, and which nodes a zone has. For each number of slots that pods request, it knows the
nodes that declare slots and have fewer left. If a node or an adapter pod on it has changed, the
node is looked at again when somebody asks. ``verbs.node_problem`` gives the same answer for a
single node.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Set as AbstractSet
from typing import Final

from extender.model.bounded import put_bounded
from extender.model.objects import AdapterPod, Node

REQUESTS_MAX: Final = 32
"""Numbers of slots for which the full nodes are kept. Of more, the oldest is computed again when
asked for.
"""

Declared = Callable[[AdapterPod], int]
"""The slots that a pod takes of its node."""


class NodeIndex:
    """Sets of node names. Only ``ClusterState``, which owns the two mappings, changes them."""

    def __init__(
        self, nodes: Mapping[str, Node], pods_on_node: Mapping[str, Mapping[str, AdapterPod]]
    ) -> None:
        self._nodes = nodes
        self._pods_on_node = pods_on_node
        self.names: dict[str, str] = {}
        """Names of all nodes. Each value is its key, so that other code can share the string."""
        self.revision = 0
        """Grows with every node that comes, goes or changes its zone."""
        self.in_zone: dict[str, set[str]] = {}
        """Zone ("" for none) -> names of its nodes; never empty."""
        self._left: dict[str, int] = {}
        """Node that declares slots -> slots left, below 0 if too many are taken."""
        self._full: OrderedDict[int, set[str]] = OrderedDict()
        """Slots requested -> nodes that have fewer left."""
        self._changed: set[str] = set()
        """Nodes to look at again before the next answer."""

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went. ``old``: its last known form."""
        if old is None or new is None or new.zone != old.zone:
            self.revision += 1
        if old is not None and (new is None or new.zone != old.zone):
            names = self.in_zone[old.zone]
            names.discard(old.name)
            if not names:
                del self.in_zone[old.zone]
            self.names.pop(old.name, None)
        if new is not None:
            self.names[new.name] = new.name
            self.in_zone.setdefault(new.zone, set()).add(new.name)
        if new is not None:
            self._changed.add(new.name)
        elif old is not None:
            self._forget(old.name)

    @property
    def to_look_at(self) -> int:
        """How many nodes must be looked at again before the next answer."""
        return len(self._changed)

    def pods_changed(self, nodes: Iterable[str]) -> None:
        """The pods on these nodes, or what they take, have changed. Unknown nodes are looked at
        when they come.
        """
        self._changed.update(name for name in nodes if name in self._nodes)

    def full_for(self, request: int, declared: Declared) -> AbstractSet[str]:
        """Nodes that declare slots and have fewer than ``request`` left beside all adapter pods on
        them.
        """
        self._look_again(declared)
        full = self._full.get(request)
        if full is None:
            full = {name for name, left in self._left.items() if left < request}
            put_bounded(self._full, request, full, REQUESTS_MAX)
        return full

    def _look_again(self, declared: Declared) -> None:
        for name in self._changed:
            node = self._nodes.get(name)
            if node is None or node.slots is None:
                self._drop(name)
                continue
            there = self._pods_on_node.get(name, {}).values()
            left = node.slots - sum(declared(pod) for pod in there if not pod.finished)
            if self._left.get(name) == left:
                continue
            self._left[name] = left
            for request, full in self._full.items():
                (full.add if left < request else full.discard)(name)
        self._changed.clear()

    def _forget(self, name: str) -> None:
        self._changed.discard(name)
        self._drop(name)

    def _drop(self, name: str) -> None:
        if self._left.pop(name, None) is not None:
            for full in self._full.values():
                full.discard(name)
