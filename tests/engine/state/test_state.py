"""The incremental state: equal to a rebuilt one, and to a naive recomputation, after every change
(DESIGN 5.3).
"""

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.engine.scaling.scale_down import holds_nothing
from extender.engine.state.cluster_state import ClusterState
from extender.model.ledger import Share
from extender.model.objects import AdapterPod, AdapterPool, Namespace, Node, StatefulSet, VPod
from tests.support import worlds
from tests.support.builders import NS, POOL, Scene, a_node, a_pod, a_pool, a_stateful_set, a_vpod
from tests.support.worlds import OTHER, Naive, World

pool_keys = st.sampled_from([POOL, POOL, OTHER])
owners = st.sampled_from(["placer", "bind"])


class Changes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        for obj in (a_node(), a_stateful_set(3), a_pool(6, capacities=(("cpu", 5),))):
            self.world.put(obj)

    @rule(obj=st.one_of(worlds.pods(), worlds.vpods(), worlds.pods(), worlds.vpods(), worlds.nodes))
    def put(self, obj) -> None:
        self.world.put(obj)

    @rule(obj=st.one_of(worlds.pools, worlds.stateful_sets))
    def resize(self, obj) -> None:
        self.world.put(obj)

    @rule(pool=pool_keys, closed=st.integers(0, 31))
    def close(self, pool, closed) -> None:
        self.world.close(pool, closed)

    @rule(
        pool=pool_keys, names=st.frozensets(worlds.ordinals.map("dispatcher-{}".format), max_size=2)
    )
    def abandon(self, pool, names) -> None:
        self.world.abandon(pool, names)

    @rule(
        data=st.data(),
        kind=st.sampled_from([AdapterPool, StatefulSet, Node, AdapterPod, AdapterPod, VPod, VPod]),
    )
    def remove(self, data, kind: type) -> None:
        store, _ = self.world._of(kind)
        if store:
            self.world.remove(kind, data.draw(st.sampled_from(sorted(store))))

    @rule(
        owner=owners,
        pool=pool_keys,
        vpod=worlds.vpod_names,
        shares=st.dictionaries(
            worlds.ordinals.map("dispatcher-{}".format),
            st.builds(Share, st.integers(0, 3), st.integers(1, 2), worlds.amounts),
            min_size=1,
            max_size=3,
        ),
        expires_at=st.floats(1, 9),
    )
    def reserve(self, owner, pool, vpod, shares, expires_at) -> None:
        self.world.reserve(owner, pool, f"tenant/{vpod}", shares, expires_at)

    @rule(owner=owners, pool=pool_keys, vpod=worlds.vpod_names)
    def release(self, owner, pool, vpod) -> None:
        self.world.release(owner, pool, f"tenant/{vpod}")

    @rule(now=st.floats(0, 10))
    def expire(self, now) -> None:
        self.world.expire(now)

    @invariant()
    def rebuilt_is_equal(self) -> None:
        assert self.world.state.digest() == self.world.rebuilt().state.digest()

    @invariant()
    def sums_and_bits_are_the_naive_ones(self) -> None:
        for pool in self.world.state.pools.values():
            down = [ordinal for ordinal, pod in pool.by_ordinal.items() if pod.down]
            assert pool.down == sum(1 << ordinal for ordinal in down)
        digest = self.world.state.digest()
        for key in {*digest, *self.world.pools}:
            assert digest[key] == Naive(self.world, key).digest()

    @invariant()
    def nothing_is_remembered_of_what_is_gone(self) -> None:
        for key, pool in self.world.state.pools.items():
            naive = Naive(self.world, key)
            for name, pod in pool.pods.items():
                assert name in naive.names or pod.last_ledger, name
            assert all(claims for claims in pool.claims_by_vpod.values())


Changes.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestChanges = Changes.TestCase


