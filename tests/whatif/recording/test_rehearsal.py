"""What the model makes of a recording: each in one situation."""

import re
from dataclasses import replace

import pytest

from extender.engine.scaling.size import POOL_PODS_MAX
from extender.engine.state.pool_state import PoolState
from extender.model.errors import InvalidObject
from extender.model.objects import AdapterPool, StatefulSet
from extender.whatif.recording import rehearsal
from extender.whatif.recording.entries import Abandon, Gone, Put, Reserve
from extender.whatif.recording.player import NO_CHANGES, Changes
from extender.whatif.recording.rehearsal import Rehearsal
from tests.support.builders import NS, POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod


class Played:
    """A rehearsal of one pool on three zones, second by second."""

    def __init__(self, *objects, replicas: int = 1, changes: Changes = NO_CHANGES, **pool) -> None:
        self.rehearsal = Rehearsal(changes=changes)
        self.now = 0.0
        pool = {"slots": 5, "scale_down_period_s": 10, **pool}
        self.put(*(a_node(f"node-{i}", f"z{i}") for i in range(3)))
        self.put(a_stateful_set(replicas), a_pool(**pool), *objects)

    def put(self, *objects) -> None:
        for obj in objects:
            self.rehearsal.play(Put(obj))

    def play(self, seconds: int = 1) -> "Played":
        for _ in range(seconds):
            self.now += 1.0
            self.rehearsal.tick(self.now)
        return self

    @property
    def pool(self) -> PoolState:
        return self.rehearsal.state.pool(POOL)

    def placed(self, name: str = "a") -> dict[str, int]:
        return self.pool.decided_of(f"tenant/{name}")

    @property
    def replicas(self) -> int:
        assert isinstance(self.pool.stateful_set, StatefulSet)
        return self.pool.stateful_set.replicas


def test_a_vpod_is_placed_and_the_pool_grows_for_it():
    played = Played(a_vpod("a", 12)).play()
    assert sum(played.placed().values()) == 12
    assert played.replicas == 3
    assert len({pod.where[1] for pod in played.pool.pods.values()}) == 3, (
        "new pods go to the zone with the fewest"
    )


def test_not_beyond_max_pods_and_what_is_left_waits():
    played = Played(a_vpod("a", 12), max_pods=2).play(3)
    assert (sum(played.placed().values()), played.replicas) == (10, 2)


def test_what_the_recorded_service_has_done_is_not_played():
    played = Played(a_pod(0, {"tenant/b": 5}), a_vpod("a", 3))
    played.rehearsal.play(Reserve(POOL, "tenant/c", "placer:1", {}, 31.0))
    assert sum(played.play().placed().values()) == 3
    assert played.replicas == 1


def test_what_stood_when_it_began_stays_where_it_is():
    played = Played(a_pod(0), a_pod(1), a_vpod("a", 2, {1: 2}), replicas=2).play()
    assert played.placed() == {"dispatcher-1": 2}
    assert played.rehearsal.moved == 0


def test_what_it_published_later_is_ours():
    played = Played(a_pod(0), a_pod(1), a_vpod("a", 2), replicas=2).play()
    played.put(a_vpod("a", 2, {0: 2}))
    assert played.play().placed() == {"dispatcher-0": 1, "dispatcher-1": 1}


def test_a_pod_that_a_person_drains_is_left_and_that_is_a_move():
    played = Played(a_pod(0), a_pod(1), a_vpod("a", 2), replicas=2).play()
    played.put(a_pod(1, unschedulable=True))
    assert played.play().placed() == {"dispatcher-0": 2}
    assert played.rehearsal.moved == 1


def test_a_pod_that_restarts_keeps_what_it_has():
    played = Played(a_pod(0), a_vpod("a", 2)).play()
    played.rehearsal.play(Gone("Pod", f"{NS}/dispatcher-0"))
    assert played.play().placed() == {"dispatcher-0": 2}
    assert played.rehearsal.moved == 0


def test_a_pod_whose_node_is_gone_stands_on_another():
    played = Played(a_pod(0, node="node-0"), a_vpod("a", 2)).play()
    played.rehearsal.play(Gone("Node", "node-0"))
    played.play()
    assert played.pool.pods["dispatcher-0"].where[0] in {"node-1", "node-2"}
    assert played.placed() == {"dispatcher-0": 2}


