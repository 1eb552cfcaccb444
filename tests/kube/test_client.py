import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.kube import transport
from extender.kube.api import (
    LEASES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    AlreadyExists,
    Api,
    ApiError,
    Binding,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    ListOptions,
    NotFound,
    OutcomeUnknown,
    PatchType,
    Preconditions,
    TooManyRequests,
    WatchEvent,
    error_from_status,
)
from extender.kube.client import KubeApi
from tests.kube.apiserver import (
    ApiServer,
    answer,
    client_of,
    kubeconfig,
    overloaded,
    reset,
    silence,
    status,
    stream,
)

OBJ = {"metadata": {"name": "a"}}


async def collect(api: Api, **options: Any) -> list[WatchEvent]:
    return [event async for event in api.watch(PODS, resource_version="5", **options)]


async def test_a_list_asks_for_what_it_is_narrowed_to_and_returns_one_page(tmp_path: Path):
    server = ApiServer(
        [answer({"metadata": {"resourceVersion": "7", "continue": "c2"}, "items": [OBJ]})]
    )
    async with client_of(server, tmp_path) as api:
        options = ListOptions(
            namespace="ns", label_selector="a=b,c!=d", field_selector="spec.nodeName=n"
        )
        page = await api.list_page(
            PODS, options, limit=2, continue_token="c+/=1", resource_version="3"
        )
    assert (page.items, page.resource_version, page.continue_token) == ([OBJ], "7", "c2")
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("GET", "/api/v1/namespaces/ns/pods")
    assert seen.query == {
        "labelSelector": "a=b,c!=d",
        "fieldSelector": "spec.nodeName=n",
        "limit": "2",
        "continue": "c+/=1",
        "resourceVersion": "3",
    }
    assert seen.headers["Authorization"] == "Bearer secret"
    assert seen.headers["User-Agent"] == "vreplica-scheduler"


async def test_a_list_of_nothing_may_have_null_items(tmp_path: Path):
    async with client_of(
        ApiServer([answer({"metadata": {"resourceVersion": "7"}, "items": None})]), tmp_path
    ) as api:
        page = await api.list_page(NODES, limit=0)
    assert (page.items, page.resource_version, page.continue_token) == ([], "7", "")


async def test_each_verb_sends_what_the_api_server_reads(tmp_path: Path):
    server = ApiServer([answer(OBJ)])
    async with client_of(server, tmp_path) as api:
        await api.get(STATEFULSETS, "ns", "s", subresource="scale")
        await api.create(VPODS, "ns", OBJ)
        await api.update(STATEFULSETS, "ns", "s", {"spec": {"replicas": 3}}, subresource="scale")
        await api.patch(PODS, "ns", "p", [{"op": "test"}], patch_type=PatchType.JSON)
        await api.patch(
            VPODS, "ns", "v", {"status": {}}, patch_type=PatchType.MERGE, subresource="status"
        )
        await api.delete(PODS, "ns", "p", preconditions=Preconditions(uid="u"), grace_period_s=0)
        await api.bind(
            Binding("ns", "p", "node", uid="u", resource_version="4", annotations={"a": "{}"})
        )
        await api.bind(Binding("ns", "p", "node"))
    assert [(seen.method, seen.path) for seen in server.seen] == [
        ("GET", "/apis/apps/v1/namespaces/ns/statefulsets/s/scale"),
        ("POST", "/apis/vreplica.dev/v1alpha1/namespaces/ns/vpods"),
        ("PUT", "/apis/apps/v1/namespaces/ns/statefulsets/s/scale"),
        ("PATCH", "/api/v1/namespaces/ns/pods/p"),
        ("PATCH", "/apis/vreplica.dev/v1alpha1/namespaces/ns/vpods/v/status"),
        ("DELETE", "/api/v1/namespaces/ns/pods/p"),
        ("POST", "/api/v1/namespaces/ns/pods/p/binding"),
        ("POST", "/api/v1/namespaces/ns/pods/p/binding"),
    ]
    _, create, update, patch, merge, delete, bind, plain = server.seen
    assert create.json == {"apiVersion": "vreplica.dev/v1alpha1", "kind": "VPod", **OBJ}
    assert create.query == {"fieldManager": "vreplica-scheduler"}
    assert update.json == {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}}
    assert patch.headers["Content-Type"] == "application/json-patch+json"
    assert merge.headers["Content-Type"] == "application/merge-patch+json"
    assert delete.json["preconditions"] == {"uid": "u"}
    assert delete.json["gracePeriodSeconds"] == 0
    target = {"apiVersion": "v1", "kind": "Node", "name": "node"}
    metadata = {"name": "p", "namespace": "ns"}
    more = {"uid": "u", "resourceVersion": "4", "annotations": {"a": "{}"}}
    assert bind.json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata | more,
        "target": target,
    }
    assert plain.json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": target,
    }


