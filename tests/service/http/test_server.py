"""The extender's HTTP server, over real sockets: every endpoint, every wrong way to use it, TLS,
and how it stops.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import orjson
import pytest

from extender.service.binding.verbs import ExtenderVerbs
from extender.service.http.overload import Gate, VerbLimits
from extender.service.http.server import ExtenderServer
from tests.support.service import World, a_world, bind_args, filter_args, until

NODES = ["node-0", "node-1"]
VERBS = ["filter", "prioritize", "bind", "preempt"]


class Serving:
    """A running service and a client of it."""

    def __init__(self, server: ExtenderServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def post(self, verb: str, body: bytes, **more) -> tuple[int, str]:
        headers = {"Content-Type": "application/json", **more.pop("headers", {})}
        async with self.session.post(
            f"{self.server.url}/v1/{verb}", data=body, headers=headers, **more
        ) as reply:
            return reply.status, await reply.text()

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(self.server.url + path) as reply:
            return reply.status, await reply.text()


@asynccontextmanager
async def serving(world: World, **options) -> AsyncIterator[Serving]:
    async with world.serving(serve=True, **options) as service, aiohttp.ClientSession() as session:
        yield Serving(service.server, session)


async def test_every_verb_answers_a_good_request():
    world = await World.create()
    await world.vpod("a", 2, {0: 2})
    await world.pod(0)
    pod = await world.pod_object(0)
    async with serving(world) as it:
        status, text = await it.post("filter", filter_args(pod, NODES))
        assert (status, orjson.loads(text)["NodeNames"]) == (200, NODES)
        status, text = await it.post("prioritize", filter_args(pod, NODES))
        assert (status, {item["Host"] for item in orjson.loads(text)}) == (200, set(NODES))
        victims = {"node-0": {"Pods": [{"UID": "someone"}], "NumPDBViolations": 0}}
        status, text = await it.post(
            "preempt", orjson.dumps({"Pod": pod, "NodeNameToMetaVictims": victims})
        )
        assert (status, orjson.loads(text)["NodeNameToMetaVictims"]) == (200, victims)
        assert await it.post("bind", bind_args(pod, "node-1")) == (200, '{"Error":""}')
        assert it.server.requests == dict.fromkeys(VERBS, 1)
    assert await world.ledger(0) == {"tenant/a": 2}


async def test_health_metrics_and_state_answer():
    world = await a_world(0)
    await world.vpod("a", 2)
    async with serving(world) as it:
        for path in ("/livez", "/healthz", "/readyz"):
            assert await it.get(path) == (200, "ok\n")
        status, text = await it.get("/metrics")
        assert (status, "vreplica_scheduler_cache_size" in text) == (200, True)

        async def is_explained() -> bool:
            _, text = await it.get("/state.json")
            (pool,) = orjson.loads(text)["pools"]
            return list(pool["vpodList"][0]["explanation"]) == [
                "added: 2 on dispatcher-0",
                "all 2 vreplicas are placed",
            ]

        await until(is_explained, timeout_s=3)


async def test_metrics_have_kube_schedulers_names_and_buckets():
    world = await a_world(0)
    async with serving(world) as it:
        await it.post("filter", b"garbage")
        await world.vpod("a", 2)
        await until(
            lambda: _seen(it, 'vreplica_scheduler_schedule_attempts_total{result="scheduled"} 1.0'),
            timeout_s=3,
        )
        _, text = await it.get("/metrics")
    point = "vreplica_scheduler_framework_extension_point_duration_seconds"
    assert _buckets(text, point) == [0.0001 * 2**i for i in range(12)]
    assert _buckets(text, "vreplica_scheduler_scheduling_attempt_duration_seconds") == [
        0.001 * 2**i for i in range(15)
    ]
    assert _buckets(text, "vreplica_scheduler_scheduling_algorithm_duration_seconds") == [
        0.001 * 2**i for i in range(15)
    ]
    assert f'{point}_count{{extension_point="filter",status="Error"}} 1.0' in text
    assert 'vreplica_scheduler_pending_vpods{queue="unschedulable"} 0.0' in text
    assert "vreplica_scheduler_ledger_conflicts_total 0.0" in text


async def _seen(it: Serving, text: str) -> bool:
    return text in (await it.get("/metrics"))[1]


def _buckets(text: str, name: str) -> list[float]:
    found = {
        float(line.partition('le="')[2].partition('"')[0])
        for line in text.splitlines()
        if line.startswith(f"{name}_bucket") and "+Inf" not in line
    }
    return sorted(found)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b"", "body", id="empty"),
        pytest.param(b"garbage", "body", id="garbage"),
        pytest.param(b"\xff\xfe\x00", "body", id="not-utf-8"),
        pytest.param(b"[]", "expected an object", id="a-list"),
        pytest.param(b"{}", "expected", id="nothing-in-it"),
        pytest.param(b'{"Pod":' + b"[" * 100_000, "body", id="nested-deep"),
        pytest.param(b'{"Pod": 1, "PodName": 1, "NodeNames": 1}', "expected", id="wrong-types"),
        pytest.param(
            b'{"PodName":"../x","PodNamespace":"a","PodUID":"u","Node":"n","Pod":{}}',
            "expected",
            id="path",
        ),
    ],
)
async def test_garbage_is_refused_with_a_clear_text(verb: str, body: bytes, says: str):
    world = await World.create()
    async with serving(world) as it:
        status, text = await it.post(verb, body)
        assert status == 400
        assert says in text
        assert "Traceback" not in text
        assert await it.get("/readyz") == (200, "ok\n")


def limited(it: Serving, **limits) -> Gate:
    """Other limits than shipped, from now on."""
    it.server.handlers.gate = Gate(VerbLimits(**limits))
    return it.server.gate


async def in_chunks(size_bytes: int) -> AsyncIterator[bytes]:
    for _ in range(size_bytes // 100):
        yield b" " * 100


async def test_a_body_over_the_limit_of_its_verb_is_refused_with_its_length_announced_or_not():
    world = await World.create()
    async with serving(world) as it:
        limited(it, body_bytes_max=dict.fromkeys(VERBS, 10_000))
        for verb in VERBS:
            status, text = await it.post(verb, b" " * 10_001)
            assert (status, text) == (413, "the body is larger than 10000 bytes\n")
            status, text = await it.post(verb, in_chunks(20_000))  # type: ignore[arg-type]
            assert (status, text) == (413, "the body is larger than 10000 bytes\n")
            status, _ = await it.post(verb, in_chunks(10_000))  # type: ignore[arg-type]
            assert status == 400, "read to its end, and no JSON"


async def test_a_body_that_says_it_is_compressed_is_not_unpacked():
    world = await World.create()
    async with serving(world) as it:
        status, text = await it.post("filter", b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
        assert (status, "must not be encoded" in text) == (415, True)


async def test_too_many_nodes_are_refused():
    world = await World.create()
    await world.pod(0)
    async with serving(world) as it:
        names = [f"node-{index}" for index in range(20_001)]
        status, text = await it.post("filter", filter_args(await world.pod_object(0), names))
    assert (status, "at most 20000 nodes" in text) == (413, True)


@pytest.mark.parametrize("path", [f"/v1/{verb}" for verb in VERBS])
async def test_a_verb_asked_with_get_is_not_allowed(path: str):
    world = await World.create()
    async with serving(world) as it:
        assert (await it.get(path))[0] == 405


async def test_an_unknown_path_is_not_found_and_a_post_to_health_not_allowed():
    world = await World.create()
    async with serving(world) as it:
        assert (await it.get("/v1/unknown"))[0] == 404
        assert (await it.post("../readyz", b"{}"))[0] == 405


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
async def test_a_body_that_a_web_page_could_send_is_refused(content_type: str):
    """A page in a browser on this machine can post these to loopback unasked; JSON it cannot."""
    world = await World.create()
    await world.pod(0)
    async with serving(world) as it:
        body = bind_args(await world.pod_object(0), "node-0")
        status, text = await it.post("bind", body, headers={"Content-Type": content_type})
        assert (status, text) == (415, "the body must be application/json\n")
    assert await world.node_of(0) == ""


async def test_until_the_caches_are_synced_every_verb_answers_503():
    world = await World.create()
    pause = world.api.pause("list", "vpods")
    service = world.service(serve=True)
    running = asyncio.create_task(service.run())
    await pause.reached.wait()
    async with aiohttp.ClientSession() as session:
        it = Serving(service.server, session)
        for verb in VERBS:
            assert await it.post(verb, b"{}") == (503, "caches not synced: vpods\n")
        assert await it.get("/readyz") == (503, "caches not synced: vpods\n")
        assert await it.get("/livez") == (200, "ok\n")
        pause.go_on.set()
        await service.informers.wait_synced()
        assert await it.get("/readyz") == (200, "ok\n")
    running.cancel()
    await asyncio.wait({running})


async def test_more_requests_than_it_takes_are_answered_503_at_once():
    world = await World.create()
    for ordinal in range(3):
        await world.pod(ordinal)
    bodies = [bind_args(await world.pod_object(ordinal), "node-1") for ordinal in range(3)]
    async with serving(world) as it:
        limited(it, in_flight_max={"bind": 2, "filter": 1})
        pauses = [world.api.pause("bind", "pods", f"dispatcher-{ordinal}") for ordinal in range(2)]
        asked = [asyncio.create_task(it.post("bind", body)) for body in bodies[:2]]
        for pause in pauses:
            await pause.reached.wait()
        status, text = await it.post("bind", bodies[2])
        assert (status, text) == (503, "2 bind requests are in flight already; try again\n")
        status, _ = await it.post("filter", filter_args(await world.pod_object(2), NODES))
        assert status == 200, "binds take nothing away from filter"
        for pause in pauses:
            pause.go_on.set()
        assert [status for status, _ in await asyncio.gather(*asked)] == [200, 200]
        assert (await it.post("bind", bodies[2]))[0] == 200


async def test_a_bind_that_takes_too_long_says_so_in_a_200_as_kube_scheduler_drops_other_bodies():
    world = await World.create()
    await world.pod(0)
    async with serving(world, deadline_s=0.2) as it:
        world.api.pause("bind", "pods")
        status, text = await it.post("bind", bind_args(await world.pod_object(0), "node-1"))
    error = "bind not answered within 0.2 s; whether it is done shows in the pod"
    assert (status, orjson.loads(text)) == (200, {"Error": error})


async def test_a_body_that_does_not_come_is_answered_at_the_deadline():
    world = await World.create()
    async with serving(world, deadline_s=0.2) as it:
        host, _, port = it.server.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"POST /v1/filter HTTP/1.1\r\nHost: {host}\r\nContent-Type: "
            f"application/json\r\nContent-Length: 100\r\n\r\n"
        )
        writer.write(head.encode() + b"{")
        status_line = await reader.readline()
        assert b" 408 " in status_line
        writer.close()
        await writer.wait_closed()


async def test_stopping_goes_unready_at_once_finishes_what_is_in_flight_and_only_then_closes():
    world = await World.create()
    await world.pod(0)
    service = world.service(serve=True)
    running = asyncio.create_task(service.run())
    await service.informers.wait_synced()
    async with aiohttp.ClientSession() as session, aiohttp.ClientSession() as other:
        it = Serving(service.server, session)
        pause = world.api.pause("bind", "pods")
        asked = asyncio.create_task(it.post("bind", bind_args(await world.pod_object(0), "node-1")))
        await pause.reached.wait()
        running.cancel()
        await asyncio.sleep(0.05)
        newcomer = Serving(service.server, other)
        assert await newcomer.get("/readyz") == (503, "shutting down\n")
        assert await newcomer.get("/livez") == (200, "ok\n")
        assert await newcomer.post("filter", b"{}") == (503, "shutting down\n")
        pause.go_on.set()
        assert await asked == (200, '{"Error":""}')
        await asyncio.wait({running})
        with pytest.raises(aiohttp.ClientConnectionError):
            await newcomer.get("/livez")
    assert await world.node_of(0) == "node-1"


@pytest.mark.looptime
async def test_with_a_shutdown_delay_it_is_unready_and_goes_on_answering_until_the_delay_is_over():
    world = await World.create()
    await world.pod(0)
    service = world.service(serve=True, shutdown_delay_s=30.0)
    running = asyncio.create_task(service.run())
    await service.informers.wait_synced()
    async with aiohttp.ClientSession() as session:
        it = Serving(service.server, session)
        running.cancel()
        await asyncio.sleep(0.05)
        assert (await it.get("/readyz"))[0] == 503
        assert (await it.post("bind", bind_args(await world.pod_object(0), "node-1")))[0] == 200
        await asyncio.sleep(25)
        assert (await it.get("/livez"))[0] == 200
        await asyncio.wait({running})


async def test_a_broken_verb_is_a_500_without_its_inside(monkeypatch: pytest.MonkeyPatch):
    def broken(_self: ExtenderVerbs, _body: bytes) -> tuple[bytes, str]:
        raise KeyError("secret inside")

    monkeypatch.setattr(ExtenderVerbs, "filter", broken)
    world = await World.create()
    async with serving(world) as it:
        status, text = await it.post("filter", b"{}")
        assert (status, "secret" in text) == (500, False)
        assert await it.get("/readyz") == (200, "ok\n")
