"""How objects go: at once, with grace, after finalizers; with preconditions."""

import pytest

from extender.kube.api import (
    NAMESPACES,
    PODS,
    Binding,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PatchType,
    Preconditions,
)
from extender.lab.apiserver.cluster import Cluster
from tests.simulation.cluster_scene import NS, WIDGETS, a_cluster, a_pod, a_widget, with_widgets

MERGE = PatchType.MERGE


async def a_bound_pod(**spec) -> Cluster:
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod(**spec))
    await cluster.bind(Binding(NS, "p", "n1"))
    return cluster


async def test_an_unbound_pod_goes_at_once():
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod())
    await cluster.delete(PODS, NS, "p")
    with pytest.raises(NotFound):
        await cluster.get(PODS, NS, "p")


@pytest.mark.parametrize(
    ("own_s", "asked_s", "grace_s", "stamp"),
    [
        pytest.param(None, None, 30, "2023-11-14T22:13:50Z", id="default"),
        pytest.param(5, None, 5, "2023-11-14T22:13:25Z", id="the pod's own"),
        pytest.param(30, 10, 10, "2023-11-14T22:13:30Z", id="asked for"),
    ],
)
async def test_a_bound_pod_is_marked_with_its_grace(own_s, asked_s, grace_s, stamp):
    cluster = await a_bound_pod(
        **({} if own_s is None else {"terminationGracePeriodSeconds": own_s})
    )
    await cluster.delete(PODS, NS, "p", grace_period_s=asked_s)
    metadata = (await cluster.get(PODS, NS, "p"))["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == grace_s
    assert metadata["deletionTimestamp"] == stamp
    assert metadata["generation"] == 2
    version = cluster.version
    await cluster.delete(PODS, NS, "p")
    assert cluster.version == version


async def test_grace_can_be_shortened_and_zero_removes():
    cluster = await a_bound_pod()
    await cluster.delete(PODS, NS, "p")
    await cluster.delete(PODS, NS, "p", grace_period_s=5)
    assert (await cluster.get(PODS, NS, "p"))["metadata"]["deletionGracePeriodSeconds"] == 5
    await cluster.delete(PODS, NS, "p", grace_period_s=0)
    assert cluster.object_count(PODS) == 0


async def test_a_finished_pod_goes_at_once():
    cluster = await a_bound_pod()
    await cluster.patch(
        PODS, NS, "p", {"status": {"phase": "Failed"}}, patch_type=MERGE, subresource="status"
    )
    await cluster.delete(PODS, NS, "p")
    assert cluster.object_count(PODS) == 0


async def test_a_pod_being_deleted_cannot_be_bound():
    cluster = a_cluster()
    pod = a_pod()
    pod["metadata"]["finalizers"] = ["example.dev/hold"]
    await cluster.create(PODS, NS, pod)
    await cluster.delete(PODS, NS, "p")
    with pytest.raises(Conflict, match="being deleted, cannot be assigned to a host"):
        await cluster.bind(Binding(NS, "p", "n"))


@pytest.mark.parametrize(
    ("preconditions", "words"),
    [
        pytest.param(Preconditions(uid="x"), "the UID in the precondition", id="uid"),
        pytest.param(
            Preconditions("", "1"), "the ResourceVersion in the precondition", id="version"
        ),
    ],
)
async def test_a_failed_precondition_deletes_nothing(preconditions, words):
    cluster = a_cluster()
    made = await cluster.create(PODS, NS, a_pod())
    with pytest.raises(Conflict, match=words):
        await cluster.delete(PODS, NS, "p", preconditions=preconditions)
    fitting = Preconditions(made["metadata"]["uid"], made["metadata"]["resourceVersion"])
    await cluster.delete(PODS, NS, "p", preconditions=fitting)
    assert cluster.object_count(PODS) == 0


async def test_an_object_with_finalizers_stays_until_the_last_is_removed():
    cluster = await with_widgets()
    widget = a_widget()
    widget["metadata"]["finalizers"] = ["example.dev/a", "example.dev/b"]
    await cluster.create(WIDGETS, NS, widget)
    await cluster.delete(WIDGETS, NS, "w")
    marked = await cluster.get(WIDGETS, NS, "w")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    more = {"metadata": {"finalizers": ["example.dev/a", "example.dev/c"]}}
    with pytest.raises(Invalid, match="no new finalizers can be added"):
        await cluster.patch(WIDGETS, NS, "w", more, patch_type=MERGE)
    await cluster.patch(
        WIDGETS, NS, "w", {"metadata": {"finalizers": ["example.dev/b"]}}, patch_type=MERGE
    )
    assert cluster.object_count(WIDGETS) == 1
    await cluster.patch(WIDGETS, NS, "w", {"metadata": {"finalizers": None}}, patch_type=MERGE)
    assert cluster.object_count(WIDGETS) == 0


async def test_a_bound_pod_with_a_finalizer_needs_both_its_kubelet_and_the_finalizer():
    cluster = a_cluster()
    pod = a_pod()
    pod["metadata"]["finalizers"] = ["example.dev/hold"]
    await cluster.create(PODS, NS, pod)
    await cluster.bind(Binding(NS, "p", "n"))
    await cluster.delete(PODS, NS, "p")
    await cluster.delete(PODS, NS, "p", grace_period_s=0)
    assert (await cluster.get(PODS, NS, "p"))["metadata"]["deletionGracePeriodSeconds"] == 0
    await cluster.patch(PODS, NS, "p", {"metadata": {"finalizers": None}}, patch_type=MERGE)
    assert cluster.object_count(PODS) == 0


async def test_nothing_is_created_in_a_namespace_that_is_being_deleted():
    cluster = a_cluster()
    await cluster.create(NAMESPACES, "", {"metadata": {"name": "tenant"}})
    await cluster.delete(NAMESPACES, "", "tenant")
    namespace = await cluster.get(NAMESPACES, "", "tenant")
    assert namespace["status"]["phase"] == "Terminating"
    with pytest.raises(Forbidden, match="because it is being terminated"):
        await cluster.create(PODS, "tenant", a_pod())


async def test_a_recreated_object_is_another_one():
    cluster = a_cluster()
    first = await cluster.create(PODS, NS, a_pod())
    await cluster.delete(PODS, NS, "p")
    second = await cluster.create(PODS, NS, a_pod())
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
