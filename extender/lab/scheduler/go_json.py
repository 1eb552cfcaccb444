"""Decodes JSON into structs as Go's ``encoding/json`` does, for the answers of extenders.

Only the first value of a body counts. Object keys match fields in any letter case, exact matches
first. Unknown keys are ignored, the later of two equal keys wins, and null leaves a field
unchanged. After a value of the wrong type decoding goes on, and the caller gets the first such
error. Error texts are Go's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.lab.scheduler.go_json_scanner import GoJSONError, Number, Pairs, Scanner

__all__ = ["GoJSONError", "Number", "Pairs"]


@dataclass(slots=True)
class Context:
    """The current position in the Go types, and the first type error."""

    struct: str = ""
    path: list[str] = field(default_factory=list)
    error: str = ""

    def mismatch(self, value: object, go_type: str) -> None:
        if self.error:
            return
        place = (
            f"Go struct field {self.struct}.{'.'.join(self.path)}" if self.struct else "Go value"
        )
        self.error = f"json: cannot unmarshal {_kind(value)} into {place} of type {go_type}"


def _kind(value: object) -> str:
    match value:
        case str():
            return "string"
        case bool():
            return "bool"
        case Number():
            return "number"
        case Pairs():
            return "object"
        case _:
            return "array"


Decoder = Callable[[Context, Any, Any], Any]
"""(context, value read, old value of the field) -> new value of the field."""


def string(context: Context, value: Any, before: Any) -> Any:
    """Decode a Go string."""
    if value is None:
        return before
    if isinstance(value, str):
        return value
    context.mismatch(value, "string")
    return before


def integer(context: Context, value: Any, before: Any) -> Any:
    """Decode a Go int64."""
    if value is None:
        return before
    if not isinstance(value, Number):
        context.mismatch(value, "int64")
        return before
    digits = value.literal.removeprefix("-")
    if not digits.isdigit() or not -(2**63) <= int(value.literal) < 2**63:
        if not context.error:
            context.mismatch(value, "int64")
            context.error = context.error.replace(
                "unmarshal number ", f"unmarshal number {value.literal} ", 1
            )
        return before
    return int(value.literal)


def plain(value: Any) -> Any:
    """Convert Pairs and Numbers to dicts, ints and floats."""
    match value:
        case Pairs():
            return {key: plain(item) for key, item in value}
        case list():
            return [plain(item) for item in value]
        case Number(literal=literal):
            return int(literal) if literal.lstrip("-").isdigit() else float(literal)
        case _:
            return value


def slice_of(element: Decoder, go_type: str, zero: Callable[[], Any]) -> Decoder:
    """Return a decoder for a Go slice; null is nil (None)."""

    def decode(context: Context, value: Any, before: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, Pairs) or not isinstance(value, list):
            context.mismatch(value, go_type)
            return before
        return [element(context, item, zero()) for item in value]

    return decode


def map_of(element: Decoder, go_type: str, zero: Callable[[], Any]) -> Decoder:
    """Return a decoder for a Go map with string keys; null is nil (None). A second object for one
    field adds to the first.
    """

    def decode(context: Context, value: Any, before: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Pairs):
            context.mismatch(value, go_type)
            return before
        result = dict(before or {})
        for key, item in value:
            result[key] = element(context, item, zero())
        return result

    return decode


def pointer_to(element: Decoder, zero: Callable[[], Any]) -> Decoder:
    """Return a decoder for a Go pointer; null is nil (None)."""

    def decode(context: Context, value: Any, before: Any) -> Any:
        return (
            None if value is None else element(context, value, zero() if before is None else before)
        )

    return decode


def struct(name: str, fields: Mapping[str, Decoder]) -> Decoder:
    """Return a decoder for a Go struct as a dict. ``before`` gives the zero values."""
    folded = {key.casefold(): key for key in fields}

    def decode(context: Context, value: Any, before: Any) -> Any:
        if value is None:
            return before
        if not isinstance(value, Pairs):
            context.mismatch(value, f"v1.{name}")
            return before
        result = dict(before)
        outer = context.struct
        for key, item in value:
            known = key if key in fields else folded.get(key.casefold())
            if known is None:
                continue
            context.struct = name
            context.path.append(known)
            result[known] = fields[known](context, item, result.get(known))
            context.path.pop()
        context.struct = outer
        return result

    return decode


def decode_first(body: bytes, decoder: Decoder, zero: Any) -> Any:
    """Decode the first JSON value of a body. Raises GoJSONError with Go's text."""
    value = Scanner(body).first_value()
    context = Context()
    result = decoder(context, value, zero)
    if context.error:
        raise GoJSONError(context.error)
    return result
