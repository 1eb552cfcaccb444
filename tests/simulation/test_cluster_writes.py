"""Versions, optimistic concurrency, subresources and bindings: what the API server promises about
writes.
"""

import pytest

from extender.kube.api import (
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITYCLASSES,
    STATEFULSETS,
    AlreadyExists,
    Api,
    ApiError,
    Binding,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Obj,
    PatchType,
)
from extender.lab.apiserver.cluster import Cluster
from extender.lab.embedded import node_object, stateful_set_object
from tests.simulation.cluster_scene import NS, WIDGETS, a_cluster, a_pod, a_widget, with_widgets

MERGE = PatchType.MERGE


async def test_a_cluster_is_an_api():
    api: Api = a_cluster()
    page = await api.list_page(NAMESPACES)
    names = [item["metadata"]["name"] for item in page.items]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_create_sets_system_fields_and_ignores_status():
    cluster = a_cluster()
    made = await cluster.create(PODS, NS, a_pod() | {"status": {"phase": "Running"}})
    metadata = made["metadata"]
    assert metadata["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert metadata["generation"] == 1
    assert len(metadata["uid"]) == 36
    assert metadata["namespace"] == NS
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert [item["tolerationSeconds"] for item in made["spec"]["tolerations"]] == [300, 300]


async def test_equal_seeds_give_equal_uids():
    first, second = [await a_cluster().create(PODS, NS, a_pod()) for _ in range(2)]
    assert first == second


async def test_generate_name_gets_a_random_suffix():
    cluster = a_cluster()
    pod = a_pod()
    pod["metadata"] = {"generateName": "job-"}
    made = [(await cluster.create(PODS, NS, pod))["metadata"]["name"] for _ in range(2)]
    assert all(name.startswith("job-") and len(name) == 9 for name in made)
    assert made[0] != made[1]


async def test_one_version_counter_serves_all_kinds():
    cluster = a_cluster()
    pod = await cluster.create(PODS, NS, a_pod())
    node = await cluster.create(NODES, "", node_object("n", "z"))
    assert int(node["metadata"]["resourceVersion"]) == int(pod["metadata"]["resourceVersion"]) + 1


async def test_what_callers_hold_is_never_what_is_stored():
    cluster = a_cluster()
    given = a_pod(labels={"a": "1"})
    made = await cluster.create(PODS, NS, given)
    for mine in (
        given,
        made,
        await cluster.get(PODS, NS, "p"),
        (await cluster.list_page(PODS)).items[0],
    ):
        mine["metadata"]["labels"]["a"] = "changed"
    patch = {"metadata": {"annotations": {"k": "v"}}}
    await cluster.patch(PODS, NS, "p", patch, patch_type=MERGE)
    patch["metadata"]["annotations"]["k"] = "changed"
    stored = await cluster.get(PODS, NS, "p")
    assert stored["metadata"]["labels"] == {"a": "1"}
    assert stored["metadata"]["annotations"] == {"k": "v"}


async def test_a_second_create_is_already_exists():
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod())
    with pytest.raises(AlreadyExists, match='pods "p" already exists'):
        await cluster.create(PODS, NS, a_pod())


async def test_create_in_a_missing_namespace_is_not_found():
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        await a_cluster().create(PODS, "nowhere", a_pod())


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "", "a" * 254])
async def test_create_with_a_bad_name_is_invalid(name):
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await a_cluster().create(PODS, NS, a_pod(name))


async def test_update_with_a_stale_version_is_a_conflict():
    cluster = a_cluster()
    old = await cluster.create(PODS, NS, a_pod())
    await cluster.patch(PODS, NS, "p", {"metadata": {"labels": {"a": "1"}}}, patch_type=MERGE)
    with pytest.raises(Conflict, match="the object has been modified"):
        await cluster.update(PODS, NS, "p", old)


async def test_update_without_a_version_is_unconditional_only_where_the_kind_allows_it():
    cluster = await with_widgets()
    pod = await cluster.create(PODS, NS, a_pod())
    del pod["metadata"]["resourceVersion"]
    pod["metadata"]["labels"] = {"a": "2"}
    assert (await cluster.update(PODS, NS, "p", pod))["metadata"]["labels"] == {"a": "2"}
    await cluster.create(WIDGETS, NS, a_widget())
    with pytest.raises(Invalid, match="must be specified for an update"):
        await cluster.update(WIDGETS, NS, "w", a_widget())


async def test_a_write_that_changes_nothing_keeps_the_version():
    cluster = a_cluster()
    made = await cluster.create(PODS, NS, a_pod(labels={"a": "1"}))
    same = await cluster.patch(
        PODS, NS, "p", {"metadata": {"labels": {"a": "1"}}}, patch_type=MERGE
    )
    assert same == made
    assert await cluster.update(PODS, NS, "p", made) == made
    assert cluster.version == int(made["metadata"]["resourceVersion"])


