"""Adapter pods, a node or a zone that a what-if takes away: drained by a person, or failing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.errors import InvalidObject
from extender.model.objects import AdapterPod, placement_order
from extender.whatif.fix import listed
from extender.whatif.trial import Trial


class TargetKind(StrEnum):
    """What can be taken away."""

    POD = "pod"
    NODE = "node"
    ZONE = "zone"


@dataclass(frozen=True, slots=True)
class Target:
    """An adapter pod (``name`` or ``namespace/name``), or all pods on a node or in a zone. ``kind``
    None: whichever has that name.
    """

    kind: TargetKind | None
    name: str


def drain(trial: Trial, pools: Sequence[PoolState], target: Target) -> None:
    """Drain the target: annotate its pods, so that their vreplicas go elsewhere, and cordon its
    nodes. Raises InvalidObject.
    """
    nodes, pods = _reached(trial.state, pools, target, "drain")
    for name in nodes:
        trial.exchange(node := trial.state.nodes[name], replace(node, cordoned=True))
    for pod in pods:
        trial.exchange(pod, replace(pod, unschedulable=True))


def fail(trial: Trial, pools: Sequence[PoolState], target: Target) -> Mapping[str, frozenset[str]]:
    """Let the target fail for good: its nodes and pods are not Ready. If the pool sets
    rescheduleAfterSeconds, its pods are also given up.

    Return the names of those pods by pool. Raises InvalidObject.
    """
    nodes, pods = _reached(trial.state, pools, target, "fail")
    for name in nodes:
        trial.exchange(node := trial.state.nodes[name], replace(node, ready=False))
    for pod in pods:
        trial.exchange(pod, replace(pod, ready=False))
    failed: dict[str, frozenset[str]] = {}
    for pool in pools:
        names = failed[pool.key] = frozenset(pod.name for pod in pods if pod.pool == pool.key)
        for name in names:
            trial.end_excuse(pool, name)
        if pool.adapter_pool is not None and pool.adapter_pool.reschedule_after_s is not None:
            trial.set_abandoned(pool, pool.abandoned | names)
    return failed


def _reached(
    state: ClusterState, pools: Sequence[PoolState], target: Target, field: str
) -> tuple[list[str], list[AdapterPod]]:
    """The nodes that are meant and the pods on them, or the pods themselves."""
    kind = target.kind or _kind_of(state, pools, target.name, field)
    if kind is TargetKind.POD:
        found = [pod for pod in _pods(pools) if target.name in {pod.name, pod.key}]
        if not found:
            listed = sorted(
                (known.name for pool in pools for known in pool.pods.values()), key=placement_order
            )
            raise InvalidObject("plan", field, _unknown(f"adapter pod {target.name}", listed))
        return [], found
    known = {
        name: name if kind is TargetKind.NODE else node.zone for name, node in state.nodes.items()
    }
    nodes = [name for name, named in known.items() if named == target.name]
    if not nodes:
        names = sorted(set(known.values()))
        raise InvalidObject("plan", field, _unknown(f"{kind} {target.name}", names))
    there = set(nodes)
    return sorted(nodes), [pod for pod in _pods(pools) if pod.node in there]


def _kind_of(state: ClusterState, pools: Sequence[PoolState], name: str, field: str) -> TargetKind:
    found = [TargetKind.POD] if any(pod.name == name for pod in _pods(pools)) else []
    found += [TargetKind.NODE] if name in state.nodes else []
    found += [TargetKind.ZONE] if any(node.zone == name for node in state.nodes.values()) else []
    if len(found) == 1:
        return found[0]
    ways = " or ".join(f"{kind}/{name:.100}" for kind in found or TargetKind)
    why = "has several meanings" if found else "is no pod, node or zone that is known"
    raise InvalidObject("plan", field, f"{name:.100} {why}: say {ways}")


def _pods(pools: Sequence[PoolState]) -> Iterator[AdapterPod]:
    for pool in pools:
        for known in list(pool.pods.values()):
            if known.pod is not None:
                yield known.pod


def _unknown(subject: str, known: list[str]) -> str:
    return f"{subject:.300} is not known (known: {listed(known)})"
