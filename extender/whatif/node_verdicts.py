"""``NodeVerdicts``: the verdict of every node on one adapter pod. Pure.

It has the answers of filter and prioritize, and those of kube-scheduler's own filters that can be
computed here: nodeSelector, affinity and tolerations of the StatefulSet's template, cordons, and
nodes that are not Ready.
"""

from collections import Counter

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.errors import LedgerTooLarge
from extender.model.ledger import EMPTY_LEDGER
from extender.model.objects import AdapterPod, Node
from extender.model.reasons import ConflictReason
from extender.node.bind_ledger import BindLedger
from extender.node.exposure import prioritize_nodes
from extender.node.verbs import bind_ledger_in, filter_nodes, pod_problem
from extender.whatif.explanation import Answer


class NodeVerdicts:
    """The verdicts of all nodes on one pod. ``passing``: names of nodes that take it. ``problem``:
    why none can, whatever their verdicts.
    """

    def __init__(self, state: ClusterState, pool: PoolState, pod: AdapterPod) -> None:
        self.problem = pod_problem(state, pod)
        self._state = state
        self._pool = pool
        self._pod = pod
        try:
            self.bind_ledger = bind_ledger_in(state, pod, with_added=not pod.node)
        except LedgerTooLarge:
            self.bind_ledger = BindLedger(EMPTY_LEDGER, {}, "{}")
            self.problem = self.problem or ConflictReason.LEDGER_TOO_LARGE
        names = sorted(state.nodes)
        verdicts = filter_nodes(state, pod, names, state.nodes.get)
        self._refused: dict[str, tuple[str, str]] = {}
        for name in names:
            reasons = verdicts.refusal(name)
            own = self._of_kube_scheduler(state.nodes[name])
            if reasons:
                self._refused[name] = (str(reasons[0]), "; ".join(map(_text, reasons)))
            elif own is not None:
                self._refused[name] = own
        self.passing = [name for name in names if name not in self._refused]
        ledger = pod.ledger if pod.node and pod.ledger else self.bind_ledger.ledger
        self._scores = prioritize_nodes(state, pod, ledger, self.passing, state.nodes.get)
        self.refusals = Counter(text for _, text in self._refused.values())

    def _of_kube_scheduler(self, node: Node) -> tuple[str, str] | None:
        """What kube-scheduler's own filters say, as far as it is known; None if they pass."""
        fit = self._pool.stateful_set.fit if self._pool.stateful_set is not None else None
        if fit is not None and not fit.fits(node.name, node.labels, node.taints):
            return str(
                ConflictReason.NODE_UNFIT
            ), "nodeSelector, affinity or tolerations do not fit"
        if node.cordoned and not (fit is not None and fit.tolerates_cordon()):
            return str(ConflictReason.NODE_UNSCHEDULABLE), "node cordoned"
        if not node.ready:
            return str(ConflictReason.NODE_NOT_READY), "node not ready"
        return None

    def reason(self, name: str) -> str:
        """Why a node refuses the pod, a ``ConflictReason``; "" if it takes it."""
        return self._refused.get(name, ("", ""))[0]

    def rows(self) -> list[Answer]:
        """The pod's own node first, then nodes that pass, best first, then the others."""
        own = self._pod.node

        def order(name: str) -> tuple[bool, bool, int, str]:
            return (name != own, name in self._refused, -self._scores.get(name, 0), name)

        return [self._row(name, own) for name in sorted(self._state.nodes, key=order)]

    def _row(self, name: str, own: str) -> Answer:
        node = self._state.nodes[name]
        reason, text = self._refused.get(name, ("", ""))
        return {
            "node": name,
            "zone": node.zone,
            "slots": node.slots,
            "adapterPods": len(self._state.pods_on_node.get(name, ())),
            "verdict": "chosen" if name == own else "refused" if reason else "fits",
            "reason": reason,
            "text": text,
            "score": self._scores.get(name),
        }


def _text(reason: ConflictReason) -> str:
    return {
        ConflictReason.ZONE_SKEW_EXCEEDED: "its vpods would have too many of their vreplicas in "
        "that zone",
        ConflictReason.NODE_SLOTS_EXCEEDED: "the node has no vreplica.dev/slots left",
    }.get(reason, str(reason))
