"""The rules about the way to the service: answers that refuse, streams that are cut, replicas that
are gone, tokens that are replaced, and servers that are not the service.
"""

from typing import Final

from extender.lab.adapter_kit.contract import Answer
from extender.lab.adapter_kit.judging import CannotTell, RuleBroken
from extender.lab.adapter_kit.listener import ACKNOWLEDGE
from extender.lab.adapter_kit.pools import CLICKS, ORDERS, begin
from extender.lab.adapter_kit.stage import Stage

TOKEN_MAY_BE_A_COPY: Final = (
    "it still sends the old token. It may read a copy of the file: no work log is in the folder"
)
REQUESTS_WHILE_REFUSED_MAX: Final = 6
"""In 2 s: both replicas may be asked, and a wait for the one does not hold for the other."""
TRIES_S: Final = 2.0
"""An adapter that has no replica tries again in this time."""


async def survives_conflict(stage: Stage) -> None:
    """The news is on its way while the adapter acknowledges: 409 names the newer generation."""
    await begin(stage)
    newest = stage.generation + 1
    refused = stage.desk.asked.get(ACKNOWLEDGE, 0)
    stage.desk.faults[ACKNOWLEDGE] = Answer(
        409, {"error": f"generation {stage.generation} is out of date", "generation": newest}
    )
    stage.serve(CLICKS)
    await stage.until(
        lambda: stage.desk.asked.get(ACKNOWLEDGE, 0) > refused, "an acknowledgement of the news"
    )
    await stage.meanwhile(0.3, "the adapter going on after 409")
    stage.desk.faults.clear()
    stage.serve(CLICKS, vreplicas=3)
    await stage.serving(CLICKS)
    await stage.works(ORDERS)


async def waits(stage: Stage) -> None:
    """429 with Retry-After, and 503: the adapter waits, serves on, and says it again."""
    await begin(stage)
    for status, retry_after_s in ((429, 2), (503, 1)):
        stage.desk.faults[ACKNOWLEDGE] = Answer(status, {"error": "this is a test"}, retry_after_s)
        before = stage.desk.asked.get(ACKNOWLEDGE, 0)
        stage.serve(ORDERS, vreplicas=status % 7 + 1)
        await stage.meanwhile(2.0, f"the adapter serving on although it is answered {status}")
        count = stage.desk.asked.get(ACKNOWLEDGE, 0) - before
        if count > REQUESTS_WHILE_REFUSED_MAX:
            raise RuleBroken(
                f"at most {REQUESTS_WHILE_REFUSED_MAX} acknowledgements in 2 s while each is "
                f"answered {status} with Retry-After: {retry_after_s}",
                f"{count} of them",
            )
        stage.desk.faults.clear()
        await stage.serving(ORDERS)


async def reconnects(stage: Stage) -> None:
    """The stream is cut in the middle of a line, and news comes afterwards."""
    await begin(stage)
    for vreplicas in (3, 4):
        stage.desk.send(None)
        stage.serve(ORDERS, vreplicas=vreplicas)
        await stage.serving(ORDERS)
    await stage.works(ORDERS)


async def notices_silence(stage: Stage) -> None:
    """A replica, or the way to it, is gone: nothing is refused, and nothing answered any more."""
    await begin(stage)
    stage.desk.hang(stage.replicas[0].address.port)
    stage.serve(CLICKS, send=False)
    await stage.serving(CLICKS, stage.patience.silence_s)


async def fails_over(stage: Stage) -> None:
    """One replica ends, then the other one instead."""
    await begin(stage)
    for number, replica in enumerate(stage.replicas):
        await replica.close()
        stage.serve(ORDERS, vreplicas=3 + number)
        await stage.serving(ORDERS)
        await replica.open()
    await stage.works(ORDERS)


async def serves_on(stage: Stage) -> None:
    """No replica answers for a while."""
    await begin(stage)
    for replica in stage.replicas:
        await replica.close()
    await stage.works(ORDERS)
    await stage.meanwhile(1.5, "the adapter serving on while the service is down")
    await stage.works(ORDERS)
    for replica in stage.replicas:
        await replica.open()
    stage.serve(ORDERS, vreplicas=3)
    await stage.serving(ORDERS, stage.patience.start_s)


async def rereads_token(stage: Stage) -> None:
    """The kubelet replaces the token, and the old one is no longer valid."""
    await begin(stage)
    refused = stage.desk.unauthorized
    stage.replace_token(stage.desk.token[::-1])
    stage.desk.send(None)
    stage.serve(ORDERS, vreplicas=3)
    try:
        await stage.serving(ORDERS)
    except RuleBroken:
        if stage.desk.unauthorized > refused and not stage.shares_folder():
            raise CannotTell(TOKEN_MAY_BE_A_COPY) from None
        raise


async def trusts_only_the_ca(stage: Stage) -> None:
    """The only server that answers has a certificate of a stranger, or one for another name."""
    await begin(stage)
    first, second = stage.replicas
    for number, (whose, context) in enumerate(stage.authority.wrong_contexts()):
        await second.close()
        await first.close()
        await first.open(context)
        expected = f"no request to a server with {whose}"
        await stage.meanwhile(TRIES_S, expected)
        if count := first.requests.total():
            raise RuleBroken(expected, f"{count} of them, with the pod's token")
        await first.close()
        await first.open()
        await second.open()
        stage.serve(ORDERS, vreplicas=3 + number)
        await stage.serving(ORDERS)
