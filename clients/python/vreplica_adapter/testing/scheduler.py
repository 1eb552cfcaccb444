"""``FakeScheduler``: the service's three paths on a local port, and its faults."""

import asyncio
import json
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Self

from aiohttp import web

from vreplica_adapter.fields import WireError
from vreplica_adapter.testing.pod import Answer, FakePod, Lines
from vreplica_adapter.wire import Assignment, PlacedPod, Placements, State, write_placements

NAMESPACE: Final = "adapters"


class FakeScheduler:
    """Use it as an async context manager. ``lease_s`` makes its pool exclusive.

    A pod is told by the URL that it uses, so that a test needs no token.
    """

    def __init__(self, *, lease_s: float | None = None) -> None:
        self._lease_s = lease_s
        self._pods: dict[str, FakePod] = {}
        self._folder = tempfile.TemporaryDirectory()
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._status = 0
        self._talks = asyncio.Event()
        self._talks.set()
        self._streams: set[Lines] = set()
        self._resolvers: dict[Lines, str] = {}
        """The streams about a vpod."""

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()
        self._folder.cleanup()

    @property
    def url(self) -> str:
        """For a ``Resolver``."""
        return f"http://127.0.0.1:{self._port}"

    def pod(self, name: str) -> FakePod:
        """Return the pod of this name, a new one at the first call."""
        if name not in self._pods:
            key = f"{NAMESPACE}/{name}"
            told = Assignment(0, str(uuid.uuid4()), key, lease_s=self._lease_s)
            file = Path(self._folder.name) / name
            pod = self._pods[name] = FakePod(key, f"{self.url}/pods/{name}", file, told)
            pod.changed = self._tell_resolvers
        return self._pods[name]

    async def move(self, key: str, source: FakePod, destination: FakePod) -> None:
        """Hand a share over, as the pool's mode has it: in an exclusive pool the source lets go
        first, in others the destination gets ready and serves first. Raises TimeoutError if a pod
        does not acknowledge its part.
        """
        share = source.assignment.shares[key]
        size = {"weight": share.weight, "of": share.of, "indexes": share.indexes}
        peers = {"peer": destination.name, "intent": "Rebalance"}
        destination.prepare(key, share.vreplicas, epoch=share.epoch, **size)
        await destination.ready(key)
        if source.assignment.lease_s is None:
            destination.assign(key, share.vreplicas, epoch=share.epoch + 1, **size)
            await destination.serving(key)
        source.drain(key, within_s=5.0, **peers)
        await source.drained(key)
        source.revoke(key)
        if source.assignment.lease_s is not None:
            destination.assign(key, share.vreplicas, epoch=share.epoch + 1, **size)
            await destination.serving(key)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Take requests, and answer none. Streams that are open stay, and say nothing."""
        self._talks.clear()
        try:
            yield
        finally:
            self._talks.set()

    @contextmanager
    def failing(self, status: int = 503) -> Iterator[None]:
        """Answer every request with ``status``, and end the streams."""
        self._status = status
        self.cut()
        try:
            yield
        finally:
            self._status = 0

    @asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """Close the port, and with it all connections."""
        await self._close()
        try:
            yield
        finally:
            await self._open()

    def cut(self) -> None:
        """End the streams that are open, in the middle of a line."""
        for stream in self._streams:
            stream.put_nowait(None)

    def placements(self, key: str) -> Placements:
        """Return where a vpod is, as ``GET /v1/placements`` says. One that is not placed has no
        pods.
        """
        named = {pod.name: pod.assignment.shares.get(key) for pod in self._pods.values()}
        return Placements(
            generation=sum(pod.assignment.generation for pod in self._pods.values()),
            pods=tuple(
                PlacedPod(name, share.vreplicas, share.indexes)
                for name, share in sorted(named.items())
                if share is not None and share.state is not State.PREPARE
            ),
        )

    async def _open(self) -> None:
        app = web.Application(middlewares=[self._faulty])
        app.add_routes(
            [
                web.get("/pods/{pod}/v1/assignment", self._assignment),
                web.post("/pods/{pod}/v1/acknowledge", self._acknowledge),
                web.get("/v1/placements/{namespace}/{name}", self._placements),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        self.cut()
        self._talks.set()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _tell_resolvers(self) -> None:
        for stream, key in self._resolvers.items():
            stream.put_nowait(write_placements(self.placements(key)))

    @web.middleware
    async def _faulty(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        await self._talks.wait()
        if self._status:
            return web.Response(status=self._status, text="this is a test", headers={})
        return await handler(request)

    async def _assignment(self, request: web.Request) -> web.StreamResponse:
        pod = self._pods.get(request.match_info["pod"])
        if pod is None:
            raise web.HTTPNotFound(text="no such pod")
        lines: Lines = asyncio.Queue()
        lines.put_nowait(pod.document())
        pod.streams.add(lines)
        try:
            return await self._stream(request, lines)
        finally:
            pod.streams.discard(lines)

    async def _acknowledge(self, request: web.Request) -> web.Response:
        pod = self._pods.get(request.match_info["pod"])
        if pod is None:
            raise web.HTTPNotFound(text="no such pod")
        try:
            answer = pod.hear(await request.read())
        except WireError as error:
            answer = Answer(400, {"error": str(error)})
        headers = {"Retry-After": "1"} if answer.again else {}
        return web.Response(status=answer.status, body=json.dumps(answer.body), headers=headers)

    async def _placements(self, request: web.Request) -> web.StreamResponse:
        key, kind = "{namespace}/{name}".format_map(request.match_info), request.query.get("kind")
        key = f"{key}@{kind}" if kind else key
        lines: Lines = asyncio.Queue()
        lines.put_nowait(write_placements(self.placements(key)))
        self._resolvers[lines] = key
        try:
            return await self._stream(request, lines)
        finally:
            del self._resolvers[lines]

    async def _stream(self, request: web.Request, lines: Lines) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        self._streams.add(lines)
        try:
            while (line := await lines.get()) is not None:
                await self._talks.wait()
                await reply.write(line + b"\n")
            await reply.write(b'{"generation": 1')
        except ConnectionError:
            pass  # The adapter has gone.
        finally:
            self._streams.discard(lines)
        return reply
