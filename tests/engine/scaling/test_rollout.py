"""Which pods a rollout replaces next, as spec.handoff.maxUnavailable says."""

from typing import Any

import pytest

from extender.engine.policy.profiles import HA_PROFILE
from extender.engine.scaling.rollout import RolloutReason, RolloutStep, next_step
from extender.engine.scaling.scale_down import lasting_count
from extender.model.eviction import MARK_AGAIN_S, Eviction, deadline_s, encode_eviction
from extender.model.ledger import Share
from extender.model.max_unavailable import USUAL, MaxUnavailable, PodLimit
from extender.model.moves import MoveReason
from extender.model.objects import Handoff, HandoffMode, Rollout, RolloutStrategy
from tests.engine.scaling.plans import plan_of
from tests.support.builders import Scene, a_node
from tests.support.placing import place

NOW_S = 1_800_000_000.0
NEW, OLD = "r2", "r1"


def a_scene(
    limits: MaxUnavailable = USUAL, *, pods: int = 4, slots: int = 20, **fields: Any
) -> Scene:
    """A pool whose pods are Ready, carry a vreplica each, and are of an old revision."""
    scene = Scene(
        replicas=pods,
        slots=slots,
        handoff=Handoff(mode=HandoffMode.OVERLAP, max_unavailable=limits),
        rollout=Rollout(strategy=RolloutStrategy.HANDED_OVER),
        **fields,
    )
    scene.stateful_set(pods, update_revision=NEW, updates_from=None)
    for ordinal in range(pods):
        scene.pod(ordinal, {f"tenant/{ordinal}": 1}, ready=True, revision=OLD)
    return scene


def marked(scene: Scene, ordinal: int, *, ago_s: float = 1.0, **pod) -> None:
    eviction = Eviction(NOW_S - ago_s, NOW_S - ago_s, MoveReason.ROLLOUT)
    text = encode_eviction(eviction, f"uid-{ordinal}")
    pod = {"ledger": {f"tenant/{ordinal}": 1}, "revision": OLD, **pod}
    scene.pod(ordinal, ready=True, evicting_text=text, **pod)


def step(scene: Scene) -> RolloutStep:
    return next_step(scene.pool, NOW_S)


def names(pods) -> list[str]:
    return [pod.name for pod in pods]


def of(number: int, per_vpod: int = 1) -> MaxUnavailable:
    return MaxUnavailable(pool=PodLimit(number), per_vpod=PodLimit(per_vpod))


def test_by_default_one_pod_of_a_small_pool_follows_the_other():
    scene = a_scene()
    assert names(step(scene).mark) == ["dispatcher-3"]
    assert step(scene).note == "4 pods of an old revision; dispatcher-3 hands its shares over"
    marked(scene, 3)
    assert (step(scene).mark, step(scene).evict) == ((), ())
    assert step(scene).note == "dispatcher-3 hands its shares over"
    marked(scene, 3, ledger={})
    assert names(one.pod for one in step(scene).evict) == ["dispatcher-3"]
    assert step(scene).note == "dispatcher-3 is replaced"


CPU = (("cpu", 2000),)


@pytest.mark.parametrize(
    ("share", "fields"),
    [
        pytest.param(Share(1, 3), {}, id="heavy vreplicas"),
        pytest.param(Share(2, 1, CPU), {"capacities": (("cpu", 4000),)}, id="a full dimension"),
        pytest.param(Share(5), {}, id="full pods"),
    ],
)
def test_the_surge_comes_before_a_pod_hands_over_what_fits_nowhere(
    share: Share, fields: dict[str, Any]
):
    """Found by review: the surge counted slots alone. So a pod was marked first, and the time for
    its hand-over ran while the surge pod was waited for.
    """
    scene = a_scene(pods=3, slots=5, **fields)
    for ordinal in range(3):
        scene.pod(ordinal, {f"tenant/{ordinal}": share}, ready=True, revision=OLD)
        sizes = {"weight": share.weight, "per_vreplica": share.amounts}
        scene.vpod(str(ordinal), share.vreplicas, {ordinal: share.vreplicas}, **sizes)
    assert plan_of(scene).wanted == 4
    scene.stateful_set(4, update_revision=NEW, updates_from=None)
    scene.pod(3, {}, ready=True, revision=NEW)
    assert lasting_count(scene.pool, plan_of(scene).wanted) == 4
    marked(scene, 2, ledger={"tenant/2": share})
    decision = place(scene.pool, scene.pool.vpods["tenant/2"])
    assert (dict(decision.target), decision.pending) == ({"dispatcher-3": share.vreplicas}, 0)
    assert lasting_count(scene.pool, plan_of(scene).wanted) == 4


def test_the_surge_comes_first_under_a_hard_zone_rule_too():
    scene = a_scene(pods=3, slots=10)
    scene.pool.set_profile(HA_PROFILE)
    for ordinal in range(3):
        scene.node(a_node(f"n{ordinal}", f"z{ordinal}"))
        ledger, node = {"tenant/a": 4}, f"n{ordinal}"
        scene.pod(ordinal, ledger, ready=True, revision=OLD, node=node)
    scene.vpod("a", 12, {0: 4, 1: 4, 2: 4})
    assert plan_of(scene).wanted == 4


def test_as_many_as_the_pool_allows_are_handed_over_side_by_side():
    scene = a_scene(of(2))
    assert names(step(scene).mark) == ["dispatcher-3", "dispatcher-2"]
    assert step(scene).note == (
        "4 pods of an old revision; dispatcher-3, dispatcher-2 hand their shares over"
    )
    marked(scene, 3)
    assert names(step(scene).mark) == ["dispatcher-2"]


