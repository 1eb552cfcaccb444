"""``Informer``: lists and watches one kind, and calls its handlers with each change.

It is a small form of client-go's. One informer serves all that need the kind. It ends when its
``run`` is cancelled.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from extender.kube.api import (
    EVERYWHERE,
    Api,
    ApiError,
    Expired,
    ListOptions,
    Obj,
    Resource,
    WatchEventType,
)

Handler = Callable[[Obj | None, Obj | None], None]
"""Called with (before, after); None: the object did not exist, or no longer exists."""
ObjectKey = tuple[str, str]

RELIST_DELAY_S: Final = 1.0
WATCH_TIMEOUT_S: Final = 300.0


def key_of(obj: Obj) -> ObjectKey:
    """Return namespace ("" if none) and name."""
    metadata = obj["metadata"]
    return (metadata.get("namespace", ""), metadata["name"])


class Informer:
    """A local copy of one kind. Readers must not change ``objects``."""

    def __init__(self, api: Api, resource: Resource, options: ListOptions = EVERYWHERE) -> None:
        self.objects: dict[ObjectKey, Obj] = {}
        self.synced = asyncio.Event()
        self._api = api
        self._resource = resource
        self._options = options
        self._handlers: list[Handler] = []
        self._anew = False

    def begin_anew(self) -> None:
        """Start again with the next list, like a process that has just started. After the restore
        of a backup, versions do not tell what has changed.
        """
        self._anew = True

    def on_change(self, handler: Handler) -> None:
        """Call ``handler`` for every object that is known, and for every later change."""
        self._handlers.append(handler)
        for obj in self.objects.values():
            handler(None, obj)

    async def run(self) -> None:
        """List, then watch. An ended watch continues from its last version; 410 means a new
        list.
        """
        while True:
            try:
                version = await self._list()
                while not self._anew:
                    version = await self._watch(version)
            except Expired:
                continue
            except ApiError:
                await asyncio.sleep(RELIST_DELAY_S)

    async def _list(self) -> str:
        listed: dict[ObjectKey, Obj] = {}
        token = ""
        if self._anew:
            self._anew = False
            for key in list(self.objects):
                self._change(key, None)
        while True:
            page = await self._api.list_page(self._resource, self._options, continue_token=token)
            listed.update((key_of(obj), obj) for obj in page.items)
            if not page.continue_token:
                break
            token = page.continue_token
        for key in [key for key in self.objects if key not in listed]:
            self._change(key, None)
        for key, obj in listed.items():
            known = self.objects.get(key)
            if (
                known is None
                or known["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]
            ):
                self._change(key, obj)
        self.synced.set()
        return page.resource_version

    async def _watch(self, version: str) -> str:
        events = self._api.watch(
            self._resource, self._options, resource_version=version, timeout_s=WATCH_TIMEOUT_S
        )
        async for event in events:
            version = event.object["metadata"]["resourceVersion"]
            if event.type is WatchEventType.BOOKMARK:
                continue
            gone = event.type is WatchEventType.DELETED
            self._change(key_of(event.object), None if gone else event.object)
        return version

    def _change(self, key: ObjectKey, after: Obj | None) -> None:
        before = self.objects.get(key)
        if after is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = after
        if before is None and after is None:
            return
        # Handlers key by uid, so an object that was deleted and recreated between lists is two
        # changes.
        if before and after and before["metadata"]["uid"] != after["metadata"]["uid"]:
            for handler in self._handlers:
                handler(before, None)
            before = None
        for handler in self._handlers:
            handler(before, after)
