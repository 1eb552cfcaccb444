"""What all rules begin with, and the rules of pools with leases and with indexes."""

from typing import Final

from extender.lab.adapter_kit.contract import Answer
from extender.lab.adapter_kit.judging import CannotTell, RuleBroken
from extender.lab.adapter_kit.listener import ACKNOWLEDGE
from extender.lab.adapter_kit.stage import Stage

ORDERS: Final = "team-a/orders"
CLICKS: Final = "team-b/clicks"
DRAIN_S: Final = 10.0
"""Until a deadline."""
NO_WORK_LOG: Final = "the adapter writes no work log ($VREPLICA_WORK_LOG), so nobody sees its work"
NO_INDEXES: Final = "its work log has no index, so the adapter is for pools without indexes"
LEASE_S: Final = 3.0
ANSWER_S: Final = 1.5
"""How late an answer is. A lease of nine tenths that counted from it would end 1.2 s too late."""


async def begin(stage: Stage) -> None:
    """Start the adapter with one share that it serves."""
    stage.serve(ORDERS)
    await stage.start()
    await stage.serving(ORDERS, stage.patience.start_s)
    await stage.works(ORDERS)


async def keeps_lease(stage: Stage) -> None:
    """A pool becomes exclusive: the lease is renewed, and work ends with it. The last answer is
    late: a lease counts from the moment when the acknowledgement was sent.
    """
    await begin(stage)
    if not stage.log.is_used:
        raise CannotTell(NO_WORK_LOG)
    stage.lease_s = LEASE_S
    stage.serve(ORDERS)
    await stage.serving(ORDERS)
    await stage.meanwhile(LEASE_S, "the adapter serving on while its lease is renewed")
    await stage.works(ORDERS)
    stage.desk.answer_late(ANSWER_S, Answer(503, {"error": "this is a test"}, 1))
    await stage.until(
        lambda: not stage.desk.will_answer_late, "an acknowledgement that renews the lease", LEASE_S
    )
    await _lease_runs_out(stage)


async def needs_an_answer(stage: Stage) -> None:
    """At first no acknowledgement is taken: there is no lease. Later every one is refused with 409,
    and the news never comes: the lease runs out.
    """
    stage.lease_s = LEASE_S
    stage.desk.faults[ACKNOWLEDGE] = Answer(503, {"error": "this is a test"}, 1)
    stage.serve(ORDERS)
    await stage.start()
    asked, timeout_s = stage.desk.asked, stage.patience.start_s
    await stage.until(lambda: ACKNOWLEDGE in asked, "an acknowledgement", timeout_s)
    await stage.meanwhile(1.0, f"no work on {ORDERS} before an acknowledgement is taken")
    if count := stage.log.count(ORDERS):
        raise RuleBroken(
            f"no work on {ORDERS} before an acknowledgement is taken", f"{count} pieces of work"
        )
    stage.desk.faults.clear()
    await stage.serving(ORDERS)
    await stage.works(ORDERS)
    if not stage.log.is_used:
        raise CannotTell(NO_WORK_LOG)
    newer = {"error": "another generation by now", "generation": stage.generation + 1}
    stage.desk.faults[ACKNOWLEDGE] = Answer(409, newer)
    await _lease_runs_out(stage)


async def _lease_runs_out(stage: Stage) -> None:
    """No acknowledgement is taken: work ends with the lease, and goes on with a new one."""
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
