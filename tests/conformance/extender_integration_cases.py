"""The ``integration`` cases: several extenders in turn, each behind HTTP, and a pod that they place
together.

As upstream's ``TestSchedulerExtender`` (test/integration/scheduler/extender): each extender is a
server of its own, with or without a node cache, and is asked by the real client. The pod goes
through filter, prioritize and bind of the scheduler's own cycle.

A predicate or prioritizer names nodes: as a list, as an object with ``nodes`` or ``node``, or as
upstream's functions are called (``machine1_2_3Predicate``, ``machine2Prioritizer``). A prioritizer
gives its node 10 and each other one 1, times its weight.
"""

import random
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import orjson
from aiohttp import web

from extender.config.kube_scheduler import ExtenderConfig, ManagedResource
from extender.lab.scheduler.algorithm import (
    FitError,
    SchedulingAlgorithm,
    SchedulingError,
    extenders_binding,
)
from extender.lab.scheduler.extender_client import ExtenderError, build_extenders
from extender.lab.scheduler.extender_transport import AiohttpTransport
from extender.lab.scheduler.framework import CycleState, Profile
from extender.lab.scheduler.select_host import at_random
from tests.conformance.extender_fakes import (
    Outcome,
    a_node,
    a_pod,
    a_queue,
    a_snapshot,
    differs,
    first,
)
from tests.conformance.result import Case

_NAMED_NODES: Final = re.compile(r"([a-z-]+)(\d+(?:_\d+)*)(?:Predicate|Prioritizer)?")
_HOST_FIELDS: Final = ("node", "host", "suggested_host", "node_name", "nodeName", "bound_to")


def nodes_named(raw: object) -> frozenset[str]:
    """The nodes that a predicate or prioritizer is about. Raises ValueError where it names none."""
    if isinstance(raw, Mapping):
        raw = next((raw[key] for key in ("nodes", "node", "function", "name") if key in raw), None)
    if isinstance(raw, list | tuple):
        return frozenset(map(str, raw))
    if isinstance(raw, str) and (found := _NAMED_NODES.fullmatch(raw)):
        return frozenset(found[1] + number for number in found[2].split("_"))
    raise ValueError(f"names no node: {raw!r}")


