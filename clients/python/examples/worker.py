"""A worker in forty lines: it works on each share of each tenant that is placed on its pod."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from vreplica_adapter import Adapter, Share, State


class Worker:
    def __init__(self, work: Callable[[str, int], Awaitable[None]]) -> None:
        self.work = work
        self.done: dict[str, float] = {}
        self.loops: dict[str, asyncio.Task[None]] = {}

    async def serve(self, share: Share) -> None:
        loop = self.loops.get(share.key)
        if loop is None or loop.done():
            self.loops[share.key] = asyncio.create_task(self.loop(share))

    async def loop(self, share: Share) -> None:
        while share.state is State.SERVE and share.still_mine(epoch := share.epoch):
            pieces = [self.work(share.key, epoch) for _ in range(share.vreplicas)]
            await asyncio.gather(*pieces, return_exceptions=True)
            self.done[share.key] = self.done.get(share.key, 0) + len(pieces)

    async def drain(self, share: Share) -> None:
        await asyncio.wait({self.loops[share.key]})  # until the pieces under way are done

    async def stop(self, share: Share) -> None:
        if loop := self.loops.pop(share.key, None):
            loop.cancel()

    async def run(self, **arguments: Any) -> None:
        async with Adapter(
            on_serve=self.serve, on_drain=self.drain, on_stop=self.stop, **arguments
        ) as adapter:
            stopped = asyncio.create_task(adapter.stopped())
            while not stopped.done():
                adapter.report_load(self.done)
                await asyncio.wait({stopped}, timeout=10)
