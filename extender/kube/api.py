"""``Api``: everything that we ask of a Kubernetes API server, as one Protocol.

Two classes implement it: ``extender.kube.client.KubeApi`` (over HTTPS) and
``extender.lab.apiserver.cluster.Cluster`` (the embedded cluster). Both answer with plain JSON
objects, raise the same errors, and pass the same tests.

Its callers are reflectors (one list and one long-lived watch per kind), the committer and the
binder (many short writes at once), the autoscaler (scale subresource), leader election (one small
write every 2 s), and the event recorder. Each call takes effect on the server at once or not at
all, except where ``OutcomeUnknown`` says otherwise.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from extender.model.errors import VReplicaError
from extender.model.names import GROUP, VERSION

Obj = dict[str, Any]
"""An API object as JSON."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object by its place in the API: ``group`` "" is the core group, ``plural`` as in
    URLs.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``group/version``, or ``version`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """``/api/v1`` or ``/apis/group/version``."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


PODS: Final = Resource("", "v1", "pods", "Pod")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
STATEFULSETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
CRDS: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    namespaced=False,
)
PRIORITYCLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
VPODS: Final = Resource(GROUP, VERSION, "vpods", "VPod")
ADAPTERPOOLS: Final = Resource(GROUP, VERSION, "adapterpools", "AdapterPool")
VREPLICAQUOTAS: Final = Resource(GROUP, VERSION, "vreplicaquotas", "VReplicaQuota")


class PatchType(StrEnum):
    """Content type of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list, at ``resource_version`` of the whole collection. ``continue_token`` is ""
    on the last page.
    """

    items: list[Obj]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None
    """About how many items the next pages have; None if the server does not say, as with a
    selector.
    """


class WatchEventType(StrEnum):
    """``type`` of a watch event. ``Api.watch`` never yields ERROR: it raises the ApiError that the
    event carries.
    """

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One watch event. A BOOKMARK's object has only metadata.resourceVersion."""

    type: WatchEventType
    object: Obj


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list or watch selects. ``namespace`` "" is all namespaces; selectors as in URLs."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


EVERYWHERE: Final = ListOptions()


@dataclass(frozen=True, slots=True)
class Binding:
    """A v1 Binding: puts pod ``namespace/name`` on ``node`` and, in the same write, merges
    ``annotations`` into it.

    ``uid`` and ``resource_version`` are preconditions: Conflict if the pod's differ. "" is no
    precondition.
    """

    namespace: str
    name: str
    node: str
    uid: str = ""
    resource_version: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> Obj:
        """The object that is sent; what is empty is left out."""
        given = {
            "uid": self.uid,
            "resourceVersion": self.resource_version,
            "annotations": dict(self.annotations),
        }
        named = {"name": self.name, "namespace": self.namespace}
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": named | {field: value for field, value in given.items() if value},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }


@dataclass(frozen=True, slots=True)
class Preconditions:
    """Preconditions of a delete: Conflict if the object's differ. "" is no precondition."""

    uid: str = ""
    resource_version: str = ""


class Api(Protocol):
    """The API server. Every method may raise any ``ApiError``; the ones worth handling are
    named.
    """

    async def list_page(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        """One page. ``resource_version`` "" is a consistent read; with "0" the server's cache may
        answer with any version.

        Raises Expired (410) for a ``continue_token`` that is too old.
        """
        ...

    def watch(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        resource_version: str,
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        """Events after ``resource_version``, with bookmarks, until the server ends the watch after
        ``timeout_s``.

        Raises Expired (410) when that version is too old, before or after the first event.
        """
        ...

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Obj:
        """One object (``subresource``: ``scale`` or ``status``). Raises NotFound."""
        ...

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        """Create; the reply is the stored object. Raises AlreadyExists, Invalid, or admission's
        refusal.
        """
        ...

    async def update(
        self, resource: Resource, namespace: str, name: str, obj: Obj, *, subresource: str = ""
    ) -> Obj:
        """Replace; metadata.resourceVersion, if set, is a precondition. Raises Conflict, NotFound,
        Invalid.
        """
        ...

    async def patch(  # the arguments are the API's own
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: list[Obj] | Obj,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> Obj:
        """Patch; a JSON patch whose ``test`` fails raises Invalid (422) and changes nothing.

        metadata.resourceVersion and uid in a merge patch are preconditions. Raises Conflict,
        NotFound, Invalid.
        """
        ...

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        preconditions: Preconditions | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """Delete: a pod with a grace period (None: its own), other objects at once. Raises
        NotFound, Conflict.
        """
        ...

    async def bind(self, binding: Binding) -> None:
        """POST pods/NAME/binding. Raises Conflict (stale precondition, or already bound),
        NotFound.
        """
        ...

    async def evict(
        self, namespace: str, name: str, *, preconditions: Preconditions | None = None
    ) -> None:
        """POST pods/NAME/eviction: delete a pod with its own grace period, if its
        PodDisruptionBudget allows it.

        Raises TooManyRequests (the budget allows none now), Conflict, NotFound; ApiError 500 if
        several budgets select the pod.
        """
        ...


class ConnectError(VReplicaError):
    """The kubeconfig or the pod's service account cannot be used; the message says why."""


class ApiError(VReplicaError):
    """An answer of the API server other than 2xx: its HTTP ``status``, and the ``reason`` and
    ``message`` of its Status.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409 Conflict: a precondition or the version is stale, or the pod is bound already."""


class AlreadyExists(ApiError):
    """409 AlreadyExists."""


class Expired(ApiError):
    """410 Gone or Expired: list again."""


class Invalid(ApiError):
    """422 Invalid: validation, or the ``test`` of a JSON patch, failed."""


class Forbidden(ApiError):
    """403: RBAC or admission refused."""


class TooManyRequests(ApiError):
    """429; ``retry_after_s`` says when to try again."""


class OutcomeUnknown(ApiError):
    """No definite answer: a time-out, a broken or failed connection, an unreadable reply, or an
    error from behind the API server. A write may or may not have happened.
    """


CAUSES_MAX: Final = 3
"""Causes of one refusal that its message includes."""


def error_from_status(
    status: int, body: Mapping[str, Any], *, retry_after_s: float | None = None
) -> ApiError:
    """The error for an HTTP status and the metav1.Status in its body."""
    reason = str(body.get("reason") or "")
    message = _with_causes(str(body.get("message") or ""), body.get("details"))[:2000]
    if status == 409:
        kind: type[ApiError] = AlreadyExists if reason == "AlreadyExists" else Conflict
    else:
        kind = _BY_STATUS.get(status, ApiError)
    return kind(status, reason, message, retry_after_s=retry_after_s)


def _with_causes(message: str, details: object) -> str:
    """The message with the causes that it does not name. If a JSON patch fails, for example, the
    message alone says only that.
    """
    causes = details.get("causes") if isinstance(details, Mapping) else None
    more = []
    for cause in causes[:CAUSES_MAX] if isinstance(causes, list) else ():
        said = cause.get("message") if isinstance(cause, Mapping) else None
        if isinstance(said, str) and said and said not in message:
            field = cause.get("field")
            more.append(f"{field}: {said}" if isinstance(field, str) and field else said)
    return f"{message} ({'; '.join(more)})" if more else message


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    403: Forbidden,
    404: NotFound,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}
