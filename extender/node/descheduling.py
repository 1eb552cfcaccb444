"""Which adapter pods stand on nodes that they should have left, and which of them may be evicted.
Pure.

Three of the reasons are strategies of kubernetes-sigs/descheduler, for adapter pods only:

- ``NodeTaints`` (RemovePodsViolatingNodeTaints): the node has a NoSchedule or NoExecute taint that
  the pod does not tolerate. Taints that report a node's condition do not count (``node_fit``).
- ``NodeAffinity`` (RemovePodsViolatingNodeAffinity with
  requiredDuringSchedulingIgnoredDuringExecution): the pod's nodeSelector or
  required node affinity no longer matches the node.
- ``ZoneSpread`` (RemovePodsViolatingTopologySpreadConstraint, DoNotSchedule only): under a profile
  with a hard zone rule, the vreplicas on the pod break the rule in its zone, and another zone could
  have them. This happens when a zone was lost and comes back. The descheduler counts pods; here the
  vreplicas of each vpod count (``ZoneRule``).

The fourth is ``NodeMaintenance``: the node is cordoned, or has the taint out-of-service, as before
work on it. A pod that tolerates a cordon stays.

In a pool that hands shares over, ``allowed`` pods are marked (``model.eviction``): each goes once
others serve what it carries, as many together as ``spec.handoff.maxUnavailable`` says.

In other pools, a pod is not drained before. Its ordinal keeps its ledger and comes back elsewhere
with what it held, as in a rolling update: that interrupts its vreplicas for seconds, and changes no
placement. A drain would move each vreplica twice, and need room for all of them. Who cannot bear
the interruption drains the pod by annotation. Pods that are not Ready are evicted first, even if
others are not Ready either: their eviction interrupts nothing. Then go those with the fewest
vreplicas.

Nothing is evicted in a circle. As with the descheduler's ``minPodAge``, a pod must have existed for
minPodAgeSeconds. This limit needs no memory, so it holds for every next leader too. It does not
hold for ``NodeMaintenance``: the next node is not cordoned, and maintenance goes from node to node
within minutes. A pod is only evicted for a node that takes it by all rules known here (as the
descheduler's ``nodeFit``). A pod with volume claims stays: where its volumes can be attached is not
known here.

Whether the other node has CPU and memory for the pod is not known either. The descheduler's
``nodeFit`` subtracts the requests of all pods on that node (pkg/descheduler/node/node.go,
``fitsRequest``), and so it watches all pods of the cluster. The service watches adapter pods only.
So an eviction may leave a pod Pending. The limit for that is one pod, or maxUnavailable: beyond
that, no pod that serves is evicted before that pod is Ready, and by the same leader no other pod at
all.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

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

    NODE_MAINTENANCE = "NodeMaintenance"
    NODE_TAINTS = "NodeTaints"
    NODE_AFFINITY = "NodeAffinity"
    ZONE_SPREAD = "ZoneSpread"


PODS_MISPLACED: Final = "PodsMisplaced"
"""Type of the AdapterPool's condition that tells of pods that should leave their nodes."""


class NotEvicted(StrEnum):
    """Why nothing is evicted: reasons of the condition PodsMisplaced."""

    NOT_ENABLED = "NotEnabled"
    STATEFULSET_NOT_FOUND = "StatefulSetNotFound"
    STATEFULSET_CHANGING = "StatefulSetChanging"
    PODS_NOT_READY = "PodsNotReady"
    POD_DRAINED = "PodDrained"
    VOLUME_CLAIMS = "VolumeClaims"
    POD_TOO_YOUNG = "PodTooYoung"
    NO_OTHER_NODE = "NoOtherNode"


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why nothing is evicted now. ``note``: the same for people."""

    reason: NotEvicted
    note: str


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A pod that should leave its node. ``note``: why, for people."""

    pod: AdapterPod
    reason: DeschedulingReason
    note: str
    slots: int
    """Taken by the vreplicas that an eviction interrupts."""
    serves: bool = True
    """False if the pod is not Ready although its node is."""


