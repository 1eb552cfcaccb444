"""Filter and score plugins against values worked out by hand from kube-scheduler 1.37's
formulas.
"""

import pytest

from extender.kube.api import NAMESPACES, STATEFULSETS
from extender.lab.scheduler.algorithm import nodes_to_find
from extender.lab.scheduler.cache import SchedulerCache, Snapshot
from extender.lab.scheduler.framework import CycleState
from extender.lab.scheduler.inter_pod_affinity import InterPodAffinity
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.pod_topology_spread import PodTopologySpread
from extender.lab.scheduler.predicates import (
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    TaintToleration,
)
from extender.lab.scheduler.priorities import (
    ImageLocality,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit as NodeResourcesFitScore,
    default_profile,
    normalized,
)
from extender.lab.scheduler.quantities import milli_value, nanos, pod_requests, whole_value
from extender.lab.scheduler.types import Code, NodeInfo, PodInfo, node_view, pod_info
from tests.simulation.scheduler_scene import node_object, pod_object

ZONE = "topology.kubernetes.io/zone"


def a_pod(name: str = "p", *, node: str = "", **fields) -> PodInfo:
    obj = pod_object(name, **fields)
    obj["metadata"]["uid"] = f"uid-{name}"
    if node:
        obj["spec"]["nodeName"] = node
    return pod_info(obj)


def a_cluster(*pods: PodInfo, **zones: str) -> Snapshot:
    """Nodes by name, each in that zone, 4 cpu and 8 GiB."""
    cache = SchedulerCache()
    for name, zone in zones.items():
        cache.put_node(node_view(node_object(name, labels={ZONE: zone})))
    for pod in pods:
        cache.put_pod(pod)
    return cache.snapshot()


def a_node(*pods: PodInfo, **fields) -> NodeInfo:
    node = NodeInfo(node_view(node_object("n", **fields)))
    for pod in pods:
        node.add_pod(pod)
    return node


@pytest.mark.parametrize(
    ("text", "milli", "whole"),
    [
        ("100m", 100, 1),
        ("1", 1000, 1),
        ("0.1", 100, 1),
        ("1.5Gi", 1610612736000, 1610612736),
        ("1e3", 1000000, 1000),
        ("12E", 12 * 10**21, 12 * 10**18),
        ("1n", 1, 1),
        ("0", 0, 0),
        ("nonsense", 0, 0),
    ],
)
def test_quantities_are_rounded_up_once(text, milli, whole):
    assert (milli_value(nanos(text)), whole_value(nanos(text))) == (milli, whole)


def test_a_pod_asks_for_the_larger_of_its_containers_and_its_init_containers_with_sidecars():
    def container(cpu: str, **more):
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    pod = {
        "spec": {
            "containers": [container("1"), container("500m")],
            "initContainers": [container("200m", restartPolicy="Always"), container("3")],
            "overhead": {"cpu": "50m"},
        }
    }
    assert milli_value(pod_requests(pod)["cpu"]) == 3250


def test_what_a_container_does_not_ask_for_counts_in_scores_only():
    pod = a_pod(cpu="1")
    assert (pod.requests.memory, pod.non_zero.memory) == (0, 200 * 1024 * 1024)


# Filters


