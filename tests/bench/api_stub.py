"""Enough of an API server for one replica of the service: lists in pages, watches, and answers to
the few writes.

It holds its objects as JSON documents in its own process, so what the service keeps of them is the
service's alone. It selects pods by label as an API server does: of the cluster's pods only adapters
leave it.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

from extender.kube.api import Obj
from extender.model import names
from tests.bench import objects
from tests.bench.rest import answer, missing, parts, scale_of


class ApiStub:
    """``lists``: plural -> objects. ``other_pods``: how many pods there are that are nobody's
    adapters.
    """

    def __init__(self, lists: dict[str, list[Obj]], other_pods: int) -> None:
        self.lists = lists
        self.other_pods = other_pods
        self.listed: Counter[str] = Counter()
        """Plural -> objects sent in lists."""
        self.writes: Counter[str] = Counter()
        """Method and plural -> requests that would have changed something."""
        self._watches: defaultdict[str, asyncio.Queue[bytes]] = defaultdict(asyncio.Queue)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve on loopback; the URL."""
        app = web.Application(client_max_size=2**22)
        app.router.add_route("GET", "/{path:.+}", self._read)
        app.router.add_route("*", "/{path:.+}", self._write)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    def tell(self, plural: str, objects_: list[Obj]) -> None:
        """Send MODIFIED events, each object with a new version, to who watches that kind, or is
        going to.
        """
        lines = []
        for one in objects_:
            one["metadata"]["resourceVersion"] = objects.next_version()
            lines.append(orjson.dumps({"type": "MODIFIED", "object": one}) + b"\n")
        self._watches[plural].put_nowait(b"".join(lines))

    async def _read(self, http: web.Request) -> web.StreamResponse:
        _, plural, name, subresource = parts(http.path)
        if http.query.get("watch"):
            return await self._watch(http, plural)
        if subresource == "scale":
            (stateful_set,) = self.lists["statefulsets"]
            return answer(scale_of(stateful_set))
        if name:
            found = self._named(plural, name)
            return missing() if found is None else answer(found)
        return answer(self._page(plural, http))

    def _named(self, plural: str, name: str) -> Obj | None:
        return next(
            (one for one in self.lists.get(plural, []) if one["metadata"]["name"] == name), None
        )

    def _page(self, plural: str, http: web.Request) -> Obj:
        everything = self.lists.get(plural, [])
        if plural == "pods" and http.query.get("labelSelector") != names.POOL_LABEL:
            everything = everything + [_other_pod(number) for number in range(self.other_pods)]
        first, limit = int(http.query.get("continue", 0)), int(http.query.get("limit", 0))
        end = first + limit if limit else len(everything)
        items = everything[first:end]
        self.listed[plural] += len(items)
        more = {"continue": str(end)} if end < len(everything) else {}
        return {"metadata": {"resourceVersion": objects.next_version(), **more}, "items": items}

    async def _watch(self, http: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(http)
        while True:
            await response.write(await self._watches[plural].get())

    async def _write(self, http: web.Request) -> web.StreamResponse:
        _, plural, name, _ = parts(http.path)
        self.writes[f"{http.method} {plural}"] += 1
        body = orjson.loads(await http.read())
        known = self._named(plural, name)
        if known is None or not isinstance(body, dict):
            return answer(body if isinstance(body, dict) else {})
        known["status"] = {**known.get("status", {}), **(body.get("status") or {})}
        known["metadata"]["resourceVersion"] = objects.next_version()
        return answer(known)


def _other_pod(number: int) -> Obj:
    other = objects.pod(number, objects.node_name(0))
    other["metadata"]["name"] = f"web-{number}"
    del other["metadata"]["labels"][names.POOL_LABEL], other["metadata"]["annotations"]
    return other
