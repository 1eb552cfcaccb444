"""An API server that answers at once: what is measured against it is what our side takes.

``python -m tests.bench.stand_in --port P --nodes N --pool NAME,BOUND,PENDING,VPODS,PROFILE ...``
serves a ``Population``: lists in pages that are rendered before it listens, watches, a bind that
puts node and annotations on the pod and tells the watches, and merge patches. No checks, no
admission, no leases, no history: a watch begins with what comes next. ``GET /writes`` tells how
many writes there were by path's last part, to show that a settled population stays as it is.
"""

import argparse
import asyncio
import copy
from collections import Counter
from typing import Any, Final

import orjson
import uvloop
from aiohttp import web

from tests.bench.population import Obj, Pool, Population
from tests.bench.rest import answer, missing, parts, scale_of

PAGE_ITEMS: Final = 500
BOOKMARK_PERIOD_S: Final = 30.0

_KINDS: Final = {
    "pods": "Pod",
    "nodes": "Node",
    "namespaces": "Namespace",
    "statefulsets": "StatefulSet",
    "adapterpools": "AdapterPool",
    "vpods": "VPod",
}


class StandIn:
    """The objects of a population behind the paths of an API server."""

    def __init__(self, population: Population) -> None:
        self._objects: dict[str, dict[tuple[str, str], Obj]] = {}
        for plural, objects in population.objects().items():
            keyed = {_key(obj): obj for obj in objects}
            self._objects[plural] = keyed
        self._version = 10_000_000
        self._pages: dict[str, list[bytes]] = {}
        self._watches: dict[str, set[asyncio.Queue[bytes]]] = {
            plural: set() for plural in self._objects
        }
        self._writes: Counter[str] = Counter()
        for plural in self._objects:
            self._render(plural)

    def application(self) -> web.Application:
        """Its routes."""
        app = web.Application()
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/writes", self._written)
        app.router.add_route("*", "/{path:apis?/.*}", self._resource)
        return app

    async def _ready(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _written(self, _request: web.Request) -> web.Response:
        return answer(dict(self._writes))

    async def _resource(self, request: web.Request) -> web.StreamResponse:
        namespace, plural, name, subresource = parts(request.path)
        if request.method == "GET" and not name:
            return await self._collection(request, plural)
        if request.method != "GET":
            self._writes[subresource or plural] += 1
        body = orjson.loads(await request.read()) if request.method != "GET" else {}
        if plural not in self._objects:  # events, and whatever else nobody reads here
            return answer(body, 201) if request.method == "POST" else missing()
        stored = self._objects[plural].get((namespace, name))
        if stored is None:
            return missing()
        if subresource == "scale":
            return answer(scale_of(stored))
        if subresource == "binding":
            return self._bind(stored, body)
        if request.method == "PATCH" and isinstance(body, dict):
            stored = self._change(plural, stored, body)
        return answer(stored)

    async def _collection(self, request: web.Request, plural: str) -> web.StreamResponse:
        if plural not in self._objects:
            return missing()
        if request.query.get("watch") == "true":
            return await self._watch(request, plural)
        if plural not in self._pages:
            self._render(plural)
        page = int(request.query.get("continue") or 0)
        return web.Response(body=self._pages[plural][page], content_type="application/json")

    def _render(self, plural: str) -> None:
        items = list(self._objects[plural].values())
        starts = range(0, max(1, len(items)), PAGE_ITEMS)
        pages = []
        for page, start in enumerate(starts):
            more = str(page + 1) if page + 1 < len(starts) else ""
            metadata = {"resourceVersion": str(self._version), "continue": more}
            pages.append(
                orjson.dumps({"metadata": metadata, "items": items[start : start + PAGE_ITEMS]})
            )
        self._pages[plural] = pages

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watches[plural].add(queue)
        try:
            while True:
                try:
                    async with asyncio.timeout(BOOKMARK_PERIOD_S):
                        line = await queue.get()
                except TimeoutError:
                    line = self._event(
                        "BOOKMARK", plural, {"metadata": {"resourceVersion": str(self._version)}}
                    )
                await response.write(line)
        finally:
            self._watches[plural].discard(queue)

    def _event(self, kind: str, plural: str, obj: Obj) -> bytes:
        return orjson.dumps({"type": kind, "object": {"kind": _KINDS[plural], **obj}}) + b"\n"

    def _bind(self, pod: Obj, binding: Obj) -> web.Response:
        annotations = binding["metadata"].get("annotations", {})
        bound = {"type": "PodScheduled", "status": "True"}
        patch = {
            "metadata": {"annotations": annotations},
            "spec": {"nodeName": binding["target"]["name"]},
            "status": {"conditions": [bound]},
        }
        self._change("pods", pod, patch)
        return answer({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}, 201)

    def _change(self, plural: str, stored: Obj, patch: Obj) -> Obj:
        changed: Obj = _merged(copy.deepcopy(stored), patch)
        self._version += 1
        changed["metadata"]["resourceVersion"] = str(self._version)
        self._objects[plural][_key(changed)] = changed
        self._pages.pop(plural, None)
        line = self._event("MODIFIED", plural, changed)
        for queue in self._watches[plural]:
            queue.put_nowait(line)
        return changed


def _key(obj: Obj) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _merged(value: Any, patch: Any) -> Any:
    """JSON merge patch, RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = value if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), part)
    return merged


def pool_from(text: str) -> Pool:
    """``NAME,BOUND,PENDING,VPODS,PROFILE``."""
    name, bound, pending, vpods, profile = text.split(",")
    return Pool(name, int(bound), int(pending), int(vpods), profile)


def arguments_of(population: Population) -> list[str]:
    """The command line that makes it serve ``population``."""
    pools = [
        f"--pool={pool.name},{pool.bound},{pool.pending},{pool.vpods},{pool.profile}"
        for pool in population.pools
    ]
    return [f"--nodes={population.nodes}", f"--full={population.full}", *pools]


async def serve(port: int, population: Population) -> None:
    """Until cancelled."""
    runner = web.AppRunner(StandIn(population).application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--full", type=int, default=0)
    parser.add_argument("--pool", type=pool_from, action="append", default=[])
    given = parser.parse_args()
    uvloop.run(serve(given.port, Population(given.nodes, tuple(given.pool), given.full)))
