"""AdmissionReview v1 (admission.k8s.io): decodes an ``AdmissionRequest``, and encodes a
``Verdict``.

Decoding is strict about what a decision depends on: it refuses a wrong type and names the field. It
ignores everything else, because other versions of the API server send unknown fields and ``null``,
and leave out optional fields. Decoding either succeeds or raises ``ReviewError``, whatever the
bytes are. A crash would answer 500, and the API server would then report a failed webhook instead
of a wrong request.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from extender.model.errors import VReplicaError
from extender.model.reading import Json, decode_json, mapping
from extender.model.safe_repr import safe_repr

REVIEW_API_VERSION: Final = "admission.k8s.io/v1"
REVIEW_KIND: Final = "AdmissionReview"
WARNING_CHARACTERS_MAX: Final = 256
"""The API server may truncate longer warnings."""
WARNINGS_MAX: Final = 8
MESSAGE_CHARACTERS_MAX: Final = 2_000
LINES_PER_S: Final = 20
"""Log lines about requests, of each logger. Anybody who reaches the port decides how many requests
there are.
"""
_UID_CHARACTERS_MAX: Final = 256
_REASONS: Final = {403: "Forbidden", 422: "Invalid", 429: "TooManyRequests"}
"""HTTP status of a denial -> the reason of its Status, by which clients tell what to do."""

PatchOp = Mapping[str, object]
"""One RFC 6902 operation."""


class ReviewError(VReplicaError):
    """A body that is not an AdmissionReview v1 request. ``status`` is the HTTP status to answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """The fields of a review's request that are used here. ``object`` is None for DELETE,
    ``old_object`` for CREATE.
    """

    uid: str
    group: str = ""
    """API group of ``resource``, "" for the core group."""
    resource: str
    """Plural, as in URLs."""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    """Empty if the API server is to generate it."""
    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    username: str = ""
    object: Json | None = None
    old_object: Json | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer. ``message`` tells the user why the request is denied. kubectl shows ``warnings``
    also if it is allowed.
    """

    allowed: bool = True
    message: str = ""
    code: int = 403
    """HTTP status that the API server returns to its own client for a denied request."""
    patch: Sequence[PatchOp] = ()
    warnings: Sequence[str] = ()


ALLOWED: Final = Verdict()


def denied(message: str, *, code: int = 403, warnings: Sequence[str] = ()) -> Verdict:
    """Return a denial: ``code`` 403 for what this user may not do, 422 for an invalid object, 429
    for what shall be tried again.
    """
    return Verdict(allowed=False, message=message, code=code, warnings=warnings)


def decode_review(body: bytes) -> AdmissionRequest:
    """Decode a review. Raises ReviewError with the wrong field and what was expected."""
    try:
        review = decode_json(body)
    except ValueError as error:
        raise ReviewError(f"the body {error}") from error
    if not isinstance(review, dict):
        raise ReviewError(f"the body is not a JSON object but {_type(review)}")
    _refuse_depth(review)
    version, kind = review.get("apiVersion"), review.get("kind")
    if version != REVIEW_API_VERSION or kind != REVIEW_KIND:
        raise ReviewError(
            f"expected kind {REVIEW_KIND} of apiVersion {REVIEW_API_VERSION}, not "
            f"{safe_repr(kind, 80)} of {safe_repr(version, 80)}"
        )
    request = review.get("request")
    if not isinstance(request, dict):
        raise ReviewError(f"request: expected an object, not {_type(request)}")
    uid = _string(request, "uid")
    if not uid or len(uid) > _UID_CHARACTERS_MAX:
        raise ReviewError(f"request.uid: expected 1 to {_UID_CHARACTERS_MAX} characters")
    resource = mapping(request, "resource")
    plural = _string(resource, "resource", "request.resource.")
    operation = _string(request, "operation")
    if not plural or not operation:
        raise ReviewError("request.resource.resource and request.operation: expected, but absent")
    return AdmissionRequest(
        uid=uid,
        group=_string(resource, "group", "request.resource."),
        resource=plural,
        subresource=_string(request, "subResource"),
        namespace=_string(request, "namespace"),
        name=_string(request, "name"),
        operation=operation,
        username=_string(mapping(request, "userInfo"), "username", "request.userInfo."),
        object=_object(request, "object"),
        old_object=_object(request, "oldObject"),
        dry_run=request.get("dryRun") is True,
    )


def _refuse_depth(review: Json) -> None:
    """Refuse what is nested deeper than the encoder writes (254 levels): later steps compare values
    by recursion.

    An object of the API has some twenty levels.
    """
    try:
        orjson.dumps(review)
    except orjson.JSONEncodeError as error:
        raise ReviewError(f"the body is nested too deep: {error}") from error


def encode_review(uid: str, verdict: Verdict) -> bytes:
    """Encode the answer to the request ``uid``."""
    response: dict[str, object] = {"uid": uid, "allowed": verdict.allowed}
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(
            orjson.dumps([dict(op) for op in verdict.patch])
        ).decode()
    if not verdict.allowed:
        response["status"] = {
            "code": verdict.code,
            "reason": _REASONS[verdict.code],
            "message": _printable(verdict.message, MESSAGE_CHARACTERS_MAX),
        }
    if verdict.warnings:
        response["warnings"] = [
            _printable(warning, WARNING_CHARACTERS_MAX)
            for warning in verdict.warnings[:WARNINGS_MAX]
        ]
    return orjson.dumps(
        {"apiVersion": REVIEW_API_VERSION, "kind": REVIEW_KIND, "response": response}
    )


def _printable(text: str, characters_max: int) -> str:
    """Return one line without control characters: it holds parts of tenants' objects, and terminals
    show it.
    """
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= characters_max else line[: characters_max - 1] + "…"


def _string(obj: Json, field: str, prefix: str = "request.") -> str:
    value = obj.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ReviewError(f"{prefix}{field}: expected a string, not {_type(value)}")
    return value


def _object(request: Json, field: str) -> Json | None:
    value = request.get(field)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ReviewError(f"request.{field}: expected an object, not {_type(value)}")
    return value


def _type(value: object) -> str:
    match value:
        case None:
            return "null or absent"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
