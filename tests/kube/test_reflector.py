import asyncio
import itertools
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from extender.kube.api import (
    PODS,
    ApiError,
    Expired,
    Forbidden,
    ListPage,
    NotFound,
    Obj,
    TooManyRequests,
    WatchEvent,
)
from extender.kube.reflector import Reflector, ReflectorSettings
from extender.model.errors import HistoryReplaced, InvalidObject
from tests.kube.fakes import HANG, ListWatchApi, WholeList, bookmark, event, pod

pytestmark = pytest.mark.looptime

EXPIRED = Expired(410, "Expired", "too old resource version")
BROKEN = ApiError(500, "InternalError", "oops")


class Mirror:
    """A sink that keeps names; objects with ``bad`` cannot be read."""

    def __init__(self, *, picky: bool = False) -> None:
        self.names: dict[str, str] = {}
        self.replaced: list[str] = []
        self.applied: list[str] = []
        self.picky = picky

    def listing(self) -> WholeList:
        return WholeList(self.replace)

    def replace(self, objects: list[Obj], resource_version: str) -> None:
        self.names = {
            obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in objects
        }
        self.replaced.append(resource_version)

    def apply(self, event: WatchEvent) -> None:
        if self.picky and event.object.get("bad"):
            raise InvalidObject("Pod", "spec", "is bad")
        name = event.object["metadata"]["name"]
        self.applied.append(f"{event.type} {name}")
        if event.type == "DELETED":
            self.names.pop(name, None)
        else:
            self.names[name] = event.object["metadata"]["resourceVersion"]


Start = Callable[..., Awaitable[tuple[Reflector, Mirror]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    tasks: list[asyncio.Task[None]] = []

    async def go(api: Any, sink: Mirror | None = None, **settings: Any) -> tuple[Reflector, Mirror]:
        sink = sink or Mirror()
        reflector = Reflector(
            api, PODS, sink, rng=random.Random(7), settings=ReflectorSettings(**settings)
        )
        tasks.append(asyncio.create_task(reflector.run()))
        await asyncio.sleep(0.5)
        return reflector, sink

    yield go
    for task in tasks:
        assert not task.done() or task.result() is None
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_first_list_is_a_consistent_read_of_all_pages_and_the_watch_starts_there(
    start: Start,
):
    api = ListWatchApi(pages=[ListPage([pod("a")], "10", "next"), ListPage([pod("b")], "10")])
    reflector, sink = await start(api, page_items=1)
    assert api.list_calls == [(1, "", ""), (1, "next", "")]
    assert sink.names == {"a": "1", "b": "1"}
    assert reflector.is_synced
    assert [version for _, version in api.watch_calls] == ["10"]


async def test_events_reach_the_sink_in_order_and_bookmarks_only_move_the_version(start: Start):
    changes = [
        event("ADDED", pod("b", 11)),
        event("MODIFIED", pod("a", 12)),
        event("DELETED", pod("b", 13)),
    ]
    api = ListWatchApi([ListPage([pod("a")], "10")], [[*changes, bookmark(99), HANG]])
    reflector, sink = await start(api)
    assert sink.applied == ["ADDED b", "MODIFIED a", "DELETED b"]
    assert sink.names == {"a": "12"}
    assert (reflector.last_sync_version, reflector.events, reflector.bookmarks) == ("99", 3, 1)


async def test_a_watch_that_the_server_ends_goes_on_from_the_last_version_without_a_list(
    start: Start,
):
    api = ListWatchApi([ListPage([], "10")], [[event("ADDED", pod("a", 11)), 20], [HANG]])
    reflector, _ = await start(api)
    await asyncio.sleep(21)
    assert [version for _, version in api.watch_calls] == ["10", "11"]
    assert reflector.lists == 1
    assert not reflector.errors


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([EXPIRED], id="before the first event"),
        pytest.param([event("ADDED", pod("old", 11)), EXPIRED], id="after an event"),
    ],
)
async def test_an_expired_version_is_answered_by_a_list_and_never_used_again(
    start: Start, script: list[Any]
):
    api = ListWatchApi(
        [ListPage([], "10"), ListPage([pod("new", 50)], "50")], [[40, *script], [HANG]]
    )
    reflector, sink = await start(api)
    await asyncio.sleep(40)
    assert sink.names == {"new": "50"}
    assert [version for _, version in api.watch_calls] == ["10", "50"]
    assert (reflector.lists, reflector.errors["Expired"]) == (2, 1)


async def test_expiring_again_and_again_backs_off_instead_of_listing_in_a_loop(start: Start):
    api = ListWatchApi([ListPage([], "10")], [[EXPIRED]])
    reflector, _ = await start(api)
    await asyncio.sleep(300)
    assert 8 <= reflector.lists <= 20


async def test_a_silent_watch_is_replaced_by_a_new_one(start: Start):
    api = ListWatchApi([ListPage([], "10")], [[HANG], [event("ADDED", pod("a", 11)), HANG]])
    reflector, sink = await start(api, idle_timeout_s=60.0)
    await asyncio.sleep(65)
    assert sink.names == {"a": "11"}
    assert reflector.errors == {"Idle": 1}
    assert reflector.lists == 1
    assert api.open_watches == 1


