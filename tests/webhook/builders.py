"""Builders of pods, reviews and caches, and a small API server for what the webhook writes."""

import asyncio
import copy
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson

from extender.kube.api import (
    EVERYWHERE,
    PODS,
    AlreadyExists,
    Binding,
    Conflict,
    ListOptions,
    ListPage,
    NotFound,
    Obj,
    Resource,
)
from extender.lab.apiserver.patch import json_patch
from extender.model.reading import text
from tests.kube.fakes import give_list
from webhook.caches import WebhookCaches
from webhook.review import AdmissionRequest

NS = "adapters"
SERVICE = "system:serviceaccount:vreplica-system:vreplica-scheduler"
CONTROLLER = "system:serviceaccount:kube-system:statefulset-controller"
PLACEMENTS = "vreplica.dev/placements"
SLOTS = "vreplica.dev/slots"
POOL_LABEL = "vreplica.dev/pool"


def a_pod(
    name: str = "dispatcher-1",
    *,
    pool: str | None = "dispatcher",
    annotations: Obj | None = None,
    **spec: Any,
) -> Obj:
    """A pod as a StatefulSet makes it."""
    metadata: Obj = {"name": name, "namespace": NS, "labels": {"app": "dispatcher"}}
    if pool is not None:
        metadata["labels"][POOL_LABEL] = pool
    if annotations is not None:
        metadata["annotations"] = annotations
    spec.setdefault(
        "containers", [{"name": "c", "image": "registry.example/adapter:1", "resources": {}}]
    )
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def a_pool_object(name: str = "dispatcher", slots: int = 20, **spec: Any) -> Obj:
    return {
        "apiVersion": "vreplica.dev/v1alpha1",
        "kind": "AdapterPool",
        "metadata": {"namespace": NS, "name": name},
        "spec": {"statefulSet": name, "slotsPerPod": slots, **spec},
    }


def a_vpod_object(
    name: str = "orders",
    namespace: str = "tenant-a",
    *,
    pool: str = "dispatcher",
    weight: int = 1,
    amounts: dict[str, int] | None = None,
    placements: dict[str, int] | None = None,
) -> Obj:
    placed = [{"podName": pod, "vreplicas": count} for pod, count in (placements or {}).items()]
    return {
        "apiVersion": "vreplica.dev/v1alpha1",
        "kind": "VPod",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "poolRef": {"namespace": NS, "name": pool},
            "vreplicas": 8,
            "slotsPerVReplica": weight,
            **({"perVReplica": amounts} if amounts else {}),
        },
        "status": {"placements": placed},
    }


def a_quota_object(
    namespace: str = "tenant-a", name: str = "quota", *, pool: str = "dispatcher", **spec: Any
) -> Obj:
    return {
        "apiVersion": "vreplica.dev/v1alpha1",
        "kind": "VReplicaQuota",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"poolRef": {"namespace": NS, "name": pool}, **spec},
    }


def a_namespace(name: str, **labels: str) -> Obj:
    return {"metadata": {"name": name, "labels": labels}}


def a_priority_class(name: str, value: int, **fields: Any) -> Obj:
    return {"metadata": {"name": name}, "value": value, **fields}


def caches(
    *,
    pools: Sequence[Obj] = (),
    vpods: Sequence[Obj] = (),
    namespaces: Sequence[Obj] = (),
    quotas: Sequence[Obj] = (),
    priority_classes: Sequence[Obj] = (),
    synced: bool = True,
) -> WebhookCaches:
    """Caches that hold these objects."""
    result = WebhookCaches()
    give_list(result.pools, pools, "1")
    give_list(result.vpods, vpods, "1")
    give_list(result.quotas, quotas, "1")
    give_list(result.priority_classes, priority_classes, "1")
    if synced:
        give_list(result.namespaces, namespaces, "1")
    return result


