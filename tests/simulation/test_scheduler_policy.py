"""What a legacy Policy makes of the embedded kube-scheduler's plugins. ``tests/e2e`` compares with
kube-scheduler 1.22.
"""

from typing import Any

import pytest

from extender.config.kube_scheduler_file import load_configuration
from extender.kube.api import Obj
from extender.lab.apiserver.registry import SERVICES
from extender.lab.scheduler.framework import CycleState, Profile
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.policy_profile import profiles_of
from extender.lab.scheduler.types import Code, PodInfo, Status
from extender.lab.scheduler.volumebinding.binder import VolumeBinder
from extender.model.reading import key_of
from tests.simulation.test_scheduler_plugins import a_cluster, a_node, a_pod

ZONE = "topology.kubernetes.io/zone"


def profile_of(known: Listers | None = None, **fields: Any) -> Profile:
    listers = known or Listers()
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
                "EBSLimits",
                "VolumeBinding",
                "InterPodAffinity",
            ],
            id="those of volumes",
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


def a_service(namespace: str = "default") -> Obj:
    metadata = {"name": "s", "namespace": namespace}
    return {"metadata": metadata, "spec": {"selector": {"app": "web"}}}


def of_services(argument: Obj, *services: Obj) -> Profile:
    kind = "predicates" if "serviceAffinity" in argument else "priorities"
    entries: dict[str, list[Obj]] = {"predicates": [], "priorities": []}
    listers = Listers()
    for service in services:
        listers.stores[SERVICES][key_of(service)] = service
    entries[kind].append({"name": "x", "weight": 2, "argument": argument})
    return profile_of(listers, **entries)


@pytest.mark.parametrize(
    ("services", "pod", "fitting"),
    [
        pytest.param([a_service()], {}, {"a", "b"}, id="beside its Service's pods"),
        pytest.param([], {}, {"a", "b", "c"}, id="no Service"),
        pytest.param([a_service("other")], {}, {"a", "b", "c"}, id="a Service elsewhere"),
        pytest.param([a_service()], {"nodeSelector": {ZONE: "z1"}}, {"c"}, id="as it asks itself"),
    ],
)
def test_service_affinity_keeps_the_pods_of_a_service_in_one_zone(
    services: list[Obj], pod: Obj, fitting: set[str]
):
    profile = of_services({"serviceAffinity": {"labels": [ZONE]}}, *services)
    there = a_pod("there", node="a", labels={"app": "web"})
    snapshot = a_cluster(there, a="z0", b="z0", c="z1")
    asked, state = a_pod("p", labels={"app": "web"}, **pod), CycleState()
    assert profile.run_pre_filters(state, asked, snapshot).status is None
    found = {node.name: profile.run_filters(state, asked, node) for node in snapshot.nodes}
    assert {name for name, status in found.items() if status is None} == fitting
    refusals = {status for status in found.values() if status is not None}
    text = "node(s) didn't match service affinity"
    assert refusals <= {Status(Code.UNSCHEDULABLE, (text,), "ServiceAffinity")}


def test_service_affinity_follows_a_trial_of_preemption():
    profile = of_services({"serviceAffinity": {"labels": [ZONE]}}, a_service())
    there = a_pod("there", node="a", labels={"app": "web"})
    snapshot = a_cluster(there, a="z0", b="z1")
    asked, state = a_pod("p", labels={"app": "web"}), CycleState()
    profile.run_pre_filters(state, asked, snapshot)
    assert profile.run_filters(state, asked, snapshot.get("b")) is not None
    profile.remove_pod(state, asked, there, snapshot.get("a"))
    assert profile.run_filters(state, asked, snapshot.get("b")) is None
    profile.add_pod(state, asked, there, snapshot.get("a"))
    assert profile.run_filters(state, asked, snapshot.get("b")) is not None


def test_service_anti_affinity_spreads_the_pods_of_a_service_over_a_label():
    profile = of_services({"serviceAntiAffinity": {"label": ZONE}}, a_service())
    pods = [
        a_pod(name, node=node, labels={"app": app})
        for name, node, app in (
            ("p1", "a", "web"), ("p2", "b", "web"), ("p3", "c", "web"), ("p4", "c", "db")
        )
    ]  # fmt: skip
    snapshot = a_cluster(*pods, a="z0", b="z0", c="z1")
    scores = profile.run_scores(
        CycleState(), a_pod("p", labels={"app": "web"}), snapshot.nodes, snapshot
    )
    assert {one.name: one.total for one in scores} == {"a": 66, "b": 66, "c": 132}


@pytest.mark.parametrize(
    ("shape", "cpu", "score"),
    [
        pytest.param([(0, 0), (100, 10)], "2", 50, id="rising"),
        pytest.param([(0, 10), (100, 0)], "1", 75, id="falling"),
        pytest.param([(50, 2), (100, 10)], "1", 20, id="flat before the first point"),
        pytest.param([(0, 2), (50, 10)], "3", 100, id="flat after the last point"),
        pytest.param([(0, 10), (100, 1)], "5", 10, id="more than there is"),
    ],
)
def test_the_capacity_ratio_follows_its_shape(shape: list[tuple[int, int]], cpu: str, score: int):
    points = [{"utilization": used, "score": points} for used, points in shape]
    resources = [{"name": "cpu", "weight": 3}, {"name": "example.com/gpu", "weight": 9}]
    argument = {"requestedToCapacityRatioArguments": {"shape": points, "resources": resources}}
    profile = profile_of(priorities=[{"name": "x", "weight": 1, "argument": argument}])
    ((plugin, _),) = profile.scores
    pod = a_pod("p", requests={"cpu": cpu})
    assert plugin.score(CycleState(), pod, a_node(cpu="4")) == score


class Broken:
    """A filter plugin that fails."""

    name = "Broken"

    def filter(self, _state: CycleState, _pod: PodInfo, _node: object) -> Status:
        return Status(Code.ERROR, ("out of order",))


def test_an_error_names_its_plugin():
    profile = Profile([Broken()], [])  # type: ignore[list-item]
    status = profile.run_filters(CycleState(), a_pod(), a_node())
    assert status == Status(Code.ERROR, ('running "Broken" filter plugin: out of order',), "Broken")
