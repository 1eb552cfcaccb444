"""A state made from a snapshot is the one that it was taken from; changing it changes nobody
else's.
"""

import pytest
from hypothesis import given, settings, strategies as st

from extender.model.ledger import Share
from extender.whatif import snapshot as snapshots
from extender.whatif.explanation import explain_vpod
from extender.whatif.snapshot import Snapshot, SnapshotTooLarge
from extender.whatif.trial import Trial
from tests.support import worlds
from tests.support.builders import NS, POOL, Scene, a_node, a_pod, a_pool, a_vpod
from tests.support.placing import place

DRAWN = settings(max_examples=40, deadline=None)


@DRAWN
@given(worlds.worlds(), st.data())
def test_a_state_from_a_snapshot_is_equal(world, data):
    pool = world.state.pool(POOL)
    for key in data.draw(st.lists(st.sampled_from(sorted(world.vpods) or ["none"]), max_size=2)):
        if key in pool.vpods:
            world.decide(place(pool, pool.vpods[key]))
    world.close(POOL, data.draw(st.integers(0, 31)))
    pool.next_start_ordinal = data.draw(st.integers(0, 5))
    other = Snapshot.of(world.state, list(world.state.pools)).state()
    assert other.digest() == world.state.digest()
    for key, vpod in pool.vpods.items():
        assert place(other.pool(POOL), vpod) == place(pool, vpod), key


@DRAWN
@given(worlds.worlds(), worlds.pods(POOL), worlds.vpods(POOL), worlds.nodes, worlds.stateful_sets)
def test_what_a_trial_changes_is_undone(world, pod, vpod, node, stateful_set):
    state = Snapshot.of(world.state, list(world.state.pools)).state()
    before = state.digest()
    with Trial(state) as trial:
        known = state.pool(POOL).pods.get(pod.name)
        trial.exchange(known.pod if known is not None else None, pod)
        trial.exchange(state.pool(POOL).vpods.get(vpod.key), vpod)
        trial.exchange(state.nodes.get(node.name), node)
        trial.exchange(state.stateful_sets.get(stateful_set.key), stateful_set)
        pool = state.pool(POOL)
        trial.set_closed(pool, 0b101)
        trial.set_abandoned(pool, frozenset({"dispatcher-1"}))
        trial.decide(pool, vpod)
    assert state.digest() == before


def test_what_an_ordinal_last_held_and_where_it_stood_is_in_it():
    scene = Scene(replicas=2).pod(0, {"tenant/a": 2}, node="node-0").vpod("a", 2, {0: 2})
    scene.no_pod(0)
    pod = Snapshot.of(scene.state, [POOL]).state().pool(POOL).pods["dispatcher-0"]
    assert (pod.last_ledger, pod.last_location) == ({"tenant/a": Share(2)}, ("node-0", "z0"))


def test_a_pod_that_restarts_is_excused_in_it_too():
    scene = Scene(replicas=1).pod(0, {"tenant/a": 2}, ready=True).vpod("a", 2, {0: 2})
    scene.pod(0, {"tenant/a": 2}, ready=False)
    state = Snapshot.of(scene.state, [POOL]).state()
    assert (state.pool(POOL).unserved, state.pool(POOL).down) == ({}, 0)
    assert explain_vpod(state, "tenant/a")["unserved"] == ""
    scene.pool.end_excuse("dispatcher-0")
    state = Snapshot.of(scene.state, [POOL]).state()
    assert (state.pool(POOL).unserved, state.pool(POOL).down) == ({"tenant/a": 2}, 1)
    assert "nobody serves 2" in str(explain_vpod(state, "tenant/a")["unserved"])


def test_an_excuse_that_a_trial_ends_holds_again_after_it():
    scene = Scene(replicas=1).pod(0, {"tenant/a": 2}, ready=True).vpod("a", 2, {0: 2})
    scene.pod(0, {"tenant/a": 2}, ready=False)
    assert scene.pool.unserved == {}
    with Trial(scene.state) as trial:
        trial.end_excuse(scene.pool, "dispatcher-0")
        assert (scene.pool.unserved, scene.pool.down) == ({"tenant/a": 2}, 1)
    assert (scene.pool.unserved, scene.pool.down) == ({}, 0)


def test_other_pools_take_their_slots_of_nodes_that_declare_some():
    scene = Scene(replicas=1).node(a_node(slots=30))
    other = a_pool(10, name="other", stateful_set="other")
    scene.state.adapter_pool_changed(None, other)
    stranger = a_pod(0, {}, slots=10, slots_request=10)
    object.__setattr__(stranger, "pool", other.key)
    object.__setattr__(stranger, "name", "other-0")
    scene.state.pod_changed(None, stranger)
    state = Snapshot.of(scene.state, [POOL]).state()
    assert list(state.pods_on_node["node-0"]) == [f"{NS}/other-0"]


def test_a_pool_that_is_too_large_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(snapshots, "VPODS_MAX", 1)
    scene = Scene().vpod("a", 1).vpod("b", 1)
    with pytest.raises(SnapshotTooLarge, match="2 vpods are more than the 1 that"):
        Snapshot.of(scene.state, [POOL])


def test_kinds_do_not_become_one_another():
    with Trial(Scene().state) as trial, pytest.raises(TypeError, match="Node cannot become VPod"):
        trial.exchange(a_node(), a_vpod())
