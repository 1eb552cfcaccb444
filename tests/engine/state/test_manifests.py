"""What files leave out is filled in as a cluster would have it."""

import pytest

from extender.engine.state.manifests import Manifests
from extender.model.errors import InvalidObject
from extender.model.names import API_VERSION

POOL = {
    "apiVersion": API_VERSION,
    "kind": "AdapterPool",
    "metadata": {"name": "d"},
    "spec": {"statefulSet": "d-set", "slotsPerPod": 4},
}
STATEFUL_SET = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "d-set"},
    "spec": {"replicas": 1},
}


def a_pod(name: str, **labels: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": "n"},
    }


def read(*documents: object) -> Manifests:
    manifests = Manifests()
    for document in documents:
        manifests.add(document, "f.yaml")
    return manifests


def test_a_namespace_is_default():
    assert read(POOL, STATEFUL_SET).state().pool("default/d").stateful_set is not None


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        pytest.param(a_pod("d-set-0"), ["d-set-0"], id="by the StatefulSet in its name"),
        pytest.param(a_pod("any-0", **{"vreplica.dev/pool": "d"}), ["any-0"], id="by its label"),
        pytest.param(a_pod("other-0"), [], id="another's"),
        pytest.param(a_pod("d-set-0", app="x"), ["d-set-0"], id="with other labels"),
    ],
)
def test_a_pod_belongs_to_the_pool(pod, found):
    pods = [pod for pod in read(POOL, STATEFUL_SET, pod).adapter_pods() if pod.pool == "default/d"]
    assert [pod.name for pod in pods] == found


def test_a_node_that_no_file_shows_takes_work():
    assert read(POOL, STATEFUL_SET, a_pod("d-set-0")).state().pool("default/d").schedulable == 1


def test_a_namespace_that_no_file_shows_has_its_name_as_label():
    vpod = {
        "apiVersion": API_VERSION,
        "kind": "VPod",
        "metadata": {"name": "a", "namespace": "t"},
        "spec": {"poolRef": {"name": "d"}, "vreplicas": 1},
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "t"}}
    pool = {**POOL, "spec": {**POOL["spec"], "namespaceSelector": selector}}  # type: ignore[dict-item]
    state = read(pool, vpod).state()
    known = state.pool("default/d").adapter_pool
    assert known is not None
    assert state.allows(known, "t")
    assert not state.allows(known, "u")


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}},
            id="a kind of no interest",
        ),
        pytest.param({**POOL, "apiVersion": "vreplica.dev/v9"}, id="a version that is not known"),
    ],
)
def test_what_plays_no_part_is_skipped(document):
    manifests = read(document)
    assert len(manifests.skipped) == 1
    assert manifests.state().pools == {}


def test_an_item_of_a_list_is_read_like_a_document():
    assert (
        len(
            read(
                {
                    "apiVersion": "v1",
                    "kind": "List",
                    "items": [POOL, {"apiVersion": "v1", "kind": "List", "items": [STATEFUL_SET]}],
                }
            ).pools
        )
        == 1
    )


def test_an_error_names_the_source_where_the_object_has_no_name():
    with pytest.raises(InvalidObject) as caught:
        read({**POOL, "metadata": {}})
    assert (caught.value.subject, caught.value.field) == ("f.yaml", "metadata.name")


STREAMS = {
    "group": "example.dev",
    "version": "v1",
    "resource": "streams",
    "kind": "Stream",
    "paths": {"vreplicas": "spec.parallelism", "placements": "status.placements"},
}


def a_stream(name: str, wanted: object = 3, **metadata: object) -> dict[str, object]:
    return {
        "apiVersion": "example.dev/v1",
        "kind": "Stream",
        "metadata": {"name": name, "namespace": "t", **metadata},
        "spec": {"parallelism": wanted},
    }


def a_pool_of_streams(name: str = "d", **source: object) -> dict[str, object]:
    spec = {"statefulSet": "d-set", "slotsPerPod": 4, "sources": [{**STREAMS, **source}]}
    return {**POOL, "metadata": {"name": name}, "spec": spec}


def test_an_object_of_a_kind_that_a_pool_declares_is_a_vpod_of_it():
    # The object comes first: files have any order.
    manifests = read(a_stream("a"), a_pool_of_streams())
    assert manifests.skipped == []
    assert manifests.state().pool("default/d").vpods["t/a@stream.example.dev"].vreplicas == 3


def test_of_two_pools_the_first_has_it():
    state = read(a_pool_of_streams("e"), a_pool_of_streams("d"), a_stream("a")).state()
    assert (len(state.pool("default/d").vpods), len(state.pool("default/e").vpods)) == (1, 0)


def test_only_objects_with_the_labels_that_are_asked_for():
    pool = a_pool_of_streams(labelSelector={"matchLabels": {"tier": "gold"}})
    manifests = read(pool, a_stream("a"), a_stream("b", labels={"tier": "gold"}))
    assert list(manifests.state().pool("default/d").vpods) == ["t/b@stream.example.dev"]


def test_one_that_cannot_be_read_is_an_error_in_a_file_and_left_out_of_a_cluster():
    manifests = read(a_pool_of_streams(), a_stream("a", "many"), a_stream("b"))
    with pytest.raises(InvalidObject, match=r"Stream t/a: spec\.parallelism"):
        manifests.state()
    manifests.lenient = True
    assert list(manifests.state().pool("default/d").vpods) == ["t/b@stream.example.dev"]
    assert len(manifests.left_out) == 1
