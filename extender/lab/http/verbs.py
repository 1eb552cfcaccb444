"""The verbs of the HTTP server: read a request for a resource from its path, query and body, and
answer it.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
import yaml
from aiohttp import web

from extender.kube.api import (
    PODS,
    ApiError,
    ListOptions,
    Obj,
    PatchType,
    Preconditions,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.lab.apiserver import statuses
from extender.lab.apiserver.bindings import from_object
from extender.lab.apiserver.cluster import UserView
from extender.lab.apiserver.core_events import CORE_EVENTS, core_event, core_event_options
from extender.lab.apiserver.registry import Kind
from extender.lab.apiserver.requests import APPLY_PATCH, STRATEGIC_MERGE
from extender.lab.controllers.garbage import orphan_dependents
from extender.lab.http import protobuf
from extender.lab.http.table import table

WATCH_DEFAULT_S: Final = 1800.0
WATCH_MAX_S: Final = 3600.0
TRUE: Final = frozenset({"1", "true", "True", "t", "T"})
_JSON: Final = "application/json"
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_PATCH_TYPES: Final = frozenset({PatchType.JSON, PatchType.MERGE, STRATEGIC_MERGE})


@dataclass(frozen=True, slots=True)
class Call:
    """One request for a resource, read from its path and query."""

    request: web.Request
    api: UserView
    kind: Kind
    """For core events, the kind under which they are stored."""
    resource: Resource
    namespace: str
    name: str
    subresource: str

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the URL."""
        return self.request.query

    @property
    def is_core_event(self) -> bool:
        """Whether the request is for events in the core group's form."""
        return self.resource == CORE_EVENTS

    def options(self) -> ListOptions:
        """Return namespace and selectors."""
        options = ListOptions(
            self.namespace, self.query.get("labelSelector", ""), self.query.get("fieldSelector", "")
        )
        return core_event_options(options) if self.is_core_event else options

    def shown(self, obj: Obj) -> Obj:
        """Return an object in the form of the requested resource."""
        return core_event(obj) if self.is_core_event else obj

    def number(self, name: str, default: float) -> float:
        """Return a numeric parameter. Raises ApiError 400."""
        text = self.query.get(name, "")
        if not text:
            return default
        try:
            return float(text)
        except ValueError as problem:
            raise statuses.bad_request(
                f"unable to decode query parameter {name}: {text!r}"
            ) from problem

    async def body(self) -> Any:
        """Decode the body. Raises ApiError 400, 413, 415."""
        try:
            raw = await self.request.read()
        except web.HTTPRequestEntityTooLarge as problem:
            raise ApiError(413, "RequestEntityTooLarge", "Request entity too large") from problem
        if not raw:
            return {}
        if "protobuf" in self.request.content_type:
            try:
                return protobuf.decode(raw)
            except protobuf.NotProtobuf as problem:
                raise statuses.unsupported_media_type(_JSON) from problem
        if self.request.content_type == APPLY_PATCH:
            return _yaml(raw)
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError as problem:
            words = (
                f"the object provided is unrecognized: couldn't get version/kind; json parse "
                f"error: {problem}"
            )
            raise statuses.bad_request(words) from problem


