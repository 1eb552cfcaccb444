"""Explains an adapter pod: what it carries, every node's verdict, why it waits, and what its loss
costs each vpod. Pure.

If no node takes the pod, ``pod_fixes`` tries changes. CPU, memory, volumes and affinity between
pods are not known here. The answer says so if one of them must be the cause.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from extender.engine.placing.refused import IN_DOUBT
from extender.engine.pods.claims import PodClaims
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.collector import why_unschedulable
from extender.engine.state.pool_state import PoolState
from extender.model.counted import counted, counted_are
from extender.model.eviction import eviction_of
from extender.model.moves import MoveReason
from extender.model.names import LEDGER_BYTES_MAX, SCHEDULER_NAME
from extender.model.objects import AdapterPod
from extender.model.reasons import ConflictReason
from extender.model.safe_repr import safe_repr
from extender.node.descheduling import misplaced_pod, why_not, why_not_now
from extender.whatif.explanation import (
    NAMES_COMPARED_MAX,
    Answer,
    PastDecision,
    UnknownObject,
    names_like,
)
from extender.whatif.fix import Fixes
from extender.whatif.node_verdicts import NodeVerdicts
from extender.whatif.pod_fixes import find_pod_fixes
from extender.whatif.told import told_of_pod
from extender.whatif.trial import never

NODES_LISTED_MAX: Final = 1_000
VPODS_LISTED_MAX: Final = 1_000

PROBLEMS: Final[Mapping[ConflictReason, str]] = {
    ConflictReason.POOL_NOT_FOUND: "AdapterPool {pool}, which its label vreplica.dev/pool names, "
    "does not exist",
    ConflictReason.STATEFULSET_NOT_FOUND: "it is not controlled by the StatefulSet of "
    "AdapterPool {pool}, or that does not exist",
    ConflictReason.STATEFULSET_TAKEN: "AdapterPool {pool} names a StatefulSet that another "
    "AdapterPool has",
    ConflictReason.SLOTS_MISMATCH: "its annotation vreplica.dev/slots and what it requests of that "
    "resource differ: delete it, and the webhook stamps the next one anew",
    ConflictReason.LEDGER_TOO_LARGE: "the placements on its ordinal do not fit into a ledger, "
    f"which has {LEDGER_BYTES_MAX // 1024} KiB",
}


def find_pod(state: ClusterState, key: str) -> tuple[PoolState, PodClaims]:
    """Find an adapter pod, or an ordinal without a pod, by ``namespace/name``. Raises
    UnknownObject.
    """
    namespace, _, name = key.rpartition("/")
    for pool in state.pools.values():
        if pool.key.partition("/")[0] != namespace:
            continue
        if (unowned := pool.unowned_pods.get(name)) is not None:
            return pool, _standing_for(state, unowned)
        known = pool.pods.get(name)
        if known is None:
            continue
        if known.pod is not None or pool.is_member(known):
            return pool, known
    names = (
        f"{pool.key.partition('/')[0]}/{one}" for pool in state.pools.values() for one in pool.pods
    )
    raise UnknownObject(
        names_like(f"adapter pod {key}", key, list(islice(names, NAMES_COMPARED_MAX)))
    )


def _standing_for(state: ClusterState, unowned: AdapterPod) -> PodClaims:
    """The claims of a pod that counts nowhere."""
    known = PodClaims(unowned.name, unowned.ordinal)
    known.stand(unowned, state.nodes.get(unowned.node))
    return known


def explain_pod(
    state: ClusterState,
    key: str,
    *,
    history: Sequence[PastDecision] = (),
    expired: Callable[[], bool] = never,
) -> Answer:
    """Explain one adapter pod. ``expired``: whether the time to try changes is up. Raises
    UnknownObject.
    """
    pool, known = find_pod(state, key)
    pod = known.pod
    nodes = NodeVerdicts(state, pool, pod) if pod is not None else None
    rows = nodes.rows() if nodes is not None else []
    node, zone = known.where
    fixes = (
        find_pod_fixes(state, pool, known, nodes, expired=expired) if nodes is not None else Fixes()
    )
    return {
        "kind": "Pod",
        "name": key,
        "pool": pool.key,
        "profile": pool.profile.name if pool.adapter_pool is not None else "",
        "node": node if known.bound else "",
        "zone": zone if known.bound else "",
        "lastNode": known.last_location[0],
        "schedulerName": pod.scheduler_name if pod is not None else "",
        "slots": known.capacity,
        "usedSlots": known.decided,
        "freeSlots": known.free,
        **({"dimensions": known.dimensions()} if known.capacities else {}),
        "schedulable": known.schedulable,
        "why": why_unschedulable(pool, known),
        "outcome": _outcome(state, pool, known, nodes),
        "steps": [
            *_steps(pool, known, nodes),
            *_descheduling(state, pool, known),
            *told_of_pod(pool, known),
        ],
        "carries": _carries(pool, known),
        "planned": dict(sorted(nodes.bind_ledger.added.items()))
        if nodes is not None and known.awaits_node
        else {},
        "fixes": [fix.of_pod() for fix in fixes.found],
        "fixesCutShort": fixes.cut_short,
        "changesTried": fixes.tried,
        "candidates": rows[:NODES_LISTED_MAX],
        "candidatesNotListed": max(0, len(rows) - NODES_LISTED_MAX),
        "refusals": dict(nodes.refusals.most_common()) if nodes is not None else {},
        "loss": {
            "pod": _loss(pool, known, lambda other: other is known),
            "node": _loss(pool, known, lambda other: bool(node) and other.where[0] == node),
            "zone": _loss(pool, known, lambda other: bool(zone) and other.where[1] == zone),
        },
        "decided": history[0].to_json() if history else None,
        "history": [one.to_json() for one in history],
    }


def _outcome(
    state: ClusterState, pool: PoolState, known: PodClaims, nodes: NodeVerdicts | None
) -> str:
    pod = known.pod
    if pod is None or nodes is None:
        held = (
            f" {counted(known.decided, 'slot')} of vreplicas wait for it." if known.decided else ""
        )
        return f"the pod does not exist; the StatefulSet is to create it.{held}"
    if known.bound:
        where = f"on node {pod.node}" + (f" in zone {known.where[1]}" if known.where[1] else "")
        return f"it stands {where}; {_takes(pool, known, pod)}"
    if nodes.problem is not None:
        return f"Pending ({nodes.problem}): " + PROBLEMS[nodes.problem].format(pool=pool.key)
    total = len(state.nodes)
    if pod.finished or pod.deleting:
        return "it has ended" if pod.finished else "it is being deleted"
    if not nodes.passing:
        why = ", ".join(f"{count} {text}" for text, count in nodes.refusals.most_common())
        return f"Pending: 0/{total} nodes take it: {why or 'no node is known'}"
    return (
        f"Pending: {len(nodes.passing)} of {counted(total, 'node')} would take it as far as is "
        f"known here{_held_up(pod)}"
    )


def _takes(pool: PoolState, known: PodClaims, pod: AdapterPod) -> str:
    """Whether a pod on a node takes new vreplicas, in words."""
    if not pool.counts(pod):
        return "it counts nowhere: " + PROBLEMS[ConflictReason.STATEFULSET_NOT_FOUND].format(
            pool=pool.key
        )
    why = why_unschedulable(pool, known)
    return (
        f"takes no new vreplicas: {why}"
        if why
        else f"{known.free} of {counted_are(known.capacity, 'slot')} free{_dimensions(known)}"
    )


def _dimensions(known: PodClaims) -> str:
    """What is free of the pool's dimensions, as the end of a sentence."""
    return "".join(
        f", {one['capacity'] - one['used']} of {one['capacity']} {name}"
        for name, one in known.dimensions().items()
    )