def test_every_lacking_resource_is_a_reason_and_one_that_no_empty_node_has_is_hopeless():
    pod = a_pod(cpu="2", memory="1Gi", requests={"vreplica.dev/slots": "20"})
    status = NodeResourcesFit().filter(CycleState(), pod, a_node(a_pod("q", cpu="3")))
    assert status is not None
    assert status.reasons == ("Insufficient cpu", "Insufficient vreplica.dev/slots")
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_a_resource_that_only_an_extender_counts_is_not_looked_at():
    pod = a_pod(requests={"vreplica.dev/slots": "20"})
    assert NodeResourcesFit({"vreplica.dev/slots"}).filter(CycleState(), pod, a_node()) is None


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        pytest.param({"key": "k", "operator": "Exists"}, True, id="exists"),
        pytest.param({"key": "k", "value": "v", "effect": "NoSchedule"}, True, id="equal"),
        pytest.param({"key": "k", "value": "w"}, False, id="another value"),
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param(
            {"key": "k", "operator": "Exists", "effect": "NoExecute"}, False, id="another effect"
        ),
    ],
)
def test_taints(toleration, fits):
    node = a_node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    status = TaintToleration().filter(CycleState(), a_pod(tolerations=[toleration]), node)
    assert (status is None) is fits
    assert status is None or status.message == "node(s) had untolerated taint(s)"


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "size", "operator": "In", "values": ["3", "5"]}, True),
        ({"key": "size", "operator": "NotIn", "values": ["5"]}, False),
        ({"key": "none", "operator": "NotIn", "values": ["5"]}, True),
        ({"key": "size", "operator": "Exists"}, True),
        ({"key": "none", "operator": "DoesNotExist"}, True),
        ({"key": "size", "operator": "Gt", "values": ["4"]}, True),
        ({"key": "size", "operator": "Lt", "values": ["5"]}, False),
        ({"key": "size", "operator": "Gt", "values": ["x"]}, False),
        ({"key": "size", "operator": "Near", "values": ["5"]}, False),
    ],
)
def test_node_affinity_operators(expression, fits):
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]
            }
        }
    }
    status = NodeAffinity().filter(
        CycleState(), a_pod(affinity=affinity), a_node(labels={"size": "5"})
    )
    assert (status is None) is fits


def test_affinity_to_named_nodes_narrows_the_search_to_them():
    def named(*names: str) -> object:
        return {
            "matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [n]} for n in names
            ]
        }

    def required(*terms: object) -> object:
        return {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
            }
        }

    plugin = NodeAffinity()
    one = plugin.pre_filter(
        CycleState(), a_pod(affinity=required(named("a"), named("b"))), Snapshot()
    )
    assert one.nodes == frozenset({"a", "b"})
    none = plugin.pre_filter(CycleState(), a_pod(affinity=required(named("a", "b"))), Snapshot())
    assert none.status is not None
    assert none.status.message == "pod affinity terms conflict"


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({"hostPort": 80}, False),
        ({"hostPort": 80, "hostIP": "10.0.0.2"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, False),
        ({"hostPort": 80, "protocol": "UDP"}, True),
        ({"hostPort": 81}, True),
    ],
)
def test_host_ports(wanted, fits):
    def pod(name: str, port):
        return a_pod(name, containers=[{"name": "c", "ports": [port]}])

    node = a_node(pod("q", {"hostPort": 80, "hostIP": "10.0.0.1"}))
    assert (NodePorts().filter(CycleState(), pod("p", wanted), node) is None) is fits


def spread(when: str = "DoNotSchedule", **more):
    return [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": "x"}},
            **more,
        }
    ]


def fitting(plugin, pod: PodInfo, snapshot: Snapshot) -> set[str]:
    state = CycleState()
    plugin.pre_filter(state, pod, snapshot)
    return {node.name for node in snapshot.nodes if plugin.filter(state, pod, node) is None}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, {"b"}, id="the emptier zone"),
        pytest.param({"maxSkew": 2}, {"a", "b"}, id="a larger skew"),
        pytest.param(
            {"maxSkew": 2, "minDomains": 3},
            {"a", "b"},
            id="too few domains: the emptiest counts as 0",
        ),
    ],
)
def test_topology_spread_keeps_domains_even(more, expected):
    snapshot = a_cluster(a_pod("q", node="a", labels={"app": "x"}), a="z0", b="z1")
    pod = a_pod(labels={"app": "x"}, topologySpreadConstraints=spread(**more))
    assert fitting(PodTopologySpread(Listers()), pod, snapshot) == expected


def test_match_label_keys_count_only_pods_of_the_same_revision():
    old = a_pod("q", node="a", labels={"app": "x", "rev": "1"})
    pod = a_pod(
        labels={"app": "x", "rev": "2"}, topologySpreadConstraints=spread(matchLabelKeys=["rev"])
    )
    assert fitting(PodTopologySpread(Listers()), pod, a_cluster(old, a="z0", b="z1")) == {"a", "b"}


