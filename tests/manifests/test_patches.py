"""What a component says of an object that the base has."""

from typing import Any

import pytest

from tests.manifests.patches import canonical, patch_of, removal_of


def an_object(kind: str, spec: Any, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": "a", "namespace": "b", **metadata},
        "spec": spec,
    }


def test_equal_objects_need_no_patch():
    assert patch_of(an_object("Role", {"x": 1}), an_object("Role", {"x": 1})) is None


@pytest.mark.parametrize(
    ("kind", "before", "after", "patch"),
    [
        pytest.param("Role", {"x": 1, "y": 2}, {"x": 3, "y": 2}, {"x": 3}, id="only what differs"),
        pytest.param("Role", {"x": 1, "y": 2}, {"y": 2}, {"x": None}, id="null for what goes"),
        pytest.param(
            "Role", {"x": {"a": 1}}, {"x": {"a": 1, "b": 2}}, {"x": {"b": 2}}, id="in the depth"
        ),
        pytest.param(
            "Role",
            {"rules": [1, 2]},
            {"rules": [2]},
            {"rules": [2]},
            id="a list without keys whole",
        ),
        pytest.param(
            "Deployment",
            {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]},
            {"containers": [{"name": "a", "image": "y"}, {"name": "c"}]},
            {
                "containers": [
                    {"name": "a", "image": "y"},
                    {"name": "c"},
                    {"name": "b", "$patch": "delete"},
                ]
            },
            id="items by their key",
        ),
        pytest.param(
            "Service",
            {"ports": [{"port": 1, "protocol": "TCP", "name": "a"}]},
            {"ports": [{"port": 1, "protocol": "UDP", "name": "a"}]},
            {
                "ports": [
                    {"port": 1, "protocol": "UDP", "name": "a"},
                    {"port": 1, "protocol": "TCP", "$patch": "delete"},
                ]
            },
            id="a key of two fields",
        ),
    ],
)
def test_a_patch_says_what_kustomize_needs(kind: str, before: Any, after: Any, patch: Any):
    found = patch_of(an_object(kind, before), an_object(kind, after))
    assert found == an_object(kind, patch)


def test_a_change_of_the_metadata_keeps_the_name():
    found = patch_of(an_object("Role", {}), an_object("Role", {}, annotations={"x": "y"}))
    assert found is not None
    assert found["metadata"] == {"name": "a", "namespace": "b", "annotations": {"x": "y"}}


def test_what_goes_is_named_and_nothing_else_is_said():
    assert removal_of(an_object("Role", {"x": 1})) == {
        "apiVersion": "v1",
        "kind": "Role",
        "metadata": {"name": "a", "namespace": "b"},
        "$patch": "delete",
    }


def test_merged_lists_are_compared_without_their_order_and_others_with_it():
    some = an_object(
        "Deployment", {"volumes": [{"name": "a"}, {"name": "b"}], "command": ["x", "y"]}
    )
    same = an_object(
        "Deployment", {"command": ["x", "y"], "volumes": [{"name": "b"}, {"name": "a"}]}
    )
    other = an_object(
        "Deployment", {"command": ["y", "x"], "volumes": [{"name": "b"}, {"name": "a"}]}
    )
    assert (
        canonical(some, "Deployment")
        == canonical(same, "Deployment")
        != canonical(other, "Deployment")
    )