def _held_up(pod: AdapterPod) -> str:
    """Why a pod still waits although nodes would take it, as the end of a sentence."""
    if pod.refusal:
        return f", but kube-scheduler finds none: {pod.refusal}"
    if pod.scheduler_name not in {"", SCHEDULER_NAME}:
        return (
            f"; it waits for {safe_repr(pod.scheduler_name)} to bind it, not for {SCHEDULER_NAME}"
        )
    return (
        "; if it stays so, kube-scheduler lacks something else there (CPU, memory, volumes): "
        "kubectl describe pod says what"
    )


def _steps(pool: PoolState, known: PodClaims, nodes: NodeVerdicts | None) -> Iterator[str]:
    pod = known.pod
    if pod is None or nodes is None:
        return
    if pod.slots is None:
        yield (
            "it has not been through the webhook: no vreplica.dev/slots; the reconciler puts that "
            "right once it is bound"
        )
    if pod.scheduler_name not in {"", SCHEDULER_NAME} and not known.bound:
        yield (
            f"it is for {safe_repr(pod.scheduler_name)} to bind (spec.schedulerName): that one "
            f"must be running, and its "
            "configuration must name our extender; the webhook gives new pods the name that it is "
            "set to"
        )
    if pod.refusal and known.awaits_node:
        yield f"kube-scheduler finds no node for it: {pod.refusal}"
    if pod.ledger_error:
        yield f"its ledger cannot be read: {pod.ledger_error}"
    if pool.is_in_doubt(known):
        yield f"it gets nothing new, and keeps what it has: {IN_DOUBT}"
    elif pool.is_closed(known):
        yield "the autoscaler empties it: the pool needs fewer pods"
    yield from _drained(pool, known, pod)
    if known.awaits_node:
        ledger, planned = nodes.bind_ledger.ledger, nodes.bind_ledger.added
        kept = len(ledger) - len(planned.keys() - known.claims.keys())
        yield f"it comes back with what stands on its ordinal: {counted(kept, 'vpod')}"
        if planned:
            yield (
                f"and gets {counted(sum(planned.values()), 'vreplica')} that wait, of "
                f"{counted(len(planned), 'vpod')}"
            )


