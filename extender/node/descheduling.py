"""Which adapter pods stand on nodes that they should have left, and which of them may be evicted.
Pure.

The reasons are those of three strategies of kubernetes-sigs/descheduler, for adapter pods only:

- ``NodeTaints`` (RemovePodsViolatingNodeTaints): the node has a NoSchedule or NoExecute taint that
  the pod does not tolerate. Taints that report a node's condition do not count (``node_fit``).
- ``NodeAffinity`` (RemovePodsViolatingNodeAffinity with
  requiredDuringSchedulingIgnoredDuringExecution): the pod's nodeSelector or
  required node affinity no longer matches the node.
- ``ZoneSpread`` (RemovePodsViolatingTopologySpreadConstraint, DoNotSchedule only): under a profile
  with a hard zone rule, the vreplicas on the pod break the rule in its zone, and another zone could
  have them. This happens when a zone was lost and comes back. The descheduler counts pods; here the
  vreplicas of each vpod count (``ZoneRule``).

A pod is not drained before. Its ordinal keeps its ledger and comes back elsewhere with what it
held, as in a rolling update: that interrupts its vreplicas for seconds, and changes no placement. A
drain would move each vreplica twice, and need room for all of them. Who cannot bear the
interruption drains the pod by annotation; pods with the fewest vreplicas are evicted first.

Nothing is evicted in a circle. As with the descheduler's ``minPodAge``, a pod must have existed for
minPodAgeSeconds. This limit needs no memory, so it holds for every next leader too. A pod is only
evicted for a node that takes it by all rules known here (as the descheduler's ``nodeFit``). CPU,
memory and other pods are not known here. A pod with volume claims stays: where its volumes can be
attached is not known either.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from extender.engine.pods.claims import PodClaims
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.names import UNKNOWN_ZONE
from extender.model.node_fit import NodeFit
from extender.model.objects import AdapterPod, Node
from extender.model.timestamps import epoch_s
from extender.node.verbs import node_problem, zone_rule


class DeschedulingReason(StrEnum):
    """Why a pod should leave its node: values of AdapterPool.spec.descheduling.reasons."""

    NODE_TAINTS = "NodeTaints"
    NODE_AFFINITY = "NodeAffinity"
    ZONE_SPREAD = "ZoneSpread"


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A pod that should leave its node. ``note``: why, for people."""

    pod: AdapterPod
    reason: DeschedulingReason
    note: str
    slots: int
    """Taken by the vreplicas that an eviction interrupts."""


def misplaced_pods(state: ClusterState, pool: PoolState) -> list[Misplaced]:
    """The pods of a pool that should leave their nodes, whether or not the pool has opted in. The
    fewest vreplicas come first, then the highest ordinal.
    """
    found = [one for known in pool.members() if (one := _misplaced(state, known)) is not None]
    return sorted(found, key=lambda one: (one.slots, -(one.pod.ordinal or 0)))


def _misplaced(state: ClusterState, known: PodClaims) -> Misplaced | None:
    pod, node = known.pod, known.node
    if pod is None or node is None or not known.bound or pod.deleting or pod.assumed:
        return None
    if pod.fit is not None:
        if taints := pod.fit.untolerated(node.taints):
            taint = taints[0]
            value = f"={taint.value}" if taint.value else ""
            note = f"node {node.name} has the taint {taint.key}{value}:{taint.effect}"
            return Misplaced(pod, DeschedulingReason.NODE_TAINTS, note, known.held)
        if not pod.fit.matches(node.name, node.labels):
            note = f"node {node.name} no longer has the labels that the pod requires"
            return Misplaced(pod, DeschedulingReason.NODE_AFFINITY, note, known.held)
    rule = zone_rule(state, pod) if node.zone != UNKNOWN_ZONE else None
    if rule is not None and rule.excess(node.zone) > 0:
        better = {one.zone for one in _nodes_for(state, pod) if rule.excess(one.zone) <= 0}
        if better:
            note = f"zone {node.zone} has more vreplicas of a vpod than the zone rule allows"
            return Misplaced(pod, DeschedulingReason.ZONE_SPREAD, note, known.held)
    return None


def _nodes_for(state: ClusterState, pod: AdapterPod) -> Iterator[Node]:
    """Other nodes that take work and the pod, as far as is known here."""
    fit = pod.fit or NodeFit()
    for node in state.nodes.values():
        if (
            node.name != pod.node
            and node.takes_work
            and fit.fits(node.name, node.labels, node.taints)
            and node_problem(state, pod, node) is None
        ):
            yield node


def why_no_pod(pool: PoolState) -> str:
    """Why no pod of the pool may be evicted now, "" if one may: all pods must be there and Ready,
    and no change of the StatefulSet under way.
    """
    stateful_set = pool.stateful_set
    if stateful_set is None or stateful_set.deleting:
        return "its StatefulSet does not exist"
    if not stateful_set.is_observed:
        return "the StatefulSet controller has not seen the last change of the StatefulSet"
    for ordinal in stateful_set.ordinals:
        known = pool.by_ordinal.get(ordinal)
        name = f"{stateful_set.name}-{ordinal}"
        if known is None or known.pod is None or not known.serving:
            return f"pod {name} is not Ready"
        if stateful_set.update_revision not in {"", known.pod.revision}:
            return f"pod {name} is not of the newest revision: an update is under way"
    for known in pool.pods.values():
        if known.bound and not pool.is_member(known):
            return f"pod {known.name} is still to be removed"
    return ""


def why_not(state: ClusterState, pool: PoolState, one: Misplaced, now_s: float) -> str:
    """Why a misplaced pod may not be evicted, "" if it may. ``now_s``: epoch seconds."""
    adapter_pool, pod = pool.adapter_pool, one.pod
    if adapter_pool is None or one.reason not in adapter_pool.descheduling:
        return f"spec.descheduling.reasons of the AdapterPool does not have {one.reason}"
    known = pool.pods[pod.name]
    if pool.is_closed(known):
        return "it is being emptied, to be removed"
    if pod.claims_volumes:
        return "it has volume claims, and where those can be attached is not known"
    if now_s - epoch_s(pod.created_at, now_s) < adapter_pool.min_pod_age_s:
        return f"it is younger than minPodAgeSeconds ({adapter_pool.min_pod_age_s})"
    zones = {node.zone for node in _nodes_for(state, pod)}
    rule = zone_rule(state, pod)
    if not zones or (rule is not None and all(rule.excess(zone) > 0 for zone in zones)):
        return "no other node would take it"
    return ""