def test_a_pod_that_is_not_back_takes_the_place_of_one_more():
    scene = a_scene(of(2))
    scene.pod(3, {}, ready=False, revision=NEW)
    assert names(step(scene).mark) == ["dispatcher-2"]
    scene.no_pod(2)
    assert step(scene).reason is RolloutReason.POD_NOT_READY
    assert step(scene).mark == ()


def test_a_pod_that_hands_over_keeps_its_mark_while_the_rollout_waits():
    """Found by review: its mark was over after five minutes, and it took its shares back."""
    scene = a_scene()
    marked(scene, 3, ago_s=MARK_AGAIN_S + 1)
    scene.no_pod(0)
    found = step(scene)
    assert found.reason is RolloutReason.POD_NOT_READY
    assert names(found.again) == ["dispatcher-3"]


@pytest.mark.parametrize("why", ["a pod is not back", "not on delete"])
def test_the_marks_of_a_rollout_that_stands_still_end_with_the_time_for_their_hand_over(why: str):
    """Found by review: they were renewed for ever, and evictions waited behind them."""
    scene = a_scene()
    if why == "not on delete":
        scene.stateful_set(4, update_revision=NEW, updates_from=4)
    else:
        scene.pod(0, {}, ready=False, revision=NEW)
    pool = scene.pool.adapter_pool
    assert pool is not None
    eviction = Eviction(NOW_S - 2 * deadline_s(pool), NOW_S - 1, MoveReason.ROLLOUT)
    for latest_s in (NOW_S - 1, NOW_S - 2 * MARK_AGAIN_S):
        text = encode_eviction(eviction._replace(latest_s=latest_s), "uid-3")
        scene.pod(3, {}, ready=True, revision=OLD, evicting_text=text)
        assert names(step(scene).again) == []


def test_pods_that_hand_over_go_on_while_others_are_not_back():
    scene = a_scene(of(3))
    scene.pod(3, {}, ready=False, revision=NEW)
    marked(scene, 2, ledger={})
    marked(scene, 1, ago_s=MARK_AGAIN_S + 1)
    found = step(scene)
    assert names(one.pod for one in found.evict) == ["dispatcher-2"]
    assert names(found.again) == ["dispatcher-1"]
    assert found.mark == ()
    assert found.reason is RolloutReason.REPLACING


def test_a_pod_that_is_overdue_says_so_in_its_mark_before_it_is_evicted():
    """The webhook's clock may be behind the leader's (seed 70002264)."""
    scene = a_scene()
    assert scene.pool.adapter_pool is not None
    first_s = NOW_S - deadline_s(scene.pool.adapter_pool) - MARK_AGAIN_S / 2

    def told(latest_s: float) -> RolloutStep:
        text = encode_eviction(Eviction(first_s, latest_s, MoveReason.ROLLOUT), "uid-3")
        scene.pod(3, {"tenant/3": 1}, ready=True, revision=OLD, evicting_text=text)
        return step(scene)

    before = told(NOW_S - MARK_AGAIN_S / 2 - 1)
    assert (names(before.again), before.evict) == (["dispatcher-3"], ())
    after = told(NOW_S - MARK_AGAIN_S / 2 + 1)
    assert (after.again, names(one.pod for one in after.evict)) == ((), ["dispatcher-3"])


def test_pods_of_one_vpod_are_not_replaced_side_by_side_if_it_has_a_limit():
    scene = a_scene(of(3, per_vpod=1))
    for ordinal in (3, 2):
        scene.pod(ordinal, {"tenant/a": 1}, ready=True, revision=OLD)
    assert names(step(scene).mark) == ["dispatcher-3", "dispatcher-1", "dispatcher-0"]


def test_a_rollout_that_waits_for_the_limit_of_a_vpod_says_so():
    scene = a_scene(of(2, per_vpod=1), pods=2)
    scene.pod(1, {"tenant/a": 1}, ready=False, revision=NEW)
    scene.pod(0, {"tenant/a": 1}, ready=True, revision=OLD)
    assert step(scene).reason is RolloutReason.MAX_UNAVAILABLE
    assert "of 2 pods (dispatcher-1) of a vpod there, and maxUnavailable.perVPod allows 1" in (
        step(scene).note
    )


@pytest.mark.parametrize(
    ("slots", "chosen"),
    [
        pytest.param(1, 1, id="no room: one, for which the pool grows"),
        pytest.param(2, 2, id="room for two"),
        pytest.param(4, 3, id="room for all"),
    ],
)
def test_only_what_has_room_elsewhere_is_handed_over(slots: int, chosen: int):
    assert len(step(a_scene(of(3), slots=slots)).mark) == chosen


def test_a_pod_that_somebody_else_evicts_takes_a_place():
    scene = a_scene(of(2))
    eviction = encode_eviction(Eviction(NOW_S, NOW_S, turn_s=NOW_S), "uid-0")
    scene.pod(0, {"tenant/0": 1}, ready=True, revision=OLD, evicting_text=eviction)
    assert names(step(scene).mark) == ["dispatcher-3"]


def test_pods_of_the_old_revision_that_are_not_ready_go_first():
    scene = a_scene(of(2))
    scene.pod(1, {}, ready=False, revision=OLD)
    found = step(scene)
    assert names(one.pod for one in found.evict) == ["dispatcher-1"]
    assert names(found.mark) == ["dispatcher-3"]
