"""What the comparison with kube-apiserver 1.37 has found (``tests/differential``), each as the real
one does it.
"""

import pytest

from extender.kube.api import (
    CONFIGMAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    ApiError,
    Binding,
    Conflict,
    Invalid,
    ListOptions,
    PatchType,
)
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.encoding import canonical_quantity
from extender.lab.apiserver.patch import strategic_merge_patch
from tests.e2e.objects import stateful_set
from tests.simulation.cluster_scene import NS, WIDGETS, a_cluster, a_pod, a_widget, with_widgets

MERGE = PatchType.MERGE
ZONE = "topology.kubernetes.io/zone"


async def a_bound_pod(**spec) -> Cluster:
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod(**spec))
    await cluster.bind(Binding(NS, "p", "n"))
    return cluster


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1000m", "1"),
        ("0.1", "100m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("512Ki", "512Ki"),
        ("1000", "1k"),
        ("1e3", "1e3"),
        ("100Ki", "100Ki"),
        ("1000Ei", "1000Ei"),
        ("0Ki", "0"),
        ("0.5Ki", "512"),
        ("1n", "1n"),
        ("0.1n", "1n"),
    ],
)
def test_a_quantity_is_stored_in_canonical_form(written: str, read: str):
    assert canonical_quantity(written) == read


async def test_quantities_of_pods_and_nodes_are_read_back_as_quantities():
    cluster = a_cluster()
    node = await cluster.create(
        NODES, "", {"metadata": {"name": "n"}, "status": {"capacity": {"pods": 10}}}
    )
    assert node["status"]["capacity"] == {"pods": "10"}
    pod = a_pod()
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2000m"}}
    assert (await cluster.create(PODS, NS, pod))["spec"]["containers"][0]["resources"][
        "requests"
    ] == {"cpu": "2"}
    with pytest.raises(ApiError, match="cannot be handled as a Node") as refused:
        await cluster.create(
            NODES, "", {"metadata": {"name": "o"}, "status": {"capacity": {"pods": "x"}}}
        )
    assert refused.value.status == 400


async def test_items_of_lists_name_their_kind_only_where_it_is_custom():
    cluster = await with_widgets()
    await cluster.create(WIDGETS, NS, a_widget())
    await cluster.create(PODS, NS, a_pod())
    assert "kind" not in (await cluster.list_page(PODS)).items[0]
    assert (await cluster.list_page(WIDGETS)).items[0]["kind"] == "Widget"


async def test_a_page_may_be_followed_by_an_empty_one():
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod("a", labels={"x": "1"}))
    await cluster.create(PODS, NS, a_pod("b"))
    wanted = ListOptions(NS, label_selector="x")
    first = await cluster.list_page(PODS, wanted, limit=1)
    second = await cluster.list_page(PODS, wanted, limit=1, continue_token=first.continue_token)
    assert (len(first.items), second.items, second.continue_token) == (1, [], "")


async def test_a_scale_of_nothing_has_no_replicas_in_its_spec():
    cluster = a_cluster()
    await cluster.create(STATEFULSETS, NS, stateful_set(NS, "s", 0))
    scale = await cluster.get(STATEFULSETS, NS, "s", subresource="scale")
    assert (scale["spec"], scale["status"]["replicas"]) == ({}, 0)


async def test_a_put_of_a_lease_that_is_not_there_creates_it():
    cluster = a_cluster()
    made = await cluster.update(
        LEASES, NS, "l", {"metadata": {"name": "l", "resourceVersion": "5"}}
    )
    assert made["spec"] == {}
    assert await cluster.get(LEASES, NS, "l") == made


async def test_a_create_cannot_name_a_version():
    cluster = a_cluster()
    pod = a_pod()
    pod["metadata"]["resourceVersion"] = "5"
    with pytest.raises(
        ApiError, match="resourceVersion should not be set on objects to be created"
    ) as refused:
        await cluster.create(PODS, NS, pod)
    assert refused.value.status == 500


async def test_a_lease_takes_no_time_without_microseconds():
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": "2020-01-02T03:04:05Z"}}
    with pytest.raises(ApiError, match="cannot be handled as a Lease") as refused:
        await a_cluster().create(LEASES, NS, lease)
    assert refused.value.status == 400


