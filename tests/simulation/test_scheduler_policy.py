"""What a legacy Policy makes of the embedded kube-scheduler's plugins. ``tests/e2e`` compares with
kube-scheduler 1.22.
"""

from typing import Any

import pytest

from extender.config.kube_scheduler_file import load_configuration
from extender.lab.scheduler.framework import CycleState, Profile
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.policy_profile import NotSimulated, profiles_of
from extender.lab.scheduler.types import Code, PodInfo, Status
from extender.lab.scheduler.volumebinding.binder import VolumeBinder
from tests.simulation.test_scheduler_plugins import a_cluster, a_node, a_pod


def profile_of(**fields: Any) -> Profile:
    listers = Listers()
    document = {"kind": "Policy", "apiVersion": "v1", **fields}
    (profile,) = profiles_of(
        load_configuration(str(document)), listers, VolumeBinder(listers)
    ).values()
    return profile


def named(*names: str, **more: Any) -> dict[str, Any]:
    return {"predicates": [{"name": name} for name in names], **more}


@pytest.mark.parametrize(
    ("predicates", "filters"),
    [
        pytest.param([], ["NodeUnschedulable", "TaintToleration"], id="the mandatory ones"),
        pytest.param(
            ["GeneralPredicates", "PodFitsResources", "HostName"],
            [
                "NodeUnschedulable",
                "NodeResourcesFit",
                "NodeName",
                "NodePorts",
                "NodeAffinity",
                "TaintToleration",
            ],
            id="a plugin runs once, in the order of the predicates",
        ),
        pytest.param(
            ["MatchInterPodAffinity", "CheckVolumeBinding", "NoDiskConflict", "MaxEBSVolumeCount"],
            [
                "NodeUnschedulable",
                "VolumeRestrictions",
                "TaintToleration",
                "VolumeBinding",
                "InterPodAffinity",
            ],
            id="volume limits have no plugin here",
        ),
    ],
)
def test_predicates_are_filter_plugins(predicates: list[str], filters: list[str]):
    assert [one.name for one in profile_of(**named(*predicates)).filters] == filters


@pytest.mark.parametrize(
    ("weights", "scores"),
    [
        pytest.param(
            {"TaintTolerationPriority": 5, "BalancedResourceAllocation": 2},
            [("NodeResourcesBalancedAllocation", 2), ("TaintToleration", 5)],
            id="with their weights, by name",
        ),
        pytest.param(
            {"SelectorSpreadPriority": 7, "EvenPodsSpreadPriority": 2},
            [("PodTopologySpread", 2)],
            id="two of one plugin: the first by name",
        ),
    ],
)
def test_priorities_are_score_plugins(weights: dict[str, int], scores: list[tuple[str, int]]):
    priorities = [{"name": name, "weight": weight} for name, weight in weights.items()]
    found = profile_of(priorities=priorities).scores
    assert [(plugin.name, weight) for plugin, weight in found] == scores


def test_n_label_preferences_have_n_times_the_weight():
    arguments = (
        {"labelPreference": {"label": "a", "presence": True}},
        {"labelPreference": {"label": "b", "presence": False}},
    )
    priorities = [{"name": "x", "weight": 3, "argument": argument} for argument in arguments]
    ((plugin, weight),) = profile_of(priorities=priorities).scores
    assert (plugin.name, weight) == ("NodeLabel", 6)
    labels = [{"a": ""}, {"a": "", "b": ""}, {"b": ""}]
    scored = [plugin.score(CycleState(), a_pod(), a_node(labels=one)) for one in labels]
    assert scored == [100, 50, 0]


def test_nodes_without_a_label_that_must_be_there_are_refused_for_good():
    argument = {"labelsPresence": {"labels": ["a"], "presence": True}}
    profile = profile_of(predicates=[{"name": "x", "argument": argument}])
    assert profile.run_filters(CycleState(), a_pod(), a_node(labels={"a": ""})) is None
    refused = profile.run_filters(CycleState(), a_pod(), a_node())
    text = "node(s) didn't have the requested labels"
    assert refused == Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (text,), "NodeLabel")


@pytest.mark.parametrize(("weight", "score"), [(0, 1), (9, 9)])
def test_the_symmetric_weight_of_required_affinity(weight: int, score: int):
    term = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {}}
    wants = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    snapshot = a_cluster(a_pod("q", node="a", affinity=wants), a="z0", b="z1")
    priorities = [{"name": "InterPodAffinityPriority", "weight": 1}]
    profile = profile_of(priorities=priorities, hardPodAffinitySymmetricWeight=weight)
    ((plugin, _),) = profile.scores
    state = CycleState()
    assert plugin.pre_score(state, a_pod(), snapshot.nodes, snapshot)
    raw = {node.name: plugin.score(state, a_pod(), node) for node in snapshot.nodes}
    assert raw == {"a": score, "b": 0}


TAINT = {"key": "k", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("check_all", "status"),
    [
        pytest.param(
            False,
            Status(Code.UNSCHEDULABLE, ("Too many pods",), "NodeResourcesFit"),
            id="the first refusal",
        ),
        pytest.param(
            True,
            Status(
                Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
                ("Too many pods", "node(s) had untolerated taint(s)"),
                "TaintToleration",
            ),
            id="all, and the most final code",
        ),
    ],
)
def test_always_check_all_predicates(check_all: bool, status: Status):
    profile = profile_of(**named("PodFitsResources"), alwaysCheckAllPredicates=check_all)
    node = a_node(taints=[TAINT], pods=0)
    assert profile.run_filters(CycleState(), a_pod(), node) == status


def test_what_is_not_simulated_does_not_start():
    argument = {"serviceAffinity": {"labels": ["zone"]}}
    with pytest.raises(NotSimulated, match="does not have serviceAffinity: leave it out"):
        profile_of(predicates=[{"name": "Zone", "argument": argument}])


class Broken:
    """A filter plugin that fails."""

    name = "Broken"

    def filter(self, _state: CycleState, _pod: PodInfo, _node: object) -> Status:
        return Status(Code.ERROR, ("out of order",))


def test_an_error_names_its_plugin():
    profile = Profile("s", [Broken()], [])  # type: ignore[list-item]
    status = profile.run_filters(CycleState(), a_pod(), a_node())
    assert status == Status(Code.ERROR, ('running "Broken" filter plugin: out of order',), "Broken")