def _drained(pool: PoolState, known: PodClaims, pod: AdapterPod) -> Iterator[str]:
    """Why the pod is drained, or will be."""
    if known.draining:
        why = _WHY_DRAINED[known.evicted]
        yield f"{why}: what it carries goes wherever there is room"
    eviction, adapter_pool = eviction_of(pod), pool.adapter_pool
    hands_over = adapter_pool is not None and adapter_pool.hands_over
    if eviction is not None and hands_over and eviction.waits:
        why = _WHY_DRAINED[eviction.reason]
        yield f"{why}: it waits for its turn (spec.handoff.maxUnavailable)"


_WHY_DRAINED: Final = {
    None: "it is drained",
    MoveReason.EVICTED: "somebody evicts it",
    MoveReason.ROLLOUT: "a rollout replaces it",
    MoveReason.MAINTENANCE: "it leaves its node",
}


def _descheduling(state: ClusterState, pool: PoolState, known: PodClaims) -> Iterator[str]:
    """Why the pod should leave its node, and why it is not evicted. The age of a pod is not looked
    at, because an answer has no clock.
    """
    one = misplaced_pod(state, known) if pool.is_member(known) else None
    if one is None:
        return
    yield f"it should leave its node ({one.reason}): {one.note}"
    blocked = why_not(state, pool, one, float("inf")) or why_not_now(pool, one)
    yield (
        f"it is not evicted: {blocked.note}"
        if blocked
        else "it is evicted once it is older than minPodAgeSeconds, if its PodDisruptionBudget "
        "allows it"
    )


def _carries(pool: PoolState, known: PodClaims) -> list[Answer]:
    """The vpods that the pod carries, the largest shares first."""
    rows = sorted(
        ((key, claim) for key, claim in known.claims.items() if claim.decided.vreplicas),
        key=lambda item: (-item[1].decided.slots, item[0]),
    )
    return [
        {
            "vpod": key,
            "vreplicas": claim.decided.vreplicas,
            "slots": claim.decided.slots,
            **({"perVReplica": dict(claim.decided.amounts)} if claim.decided.amounts else {}),
            "published": claim.published,
            "of": _total(pool, key),
        }
        for key, claim in islice(rows, VPODS_LISTED_MAX)
    ]


def _total(pool: PoolState, key: str) -> int:
    vpod = pool.vpods.get(key)
    return max(pool.decided_vreplicas(key), vpod.vreplicas if vpod is not None else 0)


def _loss(pool: PoolState, known: PodClaims, lost: Callable[[PodClaims], bool]) -> list[Answer]:
    """What each vpod of the pod loses if the pods of ``lost`` are lost; the largest part first."""
    rows = []
    for key, claim in known.claims.items():
        if not claim.decided.vreplicas:
            continue
        count = sum(
            other.decided.vreplicas
            for name, other in pool.claims_of(key).items()
            if lost(pool.pods[name])
        )
        total = _total(pool, key)
        if count:
            rows.append((-count / total, key, count, total))
    return [
        {"vpod": key, "lost": count, "of": total, "percent": round(100 * count / total)}
        for _, key, count, total in sorted(rows)[:VPODS_LISTED_MAX]
    ]
