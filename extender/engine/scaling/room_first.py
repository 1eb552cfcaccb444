"""Whether a pool waits with its growth, because moves would place what waits. Pure."""

from collections.abc import Callable

from extender.engine.rebalance.move_plan import Limits, can_place
from extender.engine.scaling.size import ScalePlan, waiting_without_growth
from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod


def placed_by_moves(state: PoolState, allows: Callable[[VPod], bool], plan: ScalePlan) -> list[str]:
    """Keys of the vpods that wait, if the pool's owner wants moves to be tried before it grows
    (rebalance.makeRoomBeforeGrowing) and moves of one period would place them all; otherwise [].
    """
    pool = state.adapter_pool
    if pool is None or not (pool.make_room_before_growing and pool.moves_to_shrink):
        return []
    waiting = waiting_without_growth(state, allows, plan)
    return waiting if can_place(state, waiting, Limits(budget=pool.moves_per_period)) else []
