"""Spans of what takes time: verbs, batches of placing, writes, reviews. They cost nearly nothing
unless somebody asks for traces.

If OpenTelemetry's variables ask for traces, ``trace_export`` installs a tracer here. Without one,
``span`` always returns the same span, which does nothing. A process has one tracer, as it has one
log, because a trace crosses tasks. The tracer finds the surrounding span in the task's context.

A caller's ``traceparent`` (W3C Trace Context) makes our span part of its trace. The API server
sends one to webhooks if it traces itself; kube-scheduler's extender client sends none. Attributes
are mostly text from tenants. They go to the trace backend as text, cut to ``ATTRIBUTE_CHARS_MAX``.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol

ATTRIBUTE_CHARS_MAX: Final = 256
TRACEPARENT: Final = "traceparent"

Attribute = str | int | float | bool


class Span(Protocol):
    """A span that has not ended."""

    def set(self, name: str, value: Attribute) -> None:
        """Set an attribute."""
        ...

    def failed(self, why: str) -> None:
        """Mark the operation as failed."""
        ...


class Tracer(Protocol):
    """Makes spans. Called on the event loop for each verb and write; must not block."""

    def span(
        self, name: str, attributes: Mapping[str, Attribute], *, traceparent: str
    ) -> AbstractContextManager[Span]:
        """Return a span that begins when it is entered. An exception that leaves the span marks it
        as failed. ``traceparent`` is "" without a caller's span.
        """
        ...

    def trace_id(self) -> str:
        """Return the current trace's ID, 32 hex digits; "" if there is none."""
        ...

    def shutdown(self) -> None:
        """Send what is queued. May block for some seconds."""
        ...


class _NoSpan:
    """A span that does nothing. There is only one."""

    __slots__ = ()

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def set(self, name: str, value: Attribute) -> None:
        """See Span."""

    def failed(self, why: str) -> None:
        """See Span."""


_NO_SPAN: Final = _NoSpan()
_installed: list[Tracer] = []


def install(tracer: Tracer | None) -> None:
    """Trace with ``tracer`` from here on. None turns tracing off."""
    _installed[:] = [] if tracer is None else [tracer]


def span(
    name: str, /, *, traceparent: str = "", **attributes: Attribute
) -> AbstractContextManager[Span]:
    """Return a span to enter: ``with tracing.span("place_batch", pool=pool) as present:``."""
    if not _installed:
        return _NO_SPAN
    return _installed[0].span(name, attributes, traceparent=traceparent)


def trace_id() -> str:
    """Return the current trace's ID, for the log; "" if there is none."""
    return _installed[0].trace_id() if _installed else ""


def stop() -> None:
    """Turn tracing off and send what is queued. May block for some seconds: do not call it on the
    event loop.
    """
    tracers, _installed[:] = list(_installed), []
    for tracer in tracers:
        tracer.shutdown()
