"""OpenTelemetry for ``tracing``, which the extra ``vreplica-scheduler[otel]`` adds. Imported only
if tracing is asked for.

The exporter sends spans by OTLP over HTTP, from its own thread with a bounded queue. A slow or
missing backend costs spans, and delays no decision. The SDK's environment variables set the
endpoint, sampling, headers and time-outs.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from extender import __version__
from extender.telemetry.tracing import ATTRIBUTE_CHARS_MAX, Attribute, Span

SHUTDOWN_TIMEOUT_S: Final = 2.0
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def exporting(service: str, environment: Mapping[str, str]) -> TracerProvider:
    """Return a provider that exports as the environment says. ``service`` is its name, unless
    ``OTEL_SERVICE_NAME`` is set.
    """
    named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": service}
    resource = Resource.create({**named, "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class OtelTracer:
    """The ``tracing.Tracer`` of a provider."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("vreplica-scheduler", __version__)

    @contextmanager
    def span(
        self, name: str, attributes: Mapping[str, Attribute], *, traceparent: str
    ) -> Iterator[Span]:
        """See tracing.Tracer."""
        parent = context_of(traceparent)
        kind = SpanKind.INTERNAL if parent is None else SpanKind.SERVER
        kept = {key: _cut(value) for key, value in attributes.items()}
        with self._tracer.start_as_current_span(name, parent, kind, kept) as present:
            yield _OtelSpan(present)

    def trace_id(self) -> str:
        """See tracing.Tracer."""
        context = trace.get_current_span().get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else ""

    def shutdown(self) -> None:
        """Send what is queued, for at most ``SHUTDOWN_TIMEOUT_S``. The exporter alone would take up
        to ten seconds.
        """
        sending = Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(SHUTDOWN_TIMEOUT_S)


def context_of(traceparent: str) -> Context | None:
    """Return the caller's span as a context. Return None without one, or if it is not W3C Trace
    Context.
    """
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    caller = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return trace.set_span_in_context(trace.NonRecordingSpan(caller)) if caller.is_valid else None


class _OtelSpan:
    """The ``tracing.Span`` of a span that has not ended."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def set(self, name: str, value: Attribute) -> None:
        self._span.set_attribute(name, _cut(value))

    def failed(self, why: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, why[:ATTRIBUTE_CHARS_MAX]))


def _cut(value: Attribute) -> Attribute:
    return value[:ATTRIBUTE_CHARS_MAX] if isinstance(value, str) else value