async def test_bookmarks_keep_a_quiet_watch_alive(start: Start):
    api = ListWatchApi(
        [ListPage([], "10")], [[50, bookmark(11), 50, bookmark(12), 50, bookmark(13), HANG]]
    )
    reflector, _ = await start(api, idle_timeout_s=60.0)
    await asyncio.sleep(160)
    assert reflector.watches == 1
    assert reflector.last_sync_version == "13"


async def test_a_server_that_stays_silent_on_our_version_is_listed_anew(start: Start):
    api = ListWatchApi(
        [ListPage([], "9000"), ListPage([pod("later", 9003)], "9005")],
        [[HANG], [HANG], [bookmark(9006), HANG]],
    )
    _, sink = await start(api, idle_timeout_s=60.0)
    await asyncio.sleep(130)
    assert sink.names == {"later": "9003"}
    assert [version for _, version in api.watch_calls] == ["9000", "9000", "9005"]


@pytest.mark.parametrize(
    ("pages", "watches"),
    [
        ([ListPage([], "9000"), ListPage([pod("restored", 3)], "5")], [[HANG], [HANG]]),
        ([ListPage([], "9000"), ListPage([], "9005")], [[bookmark(8999)]]),
    ],
    ids=["a list", "a bookmark"],
)
async def test_a_server_that_has_gone_back_ends_the_reflector_and_fills_no_sink(
    pages: list[ListPage], watches: list[list[Any]]
):
    api, sink = ListWatchApi(pages, watches), Mirror()
    settings = ReflectorSettings(idle_timeout_s=60.0)
    with pytest.raises(HistoryReplaced, match="restored from a backup"):
        await Reflector(api, PODS, sink, rng=random.Random(1), settings=settings).run()
    assert sink.replaced == ["9000"]
    assert api.open_watches == 0


async def test_failures_back_off_doubling_with_jitter_up_to_thirty_seconds(start: Start):
    api = ListWatchApi([BROKEN])
    _, _ = await start(api)
    times: list[float] = []
    loop = asyncio.get_running_loop()
    seen = len(api.list_calls)
    while len(times) < 9:
        await asyncio.sleep(0.05)
        if len(api.list_calls) > seen:
            seen = len(api.list_calls)
            times.append(loop.time())
    gaps = [b - a for a, b in itertools.pairwise(times)]
    for gap, low in zip(gaps, [1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30], strict=True):
        assert low - 0.1 <= gap <= 2 * low + 0.1


async def test_a_watch_that_ends_at_once_every_time_does_not_spin(start: Start):
    api = ListWatchApi([ListPage([], "10")], [[]])
    reflector, _ = await start(api)
    await asyncio.sleep(100)
    assert reflector.watches < 15
    assert reflector.errors["ShortWatch"] == reflector.watches


@pytest.mark.parametrize("sent", [event("ADDED", pod("a", 11)), bookmark(11)])
async def test_a_watch_that_brings_something_and_ends_at_once_every_time_does_not_spin(
    start: Start, sent: WatchEvent
):
    lists = [ListPage([], "10"), ListPage([], "11")]
    api = ListWatchApi(lists, [*([sent] for _ in range(1000)), [HANG]])
    reflector, _ = await start(api)
    await asyncio.sleep(100)
    assert reflector.watches <= 102
    assert not reflector.errors
    reflector.request_relist()
    await asyncio.sleep(1)
    assert reflector.lists == 2, "the pause does not hold up a list that is asked for"


async def test_a_retry_after_is_waited_out(start: Start):
    api = ListWatchApi(
        [TooManyRequests(429, "TooManyRequests", "", retry_after_s=25), ListPage([], "10")]
    )
    reflector, _ = await start(api)
    await asyncio.sleep(24)
    assert not reflector.is_synced
    await asyncio.sleep(2)
    assert reflector.is_synced


@pytest.mark.parametrize(
    "error", [NotFound(404, "", "no CRD yet"), Forbidden(403, "Forbidden", "no RBAC yet")]
)
async def test_it_syncs_as_soon_as_the_server_lets_it(start: Start, error: ApiError):
    api = ListWatchApi([error, error, ListPage([pod("a")], "10")])
    reflector, sink = await start(api)
    await asyncio.wait_for(reflector.synced.wait(), 10)
    assert sink.names == {"a": "1"}
    assert reflector.errors[type(error).__name__] == 2


async def test_more_objects_than_allowed_are_refused_before_all_are_read(start: Start):
    api = ListWatchApi([ListPage([pod("a"), pod("b")], "10", "more")])
    reflector, sink = await start(api, objects_max=3)
    assert not reflector.is_synced
    assert sink.replaced == []
    assert reflector.errors == {"TooManyObjects": 1}


