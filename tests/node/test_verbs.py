"""Filter and preempt for one adapter pod, and every reason that they give (DESIGN 5.7)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from extender.engine.policy.profile import Profile
from extender.engine.policy.spreading import ZoneSpread
from extender.engine.state.ordinal_history import HOLD_S
from extender.model.ledger import Share
from extender.model.objects import AdapterPod
from extender.model.reasons import UNRESOLVABLE, ConflictReason
from extender.node.verbs import (
    filter_nodes,
    node_problem,
    preempt_nodes,
    slots_of,
)
from extender.node.wire import Victims
from tests.support.builders import NS, POOL, Scene, a_node, a_pod

THE_POD = a_pod(9, node="", uid="the-pod", slots=20, slots_request=20)


def verdict(scene: Scene, pod: AdapterPod = THE_POD, node: str = "node-0") -> ConflictReason | None:
    verdicts = filter_nodes(scene.state, pod, [node], scene.state.nodes.get)
    reasons = {**verdicts.failed, **verdicts.unresolvable}.get(node, ())
    assert (not reasons) == (list(verdicts.passed) == [node])
    assert any(reason in UNRESOLVABLE for reason in reasons) == (node in verdicts.unresolvable)
    assert len(reasons) <= 1
    return reasons[0] if reasons else None


def proposal(*uids: list[str]) -> dict[str, Victims]:
    """Victims on node-0, node-1, ..."""
    return {f"node-{index}": Victims(tuple(those)) for index, those in enumerate(uids)}


def returning(here: int, **standing: int) -> Scene:
    """Under a hard zone rule of MaxSkew 1, ordinal 5 is pending with ``here`` vreplicas of a vpod.

    The vpod has one bound pod in each zone of ``standing``, on its node-0, node-1, ..., with so
    many vreplicas.
    """
    scene = Scene(replicas=10)
    scene.pool.set_profile(Profile(name="hard", filters=(ZoneSpread(1),)))
    for ordinal, zone in enumerate(standing):
        scene.node(a_node(f"node-{ordinal}", zone)).pod(ordinal, node=f"node-{ordinal}")
    scene.vpod("a", 9, {**dict(enumerate(standing.values())), 5: here})
    return scene.pod(5, node="", uid="the-pod")


def the_pod_of(scene: Scene) -> AdapterPod:
    pod = scene.pool.pods["dispatcher-5"].pod
    assert pod is not None
    return pod


class TestFilter:
    def test_a_pod_of_a_known_pool_goes_anywhere(self):
        assert verdict(Scene()) is None

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            pytest.param(
                {"pool": f"{NS}/none"}, ConflictReason.POOL_NOT_FOUND, id="its pool does not exist"
            ),
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
                30,
                {"slots": 20, "finished": True},
                True,
                id="a finished pod has given its slots back",
            ),
            pytest.param(
                30, {"slots": 20, "uid": "the-pod"}, True, id="itself, bound there already"
            ),
            pytest.param(
                30,
                {"slots": 20, "deleting": True},
                False,
                id="one being deleted still has its slots",
            ),
            pytest.param(
                30, {"slots": 20, "assumed": True}, False, id="one assumed there has them already"
            ),
            pytest.param(
                30,
                {"slots": 5, "slots_request": 11},
                False,
                id="a request counts more than the annotation",
            ),
        ],
    )
    def test_a_node_that_declares_slots_holds_no_more_than_those(self, slots, other, fits):
        scene = Scene().node(a_node("node-0", slots=slots))
        if other is not None:
            scene.pod(0, **other)
        assert verdict(scene) is (None if fits else ConflictReason.NODE_SLOTS_EXCEEDED)

    @pytest.mark.parametrize(
        ("here", "standing", "passed"),
        [
            pytest.param(1, {"z0": 2, "z1": 1}, {"z1"}, id="only where it holds"),
            pytest.param(1, {"z0": 1, "z1": 1}, {"z0", "z1"}, id="anywhere"),
            pytest.param(
                2,
                {"z0": 2, "z1": 2, "z2": 0},
                {"z2"},
                id="all zones count, also one without the vpod",
            ),
            pytest.param(9, {"z0": 0}, {"z0"}, id="one zone alone never refuses"),
            pytest.param(3, {"z0": 3, "z1": 5}, {"z0"}, id="nowhere, so the least bad passes"),
            pytest.param(3, {"z0": 4, "z1": 4}, {"z0", "z1"}, id="nowhere, and equally bad"),
        ],
    )
    def test_under_a_hard_zone_rule_a_pod_comes_back_where_it_holds(self, here, standing, passed):
        scene = returning(here, **standing)
        names = [f"node-{index}" for index in range(len(standing))]
        verdicts = filter_nodes(scene.state, the_pod_of(scene), names, scene.state.nodes.get)
        assert {scene.state.nodes[name].zone for name in verdicts.passed} == passed
        assert set(verdicts.unresolvable.values()) <= {(ConflictReason.ZONE_SKEW_EXCEEDED,)}

    def test_what_its_last_pod_held_and_nobody_publishes_decides_no_zone_once_it_is_old(self):
        scene = returning(0, z0=1, z1=0)
        scene.pod(5, {"tenant/a": 1}, node="node-0").no_pod(5).pod(5, node="", uid="the-pod")
        pod = the_pod_of(scene)
        assert verdict(scene, pod, "node-0") is ConflictReason.ZONE_SKEW_EXCEEDED, (
            "a status may be on its way"
        )
        for now in (100.0, 100.0 + HOLD_S):
            scene.state.expire(now)
        assert verdict(scene, pod, "node-0") is None

    def test_what_its_last_pod_held_and_is_published_decides_the_zone_for_ever(self):
        scene = returning(1, z0=1, z1=0)
        scene.pod(5, {"tenant/a": 1}, node="node-0").no_pod(5).pod(5, node="", uid="the-pod")
        for now in (100.0, 100.0 + HOLD_S):
            scene.state.expire(now)
        assert verdict(scene, the_pod_of(scene), "node-0") is ConflictReason.ZONE_SKEW_EXCEEDED

    def test_an_old_ledger_that_fills_the_pod_hides_nothing_that_is_published(self):
        """Seed 280000753: the replica that had missed the last pod's last ledger refused other
        nodes than the rest, and kube-scheduler wrote now this reason and now that one.
        """
        scene = returning(1, z0=2, z1=1)
        scene.pod(5, {"tenant/gone": 20}, node="node-0").no_pod(5).pod(5, node="", uid="the-pod")
        for now in (100.0, 100.0 + HOLD_S):
            scene.state.expire(now)
        assert verdict(scene, the_pod_of(scene), "node-0") is ConflictReason.ZONE_SKEW_EXCEEDED
        assert verdict(scene, the_pod_of(scene), "node-1") is None

    def test_a_pod_that_comes_back_with_nothing_goes_anywhere(self):
        scene = returning(0, z0=2, z1=0)
        assert verdict(scene, the_pod_of(scene), "node-0") is None

    def test_of_nodes_without_room_the_zones_are_no_alternative(self):
        scene = returning(5, z0=4, z1=1, z2=8).node(a_node("node-1", "z1", slots=0))
        pod = the_pod_of(scene)
        verdicts = filter_nodes(
            scene.state, pod, ["node-0", "node-1", "node-2"], scene.state.nodes.get
        )
        assert list(verdicts.passed) == ["node-0"]
        assert verdicts.failed == {"node-1": (ConflictReason.NODE_SLOTS_EXCEEDED,)}
        assert verdicts.unresolvable == {"node-2": (ConflictReason.ZONE_SKEW_EXCEEDED,)}

    def test_a_full_node_in_a_zone_that_has_its_share_says_both_and_eviction_does_not_cure_it(self):
        scene = returning(5, z0=4, z1=1, z2=8).node(a_node("node-2", "z2", slots=0))
        verdicts = filter_nodes(
            scene.state, the_pod_of(scene), ["node-1", "node-2"], scene.state.nodes.get
        )
        assert verdicts.failed == {}
        assert verdicts.unresolvable == {
            "node-2": (ConflictReason.NODE_SLOTS_EXCEEDED, ConflictReason.ZONE_SKEW_EXCEEDED)
        }

    def test_nodes_stay_in_the_order_asked(self):
        scene = Scene().node(a_node("node-1")).node(a_node("node-2", slots=1))
        verdicts = filter_nodes(
            scene.state, THE_POD, ["node-2", "node-1", "node-0"], scene.state.nodes.get
        )
        assert (list(verdicts.passed), list(verdicts.failed)) == (["node-1", "node-0"], ["node-2"])

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


class TestPreempt:
    def scene(self) -> Scene:
        scene = Scene().node(a_node("node-0", slots=20)).node(a_node("node-1", slots=20))
        scene.pod(0, {"tenant/a": 3}, node="node-0", uid="v0", slots=20, slots_request=20)
        return scene.pod(1, {"tenant/a": 5}, node="node-1", uid="v1", slots=20, slots_request=20)

    def answer(self, scene: Scene, proposed: dict[str, Victims], pod: AdapterPod = THE_POD):
        return preempt_nodes(scene.state, pod, proposed)

    def test_the_node_whose_victims_carry_least_is_chosen(self):
        assert self.answer(self.scene(), proposal(["v0"], ["v1"])) == proposal(["v0"])

    @pytest.mark.parametrize(
        ("proposed", "chosen"),
        [
            pytest.param(
                [(["v0"], 1), (["v1"], 0)],
                ["node-0"],
                id="fewest vreplicas, even if that breaks a budget",
            ),
            pytest.param(
                [(["x"], 1), (["y", "z"], 0)], ["node-1"], id="then fewest budgets broken"
            ),
            pytest.param(
                [(["x", "y"], 1), (["z"], 1)],
                ["node-0", "node-1"],
                id="then kube-scheduler chooses: one victim may be worth more than two",
            ),
        ],
    )
    def test_what_costs_least_is_kept(self, proposed, chosen):
        scene = self.scene().node(a_node("node-0")).node(a_node("node-1"))
        by_node = {
            f"node-{i}": Victims(tuple(uids), broken) for i, (uids, broken) in enumerate(proposed)
        }
        assert self.answer(scene, by_node) == {name: by_node[name] for name in chosen}

    def test_weighted_vreplicas_count_by_their_slots(self):
        scene = self.scene().pod(0, {"tenant/a": Share(2, 4)}, node="node-0", uid="v0", slots=20)
        assert list(self.answer(scene, proposal(["v0"], ["v1"]))) == ["node-1"]

    def test_a_node_that_would_not_be_helped_is_dropped(self):
        assert list(self.answer(self.scene(), proposal(["somebody-else"], ["v1"]))) == ["node-1"]

    def test_a_node_in_a_zone_where_the_pod_may_not_come_back_is_dropped(self):
        scene = (
            returning(1, z0=2, z1=1)
            .pod(8, node="node-0", uid="v0")
            .pod(9, {"tenant/x": 1}, node="node-1", uid="v1")
        )
        assert list(self.answer(scene, proposal(["v0"], ["v1"]), the_pod_of(scene))) == ["node-1"]

    def test_a_node_without_victims_is_never_answered(self):
        assert self.answer(Scene(), {"node-0": Victims(())}) == {}

    def test_a_node_that_nobody_knows_is_dropped(self):
        assert self.answer(self.scene(), {"ghost": Victims(("v0",))}) == {}

    def test_a_pod_that_would_bring_back_too_long_a_ledger_preempts_nobody(self):
        """Found by review: filter refuses it on every node, also on those that become free."""
        pod = replace(THE_POD, slots=2000, slots_request=2000)
        scene = Scene(slots=2000, replicas=10).node(a_node("node-0", slots=2000))
        scene.pod(0, node="node-0", uid="v0", slots=2000, slots_request=2000)
        assert self.answer(scene, proposal(["v0"]), pod) == proposal(["v0"])
        for number in range(600):
            scene.vpod(f"v{number:04d}-{'x' * 240}", 1, {9: 1}, namespace="n" * 63)
        assert self.answer(scene, proposal(["v0"]), pod) == {}

    def test_a_pod_that_fits_nowhere_preempts_nobody(self):
        assert self.answer(self.scene(), proposal(["v0"]), replace(THE_POD, owner="")) == {}

    @settings(max_examples=50, deadline=None)
    @given(
        st.dictionaries(
            st.sampled_from(["node-0", "node-1", "ghost"]),
            st.builds(
                Victims, st.lists(st.sampled_from(["v0", "v1", "x"])).map(tuple), st.integers(0, 2)
            ),
        )
    )
    def test_every_node_answered_was_proposed_with_those_victims_and_is_helped(self, victims):
        scene = self.scene()
        for node, those in self.answer(scene, victims).items():
            assert those.uids
            assert those == victims[node]
            gone = frozenset(those.uids)
            assert node_problem(scene.state, THE_POD, scene.state.nodes[node], without=gone) is None
