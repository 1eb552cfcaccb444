"""``Proxy``: between kube-scheduler and the extender, for what happens between two verbs and for
what was said on the wire.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
import orjson
from aiohttp import web

from tests.e2e.processes import free_port

BeforeBind = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Filtered:
    """What kube-scheduler asked filter about a pod by node names, and was told."""

    pod_uid: str
    asked: tuple[str, ...]
    passed: tuple[str, ...]
    refused: Mapping[str, str]
    """Node -> reason."""


class Proxy:
    """Hands everything on, a bind only after ``before_bind`` has returned."""

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.target = ""
        self.before_bind: BeforeBind | None = None
        self.answers: list[tuple[str, str]] = []
        """Pod name and ``Error`` of each bind, in order."""
        self.filters: list[Filtered] = []
        """Those that were answered, in order."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/{path:.*}", self._forward)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", int(self.url.rpartition(":")[2])).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _forward(self, request: web.Request) -> web.Response:
        body = await request.read()
        is_bind = request.path.endswith("/bind")
        if is_bind and self.before_bind is not None:
            await self.before_bind(orjson.loads(body))
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                self.target + request.path,
                data=body,
                headers={"Content-Type": request.content_type},
            ) as reply,
        ):
            content = await reply.read()
            if is_bind:
                self.answers.append(
                    (orjson.loads(body)["PodName"], orjson.loads(content).get("Error", ""))
                )
            if request.path.endswith("/filter") and reply.status == web.HTTPOk.status_code:
                self.filters.append(_filtered(orjson.loads(body), orjson.loads(content)))
            return web.Response(status=reply.status, body=content, content_type=reply.content_type)


def _filtered(args: dict[str, Any], result: dict[str, Any]) -> Filtered:
    refused = (result.get("FailedNodes") or {}) | (result.get("FailedAndUnresolvableNodes") or {})
    return Filtered(
        args["Pod"]["metadata"]["uid"],
        tuple(args.get("NodeNames") or ()),
        tuple(result.get("NodeNames") or ()),
        refused,
    )
