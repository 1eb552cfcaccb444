"""Spans of what takes time: verbs, batches of placing, writes, reviews. Nothing, at nearly no cost,
unless somebody asked.

``trace_export`` looks whether OpenTelemetry's variables ask for traces, and installs its tracer
here. Until then ``span`` gives one and the same span that does nothing. There is one tracer a
process, as there is one log: what is traced crosses tasks, and the span that surrounds the present
one is known to the tracer by its task's context.

A caller's ``traceparent`` (W3C Trace Context) makes our span a part of its trace. The API server
sends one to webhooks if it traces itself; kube-scheduler's extender client sends none. Text in
attributes is a tenant's, mostly: it goes to the trace backend as text, cut to
``ATTRIBUTE_CHARS_MAX``.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Protocol

ATTRIBUTE_CHARS_MAX: Final = 256
TRACEPARENT: Final = "traceparent"

Attribute = str | int | float | bool


class Span(Protocol):
    """One span, while it lasts."""

    def set(self, name: str, value: Attribute) -> None:
        """Say something about it."""
        ...

    def failed(self, why: str) -> None:
        """What it stands for did not succeed."""
        ...


class Tracer(Protocol):
    """Makes spans. Called on the event loop for each verb and write; must not block."""

    def span(
        self, name: str, attributes: Mapping[str, Attribute], *, traceparent: str
    ) -> AbstractContextManager[Span]:
        """A span that begins when it is entered; ``traceparent`` "" for none. An exception that
        leaves it fails it.
        """
        ...

    def trace_id(self) -> str:
        """Of the present trace, 32 hex digits; "" for none."""
        ...

    def shutdown(self) -> None:
        """Send what is still to be sent. May block for some seconds."""
        ...


class _NoSpan:
    """Does nothing; there is only one."""

    __slots__ = ()

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        return None

    def set(self, name: str, value: Attribute) -> None:
        """See Span."""

    def failed(self, why: str) -> None:
        """See Span."""


_NO_SPAN: Final = _NoSpan()
_installed: list[Tracer] = []


def install(tracer: Tracer | None) -> None:
    """Trace with ``tracer`` from now on; None: not at all."""
    _installed[:] = [] if tracer is None else [tracer]


def span(
    name: str, /, *, traceparent: str = "", **attributes: Attribute
) -> AbstractContextManager[Span]:
    """Give a span to enter: ``with tracing.span("place_batch", pool=pool) as present:``."""
    if not _installed:
        return _NO_SPAN
    return _installed[0].span(name, attributes, traceparent=traceparent)


def trace_id() -> str:
    """Of the present trace, for a line of the log; "" for none."""
    return _installed[0].trace_id() if _installed else ""


def stop() -> None:
    """Trace no more, and send what is still to be sent. May block for some seconds: not on the
    event loop.
    """
    tracers, _installed[:] = list(_installed), []
    for tracer in tracers:
        tracer.shutdown()