def affinity(kind: str, **term):
    full = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}, **term}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [full]}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_pod(affinity=affinity("podAffinity")), {"a"}, id="with x"),
        pytest.param(a_pod(affinity=affinity("podAntiAffinity")), {"b"}, id="away from x"),
        pytest.param(
            a_pod(affinity=affinity("podAffinity", namespaces=["other"])),
            set(),
            id="with x elsewhere",
        ),
        pytest.param(
            a_pod(
                labels={"app": "y"},
                affinity=affinity("podAffinity", labelSelector={"matchLabels": {"app": "y"}}),
            ),
            {"a", "b"},
            id="the first of its kind",
        ),
        pytest.param(
            a_pod(
                affinity=affinity(
                    "podAntiAffinity", namespaceSelector={"matchLabels": {"team": "t"}}
                )
            ),
            {"b"},
            id="away from x of that team",
        ),
    ],
)
def test_inter_pod_affinity(pod, expected):
    listers = Listers()
    listers.stores[NAMESPACES]["default"] = {
        "metadata": {"name": "default", "labels": {"team": "t"}}
    }
    snapshot = a_cluster(a_pod("q", node="a", labels={"app": "x"}), a="z0", b="z1")
    assert fitting(InterPodAffinity(listers), pod, snapshot) == expected


def test_running_pods_keep_others_away():
    guard = a_pod("q", node="a", affinity=affinity("podAntiAffinity"))
    snapshot = a_cluster(guard, a="z0", b="z1")
    assert fitting(InterPodAffinity(Listers()), a_pod(labels={"app": "x"}), snapshot) == {"b"}


# Scores


def test_least_allocated_is_the_mean_of_the_free_shares_in_whole_points():
    pod = a_pod(cpu="1", memory="3Gi")
    # cpu (4000-1000)*100/4000 = 75, memory (8-3)*100/8 = 62, mean 68
    assert NodeResourcesFitScore().score(CycleState(), pod, a_node()) == 68


def test_a_pods_own_requests_count_on_its_node_but_not_when_it_is_scored_itself():
    """1.36's NodeResourcesFit scores a pending pod by its containers alone; seen on kube-scheduler
    1.37.2.
    """
    own = a_pod(resources={"requests": {"cpu": "2", "memory": "4Gi"}})
    assert (own.requests.milli_cpu, own.requests.memory) == (2000, 4 * 2**30)
    assert NodeResourcesFitScore().score(CycleState(), own, a_node()) == 97
    assert NodeResourcesFitScore().score(CycleState(), a_pod("q"), a_node(own)) == 47


@pytest.mark.parametrize(
    ("running", "pod", "expected"),
    [
        # with: |0.25-0.375|/2 = 0.0625 -> 93; without: 100; 50 + (50 + 93 - 100)/2 = 71
        pytest.param(None, {"cpu": "1", "memory": "3Gi"}, 71, id="it makes an empty node uneven"),
        # with: |0.5-0.5|/2 -> 100; without: 0.5/2 -> 75; 50 + (50 + 25)/2 = 87
        pytest.param({"cpu": "2"}, {"memory": "4Gi"}, 87, id="it makes an uneven node even"),
    ],
)
def test_balanced_allocation_compares_with_and_without_the_pod(running, pod, expected):
    node = a_node(a_pod("q", **running)) if running else a_node()
    assert NodeResourcesBalancedAllocation().score(CycleState(), a_pod(**pod), node) == expected


def test_best_effort_pods_are_not_balanced():
    assert not NodeResourcesBalancedAllocation().pre_score(CycleState(), a_pod(), [], Snapshot())


def test_normalizing_truncates_and_reverses():
    assert normalized([3, 1, 0]) == [100, 33, 0]
    assert normalized([3, 1, 0], reverse=True) == [0, 67, 100]
    assert normalized([0, 0], reverse=True) == [100, 100]


def test_image_locality_weighs_size_by_how_many_nodes_have_the_image():
    cache = SchedulerCache()
    for name, images in (("a", [{"names": ["x:latest"], "sizeBytes": 500 * 2**20}]), ("b", [])):
        obj = node_object(name)
        obj["status"]["images"] = images
        cache.put_node(node_view(obj))
    snapshot = cache.snapshot()
    plugin = ImageLocality()
    plugin.pre_score(CycleState(), a_pod(), snapshot.nodes, snapshot)
    # 500 MiB on one of two nodes: 250 MiB of 23..1000 MiB
    assert [plugin.score(CycleState(), a_pod(), node) for node in snapshot.nodes] == [23, 0]


