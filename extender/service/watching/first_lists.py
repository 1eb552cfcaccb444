"""Logs the progress of the first lists: with many objects they take a while, and a start must not
look stuck.
"""

import asyncio
import contextlib
import logging
from typing import Final

from extender.kube.reflector import Reflector
from extender.service.watching.informers import Informers

log: Final = logging.getLogger(__name__)

PERIOD_S: Final = 5.0


async def log_first_lists(informers: Informers) -> None:
    """Wait until every kind has been listed, and log the progress each ``PERIOD_S``."""
    synced = asyncio.ensure_future(informers.wait_synced())
    try:
        while not synced.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_S):
                    await asyncio.shield(synced)
                    break
            log.info("first lists: %s", ", ".join(_progress(r) for r in informers.reflectors))
    finally:
        synced.cancel()
    total = sum(reflector.listed for reflector in informers.reflectors)
    log.info("all is listed: %s objects", f"{total:,}")


def _progress(reflector: Reflector) -> str:
    """``synced 12,000 of ~50,000 vpods``."""
    plural = reflector.resource.plural
    if reflector.is_synced:
        return f"{plural} are synced"
    of = f" of ~{reflector.listed_of:,}" if reflector.listed_of else ""
    return f"synced {reflector.listed:,}{of} {plural}"
