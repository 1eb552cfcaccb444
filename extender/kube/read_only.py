"""``ReadOnlyApi``: an ``Api`` that reads and never writes. What shadow mode runs on.

Whatever a part of the service tries, the API server sees nothing but lists, watches and gets: a
write is refused here, before anything is sent, with an error that says so, and counted. That holds
for events and leases, too.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from extender.kube.api import (
    EVERYWHERE,
    Api,
    Binding,
    Forbidden,
    ListOptions,
    ListPage,
    Obj,
    PatchType,
    Preconditions,
    Resource,
    WatchEvent,
)

log: Final = logging.getLogger(__name__)

WRITE_VERBS: Final = ("create", "update", "patch", "delete", "bind")


class WriteRefused(Forbidden):
    """A write in shadow mode. It had no effect, and trying again has none either."""

    def __init__(self, verb: str, what: str) -> None:
        super().__init__(
            403,
            "ShadowMode",
            f"{verb} of {what} refused: shadow mode writes nothing (mode: active would)",
        )


class ReadOnlyApi:
    """Reads go to ``api``; every write raises WriteRefused. ``refused``: how often, by verb."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.refused: Counter[str] = Counter()

    async def list_page(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        """See Api."""
        return await self._api.list_page(
            resource,
            options,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
        )

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

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Obj:
        """See Api."""
        return await self._api.get(resource, namespace, name, subresource=subresource)

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        """Raises WriteRefused."""
        metadata = obj.get("metadata")
        name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
        raise self._refuse("create", _what(resource, namespace, name))

    async def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        obj: Obj,  # noqa: ARG002 - same signature as Api
        *,
        subresource: str = "",
    ) -> Obj:
        """Raises WriteRefused."""
        raise self._refuse("update", _what(resource, namespace, name, subresource))

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: list[Obj] | Obj,  # noqa: ARG002 - same signature as Api
        *,
        patch_type: PatchType,  # noqa: ARG002 - same signature as Api
        subresource: str = "",
    ) -> Obj:
        """Raises WriteRefused."""
        raise self._refuse("patch", _what(resource, namespace, name, subresource))

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        preconditions: Preconditions | None = None,  # noqa: ARG002 - same signature as Api
        grace_period_s: int | None = None,  # noqa: ARG002 - same signature as Api
    ) -> None:
        """Raises WriteRefused."""
        raise self._refuse("delete", _what(resource, namespace, name))

    async def bind(self, binding: Binding) -> None:
        """Raises WriteRefused."""
        raise self._refuse("bind", f"pod {binding.namespace}/{binding.name}")

    def _refuse(self, verb: str, what: str) -> WriteRefused:
        self.refused[verb] += 1
        error = WriteRefused(verb, what)
        log.warning("%s", error)
        return error


def _what(resource: Resource, namespace: str, name: str, subresource: str = "") -> str:
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return f"{plural} {namespace}/{name}" if namespace else f"{plural} {name}"
