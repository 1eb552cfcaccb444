"""What all rules begin with, and the rules of pools with leases and with indexes."""

from typing import Final

from extender.lab.adapter_kit.contract import Answer
from extender.lab.adapter_kit.judging import CannotTell, RuleBroken
from extender.lab.adapter_kit.listener import ACKNOWLEDGE, ASSIGNMENT
from extender.lab.adapter_kit.stage import Stage

ORDERS: Final = "team-a/orders"
DRAIN_S: Final = 10.0
"""Until a deadline."""
NO_WORK_LOG: Final = "the adapter writes no work log ($VREPLICA_WORK_LOG), so nobody sees its work"
NO_INDEXES: Final = "its work log has no index, so the adapter is for pools without indexes"
LEASE_S: Final = 3.0


async def begin(stage: Stage) -> None:
    """Start the adapter with one share that it serves."""
    stage.serve(ORDERS)
    await stage.start()
    await stage.serving(ORDERS, stage.patience.start_s)
    await stage.works(ORDERS)


async def keeps_lease(stage: Stage) -> None:
    """An exclusive pool: the lease is renewed, and work ends with it."""
    stage.lease_s = LEASE_S
    await begin(stage)
    if not stage.log.is_used:
        raise CannotTell(NO_WORK_LOG)
    await stage.meanwhile(LEASE_S, "the adapter serving on while its lease is renewed")
    await stage.works(ORDERS)
    down = Answer(503, {"error": "this is a test"}, 1)
    stage.desk.faults.update({ASSIGNMENT: down, ACKNOWLEDGE: down})
    stage.desk.send(None)
    await stage.meanwhile(LEASE_S, "the adapter running on")
    before = stage.log.count(ORDERS)
    await stage.meanwhile(1.0, "the adapter running on")
    if count := stage.log.count(ORDERS) - before:
        raise RuleBroken(
            f"no work on {ORDERS} once the lease of {LEASE_S:g} s has run out",
            f"{count} pieces of work in the second after it",
        )
    stage.desk.faults.clear()
    stage.serve(ORDERS, vreplicas=3, epoch=8)
    await stage.works(ORDERS, 8)


async def indexes(stage: Stage) -> None:
    """A pool with ``identity: Indexed``: one index goes, then others come with a new epoch."""
    stage.serve_indexes(ORDERS, "0-1,5", epoch=7)
    await stage.start()
    await stage.serving(ORDERS, stage.patience.start_s)
    await stage.works(ORDERS)
    if not stage.log.is_used:
        raise CannotTell(NO_WORK_LOG)
    if not stage.log.has_indexes:
        raise CannotTell(NO_INDEXES)
    steps = (("0-1,5", 7, (0, 1, 5)), ("1,5", 7, (1, 5)), ("1,3,5-6", 8, (1, 3, 5, 6)))
    for told, epoch, here in steps:
        stage.serve_indexes(ORDERS, told, epoch)
        await stage.serving(ORDERS)
        for index in here:
            await stage.works(ORDERS, epoch, index)
        await stage.meanwhile(0.5, f"work on the indexes {told} of {ORDERS} only")
    stage.drain(ORDERS, DRAIN_S)
    await stage.drained(ORDERS, DRAIN_S)
    await stage.meanwhile(0.5, f"no work on {ORDERS} once it is drained")
