"""What should leave where it is: drains and compaction, as a list of evictions (DESIGN 5.5). Pure.

In order: pods marked unschedulable, ordinals that the StatefulSet no longer has, then the highest ordinals whose
whole load fits into the free room below them, down to the number of pods that the pool needs. Nothing is evicted that
has no room elsewhere, cheapest pods (fewest vreplicas) first among the drained, and never more than ``budget``
vreplicas. While its evictions are carried out, a pod being emptied must be closed to placing: round robin would bring
some of it back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from extender.core.claims import PodState
from extender.core.model import VPod, placement_order
from extender.core.moves import MoveReason
from extender.core.plan import round_robin
from extender.core.pool_state import PoolState
from extender.core.scaling import anyone, plan_scale


@dataclass(frozen=True, slots=True)
class Eviction:
    """Take ``vreplicas`` of ``vpod`` off ``pod_name``: placing finds them another pod."""

    vpod: str
    pod_name: str
    vreplicas: int
    reason: MoveReason


def plan_compaction(
    state: PoolState, *, budget: int, allows: Callable[[VPod], bool] = anyone
) -> list[Eviction]:
    """Evictions for one period, at most ``budget`` vreplicas. ``allows``: as in ``plan_scale``."""
    room = _Room(state)
    evictions: list[Eviction] = []
    for pod, reason in _sources(state, allows):
        room.close(pod)
        moves, complete = room.moves_from(pod, reason)
        if reason is MoveReason.COMPACTION and not complete:
            break
        for move in moves:
            count = min(move.vreplicas, budget)
            if count <= 0:
                return evictions
            budget -= count
            evictions.append(Eviction(move.vpod, move.pod_name, count, move.reason))
    return evictions


def _sources(state: PoolState, allows: Callable[[VPod], bool]) -> Iterator[tuple[PodState, MoveReason]]:
    loaded = [pod for pod in state.pods.values() if pod.placed]
    cheapest = sorted(loaded, key=lambda pod: (pod.placed, placement_order(pod.name)))
    yield from ((pod, MoveReason.DRAIN) for pod in cheapest if pod.draining and state.is_member(pod))
    yield from ((pod, MoveReason.ORDINAL_GONE) for pod in cheapest if not state.is_member(pod))
    # Emptying a pod that the pool needs anyway gains nothing: placing would soon fill it again.
    scale = plan_scale(state, allows)
    floor = scale.wanted if scale is not None else 0
    members = [pod for pod in state.members() if pod.placed and not pod.draining]
    for pod in reversed(members):
        if (
            state.stateful_set is not None
            and pod.ordinal is not None
            and pod.ordinal - state.stateful_set.ordinals_start >= floor
        ):
            yield pod, MoveReason.COMPACTION


class _Room:
    """Free slots on the pods that may still receive, as the moves planned so far leave them."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._bits = state.room
        self._free: dict[int, int] = {}

    def _free_of(self, ordinal: int) -> int:
        return self._free.get(ordinal, self._state.free_of(ordinal))

    def close(self, pod: PodState) -> None:
        """Nothing goes to ``pod`` any more, nor, for compaction, to what lies above it."""
        if pod.ordinal is not None:
            self._bits &= ~(1 << pod.ordinal)

    def moves_from(self, pod: PodState, reason: MoveReason) -> tuple[list[Eviction], bool]:
        """What can leave ``pod``, and whether that is all of it."""
        receivers = self._bits
        if reason is MoveReason.COMPACTION and pod.ordinal is not None:
            receivers &= (1 << pod.ordinal) - 1
        trial = dict(self._free)
        moves: list[Eviction] = []
        complete = True
        for key, claim in sorted(pod.claims.items(), key=lambda item: (item[1].placed.vreplicas, item[0])):
            share = claim.placed
            if not share.vreplicas:
                continue
            given, left = round_robin(
                receivers, 0, lambda o: trial.get(o, self._state.free_of(o)), share.vreplicas, share.weight
            )
            for ordinal, count in given.items():
                trial[ordinal] = trial.get(ordinal, self._state.free_of(ordinal)) - count * share.weight
            complete = complete and not left
            if share.vreplicas > left:
                moves.append(Eviction(key, pod.name, share.vreplicas - left, reason))
        if complete or reason is not MoveReason.COMPACTION:
            self._free = trial
        return moves, complete
