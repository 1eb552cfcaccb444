"""What kubectl sends besides JSON: protobuf of a few kinds, and server-side apply; and what
``kubectl explain`` reads.
"""

from contextlib import suppress

import pytest

from extender.kube.api import CRDS, NAMESPACES, PODS
from extender.lab.http.protobuf import NotProtobuf, decode
from tests.simulation.cluster_scene import NS, WIDGETS, a_definition, a_pod
from tests.simulation.test_http_server import a_wire

PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}


def message(*fields: tuple[int, bytes | str | int]) -> bytes:
    """A protobuf message of short fields."""
    raw = b""
    for number, value in fields:
        if isinstance(value, int):
            raw += bytes([number << 3, value])
        else:
            data = value.encode() if isinstance(value, str) else value
            raw += bytes([number << 3 | 2, len(data)]) + data
    return raw


def a_body(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + message((1, message((1, api_version), (2, kind))), (2, raw))


LABELLED = message((1, "foo"), (11, message((1, "team"), (2, "a"))))


async def test_a_namespace_that_kubectl_sends_as_protobuf_is_created():
    async with a_wire() as wire:
        body = a_body("v1", "Namespace", message((1, LABELLED)))
        status, made = await wire.ask("POST", "/api/v1/namespaces", body, headers=PROTOBUF)
        assert (status, made["metadata"]["name"]) == (201, "foo")
        stored = await wire.cluster.get(NAMESPACES, "", "foo")
        assert stored["metadata"]["labels"]["team"] == "a"


async def test_an_eviction_as_protobuf_takes_the_pod_away():
    async with a_wire() as wire:
        pod = await wire.cluster.create(PODS, NS, a_pod())
        options = message((1, 0), (2, message((1, pod["metadata"]["uid"]))))
        raw = message((1, message((1, "p"), (3, NS))), (2, options))
        path = f"/api/v1/namespaces/{NS}/pods/p/eviction"
        status, _ = await wire.ask(
            "POST", path, a_body("policy/v1", "Eviction", raw), headers=PROTOBUF
        )
        assert status == 201
        assert (await wire.cluster.list_page(PODS)).items == []


async def test_another_kind_as_protobuf_is_refused_with_415():
    async with a_wire() as wire:
        body = a_body("v1", "Pod", message((1, LABELLED)))
        status, answer = await wire.ask(
            "POST", f"/api/v1/namespaces/{NS}/pods", body, headers=PROTOBUF
        )
        assert (status, answer["reason"]) == (415, "UnsupportedMediaType")


def test_an_eviction_keeps_its_options():
    raw = message((2, message((1, 30), (4, "Orphan"), (5, "All"), (2, message((2, "7"))))))
    assert decode(a_body("policy/v1", "Eviction", raw))["deleteOptions"] == {
        "gracePeriodSeconds": 30,
        "propagationPolicy": "Orphan",
        "dryRun": ["All"],
        "preconditions": {"resourceVersion": "7"},
    }


WHOLE = a_body("v1", "Namespace", message((1, LABELLED)))


@pytest.mark.parametrize(
    "body", [WHOLE[:size] for size in range(len(WHOLE))] + [b"k8s\x00" + b"\xff" * 40]
)
def test_a_body_that_is_cut_is_no_namespace_with_a_whole_name(body: bytes):
    with suppress(NotProtobuf):
        assert decode(body).get("metadata", {}).get("labels") != {"team": "a"}


async def test_server_side_apply_creates_and_then_merges():
    async with a_wire() as wire:
        await wire.cluster.create(
            CRDS, "", a_definition({"size": {"type": "integer"}, "color": {"type": "string"}})
        )
        path = f"{WIDGETS.path}/namespaces/{NS}/widgets/w?fieldManager=kubectl"
        head = {"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": "w"}}
        first = await wire.ask("PATCH", path, head | {"spec": {"size": 1}}, headers=APPLY)
        text = b"apiVersion: example.dev/v1\nkind: Widget\nspec: {color: red}\n"
        second = await wire.ask("PATCH", path, text, headers=APPLY)
        assert (first[0], second[0]) == (201, 200)
        assert second[1]["spec"] == {"size": 1, "color": "red"}


@pytest.mark.parametrize(
    ("query", "body"),
    [
        pytest.param("", {"apiVersion": "v1", "kind": "Pod"}, id="nobody applies"),
        pytest.param("?fieldManager=k", {"apiVersion": "v1", "kind": "Node"}, id="another kind"),
        pytest.param("?fieldManager=k", b"a: [", id="no YAML"),
        pytest.param("?fieldManager=k", b"- a", id="no object"),
        pytest.param(
            "?fieldManager=k", {"apiVersion": "v1", "kind": "Pod", "metadata": 3}, id="no metadata"
        ),
    ],
)
async def test_an_apply_that_cannot_be_read_is_a_bad_request(query: str, body: object):
    async with a_wire() as wire:
        status, _ = await wire.ask(
            "PATCH", f"/api/v1/namespaces/{NS}/pods/p{query}", body, headers=APPLY
        )
        assert status == 400


async def test_openapi_has_the_schemas_that_explain_shows():
    async with a_wire() as wire:
        size = {"type": "integer", "description": "How large."}
        await wire.cluster.create(CRDS, "", a_definition({"size": size}))
        _, document = await wire.ask("GET", "/openapi/v3/apis/example.dev/v1")
        (schema,) = document["components"]["schemas"].values()
        assert schema["x-kubernetes-group-version-kind"] == [
            {"group": "example.dev", "version": "v1", "kind": "Widget"}
        ]
        assert schema["properties"]["spec"]["properties"]["size"] == size
