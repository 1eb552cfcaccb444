"""Prioritize: which node exposes the pod's vpods least (DESIGN 5.7)."""

import itertools
from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings, strategies as st

from extender.model.ledger import Share
from extender.model.objects import AdapterPod
from extender.node.exposure import prioritize_nodes
from extender.node.wire import SCORE_MAX
from tests.support.builders import Scene, a_node, a_pod

THE_POD = a_pod(9, node="", uid="the-pod", slots=20, slots_request=20)


def scores(
    scene: Scene, pod: AdapterPod = THE_POD, ledger=None, names=("node-0", "node-1", "node-2")
) -> list[int]:
    shares = {f"tenant/{name}": Share(count) for name, count in (ledger or {}).items()}
    return list(prioritize_nodes(scene.state, pod, shares, names, scene.state.nodes.get).values())


class TestPrioritize:
    def scene(self) -> Scene:
        return Scene(replicas=10).node(a_node("node-1", "z0")).node(a_node("node-2", "z1"))

    def test_a_zone_where_the_vpod_does_not_stand_yet_is_best(self):
        scene = self.scene().pod(0, {"tenant/a": 4}, node="node-0").vpod("a", 8)
        assert scores(scene, ledger={"a": 4}) == [0, 5, 10]

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

    def test_pods_that_carry_nothing_spread_over_zones_first(self):
        scene = self.scene().pod(0, node="node-0").pod(1, node="node-2").pod(2, node="node-2")
        assert scores(scene) == [5, 10, 0], "z0 has one pod, on node-0; z1 has two"

    def test_a_vpod_on_this_pod_alone_does_not_hide_what_can_be_chosen_for_the_others(self):
        scene = (
            self.scene().pod(0, {"tenant/b": 1}, node="node-0").vpod("a", 1, {9: 1}).vpod("b", 4)
        )
        assert scores(scene, ledger={"a": 1, "b": 1}) == [0, 5, 10]

    def test_of_two_vpods_the_larger_share_decides(self):
        scene = (
            self.scene()
            .pod(0, {"tenant/a": 1}, node="node-0")
            .pod(1, {"tenant/b": 6}, node="node-2")
        )
        scene.vpod("a", 4).vpod("b", 9)
        assert scores(scene, ledger={"a": 1, "b": 1}, names=("node-0", "node-2")) == [10, 0], (
            "2/4 over 7/9"
        )

    def test_what_is_wanted_counts_also_where_it_is_not_placed_yet(self):
        scene = (
            self.scene()
            .pod(0, {"tenant/a": 1}, node="node-0")
            .pod(1, {"tenant/b": 1}, node="node-2")
        )
        scene.vpod("a", 9).vpod("b", 2)
        assert scores(scene, ledger={"a": 1, "b": 1}, names=("node-0", "node-2")) == [10, 0]

    def test_pods_that_are_away_count_where_they_stood(self):
        scene = self.scene().pod(0, {"tenant/a": 4}, node="node-2").vpod("a", 8, {0: 4}).no_pod(0)
        assert scores(scene, ledger={"a": 4}) == [10, 10, 0]

    def test_the_previous_node_is_best_and_its_zone_next(self):
        scene = self.scene().vpod("a", 1, {3: 1}).pod(3, {"tenant/a": 1}, node="node-1").no_pod(3)
        scene.pod(3, node="", uid="next")
        assert scores(scene, the_pending(scene, 3), ledger={"a": 1}) == [5, 10, 0]

    def test_a_bind_that_was_taken_back_leaves_no_previous_node(self):
        scene = (
            self.scene().vpod("a", 1, {3: 1}).pod(3, node="node-1", assumed=True).pod(3, node="")
        )
        assert scores(scene, the_pending(scene, 3), ledger={"a": 1}) == [10, 10, 10]

    def test_less_exposure_comes_before_the_previous_node(self):
        scene = self.scene().vpod("a", 2, {3: 1}).pod(3, {"tenant/a": 1}, node="node-1").no_pod(3)
        scene.pod(3, node="", uid="next").pod(0, {"tenant/a": 1}, node="node-0")
        assert scores(scene, the_pending(scene, 3), ledger={"a": 1}) == [0, 5, 10]

    def test_up_to_eleven_classes_of_nodes_are_all_told_apart(self):
        result = scores(self.crowded(11), names=[f"n{index}" for index in range(11)])
        assert result == list(range(10, -1, -1))

    def test_of_more_the_best_ten_are_told_apart(self):
        result = scores(self.crowded(14), names=[f"n{index}" for index in range(14)])
        assert result == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0]

    def crowded(self, nodes: int) -> Scene:
        """Node n of one zone has n pods of the pool."""
        scene = Scene(replicas=200)
        ordinal = 20
        for index in range(nodes):
            scene.node(a_node(f"n{index}"))
            for _ in range(index):
                ordinal += 1
                scene.pod(ordinal, node=f"n{index}")
        return scene

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
            st.tuples(
                st.integers(0, 5), st.dictionaries(st.sampled_from("abc"), st.integers(1, 5))
            ),
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
        naive = [exposed(scene, ledger, name) for name in names]
        for one, other in itertools.combinations(range(len(names)), 2):
            if naive[one] != naive[other]:
                assert (naive[one] < naive[other]) == (result[one] > result[other])


def exposed(scene: Scene, ledger: dict[str, int], name: str) -> tuple[Fraction, Fraction]:
    """The figure to minimise, from its definition: the largest share that the zone, then the node,
    takes down.
    """
    here = scene.state.nodes[name]
    worst = [Fraction(0), Fraction(0)]
    for vpod, carried in ledger.items():
        pods = [pod.pod for pod in scene.pool.pods.values() if pod.pod is not None]
        placed = [
            (scene.state.nodes[pod.node], pod.ledger.get(f"tenant/{vpod}", Share(0)).vreplicas)
            for pod in pods
        ]
        total = carried + sum(count for _, count in placed)
        lost = (
            sum(count for node, count in placed if node.zone == here.zone),
            sum(count for node, count in placed if node.name == here.name),
        )
        worst = [
            max(known, Fraction(count + carried, total))
            for known, count in zip(worst, lost, strict=True)
        ]
    return (worst[0], worst[1])


def the_pending(scene: Scene, ordinal: int) -> AdapterPod:
    pod = scene.pool.pods[f"dispatcher-{ordinal}"].pod
    assert pod is not None
    return pod
