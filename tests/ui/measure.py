"""What the page costs with 1,000 pods and 2,000 vpods of which 20 vreplicas move a second: ``python
-m tests.ui.measure``.

The server: processor time a second for that many streams, beyond what the same changes cost while
nobody listens, and the longest time for which the event loop was held. The browser: times between
frames and long tasks (over 50 ms), while the page is only open, is scrolled, and has a vpod
selected. Two cores are needed, and nothing else on them.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from extender.service.http.page.routes import Page
from tests.support.builders import POOL
from tests.support.service import until
from tests.ui.browser import Opened, browsing
from tests.ui.scene import Answers, Cluster, a_page, an_hour_of_history, served

SECONDS: Final = 10.0
MOVES_PERIOD_S: Final = 0.1
MOVES: Final = 2
STREAMS: Final = (1, 8, 32)

_CLIENTS: Final = """
import asyncio, sys, urllib.parse
async def read(host, port, path):
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
    writer.write(f"GET {path} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
    while await reader.read(1 << 16):
        pass
async def main():
    at = urllib.parse.urlsplit(sys.argv[1])
    path, streams = f"{at.path}?{at.query}", int(sys.argv[2])
    await asyncio.gather(*(read(at.hostname, at.port, path) for _ in range(streams)))
asyncio.run(main())
"""


def a_large_cluster() -> Cluster:
    return Cluster(pods=1_000, vpods=2_000, nodes=100)


async def moving(
    cluster: Cluster, seconds: float, also: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Let vreplicas move for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        cluster.churn(MOVES)
        if also is not None:
            await also()
        await asyncio.sleep(MOVES_PERIOD_S)


async def server() -> dict[str, Any]:
    """Processor time a second by number of streams, ms, and the longest hold of the loop, ms."""
    cluster = a_large_cluster()
    page = a_page(cluster.state)
    await page.history.sample()
    found: dict[str, Any] = {}
    async with served(page) as url:
        idle = await _used(cluster)
        for streams in STREAMS:
            async with listening(page, url, streams):
                await asyncio.sleep(2)
                found[f"{streams} streams, ms of processor a second"] = round(
                    await _used(cluster) - idle, 2
                )
        async with listening(page, url, 1):
            await asyncio.sleep(1)
            began = time.process_time()
            await asyncio.sleep(SECONDS)
            found["1 stream, nothing changes"] = round(
                (time.process_time() - began) / SECONDS * 1e3, 2
            )
            found["longest hold of the loop, ms"] = round(await _longest_hold(cluster), 1)
    facts = page._facts(POOL)
    await facts.look()
    found["snapshot, bytes"] = len(json.dumps(facts.all(), separators=(",", ":")))
    return found


@asynccontextmanager
async def listening(page: Page, url: str, streams: int):
    """That many clients in a process of their own."""
    clients = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENTS, f"{url}/v1/stream?pool={POOL}", str(streams)
    )
    await until(lambda: page.streams.open == streams)
    try:
        yield
    finally:
        clients.kill()
        await clients.wait()
        await until(lambda: page.streams.open == 0)


async def _used(cluster: Cluster) -> float:
    began = time.process_time()
    await moving(cluster, SECONDS)
    return (time.process_time() - began) / SECONDS * 1e3


async def _longest_hold(cluster: Cluster) -> float:
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, (time.perf_counter() - began) * 1e3)

    changing = asyncio.create_task(moving(cluster, SECONDS))
    watching = asyncio.create_task(watch())
    await changing
    watching.cancel()
    return longest


RECORD: Final = """() => {
  window.longs = []; window.frames = []; let last = 0;
  new PerformanceObserver(
    list => longs.push(...list.getEntries().map(it => Math.round(it.duration)))
  ).observe({entryTypes: ["longtask"]});
  requestAnimationFrame(function frame(now) {
    if (last) frames.push(now - last);
    last = now;
    requestAnimationFrame(frame);
  });
}"""
REPORT: Final = """() => {
  const sorted = frames.splice(0).sort((a, b) => a - b);
  const at = share => Math.round(sorted[Math.floor((sorted.length - 1) * share)]);
  return {
    frames: sorted.length, median_ms: at(.5), p99_ms: at(.99), longest_ms: at(1),
    long_tasks_ms: longs.splice(0),
  };
}"""


async def browser() -> dict[str, Any]:
    """Frames by what is done."""
    cluster = a_large_cluster()
    page = a_page(cluster.state)
    await an_hour_of_history(page, cluster)
    async with served(page, Answers({"outcome": "all 8 vreplicas are placed"})) as url:
        began = time.monotonic()
        async with browsing(url) as it:
            await it.until_pods(1_000)
            found: dict[str, Any] = {"all is drawn after s": round(time.monotonic() - began, 2)}
            await asyncio.sleep(2)
            await it.tab.evaluate(RECORD)

            async def scroll() -> None:
                await it.tab.mouse.wheel(0, 120)

            for name, also in (("open", None), ("scrolled", scroll)):
                found[name] = await _frames(it, cluster, also)
            await it.find("orders-7")
            await asyncio.sleep(1)
            found["a vpod selected"] = await _frames(it, cluster, None)
    return found


async def _frames(it: Opened, cluster: Cluster, also: Callable[[], Awaitable[None]] | None) -> Any:
    await it.tab.evaluate(REPORT)
    await moving(cluster, SECONDS, also)
    return await it.tab.evaluate(REPORT)


async def main() -> None:
    sys.stdout.write(
        json.dumps({"server": await server(), "browser": await browser()}, indent=1) + "\n"
    )


if __name__ == "__main__":
    asyncio.run(main())