def test_a_pod_whose_node_is_gone_stays_on_the_other_one():
    """Found by fuzzing: it went to and fro between two that were equally full."""
    played = Played(
        a_pod(0, node="node-0"), a_pod(1, node="node-1"), a_vpod("a", 8), replicas=2
    ).play()
    played.rehearsal.play(Gone("Node", "node-1"))
    seen = {played.play(10).pool.pods["dispatcher-1"].where[0] for _ in range(20)}
    assert seen == {"node-2"}


def test_a_recording_with_more_pods_than_are_played_is_refused():
    """Found by fuzzing: 100,001 pods took minutes."""
    refused = re.escape(
        f"StatefulSet {NS}/dispatcher: spec.replicas: 10001 pods are more than the 10000"
    )
    with pytest.raises(InvalidObject, match=refused):
        Played(replicas=POOL_PODS_MAX + 1)


def test_a_pool_does_not_grow_beyond_what_is_played(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rehearsal, "POOL_PODS_MAX", 12)
    assert Played(a_vpod("a", 1000), max_pods=1000).play(3).replicas == 12


def test_what_was_given_up_then_is_given_up():
    played = Played(a_pod(0), a_pod(1), a_vpod("a", 2), replicas=2).play()
    played.rehearsal.play(Abandon(POOL, frozenset({"dispatcher-1"})))
    assert played.play().placed() == {"dispatcher-0": 2}


def test_after_its_period_the_pool_is_emptied_from_the_top_and_made_smaller():
    played = Played(a_vpod("a", 8), a_vpod("b", 2)).play()
    assert played.replicas == 2
    played.put(a_vpod("a", 1))
    played.play(40)
    assert played.replicas == 1
    assert (sum(played.placed("a").values()), sum(played.placed("b").values())) == (1, 2)


def test_a_pool_that_only_plans_its_moves_makes_none():
    objects = (a_pod(0), a_pod(1), a_vpod("a", 1, {1: 1}))
    assert Played(*objects, replicas=2, move_dry_run=True).play(30).placed() == {"dispatcher-1": 1}
    assert Played(*objects, replicas=2).play(30).placed() == {"dispatcher-0": 1}


@pytest.mark.parametrize(
    ("changes", "replicas"),
    [
        pytest.param(Changes(), 4, id="none"),
        pytest.param(Changes(settings={"slotsPerPod": 20}), 1, id="more slots, fewer pods"),
        pytest.param(Changes(settings={"maxPods": 2}), 2, id="fewer pods"),
        pytest.param(Changes(settings={"minPods": 6}), 6, id="more pods"),
        pytest.param(Changes(profile="ha"), 6, id="a profile that wants as many in each zone"),
    ],
)
def test_changes_are_played(changes: Changes, replicas: int):
    played = Played(a_vpod("a", 18), changes=changes).play(3)
    assert played.replicas == replicas
    assert isinstance(played.pool.adapter_pool, AdapterPool)
    assert played.pool.profile.name == (changes.profile or "default")


def test_what_a_new_snapshot_does_not_have_is_gone_and_all_else_stays():
    played = Played(a_pod(0), a_vpod("a", 2), a_vpod("b", 1)).play()
    before = played.placed("a")
    played.rehearsal.begin_snapshot()
    played.put(*(a_node(f"node-{i}", f"z{i}") for i in range(3)))
    played.put(a_stateful_set(9), a_pool(slots=5), a_pod(0), a_vpod("a", 2, {0: 1}))
    played.rehearsal.end_snapshot()
    played.play()
    assert (played.placed("a"), played.placed("b")) == (before, {})
    assert played.replicas == 1, "how many pods there are is ours to say"


def test_a_vpod_that_comes_back_under_its_name_is_another_one():
    played = Played(a_pod(0), a_vpod("a", 2, uid="1")).play()
    played.rehearsal.play(Gone("VPod", "tenant/a"))
    played.play()
    assert played.placed() == {}
    played.put(replace(a_vpod("a", 1), uid="2"))
    assert played.play().placed() == {"dispatcher-0": 1}