async def test_names_are_quoted_and_paths_cannot_be_climbed(tmp_path: Path):
    server = ApiServer([answer(OBJ)])
    async with client_of(server, tmp_path) as api:
        await api.get(PODS, "ns", "a/../b?c")
        assert server.seen[0].path == "/api/v1/namespaces/ns/pods/a%2F..%2Fb%3Fc"
        for namespace, name in [("ns", ".."), ("..", "a"), ("", "a")]:
            with pytest.raises(Invalid):
                await api.get(PODS, namespace, name)
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        pytest.param(status(403, "Forbidden"), Forbidden, id="403"),
        pytest.param(status(404, "NotFound"), NotFound, id="404"),
        pytest.param(status(409, "Conflict"), Conflict, id="409 conflict"),
        pytest.param(status(409, "AlreadyExists"), AlreadyExists, id="409 exists"),
        pytest.param(status(410, "Expired"), Expired, id="410"),
        pytest.param(status(422, "Invalid"), Invalid, id="422"),
        pytest.param(status(429, "TooManyRequests"), TooManyRequests, id="429"),
        pytest.param(status(500, "InternalError"), ApiError, id="500"),
        pytest.param(status(503, "ServiceUnavailable"), ApiError, id="503"),
        pytest.param(
            status(500, "", "etcdserver: request timed out"), OutcomeUnknown, id="500 of etcd"
        ),
        pytest.param(status(504, "Timeout"), OutcomeUnknown, id="504"),
        pytest.param(stream(b"<html>not json"), OutcomeUnknown, id="200 without JSON"),
        pytest.param(answer([1]), OutcomeUnknown, id="200 without an object"),
        pytest.param(reset, OutcomeUnknown, id="reset"),
        pytest.param(stream(b'{"a":', then_reset=True), OutcomeUnknown, id="reset within the body"),
    ],
)
async def test_every_answer_has_its_error_and_a_write_is_sent_once(
    tmp_path: Path, handler: Any, kind: type[ApiError]
):
    server = ApiServer([answer(OBJ), handler])
    async with client_of(server, tmp_path) as api:
        # On a connection that is kept from another request, which is where HTTP clients like to
        # repeat.
        await api.get(PODS, "ns", "a")
        with pytest.raises(ApiError) as caught:
            await api.update(PODS, "ns", "a", OBJ)
    assert type(caught.value) is kind
    assert len(server.seen) == 2


async def test_a_proxys_page_is_the_message(tmp_path: Path):
    server = ApiServer([answer("x" * 5000, 503)])
    async with client_of(server, tmp_path) as api:
        with pytest.raises(ApiError, match="503 UnexpectedResponse") as caught:
            await api.get(PODS, "ns", "a")
    assert len(caught.value.message) <= 500


async def test_a_read_on_a_broken_connection_is_repeated_once(tmp_path: Path):
    server = ApiServer([reset, answer(OBJ), reset])
    async with client_of(server, tmp_path) as api:
        assert await api.get(PODS, "ns", "a") == OBJ
        with pytest.raises(OutcomeUnknown) as caught:
            await api.get(PODS, "ns", "a")
    assert len(server.seen) == 4
    assert caught.value.__cause__ is not None