def _yaml(raw: bytes) -> Any:
    """Decode a body that is YAML, or JSON as kubectl sends it. Raises ApiError 400."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return yaml.safe_load(raw)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise statuses.bad_request(f"error decoding YAML: {type(problem).__name__}") from problem


async def _mapping(call: Call) -> Obj:
    """Return the body, which must be an object. Raises ApiError 400."""
    body = await call.body()
    if not isinstance(body, dict):
        raise statuses.bad_request("the object provided is unrecognized: it is not an object")
    return body


def json_response(body: Any, status: int = 200) -> web.Response:
    """Return ``body`` as JSON."""
    return web.Response(body=orjson.dumps(body), status=status, content_type=_JSON)


async def read(call: Call) -> web.Response:
    """GET an object or a list, as JSON or as a table."""
    if not call.name:
        return await _list(call)
    obj = await call.api.get(
        call.kind.resource, call.namespace, call.name, subresource=call.subresource
    )
    return _one(call, call.shown(obj))


async def _list(call: Call) -> web.Response:
    page = await call.api.list_page(
        call.kind.resource,
        call.options(),
        limit=int(call.number("limit", 0)),
        continue_token=call.query.get("continue", ""),
    )
    metadata: Obj = {"resourceVersion": page.resource_version}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    items = [call.shown(item) for item in page.items]
    if _wants_table(call):
        return json_response(_as_table(call, items, metadata))
    kind, version = f"{call.resource.kind}List", call.resource.api_version
    return json_response(
        {"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}
    )


def _wants_table(call: Call) -> bool:
    """Return whether the client wants a table. A Scale is never shown as one."""
    return "as=Table" in call.request.headers.get("Accept", "") and call.subresource != "scale"


def _as_table(call: Call, objects: list[Obj], metadata: Mapping[str, Any]) -> Obj:
    kind = Kind(resource=CORE_EVENTS, singular="event") if call.is_core_event else call.kind
    include = call.query.get("includeObject", "Metadata")
    return table(kind, objects, now_s=call.api.server.now(), include=include, metadata=metadata)


def _one(call: Call, obj: Obj, status: int = 200) -> web.Response:
    """Answer with an object, or with a table of it."""
    return json_response(_as_table(call, [obj], {}) if _wants_table(call) else obj, status)


async def watch(call: Call) -> web.StreamResponse:
    """Stream events as JSON lines until the server's timeout, or until the client goes."""
    timeout_s = min(call.number("timeoutSeconds", WATCH_DEFAULT_S), WATCH_MAX_S)
    # An error of the request itself must be an HTTP status. Once the stream has begun, errors are
    # ERROR events.
    call.api.server.view(call.kind.resource, call.options())
    response = web.StreamResponse(headers={"Content-Type": _JSON})
    response.enable_chunked_encoding()
    await response.prepare(call.request)
    bookmarks = call.query.get("allowWatchBookmarks") in TRUE
    table_wanted = _wants_table(call)
    try:
        async for event in _events(call, timeout_s):
            if event.type is WatchEventType.BOOKMARK and not bookmarks:
                continue
            shown = (
                call.shown(event.object)
                if event.type is not WatchEventType.BOOKMARK
                else event.object
            )
            if table_wanted:
                shown = _event_table(call, event.type, shown)
            await _write_line(response, {"type": event.type.value, "object": shown})
    except ApiError as error:
        await _write_line(response, {"type": "ERROR", "object": statuses.status_body(error)})
    except ConnectionResetError:
        # The client has gone.
        return response
    await response.write_eof()
    return response


async def _write_line(response: web.StreamResponse, event: Obj) -> None:
    await response.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))


def _event_table(call: Call, kind: WatchEventType, obj: Obj) -> Obj:
    metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
    return _as_table(call, [] if kind is WatchEventType.BOOKMARK else [obj], metadata)


async def _events(call: Call, timeout_s: float) -> AsyncIterator[WatchEvent]:
    """Yield the events of a watch. With sendInitialEvents, yield all objects first, then a bookmark
    that says so (WatchList).
    """
    version = call.query.get("resourceVersion", "")
    if call.query.get("sendInitialEvents") in TRUE:
        page = await call.api.list_page(call.kind.resource, call.options(), limit=0)
        for item in page.items:
            yield WatchEvent(WatchEventType.ADDED, item)
        version = page.resource_version
        metadata = {"resourceVersion": version, "annotations": {_INITIAL_EVENTS_END: "true"}}
        kind, api_version = call.resource.kind, call.resource.api_version
        marked = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
        yield WatchEvent(WatchEventType.BOOKMARK, marked)
    elif call.query.get("sendInitialEvents") and version in ("", "0"):
        version = str(call.api.server.store.version)
    events = call.api.watch(
        call.kind.resource, call.options(), resource_version=version, timeout_s=timeout_s
    )
    async for event in events:
        yield event


async def post(call: Call) -> web.Response:
    """POST: create, bind, evict."""
    body = await call.body()
    if call.is_core_event or (call.name and not call.subresource):
        raise statuses.method_not_allowed()
    if not call.subresource:
        created = await call.api.create(call.kind.resource, call.namespace, body)
        return _one(call, created, 201)
    if call.kind.resource != PODS:
        raise statuses.no_such_resource()
    if call.subresource == "binding":
        binding = from_object(body, namespace=call.namespace, name=call.name)
        await call.api.bind(replace(binding, namespace=call.namespace, name=call.name))
        return json_response(_success({}), 201)
    if call.subresource == "eviction":
        given = body.get("deleteOptions") if isinstance(body, dict) else None
        options = given if isinstance(given, dict) else {}
        grace_s, preconditions = _delete_options(options)
        api = call.api.dry_run() if "All" in (options.get("dryRun") or ()) else call.api
        await api.evict(
            call.namespace, call.name, preconditions=preconditions, grace_period_s=grace_s
        )
        return json_response(_success({}), 201)
    raise statuses.no_such_resource()


