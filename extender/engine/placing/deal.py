"""Dealing out: which pods get a vpod's next vreplicas, as the pool's profile has it. Pure; what it kept and has room for is given."""

from collections.abc import Callable, Mapping

from extender.engine.placing.fill_up import fill_up
from extender.engine.placing.round_robin import round_robin
from extender.engine.placing.select import grow
from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod


def deal(
    pool: PoolState,
    vpod: VPod,
    kept: Mapping[str, int],
    missing: int,
    free: Callable[[int], int],
    room: int,
) -> tuple[dict[int, int], int]:
    """Give ``missing`` vreplicas: (ordinal -> vreplicas, what is left). Raises PluginFailed.

    ``kept``: pod name -> vreplicas; ``free``: an ordinal's free slots beside them; ``room``: the ordinals that may get
    something where no plugin chooses.
    """
    profile = pool.profile
    if profile.has_plugins:
        return grow(pool, vpod, kept, missing, free, profile)
    give = round_robin if profile.rules.round_robin else fill_up
    return give(room, pool.ordinals_of(kept), free, missing, vpod.weight)
