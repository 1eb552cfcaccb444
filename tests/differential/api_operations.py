"""One API operation as data, and how it is performed on either side.

Operations are generated before anything runs, so they name what they cannot know yet by words:
``$uid`` and ``$version`` (those that the object has now), ``$old-uid`` and ``$old-version`` (the
first that were seen of that name), ``$namespace`` (the sequence's own), anywhere in a body, a
precondition or a selector. ``Side`` keeps what one side has shown so far.

A watch is an operation too: it opens at a version from before, creates an object of its own behind
all the others (the marker) and reads until it sees it, so that it needs no waiting and misses
nothing.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, cast

from extender.kube.api import (
    ADAPTERPOOLS,
    CONFIGMAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    Api,
    ApiError,
    Binding,
    ListOptions,
    ListPage,
    Obj,
    PatchType,
    Preconditions,
    Resource,
    WatchEventType,
)
from extender.lab.apiserver.patch import merge_patch

KINDS: Final = {
    resource.kind: resource
    for resource in (
        PODS,
        STATEFULSETS,
        NODES,
        NAMESPACES,
        VPODS,
        ADAPTERPOOLS,
        LEASES,
        EVENTS,
        CONFIGMAPS,
    )
}
WATCH_TIMEOUT_S: Final = 20.0
BOOKMARK_TIMEOUT_S: Final = 4.0
"""kube-apiserver sends one 2 s before a watch's end, and none to a watch that is shorter."""
PAGES_MAX: Final = 20
NO_UID: Final = "00000000-0000-4000-8000-000000000000"


class Strategic(StrEnum):
    """kubectl's patch, which the service itself never sends."""

    MERGE = "application/strategic-merge-patch+json"


