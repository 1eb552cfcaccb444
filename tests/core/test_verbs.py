"""Filter, prioritize and preempt for one adapter pod, and every reason that they give (DESIGN 5.7)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from extender.core.ledger import Share
from extender.core.model import AdapterPod
from extender.core.reasons import UNRESOLVABLE, ConflictReason
from extender.core.verbs import (
    SCORE_MAX,
    filter_nodes,
    node_problem,
    preempt_nodes,
    prioritize_nodes,
    slots_of,
)
from tests.support.builders import NS, POOL, Scene, a_node, a_pod

THE_POD = a_pod(9, node="", uid="the-pod", slots=20, slots_request=20)


def verdict(scene: Scene, pod: AdapterPod = THE_POD, node: str = "node-0") -> ConflictReason | None:
    verdicts = filter_nodes(scene.state, pod, [node], scene.state.nodes.get)
    reason = {**verdicts.failed, **verdicts.unresolvable}.get(node)
    assert (reason is None) == (verdicts.passed == [node])
    assert (reason in UNRESOLVABLE) == (node in verdicts.unresolvable)
    return reason


def scores(
    scene: Scene, pod: AdapterPod = THE_POD, ledger=None, names=("node-0", "node-1", "node-2")
) -> list[int]:
    shares = {f"tenant/{name}": Share(count) for name, count in (ledger or {}).items()}
    return list(prioritize_nodes(scene.state, pod, shares, names, scene.state.nodes.get).values())


class TestFilter:
    def test_a_pod_of_a_known_pool_goes_anywhere(self):
        assert verdict(Scene()) is None

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            pytest.param({"pool": f"{NS}/none"}, ConflictReason.POOL_NOT_FOUND, id="its pool does not exist"),
            pytest.param(
                {"owner": "other"}, ConflictReason.STATEFULSET_NOT_FOUND, id="another StatefulSet's"
            ),
            pytest.param({"owner": ""}, ConflictReason.STATEFULSET_NOT_FOUND, id="nobody's"),
            pytest.param(
                {"slots": 5, "slots_request": 20},
                ConflictReason.SLOTS_MISMATCH,
                id="it asks for more than it says",
            ),
            pytest.param({"slots": None, "slots_request": 20}, None, id="it says nothing"),
            pytest.param({"slots": 5, "slots_request": None}, None, id="it asks for nothing"),
        ],
    )
    def test_a_problem_of_the_pod_refuses_every_node(self, fields, reason):
        assert verdict(Scene(), replace(THE_POD, **fields)) is reason

    def test_a_pool_without_its_stateful_set(self):
        scene = Scene()
        scene.state.stateful_set_changed(scene.state.stateful_sets[POOL], None)
        assert verdict(scene) is ConflictReason.STATEFULSET_NOT_FOUND

    def test_a_node_that_nobody_knows(self):
        assert verdict(Scene(), node="ghost") is ConflictReason.NODE_UNKNOWN

    @pytest.mark.parametrize(
        ("slots", "other", "fits"),
        [
            pytest.param(20, None, True, id="just enough"),
            pytest.param(19, None, False, id="too few"),
            pytest.param(30, {"slots": 11}, False, id="another pod has the rest"),
            pytest.param(30, {"slots": 10}, True, id="next to another pod"),
            pytest.param(
                30, {"slots": 20, "finished": True}, True, id="a finished pod has given its slots back"
            ),
            pytest.param(30, {"slots": 20, "uid": "the-pod"}, True, id="itself, bound there already"),
            pytest.param(
                30, {"slots": 5, "slots_request": 11}, False, id="a request counts more than the annotation"
            ),
        ],
    )
    def test_a_node_that_declares_slots_holds_no_more_than_those(self, slots, other, fits):
        scene = Scene().node(a_node("node-0", slots=slots))
        if other is not None:
            scene.pod(0, **other)
        assert verdict(scene) is (None if fits else ConflictReason.NODE_SLOTS_EXCEEDED)

    def test_nodes_stay_in_the_order_asked(self):
        scene = Scene().node(a_node("node-1")).node(a_node("node-2", slots=1))
        verdicts = filter_nodes(scene.state, THE_POD, ["node-2", "node-1", "node-0"], scene.state.nodes.get)
        assert (verdicts.passed, list(verdicts.failed)) == (["node-1", "node-0"], ["node-2"])

    def test_what_eviction_can_cure_is_failed_and_the_rest_unresolvable(self):
        assert ConflictReason.NODE_SLOTS_EXCEEDED not in UNRESOLVABLE
        assert ConflictReason.POOL_NOT_FOUND in UNRESOLVABLE


class TestSlotsOf:
    @pytest.mark.parametrize(
        ("stamped", "expected"),
        [
            pytest.param(None, 20, id="not stamped"),
            pytest.param(5, 5, id="fewer"),
            pytest.param(50, 20, id="more than the pool allows"),
        ],
    )
    def test_it_is_the_stamp_within_the_pool(self, stamped, expected):
        assert slots_of(Scene().state, a_pod(0, slots=stamped)) == expected

    def test_there_are_none_without_a_pool(self):
        assert slots_of(Scene().state, replace(THE_POD, pool="x/y")) == 0


class TestPrioritize:
    def scene(self) -> Scene:
        return Scene(replicas=10).node(a_node("node-1", "z0")).node(a_node("node-2", "z1"))

    def test_a_zone_where_the_vpod_does_not_stand_yet_is_best(self):
        scene = self.scene().pod(0, {"tenant/a": 4}, node="node-0").vpod("a", 8)
        assert scores(scene, ledger={"a": 4}) == [0, 0, 10]

    def test_in_one_zone_a_node_where_the_vpod_does_not_stand_is_better(self):
        scene = self.scene().pod(0, {"tenant/a": 4}, node="node-0").vpod("a", 8)
        assert scores(scene, ledger={"a": 4}, names=("node-0", "node-1")) == [0, 10]

    def test_what_other_vpods_have_there_does_not_matter(self):
        scene = self.scene().pod(0, {"tenant/b": 9}, node="node-2").vpod("b", 9)
        first, second, third = scores(scene, ledger={"a": 4})
        assert (first, second) == (10, 10)
        assert third == 0, "only the crowd counts"

    def test_a_pod_that_carries_nothing_goes_where_fewer_pods_are(self):
        scene = self.scene().pod(0, node="node-0").pod(1, node="node-0").pod(2, node="node-1")
        assert scores(scene) == [0, 5, 10]

    def test_equal_nodes_score_alike(self):
        assert scores(self.scene()) == [10, 10, 10]

    def test_a_node_that_nobody_knows_scores_nothing(self):
        assert scores(self.scene(), names=("node-0", "ghost")) == [10, 0]

    def test_no_pool_no_preference(self):
        assert scores(self.scene(), replace(THE_POD, pool="x/y")) == [0, 0, 0]

    def test_no_candidates_no_scores(self):
        assert scores(self.scene(), names=()) == []

    @settings(max_examples=50, deadline=None)
    @given(
        st.lists(
            st.tuples(st.integers(0, 5), st.dictionaries(st.sampled_from("abc"), st.integers(1, 5))),
            max_size=8,
        ),
        st.dictionaries(st.sampled_from("abc"), st.integers(1, 5)),
    )
    def test_scores_are_whole_numbers_from_0_to_10_and_one_node_is_best(self, pods, ledger):
        scene = Scene(replicas=20)
        names = [f"node-{index}" for index in range(6)]
        for index, name in enumerate(names):
            scene.node(a_node(name, f"z{index % 3}"))
        for ordinal, (node, shares) in enumerate(pods):
            scene.pod(ordinal, {f"tenant/{k}": v for k, v in shares.items()}, node=f"node-{node}")
        result = scores(scene, ledger=ledger, names=names)
        assert all(type(score) is int and 0 <= score <= SCORE_MAX for score in result)
        assert max(result) == SCORE_MAX


class TestPreempt:
    def scene(self) -> Scene:
        scene = Scene().node(a_node("node-0", slots=20)).node(a_node("node-1", slots=20))
        scene.pod(0, {"tenant/a": 3}, node="node-0", uid="v0", slots=20, slots_request=20)
        return scene.pod(1, {"tenant/a": 5}, node="node-1", uid="v1", slots=20, slots_request=20)

    def answer(self, scene: Scene, victims, pod: AdapterPod = THE_POD):
        return preempt_nodes(scene.state, pod, victims, scene.state.nodes.get)

    def test_the_node_whose_victims_carry_least_is_chosen(self):
        assert self.answer(self.scene(), {"node-0": ["v0"], "node-1": ["v1"]}) == {"node-0": ("v0",)}

    def test_a_node_that_would_not_be_helped_is_dropped(self):
        assert self.answer(self.scene(), {"node-0": ["somebody-else"], "node-1": ["v1"]}) == {
            "node-1": ("v1",)
        }

    def test_a_node_without_victims_is_never_answered(self):
        assert self.answer(Scene(), {"node-0": []}) == {}

    def test_a_node_that_nobody_knows_is_dropped(self):
        assert self.answer(self.scene(), {"ghost": ["v0"]}) == {}

    def test_a_pod_that_fits_nowhere_preempts_nobody(self):
        assert self.answer(self.scene(), {"node-0": ["v0"]}, replace(THE_POD, owner="")) == {}

    @settings(max_examples=50, deadline=None)
    @given(
        st.dictionaries(
            st.sampled_from(["node-0", "node-1", "ghost"]), st.lists(st.sampled_from(["v0", "v1", "x"]))
        )
    )
    def test_every_node_answered_was_proposed_with_those_victims_and_is_helped(self, victims):
        scene = self.scene()
        for node, uids in self.answer(scene, victims).items():
            assert uids
            assert list(uids) == list(victims[node])
            gone = frozenset(uids)
            assert node_problem(scene.state, THE_POD, scene.state.nodes[node], without=gone) is None
