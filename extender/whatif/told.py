"""What adapters are told of their shares, and whether they have acknowledged that: read from the
annotations of their pods. Pure.

It is said in sentences, and only of a hand-over that is under way: nothing while all serve as they
are told, and nothing in a pool that hands nothing over.
"""

from itertools import islice
from typing import Final

from extender.engine.placing.handover import Adapter
from extender.engine.pods.claims import PodClaims
from extender.engine.state.pool_state import PoolState
from extender.model.assignment import (
    AssignedShare,
    ShareState,
    decode_acknowledged,
    decode_assignment,
)
from extender.model.objects import placement_order

LISTED_MAX: Final = 100
"""Pods of a vpod, and shares of a pod."""


def told_of_vpod(pool: PoolState, vpod: str) -> list[str]:
    """What the adapter of each pod of a vpod is told."""
    if pool.adapter_pool is None or not pool.adapter_pool.hands_over:
        return []
    found, is_settled = [], True
    for name in islice(sorted(pool.claims_of(vpod), key=placement_order), LISTED_MAX):
        adapter = _adapter(pool.pods[name])
        if (share := adapter.share_of(vpod)) is not None:
            is_settled = is_settled and _is_settled(adapter, vpod, share)
            found.append(f"the adapter of {name} is told {_told(adapter, vpod, share)}")
    return [] if is_settled else found


def told_of_pod(pool: PoolState, known: PodClaims) -> list[str]:
    """What the adapter of a pod is told of the shares that are handed over, or that it has not
    acknowledged.
    """
    if pool.adapter_pool is None or not pool.adapter_pool.hands_over:
        return []
    adapter = _adapter(known)
    shares = adapter.assignment.shares if adapter.assignment is not None else {}
    lines = (
        f"of {vpod} its adapter is told {_told(adapter, vpod, share)}"
        for vpod, share in shares.items()
        if not _is_settled(adapter, vpod, share)
    )
    return list(islice(lines, LISTED_MAX))


def _adapter(known: PodClaims) -> Adapter:
    if (pod := known.pod) is None:
        return Adapter()
    assignment = decode_assignment(pod.assignment_text, pod.uid)
    return Adapter(assignment, decode_acknowledged(pod.acknowledged_text))


def _is_settled(adapter: Adapter, vpod: str, share: AssignedShare) -> bool:
    return share.state is ShareState.SERVE and adapter.has_done(vpod)


def _told(adapter: Adapter, vpod: str, share: AssignedShare) -> str:
    until = f" until {share.deadline}" if share.deadline else ""
    has = "has acknowledged" if adapter.has_done(vpod) else "has not acknowledged"
    return f"{share.state}{until}, and {has} that"
