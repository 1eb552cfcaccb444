"""A query over HTTP, to a server that answers as Prometheus does, or in every other way."""

import asyncio
import random
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given, strategies as st

from extender.config.load_sources import Labels, LoadSource
from extender.kube.serving.tls import server_context
from extender.service.pools import prometheus
from extender.service.pools.load_polling import LoadPolling
from extender.service.pools.load_reports import LoadReports, Report
from extender.service.pools.prometheus import (
    Answer,
    LoadTrouble,
    Prometheus,
    QueryFailed,
    reports_of_answer,
)
from tests.service.authority import Authority
from tests.support.builders import POOL
from tests.support.service import TENANT, a_world, until

SECRET = "s3cret-token"


def a_series(vpod: str = "a", pod: str = "p-0", value: Any = "1.5", **more: str) -> dict[str, Any]:
    labels = {"vpod_namespace": "team", "vpod": vpod, "pod": pod, **more}
    return {"metric": labels, "value": [1_435_781_451.781, value]}


def a_vector(*series: object) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "vector", "result": [*series]}}


@asynccontextmanager
async def answering(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[LoadSource]:
    """A server; the source that names it."""
    app = web.Application()
    app.router.add_get("/api/v1/query", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    scheme = "https" if tls is not None else "http"
    try:
        port = runner.addresses[0][1]
        yield LoadSource(name="a", url=f"{scheme}://localhost:{port}", query="up", timeout_s=5.0)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def giving(
    body: object, status: int = 200, headers: dict[str, str] | None = None
) -> AsyncIterator[LoadSource]:
    """A server that gives the same answer to every call."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)

    async def handle(_request: web.Request) -> web.Response:
        return web.Response(body=raw, status=status, headers=headers)

    async with answering(handle) as source:
        yield source


async def failure(source: LoadSource) -> QueryFailed:
    with pytest.raises(QueryFailed) as caught:
        await Prometheus(source).ask("up")
    assert "localhost" not in caught.value.text, "a pool's owner reads it"
    return caught.value


async def test_a_vector_is_read_as_reports():
    asked: list[dict[str, str]] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        assert "Authorization" not in request.headers
        return web.json_response(
            a_vector(a_series(), a_series("b@k.example.dev", "p-1", "0.25", extra="x"))
        )

    async with answering(handle) as source:
        answer = await Prometheus(source).ask('rate(n{pod=~"d-.+"}[2m])')
    assert answer.reports == [
        Report("team/a", "p-0", 1.5),
        Report("team/b@k.example.dev", "p-1", 0.25),
    ]
    assert answer.unlabelled == 0
    (parameters,) = asked
    assert parameters["query"] == 'rate(n{pod=~"d-.+"}[2m])'
    assert parameters["timeout"] == "5s"


@pytest.mark.parametrize(
    ("body", "status", "trouble"),
    [
        pytest.param(
            {"status": "error", "errorType": "bad_data", "error": "parse error"},
            400,
            LoadTrouble.REFUSED,
            id="a wrong query",
        ),
        pytest.param(b"no", 401, LoadTrouble.REFUSED, id="no token"),
        pytest.param(b"no", 403, LoadTrouble.REFUSED, id="a token without the right"),
        pytest.param({"status": "error"}, 422, LoadTrouble.REFUSED, id="cannot be executed"),
        pytest.param(b"", 503, LoadTrouble.FAILED, id="overloaded"),
        pytest.param(b"<html>", 502, LoadTrouble.FAILED, id="a proxy without a server"),
        pytest.param(b"<html>", 200, LoadTrouble.UNREADABLE_ANSWER, id="a page"),
        pytest.param(b"", 200, LoadTrouble.UNREADABLE_ANSWER, id="nothing"),
        pytest.param(b"[" * 60_000, 200, LoadTrouble.TOO_LARGE, id="deep"),
        pytest.param(b"[" * 5_000, 200, LoadTrouble.UNREADABLE_ANSWER, id="less deep"),
        pytest.param([], 200, LoadTrouble.UNREADABLE_ANSWER, id="a list"),
        pytest.param({"status": "success"}, 200, LoadTrouble.UNREADABLE_ANSWER, id="no data"),
        pytest.param(
            {"status": "error", "data": {"resultType": "vector", "result": []}},
            200,
            LoadTrouble.UNREADABLE_ANSWER,
            id="an error with status 200",
        ),
        pytest.param(
            {"status": "success", "data": {"resultType": "matrix", "result": []}},
            200,
            LoadTrouble.UNREADABLE_ANSWER,
            id="a range",
        ),
        pytest.param(
            {"status": "success", "data": {"resultType": "vector", "result": {}}},
            200,
            LoadTrouble.UNREADABLE_ANSWER,
            id="no list",
        ),
        pytest.param(a_vector(7), 200, LoadTrouble.UNREADABLE_ANSWER, id="no series"),
        pytest.param(a_vector({}), 200, LoadTrouble.UNREADABLE_ANSWER, id="no labels at all"),
        pytest.param(
            a_vector(a_series(value=1.5)), 200, LoadTrouble.UNREADABLE_ANSWER, id="a bare number"
        ),
        pytest.param(
            a_vector(a_series(value="much")), 200, LoadTrouble.UNREADABLE_ANSWER, id="no number"
        ),
        pytest.param(
            a_vector({"metric": a_series()["metric"], "histogram": [1, {}]}),
            200,
            LoadTrouble.UNREADABLE_ANSWER,
            id="a native histogram",
        ),
        pytest.param(
            a_vector(a_series(instance="1"), a_series(instance="2")),
            200,
            LoadTrouble.UNREADABLE_ANSWER,
            id="two about the same",
        ),
    ],
)
async def test_a_bad_answer_is_told_by_its_kind(body, status, trouble):
    async with giving(body, status) as source:
        assert (await failure(source)).trouble is trouble


async def test_the_words_of_the_server_are_for_the_log_only_and_short():
    error = {"status": "error", "error": "parse error at secret_metric " + "x" * 5000}
    async with giving(error, 400) as source:
        caught = await failure(source)
    assert caught.text == "the server refuses the query (HTTP 400)"
    assert "secret_metric" in caught.detail
    assert len(caught.detail) <= 300


async def test_an_answer_that_does_not_come_in_time_is_given_up():
    async def hang(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with answering(hang) as source:
        caught = await failure(replace(source, timeout_s=0.05))
    assert caught.trouble is LoadTrouble.TIMED_OUT


async def test_an_answer_that_trickles_is_given_up_too():
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b" ")
            await asyncio.sleep(0.01)
        return response

    async with answering(trickle) as source:
        caught = await failure(replace(source, timeout_s=0.2))
    assert caught.trouble is LoadTrouble.TIMED_OUT


async def test_an_answer_over_the_limit_of_bytes_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(prometheus, "ANSWER_BYTES_MAX", 100_000)
    written = 0

    async def pour(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b" " * 100_000)
            written += 100_000
        return response

    async with answering(pour) as source:
        caught = await failure(source)
    assert caught.trouble is LoadTrouble.TOO_LARGE
    assert written < 50_000_000


async def test_an_answer_of_too_many_series_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prometheus, "SERIES_MAX", 3)
    some = [a_series(pod=f"p-{index}") for index in range(4)]
    async with giving(a_vector(*some)) as source:
        caught = await failure(source)
        assert caught.trouble is LoadTrouble.TOO_LARGE
        assert "more than 3 series" in caught.text
    async with giving(a_vector(*some[:3])) as source:
        assert len((await Prometheus(source).ask("up")).reports) == 3


def test_an_answer_of_too_many_labels_is_not_decoded():
    labels = {f"label_{index}": "x" for index in range(prometheus.COMMAS_MAX + 1)}
    with pytest.raises(QueryFailed, match="labels") as caught:
        reports_of_answer(orjson.dumps(a_vector(a_series(**labels))), Labels())
    assert caught.value.trouble is LoadTrouble.TOO_LARGE


async def test_while_a_large_answer_is_read_other_work_goes_on(monkeypatch: pytest.MonkeyPatch):
    reads_in: list[int] = []

    def read(body: bytes, labels: Labels) -> Answer:
        reads_in.append(threading.get_ident())
        return reports_of_answer(body, labels)

    monkeypatch.setattr(prometheus, "reports_of_answer", read)
    async with giving(a_vector(a_series())) as source:
        assert len((await Prometheus(source).ask("up")).reports) == 1
    assert reads_in != [threading.get_ident()]


async def test_a_compressed_answer_is_refused_because_it_may_be_of_any_size():
    async with giving(b"\x1f\x8b", headers={"Content-Encoding": "gzip"}) as source:
        caught = await failure(source)
    assert (caught.trouble, caught.text) == (
        LoadTrouble.UNREADABLE_ANSWER,
        "the answer is compressed",
    )


async def test_no_redirect_is_followed():
    visited: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        visited.append(str(request.rel_url))
        raise web.HTTPFound("/api/v1/query?again=1")

    async with answering(elsewhere) as source:
        caught = await failure(source)
    assert caught.trouble is LoadTrouble.FAILED
    assert len(visited) == 1


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with giving(a_vector(a_series())) as source:
        assert (await Prometheus(source).ask("up")).reports


async def test_a_server_that_is_not_there_is_unreachable():
    async with giving(a_vector()) as source:
        pass
    assert (await failure(source)).trouble is LoadTrouble.UNREACHABLE


async def test_a_server_that_speaks_something_else_is_unreachable():
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        source = LoadSource(name="a", url=f"http://127.0.0.1:{port}", query="up", timeout_s=5)
        with pytest.raises(QueryFailed) as caught:
            await Prometheus(source).ask("up")
    assert caught.value.trouble is LoadTrouble.UNREACHABLE


@asynccontextmanager
async def over_tls(tmp_path: Path) -> AsyncIterator[tuple[LoadSource, list[str]]]:
    """A server with a certificate; the source that trusts it and has a token, and what tokens
    come.
    """
    authority = Authority(tmp_path, "ca")
    context = server_context()
    context.load_cert_chain(*authority.issue("serving"))
    token = tmp_path / "token"
    token.write_text(f"{SECRET}\n")
    tokens: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        tokens.append(request.headers.get("Authorization", ""))
        return web.json_response(a_vector(a_series()))

    async with answering(handle, context) as source:
        yield replace(source, ca_file=str(authority.file), token_file=str(token)), tokens


async def test_over_tls_the_token_of_the_file_is_sent_and_a_new_one_after_it_is_replaced(
    tmp_path: Path,
):
    async with over_tls(tmp_path) as (source, tokens):
        server = Prometheus(source)
        await server.ask("up")
        (tmp_path / "token").write_text("another")
        await server.ask("up")
    assert tokens == [f"Bearer {SECRET}", "Bearer another"]


async def test_a_server_whose_certificate_is_not_trusted_gets_no_token(tmp_path: Path):
    async with over_tls(tmp_path) as (source, tokens):
        other = Authority(tmp_path, "other")
        for name in ("", str(other.file)):
            caught = await failure(replace(source, ca_file=name))
            assert caught.trouble is LoadTrouble.UNREACHABLE
            assert SECRET not in f"{caught.text}{caught.detail}"
        wrong_name = replace(source, url=source.url.replace("localhost", "127.0.0.1"))
        assert (await failure(wrong_name)).trouble is LoadTrouble.UNREACHABLE
    assert tokens == []


async def test_a_replaced_ca_file_counts_from_the_next_query_on(tmp_path: Path):
    ca_file = tmp_path / "mounted.crt"
    ca_file.write_bytes(Authority(tmp_path, "old").pem)
    async with over_tls(tmp_path) as (source, _):
        server = Prometheus(replace(source, ca_file=str(ca_file)))
        with pytest.raises(QueryFailed):
            await server.ask("up")
        (tmp_path / "ca.crt").replace(ca_file)
        assert (await server.ask("up")).reports


@pytest.mark.parametrize(
    "text", ["", "\n", "two words", "a\nb", "x" * 20_000, "\x00", "ü"], ids=repr
)
async def test_a_file_without_a_token_is_told_and_nothing_is_sent(tmp_path: Path, text: str):
    async with over_tls(tmp_path) as (source, tokens):
        (tmp_path / "token").write_text(text)
        caught = await failure(source)
        assert caught.trouble is LoadTrouble.UNREADABLE_FILE
        assert (await failure(replace(source, token_file="/nowhere"))).trouble is caught.trouble
        assert (await failure(replace(source, ca_file="/nowhere"))).trouble is caught.trouble
    assert tokens == []


def test_series_without_the_labels_are_left_out_and_counted():
    body = orjson.dumps(
        a_vector(
            a_series(),
            {"metric": {"pod": "p-0"}, "value": [0, "1"]},
            {"metric": {"pod": "p-0", "vpod": "a", "vpod_namespace": ""}, "value": [0, "1"]},
            {"metric": {"pod": 7, "vpod": "a", "vpod_namespace": "team"}, "value": [0, "1"]},
        )
    )
    answer = reports_of_answer(body, Labels())
    assert answer.reports == [Report("team/a", "p-0", 1.5)]
    assert answer.unlabelled == 3


def test_warnings_are_told_beside_what_was_answered_and_short():
    """Thanos answers so if one of its stores does not answer it."""
    body = a_vector(a_series()) | {
        "warnings": ["store\x1b[2J is down\n", "x" * 10_000, {}, "y", "z"]
    }
    answer = reports_of_answer(orjson.dumps(body), Labels())
    assert len(answer.reports) == 1
    assert answer.warnings.startswith(r"'store\x1b[2J is down\n'; 'xxx")
    assert len(answer.warnings) <= prometheus.DETAIL_CHARS_MAX
    assert answer.warnings.isprintable()


@pytest.mark.parametrize("warnings", [None, [], "x", 3, {}])
def test_an_answer_without_a_list_of_warnings_has_none(warnings):
    body = a_vector(a_series()) | {"warnings": warnings}
    assert reports_of_answer(orjson.dumps(body), Labels()).warnings == ""


def test_the_labels_are_settings():
    series = {"metric": {"key": "team/a", "instance": "p-0"}, "value": [0, "2"]}
    labels = Labels(vpod_namespace="", vpod="key", pod="instance")
    answer = reports_of_answer(orjson.dumps(a_vector(series)), labels)
    assert answer.reports == [Report("team/a", "p-0", 2.0)]


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "-1", "1e400"])
def test_values_that_make_no_sense_are_left_to_the_rules_for_reports(text):
    body = orjson.dumps(a_vector(a_series(value=text)))
    assert len(reports_of_answer(body, Labels()).reports) == 1


async def test_from_the_answer_of_a_real_server_to_the_reports():
    load = {"metric": "requests", "target": 1.2}
    world = await a_world(0, loadSource="a", rebalance={"load": load})
    await world.edit_ledger(0, {f"{TENANT}/a": 2})
    await world.vpod("a", 2, {0: 2})
    await world.sync()
    reports = LoadReports(asyncio.get_running_loop().time)
    series = a_series("a", "dispatcher-0", "3", vpod_namespace=TENANT)
    async with giving(a_vector(series)) as source:
        polling = LoadPolling(world.caches, reports, {source.name: source}, rng=random.Random(1))
        task = asyncio.create_task(polling.run())
        await until(lambda: polling.counted.total() > 0, timeout_s=5)
        task.cancel()
        await asyncio.wait({task})
    state = world.caches.state.pool(POOL)
    assert reports.of_vpod(state, f"{TENANT}/a") == ["load on dispatcher-0: 3 requests"]


_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=6) | st.just("1.5"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metric", "value", "vpod", "pod", "vpod_namespace", "result"]), inner
        )
    ),
    max_leaves=8,
)


@given(
    st.binary(max_size=40)
    | _values.map(orjson.dumps)
    | st.lists(_values, max_size=3).map(lambda found: orjson.dumps(a_vector(*found)))
)
def test_no_answer_raises_anything_but_a_failed_query(body):
    try:
        answer = reports_of_answer(body, Labels())
    except QueryFailed:
        return
    assert all(isinstance(report.load, float) for report in answer.reports)
