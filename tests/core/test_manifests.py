"""What files leave out is filled in as a cluster would have it."""

import pytest

from extender.core.errors import InvalidObject
from extender.core.manifests import Manifests
from extender.core.names import API_VERSION

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
    known = state.pool("default/d").pool
    assert known is not None
    assert state.allows(known, "t")
    assert not state.allows(known, "u")


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}, id="a kind of no interest"
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
