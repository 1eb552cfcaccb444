"""Whatever happens to a state, a recording of it, played again, comes to the same state and the
same decisions.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.policy.framework import Weighted
from extender.engine.policy.ordinals import LowestOrdinalPriority
from extender.engine.policy.profile import Profile, Ties
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.state_observer import Recorded
from extender.model.objects import AdapterPod, VPod, placement_order
from extender.whatif.recording.entries import Cause, Decided, Entry, Header, Put
from extender.whatif.recording.player import Changes, Player
from extender.whatif.trial import object_changed
from tests.support.builders import NS, POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.notebook import Notebook
from tests.support.placing import place
from tests.support.worlds import World, ordinals, pods, vpod_names, vpods, worlds


def readable(pod: AdapterPod) -> AdapterPod:
    """The worlds' pods say of a ledger that it is unreadable, and of its text that it is not."""
    return replace(pod, ledger_error="")


def in_order(vpod: VPod) -> VPod:
    """As whoever reads one from the API server has it: by ordinal."""
    names = sorted(vpod.placements, key=placement_order)
    return replace(vpod, placements={name: vpod.placements[name] for name in names})


ACTS = st.one_of(
    st.tuples(st.just("put"), pods().map(readable)),
    st.tuples(st.just("put"), vpods().map(in_order)),
    st.tuples(st.just("put"), st.builds(a_stateful_set, st.integers(0, 5))),
    st.tuples(
        st.just("put"),
        st.builds(a_pool, st.integers(1, 8), profile=st.sampled_from(sorted(BUILT_IN_PROFILES))),
    ),
    st.tuples(
        st.just("put"),
        st.builds(a_node, st.sampled_from(["node-0", "node-1"]), ready=st.booleans()),
    ),
    st.tuples(st.just("remove vpod"), vpod_names),
    st.tuples(st.just("remove pod"), ordinals),
    st.tuples(st.just("decide"), vpod_names),
    st.tuples(st.just("write"), vpod_names),
    st.tuples(st.just("expire"), st.sampled_from([1.0, 2e9])),
    st.tuples(st.just("close"), st.integers(0, 31)),
    st.tuples(st.just("abandon"), st.sets(ordinals, max_size=2)),
)


def act(world: World, notebook: Notebook, what: str, detail) -> None:
    match what:
        case "put":
            world.put(detail)
        case "remove vpod":
            world.remove(type(a_vpod()), f"tenant/{detail}")
        case "remove pod":
            world.remove(type(a_pod(0)), a_pod(detail).key)
        case "decide" | "write":
            vpod = world.state.pool(POOL).vpods.get(f"tenant/{detail}")
            if vpod is not None:
                decision = place(
                    world.state.pool(POOL), vpod, allowed=world.state.selects(POOL, vpod)
                )
                notebook.notes.decided(Cause.PLACE, decision)
                world.decide(decision)
                if what == "write":
                    world.write(decision)
        case "expire":
            world.expire(detail)
        case "close":
            world.close(POOL, detail)
        case "abandon":
            world.abandon(POOL, frozenset(f"dispatcher-{ordinal}" for ordinal in detail))
        case _:
            raise AssertionError(what)


@settings(max_examples=40)
@given(worlds(), st.lists(ACTS, max_size=25), st.lists(ACTS, max_size=25))
def test_a_recording_brings_every_decision_back(world: World, before, after):
    for pod in list(world.pods.values()):
        world.put(readable(pod))
    for vpod in list(world.vpods.values()):
        world.put(in_order(vpod))
    idle = Notebook(World().state)
    for what, detail in before:
        act(world, idle, what, detail)
    notebook = Notebook(world.state)
    for what, detail in after:
        act(world, notebook, what, detail)
    player, pairs = notebook.played(world.state.profiles)
    for was, made in pairs:
        assert made == was
    assert player.state.digest() == world.state.digest()


