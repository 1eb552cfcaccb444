"""A tenant's long names fill the ledgers of a pool whose slots are free, beside another tenant."""

import asyncio
import logging
import time
from typing import Final

from extender.kube.api import VPODS
from extender.model.decode import vpod_from
from tests.attack.target import Target
from tests.e2e.scenario import is_placed
from tests.e2e.waiting import NotYet

log = logging.getLogger(__name__)

POOL: Final = "ledgers"
SLOTS: Final = 2_000
LONG_NAMES, LONG_NAMES_SHORT = 1_500, 600
PLACED_WITHIN_S: Final = 10.0
TOLD_WITHIN_S: Final = 30.0
TOLD: Final = {"LedgerTooLarge"}


async def play(target: Target) -> list[str]:
    """What is wrong: another tenant waits, or those whose names find no room are not told why."""
    system, wrong = target.system, []
    await system.pool(POOL, slotsPerPod=SLOTS, maxPods=2)
    count = LONG_NAMES_SHORT if target.short else LONG_NAMES
    greedy = ""
    for start in range(0, count, 100):
        prefix = f"{'v' * 240}-{start:05}"
        greedy = await system.vpods(100, 1, tenant=greedy, prefix=prefix, pool=POOL)
    began = time.monotonic()
    other = await system.vpods(1, 5, prefix="other", pool=POOL)
    try:
        await system.eventually(
            lambda: _placed(target, other), PLACED_WITHIN_S, "the other tenant is placed"
        )
        log.info("beside %d long names a vpod is placed in %.1f s", count, time.monotonic() - began)
    except TimeoutError as error:
        wrong.append(str(error))
    try:
        waiting = await system.eventually(
            lambda: _told(target, greedy), TOLD_WITHIN_S, "who finds no room is told why"
        )
        log.info("%d of %d long names wait, and are told why", waiting, count)
    except TimeoutError as error:
        wrong.append(str(error))
    pages = range(0, count, 100)
    for start in pages:
        await asyncio.gather(
            *(
                system.backend.api.delete(VPODS, greedy, f"{'v' * 240}-{start:05}-{index}")
                for index in range(100)
            )
        )
    return wrong


async def _placed(target: Target, tenant: str) -> bool:
    return is_placed(vpod_from(await target.system.backend.api.get(VPODS, tenant, "other-0")))


async def _told(target: Target, greedy: str) -> int:
    """How many wait, once all of them say why."""
    reasons: dict[str, int] = {}
    for obj in (await target.system.backend.api.list_page(VPODS, limit=10_000)).items:
        if obj["metadata"]["namespace"] != greedy:
            continue
        conditions = obj.get("status", {}).get("conditions", [])
        (said,) = [each["reason"] for each in conditions if each["type"] == "Scheduled"] or [
            "nothing"
        ]
        reasons[said] = reasons.get(said, 0) + 1
    waiting = {reason: count for reason, count in reasons.items() if reason != "AllPlaced"}
    if waiting.keys() != TOLD:
        raise NotYet(str(reasons))
    return sum(waiting.values())