def request(
    obj: Obj | None, old: Obj | None = None, *, resource: str = "pods", **more: Any
) -> AdmissionRequest:
    """A request about ``obj``: an update where there is an old object."""
    more.setdefault("operation", "CREATE" if old is None else "UPDATE")
    more.setdefault("group", "" if resource == "pods" else "vreplica.dev")
    more.setdefault("username", CONTROLLER)
    more.setdefault("namespace", text(obj or {}, "metadata", "namespace") or NS)
    return AdmissionRequest(uid="u-1", resource=resource, object=obj, old_object=old, **more)


def review(obj: Obj | None, *, resource: str = "pods", group: str = "", **more: Any) -> bytes:
    """The same as the API server sends it."""
    return orjson.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u-1",
                "resource": {"group": group, "version": "v1", "resource": resource},
                "namespace": NS,
                "operation": "CREATE",
                "userInfo": {"username": CONTROLLER},
                "object": obj,
                "oldObject": None,
                **more,
            },
        }
    )


def patched(obj: Obj, ops: Any) -> Obj:
    """``obj`` after a JSON patch; ``obj`` itself stays as it is."""
    return json_patch(copy.deepcopy(obj), copy.deepcopy(list(ops)))


class ObjectsApi:
    """Get, create, update and patch with versions; lists what it has, and a watch in which nothing
    happens.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Obj] = {}
        self.writes = 0
        self.version = 0
        self.patches: asyncio.Queue[str] = asyncio.Queue()
        """Names of what was patched, for a test that waits for it."""

    def put(self, resource: Resource, obj: Obj) -> None:
        self.version += 1
        stored = copy.deepcopy(obj)
        stored["metadata"]["resourceVersion"] = str(self.version)
        metadata = stored["metadata"]
        self.objects[(resource.plural, metadata.get("namespace", ""), metadata["name"])] = stored

    def named(self, resource: Resource, namespace: str, name: str) -> Obj:
        try:
            return self.objects[(resource.plural, namespace, name)]
        except KeyError as error:
            raise NotFound(404, "NotFound", f"{resource.plural} {name!r} not found") from error

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Obj:
        await asyncio.sleep(0)
        return copy.deepcopy(self.named(resource, namespace, name))

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        await asyncio.sleep(0)
        if (resource.plural, namespace, obj["metadata"]["name"]) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", "already exists")
        self.writes += 1
        self.put(resource, obj)
        return await self.get(resource, namespace, obj["metadata"]["name"])

    async def update(
        self, resource: Resource, namespace: str, name: str, obj: Obj, *, subresource: str = ""
    ) -> Obj:
        await asyncio.sleep(0)
        stored = self.named(resource, namespace, name)
        if obj["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "the object has been modified")
        self.writes += 1
        self.put(resource, obj)
        return await self.get(resource, namespace, name)

    async def patch(
        self, resource: Resource, namespace: str, name: str, patch: Any, **_: Any
    ) -> Obj:
        await asyncio.sleep(0)
        changed = patched(self.named(resource, namespace, name), patch)
        self.writes += 1
        self.put(resource, changed)
        self.patches.put_nowait(name)
        return await self.get(resource, namespace, name)

    async def delete(self, resource: Resource, namespace: str, name: str, **_: Any) -> None:
        await asyncio.sleep(0)
        self.named(resource, namespace, name)
        del self.objects[(resource.plural, namespace, name)]

    async def evict(self, namespace: str, name: str, *, preconditions: object = None) -> None:
        raise AssertionError(f"nothing here evicts pods: {namespace}/{name}")

    async def bind(self, binding: Binding) -> None:
        await asyncio.sleep(0)
        self.named(PODS, binding.namespace, binding.name)

    async def list_page(
        self, resource: Resource, options: ListOptions = EVERYWHERE, **_: Any
    ) -> ListPage:
        await asyncio.sleep(0)
        items = [
            copy.deepcopy(obj) for key, obj in self.objects.items() if key[0] == resource.plural
        ]
        return ListPage(items, str(self.version))

    async def watch(
        self, resource: Resource, options: ListOptions = EVERYWHERE, **_: Any
    ) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield None