def misplaced_pod(state: ClusterState, known: PodClaims) -> Misplaced | None:
    """The pod, if it should leave its node, whether or not its pool has opted in; else None. But
    maintenance concerns only pools that have opted in.
    """
    pod, node = known.pod, known.node
    if pod is None or node is None or not known.bound or pod.deleting or pod.assumed:
        return None
    # A pod whose node is not Ready is reported as not Ready, whatever it does. The kubelet cannot
    # end it, and Kubernetes evicts it for that in its own time.
    serves = known.serving or not node.ready
    if _is_in_maintenance(state, pod, node):
        note = f"node {node.name} is cordoned or out of service"
        return Misplaced(pod, DeschedulingReason.NODE_MAINTENANCE, note, known.held, serves)
    if pod.fit is not None:
        if taints := pod.fit.untolerated(node.taints):
            taint = taints[0]
            value = f"={taint.value}" if taint.value else ""
            note = f"node {node.name} has the taint {taint.key}{value}:{taint.effect}"
            return Misplaced(pod, DeschedulingReason.NODE_TAINTS, note, known.held, serves)
        if not pod.fit.matches(node.name, node.labels):
            note = f"node {node.name} no longer has the labels that the pod requires"
            return Misplaced(pod, DeschedulingReason.NODE_AFFINITY, note, known.held, serves)
    rule = zone_rule(state, pod) if node.zone != UNKNOWN_ZONE else None
    if rule is not None and rule.excess(node.zone) > 0:
        better = {one.zone for one in _nodes_for(state, pod) if rule.excess(one.zone) <= 0}
        if better:
            note = f"zone {node.zone} has more vreplicas of a vpod than the zone rule allows"
            return Misplaced(pod, DeschedulingReason.ZONE_SPREAD, note, known.held, serves)
    return None


def _is_in_maintenance(state: ClusterState, pod: AdapterPod, node: Node) -> bool:
    """Whether the pod's pool has opted in to leave a node like this, and the pod does not tolerate
    a cordon.
    """
    pool = state.pools.get(pod.pool)
    adapter_pool = pool.adapter_pool if pool is not None else None
    if not node.cordoned or adapter_pool is None:
        return False
    opted_in = DeschedulingReason.NODE_MAINTENANCE in adapter_pool.descheduling
    return opted_in and not (pod.fit or NodeFit()).tolerates_cordon()


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


def why_no_pod(pool: PoolState) -> Blocked | None:
    """Why no pod of the pool may be evicted now, None if one may: no change of the StatefulSet may
    be under way.
    """
    stateful_set = pool.stateful_set
    if stateful_set is None or stateful_set.deleting:
        return Blocked(NotEvicted.STATEFULSET_NOT_FOUND, "its StatefulSet does not exist")
    changing = NotEvicted.STATEFULSET_CHANGING
    if not stateful_set.is_observed:
        note = "the StatefulSet controller has not seen the last change of the StatefulSet"
        return Blocked(changing, note)
    members = {ordinal: pool.by_ordinal.get(ordinal) for ordinal in stateful_set.ordinals}
    first = stateful_set.updates_from
    for ordinal, known in members.items():
        pod = known.pod if known is not None else None
        if first is None or ordinal < first or pod is None:
            continue
        if stateful_set.update_revision not in {"", pod.revision}:
            note = f"pod {pod.name} is not of the newest revision: an update is under way"
            return Blocked(changing, note)
    for known in pool.pods.values():
        if known.bound and not pool.is_member(known):
            return Blocked(changing, f"pod {known.name} is still to be removed")
    return None


def why_none_that_serves(pool: PoolState) -> Blocked | None:
    """Why no pod that serves may be evicted now, None if one may: all pods of the pool must be
    there and Ready. A pod that does not serve may go: its eviction interrupts nothing. Where shares
    are handed over, each pod gets its turn instead (``engine.scaling.unavailable``).
    """
    stateful_set, adapter_pool = pool.stateful_set, pool.adapter_pool
    if stateful_set is None or (adapter_pool is not None and adapter_pool.hands_over):
        return None
    for ordinal in stateful_set.ordinals:
        known = pool.by_ordinal.get(ordinal)
        if known is None or not known.serving:
            note = f"pod {stateful_set.name}-{ordinal} is not Ready"
            return Blocked(NotEvicted.PODS_NOT_READY, note)
    return None


def why_not_now(pool: PoolState, one: Misplaced) -> Blocked | None:
    """Why the state of the pool keeps a misplaced pod, None if it does not."""
    return why_no_pod(pool) or (why_none_that_serves(pool) if one.serves else None)