async def test_an_event_that_the_sink_cannot_read_is_skipped_and_reported_once_per_version(
    start: Start, caplog: pytest.LogCaptureFixture
):
    bad, worse = pod("x", 11, bad=True), pod("x", 12, bad=True)
    script = [
        event("ADDED", bad),
        event("MODIFIED", bad),
        event("MODIFIED", worse),
        event("ADDED", pod("y", 13)),
        HANG,
    ]
    with caplog.at_level(logging.WARNING):
        reflector, sink = await start(
            ListWatchApi([ListPage([], "10")], [script]), Mirror(picky=True)
        )
    assert sink.names == {"y": "13"}
    assert reflector.last_sync_version == "13"
    assert reflector.invalid_objects == 2
    assert len(caplog.records) == 2


async def test_a_requested_relist_ends_the_watch_and_reads_everything_again(start: Start):
    api = ListWatchApi([ListPage([pod("a")], "10"), ListPage([pod("b")], "20")])
    reflector, sink = await start(api)
    reflector.request_relist()
    reflector.request_relist()
    await asyncio.sleep(1)
    assert sink.names == {"b": "1"}
    assert (reflector.lists, api.open_watches) == (2, 1)
    assert not reflector.errors


async def test_a_requested_relist_ends_a_back_off(start: Start):
    api = ListWatchApi([BROKEN, BROKEN, BROKEN, BROKEN, ListPage([], "10")])
    reflector, _ = await start(api)
    await asyncio.sleep(12)
    assert not reflector.is_synced
    reflector.request_relist()
    await asyncio.sleep(1)
    assert reflector.is_synced


async def test_a_bug_in_the_sink_is_not_swallowed():
    class Broken(Mirror):
        def apply(self, event: WatchEvent) -> None:
            raise ZeroDivisionError

    api = ListWatchApi([ListPage([], "10")], [[event("ADDED", pod("a", 11))]])
    with pytest.raises(ZeroDivisionError):
        await Reflector(api, PODS, Broken(), rng=random.Random(1)).run()
    assert api.open_watches == 0


class Reader(Mirror):
    """A sink that reads lists while they arrive, and notes how much at a stretch."""

    def __init__(self, reading: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.reading = reading
        self.stretches: list[int] = []
        self.begun = 0

    def listing(self) -> "Reading":
        self.begun += 1
        return Reading(self)


class Reading(WholeList):
    def __init__(self, sink: Reader) -> None:
        super().__init__(sink.replace)
        self.sink = sink

    def add(self, objects: list[Obj]) -> None:
        super().add(objects)
        self.sink.reading()
        self.sink.stretches.append(len(objects))


def pods(*numbers: int) -> list[Obj]:
    return [pod(f"p{number}") for number in numbers]


async def test_a_sink_that_reads_lists_piece_by_piece_lets_others_run_in_between(start: Start):
    pages = [ListPage(pods(*range(250)), "10", "next"), ListPage(pods(250), "10")]
    sink = Reader()
    await start(ListWatchApi(pages), sink)
    assert sink.stretches == [100, 100, 50, 1]
    assert len(sink.names) == 251


async def test_the_next_page_is_asked_for_while_one_is_read(start: Start):
    api = ListWatchApi([ListPage(pods(*range(250)), "10", "next"), ListPage(pods(250), "10")])
    asked: list[int] = []
    await start(api, Reader(lambda: asked.append(len(api.list_calls))))
    assert asked == [1, 2, 2, 2]


async def test_a_page_token_that_expires_starts_the_list_again_with_pages(start: Start):
    pages = [
        ListPage(pods(1), "10", "next"),
        EXPIRED,
        ListPage(pods(2), "20", "next"),
        ListPage(pods(3), "20"),
    ]
    api, sink = ListWatchApi(pages), Reader()
    reflector, _ = await start(api, sink, page_items=1)
    await asyncio.wait_for(reflector.synced.wait(), 10)
    assert api.list_calls == [(1, "", ""), (1, "next", "")] * 2
    assert (set(sink.names), sink.begun, sink.replaced) == ({"p2", "p3"}, 2, ["20"])
    assert reflector.errors == {"Expired": 1}


async def test_a_list_that_breaks_off_is_not_ended(start: Start):
    api = ListWatchApi([ListPage(pods(1), "10", "next"), BROKEN, ListPage(pods(2), "20")])
    reflector, sink = await start(api, Reader())
    await asyncio.sleep(60)
    assert sink.replaced == ["20"]
    assert set(sink.names) == {"p2"}
    assert reflector.errors["ApiError"] == 1


async def test_a_relist_that_is_requested_during_a_list_does_not_wait_for_an_event(start: Start):
    api = ListWatchApi([ListPage(pods(*range(250)), "10"), ListPage(pods(1), "20")])
    reflectors: list[Reflector] = []
    sink = Reader(
        lambda: reflectors[0].request_relist() if reflectors and len(sink.stretches) < 2 else None
    )
    reflector = Reflector(api, PODS, sink, rng=random.Random(7))
    reflectors.append(reflector)
    running = asyncio.create_task(reflector.run())
    await asyncio.sleep(3)
    running.cancel()
    assert sink.replaced == ["10", "20"]
    assert [version for _, version in api.watch_calls] == ["20"]
