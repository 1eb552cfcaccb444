"""``place`` for tests in which every namespace may use the pool."""

from typing import Any

from extender.engine.placing import plan
from extender.engine.placing.plan import Decision
from extender.engine.state.pool_state import PoolState
from extender.model.objects import VPod


def place(pool: PoolState, vpod: VPod, *, allowed: bool = True, **options: Any) -> Decision:
    """Decide for one vpod."""
    return plan.place(pool, vpod, allowed=allowed, **options)