async def test_what_is_being_deleted_is_in_the_way_of_its_name_with_other_words():
    cluster = await a_bound_pod()
    await cluster.delete(PODS, NS, "p")
    with pytest.raises(ApiError, match='object is being deleted: pods "p" already exists'):
        await cluster.create(PODS, NS, a_pod())


async def test_a_second_delete_without_grace_of_its_own_shortens_nothing():
    cluster = await a_bound_pod(terminationGracePeriodSeconds=30)
    await cluster.delete(PODS, NS, "p", grace_period_s=100)
    await cluster.delete(PODS, NS, "p")
    assert (await cluster.get(PODS, NS, "p"))["metadata"]["deletionGracePeriodSeconds"] == 100


async def test_a_shorter_grace_counts_from_the_first_delete():
    cluster = await a_bound_pod()
    await cluster.delete(PODS, NS, "p", grace_period_s=100)
    before = (await cluster.get(PODS, NS, "p"))["metadata"]
    await cluster.delete(PODS, NS, "p", grace_period_s=-1)
    after = (await cluster.get(PODS, NS, "p"))["metadata"]
    assert (before["deletionTimestamp"], after["deletionTimestamp"]) == (
        "2023-11-14T22:15:00Z",
        "2023-11-14T22:13:21Z",
    )
    assert after["generation"] == before["generation"]


async def test_no_write_can_begin_a_deletion():
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod())
    for field, value in (
        ("deletionTimestamp", "2020-01-02T03:04:05Z"),
        ("deletionGracePeriodSeconds", 5),
    ):
        with pytest.raises(Invalid, match=f"metadata.{field}: Invalid value"):
            await cluster.patch(PODS, NS, "p", {"metadata": {field: value}}, patch_type=MERGE)


async def test_a_stale_uid_in_a_put_is_a_conflict():
    cluster = a_cluster()
    pod = await cluster.create(PODS, NS, a_pod())
    pod["metadata"]["uid"] = "another"
    with pytest.raises(Conflict, match="UID in precondition: another"):
        await cluster.update(PODS, NS, "p", pod)


async def test_binding_gives_the_pod_its_nodes_zone_and_ends_the_nomination():
    cluster = a_cluster()
    await cluster.create(
        NODES, "", {"metadata": {"name": "n", "labels": {ZONE: "z", "other": "x"}}}
    )
    await cluster.create(PODS, NS, a_pod())
    nomination = {"status": {"nominatedNodeName": "n"}}
    await cluster.patch(PODS, NS, "p", nomination, patch_type=MERGE, subresource="status")
    await cluster.bind(Binding(NS, "p", "n"))
    pod = await cluster.get(PODS, NS, "p")
    assert pod["metadata"]["labels"] == {ZONE: "z"}
    assert "nominatedNodeName" not in pod["status"]
    with pytest.raises(Invalid, match="already bound to a node"):
        await cluster.patch(PODS, NS, "p", nomination, patch_type=MERGE, subresource="status")


async def test_a_binding_without_a_node_is_refused_before_the_pod_is_looked_for():
    with pytest.raises(ApiError, match=r"target\.name: Required value") as refused:
        await a_cluster().bind(Binding(NS, "nobody", ""))
    assert (refused.value.status, refused.value.reason) == (500, "")


async def test_a_pod_keeps_its_quality_of_service_when_its_status_is_replaced():
    cluster = a_cluster()
    pod = await cluster.create(PODS, NS, a_pod())
    pod["status"] = {"phase": "Running"}
    stored = await cluster.update(PODS, NS, "p", pod, subresource="status")
    assert stored["status"] == {"phase": "Running", "qosClass": "BestEffort"}


async def test_a_gated_pod_may_be_given_more_node_selector_and_no_other_pod_may():
    cluster = a_cluster()
    gates = [{"name": "example.dev/wait"}]
    await cluster.create(PODS, NS, a_pod("gated", schedulingGates=gates, nodeSelector={"a": "b"}))
    await cluster.create(PODS, NS, a_pod())
    more, other = {"spec": {"nodeSelector": {"c": "d"}}}, {"spec": {"nodeSelector": {"a": "x"}}}
    stored = await cluster.patch(PODS, NS, "gated", more, patch_type=MERGE)
    assert stored["spec"]["nodeSelector"] == {"a": "b", "c": "d"}
    for name, patch in (("gated", other), ("p", more)):
        with pytest.raises(Invalid, match="spec: Forbidden"):
            await cluster.patch(PODS, NS, name, patch, patch_type=MERGE)