class TestClaims:
    def test_a_pod_holds_the_largest_of_ledger_status_and_reservation(self):
        scene = Scene(replicas=1).pod(0, {"tenant/a": 2}).vpod("a", 9, {0: 5})
        assert scene.pool.pods["dispatcher-0"].held == 5
        assert scene.reserve("a", 0, 7).pool.pods["dispatcher-0"].held == 7
        assert scene.reserve("a", 0, 1).pool.pods["dispatcher-0"].held == 5, (
            "a shrink gives no room before it is written"
        )

    @pytest.mark.parametrize(
        ("ledger", "status"),
        [pytest.param(2, 5, id="status ahead"), pytest.param(5, 2, id="ledger ahead")],
    )
    def test_decisions_start_from_the_larger_of_ledger_and_status(self, ledger, status):
        scene = Scene(replicas=1).pod(0, {"tenant/a": ledger}).vpod("a", 9, {0: status})
        assert scene.pool.decided_of("tenant/a") == {"dispatcher-0": 5}

    def test_a_reservation_of_nothing_is_the_start_of_the_next_decision(self):
        scene = Scene(replicas=1).pod(0, {"tenant/a": 2}).vpod("a", 2, {0: 2}).reserve("a", 0, 0)
        assert scene.pool.decided_of("tenant/a") == {}
        assert list(scene.pool.vpods_with_pending) == ["tenant/a"]

    def test_the_annotation_of_a_pod_without_a_node_claims_nothing(self):
        assert Scene().pod(0, {"tenant/a": 3}, node="").pool.pods["dispatcher-0"].held == 0

    def test_releasing_leaves_what_another_has_reserved_since(self):
        scene = (
            Scene(replicas=1)
            .pods(0)
            .vpod("a", 3)
            .reserve("a", 0, 1, owner="first")
            .reserve("a", 0, 2, owner="second")
        )
        scene.state.release("first", POOL, "tenant/a")
        assert scene.pool.decided_of("tenant/a") == {"dispatcher-0": 2}

    def test_expiry_tells_whose_vreplicas_must_be_decided_again(self):
        scene = Scene(replicas=1).pods(0).vpod("a", 3).reserve("a", 0, 1)
        assert scene.state.expire(29.9) == []
        assert scene.state.expire(30.0) == [(POOL, "tenant/a")]
        assert scene.pool.claims_of("tenant/a") == {}


class TestWhatTheLastIncarnationCarried:
    def test_it_is_remembered_while_the_ordinal_is_expected_back(self):
        scene = Scene().pod(0, {"tenant/a": 2}).no_pod(0)
        assert scene.pool.pods["dispatcher-0"].last_ledger == {"tenant/a": Share(2)}

    @pytest.mark.parametrize("first", ["pod", "ordinal"])
    def test_it_is_forgotten_a_while_after_its_ordinal_has_gone(self, first: str):
        scene = Scene(replicas=3).pod(2, {"tenant/a": 2})
        scene = (
            scene.no_pod(2).stateful_set(2) if first == "pod" else scene.stateful_set(2).no_pod(2)
        )
        for now in (100.0, 119.9):
            scene.state.expire(now)
            assert scene.pool.pods["dispatcher-2"].last_ledger == {"tenant/a": Share(2)}
        scene.state.expire(120.0)
        assert "dispatcher-2" not in scene.pool.pods

    def test_where_its_ordinal_is_expected_back_it_only_grows_old(self):
        scene = Scene(replicas=1).pod(0, {"tenant/a": 2}).no_pod(0).pod(0, {}, uid="next", node="")
        pod = scene.pool.pods["dispatcher-0"]
        for now, old in ((100.0, False), (119.9, False), (120.0, True), (500.0, True)):
            scene.state.expire(now)
            assert (pod.last_ledger, pod.last_ledger_settled) == ({"tenant/a": Share(2)}, old)
        assert holds_nothing(pod)

    def test_it_is_kept_where_our_view_of_the_stateful_set_was_behind_all_the_time(self):
        scene = Scene(replicas=1).pod(2, {"tenant/a": 2}).no_pod(2).pod(2, {}, uid="next", node="")
        scene.state.expire(100.0)
        scene.stateful_set(3).state.expire(200.0)
        assert scene.pool.pods["dispatcher-2"].last_ledger == {"tenant/a": Share(2)}

    def test_it_is_kept_as_long_as_the_next_pod_waits_where_that_view_stays_behind(self):
        """Seed 590003167."""
        scene = Scene(replicas=1).pod(2, {"tenant/a": 2}).no_pod(2).pod(2, {}, uid="next", node="")
        for now in (100.0, 120.0, 500.0):
            scene.state.expire(now)
        assert scene.pool.pods["dispatcher-2"].last_ledger == {"tenant/a": Share(2)}

    def test_a_pool_that_is_gone_is_forgotten_with_what_its_pods_held(self):
        scene = Scene(replicas=1).pod(0, {"tenant/a": 2}).no_pod(0)
        scene.state.adapter_pool_changed(scene.pool.adapter_pool, None)
        scene.state.expire(100.0)
        scene.state.expire(120.0)
        assert POOL not in scene.state.pools

    def test_it_ends_when_the_next_pod_of_that_name_is_bound(self):
        scene = Scene().pod(0, {"tenant/a": 2}).no_pod(0).pod(0, {}, uid="next")
        assert scene.pool.pods["dispatcher-0"].last_ledger == {}