@pytest.mark.parametrize(
    ("metadata", "refusal", "words"),
    [
        pytest.param({"resourceVersion": "1"}, Conflict, "has been modified", id="version"),
        pytest.param({"uid": "another"}, Invalid, "metadata.uid: Invalid value", id="uid"),
        pytest.param(
            {"resourceVersion": "x"}, ApiError, "strconv.ParseUint", id="no version at all"
        ),
    ],
)
async def test_a_merge_patch_cannot_be_about_another_version_or_uid(metadata, refusal, words):
    cluster = a_cluster()
    made = await cluster.create(PODS, NS, a_pod())
    with pytest.raises(refusal, match=words):
        await cluster.patch(
            PODS, NS, "p", {"metadata": {**metadata, "labels": {"a": "1"}}}, patch_type=MERGE
        )
    assert await cluster.get(PODS, NS, "p") == made


async def test_generation_counts_changes_of_spec_only():
    cluster = await with_widgets({"size": {"type": "integer"}})
    await cluster.create(STATEFULSETS, NS, stateful_set_object("s"))
    await cluster.create(WIDGETS, NS, a_widget(size=1))
    for resource, name, spec in ((STATEFULSETS, "s", {"replicas": 3}), (WIDGETS, "w", {"size": 2})):
        labelled = await cluster.patch(
            resource, NS, name, {"metadata": {"labels": {"a": "1"}}}, patch_type=MERGE
        )
        status = {"status": {"replicas": 1}}
        await cluster.patch(resource, NS, name, status, patch_type=MERGE, subresource="status")
        changed = await cluster.patch(resource, NS, name, {"spec": spec}, patch_type=MERGE)
        assert (labelled["metadata"]["generation"], changed["metadata"]["generation"]) == (1, 2)


@pytest.mark.parametrize(
    ("resource", "name", "metadata_is_written"),
    [
        pytest.param(PODS, "p", True, id="pod: labels too"),
        pytest.param(NODES, "n", True, id="node: labels too"),
        pytest.param(STATEFULSETS, "s", True, id="statefulset: labels too"),
        pytest.param(WIDGETS, "w", False, id="custom: status only"),
    ],
)
async def test_main_writes_ignore_status_and_status_writes_ignore_spec(
    resource, name, metadata_is_written
):
    cluster = await with_widgets({"size": {"type": "integer"}})
    namespace = NS if resource.namespaced else ""
    objects = {
        "p": a_pod(),
        "n": node_object("n", "z"),
        "s": stateful_set_object("s"),
        "w": a_widget(size=1),
    }
    made = await cluster.create(resource, namespace, objects[name])
    change = {"metadata": {"labels": {"new": "1"}}, "spec": {"size": 9}, "status": {"x": "y"}}
    if name == "s":
        change["spec"] = {"replicas": 9}
    stored = await cluster.patch(
        resource, namespace, name, change, patch_type=MERGE, subresource="status"
    )
    assert stored["status"]["x"] == "y"
    assert stored["spec"] == made["spec"]
    assert ("new" in stored["metadata"].get("labels", {})) is metadata_is_written
    again = await cluster.patch(resource, namespace, name, {"status": {"x": "z"}}, patch_type=MERGE)
    assert again["status"] == stored["status"]


async def test_status_of_a_kind_without_the_subresource_is_not_found():
    cluster = await with_widgets(status=False)
    await cluster.create(WIDGETS, NS, a_widget())
    with pytest.raises(NotFound, match=r'widgets\.example\.dev "w" not found'):
        await cluster.get(WIDGETS, NS, "w", subresource="status")
    await cluster.create(LEASES, NS, {"metadata": {"name": "l"}})
    with pytest.raises(NotFound, match="could not find the requested resource"):
        await cluster.get(LEASES, NS, "l", subresource="status")


async def test_node_name_cannot_be_patched_and_the_spec_of_a_pod_is_fixed():
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod())
    with pytest.raises(Invalid, match="spec: Forbidden"):
        await cluster.patch(PODS, NS, "p", {"spec": {"nodeName": "n"}}, patch_type=MERGE)
    with pytest.raises(Invalid, match="pod updates may not change fields other than"):
        await cluster.patch(PODS, NS, "p", {"spec": {"schedulerName": "other"}}, patch_type=MERGE)
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "registry.example/a:2"}]
    changed = await cluster.patch(PODS, NS, "p", image, patch_type=PatchType.JSON)
    assert changed["metadata"]["generation"] == 2


