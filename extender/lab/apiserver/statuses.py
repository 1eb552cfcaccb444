"""The API server's errors with its own messages, as the errors of ``extender.kube.api``.

Users, kubectl and tests match these texts, so they are those of k8s.io/apimachinery ``api/errors``.
"""

from collections.abc import Sequence

from extender.kube.api import (
    EVENTS,
    NODES,
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Obj,
    OutcomeUnknown,
    Resource,
)


def qualified_resource(resource: Resource) -> str:
    """Return a GroupResource as the API server writes it: ``pods``, ``statefulsets.apps``."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def qualified_kind(resource: Resource) -> str:
    """Return a GroupKind as the API server writes it: ``Pod``, ``StatefulSet.apps``."""
    if resource == EVENTS:
        # Events are stored and validated as the core group's.
        return resource.kind
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind


def not_found(resource: Resource, name: str) -> NotFound:
    """404 for one object."""
    return NotFound(404, "NotFound", f'{qualified_resource(resource)} "{name}" not found')


def required_target(field: str) -> ApiError:
    """500 without a reason, for a Binding that lacks a field."""
    return ApiError(500, "", f"{field}: Required value")


def no_such_resource() -> NotFound:
    """404 for a path that is not served, such as before a CustomResourceDefinition exists."""
    return NotFound(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str, *, leaving: bool) -> AlreadyExists:
    """409 for a create. ``leaving``: the existing object is being deleted."""
    still = "object is being deleted: " if leaving else ""
    return AlreadyExists(
        409, "AlreadyExists", f'{still}{qualified_resource(resource)} "{name}" already exists'
    )


def conflict(resource: Resource, name: str, why: str) -> Conflict:
    """409 for a write that came too late."""
    words = f'Operation cannot be fulfilled on {qualified_resource(resource)} "{name}": {why}'
    return Conflict(409, "Conflict", words)


def modified(resource: Resource, name: str) -> Conflict:
    """409 for a stale resourceVersion."""
    return conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try "
        "again",
    )


def precondition_failed(
    resource: Resource, key: tuple[str, str], what: str, wanted: str, found: str
) -> Conflict:
    """409 for a failed UID or ResourceVersion (``what``) precondition of a write, in etcd's words.
    ``key`` is namespace and name.
    """
    folder = "minions" if resource == NODES else resource.plural
    custom = (
        f"{resource.group}/"
        if "." in resource.group and not resource.group.endswith(".k8s.io")
        else ""
    )
    place = "/".join(part for part in (f"/registry/{custom}{folder}", *key) if part)
    failed = (
        f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
    )
    words = (
        f"StorageError: invalid object, Code: 4, Key: {place}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: {failed}"
    )
    return conflict(resource, key[1], words)


def not_the_one_to_delete(
    resource: Resource, name: str, what: str, wanted: str, found: str
) -> Conflict:
    """409 for a precondition of a delete; ``what`` is UID or ResourceVersion."""
    happened = "deleted and then recreated" if what == "UID" else "modified"
    why = (
        f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). "
        f"The object might have been {happened}"
    )
    words = f'Operation cannot be fulfilled on {qualified_kind(resource)} "{name}": {why}'
    return Conflict(409, "Conflict", words)


def invalid(resource: Resource, name: str, problems: Sequence[str]) -> Invalid:
    """422 with every problem of the object, each as ``field.path: What: why``."""
    what = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    return Invalid(422, "Invalid", f'{qualified_kind(resource)} "{name}" is invalid: {what}')


def unprocessable_patch(why: str) -> Invalid:
    """422 for a patch that cannot be applied. The real server omits the reason."""
    words = "the server rejected our request due to an error in our request"
    return Invalid(422, "Invalid", f"{words}: {why}")


def undecodable_patch(why: str) -> Invalid:
    """422 for a patch whose result is no object of the kind."""
    return Invalid(422, "Invalid", f' "" is invalid: patch: Invalid value: {why}')


def unnamed_version(resource: Resource, name: str) -> Invalid:
    """422 for an update without resourceVersion of a kind that requires one."""
    words = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    return Invalid(422, "Invalid", f'{qualified_resource(resource)} "{name}" is invalid: {words}')


def unparsable_version(text: str, field: str = "") -> ApiError:
    """500 without a reason for a resourceVersion that is no number, as a plain Go error."""
    where = f'{field}: Invalid value: "{text}": ' if field else ""
    return ApiError(500, "", f'{where}strconv.ParseUint: parsing "{text}": invalid syntax')


def version_on_create() -> ApiError:
    """500 for a create that names a version."""
    return ApiError(500, "", "resourceVersion should not be set on objects to be created")


def other_name(found: object, wanted: str) -> ApiError:
    """400 for a body that names another object than the URL."""
    return bad_request(
        f"the name of the object ({found}) does not match the name on the URL ({wanted})"
    )


def other_namespace() -> ApiError:
    """400 for a body that names another namespace than the URL."""
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on the request"
    )


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def too_large(message: str) -> ApiError:
    """413."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def forbidden(resource: Resource, name: str, why: str) -> Forbidden:
    """403 by a built-in admission plugin."""
    return Forbidden(
        403, "Forbidden", f'{qualified_resource(resource)} "{name}" is forbidden: {why}'
    )


def method_not_allowed() -> ApiError:
    """405 for a subresource or verb that the resource does not have."""
    words = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", words)


def unsupported_media_type(accepted: str) -> ApiError:
    """415; ``accepted`` is a list of media types."""
    words = (
        f"the body of the request was in an unknown format - accepted media types include: "
        f"{accepted}"
    )
    return ApiError(415, "UnsupportedMediaType", words)


def expired_continue() -> Expired:
    """410 for a continue token whose version is no longer in the history."""
    words = "The provided continue parameter is too old to display a consistent list result."
    return Expired(410, "Expired", words)


def expired_watch(wanted: int, oldest: int) -> Expired:
    """410 for a watch from a version before the history."""
    return Expired(410, "Expired", f"too old resource version: {wanted} ({oldest})")


def internal(message: str) -> ApiError:
    """500."""
    return ApiError(500, "InternalError", f"Internal error occurred: {message}")


def status_body(error: ApiError) -> Obj:
    """Return the metav1.Status for ``error``."""
    code = 504 if isinstance(error, OutcomeUnknown) and not error.status else error.status
    body: Obj = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": code,
    }
    if error.retry_after_s is not None:
        body["details"] = {"retryAfterSeconds": int(error.retry_after_s)}
    return body