class TestWhyAPodTakesNoWork:
    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            pytest.param({}, "", id="nothing speaks against it"),
            pytest.param({"node": ""}, "not bound", id="pending"),
            pytest.param({"assumed": True}, "not bound", id="its bind is not confirmed"),
            pytest.param({"unschedulable": True}, "marked unschedulable", id="being drained"),
            pytest.param({"deleting": True}, "being deleted", id="deleting"),
            pytest.param({"finished": True}, "finished", id="finished"),
            pytest.param({"ledger_error": "not JSON"}, "ledger unreadable", id="ledger unreadable"),
            pytest.param({"node": "gone"}, "node unknown", id="node gone"),
            pytest.param({"node": "cordoned"}, "node cordoned", id="node cordoned"),
            pytest.param({"node": "failing"}, "node not ready", id="node failing"),
        ],
    )
    def test_reasons(self, fields, why):
        scene = Scene().node(a_node("cordoned", cordoned=True)).node(a_node("failing", ready=False))
        pod = scene.pod(0, **fields).pool.pods["dispatcher-0"]
        assert pod.why_unschedulable() == why
        assert scene.pool.schedulable == (0 if why else 1)

    def test_a_pod_of_the_name_of_another_stateful_set_takes_none(self):
        scene = Scene()
        pod = AdapterPod(namespace=NS, name="stranger-0", pool=POOL, ordinal=0, node="node-0")
        scene.state.pod_changed(None, pod)
        assert scene.pool.schedulable == 0


def test_a_pod_that_changes_its_pool_leaves_the_old_one():
    scene = Scene().pod(0, {"tenant/a": 2})
    moved = AdapterPod(
        namespace=NS, name="dispatcher-0", uid="uid-0", pool=OTHER, ordinal=0, node="node-0"
    )
    scene.state.pod_changed(a_pod(0, {"tenant/a": 2}), moved)
    assert scene.pool.claims_of("tenant/a") == {}
    assert set(scene.state.pools) == {POOL, OTHER}


def test_a_pool_of_which_nothing_is_left_is_forgotten():
    state = ClusterState()
    state.vpod_changed(None, a_vpod("a", 1, {0: 1}, pool="x/y"))
    assert "x/y" in state.pools
    state.vpod_changed(a_vpod("a", 1, {0: 1}, pool="x/y"), None)
    assert state.pools == {}


def test_a_pool_that_came_before_its_stateful_set_knows_its_pods_afterwards():
    state = ClusterState()
    state.node_changed(None, a_node())
    state.pod_changed(None, a_pod(0))
    state.adapter_pool_changed(None, a_pool())
    assert state.pool(POOL).schedulable == 0
    state.stateful_set_changed(None, a_stateful_set(1))
    assert state.pool(POOL).schedulable == 1


def test_a_pool_that_goes_has_no_source_that_is_complete():
    """One of its name that comes again has not received its foreign objects yet: it would take what
    its ledgers have of them for left over.
    """
    scene = Scene().pod(0, {"tenant/g@groups.x": 2})
    scene.pool.watched_sources = frozenset({"groups.x"})
    scene.state.adapter_pool_changed(scene.pool.adapter_pool, None)
    assert scene.pool.watched_sources == frozenset()
    scene.state.adapter_pool_changed(None, a_pool())
    assert scene.pool.watched_sources == frozenset()