def test_a_stateful_sets_pods_spread_over_zones_by_default():
    listers = Listers()
    listers.stores[STATEFULSETS]["default/s"] = {
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
    }
    pod = a_pod(labels={"app": "x"})
    pod.obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": True}
    ]
    snapshot = a_cluster(a_pod("q", node="a", labels={"app": "x"}), a="z0", b="z1")
    plugin = PodTopologySpread(listers)
    state = CycleState()
    assert plugin.pre_score(state, pod, snapshot.nodes, snapshot)
    raw = [plugin.score(state, pod, node) for node in snapshot.nodes]
    # a: 1*ln(4)+2 (host) + 1*ln(4)+4 (zone) = 8.77; b: 2 + 4
    assert raw == [9, 6]
    assert plugin.normalize(state, raw, snapshot.nodes) == [66, 100]


def test_without_an_owner_nothing_spreads_by_default():
    snapshot = a_cluster(a="z0", b="z1")
    assert not PodTopologySpread(Listers()).pre_score(
        CycleState(), a_pod(), snapshot.nodes, snapshot
    )


def test_preferred_affinity_is_scaled_between_the_worst_and_the_best_node():
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}}
    preferred = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 7, "podAffinityTerm": term}
            ]
        }
    }
    snapshot = a_cluster(a_pod("q", node="a", labels={"app": "x"}), a="z0", b="z1", c="z0")
    plugin = InterPodAffinity(Listers())
    state = CycleState()
    assert plugin.pre_score(state, a_pod(affinity=preferred), snapshot.nodes, snapshot)
    raw = {node.name: plugin.score(state, a_pod(), node) for node in snapshot.nodes}
    assert raw == {"a": -7, "b": 0, "c": -7}
    assert plugin.normalize(state, list(raw.values()), snapshot.nodes) == [
        100 if name == "b" else 0 for name in raw
    ]


def test_totals_are_weighted_as_in_the_default_profile():
    snapshot = a_cluster(a="z0", b="z1")
    profile = default_profile(Listers())
    totals = profile.run_scores(
        CycleState(), a_pod(cpu="1", memory="2Gi"), snapshot.nodes, snapshot
    )
    assert totals[0].scores == {
        "TaintToleration": 300,
        "NodeResourcesFit": 75,
        "NodeResourcesBalancedAllocation": 75,
        "ImageLocality": 0,
    }
    assert totals[0].total == 450


@pytest.mark.parametrize(
    ("nodes", "percentage", "expected"),
    [(50, 0, 50), (100, 5, 100), (1000, 0, 420), (5000, 100, 5000), (10000, 0, 500)],
)
def test_how_many_nodes_are_looked_for(nodes, percentage, expected):
    assert nodes_to_find(nodes, percentage) == expected


# Cache


def test_nodes_are_listed_zone_by_zone_in_turn():
    snapshot = a_cluster(a0="a", a1="a", a2="a", b0="b", c0="c")
    assert [node.name for node in snapshot.nodes] == ["a0", "b0", "c0", "a1", "a2"]


def test_a_snapshot_does_not_change_under_a_cycle():
    cache = SchedulerCache()
    cache.put_node(node_view(node_object("n")))
    node = cache.snapshot().nodes[0]
    cache.put_pod(a_pod("q", node="n", cpu="1"))
    assert node.milli_cpu == 0
    assert cache.snapshot().nodes[0].milli_cpu == 1000


def test_adding_and_removing_pods_leaves_nothing_behind():
    cache = SchedulerCache(assumed_pod_expiry_s=30)
    cache.put_node(node_view(node_object("n")))
    pod = a_pod(cpu="1", requests={"vreplica.dev/slots": "3"})
    cache.assume(pod, "n")
    cache.finish_binding(pod.uid, 10.0)
    assert cache.expire(39.9) == []
    assert [gone.name for gone in cache.expire(40.0)] == ["p"]
    node = cache.snapshot().nodes[0]
    assert (node.milli_cpu, node.scalar, node.pods) == (0, {"vreplica.dev/slots": 0}, {})
