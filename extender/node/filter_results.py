"""``FilterResultCache``: what filter has found for a pod (``VReplicaBinder.find``), until the pod
is bound or the result expires. Prioritize and bind read it.

It corresponds to the volume binder's PodBindingCache. The key is the pod's UID, because another pod
may get the same name. Each filter call replaces the pod's entry. Entries expire, because
kube-scheduler never tells an extender that it has given a pod up.
"""

from collections import OrderedDict
from collections.abc import Callable, Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from extender.model.bounded import put_bounded
from extender.node.bind_ledger import BindLedger

RESULTS_MAX: Final = 10_000
"""Pods; the oldest are dropped first."""
NODES_MAX: Final = 500_000
"""Node names in all entries together, some 130 bytes each."""
REMEMBERED_S: Final = 900.0
"""How long the number of results for a pod is kept. kube-scheduler retries a pod that it could
not schedule after 5 minutes at the latest.
"""


@dataclass(slots=True)
class FilterResult:
    """A result of ``find``: the pod would be bound with ``bind_ledger``, to one of ``nodes``."""

    bind_ledger: BindLedger
    ledger_text: str | None
    """The pod's placements annotation at that time. A bind refuses if it has changed since."""
    nodes: AbstractSet[str]
    """The nodes that passed. Those in ``cleared`` no longer count."""
    expires_at: float
    cleared: set[str] = field(default_factory=set)


class FilterResultCache:
    """Results by pod UID and node. ``clock`` is monotonic, in seconds; entries live for
    ``ttl_s``.

    A pod has the same ledger on every node, so an entry has one ledger and a set of nodes.
    """

    def __init__(self, clock: Callable[[], float], *, ttl_s: float = 60.0) -> None:
        self._clock = clock
        self._ttl_s = ttl_s
        self._times: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Pod UID -> (number of results, when to forget it). Oldest first."""
        self._entries: dict[str, FilterResult] = {}
        self._nodes = 0
        """Node names in all entries."""

    def __len__(self) -> int:
        return len(self._entries)

    def update(
        self,
        pod_uid: str,
        bind_ledger: BindLedger,
        ledger_text: str | None,
        nodes: AbstractSet[str],
    ) -> None:
        """Replace the result for a pod: it would be bound to each of ``nodes`` with
        ``bind_ledger``.
        """
        now = self._clock()
        self._drop(pod_uid)
        self._make_room(len(nodes))
        self._entries[pod_uid] = FilterResult(bind_ledger, ledger_text, nodes, now + self._ttl_s)
        self._nodes += len(nodes)
        times = self.times(pod_uid) + 1, now + REMEMBERED_S
        put_bounded(self._times, pod_uid, times, RESULTS_MAX)

    def get(self, pod_uid: str, node: str) -> FilterResult | None:
        """The result for a pod on a node; None if there is none or it has expired."""
        entry = self._entry(pod_uid)
        if entry is None or node not in entry.nodes or node in entry.cleared:
            return None
        return entry

    def times(self, pod_uid: str) -> int:
        """How many results the pod had, each within ``REMEMBERED_S`` of the one before."""
        times, until = self._times.get(pod_uid, (0, 0.0))
        return times if until > self._clock() else 0

    def bind_ledger(self, pod_uid: str) -> BindLedger | None:
        """The ledger that the pod would get on any node; None if there is no result."""
        entry = self._entry(pod_uid)
        return entry.bind_ledger if entry is not None and entry.nodes else None

    def _entry(self, pod_uid: str) -> FilterResult | None:
        entry = self._entries.get(pod_uid)
        return entry if entry is not None and entry.expires_at > self._clock() else None

    def clear(self, pod_uid: str, node: str) -> None:
        """Forget the result for one node, which turned out to be wrong."""
        entry = self._entries.get(pod_uid)
        if entry is not None:
            entry.cleared.add(node)

    def delete(self, pod_uid: str) -> None:
        """Forget a pod that is bound or gone."""
        self._times.pop(pod_uid, None)
        self._drop(pod_uid)

    def _drop(self, pod_uid: str) -> None:
        entry = self._entries.pop(pod_uid, None)
        if entry is not None:
            self._nodes -= len(entry.nodes)

    def _make_room(self, nodes: int) -> None:
        now = self._clock()
        while self._entries:
            oldest = next(iter(self._entries))
            fits = len(self._entries) < RESULTS_MAX and self._nodes + nodes <= NODES_MAX
            if self._entries[oldest].expires_at > now and fits:
                return
            self._drop(oldest)
