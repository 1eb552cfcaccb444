"""``PlacementDecisionCache``: what ``find`` decided for a pod on each node, until the pod is bound or forgotten.

The counterpart of the volume binder's PodBindingCache. Keyed by pod UID (the same name may come back as another pod),
replaced by every filter call, expiring by itself: kube-scheduler never tells an extender that it has given a pod up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.core.node_level.carry import Carry

DECISIONS_MAX: Final = 10_000
"""Pods; the oldest go first."""


class PlacementDecision(NamedTuple):
    """One ``find``: the pod would carry ``carry`` on ``node``; true as of the pod's ``ledger_text``."""

    pod_uid: str
    node: str
    carry: Carry
    ledger_text: str | None
    """The pod's placements annotation when this was decided; a bind refuses when it has changed since."""


@dataclass(slots=True)
class _Entry:
    by_node: dict[str, PlacementDecision]
    expires_at: float


class PlacementDecisionCache:
    """Decisions by pod UID and node. ``clock`` is monotonic, in seconds; entries live for ``ttl_s``."""

    def __init__(self, clock: Callable[[], float], *, ttl_s: float = 60.0) -> None:
        self._clock = clock
        self._ttl_s = ttl_s
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def update(self, pod_uid: str, decisions: dict[str, PlacementDecision]) -> None:
        """Replace all that was decided for a pod (node name -> decision)."""
        self._drop_expired()
        self._entries.pop(pod_uid, None)
        self._entries[pod_uid] = _Entry(decisions, self._clock() + self._ttl_s)

    def get(self, pod_uid: str, node: str) -> PlacementDecision | None:
        """The decision for a pod on a node, None where there is none or it has expired."""
        entry = self._entries.get(pod_uid)
        if entry is None or entry.expires_at <= self._clock():
            return None
        return entry.by_node.get(node)

    def decisions(self, pod_uid: str) -> dict[str, PlacementDecision]:
        """All decisions for a pod, by node."""
        entry = self._entries.get(pod_uid)
        return dict(entry.by_node) if entry is not None and entry.expires_at > self._clock() else {}

    def planned(self, pod_uid: str) -> dict[str, int]:
        """Pending vreplicas that the pod would take, vpod key -> count: the same on every node."""
        return next((dict(decision.carry.planned) for decision in self.decisions(pod_uid).values()), {})

    def clear(self, pod_uid: str, node: str) -> None:
        """Forget the decision for one node: it turned out not to hold."""
        entry = self._entries.get(pod_uid)
        if entry is not None:
            entry.by_node.pop(node, None)

    def delete(self, pod_uid: str) -> None:
        """Forget a pod: it is bound, or gone."""
        self._entries.pop(pod_uid, None)

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._entries:
            oldest = next(iter(self._entries))
            if self._entries[oldest].expires_at > now and len(self._entries) < DECISIONS_MAX:
                return
            del self._entries[oldest]
