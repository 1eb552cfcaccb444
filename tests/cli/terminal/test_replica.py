"""A replica that is asked over HTTP: what it may answer, and what is wrong otherwise."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from extender.cli.terminal import replica as module
from extender.cli.terminal.replica import Refused, Replica, ReplicaError, Unreachable, open_replica
from extender.cli.terminal.replica_access import ReplicaAccess
from extender.model.errors import InvalidObject


@asynccontextmanager
async def answering(handler) -> AsyncIterator[Replica]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        async with open_replica(ReplicaAccess(f"http://{host}:{port}")) as replica:
            yield replica
    finally:
        await runner.cleanup()


async def test_it_answers_json_to_a_question_and_to_a_body():
    async def echo(request: web.Request) -> web.Response:
        body = await request.json() if request.method == "POST" else None
        return web.json_response({"path": request.path, "query": dict(request.query), "body": body})

    async with answering(echo) as replica:
        assert await replica.get("/v1/overview", {"pool": "a/b&c"}) == {
            "path": "/v1/overview",
            "query": {"pool": "a/b&c"},
            "body": None,
        }
        assert (await replica.post("/v1/plan", {"drain": ["pod/x"]}))["body"] == {
            "drain": ["pod/x"]
        }


@pytest.mark.parametrize(
    ("response", "message", "status"),
    [
        pytest.param(
            {"status": 404, "text": "not found here\n"}, "with 404: not found here", 404, id="404"
        ),
        pytest.param(
            {"status": 503, "text": "a\x1b[2J\nb"},
            r"with 503: a\?\[2J b",
            503,
            id="control characters",
        ),
        pytest.param(
            {"status": 302, "headers": {"Location": "/x"}}, "with 302", 302, id="elsewhere"
        ),
        pytest.param(
            {"text": "<html>"},
            "what is no JSON object: is it a replica of ours",
            0,
            id="another server",
        ),
        pytest.param({"text": "[]"}, "what is no JSON object", 0, id="a list"),
        pytest.param({"text": "[" + "1," * 5000 + "1]"}, "more than 1000 bytes", 0, id="too much"),
    ],
)
async def test_any_other_answer_is_an_error_that_says_what(
    response: dict[str, object], message: str, status: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 1000)

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(**response)  # type: ignore[arg-type]

    async with answering(answer) as replica:
        with pytest.raises(ReplicaError, match=message) as caught:
            await replica.get("/v1/overview")
    assert caught.value.status == status


async def test_its_own_no_is_told_apart_from_a_server_that_does_not_know_the_question():
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/v1/explain":
            return web.json_response({"error": "no vpod t/a"}, status=404)
        return web.json_response(["not found"], status=404)

    async with answering(answer) as replica:
        with pytest.raises(Refused, match="with 404: no vpod t/a") as caught:
            await replica.get("/v1/explain")
        assert (caught.value.status, caught.value.said) == (404, "no vpod t/a")
        with pytest.raises(ReplicaError, match="not found") as other:
            await replica.get("/v2/explain")
        assert not isinstance(other.value, Refused)


@pytest.mark.parametrize(
    ("status", "text", "readiness"),
    [
        pytest.param(200, "ok\n", "ok", id="it is ready"),
        pytest.param(
            503, "caches not synced: pods\n", "caches not synced: pods", id="it says why not"
        ),
    ],
)
async def test_a_replica_that_is_not_ready_says_why(status: int, text: str, readiness: str):
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    async with answering(answer) as replica:
        assert await replica.readiness() == readiness


async def test_where_nobody_listens_it_says_how_to_get_there():
    async with open_replica(ReplicaAccess("http://127.0.0.1:1")) as replica:
        with pytest.raises(
            Unreachable, match=r"cannot be asked: .*; a service .* by kubectl port-forward"
        ):
            await replica.get("/v1/overview")


async def test_who_does_not_answer_in_time_is_told():
    async def never(_request: web.Request) -> web.Response:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async with answering(never) as replica:
        with pytest.raises(ReplicaError, match=r"does not answer /x within 0\.05 s"):
            await replica.get("/x", timeout_s=0.05)
        with pytest.raises(ReplicaError, match=r"is silent for 0\.05 s"):
            _ = [line async for line in replica.lines("/x", timeout_s=0.05)]


async def test_lines_come_one_by_one_and_a_broken_one_is_an_error():
    async def lines(_request: web.Request) -> web.Response:
        return web.Response(body=b'{"a":1}\n{"b":2}\n{"c"')

    async with answering(lines) as replica:
        answer = replica.lines("/x")
        assert [await anext(answer), await anext(answer)] == [b'{"a":1}\n', b'{"b":2}\n']
        with pytest.raises(ReplicaError, match="within a line"):
            await anext(answer)


@pytest.mark.parametrize(
    ("access", "message"),
    [
        pytest.param(
            ReplicaAccess("https://x", client_key="k"), "--client-key: goes with", id="a key alone"
        ),
        pytest.param(
            ReplicaAccess("https://x", certificate_authority="no-such"),
            "no-such: cannot be used",
            id="no such file",
        ),
    ],
)
async def test_files_that_are_no_certificates_are_told(access: ReplicaAccess, message: str):
    with pytest.raises(InvalidObject, match=message):
        async with open_replica(access):
            pass


async def test_a_file_without_a_certificate_is_told(tmp_path: Path):
    (tmp_path / "cert").write_text("hello")
    with pytest.raises(InvalidObject, match="cannot be used as certificates"):
        async with open_replica(
            ReplicaAccess("https://x", client_certificate=str(tmp_path / "cert"))
        ):
            pass
