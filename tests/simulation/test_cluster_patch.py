"""JSON patch, merge patch and strategic merge patch, by rows; then what the server makes of patches
that fail.
"""

import asyncio
import copy

import orjson
import pytest
from hypothesis import given, strategies as st

from extender.kube.api import NODES, PODS, ApiError, Invalid, Obj, PatchType
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.patch import json_patch, merge_patch, strategic_merge_patch
from extender.lab.embedded import node_object
from tests.simulation.cluster_scene import NS, a_cluster, a_pod


@pytest.mark.parametrize(
    ("document", "operations", "result"),
    [
        pytest.param(
            {"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}, id="add member"
        ),
        pytest.param(
            {"a": 1}, [{"op": "add", "path": "/a", "value": 2}], {"a": 2}, id="add replaces"
        ),
        pytest.param(
            {"a": [1, 3]},
            [{"op": "add", "path": "/a/1", "value": 2}],
            {"a": [1, 2, 3]},
            id="insert",
        ),
        pytest.param(
            {"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}, id="append"
        ),
        pytest.param({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}, id="remove"),
        pytest.param(
            {"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}, id="remove element"
        ),
        pytest.param(
            {"a": 1}, [{"op": "replace", "path": "/a", "value": None}], {"a": None}, id="replace"
        ),
        pytest.param(
            {"a": {"b": 1}},
            [{"op": "move", "from": "/a/b", "path": "/c"}],
            {"a": {}, "c": 1},
            id="move",
        ),
        pytest.param(
            {"a": [1]},
            [{"op": "copy", "from": "/a", "path": "/b"}],
            {"a": [1], "b": [1]},
            id="copy",
        ),
        pytest.param({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}, id="test"),
        pytest.param(
            {},
            [{"op": "test", "path": "/a", "value": None}],
            {},
            id="test of an absent value for null",
        ),
        pytest.param(
            {"a/b": 1, "m~n": 2},
            [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/m~0n"}],
            {},
            id="escapes",
        ),
        pytest.param({"": 1}, [{"op": "test", "path": "/", "value": 1}], {"": 1}, id="empty name"),
    ],
)
def test_json_patch(document, operations, result):
    assert json_patch(document, operations) == result


def test_a_copy_in_a_json_patch_is_a_value_of_its_own():
    operations: list[Obj] = [
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/b/x", "value": 1},
    ]
    assert json_patch({"a": {}}, operations) == {"a": {}, "b": {"x": 1}}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/a", "value": 2}, id="test differs"),
        pytest.param({"op": "test", "path": "/flag", "value": 1}, id="true is not 1"),
        pytest.param({"op": "test", "path": "/absent", "value": 1}, id="test of an absent value"),
        pytest.param({"op": "remove", "path": "/absent"}, id="remove missing"),
        pytest.param({"op": "fly", "path": "/a"}, id="unknown operation"),
        pytest.param({"op": "add", "path": "a", "value": 1}, id="not a pointer"),
        pytest.param(
            {"op": "test", "path": "/absent/deeper", "value": None}, id="test below nothing"
        ),
        pytest.param({"op": "replace", "path": "/list/1", "value": 1}, id="replace out of bounds"),
        pytest.param({"op": "add", "path": "/absent/deeper", "value": 1}, id="add below nothing"),
        pytest.param({"op": "add", "path": "/list/5", "value": 1}, id="add out of bounds"),
        pytest.param({"op": "add", "path": "/list/01", "value": 1}, id="leading zero"),
        pytest.param({"op": "move", "from": "/list", "path": "/list/0"}, id="move into itself"),
        pytest.param({"op": "add", "path": "/a/b", "value": 1}, id="add below a number"),
    ],
)
def test_a_json_patch_that_does_not_apply_is_422(operation):
    with pytest.raises(
        Invalid, match="the server rejected our request due to an error in our request"
    ):
        json_patch({"a": 1, "flag": True, "list": [1]}, [operation])


def test_too_many_operations_of_a_json_patch_are_too_large_a_request():
    with pytest.raises(ApiError) as refused:
        json_patch({"a": None}, [{"op": "test", "path": "/a"}] * 10_001)
    assert refused.value.status == 413


def test_a_json_patch_replaces_a_member_that_is_not_there_and_takes_no_value_for_null():
    operations: list[Obj] = [
        {"op": "replace", "path": "/absent", "value": 1},
        {"op": "add", "path": "/null"},
    ]
    assert json_patch({"a": 1}, operations) == {"a": 1, "absent": 1, "null": None}


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}, id="remove"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="list by string"),
        pytest.param({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}, id="string by list"),
        pytest.param(
            {"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="nested"
        ),
        pytest.param({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="null below nothing"),
        pytest.param({"e": None}, {"a": 1}, {"e": None, "a": 1}, id="null that was there"),
    ],
)
def test_merge_patch(document, patch, result):
    assert merge_patch(document, patch) == result


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


@given(document=OBJECT, patch=OBJECT)
def test_a_merge_patch_applied_twice_is_as_applied_once(document, patch):
    once = merge_patch(copy.deepcopy(document), copy.deepcopy(patch))
    assert merge_patch(copy.deepcopy(once), copy.deepcopy(patch)) == once


@given(document=OBJECT, value=JSON)
def test_what_a_json_patch_adds_it_can_test_and_remove(document, value):
    before = orjson.dumps(document)
    operations = [
        {"op": "add", "path": "/new", "value": value},
        {"op": "test", "path": "/new", "value": value},
        {"op": "remove", "path": "/new"},
    ]
    assert orjson.dumps(json_patch(document, operations)) == before


