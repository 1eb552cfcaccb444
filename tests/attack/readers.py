"""People and tools that read long answers again and again, beside kube-scheduler's verbs."""

import asyncio
import logging
import statistics

import aiohttp

from tests.attack.target import Target

log = logging.getLogger(__name__)

READERS = 20


async def play(target: Target) -> list[str]:
    """What is wrong: filters that wait for readers."""
    seconds = 4.0 if target.short else 15.0
    reading = [
        asyncio.create_task(_read_on(target.system.service_url, path))
        for path in ("/state.json", "/metrics")
        for _ in range(READERS)
    ]
    try:
        honest = (await target.ask(seconds))["extender"]
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    p50_ms, p99_ms = statistics.median(honest.took_s) * 1e3, honest.p99_s() * 1e3
    log.info("filters beside %d readers: p50 %.1f ms, p99 %.0f ms", len(reading), p50_ms, p99_ms)
    wrong = [f"{len(honest.failed)} filters failed: {honest.failed[0]}"] if honest.failed else []
    return wrong + (
        [f"filters beside readers: p99 {p99_ms:.0f} ms"]
        if target.is_late("extender", honest)
        else []
    )


async def _read_on(url: str, path: str) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(url + path) as reply:
                await reply.read()