def a_cluster(player: Player, *vpods_) -> Player:
    objects = (
        a_node(),
        a_stateful_set(2),
        a_pool(5),
        a_pod(0, slots=5),
        a_pod(1, slots=5),
        *vpods_,
    )
    for obj in objects:
        player.play(Put(obj))
    return player


def test_pods_take_their_turns_again_although_the_recording_begins_in_the_middle():
    score = Weighted(LowestOrdinalPriority(), 0)
    turns = Profile(name="turns", scores=(score,), ties=Ties.ROUND_ROBIN)
    profiles = {**BUILT_IN_PROFILES, "turns": turns}
    state = ClusterState(profiles)
    objects: list[Recorded] = [a_node(), a_stateful_set(3), a_pool(5, profile="turns")]
    for obj in [*objects, *map(a_pod, range(3))]:
        object_changed(state, None, obj)
    pool = state.pool(POOL)

    def decide(name: str, notebook: Notebook | None = None) -> None:
        state.vpod_changed(None, a_vpod(name, 1))
        decision = place(pool, pool.vpods[f"tenant/{name}"])
        if notebook is not None:
            notebook.notes.decided(Cause.PLACE, decision)
        state.reserve("placer:1", POOL, decision.vpod, decision.shares({}), expires_at=30.0)

    decide("a")
    notebook = Notebook(state)
    decide("b", notebook)
    decide("c", notebook)
    _, pairs = notebook.played(profiles)
    assert [dict(was.target) for was, _ in pairs] == [{"dispatcher-1": 1}, {"dispatcher-2": 1}]
    assert [made for _, made in pairs] == [was for was, _ in pairs]


def test_with_more_slots_a_pod_is_played_as_if_stamped_with_them():
    player = a_cluster(Player(changes=Changes(settings={"slotsPerPod": 9})))
    assert player.state.pool(POOL).free_slots() == 18


def test_in_a_cluster_without_us_what_is_published_counts_as_decided():
    player = Player()
    player.observed = True
    a_cluster(player, a_vpod("a", 4))
    was, made = player.play(Put(a_vpod("a", 4, {0: 4}))) or (None, None)
    assert isinstance(was, Decided)
    assert isinstance(made, Decided)
    assert (was.target, made.target) == (
        {"dispatcher-0": 4},
        {"dispatcher-0": 2, "dispatcher-1": 2},
    )
    assert player.state.pool(POOL).decided_of("tenant/a") == {"dispatcher-0": 4}, (
        "what happened goes on"
    )


@pytest.mark.parametrize(
    "vpod",
    [
        pytest.param(
            a_vpod("a", 4, {0: 4}, generation=3, observed_generation=2), id="for an older spec"
        ),
        pytest.param(a_vpod("a", 4, {0: 4}, pool=f"{NS}/none"), id="in a pool that is not known"),
        pytest.param(a_vpod("a", 4, {0: 4}, uid="another"), id="of another vpod of that name"),
        pytest.param(a_vpod("a", 5), id="nothing new"),
    ],
)
def test_what_is_no_answer_is_not_compared(vpod):
    player = Player()
    player.observed = True
    a_cluster(player, a_vpod("a", 4, pool=vpod.pool))
    assert player.play(Put(vpod)) is None
    assert player.objects["VPod", vpod.key] == vpod


def test_there_a_ledger_that_is_written_before_does_not_whisper_the_answer():
    player = Player()
    player.observed = True
    a_cluster(player, a_vpod("a", 4))
    player.play(Put(replace(a_pod(0, {"tenant/a": 4}), slots=5)))
    _, made = player.play(Put(a_vpod("a", 4, {0: 4}))) or (None, None)
    assert isinstance(made, Decided)
    assert made.target == {"dispatcher-0": 2, "dispatcher-1": 2}


def test_an_entry_knows_nothing_of_the_snapshot_before():
    player = a_cluster(Player(), a_vpod("a", 4))
    player.forget()
    assert not player.state.pools
    assert not player.objects
    assert isinstance(Header("replica", 0.0), Header)
    assert player.play(Entry(0.0, 1, Put(a_vpod())).content) is None
