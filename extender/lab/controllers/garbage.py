"""Garbage collection by owner references, and the deletion of namespaces.

Both concern every kind, including custom ones. So they subscribe to the store's changes instead of
running a watch for each kind. They write through ``Api``.

When none of a dependent's owners exists, the garbage collector deletes it in the background. Owners
are compared by uid, not by name. While another owner exists, the dependent only loses the
references to owners that are gone. Foreground deletion is not implemented.
"""

from contextlib import suppress
from typing import Final

from extender.kube.api import (
    NAMESPACES,
    Api,
    Conflict,
    NotFound,
    Obj,
    PatchType,
    Preconditions,
    Resource,
)
from extender.lab.apiserver.server import ApiServer
from extender.lab.apiserver.store import Change, Entry, Key
from extender.lab.controllers.controller import Controller, K

Reference = tuple[tuple[str, str], Key]
"""(group, plural) and (namespace, name)."""
NAMESPACE_RETRY_S: Final = 1.0


def _owner_uids(obj: Obj) -> list[str]:
    return [str(owner["uid"]) for owner in obj["metadata"].get("ownerReferences") or ()]


class _StoreController(Controller[K]):
    """A controller that hears of the changes of every kind."""

    def __init__(self, api: Api, server: ApiServer) -> None:
        super().__init__(api)
        self._server = server
        server.store.subscribers.append(self._changed)

    def _changed(self, kind: tuple[str, str], change: Change) -> None:
        raise NotImplementedError

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            await super().run()
        finally:
            self._server.store.subscribers.remove(self._changed)


class GarbageCollector(_StoreController[Reference]):
    """Deletes dependents whose owners are gone."""

    def __init__(self, api: Api, server: ApiServer) -> None:
        super().__init__(api, server)
        self._living: dict[str, None] = {}
        self._dependents: dict[str, dict[Reference, None]] = {}
        for kind, collection in server.store.collections():
            for entry in collection.entries.values():
                self._added(kind, entry)

    def _changed(self, kind: tuple[str, str], change: Change) -> None:
        before, after = change.before, change.after
        if before is not None and (
            after is None or _owner_uids(before.obj) != _owner_uids(after.obj)
        ):
            for uid in _owner_uids(before.obj):
                self._dependents.get(uid, {}).pop((kind, before.key), None)
        if after is not None:
            self._added(kind, after)
        elif before is not None:
            self._living.pop(before.uid, None)
            for dependent in self._dependents.pop(before.uid, {}):
                self.add(dependent)

    def _added(self, kind: tuple[str, str], entry: Entry) -> None:
        self._living[entry.uid] = None
        reference = (kind, entry.key)
        for uid in _owner_uids(entry.obj):
            if uid in self._living:
                self._dependents.setdefault(uid, {})[reference] = None
            else:
                self.add(reference)

    async def sync(self, reference: Reference) -> None:
        """Delete an object without owners, or drop its references to lost ones. Raises ApiError."""
        kind, key = reference
        collection = self._server.store.collection(*kind)
        entry = collection.entries.get(key)
        resource = _resource_of(self._server, kind)
        if entry is None or resource is None or not _owner_uids(entry.obj):
            return
        owners = entry.obj["metadata"]["ownerReferences"]
        left = [owner for owner in owners if owner["uid"] in self._living]
        with suppress(NotFound, Conflict):
            if not left:
                await self._api.delete(resource, *key, preconditions=Preconditions(entry.uid))
            elif len(left) < len(owners):
                patch = {"metadata": {"uid": entry.uid, "ownerReferences": left}}
                await self._merge(resource, key, patch)


def _resource_of(server: ApiServer, kind: tuple[str, str]) -> Resource | None:
    return next((found.resource for found in server.registry.kinds() if found.key == kind), None)


async def orphan_dependents(api: Api, server: ApiServer, uid: str) -> None:
    """Propagation policy Orphan: remove the references to an owner that will be deleted."""
    for kind, collection in list(server.store.collections()):
        resource = _resource_of(server, kind)
        if resource is None:
            continue
        for entry in [
            entry for entry in collection.entries.values() if uid in _owner_uids(entry.obj)
        ]:
            left = [
                owner for owner in entry.obj["metadata"]["ownerReferences"] if owner["uid"] != uid
            ]
            patch = {"metadata": {"uid": entry.uid, "ownerReferences": left or None}}
            await api.patch(resource, *entry.key, patch, patch_type=PatchType.MERGE)


class NamespaceController(_StoreController[str]):
    """Empties namespaces that are being deleted."""

    def _changed(self, kind: tuple[str, str], change: Change) -> None:
        if kind != (NAMESPACES.group, NAMESPACES.plural) or change.after is None:
            return
        if change.after.obj["metadata"].get("deletionTimestamp"):
            self.add(change.after.key[1])

    async def sync(self, namespace: str) -> None:
        """Delete all in the namespace. If nothing is left, drop its finalizer. Raises ApiError."""
        left = False
        for kind, collection in list(self._server.store.collections()):
            resource = _resource_of(self._server, kind)
            if resource is None or not resource.namespaced:
                continue
            for key in [key for key in collection.ordered() if key[0] == namespace]:
                left = True
                with suppress(NotFound, Conflict):
                    await self._api.delete(resource, *key)
        if left:
            self.add_after(namespace, NAMESPACE_RETRY_S)
            return
        with suppress(NotFound, Conflict):
            await self._merge(NAMESPACES, ("", namespace), {"spec": {"finalizers": None}})