async def test_a_gated_pod_says_so_from_the_start():
    pod = await a_cluster().create(PODS, NS, a_pod(schedulingGates=[{"name": "example.dev/wait"}]))
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")


async def test_the_template_of_a_stateful_set_has_fewer_defaults_than_a_pod():
    cluster = a_cluster()
    made = await cluster.create(STATEFULSETS, NS, stateful_set(NS, "s", 1))
    assert "enableServiceLinks" not in made["spec"]["template"]["spec"]
    assert (await cluster.create(PODS, NS, a_pod()))["spec"]["enableServiceLinks"] is True


async def test_tolerations_that_are_taken_away_come_back_as_defaults():
    cluster = a_cluster()
    made = await cluster.create(PODS, NS, a_pod())
    assert (
        await cluster.patch(PODS, NS, "p", {"spec": {"tolerations": None}}, patch_type=MERGE)
        == made
    )


async def test_a_config_map_that_is_immutable_stays_as_it_is():
    cluster = a_cluster()
    await cluster.create(
        CONFIGMAPS, NS, {"metadata": {"name": "c"}, "data": {"k": "1"}, "immutable": True}
    )
    with pytest.raises(Invalid, match="field is immutable when `immutable` is set"):
        await cluster.patch(CONFIGMAPS, NS, "c", {"data": {"k": "2"}}, patch_type=MERGE)


@pytest.mark.parametrize(
    ("resource", "obj", "words"),
    [
        pytest.param(
            NODES,
            {"spec": {"taints": [{"key": "a", "effect": "x"}]}},
            "taints\\[0\\].effect",
            id="taint",
        ),
        pytest.param(
            NAMESPACES, {"spec": {"finalizers": ["x"]}}, "spec.finalizers", id="namespace"
        ),
        pytest.param(
            CONFIGMAPS, {"data": {"not a key": ""}}, "data\\[not a key\\]", id="config map"
        ),
        pytest.param(
            EVENTS, {"regarding": {"namespace": "x"}}, "does not match event.namespace", id="event"
        ),
        pytest.param(
            PODS, a_pod(restartPolicy="Maybe"), "restartPolicy: Unsupported value", id="pod"
        ),
        pytest.param(
            CONFIGMAPS,
            {"metadata": {"finalizers": ["x"]}},
            "metadata.finalizers\\[0\\]",
            id="finalizer",
        ),
    ],
)
async def test_content_that_the_real_one_refuses(resource, obj, words):
    wanted = {**obj, "metadata": {"name": "o", **obj.get("metadata", {})}}
    with pytest.raises(Invalid, match=words):
        await a_cluster().create(resource, NS if resource.namespaced else "", wanted)


@pytest.mark.parametrize(
    ("patch", "order"),
    [
        pytest.param(["new"], ["new", "a", "b"], id="new ones come first"),
        pytest.param(["b", "new"], ["a", "b", "new"], id="known ones keep their place"),
        pytest.param(["new", "b"], ["new", "a", "b"], id="both"),
    ],
)
def test_the_order_of_a_list_that_a_strategic_merge_patch_has_merged(patch, order):
    before = {"containers": [{"name": "a"}, {"name": "b"}]}
    merged = strategic_merge_patch(before, {"containers": [{"name": name} for name in patch]})
    assert [item["name"] for item in merged["containers"]] == order


async def test_a_release_answers_with_what_was_wanted_at_the_version_before():
    cluster = await with_widgets()
    widget = a_widget()
    widget["metadata"]["finalizers"] = ["example.dev/hold"]
    await cluster.create(WIDGETS, NS, widget)
    await cluster.delete(WIDGETS, NS, "w")
    version = (await cluster.get(WIDGETS, NS, "w"))["metadata"]["resourceVersion"]
    gone = await cluster.patch(
        WIDGETS, NS, "w", {"metadata": {"finalizers": None}}, patch_type=MERGE
    )
    assert "finalizers" not in gone["metadata"]
    assert gone["metadata"]["resourceVersion"] == version
