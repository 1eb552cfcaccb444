"""helpers.json: sums over placements, and the life of an entry of the ScaleCache.

Knative's plugins answer with the status objects of the scheduling framework. They are compared with
those of the embedded kube-scheduler; our own plugins answer with a text, "" if a pod fits, and
raise what is broken.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from extender.config.model import ScaleCacheConfig
from extender.kube.api import ApiError, Obj, Resource
from extender.lab.scheduler.types import Code, Status
from extender.model.placements import (
    Placement,
    get_placement_for_pod,
    get_pod_count,
    get_total_vreplicas,
)
from extender.service.pools.scale_cache import ScaleCache
from tests.conformance.result import Case, Check, Difference

NO_MERGE = Difference(
    "the first refusal counts",
    "Knative can merge the answers of several plugins; a pod that one of our plugins refuses is "
    "not shown to the next",
    outside=True,
)
NO_WRAPPER = Difference(
    "a function is a scheduler as it is",
    "Go needs a type to make an interface of a function; in Python one is passed as it is",
    outside=True,
)
KEEPS_VERSION = Difference(
    "a scale keeps its resourceVersion",
    "Knative's cache loses it, and the namespace: its update overwrites what others have written "
    "unseen",
)


def check(case: Case) -> str | Difference | None:
    """One case."""
    return CHECKS.get(case["function"], _unknown)(case)


def _unknown(case: Case) -> str:
    return f"unknown function {case['function']!r}"


def _placements(case: Case) -> list[Placement] | None:
    raw = case["placements"]
    return None if raw is None else [Placement(item["podName"], item["vreplicas"]) for item in raw]


def _equal(expected: object, found: object) -> str | None:
    return None if expected == found else f"expected {expected}, found {found}"


def _total(case: Case) -> str | None:
    return _equal(case["expected"], get_total_vreplicas(_placements(case)))


def _pod_count(case: Case) -> str | None:
    return _equal(case["expected"], get_pod_count(_placements(case)))


def _placement_for_pod(case: Case) -> str | None:
    placements, index = _placements(case), case["expected_index"]
    expected = None if index is None or placements is None else placements[index]
    return _equal(expected, get_placement_for_pod(placements, case["pod"]))


def _status(case: Case) -> str | None:
    raw = case["status"]
    code = Code[raw["code"].upper()]
    status = None if code is Code.SUCCESS else Status(code, tuple(raw["reasons"]))
    found = {
        "is_success": status is None,
        "is_error": status is not None and not status.rejected,
        "is_unschedulable": status is not None and status.rejected,
        "message": status.message if status is not None else "",
    }
    return _equal(case["expected"], found)


# -- ScaleCache ------------------------------------------------------------------------------------


class Client:
    """The scale subresource of any StatefulSet: an ``Api`` as far as the cache calls it."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self.namespace = client["namespace"]
        self.version = client["resource_version"]
        self.spec = client["spec_replicas"]
        self.status = client["status_replicas"]
        self.fails = False
        self.gets = self.updates = 0

    def _scale(self, name: str) -> Obj:
        metadata = {"namespace": self.namespace, "name": name, "resourceVersion": self.version}
        return {
            "metadata": metadata,
            "spec": {"replicas": self.spec},
            "status": {"replicas": self.status},
        }

    def _fail(self) -> None:
        if self.fails:
            raise ApiError(500, "InternalError", "made to fail")

    async def get(
        self, _resource: Resource, _namespace: str, name: str, *, subresource: str
    ) -> Obj:
        assert subresource == "scale"
        self.gets += 1
        self._fail()
        return self._scale(name)

    async def update(
        self, _resource: Resource, _namespace: str, name: str, obj: Obj, *, subresource: str
    ) -> Obj:
        assert subresource == "scale"
        self.updates += 1
        self._fail()
        self.spec = obj["spec"]["replicas"]
        return self._scale(name)


class Life:
    """The steps of one case, one after the other. ``differs``: where the version or the namespace
    is kept.
    """

    def __init__(self, case: Case) -> None:
        self.client = Client(case["client"])
        self.namespace = case["namespace"]
        self.now_s = 0.0
        self.cache = ScaleCache(
            self.client,  # type: ignore[arg-type]  # the two methods that the cache calls
            clock=lambda: self.now_s,
            config=ScaleCacheConfig(refresh_period_s=case["refresh_period_seconds"]),
        )
        self.differs = False

    async def step(self, step: Mapping[str, Any]) -> str | None:
        """None, or how a step is not as expected."""
        match step["op"]:
            case "get":
                return await self._get(step["name"], step["expect"])
            case "update":
                return await self._update(step["name"], step["spec"], step["expect"])
            case "client_changes_spec":
                self.client.spec = step["to"]
            case "client_fails" | "client_recovers":
                self.client.fails = step["op"] == "client_fails"
            case "wait_seconds":
                self.now_s += step["seconds"]
            case "reset":
                self.cache.reset()
            case "mutate_returned_object":
                pass  # a Scale cannot be changed: the next get says the same
            case op:
                return f"unknown op {op!r}"
        return None

    async def _get(self, name: str, expect: Mapping[str, Any]) -> str | None:
        found: dict[str, object]
        try:
            scale = await self.cache.get_scale(self.namespace, name)
        except ApiError:
            found = {"error": True}
        else:
            found = {"spec": scale.replicas, "status": scale.status_replicas}
            kept = {"namespace": self.namespace, "resource_version": scale.resource_version}
            self.differs |= any(field in expect and expect[field] != kept[field] for field in kept)
            found |= {field: expect[field] for field in kept if field in expect}
        return _equal(dict(expect), {**found, "client_gets": self.client.gets})

    async def _update(self, name: str, replicas: int, expect: Mapping[str, Any]) -> str | None:
        found = {"error": False, "client_updates": 0}
        scale = await self.cache.get_scale(self.namespace, name)
        try:
            await self.cache.update_scale(scale, replicas)
        except ApiError:
            found["error"] = True
        found["client_updates"] = self.client.updates
        return _equal(dict(expect), found)


def _scale_cache(case: Case) -> str | Difference | None:
    async def live() -> str | Difference | None:
        life = Life(case)
        for number, step in enumerate(case["steps"]):
            problem = await life.step(step)
            if problem is not None:
                return f"step {number}, {step['op']}: {problem}"
        return KEEPS_VERSION if life.differs else None

    return asyncio.run(live())


CHECKS: Mapping[str, Callable[[Case], str | Difference | None]] = {
    "total_vreplicas": _total,
    "pod_count": _pod_count,
    "placement_for_pod": _placement_for_pod,
    "status": _status,
    "status_merge": lambda _case: NO_MERGE,
    "scheduler_func": lambda _case: NO_WRAPPER,
    "scale_cache": _scale_cache,
}
FILES: dict[str, Check] = {"helpers.json": check}