async def test_extended_resources_need_limits_equal_to_requests():
    cluster = a_cluster()
    pod = a_pod()
    pod["spec"]["containers"][0]["resources"] = {"requests": {"vreplica.dev/slots": "3"}}
    with pytest.raises(Invalid, match="Limit must be set"):
        await cluster.create(PODS, NS, pod)
    pod["spec"]["containers"][0]["resources"] = {"limits": {"vreplica.dev/slots": "3"}}
    made = await cluster.create(PODS, NS, pod)
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"vreplica.dev/slots": "3"}


async def test_priority_comes_from_the_class():
    cluster = a_cluster()
    await cluster.create(PRIORITYCLASSES, "", {"metadata": {"name": "high"}, "value": 1000})
    made = await cluster.create(PODS, NS, a_pod(priorityClassName="high"))
    assert made["spec"]["priority"] == 1000
    with pytest.raises(Forbidden, match="no PriorityClass with name low was found"):
        await cluster.create(PODS, NS, a_pod("q", priorityClassName="low"))


# bindings


async def a_cluster_with_pod(**spec) -> tuple[Cluster, Obj]:
    cluster = a_cluster()
    return cluster, await cluster.create(PODS, NS, a_pod(**spec))


async def test_a_binding_sets_node_annotations_and_condition_in_one_write():
    cluster, pod = await a_cluster_with_pod()
    version = cluster.version
    await cluster.bind(
        Binding(NS, "p", "n1", pod["metadata"]["uid"], str(version), {"ledger": "{}"})
    )
    bound = await cluster.get(PODS, NS, "p")
    assert cluster.version == version + 1
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"ledger": "{}"}
    assert bound["metadata"]["generation"] == 1
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [
        ("PodScheduled", "True")
    ]


@pytest.mark.parametrize(
    ("binding", "words"),
    [
        pytest.param(
            Binding(NS, "p", "n", uid="other"), "Precondition failed: UID", id="another uid"
        ),
        pytest.param(
            Binding(NS, "p", "n", resource_version="1"), "ResourceVersion", id="stale version"
        ),
    ],
)
async def test_a_binding_with_a_failed_precondition_is_a_conflict(binding, words):
    cluster, pod = await a_cluster_with_pod()
    with pytest.raises(Conflict, match=words):
        await cluster.bind(binding)
    assert await cluster.get(PODS, NS, "p") == pod


async def test_a_second_binding_is_a_conflict_and_changes_nothing():
    cluster, _ = await a_cluster_with_pod()
    await cluster.bind(Binding(NS, "p", "n1"))
    before = await cluster.get(PODS, NS, "p")
    with pytest.raises(Conflict, match='pod p is already assigned to node "n1"'):
        await cluster.bind(Binding(NS, "p", "n1", annotations={"a": "b"}))
    assert await cluster.get(PODS, NS, "p") == before


async def test_gated_and_missing_pods_cannot_be_bound():
    cluster, _ = await a_cluster_with_pod(schedulingGates=[{"name": "wait"}])
    with pytest.raises(Conflict, match="schedulingGates"):
        await cluster.bind(Binding(NS, "p", "n1"))
    with pytest.raises(NotFound, match='pods "q" not found'):
        await cluster.bind(Binding(NS, "q", "n1"))


# scale


async def test_scale_reads_and_writes_replicas():
    cluster = a_cluster()
    await cluster.create(STATEFULSETS, NS, stateful_set_object("s", replicas=2))
    scale = await cluster.get(STATEFULSETS, NS, "s", subresource="scale")
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == (
        "Scale",
        "autoscaling/v1",
        {"replicas": 2},
    )
    assert scale["status"]["selector"] == "app=s"
    scale["spec"]["replicas"] = 5
    await cluster.update(STATEFULSETS, NS, "s", scale, subresource="scale")
    await cluster.patch(
        STATEFULSETS, NS, "s", {"spec": {"replicas": 6}}, patch_type=MERGE, subresource="scale"
    )
    stored = await cluster.get(STATEFULSETS, NS, "s")
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (6, 3)


async def test_a_stale_or_negative_scale_is_refused():
    cluster = a_cluster()
    await cluster.create(STATEFULSETS, NS, stateful_set_object("s", replicas=2))
    stale = await cluster.get(STATEFULSETS, NS, "s", subresource="scale")
    for replicas in (4, 3):
        patch = {"spec": {"replicas": replicas}}
        await cluster.patch(STATEFULSETS, NS, "s", patch, patch_type=MERGE, subresource="scale")
    with pytest.raises(Conflict):
        await cluster.update(STATEFULSETS, NS, "s", stale, subresource="scale")
    with pytest.raises(Invalid, match="greater than or equal to 0"):
        await cluster.patch(
            STATEFULSETS, NS, "s", {"spec": {"replicas": -1}}, patch_type=MERGE, subresource="scale"
        )


