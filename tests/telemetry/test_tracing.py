"""Spans of the service: what is traced, what it costs when nobody asked, and OpenTelemetry behind
it where it is installed.
"""

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from typing import Any

import pytest

from extender.telemetry import trace_export, tracing
from extender.telemetry.logs import JsonFormatter
from extender.telemetry.tracing import ATTRIBUTE_CHARS_MAX, Attribute, Span
from tests.support.service import World

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
needs_otel = pytest.mark.skipif(
    find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None,
    reason="the extra otel is not installed",
)


class Recorder:
    """A tracer that remembers (name, attributes, traceparent)."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, dict[str, Attribute], str]] = []
        self.stopped = False

    def span(
        self, name: str, attributes: Mapping[str, Attribute], *, traceparent: str
    ) -> AbstractContextManager[Span]:
        kept = dict(attributes)
        self.spans.append((name, kept, traceparent))

        class Kept:
            def set(self, name: str, value: Attribute) -> None:
                kept[name] = value

            def failed(self, why: str) -> None:
                kept["failed"] = why

        @contextmanager
        def around() -> Iterator[Span]:
            yield Kept()

        return around()

    def trace_id(self) -> str:
        return "f" * 32

    def shutdown(self) -> None:
        self.stopped = True


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    tracer = Recorder()
    tracing.install(tracer)
    yield tracer
    tracing.install(None)


def test_without_a_tracer_every_span_is_the_same_one_and_does_nothing():
    first, second = tracing.span("a", pool="p"), tracing.span("b", traceparent=PARENT)
    assert first is second
    with first as present:
        present.set("status", "Success")
        present.failed("why")
    assert tracing.trace_id() == ""


@pytest.mark.looptime
async def test_placing_a_vpod_is_a_batch_with_its_writes(recorder: Recorder):
    world = await World.create()
    await world.pod(0, {}, node="node-0")
    await world.vpod("a", 3)
    async with world.serving():
        await asyncio.sleep(2)
    names = [name for name, _, _ in recorder.spans]
    assert {"place_batch", "write_ledger", "write_status"} <= set(names)
    batch = next(attributes for name, attributes, _ in recorder.spans if name == "place_batch")
    assert batch["vpods"] == 1
    assert ("write_status", {"vpod": "tenant/a"}, "") in recorder.spans


def test_a_line_of_the_log_names_the_trace_that_it_belongs_to(recorder: Recorder):
    record = logging.makeLogRecord({"msg": "m"})
    assert json.loads(JsonFormatter().format(record))["trace_id"] == "f" * 32
    tracing.install(None)
    assert "trace_id" not in json.loads(JsonFormatter().format(record))


def test_stopping_sends_what_is_left(recorder: Recorder):
    tracing.stop()
    assert recorder.stopped
    assert tracing.trace_id() == ""


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="not asked"),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"},
            id="turned off",
        ),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, id="empty"),
    ],
)
def test_nothing_is_traced_unless_the_environment_asks(environment: dict[str, str]):
    trace_export.start("test", environment)
    assert tracing.span("a") is tracing.span("b")


@pytest.mark.skipif(find_spec("opentelemetry") is not None, reason="the extra otel is installed")
def test_who_asks_for_traces_without_the_extra_is_told_what_to_install(
    caplog: pytest.LogCaptureFixture,
):
    trace_export.start("test", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"})
    assert "install vreplica-scheduler[otel]" in caplog.text
    assert tracing.span("a") is tracing.span("b")


@needs_otel
class TestOpenTelemetry:
    @pytest.fixture
    def spans(self) -> Iterator[list[Any]]:
        sdk = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
        memory = import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
        exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
        provider.add_span_processor(export.SimpleSpanProcessor(exporter))
        tracing.install(import_module("extender.telemetry.otel").OtelTracer(provider))
        yield exporter.get_finished_spans
        tracing.stop()

    def test_a_span_continues_the_callers_trace(self, spans):
        with tracing.span("bind", traceparent=PARENT):
            assert tracing.trace_id() == "0af7651916cd43dd8448eb211c80319c"
        (span,) = spans()
        assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
        assert span.kind.name == "SERVER"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "garbage",
            PARENT + "\n",
            PARENT.upper(),
            "00-" + "0" * 32 + "-" + "0" * 16 + "-01",
            "é" * 10_000,
        ],
    )
    def test_a_traceparent_that_is_none_begins_a_trace_of_our_own(self, spans, text: str):
        with tracing.span("bind", traceparent=text):
            pass
        (span,) = spans()
        assert span.parent is None

    async def test_what_a_task_does_belongs_to_the_span_that_started_it(self, spans):
        async def write() -> None:
            with tracing.span("write_ledger"):
                await asyncio.sleep(0)

        with tracing.span("place_batch"):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(write())
                tasks.create_task(write())
        first, second, batch = spans()
        assert {first.parent.span_id, second.parent.span_id} == {batch.context.span_id}

    def test_an_error_that_leaves_it_fails_it_and_long_text_is_cut(self, spans):
        def fail() -> None:
            with tracing.span("a", vpod="x" * 1000) as present:
                present.set("node", "y" * 1000)
                raise ValueError("boom")

        with pytest.raises(ValueError, match="boom"):
            fail()
        (span,) = spans()
        assert span.status.status_code.name == "ERROR"
        assert {len(value) for value in span.attributes.values()} == {ATTRIBUTE_CHARS_MAX}

    def test_what_the_environment_names_gets_the_spans(self, monkeypatch: pytest.MonkeyPatch):
        got: list[tuple[str, bytes]] = []

        class Backend(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with HTTPServer(("127.0.0.1", 0), Backend) as server:
            thread = Thread(target=server.serve_forever)
            thread.start()
            monkeypatch.setenv(
                "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}"
            )
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
            trace_export.start("vreplica-scheduler")
            with tracing.span("place_batch", pool="ns/p"):
                pass
            tracing.stop()
            server.shutdown()
            thread.join()
        ((path, body),) = got
        assert path == "/v1/traces"
        assert all(text in body for text in (b"place_batch", b"ns/p", b"vreplica-scheduler"))

    def test_a_backend_that_is_not_there_costs_spans_and_two_seconds_at_the_end(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        trace_export.start("test")
        with tracing.span("a"):
            assert tracing.trace_id()
        began = time.monotonic()
        tracing.stop()
        assert time.monotonic() - began < 5.0