class IntegrationExtender:
    """Upstream's ``Extender`` of that test: its verbs on whole nodes, or on names where it is
    nodeCacheCapable.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.name = str(raw.get("name", "extender"))
        self.cached = bool(raw.get("nodeCacheCapable", raw.get("node_cache_capable", False)))
        self._fits = [nodes_named(predicate) for predicate in raw.get("predicates") or ()]
        self._prefers = [
            (nodes_named(item), int(item.get("weight", 1)) if isinstance(item, Mapping) else 1)
            for item in raw.get("prioritizers") or ()
        ]
        self.bound: list[tuple[str, str]] = []

    def app(self) -> web.Application:
        app = web.Application()
        for verb, answer in (
            ("filter", self._filter),
            ("prioritize", self._prioritize),
            ("bind", self._bind),
        ):
            app.router.add_post(f"/{verb}", _answering(answer))
        return app

    def _names(self, args: Mapping[str, Any]) -> list[str]:
        if self.cached:
            return list(args["NodeNames"])
        return [node["metadata"]["name"] for node in args["Nodes"]["items"]]

    def _filter(self, args: Mapping[str, Any]) -> object:
        names = self._names(args)
        left = [name for name in names if all(name in fits for fits in self._fits)]
        failed = {name: f"extender failed: {self.name}" for name in names if name not in left}
        if self.cached:
            return {"Nodes": None, "NodeNames": left, "FailedNodes": failed}
        items = [node for node in args["Nodes"]["items"] if node["metadata"]["name"] in left]
        return {"Nodes": {"items": items}, "NodeNames": None, "FailedNodes": failed}

    def _prioritize(self, args: Mapping[str, Any]) -> object:
        return [
            {
                "Host": name,
                "Score": sum(
                    (10 if name in nodes else 1) * weight for nodes, weight in self._prefers
                ),
            }
            for name in self._names(args)
        ]

    def _bind(self, args: Mapping[str, Any]) -> object:
        self.bound.append((str(args["PodName"]), str(args["Node"])))
        return {}


def _answering(answer: Callable[[Mapping[str, Any]], object]) -> Callable[..., Any]:
    async def handle(request: web.Request) -> web.Response:
        body = orjson.dumps(answer(orjson.loads(await request.read())))
        return web.Response(body=body, content_type="application/json")

    return handle


def _config(raw: Mapping[str, Any], url: str) -> ExtenderConfig:
    managed = raw.get("managed_resources", raw.get("ManagedResources")) or ()
    return ExtenderConfig(
        url_prefix=url,
        filter_verb="filter" if raw.get("predicates") else "",
        prioritize_verb="prioritize" if raw.get("prioritizers") else "",
        bind_verb="bind" if raw.get("binder") or raw.get("bind") or raw.get("bindVerb") else "",
        weight=int(raw.get("weight", 1)),
        node_cache_capable=bool(raw.get("nodeCacheCapable", raw.get("node_cache_capable", False))),
        ignorable=bool(raw.get("ignorable")),
        managed_resources=tuple(
            ManagedResource(item if isinstance(item, str) else item.get("name") or item["Name"])
            for item in managed
        ),
    )


@asynccontextmanager
async def _serving(extenders: Sequence[IntegrationExtender]) -> AsyncIterator[list[str]]:
    async with AsyncExitStack() as stack:
        urls = []
        for extender in extenders:
            runner = web.AppRunner(extender.app())
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        yield urls


async def check_integration(case: Case) -> Outcome:
    """One case: where the pod goes, and by which extender it is bound, where the case says."""
    raws = case["extenders"]
    servers = [IntegrationExtender(raw) for raw in raws]
    async with _serving(servers) as urls:
        configs = [_config(raw, url) for raw, url in zip(raws, urls, strict=True)]
        transport = AiohttpTransport(configs)
        try:
            host = await _placed(case, configs, transport)
        finally:
            await transport.close()
    expected = case["expected"]
    if not isinstance(expected, Mapping):
        expected = {"node": expected}
    wanted = next((expected[field] for field in _HOST_FIELDS if field in expected), None)
    by = next((number for number, server in enumerate(servers) if server.bound), None)
    return first(
        differs("error", bool(expected.get("error")), host is None)
        if "error" in expected
        else differs("node", wanted, host),
        differs("bound by extender", expected["bound_by_extender_index"], by)
        if "bound_by_extender_index" in expected
        else None,
    )


async def _placed(
    case: Case, configs: Sequence[ExtenderConfig], transport: AiohttpTransport
) -> str | None:
    raw = case.get("pod") or {}
    raw = raw if isinstance(raw, Mapping) else {"name": raw}
    containers = raw.get("containers") or [
        {key: raw[key] for key in ("requests", "limits") if key in raw}
    ]
    specs = [
        {
            "name": f"c{number}",
            "resources": {k: v for k, v in item.items() if k in ("requests", "limits")},
        }
        for number, item in enumerate(containers)
    ]
    pod = a_pod(raw.get("name", "extender-test-pod"), containers=specs)
    extenders = build_extenders(configs, transport)
    select_host = at_random(random.Random(str(case.get("id"))))
    algorithm = SchedulingAlgorithm(extenders, a_queue(), select_host)
    snapshot = a_snapshot([a_node(name, {"pods": "32"}) for name in case["nodes"]])
    try:
        result = await algorithm.schedule_pod(Profile([], []), CycleState(), pod, snapshot)
        await extenders_binding(extenders, pod, result.node)
    except (FitError, SchedulingError, ExtenderError):
        return None
    return result.node
