"""The rules: what is played for each, on a stage of its own. Each raises RuleBroken, or CannotTell.

``RULES`` has them in the order of the report.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from extender.lab.adapter_kit.connections import (
    fails_over,
    notices_silence,
    reconnects,
    rereads_token,
    serves_on,
    survives_conflict,
    trusts_only_the_ca,
    waits,
)
from extender.lab.adapter_kit.judging import CannotTell, RuleBroken
from extender.lab.adapter_kit.listener import ACKNOWLEDGE
from extender.lab.adapter_kit.pauses import begins_when_it_says_so, works_through
from extender.lab.adapter_kit.pools import (
    CLICKS,
    DRAIN_S,
    NO_WORK_LOG,
    ORDERS,
    begin,
    indexes,
    keeps_lease,
    needs_an_answer,
)
from extender.lab.adapter_kit.stage import Stage
from extender.model.assignment import AssignedShare, Assignment

Play: TypeAlias = Callable[[Stage], Awaitable[None]]


async def serves(stage: Stage) -> None:
    """Two shares."""
    stage.serve(ORDERS)
    await stage.start()
    await stage.serving(ORDERS, stage.patience.start_s)
    await stage.works(ORDERS, 7)

    async def told(epoch: int) -> None:
        stage.serve(CLICKS, vreplicas=1, epoch=epoch)

    await begins_when_it_says_so(stage, CLICKS, 9, told)
    await stage.works(ORDERS, 7)


async def prepares(stage: Stage) -> None:
    """A share is prepared, and served when it is told."""
    await begin(stage)

    def ready() -> bool:
        said = stage.contract.said
        return stage.has_said() and said is not None and CLICKS not in said.busy

    async def told(epoch: int) -> None:
        stage.prepare(CLICKS, epoch=epoch)
        await stage.until(ready, f"{CLICKS} prepared, and no longer busy")
        await stage.meanwhile(1.0, f"no work on {CLICKS} before it is told to serve")
        stage.serve(CLICKS, epoch=epoch)

    await begins_when_it_says_so(stage, CLICKS, 7, told)


async def drains(stage: Stage) -> None:
    """A share is drained before its deadline, and stays so; the other is served."""
    await begin(stage)
    stage.serve(CLICKS)
    await stage.serving(CLICKS)
    stage.drain(ORDERS, DRAIN_S)
    await stage.drained(ORDERS, DRAIN_S)
    await stage.works(CLICKS)
    await stage.meanwhile(1.0, f"no work on {ORDERS} once it is drained")
    stage.tell(ORDERS, None)
    await stage.until(stage.has_said, f"generation {stage.generation} acknowledged")
    await stage.meanwhile(0.5, f"no work on {ORDERS} once it is gone")


async def stops(stage: Stage) -> None:
    """A share is taken away without a drain."""
    await begin(stage)
    stage.tell(ORDERS, None)
    await stage.until(stage.has_said, f"generation {stage.generation} acknowledged")
    await stage.meanwhile(1.5, f"no work on {ORDERS} once it is gone")


async def grows(stage: Stage) -> None:
    """More vreplicas of the same epoch, then another share: served without a pause."""
    await begin(stage)

    async def news(number: int) -> None:
        stage.serve(ORDERS, vreplicas=5 + number)
        await stage.works(ORDERS, 7)
        await stage.serving(ORDERS)
        await stage.works(ORDERS, 7)
        stage.serve(CLICKS, vreplicas=1 + number, epoch=9)
        await stage.works(ORDERS, 7)
        await stage.serving(CLICKS)

    await works_through(stage, ORDERS, news)


async def fences(stage: Stage) -> None:
    """A share that was drained comes back with a greater epoch."""
    await begin(stage)
    stage.drain(ORDERS, DRAIN_S)
    await stage.drained(ORDERS)
    stage.serve(ORDERS, epoch=8)
    await stage.serving(ORDERS)
    await stage.works(ORDERS, 8)
    await stage.meanwhile(0.5, "work with the new epoch only")


async def takes_back(stage: Stage) -> None:
    """A drain is taken back as soon as the adapter knows of it: the share has a greater epoch."""
    await begin(stage)
    for epoch in (8, 9):
        stage.drain(ORDERS, DRAIN_S)
        await stage.until(stage.has_said, f"generation {stage.generation} acknowledged")
        stage.serve(ORDERS, epoch=epoch)
        await stage.serving(ORDERS)
        await stage.works(ORDERS, epoch)


async def newer_wins(stage: Stage) -> None:
    """Many generations, each before the adapter can have done what the one before asked."""
    await begin(stage)
    for vreplicas in (1, 2, 3):
        stage.prepare(CLICKS, vreplicas)
        await asyncio.sleep(0.02)
    stage.serve(CLICKS, 3)
    await asyncio.sleep(0.02)
    stage.drain(CLICKS, DRAIN_S)
    await stage.drained(CLICKS)
    stage.tell(CLICKS, None)
    await stage.until(stage.has_said, f"the newest generation {stage.generation} acknowledged")
    await stage.serving(ORDERS)


async def ignores_older(stage: Stage) -> None:
    """An old generation arrives late, on a stream that is behind, and in a file."""
    await begin(stage)
    old = stage.document()
    stage.write_file()
    stage.drain(ORDERS, DRAIN_S)
    await stage.drained(ORDERS)
    stage.desk.send(old)
    await stage.meanwhile(1.5, "the older generation ignored")
    stage.serve(CLICKS)
    await stage.serving(CLICKS)
    for replica in stage.replicas:
        await replica.close()
    await stage.works(CLICKS)
    await stage.meanwhile(1.5, "the older generation in the file ignored")
    await stage.works(CLICKS)


async def ignores_unknown(stage: Stage) -> None:
    """A newer service has more to say."""
    stage.more = {"futureField": {"of": ["a newer", "service"]}, "another": None}
    await begin(stage)
    stage.serve(CLICKS)
    await stage.serving(CLICKS)
    await stage.works(CLICKS)


async def ignores_other_uid(stage: Stage) -> None:
    """An assignment of the pod's predecessor or successor."""
    await begin(stage)
    shares = {CLICKS: AssignedShare(1, 1, 8, stage.epoch(9))}
    other = Assignment(stage.generation + 1000, stage.assignment.pod, "of-another-pod", shares)
    stage.desk.send(stage.written(other))
    await stage.meanwhile(1.5, "an assignment with another UID ignored")
    stage.serve(ORDERS, vreplicas=3)
    await stage.serving(ORDERS)
    await stage.works(ORDERS)