PATCH_TYPES: Final = {
    "json": PatchType.JSON,
    "merge": PatchType.MERGE,
    "strategic": Strategic.MERGE,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One request, or a list or watch with all that belongs to it. What a verb has no use for is
    left empty.
    """

    verb: str
    kind: str
    name: str = ""
    body: Any = None
    """create: the object. patch: the patch. update: a merge patch on what is stored. bind: node and
    annotations.
    """
    subresource: str = ""
    patch_type: str = ""
    uid: str = ""
    version: str = ""
    grace_s: int | None = None
    labels: str = ""
    fields: str = ""
    limit: int = 0
    since: str = ""
    """watch: "start" of the sequence, the last "list", or a version as it is."""
    between: "Operation | None" = None
    """list: performed after the first page."""

    @property
    def speaks(self) -> bool:
        """Whether it says anything by a word that only the object's state gives a meaning."""
        text = f"{self.body}{self.uid}{self.version}{self.since}"
        return any(word in text for word in ("$uid", "$version", "$old-"))

    def __str__(self) -> str:
        shown = {
            key: value
            for key, value in asdict(self).items()
            if value not in (None, "", 0) or key == "grace_s"
        }
        verb, kind, name = shown.pop("verb"), shown.pop("kind"), shown.pop("name", "")
        if shown.get("grace_s") is None:
            shown.pop("grace_s", None)
        if self.between is not None:
            shown["between"] = str(self.between)
        return f"{verb} {kind} {name} {json.dumps(shown)}"


@dataclass(slots=True)
class Outcome:
    """What an operation showed: ``error`` "" for success; ``shown`` is objects, events and pages as
    they came.
    """

    error: str = ""
    message: str = ""
    shown: Any = None
    wrote: bool | None = None
    """Whether an update or patch has made a new version."""


@dataclass(slots=True)
class Side:
    """One API server and what a sequence has seen of it."""

    api: Api
    namespace: str
    first: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Kind and name to the uid and version that were seen first."""
    start: dict[str, str] = field(default_factory=dict)
    listed: dict[str, str] = field(default_factory=dict)
    markers: int = 0
    version_before: str = ""
    """Of the object that was looked at last."""

    async def prepare(self, kinds: Iterable[str]) -> None:
        """Notes the versions that ``start`` means."""
        for kind in kinds:
            page = await self.api.list_page(
                KINDS[kind], self.options(Operation("list", kind)), limit=1
            )
            self.start[kind] = self.listed[kind] = page.resource_version

    def options(self, operation: Operation) -> ListOptions:
        """Never more than the sequence's own objects, which cluster-scoped ones are by
        their label.
        """
        resource = KINDS[operation.kind]
        labels, fields = (self.filled(text) for text in (operation.labels, operation.fields))
        if resource.namespaced:
            return ListOptions(self.namespace, labels, fields)
        own = f"sequence={self.namespace}"
        return ListOptions("", f"{own},{labels}" if labels else own, fields)

    def place(self, operation: Operation) -> tuple[Resource, str, str]:
        """Resource, namespace and name of what an operation is about."""
        resource = KINDS[operation.kind]
        if resource.namespaced:
            return resource, self.namespace, operation.name
        return resource, "", f"{self.namespace}-{operation.name}" if operation.name else ""

    def filled(self, value: Any, known: dict[str, str] | None = None) -> Any:
        """``value`` with the words replaced, at any depth."""
        words = {"$namespace": self.namespace, **(known or {})}
        if isinstance(value, dict):
            return {
                self.filled(key, known): self.filled(item, known) for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.filled(item, known) for item in value]
        if isinstance(value, str) and "$" in value:
            for word, text in words.items():
                value = value.replace(word, text)
        return value

    def note(self, kind: str, obj: Obj) -> None:
        """Remembers an object's first uid and version."""
        metadata = obj.get("metadata") or {}
        seen = (str(metadata.get("uid", "")), str(metadata.get("resourceVersion", "")))
        self.first.setdefault((kind, str(metadata.get("name", ""))), seen)

    async def known(
        self, operation: Operation, *, always: bool = False
    ) -> tuple[dict[str, str], Obj | None]:
        """What the words mean now, and the object as it is; without ``always`` only where an
        operation uses one.
        """
        if not always and not operation.speaks:
            return {}, None
        resource, namespace, name = self.place(operation)
        now: Obj | None = None
        try:
            now = await self.api.get(resource, namespace, name) if name else None
        except ApiError:
            now = None
        if now is not None:
            self.note(operation.kind, now)
        old_uid, old_version = self.first.get((operation.kind, name), (NO_UID, "1"))
        metadata = (now or {}).get("metadata", {})
        self.version_before = str(metadata.get("resourceVersion", ""))
        return {
            "$uid": str(metadata.get("uid", NO_UID)),
            "$version": str(metadata.get("resourceVersion", "1")),
            "$old-uid": old_uid,
            "$old-version": old_version,
        }, now

    async def perform(self, operation: Operation) -> Outcome:
        """The outcome; an API server's refusal is one, and so is a handler that breaks."""
        verb: Callable[[Side, Operation], Any] = _VERBS[operation.verb]
        try:
            shown = await verb(self, operation)
        except ApiError as error:
            return Outcome(error=f"{error.status} {error.reason}", message=error.message)
        except (TypeError, AttributeError, LookupError, ValueError, TimeoutError) as error:
            return Outcome(error=f"broken: {error!r}"[:200])
        if operation.verb not in {"update", "patch"}:
            return Outcome(shown=shown)
        return Outcome(
            shown=shown, wrote=shown["metadata"]["resourceVersion"] != self.version_before
        )


async def _create(side: Side, operation: Operation) -> Obj:
    resource, namespace, name = side.place(operation)
    obj = side.filled(operation.body, (await side.known(operation))[0])
    if not resource.namespaced and isinstance(obj, dict):
        metadata = obj.setdefault("metadata", {})
        metadata["name"] = name
        labels = metadata.get("labels") or {}
        metadata["labels"] = (
            {"sequence": side.namespace, **labels} if isinstance(labels, dict) else labels
        )
    stored = await side.api.create(resource, namespace, obj)
    side.note(operation.kind, stored)
    return stored


async def _get(side: Side, operation: Operation) -> Obj:
    resource, namespace, name = side.place(operation)
    return await side.api.get(resource, namespace, name, subresource=operation.subresource)


async def _list(side: Side, operation: Operation) -> Obj:
    resource, options = KINDS[operation.kind], side.options(operation)
    pages: list[ListPage] = [await side.api.list_page(resource, options, limit=operation.limit)]
    between = await side.perform(operation.between) if operation.between else None
    while pages[-1].continue_token and len(pages) < PAGES_MAX:
        token = pages[-1].continue_token
        pages.append(
            await side.api.list_page(resource, options, limit=operation.limit, continue_token=token)
        )
    side.listed[operation.kind] = pages[0].resource_version
    items = [item for page in pages for item in page.items]
    newest = max((int(item["metadata"]["resourceVersion"]) for item in items), default=0)
    return {
        "pages": [len(page.items) for page in pages] if resource.namespaced else None,
        "items": items,
        "one version": len({page.resource_version for page in pages}) == 1,
        "not older than its items": int(pages[0].resource_version) >= newest,
        "between": None if between is None else {"error": between.error, "object": between.shown},
    }


async def _watch(side: Side, operation: Operation) -> Obj:
    resource, options = KINDS[operation.kind], side.options(operation)
    side.markers += 1
    marker = Operation(
        "create", operation.kind, f"zz-marker-{side.markers}", side.filled(operation.body)
    )
    words, _ = await side.known(operation)
    named = {"start": side.start[operation.kind], "list": side.listed[operation.kind]}
    since = named.get(operation.since, side.filled(operation.since, words))
    body = marker.body | {"metadata": {**marker.body.get("metadata", {}), "name": marker.name}}
    stored = await _create(side, Operation("create", operation.kind, marker.name, body))
    last = stored["metadata"]["name"]
    events = []
    async with asyncio.timeout(WATCH_TIMEOUT_S):
        watch = side.api.watch(resource, options, resource_version=since, timeout_s=WATCH_TIMEOUT_S)
        async for event in watch:
            if event.type is WatchEventType.BOOKMARK:
                continue
            events.append({"type": event.type.value, "object": event.object})
            if event.object["metadata"]["name"] == last:
                break
        await cast("Any", watch).aclose()
    return {"events": events}


async def _bookmark(side: Side, operation: Operation) -> Obj:
    """A watch with nothing to tell ends with word of how far it is."""
    resource, options = KINDS[operation.kind], side.options(operation)
    start = (await side.api.list_page(resource, options, limit=1)).resource_version
    watch = side.api.watch(resource, options, resource_version=start, timeout_s=BOOKMARK_TIMEOUT_S)
    last: Obj = {}
    async for event in watch:
        last = {"type": event.type.value, "kind": event.object.get("kind")}
        last["goes on"] = int(event.object["metadata"]["resourceVersion"]) >= int(start)
    return last


async def _update(side: Side, operation: Operation) -> Obj:
    resource, namespace, name = side.place(operation)
    words, now = await side.known(operation, always=True)
    if operation.subresource == "scale":
        now = {"metadata": {"name": name, "namespace": namespace}}
    wanted = now or {"metadata": {"name": name}}
    wanted = merge_patch(wanted, side.filled(operation.body, words))
    if isinstance(wanted.get("metadata"), dict):
        wanted["metadata"].pop("managedFields", None)
        wanted["metadata"].pop("resourceVersion", None)
        if operation.version:
            wanted["metadata"]["resourceVersion"] = side.filled(operation.version, words)
    return await side.api.update(
        resource, namespace, name, wanted, subresource=operation.subresource
    )


async def _patch(side: Side, operation: Operation) -> Obj:
    resource, namespace, name = side.place(operation)
    words, _ = await side.known(operation, always=True)
    return await side.api.patch(
        resource,
        namespace,
        name,
        side.filled(operation.body, words),
        patch_type=cast("PatchType", PATCH_TYPES[operation.patch_type]),
        subresource=operation.subresource,
    )


async def _delete(side: Side, operation: Operation) -> None:
    resource, namespace, name = side.place(operation)
    words, _ = await side.known(operation)
    preconditions = Preconditions(
        side.filled(operation.uid, words), side.filled(operation.version, words)
    )
    await side.api.delete(
        resource, namespace, name, preconditions=preconditions, grace_period_s=operation.grace_s
    )


async def _bind(side: Side, operation: Operation) -> None:
    words, _ = await side.known(operation)
    body = side.filled(operation.body, words)
    await side.api.bind(
        Binding(
            side.namespace,
            operation.name,
            body["node"],
            uid=side.filled(operation.uid, words),
            resource_version=side.filled(operation.version, words),
            annotations=body.get("annotations", {}),
        )
    )


_VERBS: Final[dict[str, Any]] = {
    "create": _create,
    "get": _get,
    "list": _list,
    "watch": _watch,
    "bookmark": _bookmark,
    "update": _update,
    "patch": _patch,
    "delete": _delete,
    "bind": _bind,
}
