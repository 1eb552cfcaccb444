"""``/state.json``: what the service knows and why it decided so, as plain data for people and tools.

Bounded: of the largest pools only so many vpods are listed, and the counts say how many there are.
"""

from collections.abc import Mapping
from typing import Final

from extender.core.explain import Explanation
from extender.core.pool_state import PoolState
from extender.core.state import State
from extender.service.pool_status import pool_numbers

VPODS_LISTED_MAX: Final = 1_000


def describe_state(state: State, explanations: Mapping[str, Explanation]) -> dict[str, object]:
    """Pools with their pods and vpods, and nodes."""
    return {
        "pools": [_pool(pool, state, explanations) for _, pool in sorted(state.pools.items())],
        "nodes": [
            {"name": node.name, "zone": node.zone, "takesWork": node.takes_work, "slots": node.slots}
            for _, node in sorted(state.nodes.items())
        ],
    }


def _pool(pool: PoolState, state: State, explanations: Mapping[str, Explanation]) -> dict[str, object]:
    vpods = sorted(pool.vpods)
    return {
        "name": pool.key,
        "found": pool.pool is not None,
        "replicas": pool.stateful_set.replicas if pool.stateful_set is not None else None,
        **pool_numbers(pool),
        "podList": [
            {
                "name": pod.name,
                "node": pod.pod.node if pod.pod is not None else "",
                "zone": _zone(state, pod.pod.node if pod.pod is not None else ""),
                "slots": pod.capacity,
                "usedSlots": pod.placed,
                "schedulable": pod.schedulable,
                "why": pod.why_unschedulable(),
                "placements": {
                    key: claim.placed.vreplicas
                    for key, claim in sorted(pod.claims.items())
                    if claim.placed.vreplicas
                },
            }
            for pod in pool.members()
        ],
        "vpodList": [_vpod(pool, key, explanations) for key in vpods[:VPODS_LISTED_MAX]],
        "vpodsNotListed": max(0, len(vpods) - VPODS_LISTED_MAX),
    }


def _vpod(pool: PoolState, key: str, explanations: Mapping[str, Explanation]) -> dict[str, object]:
    vpod = pool.vpods[key]
    explanation = explanations.get(key)
    return {
        "name": key,
        "vreplicas": vpod.vreplicas,
        "slotsPerVReplica": vpod.weight,
        "published": dict(vpod.placements),
        "placed": pool.placed_of(key),
        "explanation": list(explanation.sentences()) if explanation is not None else [],
    }


def _zone(state: State, node: str) -> str:
    known = state.nodes.get(node)
    return known.zone if known is not None else ""