async def test_no_answer_in_time_is_an_unknown_outcome_with_its_cause(tmp_path: Path):
    server = ApiServer([silence])
    async with client_of(server, tmp_path, timeout_s=0.05) as api:
        with pytest.raises(OutcomeUnknown, match="Timeout") as caught:
            await api.create(PODS, "ns", OBJ)
        with pytest.raises(OutcomeUnknown, match="Timeout"):
            await collect(api)
        assert api.requests["POST", "<error>"] == 1
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert len(server.seen) == 2


async def test_a_server_that_is_not_there_is_tried_again_and_then_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transport, "CONNECT_RETRY_S", 0.01)
    async with await KubeApi.connect(kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1")) as api:
        with pytest.raises(OutcomeUnknown, match="ConnectionFailed") as caught:
            await api.create(PODS, "ns", OBJ)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError | OSError)


async def test_redirects_are_not_followed(tmp_path: Path):
    server = ApiServer([answer({}, 307, Location="/elsewhere")])
    async with client_of(server, tmp_path) as api:
        with pytest.raises(ApiError, match="307"):
            await api.get(PODS, "ns", "a")
    assert [seen.path for seen in server.seen] == ["/api/v1/namespaces/ns/pods/a"]


@pytest.mark.parametrize(
    ("headers", "retry_after_s"),
    [
        pytest.param({"Retry_After": "7"}, 7.0, id="seconds"),
        pytest.param(
            {
                "Retry_After": "Fri, 31 Dec 1999 23:59:59 GMT",
                "Date": "Fri, 31 Dec 1999 23:59:50 GMT",
            },
            9.0,
            id="date, by the server's clock",
        ),
        pytest.param({"Retry_After": "soon"}, None, id="unreadable"),
        pytest.param({}, None, id="absent"),
    ],
)
async def test_retry_after_is_in_the_error(
    tmp_path: Path, headers: dict[str, str], retry_after_s: float | None
):
    async with client_of(ApiServer([status(429, "TooManyRequests", **headers)]), tmp_path) as api:
        with pytest.raises(TooManyRequests) as caught:
            await api.create(PODS, "ns", OBJ)
    assert caught.value.retry_after_s == retry_after_s


async def test_retry_after_holds_back_later_writes_but_no_reads_and_no_leases(tmp_path: Path):
    server = ApiServer([overloaded(retry_after_s=600), answer(OBJ)])
    async with client_of(server, tmp_path) as api:
        with pytest.raises(TooManyRequests):
            await api.create(PODS, "ns", OBJ)
        async with asyncio.timeout(5):
            await api.get(PODS, "ns", "a")
            await api.update(LEASES, "ns", "a", OBJ)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await api.create(PODS, "ns", OBJ)
    assert len(server.seen) == 3


async def test_a_body_over_the_limit_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transport, "RESPONSE_BYTES_MAX", 100_000)
    async with client_of(ApiServer([stream(*[b"x" * 50_000] * 3)]), tmp_path) as api:
        with pytest.raises(OutcomeUnknown, match="ResponseTooLarge"):
            await api.get(PODS, "ns", "a")


def lines(*events: Any) -> bytes:
    return b"".join(orjson.dumps(event) + b"\n" for event in events)


ADDED = {"type": "ADDED", "object": {"metadata": {"name": "größe", "resourceVersion": "6"}}}
BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
GONE = {
    "type": "ERROR",
    "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"},
}


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
async def test_a_watch_yields_events_however_the_stream_is_cut(tmp_path: Path, size: int):
    whole = lines(ADDED, BOOKMARK, ADDED)
    server = ApiServer([stream(*(whole[at : at + size] for at in range(0, len(whole), size)))])
    async with client_of(server, tmp_path) as api:
        events = await collect(api, timeout_s=240.0)
    assert [event.type for event in events] == ["ADDED", "BOOKMARK", "ADDED"]
    assert events[0].object == ADDED["object"]
    assert server.seen[0].query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "240",
    }


