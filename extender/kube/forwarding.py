"""``ForwardingApi``: an ``Api`` in front of another one. Its subclasses refuse, guard, break or
watch the calls that go through them, all in one place: ``_forward``.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from extender.kube.api import (
    EVERYWHERE,
    PODS,
    Api,
    Binding,
    ListOptions,
    ListPage,
    Obj,
    PatchType,
    Preconditions,
    Resource,
    WatchEvent,
)

T = TypeVar("T")

WRITE_VERBS: Final = ("create", "update", "patch", "delete", "bind", "evict")


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One call: ``verb`` is the method's name, but ``list`` for a page; ``body`` is what is
    written.

    ``name`` is "" for lists, and for an object that the API server names.
    """

    verb: str
    resource: Resource
    namespace: str
    name: str = ""
    subresource: str = ""
    body: Obj | list[Obj] | Binding | None = None

    @property
    def collection(self) -> str:
        """``pods``, or ``vpods/status``."""
        plural = self.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


class ForwardingApi:
    """Forwards every call to ``api``, all but watches by ``_forward``. See Api for what they do."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def _forward(
        self,
        call: ApiCall,  # noqa: ARG002 - for subclasses
        send: Callable[[], Coroutine[Any, Any, T]],
    ) -> Coroutine[Any, Any, T]:
        """How ``call`` is made: ``send()`` makes it. A subclass overrides this."""
        return send()

    def list_page(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Coroutine[Any, Any, ListPage]:
        """See Api."""
        send = partial(
            self._api.list_page,
            resource,
            options,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
        )
        return self._forward(ApiCall("list", resource, options.namespace), send)

    def watch(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        resource_version: str,
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        """See Api."""
        return self._api.watch(
            resource, options, resource_version=resource_version, timeout_s=timeout_s
        )

    def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Coroutine[Any, Any, Obj]:
        """See Api."""
        send = partial(self._api.get, resource, namespace, name, subresource=subresource)
        return self._forward(ApiCall("get", resource, namespace, name, subresource), send)

    def create(self, resource: Resource, namespace: str, obj: Obj) -> Coroutine[Any, Any, Obj]:
        """See Api."""
        metadata = obj.get("metadata")
        name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
        send = partial(self._api.create, resource, namespace, obj)
        return self._forward(ApiCall("create", resource, namespace, name, body=obj), send)

    def update(
        self, resource: Resource, namespace: str, name: str, obj: Obj, *, subresource: str = ""
    ) -> Coroutine[Any, Any, Obj]:
        """See Api."""
        send = partial(self._api.update, resource, namespace, name, obj, subresource=subresource)
        return self._forward(ApiCall("update", resource, namespace, name, subresource, obj), send)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: list[Obj] | Obj,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> Coroutine[Any, Any, Obj]:
        """See Api."""
        send = partial(
            self._api.patch,
            resource,
            namespace,
            name,
            patch,
            patch_type=patch_type,
            subresource=subresource,
        )
        return self._forward(ApiCall("patch", resource, namespace, name, subresource, patch), send)

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        preconditions: Preconditions | None = None,
        grace_period_s: int | None = None,
    ) -> Coroutine[Any, Any, None]:
        """See Api."""
        send = partial(
            self._api.delete,
            resource,
            namespace,
            name,
            preconditions=preconditions,
            grace_period_s=grace_period_s,
        )
        return self._forward(ApiCall("delete", resource, namespace, name), send)

    def bind(self, binding: Binding) -> Coroutine[Any, Any, None]:
        """See Api."""
        call = ApiCall("bind", PODS, binding.namespace, binding.name, body=binding)
        return self._forward(call, partial(self._api.bind, binding))

    def evict(
        self, namespace: str, name: str, *, preconditions: Preconditions | None = None
    ) -> Coroutine[Any, Any, None]:
        """See Api."""
        send = partial(self._api.evict, namespace, name, preconditions=preconditions)
        return self._forward(ApiCall("evict", PODS, namespace, name), send)
