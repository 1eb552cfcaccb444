"""A worker in forty lines: it works on each share of each tenant that is placed on its pod."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from vreplica_adapter import Adapter, Share, State


class Worker:
    def __init__(self, work: Callable[[str, int | None, int], Awaitable[None]]) -> None:
        self.work, self.done = work, Counter[str]()
        self.loops: dict[str, asyncio.Task[None]] = {}
        self.rounds: dict[str, asyncio.Future[Any]] = {}

    async def serve(self, share: Share) -> None:
        if share.key not in self.loops or self.loops[share.key].done():
            self.loops[share.key] = asyncio.create_task(self.loop(share))
        elif under_way := self.rounds.get(share.key):
            await asyncio.wait({under_way})  # it began as the share was before

    async def loop(self, share: Share) -> None:
        while share.state is State.SERVE and share.still_mine(epoch := share.epoch):
            here = share.indexes or [None] * share.vreplicas
            pieces = [self.work(share.key, index, epoch) for index in here]
            self.rounds[share.key] = asyncio.gather(*pieces, return_exceptions=True)
            failed = [one for one in await self.rounds[share.key] if isinstance(one, Exception)]
            self.done[share.key] += len(pieces) - len(failed)
            if failed:
                told = {"message": f"{share.key}: {len(failed)} failed", "exception": failed[0]}
                asyncio.get_running_loop().call_exception_handler(told)
                await asyncio.sleep(1.0)

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
            while not (await asyncio.wait({stopped}, timeout=10))[0]:
                adapter.report_load({key: self.done[key] / 10 for key in self.loops})
                self.done.clear()
