"""``KubeApi``: the real ``Api``: verbs and paths of Kubernetes' REST conventions over
``Transport``.

Bodies are raw JSON through orjson, without generated models. ``transport`` decides what is retried
and raised, ``budget`` how much is asked at once. ``connection`` has the credentials.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Self
from urllib.parse import quote

import orjson

from extender.kube.api import (
    EVERYWHERE,
    PODS,
    SERVICE_ACCOUNTS,
    Binding,
    Invalid,
    ListOptions,
    ListPage,
    Obj,
    OutcomeUnknown,
    PatchType,
    Preconditions,
    Resource,
    WatchEvent,
    WatchEventType,
    error_from_status,
)
from extender.kube.budget import BURST_DEFAULT, QPS_DEFAULT, Budget, Lane, lane_of
from extender.kube.connection import Connection, open_connection
from extender.kube.transport import Request, Transport, decode
from extender.model.names import COMPONENT

_WRITER: Final[Mapping[str, str]] = {"fieldManager": COMPONENT}
_NO_QUERY: Final[Mapping[str, str]] = {}


class KubeApi:
    """An API server over HTTP; implements ``Api``. Create it with ``connect``, end it with
    ``close``.
    """

    def __init__(self, connection: Connection, transport: Transport) -> None:
        self._connection = connection
        self._transport = transport
        self.namespace = connection.namespace
        """The namespace that kubectl uses without ``--namespace``: the context's or the service
        account's, else ``default``.
        """
        self.requests = transport.requests
        """(method, status code or "<error>") -> number of requests sent."""
        self.budget = transport.budget
        """What waits, has waited and was held back, by lane."""

    @classmethod
    async def connect(
        cls,
        *,
        kubeconfig: str = "",
        context: str = "",
        user_agent: str = COMPONENT,
        timeout_s: float = 10.0,
        qps: float = QPS_DEFAULT,
        burst: int = BURST_DEFAULT,
    ) -> Self:
        """Prepare a connection; nothing is sent yet. Raises ConnectError (``connection``).

        ``qps`` (requests a second) and ``burst`` (requests at once) apply to each lane
        (``budget``). ``timeout_s`` includes the wait for the lane and the reading of the answer.
        """
        connection = await open_connection(kubeconfig=kubeconfig, context=context)
        budget = Budget(qps, burst)
        transport = Transport(connection, budget, user_agent=user_agent, timeout_s=timeout_s)
        return cls(connection, transport)

    def observe_latency(self, observe: Callable[[str, str, float], None]) -> None:
        """Call ``observe`` for each answer from now on: method, lane, and the seconds from sending
        to the answer's beginning.
        """
        self._transport.observe_latency = observe

    @property
    def server(self) -> str:
        """The API server's address."""
        return self._connection.base_url

    async def server_version(self) -> Obj:
        """The API server's /version (``gitVersion`` and more)."""
        return await self._object(Request("GET", "/version", Lane.READS))

    async def close(self) -> None:
        """Close the connection; requests under way end with OutcomeUnknown."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def list_page(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        """One page; ``limit`` 0 is all at once. See ``Api.list_page``."""
        query = _selection(options)
        if limit:
            query["limit"] = str(limit)
        if continue_token:
            query["continue"] = continue_token
        if resource_version:
            query["resourceVersion"] = resource_version
        request = _request("GET", resource, path_of(resource, options.namespace), query=query)
        body = decode(request, await self._transport.exchange(request))
        metadata, items = body.get("metadata") or {}, body.get("items") or []
        if not isinstance(metadata, dict) or not isinstance(items, list):
            raise OutcomeUnknown(0, "InvalidResponse", f"{request}: not a list of objects")
        remaining = metadata.get("remainingItemCount")
        return ListPage(
            items,
            str(metadata.get("resourceVersion") or ""),
            metadata.get("continue") or "",
            remaining if isinstance(remaining, int) else None,
        )

    async def watch(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        resource_version: str,
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        """Events after ``resource_version``. See ``Api.watch``."""
        query = _selection(options) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, int(timeout_s))),
        }
        request = _request("GET", resource, path_of(resource, options.namespace), query=query)
        lines = self._transport.lines(request, timeout_s=timeout_s)
        try:
            async for line in lines:
                yield _event(request, decode(request, line))
        finally:
            await lines.aclose()

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Obj:
        """One object. See ``Api.get``."""
        path = path_of(resource, namespace, name, subresource)
        return await self._object(_request("GET", resource, path))

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        """Create. See ``Api.create``."""
        path, body = path_of(resource, namespace), _typed(resource, obj)
        return await self._object(_request("POST", resource, path, body, query=_WRITER))

    async def update(
        self, resource: Resource, namespace: str, name: str, obj: Obj, *, subresource: str = ""
    ) -> Obj:
        """Replace. See ``Api.update``."""
        path = path_of(resource, namespace, name, subresource)
        body = _typed(resource, obj, subresource)
        return await self._object(_request("PUT", resource, path, body, query=_WRITER))

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: list[Obj] | Obj,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> Obj:
        """Patch. See ``Api.patch``."""
        path = path_of(resource, namespace, name, subresource)
        request = _request("PATCH", resource, path, patch, query=_WRITER)
        request = replace(request, content_type=patch_type.value)
        try:
            return await self._object(request)
        except Invalid as error:
            raise Invalid(error.status, error.reason, _of_patch(error.message, patch)) from error

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        preconditions: Preconditions | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """Delete. See ``Api.delete``."""
        options: Obj = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions is not None:
            options["preconditions"] = _wanted(preconditions)
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        request = _request("DELETE", resource, path_of(resource, namespace, name), options)
        await self._transport.exchange(request)

    async def bind(self, binding: Binding) -> None:
        """POST pods/NAME/binding. See ``Api.bind``."""
        path = path_of(PODS, binding.namespace, binding.name, "binding")
        body = binding.to_json()
        await self._transport.exchange(_request("POST", PODS, path, body, query=_WRITER))

    async def evict(
        self, namespace: str, name: str, *, preconditions: Preconditions | None = None
    ) -> None:
        """POST pods/NAME/eviction. See ``Api.evict``."""
        options = {"preconditions": _wanted(preconditions)} if preconditions is not None else {}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        path = path_of(PODS, namespace, name, "eviction")
        await self._transport.exchange(_request("POST", PODS, path, body, query=_WRITER))

    async def token(self, namespace: str, account: str, lifetime_s: int) -> Obj:
        """POST serviceaccounts/NAME/token. Return the TokenRequest with its token. Raises
        ApiError.
        """
        spec = {"expirationSeconds": lifetime_s}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = path_of(SERVICE_ACCOUNTS, namespace, account, "token")
        return await self._object(_request("POST", SERVICE_ACCOUNTS, path, body, query=_WRITER))

    async def _object(self, request: Request) -> Obj:
        return decode(request, await self._transport.exchange(request))


def _wanted(preconditions: Preconditions) -> Obj:
    wanted = {"uid": preconditions.uid, "resourceVersion": preconditions.resource_version}
    return {key: value for key, value in wanted.items() if value}


def _request(
    method: str,
    resource: Resource,
    path: str,
    body: Obj | list[Obj] | None = None,
    *,
    query: Mapping[str, str] = _NO_QUERY,
) -> Request:
    """A request in its resource's lane."""
    lane = lane_of(resource, writes=method != "GET")
    return Request(method, path, lane, query, b"" if body is None else orjson.dumps(body))


