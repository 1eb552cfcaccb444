"""Custom resources: served from their definition on, defaulted, pruned, validated."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from extender.kube.api import (
    ADAPTERPOOLS,
    CRDS,
    VPODS,
    Invalid,
    NotFound,
    PatchType,
    WatchEvent,
    WatchEventType,
)
from tests.simulation.cluster_scene import (
    NS,
    WIDGETS,
    a_cluster,
    a_definition,
    a_widget,
    with_widgets,
)

MERGE = PatchType.MERGE
DEFINITIONS = Path(__file__).parents[2] / "manifests" / "crds"


async def test_a_kind_is_not_found_before_its_definition_and_after():
    cluster = a_cluster()
    with pytest.raises(NotFound, match="could not find the requested resource"):
        await cluster.list_page(WIDGETS)
    made = await cluster.create(CRDS, "", a_definition())
    conditions = {item["type"]: item["status"] for item in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    await cluster.create(WIDGETS, NS, a_widget())
    assert (await cluster.get(WIDGETS, NS, "w"))["apiVersion"] == "example.dev/v1"
    await cluster.delete(CRDS, "", "widgets.example.dev")
    with pytest.raises(NotFound):
        await cluster.get(WIDGETS, NS, "w")
    await cluster.create(CRDS, "", a_definition())
    assert (await cluster.list_page(WIDGETS)).items == []


@pytest.mark.looptime
async def test_a_watch_ends_with_its_definition_having_told_that_the_objects_are_gone():
    cluster = await with_widgets({})
    made = await cluster.create(WIDGETS, NS, a_widget())
    stream = cluster.watch(
        WIDGETS, resource_version=made["metadata"]["resourceVersion"], timeout_s=300
    )
    seen = asyncio.create_task(_all(stream))
    await asyncio.sleep(1)
    await cluster.delete(CRDS, "", "widgets.example.dev")
    async with asyncio.timeout(1):
        assert [event.type for event in await seen] == [WatchEventType.DELETED]


async def _all(stream: AsyncIterator[WatchEvent]) -> list[WatchEvent]:
    return [event async for event in stream]


async def test_a_changed_definition_holds_from_the_next_write_on():
    cluster = await with_widgets({"size": {"type": "integer"}})
    definition = await cluster.get(CRDS, "", "widgets.example.dev")
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["size"]["minimum"] = 5
    await cluster.update(CRDS, "", "widgets.example.dev", definition)
    with pytest.raises(Invalid):
        await cluster.create(WIDGETS, NS, a_widget(size=4))


async def test_defaults_are_filled_in_and_unknown_fields_pruned():
    limits = {
        "type": "object",
        "default": {},
        "properties": {"max": {"type": "integer", "default": 3}},
    }
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    items = {
        "type": "array",
        "items": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}},
    }
    cluster = await with_widgets(
        {"limits": limits, "free": free, "items": items, "n": {"type": "integer", "default": 1}}
    )
    made = await cluster.create(
        WIDGETS, NS, a_widget(unknown=1, free={"any": {"thing": 1}}, items=[{"b": 2}], n=None)
    )
    assert made["spec"] == {
        "limits": {"max": 3},
        "free": {"any": {"thing": 1}},
        "items": [{"a": "x"}],
        "n": 1,
    }


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        pytest.param({"type": "integer"}, "1", 'must be of type integer: "string"', id="type"),
        pytest.param({"type": "integer"}, 1.5, "must be of type integer", id="fraction"),
        pytest.param(
            {"type": "integer"}, True, "must be of type integer", id="boolean is no number"
        ),
        pytest.param(
            {"type": "integer", "minimum": 1}, 0, "greater than or equal to 1", id="minimum"
        ),
        pytest.param(
            {"type": "integer", "maximum": 9}, 10, "less than or equal to 9", id="maximum"
        ),
        pytest.param(
            {"type": "number", "minimum": 1, "exclusiveMinimum": True},
            1,
            "greater than 1",
            id="exclusive",
        ),
        pytest.param({"type": "integer", "multipleOf": 3}, 4, "multiple of 3", id="multiple"),
        pytest.param(
            {"type": "integer", "format": "int32"}, 2**31, "must be of type int32", id="int32"
        ),
        pytest.param({"type": "string", "minLength": 2}, "a", "at least 2 chars", id="min length"),
        pytest.param({"type": "string", "maxLength": 2}, "abc", "Too long", id="max length"),
        pytest.param({"type": "string", "pattern": "^a"}, "b", "should match", id="pattern"),
        pytest.param(
            {"type": "string", "enum": ["a", "b"]}, "c", 'supported values: "a", "b"', id="enum"
        ),
        pytest.param({"type": "string", "format": "date-time"}, "soon", "date-time", id="time"),
        pytest.param(
            {"type": "array", "items": {"type": "string"}},
            [None],
            'must be of type string: "null"',
            id="null",
        ),
        pytest.param(
            {"type": "array", "minItems": 1, "items": {"type": "string"}},
            [],
            "at least 1 items",
            id="min items",
        ),
        pytest.param(
            {"type": "array", "maxItems": 1, "items": {"type": "string"}},
            ["a", "b"],
            "Too many",
            id="max items",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "string"}},
            ["a", 1],
            r"spec\.field\[1\]",
            id="items",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            ["a", "a"],
            "Duplicate",
            id="set",
        ),
        pytest.param(
            {"type": "object", "required": ["a"]},
            {},
            r"spec\.field\.a: Required value",
            id="required",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"a": "b"},
            r"field\.a",
            id="map",
        ),
        pytest.param(
            {"x-kubernetes-int-or-string": True}, 1.5, "integer,string", id="int or string"
        ),
        pytest.param({"type": "integer", "not": {"enum": [3]}}, 3, "must not validate", id="not"),
        pytest.param(
            {"type": "integer", "oneOf": [{"minimum": 1}, {"minimum": 2}]},
            3,
            "one and only one",
            id="oneOf",
        ),
        pytest.param(
            {"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]},
            3,
            "at least one",
            id="anyOf",
        ),
    ],
)
async def test_a_value_that_the_schema_refuses(schema, value, words):
    cluster = await with_widgets({"field": schema})
    with pytest.raises(Invalid, match=words) as refused:
        await cluster.create(WIDGETS, NS, a_widget(field=value))
    assert refused.value.message.startswith('Widget.example.dev "w" is invalid: ')


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param({"type": "number"}, 1, id="integer as number"),
        pytest.param({"type": "string", "nullable": True}, None, id="nullable"),
        pytest.param({"x-kubernetes-int-or-string": True}, "50%", id="string"),
        pytest.param(
            {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
            },
            5,
            id="int",
        ),
        pytest.param({"type": "object", "additionalProperties": True}, {"a": [1]}, id="any map"),
    ],
)
async def test_a_value_that_the_schema_allows(schema, value):
    cluster = await with_widgets({"field": schema})
    made = await cluster.create(WIDGETS, NS, a_widget(field=value))
    assert made["spec"]["field"] == value


async def test_every_problem_is_told_at_once():
    cluster = await with_widgets({"a": {"type": "integer"}, "b": {"type": "string"}})
    with pytest.raises(Invalid, match=r"is invalid: \[spec\.a: .*, spec\.b: .*\]$"):
        await cluster.create(WIDGETS, NS, a_widget(a="x", b=1))


async def test_validation_holds_for_the_status_too():
    cluster = await with_widgets()
    definition = await cluster.get(CRDS, "", "widgets.example.dev")
    properties = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["status"] = {"type": "object", "properties": {"count": {"type": "integer"}}}
    await cluster.update(CRDS, "", "widgets.example.dev", definition)
    await cluster.create(WIDGETS, NS, a_widget())
    with pytest.raises(Invalid, match=r"status\.count"):
        await cluster.patch(
            WIDGETS, NS, "w", {"status": {"count": "x"}}, patch_type=MERGE, subresource="status"
        )


async def test_the_scale_of_a_custom_kind_follows_its_paths():
    paths = {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.size",
        "labelSelectorPath": ".status.sel",
    }
    cluster = await with_widgets({"size": {"type": "integer"}}, subresources={"scale": paths})
    await cluster.create(WIDGETS, NS, a_widget(size=2))
    status = {"status": {"size": 1, "sel": "a=b"}}
    await cluster.patch(WIDGETS, NS, "w", status, patch_type=MERGE, subresource="status")
    await cluster.patch(
        WIDGETS, NS, "w", {"spec": {"replicas": 4}}, patch_type=MERGE, subresource="scale"
    )
    scale = await cluster.get(WIDGETS, NS, "w", subresource="scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 4}, {"replicas": 1, "selector": "a=b"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            {"metadata": {"name": "gadgets.example.dev"}}, "must be spec.names.plural", id="name"
        ),
        pytest.param({"spec": {"scope": "Planet"}}, "Unsupported value", id="scope"),
        pytest.param(
            {"spec": {"versions": []}}, "exactly one version marked as storage", id="no version"
        ),
    ],
)
async def test_a_definition_that_is_refused(change, words):
    definition = a_definition()
    for part, fields in change.items():
        definition[part].update(fields)
    with pytest.raises(Invalid, match=words):
        await a_cluster().create(CRDS, "", definition)


async def test_a_pattern_that_is_no_expression_is_refused_with_its_definition():
    with pytest.raises(Invalid, match="must be a valid regular expression"):
        await with_widgets({"a": {"type": "string", "pattern": "("}})


@pytest.mark.skipif(not DEFINITIONS.is_dir(), reason="no manifests/crds here")
async def test_our_own_definitions_are_served():
    cluster = a_cluster()
    for name in ("vpods", "adapterpools"):
        definition = yaml.safe_load((DEFINITIONS / f"{name}.yaml").read_text())
        await cluster.create(CRDS, "", definition)
    spec = {"poolRef": {"namespace": NS, "name": "d"}, "vreplicas": 8}
    vpod = await cluster.create(VPODS, NS, {"metadata": {"name": "v"}, "spec": spec})
    assert vpod["spec"]["slotsPerVReplica"] == 1
    with pytest.raises(Invalid, match=r"spec\.vreplicas"):
        await cluster.patch(VPODS, NS, "v", {"spec": {"vreplicas": -1}}, patch_type=MERGE)
    pool = {"statefulSet": "d", "slotsPerPod": 20}
    await cluster.create(ADAPTERPOOLS, NS, {"metadata": {"name": "d"}, "spec": pool})
    with pytest.raises(Invalid, match=r"spec\.slotsPerPod"):
        await cluster.patch(ADAPTERPOOLS, NS, "d", {"spec": {"slotsPerPod": 0}}, patch_type=MERGE)