CONTAINERS = {
    "containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]
}


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        pytest.param(
            {"containers": [{"name": "a", "image": "2"}]},
            {
                "containers": [
                    {"name": "a", "image": "2", "env": [{"name": "X", "value": "1"}]},
                    {"name": "b"},
                ]
            },
            id="merged by name",
        ),
        pytest.param(
            {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]},
            {
                "containers": [
                    {
                        "name": "a",
                        "image": "1",
                        "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}],
                    },
                    {"name": "b"},
                ]
            },
            id="nested list",
        ),
        pytest.param(
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": [{"name": "b"}]},
            id="delete element",
        ),
        pytest.param(
            {"containers": [{"$patch": "replace"}, {"name": "c"}]},
            {"containers": [{"name": "c"}]},
            id="replace list",
        ),
        pytest.param(
            {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "b", "image": "3"}],
            },
            {"containers": [{"name": "b", "image": "3"}, CONTAINERS["containers"][0]]},
            id="order",
        ),
        pytest.param({"containers": None}, {}, id="null"),
        pytest.param(
            {"tolerations": [{"key": "k"}]},
            CONTAINERS | {"tolerations": [{"key": "k"}]},
            id="list without a key",
        ),
    ],
)
def test_strategic_merge_patch(patch, result):
    assert strategic_merge_patch(copy.deepcopy(CONTAINERS), patch) == result


def test_strategic_directives_of_maps_and_primitive_lists():
    document = {
        "metadata": {"finalizers": ["a", "b"]},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {}},
    }
    patch = {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
        "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
    }
    assert strategic_merge_patch(document, patch) == {
        "metadata": {"finalizers": ["c", "b"]},
        "strategy": {"type": "Recreate"},
    }


async def test_a_failing_test_changes_nothing():
    cluster = a_cluster()
    made = await cluster.create(PODS, NS, a_pod(labels={"a": "1"}))
    operations = [
        {"op": "replace", "path": "/metadata/labels/a", "value": "2"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
    ]
    with pytest.raises(Invalid):
        await cluster.patch(PODS, NS, "p", operations, patch_type=PatchType.JSON)
    assert await cluster.get(PODS, NS, "p") == made


async def test_a_test_of_the_version_makes_a_json_patch_compare_and_swap():
    cluster = a_cluster()
    made = await cluster.create(PODS, NS, a_pod())
    version = made["metadata"]["resourceVersion"]
    operations = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/metadata/annotations", "value": {"vreplica.dev/placements": "{}"}},
    ]
    await cluster.patch(PODS, NS, "p", operations, patch_type=PatchType.JSON)
    with pytest.raises(Invalid):
        await cluster.patch(PODS, NS, "p", operations, patch_type=PatchType.JSON)


@pytest.mark.parametrize(
    ("patch", "patch_type", "status"),
    [
        pytest.param(
            [{"op": "remove", "path": "/metadata"}], PatchType.JSON, 422, id="no metadata left"
        ),
        pytest.param(
            [{"op": "replace", "path": "", "value": []}], PatchType.JSON, 422, id="no object left"
        ),
        pytest.param({"kind": "Node"}, PatchType.MERGE, 422, id="another kind"),
        pytest.param({"metadata": {"name": "q"}}, PatchType.MERGE, 400, id="another name"),
        pytest.param(
            {"metadata": {"labels": "x"}}, PatchType.MERGE, 422, id="labels that are none"
        ),
        pytest.param(
            {"metadata": {"annotations": {"a": 1}}},
            PatchType.MERGE,
            422,
            id="annotation that is a number",
        ),
        pytest.param(
            {"spec": {"containers": [None]}}, PatchType.MERGE, 422, id="container that is null"
        ),
        pytest.param({"spec": None}, PatchType.MERGE, 422, id="no spec"),
        pytest.param(
            {"status": {"conditions": 1}}, PatchType.MERGE, 422, id="conditions that are none"
        ),
        pytest.param([], PatchType.MERGE, 400, id="merge patch that is a list"),
        pytest.param({}, PatchType.JSON, 400, id="JSON patch that is an object"),
        pytest.param([1], PatchType.JSON, 400, id="operation that is a number"),
        pytest.param(
            {"metadata": {"labels": {"a": "no spaces"}}}, PatchType.MERGE, 422, id="invalid label"
        ),
        pytest.param(
            {"metadata": {"annotations": {"a": "x" * 300_000}}}, PatchType.MERGE, 422, id="too long"
        ),
    ],
)
async def test_a_patch_that_is_refused_leaves_the_object_alone(patch, patch_type, status):
    cluster = a_cluster()
    made = await cluster.create(PODS, NS, a_pod())
    with pytest.raises(ApiError) as refused:
        await cluster.patch(PODS, NS, "p", patch, patch_type=patch_type)
    assert refused.value.status == status
    assert await cluster.get(PODS, NS, "p") == made


async def answer_to(cluster: Cluster, patch: Obj) -> int:
    try:
        await cluster.patch(NODES, "", "n", patch, patch_type=PatchType.MERGE)
    except ApiError as refused:
        return refused.status
    return 200


@given(document=OBJECT)
def test_whatever_a_node_is_patched_with_it_answers_or_refuses(document):
    async def scenario() -> None:
        cluster = a_cluster()
        await cluster.create(NODES, "", node_object("n", "z"))
        for patch in (
            {"spec": document},
            {"metadata": document},
            {"metadata": {"labels": document}},
            document,
        ):
            assert await answer_to(cluster, patch) in (200, 400, 409, 422)

    asyncio.run(scenario())