async def test_a_watch_takes_an_object_of_several_mebibytes(tmp_path: Path):
    big = {"type": "MODIFIED", "object": {"metadata": {"name": "big"}, "data": "x" * 5_000_000}}
    whole = lines(big, ADDED)
    async with client_of(
        ApiServer([stream(whole[:3_000_000], whole[3_000_000:])]), tmp_path
    ) as api:
        began = time.perf_counter()
        events = await collect(api)
    assert [event.type for event in events] == ["MODIFIED", "ADDED"]
    assert time.perf_counter() - began < 3


async def test_a_line_over_the_limit_ends_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transport, "LINE_BYTES_MAX", 1000)
    async with client_of(ApiServer([stream(lines(ADDED), *[b"x" * 600] * 3)]), tmp_path) as api:
        with pytest.raises(OutcomeUnknown, match="LineTooLong"):
            await collect(api)


@pytest.mark.parametrize(
    ("handler", "kind", "yielded"),
    [
        pytest.param(stream(lines(ADDED, GONE)), Expired, 1, id="410 within the stream"),
        pytest.param(status(410, "Expired"), Expired, 0, id="410 instead of a stream"),
        pytest.param(
            stream(lines({"type": "ERROR", "object": {"message": "?"}})),
            ApiError,
            0,
            id="error without code",
        ),
        pytest.param(
            stream(lines(ADDED), b'{"type":"AD', then_reset=True), OutcomeUnknown, 1, id="reset"
        ),
        pytest.param(
            stream(lines(ADDED), b'{"type":"AD'), OutcomeUnknown, 1, id="end within a line"
        ),
        pytest.param(stream(lines(ADDED), b"garbage\n"), OutcomeUnknown, 1, id="not JSON"),
        pytest.param(
            stream(lines({"type": "NEW", "object": {}})), OutcomeUnknown, 0, id="unknown type"
        ),
        pytest.param(stream(lines({"type": "ADDED"})), OutcomeUnknown, 0, id="no object"),
    ],
)
async def test_a_watch_that_fails_raises_after_what_it_brought(
    tmp_path: Path, handler: Any, kind: type[ApiError], yielded: int
):
    async with client_of(ApiServer([handler]), tmp_path) as api:
        events = api.watch(PODS, resource_version="5")
        for _ in range(yielded):
            assert (await anext(events)).type == "ADDED"
        with pytest.raises(ApiError) as caught:
            await anext(events)
    assert type(caught.value) is kind


async def test_a_watch_that_the_server_will_not_end_is_ended_by_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transport, "STREAM_GRACE_S", 0.05)

    async def endless(request: Any) -> Any:
        await stream(lines(ADDED))(request)
        return await silence(request)

    async with client_of(ApiServer([endless]), tmp_path) as api:
        assert len(await collect(api, timeout_s=0.05)) == 1


async def test_the_client_is_an_api(tmp_path: Path):
    async with client_of(ApiServer([answer(OBJ)]), tmp_path) as client:
        api: Api = client
        assert api is client


def test_a_refusal_names_the_field_and_the_cause_that_its_message_leaves_out():
    body = {
        "reason": "Invalid",
        "message": "the server rejected our request due to an error in our request",
        "details": {
            "causes": [
                {"message": "testing value /metadata/uid failed: test failed"},
                {"field": "spec.x", "message": "must be a number"},
                {"message": "an error in our request"},
                "no cause",
            ]
        },
    }
    error = error_from_status(422, body)
    assert error.message == (
        f"{body['message']} (testing value /metadata/uid failed: test failed; spec.x: must be a "
        f"number)"
    )
    assert error_from_status(422, {"message": "x", "details": {"causes": "y"}}).message == "x"


async def test_of_a_patch_whose_test_fails_the_error_says_what_was_tested(tmp_path: Path):
    words = "the server rejected our request due to an error in our request"
    server = ApiServer([status(422, "Invalid", words)])
    steps = [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "remove", "path": "/spec"},
    ]
    async with client_of(server, tmp_path) as api:
        with pytest.raises(Invalid, match=r"\(the patch tests /metadata/uid: somebody else"):
            await api.patch(PODS, "ns", "p", steps, patch_type=PatchType.JSON)
