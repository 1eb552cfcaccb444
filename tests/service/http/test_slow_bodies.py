"""Clients that begin a verb's body and do not go on: none of them keeps kube-scheduler out, and
nothing of them stays.
"""

import asyncio
import time

import pytest

from extender.kube.serving.bodies import ArrivalLimits
from extender.service.http.overload import BIND, FILTER, Gate, Overloaded, VerbLimits
from tests.service.http.test_overload import Body
from tests.service.http.test_server import NODES, Serving, limited, serving
from tests.support.service import World, bind_args, filter_args, until
from tests.support.slow_bodies import ask, slow_bodies

PLACES = ArrivalLimits().arriving_max
PATIENT = ArrivalLimits(lag_max_s=60.0)
"""So that nothing ends by itself however slow the machine is."""


def port_of(it: Serving) -> int:
    return int(it.server.url.rpartition(":")[2])


async def awaits(it: Serving, count: int, *, given_up: int) -> bool:
    server = it.server
    return (server.gate.bodies.arriving, server._listener.cut["slow body"]) == (count, given_up)


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(VerbLimits().in_flight_max[FILTER] + 50, id="more-than-are-in-flight-at-once"),
        pytest.param(PLACES + 50, id="more-than-are-waited-for"),
    ],
)
async def test_slow_bodies_keep_no_verb_out(count: int):
    world = await World.create()
    await world.pod(0)
    body = filter_args(await world.pod_object(0), NODES)
    before, after = max(count - PLACES, 0), max(count + 1 - PLACES, 0)
    async with serving(world, deadline_s=60.0) as it:
        gate, port = limited(it, arrivals=PATIENT), port_of(it)
        async with slow_bodies(count, port, "/v1/filter") as slow:
            await until(lambda: awaits(it, count - before, given_up=before), timeout_s=30)
            began = time.perf_counter()
            assert await ask(port, "/v1/filter", body) == 200
            assert await awaits(it, count - before, given_up=before), (
                "in one packet it takes nobody's place"
            )

            async def begun() -> None:
                await until(lambda: awaits(it, count + 1 - after, given_up=after), timeout_s=30)

            assert await ask(port, "/v1/filter", body, between=begun) == 200
            bind = bind_args(await world.pod_object(0), "node-1")
            assert await ask(port, "/v1/bind", bind) == 200
            assert time.perf_counter() - began < 5.0
            assert gate.in_flight[FILTER] == 0, "who has sent no body is not worked for"
            text = (await it.get("/metrics"))[1]
            assert f"vreplica_scheduler_request_bodies_arriving {count - after}.0" in text
        assert (slow.ends[408], slow.ends.total()) == (after, count)
        assert await gate.drained(30)
        assert (gate.bodies.arriving, gate.bodies.bytes_used) == (0, 0)
        assert not +gate.in_flight
    assert not gate.refused


@pytest.mark.looptime
async def test_slow_bodies_are_given_up_before_the_deadline_and_nothing_of_them_stays():
    world = await World.create()
    async with serving(world, deadline_s=60.0) as it:
        gate = it.server.gate
        async with slow_bodies(PLACES, port_of(it), "/v1/bind") as slow:
            await slow.ended()
            assert slow.ends == {408: PLACES}
        assert await gate.drained(1)
        assert (gate.bodies.arriving, gate.bodies.bytes_used, gate.in_flight.total()) == (0, 0, 0)
        assert it.server._listener.cut == {"slow body": PLACES}


async def test_a_request_is_in_flight_from_the_end_of_its_body_to_its_answer():
    gate, arrives = Gate(VerbLimits(in_flight_max={BIND: 1})), asyncio.Event()
    with gate.admit(BIND) as slow:
        reading = asyncio.create_task(slow.read(Body(b"x", then=arrives.wait), 1))
        await asyncio.sleep(0)
        assert not await gate.drained(0), "it is waited for when the server stops"
        assert gate.in_flight[BIND] == 0
        with gate.admit(BIND) as quick:
            await quick.read(Body(b"y"), 1)
            assert gate.in_flight[BIND] == 1
            with pytest.raises(Overloaded), gate.admit(BIND):
                pass
            arrives.set()
            with pytest.raises(Overloaded):
                await reading
    assert (gate.in_flight[BIND], gate.bodies.bytes_used, gate.refused) == (0, 0, {BIND: 2})
    assert await gate.drained(0)


async def test_a_bind_whose_body_is_on_its_way_when_the_server_stops_is_answered():
    world = await World.create()
    await world.pod(0)
    body = bind_args(await world.pod_object(0), "node-1")
    service = world.service(serve=True, deadline_s=30.0)
    running = asyncio.create_task(service.run())
    await service.informers.wait_synced()
    gate = service.server.handlers.gate = Gate(VerbLimits(arrivals=PATIENT))
    port = int(service.server.url.rpartition(":")[2])

    async def stop() -> None:
        await until(lambda: gate.bodies.arriving == 1, timeout_s=15)
        running.cancel()
        await until(lambda: service.server._health.draining, timeout_s=15)

    assert await ask(port, "/v1/bind", body, between=stop) == 200
    await asyncio.wait({running})
    assert await world.node_of(0) == "node-1"