async def reads_file(stage: Stage) -> None:
    """A process starts while no replica answers: the file has its shares."""
    await begin(stage)
    if not stage.log.is_used:
        raise CannotTell(NO_WORK_LOG)
    await stage.process.kill()
    for replica in stage.replicas:
        await replica.close()
    stage.serve(CLICKS)
    stage.write_file()
    await stage.start()
    await stage.works(CLICKS)


async def is_quiet(stage: Stage) -> None:
    """Many generations within a moment, and then none."""
    await begin(stage)
    for vreplicas in range(1, 60):
        stage.serve(ORDERS, vreplicas=vreplicas)
        await asyncio.sleep(0.03)
    await stage.serving(ORDERS)
    before = stage.desk.asked.get(ACKNOWLEDGE, 0)
    await stage.meanwhile(2.0, "no more than the service's rate of acknowledgements")
    count = stage.desk.asked.get(ACKNOWLEDGE, 0) - before
    if count > REQUESTS_WITHOUT_NEWS_MAX:
        raise RuleBroken(
            f"at most {REQUESTS_WITHOUT_NEWS_MAX} acknowledgements in 2 s without news",
            f"{count} of them",
        )


async def ends_well(stage: Stage) -> None:
    """SIGTERM: everything is let go, and that is said before the process ends."""
    await begin(stage)
    stage.serve(CLICKS)
    await stage.serving(CLICKS)
    stage.process.terminate()
    try:
        async with asyncio.timeout(stage.patience.grace_s):
            while stage.process.exit_status is None:
                stage.must_be_right("no work on what is drained after SIGTERM")
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise RuleBroken(
            f"the process ending within {stage.patience.grace_s:g} s of SIGTERM", "it runs on"
        ) from None
    if not stage.has_said({"drained": [ORDERS, CLICKS]}):
        raise RuleBroken(f"{ORDERS} and {CLICKS} in drained before the end", stage.seen())
    stage.must_be_right("no work on what is drained after SIGTERM")
    if stage.process.exit_status != 0:
        raise RuleBroken("exit status 0 after SIGTERM", f"{stage.process.exit_status}")


REQUESTS_WITHOUT_NEWS_MAX: Final = 4
"""In 2 s."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``text``: what the adapter must do. ``exclusive``: of pools with leases only.

    ``needs_process``: the kit must start the adapter, or end it.
    """

    name: str
    text: str
    play: Play
    exclusive: bool = False
    needs_process: bool = False


RULES: Final = (
    Rule("serves", "serves what it is told to, and says so", serves),
    Rule("prepares", "gets ready when told Prepare, and does not serve before Serve", prepares),
    Rule("drains", "lets go by the deadline, says so once it is true, and serves the rest", drains),
    Rule("stops", "ends the work on a share that is taken away", stops),
    Rule("grows", "serves on when its number of vreplicas, or another share, changes", grows),
    Rule("indexes", "serves the indexes that it is told, and keeps those that stay", indexes),
    Rule("fences", "works with the new epoch on a share that comes back", fences),
    Rule("takes-back", "serves a share again whose drain is taken back", takes_back),
    Rule("newer-wins", "follows the newest generation while it is busy with another", newer_wins),
    Rule("ignores-older", "never acts on a generation older than it has seen", ignores_older),
    Rule("ignores-other-uid", "ignores an assignment of another pod", ignores_other_uid),
    Rule("ignores-unknown", "ignores fields that it does not know", ignores_unknown),
    Rule("survives-conflict", "goes on when it is answered 409", survives_conflict),
    Rule("waits", "waits when it is answered 429 or 503, and says it again", waits),
    Rule("reconnects", "opens a stream that was cut again", reconnects),
    Rule(
        "notices-silence",
        "leaves a stream that says nothing, and a replica that does not answer",
        notices_silence,
    ),
    Rule("fails-over", "asks another replica when one is gone", fails_over),
    Rule("serves-on", "serves on while the service is down", serves_on),
    Rule(
        "reads-file",
        "takes its shares from the file while no replica answers",
        reads_file,
        needs_process=True,
    ),
    Rule("rereads-token", "reads the token again when the kubelet replaces it", rereads_token),
    Rule(
        "trusts-only-the-ca",
        "asks no server whose certificate is not of the CA, or is for another name",
        trusts_only_the_ca,
    ),
    Rule("is-quiet", "acknowledges 10 times a second at most, and rarely without news", is_quiet),
    Rule(
        "ends-well",
        "drains and acknowledges after SIGTERM, and ends",
        ends_well,
        needs_process=True,
    ),
    Rule("keeps-lease", "ends its work when its lease runs out", keeps_lease, exclusive=True),
    Rule(
        "needs-an-answer",
        "has a lease only from acknowledgements that are answered with 200",
        needs_an_answer,
        exclusive=True,
    ),
)
