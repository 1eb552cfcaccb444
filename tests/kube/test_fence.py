"""What only the leader may write is not sent by who does not lead any more, however long it has
waited for its turn.
"""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from extender.kube.api import PODS, TooManyRequests
from extender.kube.connection import CONNECTIONS_MAX
from extender.kube.fence import FencedApi, NotLeading, check_fence, fenced_by
from tests.kube.apiserver import ApiServer, answer, client_of, overloaded

OBJ = {"metadata": {"name": "a"}}


async def test_a_write_that_has_waited_for_its_lane_is_not_sent_once_we_do_not_lead_any_more(
    tmp_path: Path,
):
    leading = True
    server = ApiServer([overloaded(retry_after_s=1), answer(OBJ)])
    async with client_of(server, tmp_path) as api:
        fenced = FencedApi(api, leading=lambda: leading)
        with pytest.raises(TooManyRequests):
            await fenced.create(PODS, "ns", OBJ)
        waiting = asyncio.create_task(fenced.create(PODS, "ns", OBJ))
        await asyncio.sleep(0)
        assert api.budget.waiting()["writes"] == 1
        leading = False
        with pytest.raises(NotLeading):
            await waiting
        assert [seen.method for seen in server.seen] == ["POST"]
        leading = True
        assert await fenced.create(PODS, "ns", OBJ) == OBJ


async def test_a_write_that_has_waited_for_a_connection_is_not_sent_either(tmp_path: Path):
    """Found by review: the fence was asked before the wait for one of the connections, which may
    take as long as a lease.
    """
    leading, go_on = True, asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await go_on.wait()
        return await answer(OBJ)(request)

    server = ApiServer([slow])
    async with client_of(server, tmp_path) as api:
        fenced = FencedApi(api, leading=lambda: leading)
        reads = [asyncio.create_task(api.get(PODS, "ns", "a")) for _ in range(CONNECTIONS_MAX)]
        write = asyncio.create_task(fenced.create(PODS, "ns", OBJ))
        while len(server.seen) < CONNECTIONS_MAX:  # noqa: ASYNC110 (a server)
            await asyncio.sleep(0.001)
        assert api.budget.requests["writes"] == 1
        leading = False
        go_on.set()
        with pytest.raises(NotLeading):
            await write
        await asyncio.gather(*reads)
    assert "POST" not in {seen.method for seen in server.seen}


async def test_what_a_fenced_task_begins_is_fenced_as_well_and_what_comes_after_it_is_not():
    def never() -> None:
        raise NotLeading

    asked: list[str] = []
    with fenced_by(lambda: asked.append("leads")):
        await asyncio.create_task(_ask())
    check_fence()
    assert asked == ["leads", "leads"]
    with pytest.raises(NotLeading), fenced_by(never):
        pytest.fail("nothing within is begun")


async def _ask() -> None:
    check_fence()
