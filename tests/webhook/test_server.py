import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import orjson
import pytest

from extender.kube.serving.guard import ConnectionLimits
from tests.kube.fakes import give_list
from tests.support.service import until
from tests.webhook.builders import (
    PLACEMENTS,
    a_namespace,
    a_pod,
    a_pool_object,
    a_vpod_object,
    caches,
    review,
)
from webhook.caches import WebhookCaches
from webhook.server import Limits, WebhookServer
from webhook.validate import DEFAULT_RULES

JSON = {"Content-Type": "application/json"}


@contextlib.asynccontextmanager
async def serving(
    view: WebhookCaches | None = None, **limits: Any
) -> AsyncIterator[tuple[WebhookServer, aiohttp.ClientSession]]:
    server = WebhookServer(
        view or caches(pools=[a_pool_object()]), DEFAULT_RULES, tls=None, limits=Limits(**limits)
    )
    port = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            yield server, client
    finally:
        await server.stop()


async def post(
    client: aiohttp.ClientSession, path: str, body: Any, headers: Mapping[str, str] = JSON
) -> tuple[int, bytes]:
    async with client.post(path, data=body, headers=headers) as response:
        return response.status, await response.read()


async def test_a_pod_is_patched_and_a_bad_vpod_denied():
    async with serving() as (_, client):
        status, body = await post(client, "/mutate", review(a_pod()))
        response = orjson.loads(body)["response"]
        assert (status, response["uid"], response["allowed"]) == (200, "u-1", True)
        assert any(
            op["path"] == "/spec/schedulerName"
            for op in orjson.loads(base64.b64decode(response["patch"]))
        )
        heavy = review(
            a_vpod_object(weight=99), resource="vpods", group="vreplica.dev", namespace="tenant-a"
        )
        status, body = await post(
            client, "/validate", heavy, {"Content-Type": "application/json; charset=utf-8"}
        )
        response = orjson.loads(body)["response"]
        assert (status, response["allowed"], response["status"]["code"]) == (200, False, 422)


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        pytest.param(
            b"{}",
            {"Content-Type": "text/plain"},
            400,
            "expected application/json",
            id="content type",
        ),
        pytest.param(b"{", JSON, 400, "not JSON", id="bad JSON"),
        pytest.param(b"{}", JSON, 400, "AdmissionReview", id="something else"),
        pytest.param(b"x" * 2001, JSON, 413, "larger than 2000 bytes", id="too long"),
        pytest.param(
            b"junk", {**JSON, "Content-Encoding": "gzip"}, 400, "Content-Encoding", id="an encoding"
        ),
    ],
)
async def test_what_is_no_review_gets_a_clear_4xx(path, body, headers, status, says):
    async with serving(body_bytes_max=2000) as (_, client):
        got, text = await post(client, path, body, headers)
        assert got == status
        assert says in text.decode()


async def test_a_chunked_body_has_the_same_limit():
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"x" * 100

    async with serving(body_bytes_max=2000) as (_, client):
        assert (await post(client, "/mutate", chunks()))[0] == 413


async def test_bodies_that_are_not_whole_leave_their_bytes_to_those_that_are():
    async with serving(bodies_bytes_max=5000) as (server, client):
        assert client._base_url is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
        writer.write(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: 4900\r\n\r\n" + b" " * 4800)
        await until(lambda: server._bodies.bytes_used == 4800, timeout_s=15)
        assert (await post(client, "/mutate", review(a_pod())))[0] == 200
        assert b" 408 " in await reader.readline()
        assert server._bodies.bytes_used == 0
        writer.close()
        await writer.wait_closed()


async def test_a_body_over_the_limit_of_all_together_is_refused_and_the_next_one_passes():
    async with serving(bodies_bytes_max=5000) as (_, client):
        async with client.post("/mutate", data=b" " * 6000, headers=JSON) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert "in memory already" in await response.text()
        assert (await post(client, "/mutate", review(a_pod())))[0] == 200


async def test_a_slow_head_is_cut():
    async with serving() as (server, client):
        server._listener.limits = ConnectionLimits(head_timeout_s=0.1)
        assert client._base_url is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
        writer.write(b"POST /mutate HT")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert server._listener.cut == {"slow head": 1}
        writer.close()


async def test_a_body_with_broken_chunks_is_refused():
    async with serving() as (_, client):
        assert client._base_url is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
        writer.write(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\nzz\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()


@pytest.mark.looptime
async def test_a_body_that_does_not_come_is_given_up():
    # Over a real socket with virtual time: the sender stalls, so nothing but the deadline can
    # happen.
    server = WebhookServer(caches(), DEFAULT_RULES, tls=None, limits=Limits(deadline_s=2.0))
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
        b"9\r\n\r\n{"
    )
    answer = await reader.readline()
    assert b"408" in answer
    writer.close()
    await server.stop()


async def test_other_methods_and_paths_are_refused():
    async with serving() as (_, client):
        async with client.get("/mutate") as response:
            assert response.status == 405
        assert (await post(client, "/nothing", b"{}"))[0] == 404


async def test_ready_when_every_cache_is_synced_and_until_shutdown():
    view = caches(synced=False)
    async with serving(view) as (server, client):
        async with client.get("/livez") as response:
            assert response.status == 200
        async with client.get("/readyz") as response:
            assert response.status == 503
            assert "[-] cache namespaces" in await response.text()
        give_list(view.namespaces, [a_namespace("x")], "1")
        async with client.get("/readyz") as response:
            assert response.status == 200
        server.shutting_down = True
        async with client.get("/readyz") as response:
            assert response.status == 503


async def test_reviews_are_answered_before_the_caches_are_synced():
    async with serving(caches(synced=False)) as (_, client):
        status, body = await post(client, "/mutate", review(a_pod()))
        assert status == 200
        assert orjson.loads(body)["response"]["warnings"]


async def test_metrics_count_results_by_path():
    async with serving() as (_, client):
        await post(client, "/mutate", review(a_pod()))
        await post(client, "/mutate", review(a_pod(pool=None)))
        await post(client, "/validate", review(a_pod(annotations={PLACEMENTS: "x"})))
        await post(client, "/validate", b"{")
        async with client.get("/metrics") as response:
            text = await response.text()
    for path, result in [
        ("mutate", "patched"),
        ("mutate", "allowed"),
        ("validate", "denied"),
        ("validate", "refused"),
    ]:
        assert f'vreplica_webhook_requests_total{{path="/{path}",result="{result}"}} 1.0' in text
    assert 'vreplica_webhook_cache_objects{kind="AdapterPool"} 1.0' in text


async def test_a_head_that_is_too_large_and_trailers_without_end_are_cut_and_reviews_go_on():
    fields = b"".join(b"X-%d: " % number + b"x" * 8000 + b"\r\n" for number in range(120))
    begin = b"POST /mutate HTTP/1.1\r\nHost: x\r\n"
    chunked = (
        begin
        + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    )
    async with serving(deadline_s=30.0) as (server, client):
        port = client._base_url.port  # type: ignore[union-attr]
        for number, data in enumerate((begin + fields, chunked + fields * 10), start=1):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            await until(lambda: server._listener.cut["too many bytes"], number, timeout_s=15)
            writer.transport.abort()
        assert (await post(client, "/mutate", review(a_pod())))[0] == 200
        async with client.get("/metrics") as reply:
            assert reply.status == 200
