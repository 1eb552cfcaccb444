"""Finds the smallest changes that would let a node take an adapter pod that none takes. Pure.

Each change is made on the state, all nodes are asked again, and the change is undone. A change is
offered, with the nodes that then pass, if there are any. The order: lift a cordon, a node becomes
Ready, a node declares more slots, taints and labels, a new node in an existing zone, a greater
MaxSkew of the profile's zone rule. A number is the least that is enough.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from extender.engine.pods.claims import PodClaims
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.counted import counted
from extender.model.objects import AdapterPod, Node, StatefulSet
from extender.model.reasons import ConflictReason
from extender.whatif.bench import Change, exchanging, smallest
from extender.whatif.fix import Fix, Fixes, greater_skew, ready_again, skew_limits, uncordon
from extender.whatif.loosen import raising
from extender.whatif.node_verdicts import NodeVerdicts
from extender.whatif.trial import OutOfTime, Trial, never

EACH_MAX: Final = 10
"""Nodes of a kind that are tried one by one."""
NODES_NAMED_MAX: Final = 10
SKEW_MORE_MAX: Final = 64
NEW_NODE: Final = "a-new-node"


def find_pod_fixes(
    state: ClusterState,
    pool: PoolState,
    known: PodClaims,
    verdicts: NodeVerdicts,
    *,
    expired: Callable[[], bool] = never,
) -> Fixes:
    """Find what would let a node take the pod. Nothing if a node takes it already, or if it waits
    for something other than a node.

    ``verdicts``: the present verdicts of the nodes. ``state`` is the same afterwards. ``expired``:
    whether the time is up. The answer is then what was found so far.
    """
    pod = known.pod
    if pod is None or known.bound or pod.finished or pod.deleting:
        return Fixes()
    if verdicts.problem is not None or verdicts.passing:
        return Fixes()
    bench = _PodBench(state, pool, pod, verdicts, expired)
    found: list[Fix] = []
    cut_short = False
    try:
        for strategy in _STRATEGIES:
            found.extend(strategy(bench))
    except OutOfTime:
        cut_short = True
    return Fixes(tuple(found), cut_short, bench.tried)


class _PodBench:
    """Tries changes for one pod. ``tried``: how often all nodes were asked."""

    def __init__(
        self,
        state: ClusterState,
        pool: PoolState,
        pod: AdapterPod,
        verdicts: NodeVerdicts,
        expired: Callable[[], bool],
    ) -> None:
        self.state = state
        self.pool = pool
        self.pod = pod
        self.tried = 0
        self._verdicts = verdicts
        self._expired = expired

    @property
    def stateful_set(self) -> StatefulSet | None:
        return self.pool.stateful_set

    def refused_for(self, *reasons: ConflictReason) -> list[Node]:
        """The first nodes, by name, that refuse the pod for one of these reasons."""
        nodes = (
            node
            for name, node in sorted(self.state.nodes.items())
            if self._verdicts.reason(name) in reasons
        )
        return list(islice(nodes, EACH_MAX))

    def passing(self, change: Change) -> tuple[str, ...]:
        """Return nodes that take the pod after the change. Raises OutOfTime."""
        self.tried += 1
        with Trial(self.state, self._expired) as trial:
            trial.check_time()
            change(trial)
            return tuple(NodeVerdicts(self.state, self.pool, self.pod).passing[:NODES_NAMED_MAX])

    def smallest(
        self, make: Callable[[int], Change], last: int
    ) -> tuple[int, tuple[str, ...]] | None:
        """Return the least number from 1 to ``last`` with which a node takes the pod, if a greater
        one is never worse; None if there is none. Raises OutOfTime.
        """
        return smallest(lambda number: self.passing(make(number)), bool, 1, last)


def _cordons(bench: _PodBench) -> Iterator[Fix]:
    for node in bench.refused_for(ConflictReason.NODE_UNSCHEDULABLE):
        if nodes := bench.passing(exchanging(node, replace(node, cordoned=False))):
            yield replace(uncordon([node]), nodes=nodes)


def _away(bench: _PodBench) -> Iterator[Fix]:
    for node in bench.refused_for(ConflictReason.NODE_NOT_READY, ConflictReason.NODE_UNSCHEDULABLE):
        if node.ready:
            continue
        if nodes := bench.passing(exchanging(node, replace(node, ready=True, cordoned=False))):
            yield replace(ready_again([node]), nodes=nodes)


def _declared_slots(bench: _PodBench) -> Iterator[Fix]:
    """More ``vreplica.dev/slots`` on a node that has none left."""
    for node in bench.refused_for(ConflictReason.NODE_SLOTS_EXCEEDED):
        declared = node.slots or 0
        beside = len(bench.state.pods_on_node.get(node.name, ()))
        largest = max((pod.capacity for pod in bench.pool.members()), default=0)
        found = bench.smallest(partial(_declaring, node), max(1, (beside + 1) * largest))
        if found is not None:
            more, nodes = found
            yield Fix(
                change=f"{node.name} declares {counted(declared + more, 'slot')} instead of "
                f"{declared}",
                subject=f"Node {node.name}",
                field="status.allocatable[vreplica.dev/slots]",
                before=declared,
                after=declared + more,
                nodes=nodes,
            )


def _declaring(node: Node, more: int) -> Change:
    return exchanging(node, replace(node, slots=(node.slots or 0) + more))


def _taints_and_labels(bench: _PodBench) -> Iterator[Fix]:
    """Remove taints and add labels so that the node matches the template. Affinity is left to the
    person who wrote it.
    """
    fit = bench.stateful_set.fit if bench.stateful_set is not None else None
    if fit is None:
        return
    asked = dict(fit.selector)
    for node in bench.refused_for(ConflictReason.NODE_UNFIT):
        lacks = {key: value for key, value in asked.items() if node.labels.get(key) != value}
        repels = [
            taint
            for taint in node.taints
            if not any(one.tolerates(taint) for one in fit.tolerations)
        ]
        kept = tuple(taint for taint in node.taints if taint not in repels)
        nodes = bench.passing(
            exchanging(node, replace(node, labels={**node.labels, **lacks}, taints=kept))
        )
        if not nodes or not (lacks or repels):
            continue
        taken = [f"{taint.key}:{taint.effect}" for taint in repels]
        given = [f"{key}={value}" for key, value in sorted(lacks.items())]
        words = [
            *(f"without the taint {taint}" for taint in taken),
            *(f"with the label {one}" for one in given),
        ]
        yield Fix(
            change=f"{node.name} {' and '.join(words)}",
            subject=f"Node {node.name}",
            field=" and ".join(
                [*(["spec.taints"] if taken else []), *(["metadata.labels"] if given else [])]
            ),
            before=[*taken],
            after=[*given],
            note="or let the StatefulSet's template tolerate it" if taken and not given else "",
            nodes=nodes,
        )


def _new_nodes(bench: _PodBench) -> Iterator[Fix]:
    """One more node in a zone, like a node that is there."""
    patterns: dict[str, Node] = {}
    fit = bench.stateful_set.fit if bench.stateful_set is not None else None
    for _, node in sorted(bench.state.nodes.items()):
        if fit is None or fit.fits(node.name, node.labels, node.taints):
            patterns.setdefault(node.zone, node)
    for zone, pattern in islice(sorted(patterns.items()), EACH_MAX):
        new = replace(pattern, name=NEW_NODE, uid="", cordoned=False, ready=True)
        if NEW_NODE in bench.state.nodes or not bench.passing(exchanging(None, new)):
            continue
        where = f"zone {zone}" if zone else "the cluster"
        count = sum(1 for node in bench.state.nodes.values() if node.zone == zone)
        yield Fix(
            change=f"one node more in {where}, like {pattern.name}",
            subject=f"zone {zone}" if zone else "cluster",
            field="nodes",
            before=count,
            after=count + 1,
            note="with room for what else the pod asks for",
        )


def _skew(bench: _PodBench) -> Iterator[Fix]:
    """A greater MaxSkew of the zone rule, if that rule refuses nodes."""
    if not bench.refused_for(ConflictReason.ZONE_SKEW_EXCEEDED):
        return
    profile = bench.pool.profile
    for limit in skew_limits(profile):
        if limit.plugin.name != "ZoneSpread":
            continue
        found = bench.smallest(partial(raising, bench.pool, limit), SKEW_MORE_MAX)
        if found is not None:
            more, nodes = found
            yield replace(greater_skew(profile, limit, more), nodes=nodes)


_STRATEGIES: Final[Sequence[Callable[[_PodBench], Iterator[Fix]]]] = (
    _cordons,
    _away,
    _declared_slots,
    _taints_and_labels,
    _new_nodes,
    _skew,
)
