"""Lanes to the API server: what waits for what, and for whom a Retry-After holds. Over real sockets
to a server of ours.
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from extender.kube.api import (
    ADAPTERPOOLS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    STATEFULSETS,
    TOKEN_REVIEWS,
    VPODS,
    ApiError,
    PatchType,
    Resource,
    TooManyRequests,
)
from extender.kube.budget import Budget, Lane, lane_of
from extender.kube.connection import CONNECTIONS_MAX
from tests.kube.apiserver import ApiServer, answer, client_of, overloaded, status

OBJ: dict[str, Any] = {"metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("resource", "writes", "lane"),
    [
        pytest.param(PODS, False, Lane.READS, id="a list of pods"),
        pytest.param(PODS, True, Lane.WRITES, id="a ledger"),
        pytest.param(VPODS, True, Lane.WRITES, id="a status"),
        pytest.param(EVENTS, True, Lane.EVENTS, id="an event"),
        pytest.param(EVENTS, False, Lane.READS, id="reading events"),
        pytest.param(TOKEN_REVIEWS, True, Lane.REVIEWS, id="a caller's token"),
        pytest.param(
            Resource("x.dev", "v1", "things", "Thing"), False, Lane.FOREIGN, id="a foreign kind"
        ),
        pytest.param(
            Resource("x.dev", "v1", "things", "Thing"), True, Lane.FOREIGN, id="its status"
        ),
        pytest.param(ADAPTERPOOLS, False, Lane.READS, id="pools"),
        pytest.param(STATEFULSETS, True, Lane.WRITES, id="replicas"),
        pytest.param(LEASES, True, Lane.LEASES, id="renewing the lease"),
        pytest.param(LEASES, False, Lane.LEASES, id="reading the lease"),
    ],
)
def test_every_request_has_its_lane(resource, writes, lane):
    assert lane_of(resource, writes=writes) is lane


@pytest.mark.looptime
@pytest.mark.parametrize("code", [429, 503])
async def test_a_retry_after_closes_its_lane_and_no_other(code: int):
    budget = Budget(qps=10, burst=10)
    budget.answered(Lane.WRITES, code, 7.0)
    began = asyncio.get_running_loop().time()
    for lane in set(Lane) - {Lane.WRITES}:
        await budget.admit(lane)
    assert asyncio.get_running_loop().time() == began
    await budget.admit(Lane.WRITES)
    assert asyncio.get_running_loop().time() - began == pytest.approx(7.0)
    assert +Counter(budget.waited_s()) == {"writes": pytest.approx(7.0)}
    assert +budget.pauses == {"writes": 1}
    assert budget.requests == dict.fromkeys(map(str, Lane), 1)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("code", "retry_after_s"),
    [
        pytest.param(500, 7.0, id="an answer that is no overload"),
        pytest.param(409, 7.0, id="a conflict"),
        pytest.param(429, None, id="overload that does not say for how long"),
    ],
)
async def test_other_answers_close_nothing(code: int, retry_after_s: float | None):
    budget = Budget(qps=10, burst=10)
    budget.answered(Lane.WRITES, code, retry_after_s)
    began = asyncio.get_running_loop().time()
    await budget.admit(Lane.WRITES)
    assert asyncio.get_running_loop().time() == began


@pytest.mark.looptime
async def test_leases_never_wait_even_while_every_other_lane_is_closed_and_spent():
    budget = Budget(qps=1, burst=1)
    for lane in Lane:
        budget.answered(lane, 429, 50.0)
    waiting = [asyncio.create_task(budget.admit(lane)) for lane in Lane for _ in range(10)]
    await asyncio.sleep(0)
    assert set(budget.waiting().values()) == {10.0}
    began = asyncio.get_running_loop().time()
    for _ in range(100):
        await budget.admit(Lane.LEASES)
    assert asyncio.get_running_loop().time() == began
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def test_an_api_server_that_refuses_to_review_tokens_holds_up_no_write(tmp_path: Path):
    """Failed before reviews had a lane: a stranger's tokens could stop all binds for a minute."""
    server = ApiServer([overloaded(), answer(OBJ)])
    async with client_of(server, tmp_path) as api:
        with pytest.raises(TooManyRequests):
            await api.create(TOKEN_REVIEWS, "", OBJ)
        async with asyncio.timeout(2):
            await api.create(PODS, "ns", OBJ)


async def test_while_every_connection_waits_for_a_slow_answer_the_lease_is_renewed(tmp_path: Path):
    """Failed before leases had connections of their own: the renewal waited in aiohttp's pool."""
    go_on = asyncio.Event()

    async def slow_but_for_leases(request: web.Request) -> web.StreamResponse:
        if "leases" not in request.path:
            await go_on.wait()
        return await answer(OBJ)(request)

    async with client_of(ApiServer([slow_but_for_leases]), tmp_path) as api:
        slow = [
            asyncio.create_task(
                api.patch(PODS, "ns", f"a-{index}", OBJ, patch_type=PatchType.MERGE)
            )
            for index in range(CONNECTIONS_MAX)
        ]
        while api.budget.requests["writes"] < CONNECTIONS_MAX:  # noqa: ASYNC110 - the next line is the point
            await asyncio.sleep(0)
        async with asyncio.timeout(2):
            await api.update(LEASES, "ns", "a", OBJ)
        assert not any(task.done() for task in slow)
        go_on.set()
        await asyncio.gather(*slow)


async def test_while_its_lane_is_closed_nothing_is_sent_again_and_again(tmp_path: Path):
    server = ApiServer([overloaded(), answer(OBJ)])
    async with client_of(server, tmp_path) as api:
        with pytest.raises(TooManyRequests):
            await api.create(PODS, "ns", OBJ)
        storm = [asyncio.create_task(api.create(PODS, "ns", OBJ)) for _ in range(30)]
        await api.list_page(NODES)
        assert [seen.method for seen in server.seen] == ["POST", "GET"]
        assert api.budget.waiting()["writes"] == 30
        for task in storm:
            task.cancel()
        await asyncio.wait(storm)


async def test_a_refusal_about_one_object_holds_up_no_other(tmp_path: Path):
    """Found by review: a disruption budget that refused an eviction stopped all bindings for 10 s,
    and one namespace's admission webhook all events for a minute.
    """
    server = ApiServer([status(429, "TooManyRequests", Retry_After="60"), answer(OBJ)])
    async with client_of(server, tmp_path) as api:
        with pytest.raises(TooManyRequests) as caught:
            await api.evict("ns", "a")
        assert caught.value.retry_after_s == 60
        async with asyncio.timeout(2):
            await api.create(PODS, "ns", OBJ)
    assert +api.budget.pauses == Counter()


async def test_an_api_server_of_a_foreign_kind_that_is_overloaded_holds_up_no_list(tmp_path: Path):
    """Found by review: one pool's foreign kind stopped all lists and watches of the replica."""
    foreign = Resource("things.example.dev", "v1", "things", "Thing")
    server = ApiServer([overloaded(503), answer({"items": [], "metadata": {}})])
    async with client_of(server, tmp_path) as api:
        with pytest.raises(ApiError):
            await api.list_page(foreign)
        async with asyncio.timeout(2):
            await api.list_page(NODES)
    assert +api.budget.pauses == {"foreign": 1}


async def test_a_503_without_retry_after_is_only_an_error(tmp_path: Path):
    async with client_of(
        ApiServer([status(503, "ServiceUnavailable"), answer(OBJ)]), tmp_path
    ) as api:
        with pytest.raises(ApiError):
            await api.create(PODS, "ns", OBJ)
        async with asyncio.timeout(2):
            await api.create(PODS, "ns", OBJ)
