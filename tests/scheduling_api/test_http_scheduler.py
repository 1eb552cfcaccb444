"""The Python API: what a caller gets from the service over HTTP, and what it is told when there is
nothing to get.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from extender.scheduling_api import (
    REPLY_BYTES_MAX,
    CallersVPod,
    GetTotalVReplicas,
    HttpScheduler,
    InsufficientSlots,
    NotScheduled,
    Placement,
    RequestRefused,
    Scheduler,
    SchedulerFunc,
    VPod,
)
from tests.e2e.processes import free_port
from tests.support.service import World, a_world, until

POOL = "knative-eventing/dispatcher"


def a_vpod(vreplicas: int = 4, **fields) -> CallersVPod:
    fields = {"namespace": "tenant", "name": "a", "kind": "Broker", "group": "x.dev", **fields}
    return CallersVPod(vreplicas=vreplicas, **fields)


@asynccontextmanager
async def a_service(world: World, **options) -> AsyncIterator[str]:
    async with world.serving(serve=True, **options) as service:
        await until(service.leading, timeout_s=5)
        yield service.server.url


@asynccontextmanager
async def answering(answer: Callable[[web.Request], web.Response]) -> AsyncIterator[str]:
    """A server that gives the same answer to every call."""

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        return answer(request)

    app = web.Application()
    app.router.add_post("/v1/schedule", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_caller_is_placed_publishes_grows_and_goes():
    world = await a_world(0, 1, 2)
    async with a_service(world) as url, HttpScheduler([url], pool=POOL) as scheduler:
        first = await scheduler.schedule(a_vpod(4))
        assert GetTotalVReplicas(first) == 4
        more = await scheduler.schedule(a_vpod(6, placements=first))
        assert GetTotalVReplicas(more) == 6
        assert await world.ledger(0) == {"tenant/a@broker.x.dev": 3}
        assert await scheduler.schedule(a_vpod(6, placements=more, deleted=True)) == []
        assert await world.ledger(0) == {}


async def test_the_example_of_the_page_prints_what_the_page_says(
    capsys: pytest.CaptureFixture[str],
):
    page = (Path(__file__).parents[2] / "docs" / "python-api.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    printed = re.search(r"it prints\n\n```\n(.*?)```", page, re.DOTALL)
    assert code is not None
    assert printed is not None
    module: dict[str, Any] = {}
    exec(code[1].replace("asyncio.run(", "main = ("), module)
    module["main"].close()
    world = await a_world(0, 1, 2)
    async with a_service(world) as url:
        await module["reconcile"](url)
    assert capsys.readouterr().out == printed[1]


async def test_what_has_a_place_comes_with_the_error_that_says_when_to_ask_again():
    world = await a_world(0, replicas=1, maxPods=1)
    async with a_service(world) as url, HttpScheduler([url], pool=POOL) as scheduler:
        with pytest.raises(InsufficientSlots, match="5 vreplicas are not placed") as caught:
            await scheduler.schedule(a_vpod(25))
        assert caught.value.placements == [Placement("dispatcher-0", 20)]
        assert (caught.value.left, caught.value.retry_after_s) == (5, 5.0)


async def test_of_two_replicas_the_one_that_leads_is_found_and_asked_first_from_then_on():
    world = await a_world(0, 1, 2)
    asked: list[str] = []

    def follower(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(
            status=503, text="this replica does not lead", headers={"Retry-After": "1"}
        )

    async with a_service(world) as url, answering(follower) as other:
        async with HttpScheduler([other, url], pool=POOL) as scheduler:
            await scheduler.schedule(a_vpod(4))
            await scheduler.schedule(a_vpod(5))
        assert len(asked) == 1


async def test_without_a_leader_it_says_what_every_replica_said_and_when_to_ask_again():
    gone = f"http://127.0.0.1:{free_port()}"

    def busy(_request: web.Request) -> web.Response:
        return web.Response(status=503, text="nobody leads yet", headers={"Retry-After": "1"})

    async with answering(busy) as url, HttpScheduler([url, gone], pool=POOL) as scheduler:
        with pytest.raises(
            NotScheduled, match=f"{url}: nobody leads yet; {gone}: Cannot connect"
        ) as caught:
            await scheduler.schedule(a_vpod())
        assert caught.value.retry_after_s == 5.0


async def test_a_refusal_is_not_to_be_repeated():
    world = await World.create()
    async with (
        a_service(world) as url,
        HttpScheduler([url], pool="knative-eventing/nowhere") as scheduler,
    ):
        with pytest.raises(
            RequestRefused, match="AdapterPool knative-eventing/nowhere does not exist"
        ) as caught:
            await scheduler.schedule(a_vpod())
        assert (caught.value.status, caught.value.retry_after_s) == (404, None)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>", id="not JSON"),
        pytest.param(b"[]", id="a list"),
        pytest.param(orjson.dumps({"placements": [{"podName": "p"}], "left": 0}), id="no count"),
    ],
)
async def test_a_reply_that_cannot_be_read_is_no_answer(body):
    async with (
        answering(lambda _: web.Response(body=body)) as url,
        HttpScheduler([url], pool=POOL) as scheduler,
    ):
        with pytest.raises(NotScheduled, match="the reply cannot be read"):
            await scheduler.schedule(a_vpod())


async def test_a_long_reply_is_read_to_its_end():
    placements = [{"podName": f"dispatcher-{ordinal}", "vreplicas": 1} for ordinal in range(20_000)]
    body = orjson.dumps({"placements": placements, "left": 0})
    async with (
        answering(lambda _: web.Response(body=body)) as url,
        HttpScheduler([url], pool=POOL) as scheduler,
    ):
        assert len(await scheduler.schedule(a_vpod(20_000))) == 20_000


async def test_a_reply_without_end_is_no_answer():
    async with (
        answering(lambda _: web.Response(body=b" " * (REPLY_BYTES_MAX + 1))) as url,
        HttpScheduler([url], pool=POOL) as scheduler,
    ):
        with pytest.raises(NotScheduled, match="longer than"):
            await scheduler.schedule(a_vpod())


async def test_a_function_is_a_scheduler():
    async def all_on_one(vpod: VPod) -> list[Placement]:
        return [Placement("dispatcher-0", vpod.vreplicas)]

    scheduler: Scheduler = SchedulerFunc(all_on_one)
    assert GetTotalVReplicas(await scheduler.schedule(a_vpod(3))) == 3


@pytest.mark.parametrize("pool", ["dispatcher", "", "/dispatcher"])
def test_a_pool_without_a_namespace_is_refused(pool):
    with pytest.raises(ValueError, match="namespace/name"):
        HttpScheduler(["http://127.0.0.1:1"], pool=pool)


async def test_of_all_addresses_of_a_name_the_one_that_leads_is_found_and_asked_first_afterwards(
    monkeypatch: pytest.MonkeyPatch,
):
    """A headless Service's name has the addresses of all replicas."""
    asked: list[str] = []
    port = free_port()
    placed = web.json_response({"placements": [], "left": 0}).body

    async def serve(address: str, status: int) -> web.AppRunner:
        async def handle(request: web.Request) -> web.Response:
            asked.append(f"{address} for {request.headers['Host']}")
            return web.Response(status=status, body=placed if status == 200 else b"not I")

        app = web.Application()
        app.router.add_post("/v1/schedule", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, address, port).start()
        return runner

    follower, leader = await serve("127.0.0.1", 503), await serve("127.0.0.2", 200)

    async def resolve(host: str, port: int, **_: object) -> list[Any]:
        assert host == "schedule.svc"
        return [(2, 1, 6, "", (address, port)) for address in ("127.0.0.1", "127.0.0.2")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    try:
        async with HttpScheduler([f"http://schedule.svc:{port}"], pool=POOL) as scheduler:
            for _ in range(2):
                assert await scheduler.schedule(a_vpod()) == []
    finally:
        for runner in (follower, leader):
            await runner.cleanup()
    name = f"for schedule.svc:{port}"
    assert asked == [f"127.0.0.1 {name}", f"127.0.0.2 {name}", f"127.0.0.2 {name}"]


async def test_a_name_that_is_not_known_is_said_and_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
):
    async def resolve(*_: object, **__: object) -> list[Any]:
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    async with HttpScheduler(["http://schedule.svc:1"], pool=POOL) as scheduler:
        with pytest.raises(NotScheduled, match="not known") as caught:
            await scheduler.schedule(a_vpod())
    assert caught.value.retry_after_s == 5.0
