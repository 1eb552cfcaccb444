"""What the autoscaler would do with a pool."""

from extender.engine.scaling.scale_down import ordinals_to_close
from extender.engine.scaling.size import ScalePlan, plan_scale
from extender.engine.state.pool_state import PoolState
from tests.support.builders import POOL, Scene


def plan_of(scene: Scene) -> ScalePlan:
    plan = plan_scale(scene.pool, lambda vpod: scene.state.selects(POOL, vpod))
    assert plan is not None
    return plan


def closed_by_autoscaler(pool: PoolState) -> int:
    """Bit set of the ordinals that it closes."""
    plan = plan_scale(pool)
    return ordinals_to_close(pool, plan) if plan is not None else 0