async def test_only_some_fields_of_a_stateful_set_may_change():
    cluster = a_cluster()
    await cluster.create(STATEFULSETS, NS, stateful_set_object("s"))
    with pytest.raises(Invalid, match=r'spec\.serviceName: Invalid value: "x": field is immutable'):
        await cluster.patch(STATEFULSETS, NS, "s", {"spec": {"serviceName": "x"}}, patch_type=MERGE)


# leases and events


async def test_a_lease_is_taken_by_compare_and_swap():
    cluster = a_cluster()
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    first = await cluster.create(LEASES, NS, lease)
    first["spec"]["holderIdentity"] = "b"
    await cluster.update(LEASES, NS, "l", first)
    first["spec"]["holderIdentity"] = "c"
    with pytest.raises(Conflict):
        await cluster.update(LEASES, NS, "l", first)
    first["spec"]["leaseDurationSeconds"] = 0
    first["metadata"]["resourceVersion"] = str(cluster.version)
    with pytest.raises(Invalid, match="leaseDurationSeconds"):
        await cluster.update(LEASES, NS, "l", first)


def an_event(**fields) -> Obj:
    return {
        "metadata": {"name": "e"},
        "eventTime": "2023-11-14T22:13:20.000001Z",
        "reportingController": "vreplica-scheduler",
        "reportingInstance": "i",
        "action": "Placing",
        "reason": "Scheduled",
        "type": "Normal",
        "note": "fine",
        "regarding": {"kind": "Pod", "namespace": NS, "name": "p"},
    } | fields


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({"eventTime": None}, "eventTime: Required", id="no time"),
        pytest.param(
            {"reportingController": ""}, "reportingController: Required", id="no controller"
        ),
        pytest.param({"reportingInstance": ""}, "reportingInstance: Required", id="no instance"),
        pytest.param({"action": ""}, "action: Required", id="no action"),
        pytest.param({"reason": "r" * 129}, "reason: Invalid", id="long reason"),
        pytest.param({"action": "r" * 129}, "action: Invalid", id="long action"),
        pytest.param({"type": "Info"}, "type: Invalid", id="unknown type"),
        pytest.param({"note": "é" * 513}, "at most 1024", id="long note, in bytes"),
        pytest.param({"series": {"count": 1}}, "series.count: Invalid", id="series of one"),
    ],
)
async def test_an_event_that_the_api_refuses(fields, words):
    with pytest.raises(Invalid, match=words):
        await a_cluster().create(EVENTS, NS, an_event(**fields))


async def test_of_an_event_only_the_series_may_change():
    cluster = a_cluster()
    await cluster.create(EVENTS, NS, an_event())
    series = {"series": {"count": 2, "lastObservedTime": "2023-11-14T22:14:20.000001Z"}}
    assert (await cluster.patch(EVENTS, NS, "e", series, patch_type=MERGE))["series"]["count"] == 2
    with pytest.raises(Invalid, match="field is immutable"):
        await cluster.patch(EVENTS, NS, "e", {"note": "other"}, patch_type=MERGE)


# odd requests


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        pytest.param(
            {"metadata": {"name": "p", "namespace": "other"}}, "does not match", id="namespace"
        ),
        pytest.param(
            {"metadata": {"name": "p"}, "kind": "Node"}, "cannot be handled as a Pod", id="kind"
        ),
        pytest.param({"metadata": {"name": "p"}, "spec": {1, 2}}, "not JSON", id="not JSON"),
    ],
)
async def test_an_object_that_is_not_what_the_url_says_is_a_bad_request(obj, words):
    with pytest.raises(ApiError, match=words) as refused:
        await a_cluster().create(PODS, NS, obj)
    assert refused.value.status == 400


async def test_too_large_an_object_is_refused():
    pod = a_pod()
    pod["spec"]["volumes"] = ["x" * 2_000_000]
    with pytest.raises(ApiError) as refused:
        await a_cluster().create(PODS, NS, pod)
    assert refused.value.status == 413


async def test_a_dry_run_answers_and_stores_nothing():
    cluster = a_cluster()
    dry = cluster.dry_run()
    version = cluster.version
    assert (await dry.create(PODS, NS, a_pod()))["metadata"]["uid"]
    assert cluster.version == version
    await cluster.create(PODS, NS, a_pod())
    answered = await dry.patch(
        PODS, NS, "p", {"metadata": {"labels": {"a": "1"}}}, patch_type=MERGE
    )
    answered["spec"]["containers"].clear()
    await dry.delete(PODS, NS, "p")
    await dry.bind(Binding(NS, "p", "n"))
    stored = await cluster.get(PODS, NS, "p")
    assert stored["metadata"].get("labels") is None
    assert len(stored["spec"]["containers"]) == 1
    assert "nodeName" not in stored["spec"]
