"""Loops that run beside a test."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def at_work(*loops: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run loops beside the block, and cancel them at its end. Raises what one of them has
    raised.
    """
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