def test_a_pod_of_a_pools_former_stateful_set_still_belongs_to_the_pool():
    scene = Scene().pod(0, {"tenant/a": 2}).other_stateful_set("second")
    pod = scene.pool.pods["dispatcher-0"].pod
    assert pod is not None
    assert not scene.pool.counts(pod), "it gets nothing new"
    assert scene.state.counts(pod), "what has moved is taken from it"


def test_pods_over_their_capacity_are_those_whose_ledger_is():
    scene = Scene(slots=3).pod(0, {"tenant/a": 4}).pod(1, {"tenant/b": 3}).vpod("b", 9, {1: 9})
    assert [pod.name for pod in scene.pool.overcommitted()] == ["dispatcher-0"]


def test_free_slots_are_those_of_pods_that_take_work():
    scene = Scene(slots=5, replicas=3).pod(0, {"tenant/a": 2}).pod(1, node="").pods(2)
    assert scene.pool.free_slots() == 8


def test_a_namespace_is_allowed_by_its_labels():
    scene = Scene().namespace("tenant", team="x")
    chosen = Namespace(name="n", labels={"team": "x"})
    pool = scene.pool.adapter_pool
    assert pool is not None
    assert scene.state.allows(pool, "tenant")
    assert chosen.key == "n"
    assert scene.state.allows(pool, "unknown"), "an empty selector selects all"


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


@pytest.mark.parametrize(
    ("template_pool", "dispatcher", "other", "first"),
    [
        pytest.param("", EARLY, LATE, "dispatcher", id="the one created first"),
        pytest.param("", LATE, EARLY, "other", id="whatever its name"),
        pytest.param("", LATE, LATE, "dispatcher", id="in the same second, by name"),
        pytest.param("", "", LATE, "other", id="one that is not stored yet comes last"),
        pytest.param("other", EARLY, LATE, "other", id="before all, the one that the pods name"),
        pytest.param("third", EARLY, LATE, "dispatcher", id="if it names this StatefulSet"),
    ],
)
@pytest.mark.parametrize(
    "reverse", [False, True], ids=["as they are listed", "the other way round"]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_of_pools_that_name_one_stateful_set_all_replicas_choose_the_same(
    template_pool, dispatcher, other, first, reverse, when
):
    state, stateful_set = ClusterState(), a_stateful_set(3, template_pool=template_pool)
    pools = [a_pool(created_at=dispatcher), a_pool(name="other", created_at=other)]
    if when == "before":
        state.stateful_set_changed(None, stateful_set)
    for pool in reversed(pools) if reverse else pools:
        state.adapter_pool_changed(None, pool)
    if when == "after":
        state.stateful_set_changed(None, stateful_set)
    found = {
        key: (pool.stateful_set is stateful_set, pool.taken_by) for key, pool in state.pools.items()
    }
    (second,) = {"dispatcher", "other"} - {first}
    assert found == {f"{NS}/{first}": (True, ""), f"{NS}/{second}": (False, f"{NS}/{first}")}


def test_when_the_first_pool_goes_the_next_has_its_stateful_set():
    state, first = ClusterState(), a_pool(created_at=EARLY)
    state.stateful_set_changed(None, a_stateful_set(3))
    for pool in (first, a_pool(name="other", created_at=LATE)):
        state.adapter_pool_changed(None, pool)
    state.adapter_pool_changed(first, None)
    assert (state.pool(OTHER).taken_by, state.pool(OTHER).stateful_set) == ("", a_stateful_set(3))
    state.adapter_pool_changed(None, first)
    assert state.pool(OTHER).taken_by == POOL, "by when it was created, which is stored"


def test_a_pool_that_names_another_stateful_set_leaves_the_one_it_had_to_the_next():
    state, first = ClusterState(), a_pool(created_at=EARLY)
    for name in ("dispatcher", "elsewhere"):
        state.stateful_set_changed(None, a_stateful_set(3, name=name))
    for pool in (first, a_pool(name="other", created_at=LATE)):
        state.adapter_pool_changed(None, pool)
    state.adapter_pool_changed(first, a_pool(created_at=EARLY, stateful_set="elsewhere"))
    assert [state.pool(key).stateful_set for key in (POOL, OTHER)] == [
        a_stateful_set(3, name="elsewhere"),
        a_stateful_set(3),
    ]
