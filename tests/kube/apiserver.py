"""An HTTP server that answers as a test says, for the real client."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from extender.kube.client import KubeApi

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Seen:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


def answer(obj: Any, status: int = 200, **headers: str) -> Handler:
    """An answer in JSON; header names with _ for -."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(
            body=orjson.dumps(obj), status=status, content_type="application/json", headers=named
        )

    return handler


def status(code: int, reason: str, message: str = "because", **headers: str) -> Handler:
    """A metav1.Status."""
    body = {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return answer(body, code, **headers)


def overloaded(code: int = 429, retry_after_s: int = 60) -> Handler:
    """As kube-apiserver refuses a request while it is overloaded or shuts down: in plain text."""

    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(
            text="Too many requests, please try again later.\n",
            status=code,
            headers={"Retry-After": str(retry_after_s)},
        )

    return handler


async def reset(request: web.Request) -> web.StreamResponse:
    """Break the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def stream(*chunks: bytes, then_reset: bool = False) -> Handler:
    """A chunked answer, each chunk sent on its own."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if then_reset:
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler


async def silence(request: web.Request) -> web.StreamResponse:
    """No answer while the client waits."""
    await asyncio.sleep(3600)
    return web.Response()


@dataclass
class ApiServer:
    """Takes the next handler for each request; the last one stays."""

    handlers: list[Handler] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(
            Seen(
                request.method,
                request.rel_url.raw_path,
                dict(request.query),
                dict(request.headers),
                await request.read(),
            )
        )
        handler = self.handlers.pop(0) if len(self.handlers) > 1 else self.handlers[0]
        return await handler(request)


@asynccontextmanager
async def serve(server: ApiServer, tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiServer]:
    """Run ``server`` on a free port of loopback."""
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


def kubeconfig(
    folder: Path,
    server: str,
    *,
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
) -> str:
    """Write a kubeconfig of one context, with more of the cluster's and user's fields; its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [
            {"name": "c", "cluster": ({"server": server} if server else {}) | (cluster or {})}
        ],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "kubeconfig"
    path.write_bytes(orjson.dumps(config))
    return str(path)


@asynccontextmanager
async def client_of(server: ApiServer, folder: Path, **options: Any) -> AsyncIterator[KubeApi]:
    """Serve, and connect to it over plain HTTP."""
    async with serve(server):
        path = kubeconfig(folder, server.url, user={"token": "secret"})
        async with await KubeApi.connect(kubeconfig=path, **options) as api:
            yield api