async def write(call: Call) -> web.Response:
    """PUT or PATCH an object or a subresource."""
    if call.request.method == "PUT":
        stored = await call.api.update(
            call.kind.resource,
            call.namespace,
            call.name,
            await call.body(),
            subresource=call.subresource,
        )
    else:
        content_type = call.request.content_type
        if content_type == APPLY_PATCH:
            return await _apply(call)
        if content_type not in _PATCH_TYPES:
            raise statuses.unsupported_media_type(", ".join(sorted(_PATCH_TYPES)))
        target = call.api.server.target(
            call.kind.resource, call.namespace, call.name, call.subresource
        )
        stored = await call.api.server.patch(
            call.api.request, target, await call.body(), patch_type=content_type
        )
    return _one(call, stored)


async def _apply(call: Call) -> web.Response:
    """Server-side apply without field management: a missing object is created, else the body is
    merged.

    Fields have no owners. So nothing conflicts, and a field that is no longer sent stays.
    """
    applied = await _mapping(call)
    for field, wanted in (("apiVersion", call.resource.api_version), ("kind", call.resource.kind)):
        if applied.get(field) != wanted:
            raise statuses.bad_request(f"invalid object type: {field} must be {wanted}")
    if not call.query.get("fieldManager"):
        raise statuses.bad_request(
            "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value"
        )
    metadata = applied.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise statuses.bad_request("metadata is not an object")
    if metadata.pop("managedFields", None):
        raise statuses.bad_request("metadata.managedFields must be nil")
    server, resource = call.api.server, call.kind.resource
    target = server.target(resource, call.namespace, call.name, call.subresource)
    if target.key not in target.collection.entries and not call.subresource:
        metadata["name"] = call.name
        created = await call.api.create(resource, call.namespace, applied)
        return _one(call, created, 201)
    merge = PatchType.MERGE if call.kind.custom or call.subresource == "scale" else STRATEGIC_MERGE
    stored = await server.patch(call.api.request, target, applied, patch_type=merge)
    return _one(call, stored)


async def delete(call: Call) -> web.Response:
    """DELETE an object, or a collection with selectors."""
    options = await _mapping(call)
    if "All" in (options.get("dryRun") or ()):
        call = replace(call, api=call.api.dry_run())
    if call.subresource:
        raise statuses.method_not_allowed()
    if call.name:
        return json_response(await _delete_one(call, call.namespace, call.name, options))
    page = await call.api.list_page(call.kind.resource, call.options(), limit=0)
    for item in page.items:
        metadata = item["metadata"]
        await _delete_one(call, metadata.get("namespace", ""), metadata["name"], options)
    return json_response(_success({}))


async def _delete_one(call: Call, namespace: str, name: str, options: Obj) -> Obj:
    """Delete an object. Return it if it stays for its grace period, else a Status that names it."""
    server, resource = call.api.server, call.kind.resource
    target = server.target(resource, namespace, name)
    uid = target.entry().uid
    grace_s, preconditions = _delete_options({**call.query, **options})
    if (options.get("propagationPolicy") or call.query.get("propagationPolicy")) == "Orphan":
        await orphan_dependents(call.api, server, uid)
    left = await server.delete(
        call.api.request, target, preconditions=preconditions, grace_period_s=grace_s
    )
    if left is not None:
        return call.shown(left)
    return _success({"name": name, "group": resource.group, "kind": resource.plural, "uid": uid})


def _delete_options(options: Mapping[str, Any]) -> tuple[int | None, Preconditions | None]:
    grace_s, given = options.get("gracePeriodSeconds"), options.get("preconditions") or {}
    if not isinstance(given, dict):
        raise statuses.bad_request("preconditions is not an object")
    preconditions = Preconditions(
        str(given.get("uid") or ""), str(given.get("resourceVersion") or "")
    )
    try:
        return (None if grace_s is None else int(grace_s)), preconditions if given else None
    except (TypeError, ValueError) as problem:
        raise statuses.bad_request(f"gracePeriodSeconds is not a number: {grace_s!r}") from problem


def _success(details: Obj) -> Obj:
    status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**status, "details": details} if details else status
