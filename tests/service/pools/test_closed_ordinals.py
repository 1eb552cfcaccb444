"""When closed pods are opened for nothing: how often that is tried again."""

from typing import Any

import pytest

from extender.engine.scaling.size import plan_scale
from extender.model.objects import Scaling, ScalingMode, VPod
from extender.service.pools import closed_ordinals
from extender.service.pools.closed_ordinals import REOPENED_MAX, ClosedOrdinals
from extender.service.watching.caches import Caches
from tests.support.builders import POOL, Scene, a_pool

PERIOD_S = 5.0


class Bench:
    """A pool of three pods, of which one more than needed could be closed, and a vpod that seems to
    wait for it whenever it is.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **pool: Any) -> None:
        self.now_s = 0.0
        self.closings = 0
        self.scene = Scene(replicas=3, min_pods=0, **pool).pods(0, 1, 2).vpod("a", 1)
        self.ordinals = ClosedOrdinals(
            POOL,
            Caches(),
            clock=lambda: self.now_s,
            changed=self._changed,
            no_predecessor_writes=lambda _pool: True,
        )

        def waits(*_: Any, **_in_doubt: int) -> tuple[str, bool]:
            return ("tenant/a", True)

        monkeypatch.setattr(closed_ordinals, "ordinals_to_close", lambda *_: 0b100)
        monkeypatch.setattr(closed_ordinals, "waits_for_closed", waits)

    def _changed(self, pool: str, *, opened: bool) -> None:
        assert pool == POOL
        self.closings += not opened

    def closed(self) -> int:
        return self.scene.pool.closed

    def look(self, for_s: float) -> int:
        """As the autoscaler does each period. Return how many times a pod was closed."""
        before, until_s = self.closings, self.now_s + for_s
        while self.now_s < until_s:
            plan = plan_scale(self.scene.pool)
            assert plan is not None
            self.ordinals.reopen(self.scene.pool, plan, anybody, PERIOD_S)
            self.ordinals.close(self.scene.pool, plan, anybody)
            self.now_s += PERIOD_S
        return self.closings - before


def anybody(_vpod: VPod) -> bool:
    return True


def test_useless_closings_end_until_what_is_asked_for_has_changed(monkeypatch: pytest.MonkeyPatch):
    bench = Bench(monkeypatch)
    assert bench.look(for_s=1000 * PERIOD_S) == REOPENED_MAX + 1
    assert bench.look(for_s=1000 * PERIOD_S) == 0
    bench.scene.vpod("b", 1)
    assert bench.look(for_s=1000 * PERIOD_S) == 1


def test_what_others_have_announced_to_remove_stays_closed_whoever_waits(
    monkeypatch: pytest.MonkeyPatch,
):
    bench = Bench(monkeypatch, scaling=Scaling(mode=ScalingMode.EXTERNAL, announced_replicas=2))
    assert bench.look(for_s=10 * PERIOD_S) == 1
    assert bench.scene.pool.closed == 0b100


@pytest.mark.parametrize("looked", [40, 1000], ids=["paused", "useless"])
def test_a_lower_max_pods_is_followed_at_once_however_useless_closing_was(
    monkeypatch: pytest.MonkeyPatch, looked: int
):
    """Found by review: a person's order waited for the pause between useless closings."""
    bench = Bench(monkeypatch)
    bench.scene.vpod("a", 60)
    bench.look(for_s=looked * PERIOD_S)
    assert bench.closed() == 0
    bench.scene.state.adapter_pool_changed(
        bench.scene.pool.adapter_pool, a_pool(20, generation=2, max_pods=2)
    )
    bench.look(for_s=PERIOD_S)
    assert bench.closed() == 0b100


def test_once_closing_was_right_it_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    bench = Bench(monkeypatch)
    bench.look(for_s=1000 * PERIOD_S)
    bench.ordinals.removed()
    assert bench.look(for_s=1000 * PERIOD_S) == REOPENED_MAX + 1
