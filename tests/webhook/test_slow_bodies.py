"""Clients that begin a review and do not go on: none of them keeps an honest one out, and nothing
of them stays.
"""

import asyncio
import time

import pytest

from extender.kube.serving.bodies import ArrivalLimits
from extender.kube.serving.listener import LINGERING_TIME_S
from tests.support.service import until
from tests.support.slow_bodies import ask, head, slow_bodies
from tests.webhook.builders import a_pod, review
from tests.webhook.test_server import post, serving
from webhook.server import WebhookServer

PLACES = ArrivalLimits().arriving_max
PATIENT = ArrivalLimits(lag_max_s=60.0)
"""So that nothing ends by itself however slow the machine is."""


def port_of(server: WebhookServer) -> int:
    runner = server._listener._runner
    assert runner is not None
    return int(runner.addresses[0][1])


async def awaits(server: WebhookServer, count: int, *, given_up: int) -> bool:
    return (server._bodies.arriving, server._listener.cut["slow body"]) == (count, given_up)


async def test_more_slow_bodies_than_are_waited_for_keep_no_review_out():
    body = review(a_pod())
    async with serving(arrivals=PATIENT, deadline_s=60.0) as (server, _):
        port = port_of(server)
        async with slow_bodies(PLACES + 50, port, "/mutate") as slow:
            await until(
                lambda: (
                    (server._bodies.arriving, server._listener.cut["slow body"]) == (PLACES, 50)
                ),
                timeout_s=30,
            )
            began = time.perf_counter()
            assert await ask(port, "/mutate", body) == 200
            assert await awaits(server, PLACES, given_up=50), (
                "what comes in one packet takes nobody's place"
            )

            async def begun() -> None:
                await until(
                    lambda: (
                        (server._bodies.arriving, server._listener.cut["slow body"]) == (PLACES, 51)
                    ),
                    timeout_s=30,
                )

            assert await ask(port, "/validate", body, between=begun) == 200
            assert time.perf_counter() - began < 5.0
        assert (slow.ends[408], slow.ends.total()) == (51, PLACES + 50)
        await until(
            lambda: (server._bodies.arriving, server._listener.cut["slow body"]) == (0, 51),
            timeout_s=30,
        )
        assert server._bodies.bytes_used == 0


@pytest.mark.looptime
async def test_slow_bodies_are_given_up_before_the_deadline_and_nothing_of_them_stays():
    async with serving(deadline_s=60.0) as (server, client):
        async with slow_bodies(PLACES, port_of(server), "/mutate") as slow:
            await slow.ended()
            assert slow.ends == {408: PLACES}
        assert (server._bodies.arriving, server._bodies.bytes_used) == (0, 0)
        await until(lambda: server._listener.connections == 0, timeout_s=5)
        assert (await post(client, "/mutate", review(a_pod())))[0] == 200


@pytest.mark.looptime
async def test_a_connection_ends_with_its_408_and_is_not_lingered_on():
    async with serving() as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(head("/mutate", 10) + b"{")
        assert b" 408 " in await reader.readuntil(b"\r\n")
        clock = asyncio.get_running_loop().time
        began = clock()
        rest = await reader.read()
        assert b"less than 65536 bytes a second" in rest
        assert clock() - began < LINGERING_TIME_S / 2
        writer.close()
