"""I8: the checker counts the pods that voluntary disruptions have."""

from typing import Any, Final

import pytest

from extender.lab.clock import wall_clock
from extender.lab.simulation.world.facts import EVICTING
from extender.model.eviction import TURN_MAX_S, Eviction, encode_eviction
from extender.model.moves import MoveReason
from tests.simulation.checker_scene import (
    PERSON,
    REPLICA,
    CheckerScene,
    in_virtual_time,
    later,
    pod_object,
)

pytestmark = pytest.mark.sim

KEY: Final = "t/v"
LATE_S: Final = 61.0
"""After so long nothing counts as seen too late."""
READY: Final = {"conditions": [{"type": "Ready", "status": "True"}]}


class LimitedScene(CheckerScene):
    """A pool with the pods a-0 to a-3, all Ready."""

    def __init__(self, **limits: Any) -> None:
        super().__init__()
        self.pool(ordinals=4, handoff={"mode": "Overlap", "maxUnavailable": limits})
        for ordinal in range(4):
            self.put(ordinal)

    def put(
        self,
        ordinal: int,
        eviction: Eviction | None = None,
        *,
        uid: str = "1",
        ledger: dict[str, int] | None = None,
        actor: str = REPLICA,
    ) -> None:
        obj = pod_object(f"a-{ordinal}", ledger or {}, uid=uid)
        obj["metadata"]["namespace"] = "n"
        if eviction is not None:
            obj["metadata"]["annotations"][EVICTING] = encode_eviction(eviction, uid)
        self.write("pods", f"a-{ordinal}", {**obj, "status": READY}, actor)

    def findings(self) -> list[str]:
        """What was found of I8 since it was last asked."""
        return [line for line in self.found if "I8" in line]


def turn(*, ago_s: float = 0.0) -> Eviction:
    now_s = wall_clock()
    return Eviction(now_s - ago_s, now_s, turn_s=now_s)


def rollout() -> Eviction:
    return Eviction(wall_clock(), wall_clock(), MoveReason.ROLLOUT)


@in_virtual_time
async def test_a_turn_and_a_rollout_count_together():
    scene = LimitedScene(pool=2)
    scene.put(0, turn())
    scene.put(1, rollout())
    assert scene.findings() == []
    scene.put(2, turn())
    (finding,) = scene.findings()
    assert "a-2 is taken beside ['a-0', 'a-1'], and 2 may be" in finding


@in_virtual_time
async def test_an_eviction_that_waits_for_its_turn_takes_nothing():
    scene = LimitedScene(pool=1)
    scene.put(0, turn())
    scene.put(1, Eviction(wall_clock(), wall_clock()))
    assert scene.findings() == []


@in_virtual_time
async def test_a_pod_is_taken_until_its_successor_is_ready():
    scene = LimitedScene(pool=1)
    scene.put(0, turn())
    scene.write("pods", "a-0", None, PERSON)
    await later(LATE_S)
    scene.put(1, turn())
    assert len(scene.findings()) == 1
    scene.put(1)
    scene.put(0, uid="2", actor=PERSON)
    scene.put(2, turn())
    assert scene.findings() == []


@in_virtual_time
async def test_a_pod_that_went_with_its_ordinal_is_taken_no_more_when_the_ordinal_comes_again():
    scene = LimitedScene(pool=1)
    scene.put(3, turn())
    scene.write("pods", "a-3", None, PERSON)
    scene.scale(3, actor=PERSON)
    await later(LATE_S)
    scene.scale(4, actor=PERSON)
    scene.put(0, turn())
    assert scene.findings() == []


@in_virtual_time
async def test_the_pods_of_one_vpod_have_a_limit_of_their_own():
    scene = LimitedScene(pool=3, perVPod=1)
    scene.put(0, turn(), ledger={KEY: 1})
    scene.put(1, turn())
    assert scene.findings() == []
    scene.put(2, turn(), ledger={KEY: 1})
    (finding,) = scene.findings()
    assert KEY in finding


@in_virtual_time
async def test_what_has_waited_for_too_long_may_go_beside_pods_that_have_gone_and_no_others():
    scene = LimitedScene(pool=1)
    scene.put(0, turn())
    scene.write("pods", "a-0", None, PERSON)
    scene.put(1, turn(ago_s=TURN_MAX_S))
    assert scene.findings() == []
    scene.put(2, turn(ago_s=TURN_MAX_S))
    (finding,) = scene.findings()
    assert "['a-1']" in finding


@in_virtual_time
async def test_a_new_leader_need_not_know_at_once_what_the_former_one_has_taken():
    scene = LimitedScene(pool=1)
    scene.put(0, turn(), actor="replica-8")
    scene.put(1, turn(), actor="replica-9")
    assert scene.findings() == []
    await later(LATE_S)
    scene.put(2, turn(), actor="replica-9")
    assert len(scene.findings()) == 1
