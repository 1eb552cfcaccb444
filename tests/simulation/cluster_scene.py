"""Builders for tests of the embedded cluster: small objects, a cluster on a clock of its own,
webhooks in memory.
"""

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Callable

import orjson

from extender.kube.api import (
    CRDS,
    EVERYWHERE,
    PODS,
    Api,
    ListOptions,
    Obj,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.lab.apiserver.admission import WebhookCall, WebhookCallError
from extender.lab.apiserver.cluster import Cluster

NS = "default"
EPOCH_S = 1_700_000_000.0
WIDGETS = Resource("example.dev", "v1", "widgets", "Widget")


def a_cluster(**settings) -> Cluster:
    return Cluster(now=lambda: EPOCH_S, rng=random.Random(7), **settings)


def a_virtual_cluster() -> Cluster:
    """One whose wall clock goes with the event loop's."""
    loop = asyncio.get_running_loop()
    return Cluster(now=lambda: EPOCH_S + loop.time(), rng=random.Random(7))


def a_pod(name: str = "p", *, labels: dict[str, str] | None = None, **spec) -> Obj:
    container = {"name": "c", "image": "registry.example/a:1"}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }


def a_definition(properties: Obj | None = None, *, status: bool = True, **version) -> Obj:
    schema: Obj = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": properties or {}}},
    }
    if status:
        schema["properties"]["status"] = {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
        version["subresources"] = {"status": {}, **version.get("subresources", {})}
    return {
        "metadata": {"name": "widgets.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def a_widget(name: str = "w", **spec) -> Obj:
    return {"metadata": {"name": name}, "spec": spec}


async def with_widgets(properties: Obj | None = None, **version) -> Cluster:
    cluster = a_cluster()
    await cluster.create(CRDS, "", a_definition(properties, **version))
    return cluster


def a_webhook(
    name: str = "hook.example.dev", *, operations=("CREATE",), resources=("pods",), **fields
) -> Obj:
    rule = {
        "operations": list(operations),
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": list(resources),
    }
    return {
        "name": name,
        "rules": [rule],
        "clientConfig": {"url": f"https://{name}"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }


def a_configuration(*webhooks: Obj, name: str = "hooks") -> Obj:
    return {"metadata": {"name": name}, "webhooks": list(webhooks)}


Answer = Callable[[Obj], Obj]
"""Request of a review -> its response without uid."""


class Webhooks:
    """Webhooks in memory: by name, what each answers; ``requests`` is what was asked, in order."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = {f"{name}.example.dev": answer for name, answer in answers.items()}
        self.requests: list[tuple[str, Obj]] = []

    async def __call__(self, call: WebhookCall) -> Obj:
        request = call.review["request"]
        self.requests.append((call.webhook, request))
        await asyncio.sleep(0)
        answer = self.answers.get(call.webhook)
        if answer is None:
            raise WebhookCallError(f'Post "https://{call.webhook}": connection refused')
        response = {"uid": request["uid"], **answer(request)}
        return {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "response": response,
        }

    def operations(self) -> list[str]:
        return [request["operation"] for _, request in self.requests]


def allowed(_: Obj) -> Obj:
    return {"allowed": True}


def patching(*operations: Obj) -> Answer:
    encoded = base64.b64encode(orjson.dumps(list(operations))).decode()
    return lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def denying(message: str = "no", code: int = 403, reason: str = "Forbidden") -> Answer:
    return lambda _: {
        "allowed": False,
        "status": {"code": code, "reason": reason, "message": message},
    }


def annotating(key: str) -> Answer:
    """Adds one annotation, whatever there is already."""

    def answer(request: Obj) -> Obj:
        if request["object"]["metadata"].get("annotations"):
            return patching({"op": "add", "path": f"/metadata/annotations/{key}", "value": "yes"})(
                request
            )
        return patching({"op": "add", "path": "/metadata/annotations", "value": {key: "yes"}})(
            request
        )

    return answer


async def take(events: AsyncIterator[WatchEvent], count: int) -> list[tuple[str, str]]:
    """Type and name of the next events, bookmarks left out."""
    seen: list[tuple[str, str]] = []
    async for event in events:
        if event.type is not WatchEventType.BOOKMARK:
            seen.append((event.type.value, event.object["metadata"]["name"]))
        if len(seen) == count:
            break
    return seen


async def all_events(
    api: Api,
    resource: Resource = PODS,
    options: ListOptions = EVERYWHERE,
    *,
    since: str,
    timeout_s: float = 1.0,
) -> list[WatchEvent]:
    """Everything that a watch tells until its timeout (needs virtual time)."""
    watch = api.watch(resource, options, resource_version=since, timeout_s=timeout_s)
    return [event async for event in watch]