def why_not(state: ClusterState, pool: PoolState, one: Misplaced, now_s: float) -> Blocked | None:
    """Why a misplaced pod may not be evicted, None if it may. ``now_s``: epoch seconds."""
    adapter_pool, pod = pool.adapter_pool, one.pod
    if adapter_pool is None or one.reason not in adapter_pool.descheduling:
        note = f"spec.descheduling.reasons of the AdapterPool does not have {one.reason}"
        return Blocked(NotEvicted.NOT_ENABLED, note)
    return _why_it_stays(pool, one, now_s) or _why_no_node(state, pod)


def _why_it_stays(pool: PoolState, one: Misplaced, now_s: float) -> Blocked | None:
    """What about the pod itself keeps it."""
    pod, known = one.pod, pool.pods.get(one.pod.name)
    if known is not None and pool.is_closed(known):
        note = "it is being emptied, to be removed"
        if pool.is_in_doubt(known):
            note = "an earlier scale-down may still be under way and remove it"
        return Blocked(NotEvicted.POD_DRAINED, note)
    if known is not None and known.node is not None and not known.node.ready:
        return Blocked(NotEvicted.PODS_NOT_READY, f"node {known.node.name} is not Ready")
    if pod.claims_volumes:
        note = "it has volume claims, and where those can be attached is not known"
        return Blocked(NotEvicted.VOLUME_CLAIMS, note)
    youngest_s = pool.adapter_pool.min_pod_age_s if pool.adapter_pool is not None else 0
    young = now_s - epoch_s(pod.created_at, now_s) < youngest_s
    if young and one.reason is not DeschedulingReason.NODE_MAINTENANCE:
        note = f"it is younger than minPodAgeSeconds ({youngest_s})"
        return Blocked(NotEvicted.POD_TOO_YOUNG, note)
    return None


def _why_no_node(state: ClusterState, pod: AdapterPod) -> Blocked | None:
    rule = zone_rule(state, pod)
    nodes = _nodes_for(state, pod)
    if not any(rule is None or rule.excess(node.zone) <= 0 for node in nodes):
        return Blocked(NotEvicted.NO_OTHER_NODE, "no other node would take it")
    return None


@dataclass(frozen=True, slots=True)
class PoolExamination:
    """What is to be done about a pool's misplaced pods: those that are ``allowed`` may be evicted
    now. ``blocked``: why there are none, if ``misplaced`` has any. The pods that do not serve come
    first, then those with the fewest vreplicas, then those with the highest ordinals.
    """

    misplaced: list[Misplaced]
    allowed: list[Misplaced] = field(default_factory=list)
    blocked: Blocked | None = None

    @property
    def chosen(self) -> Misplaced | None:
        """The pod to evict now, where one goes at a time."""
        return self.allowed[0] if self.allowed else None


def examination_steps(
    state: ClusterState, pool: PoolState, now_s: float
) -> Generator[None, None, PoolExamination]:
    """Choose the pods of the pool that may be evicted now, or say what is in the way. ``now_s``:
    epoch seconds.

    Each step is one pod, about a millisecond with a hard zone rule and 100 vpods. Between steps the
    state may change, so ``may_go`` checks a pod again. If each pod stays for a reason of its own,
    the reason of the first counts for which the pool has opted in.
    """
    found: list[Misplaced] = []
    for known in list(pool.members()):
        if (one := misplaced_pod(state, known)) is not None:
            found.append(one)
        yield
    misplaced = sorted(found, key=lambda one: (one.serves, one.slots, -(one.pod.ordinal or 0)))
    changing = why_no_pod(pool) if misplaced else None
    not_ready = why_none_that_serves(pool) if misplaced else None
    not_enabled: Blocked | None = None
    blocked: Blocked | None = None
    allowed = list[Misplaced]()
    for one in misplaced:
        block = why_not(state, pool, one, now_s)
        yield
        if block is not None and block.reason is NotEvicted.NOT_ENABLED:
            not_enabled = not_enabled or block
        elif changing is not None:
            return PoolExamination(misplaced, blocked=changing)
        elif one.serves and not_ready is not None:
            blocked = blocked or not_ready
            break
        elif block is None:
            allowed.append(one)
        else:
            blocked = blocked or block
    return PoolExamination(misplaced, allowed, None if allowed else blocked or not_enabled)


def may_go(state: ClusterState, pool: PoolState, one: Misplaced, now_s: float) -> bool:
    """Whether a pod that was chosen may still be evicted."""
    known = pool.pods.get(one.pod.name)
    if known is None or known.pod is not one.pod:
        return False
    now = misplaced_pod(state, known)
    return (
        now is not None
        and why_not_now(pool, now) is None
        and why_not(state, pool, now, now_s) is None
    )