def _of_patch(message: str, patch: list[Obj] | Obj) -> str:
    """Add the tested paths to the message of a refused JSON patch: for a ``test`` that fails the
    API server names neither field nor cause.
    """
    tested = (
        [str(step.get("path")) for step in patch if step.get("op") == "test"]
        if isinstance(patch, list)
        else []
    )
    if not tested or not message.endswith("due to an error in our request"):
        return message
    return (
        f"{message} (the patch tests {', '.join(tested)[:300]}: somebody else has written "
        f"meanwhile, most likely)"
    )


def path_of(resource: Resource, namespace: str, name: str = "", subresource: str = "") -> str:
    """The quoted URL path of a collection or an object. Raises Invalid for a name that no object
    can have.
    """
    if (
        name in {".", ".."}
        or namespace in {".", ".."}
        or (name and resource.namespaced and not namespace)
    ):
        raise Invalid(422, "Invalid", f"{resource.kind} {namespace!r}/{name!r} is no object's name")
    parts = [resource.path]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource.plural)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def _selection(options: ListOptions) -> dict[str, str]:
    wanted = {"labelSelector": options.label_selector, "fieldSelector": options.field_selector}
    return {key: value for key, value in wanted.items() if value}


def _typed(resource: Resource, obj: Obj, subresource: str = "") -> Obj:
    """``obj`` with apiVersion and kind: items of a list lack them, and a write of a custom resource
    needs them.
    """
    if subresource == "scale":
        return {"apiVersion": "autoscaling/v1", "kind": "Scale", **obj}
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


def _event(request: Request, raw: dict[str, Any]) -> WatchEvent:
    """A watch event. Raises the ApiError that an ERROR event carries."""
    kind, obj = raw.get("type"), raw.get("object")
    if not isinstance(obj, dict):
        raise OutcomeUnknown(0, "InvalidResponse", f"{request}: a watch event without an object")
    if kind == "ERROR":
        code = obj.get("code")
        raise error_from_status(code if isinstance(code, int) else 500, obj)
    try:
        return WatchEvent(WatchEventType(str(kind)), obj)
    except ValueError as error:
        raise OutcomeUnknown(
            0, "InvalidResponse", f"{request}: watch event type {kind!r:.50}"
        ) from error
