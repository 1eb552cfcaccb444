import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from extender.kube.api import (
    Api,
    ApiError,
    Forbidden,
    NotFound,
    Obj,
    OutcomeUnknown,
    Resource,
    TooManyRequests,
)
from extender.kube.events import (
    DOUBTFUL_WRITES_MAX,
    NOTE_BYTES_MAX,
    QUICK_S,
    WRITES_MAX,
    EventRecorder,
    ObjectReference,
    clean_note,
)
from extender.model.event_reasons import EVENTS, EventReason
from tests.kube.fakes import StoreApi, wall

POD = ObjectReference("v1", "Pod", "tenant", "dispatcher-0", "uid-0")
NODE = ObjectReference("v1", "Node", "", "node-1", "uid-1")


@pytest.fixture
def api() -> StoreApi:
    return StoreApi()


_RUNNING: set["asyncio.Task[None]"] = set()


def start(
    api: Api, *, now: Callable[[], float] = wall, queue_items_max: int = 1000
) -> EventRecorder:
    """A recorder that runs until the test's loop ends. Not a fixture: those do not live in virtual
    time.
    """
    recorder = EventRecorder(
        api, reporting_instance="replica-1", now=now, queue_items_max=queue_items_max
    )
    task = asyncio.create_task(recorder.run())
    _RUNNING.add(task)
    task.add_done_callback(_RUNNING.discard)
    return recorder


def tell(recorder: EventRecorder, regarding: ObjectReference = POD, **more: Any) -> None:
    fields = {
        "reason": EventReason.FAILED_SCHEDULING,
        "note": "2 are left",
    }
    recorder.event(regarding, **(fields | more))


def stored(api: StoreApi) -> list[Obj]:
    return [obj for (plural, _, _), obj in api.objects.items() if plural == "events"]


@pytest.mark.looptime
async def test_an_event_is_written_as_events_v1_wants_it(api: StoreApi):
    recorder = start(api)
    tell(recorder)
    assert await recorder.drain(1)
    (event,) = stored(api)
    name = event["metadata"].pop("name")
    assert name.startswith("dispatcher-0.")
    assert event.pop("eventTime").endswith("Z")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "tenant", "resourceVersion": "1"},
        "type": "Warning",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "note": "2 are left",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "tenant",
            "name": "dispatcher-0",
            "uid": "uid-0",
        },
        "reportingController": "vreplica-scheduler",
        "reportingInstance": "replica-1",
    }


@pytest.mark.looptime
async def test_events_of_what_has_no_namespace_go_to_default(api: StoreApi):
    recorder = start(api)
    tell(recorder, NODE)
    assert await recorder.drain(1)
    assert [event["metadata"]["namespace"] for event in stored(api)] == ["default"]


@pytest.mark.looptime
async def test_repetitions_become_a_series_written_twice_and_then_once_it_is_over(api: StoreApi):
    recorder = start(api)
    for _ in range(5):
        tell(recorder, ObjectReference("v1", "Pod", "tenant", "p", "u"), note=f"try {_}")
        await asyncio.sleep(60)
    (event,) = stored(api)
    assert event["note"] == "try 0"
    assert event["series"]["count"] == 2
    await asyncio.sleep(500)
    (event,) = stored(api)
    assert event["series"]["count"] == 5
    assert (api.count("create"), api.count("patch")) == (1, 2)
    tell(recorder, ObjectReference("v1", "Pod", "tenant", "p", "u"))
    assert await recorder.drain(1)
    assert len(stored(api)) == 2


@pytest.mark.looptime
async def test_what_has_happened_is_told_each_time_with_its_own_note(api: StoreApi):
    recorder = start(api)
    for note in ("8 on d-0", "8 on d-0", "8 on d-0, 6 on d-1"):
        tell(recorder, reason=EventReason.SCHEDULED, note=note)
    assert await recorder.drain(1)
    told = [(event["note"], event.get("series", {}).get("count", 1)) for event in stored(api)]
    assert told == [("8 on d-0", 2), ("8 on d-0, 6 on d-1", 1)]


@pytest.mark.looptime
async def test_what_goes_on_for_another_cause_is_a_series_of_its_own(api: StoreApi):
    recorder = start(api)
    for cause, note in (("NoRoom", "5 left"), ("NoRoom", "4 left"), ("NoPool", "4 left, no pool")):
        tell(recorder, cause=cause, note=note)
    assert await recorder.drain(1)
    told = [(event["note"], event.get("series", {}).get("count", 1)) for event in stored(api)]
    assert told == [("5 left", 2), ("4 left, no pool", 1)]


@pytest.mark.looptime
async def test_a_long_series_is_written_every_half_hour_so_that_it_lives_on(api: StoreApi):
    recorder = start(api)
    for _ in range(70):
        tell(recorder)
        await asyncio.sleep(60)
    (event,) = stored(api)
    assert api.count("patch") == 3
    assert event["series"]["count"] > 50


@pytest.mark.looptime
async def test_an_event_that_the_server_forgot_is_created_again_with_its_count(api: StoreApi):
    recorder = start(api)
    tell(recorder)
    assert await recorder.drain(1)
    api.objects.clear()
    tell(recorder)
    assert await recorder.drain(1)
    (event,) = stored(api)
    assert event["series"]["count"] == 2


@pytest.mark.looptime
async def test_equal_events_of_one_moment_are_one_write(api: StoreApi):
    recorder = start(api)
    for _ in range(1000):
        tell(recorder)
    assert await recorder.drain(1)
    (event,) = stored(api)
    assert event["series"]["count"] == 1000
    assert len(api.calls) == 1


@pytest.mark.looptime
@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"reason": EventReason.MOVED}, id="reason"),
        pytest.param({"regarding": NODE}, id="regarding"),
    ],
)
async def test_events_that_differ_in_more_than_their_note_stay_apart(
    api: StoreApi, other: dict[str, Any]
):
    recorder = start(api)
    tell(recorder)
    tell(recorder, **other)
    assert await recorder.drain(1)
    assert len(stored(api)) == 2


@pytest.mark.looptime
async def test_a_full_queue_drops_and_counts_and_does_not_block(api: StoreApi):
    recorder = start(api, queue_items_max=3)
    for number in range(10):
        tell(recorder, replace(POD, name=f"dispatcher-{number}"))
    assert recorder.dropped == 7
    assert await recorder.drain(1)
    tell(recorder, replace(POD, name="dispatcher-9"))
    assert await recorder.drain(1)
    assert len(stored(api)) == 4


@pytest.mark.looptime
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            Forbidden(403, "Forbidden", "namespace is being terminated"), id="namespace terminating"
        ),
        pytest.param(NotFound(404, "NotFound", "no namespace"), id="namespace gone"),
        pytest.param(ApiError(400, "BadRequest", "no"), id="refused"),
    ],
)
async def test_a_refused_event_is_counted_and_forgotten_and_the_next_one_written(
    api: StoreApi, error: ApiError
):
    recorder = start(api)
    api.fail["create"].append(error)
    tell(recorder)
    assert await recorder.drain(1)
    assert recorder.failed == {type(error).__name__: 1}
    tell(recorder)
    assert await recorder.drain(1)
    assert ["series" in event for event in stored(api)] == [False]


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("error", "after_s"),
    [
        pytest.param(OutcomeUnknown(0, "Timeout", ""), 10, id="timeout"),
        pytest.param(ApiError(503, "ServiceUnavailable", ""), 10, id="unavailable"),
        pytest.param(
            TooManyRequests(429, "TooManyRequests", "", retry_after_s=30), 30, id="retry after"
        ),
        pytest.param(
            ApiError(429, "TooManyRequests", "not sent, its lane was paused"), 10, id="not sent"
        ),
    ],
)
async def test_failures_that_may_pass_are_waited_out(
    api: StoreApi, error: ApiError, after_s: float
):
    recorder = start(api)
    api.fail["create"].append(error)
    tell(recorder)
    assert not await recorder.drain(after_s - 0.5)
    assert stored(api) == []
    tell(recorder)
    assert await recorder.drain(1)
    assert [event["series"]["count"] for event in stored(api)] == [2]


@pytest.mark.looptime
async def test_a_create_whose_answer_was_lost_is_not_written_twice(api: StoreApi):
    recorder = start(api)
    api.lose["create"] = 1
    tell(recorder)
    assert await recorder.drain(15)
    assert len(stored(api)) == 1
    assert recorder.written == 1
    assert not recorder.failed


@pytest.mark.looptime
async def test_a_server_that_stays_away_costs_the_event_and_not_the_recorder(api: StoreApi):
    recorder = start(api)
    api.down = True
    tell(recorder)
    assert await recorder.drain(200)
    assert recorder.failed == {"OutcomeUnknown": 1}
    assert len(api.calls) == 12


class OneNamespace(StoreApi):
    """Writes into the namespace ``bad`` fail: refused with 500, or not answered for ``hang_s``."""

    hang_s = 0.0

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        if namespace.startswith("bad"):
            await asyncio.sleep(self.hang_s)
            raise ApiError(500, "InternalError", "admission webhook")
        return await super().create(resource, namespace, obj)


class OneEvent(StoreApi):
    """A webhook stumbles over events about the first dispatcher."""

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        if obj["regarding"]["name"] == "dispatcher-0":
            raise ApiError(500, "InternalError", "admission webhook")
        return await super().create(resource, namespace, obj)


def of_namespace(namespace: str, number: int = 0) -> ObjectReference:
    return replace(POD, namespace=namespace, name=f"dispatcher-{number}")


async def written_after(api: StoreApi, recorder: EventRecorder, seconds: float) -> int:
    """How many of 50 events of good namespaces are there so long after they were told."""
    for number in range(50):
        tell(recorder, of_namespace(f"good-{number % 5}", number))
    await asyncio.sleep(seconds)
    return len(stored(api))


@pytest.mark.looptime
@pytest.mark.parametrize("events", [1, 300])
async def test_a_namespace_whose_events_are_refused_with_500_delays_no_others(events: int):
    api = OneNamespace()
    recorder = start(api)
    for number in range(events):
        tell(recorder, of_namespace("bad", number))
    await asyncio.sleep(0.1)
    assert await written_after(api, recorder, 1.0) == 50


@pytest.mark.looptime
async def test_a_namespace_whose_events_are_not_answered_delays_no_others():
    api = OneNamespace()
    api.hang_s = 10.0
    recorder = start(api)
    for number in range(20):
        tell(recorder, of_namespace("bad", number))
    await asyncio.sleep(0.1)
    assert await written_after(api, recorder, 1.0) == 50


@pytest.mark.looptime
@pytest.mark.parametrize(("namespaces", "events"), [(1, 1500), (4, 375), (20, 75), (200, 10)])
async def test_however_many_events_hang_in_however_many_namespaces_others_are_written(
    namespaces: int, events: int
):
    api = OneNamespace()
    api.hang_s = 10.0
    recorder = start(api)
    for number in range(events):
        for bad in range(namespaces):
            tell(recorder, of_namespace(f"bad-{bad}", number))
    await asyncio.sleep(0.1)
    for number in range(20):
        tell(recorder, of_namespace(f"good-{number}", number))
    # Each bad namespace holds one of the writers for so long before it is known for what it is.
    await asyncio.sleep(1.0 + QUICK_S * (1 + namespaces // (WRITES_MAX - DOUBTFUL_WRITES_MAX)))
    assert len(stored(api)) == 20


@pytest.mark.looptime
async def test_namespaces_that_are_known_to_hang_delay_no_others_at_all():
    api = OneNamespace()
    api.hang_s = 10.0
    recorder = start(api)
    for number in range(75):
        for bad in range(20):
            tell(recorder, of_namespace(f"bad-{bad}", number))
    await asyncio.sleep(30)
    for _ in range(40):
        assert await written_after(api, recorder, 0.5) == 50
        api.objects.clear()
        recorder._entries.clear()


@pytest.mark.looptime
async def test_a_namespace_that_failed_once_does_not_wait_behind_those_that_hang():
    api = OneNamespace()
    api.hang_s = 10.0
    recorder = start(api)
    for bad in range(40):
        tell(recorder, of_namespace(f"bad-{bad}"))
    await asyncio.sleep(60)
    api.fail["create"].append(ApiError(500, "InternalError", "once"))
    tell(recorder, of_namespace("good"))
    await asyncio.sleep(22)
    assert len(stored(api)) == 1


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("failures", "within_s"),
    [pytest.param(0, 1, id="at once"), pytest.param(1, 15, id="its first write fails")],
)
async def test_a_burst_in_one_namespace_is_written_whole(
    api: StoreApi, failures: int, within_s: float
):
    recorder = start(api)
    api.fail["create"] += [ApiError(500, "InternalError", "once")] * failures
    for number in range(900):
        tell(recorder, of_namespace("tenant", number))
    assert await recorder.drain(within_s)
    assert (len(stored(api)), recorder.dropped) == (900, 0)


@pytest.mark.looptime
async def test_a_namespace_that_answers_late_gets_all_its_events(api: StoreApi):
    recorder = start(api)
    api.delay_s = 2 * QUICK_S
    for number in range(30):
        tell(recorder, of_namespace("tenant", number))
    assert await recorder.drain(25 + 30 * api.delay_s)
    assert (len(stored(api)), recorder.dropped, recorder.failed) == (30, 0, {})
    assert len(api.calls) == 32


@pytest.mark.looptime
async def test_an_event_that_made_room_is_counted_and_forgotten():
    api = OneNamespace()
    api.hang_s = 10.0
    recorder = start(api, queue_items_max=4)
    for number in range(4):
        tell(recorder, of_namespace("bad", number))
    tell(recorder, of_namespace("good"))
    assert recorder.dropped == 1
    # The next one like it is the first of its series.
    assert of_namespace("bad", 3) not in {key.regarding for key in recorder._entries}
    await asyncio.sleep(1)
    assert len(stored(api)) == 1


@pytest.mark.looptime
async def test_the_last_count_of_a_series_that_made_room_is_written_later(api: StoreApi):
    recorder = start(api, queue_items_max=10)
    for number in range(10):
        for _ in range(2):
            tell(recorder, of_namespace("tenant", number))
    assert await recorder.drain(1)
    for number in range(10):
        tell(recorder, of_namespace("tenant", number))
    recorder._now = lambda: wall() + 1000
    recorder._finish()
    tell(recorder, of_namespace("other"))
    assert recorder.dropped == 0
    assert await recorder.drain(1)
    recorder._finish()
    assert await recorder.drain(1)
    counts = {
        event["regarding"]["name"]: event["series"]["count"]
        for event in stored(api)
        if event["metadata"]["namespace"] == "tenant"
    }
    assert set(counts.values()) == {3}


@pytest.mark.looptime
async def test_namespaces_whose_events_are_refused_leave_half_the_queue_to_the_others():
    api = OneNamespace()
    recorder = start(api, queue_items_max=100)
    for round_ in range(20):
        for number in range(40):
            tell(recorder, of_namespace(f"bad-{round_}", number))
        await asyncio.sleep(0.1)
    assert await written_after(api, recorder, 1.0) == 50


@pytest.mark.looptime
async def test_an_event_that_is_refused_with_500_alone_delays_none_of_its_namespace_for_long():
    api = OneEvent()
    recorder = start(api)
    for number in range(20):
        tell(recorder, of_namespace("tenant", number))
    await asyncio.sleep(15)
    assert len(stored(api)) == 19
    assert await recorder.drain(300)
    assert recorder.failed == {"ApiError": 1}


@pytest.mark.looptime
async def test_events_of_a_namespace_that_comes_back_are_written_at_once_and_in_their_series(
    api: StoreApi,
):
    recorder = start(api)
    api.down = True
    for number in range(50):
        tell(recorder, of_namespace("tenant", number))
    await asyncio.sleep(25)
    for number in range(50):
        tell(recorder, of_namespace("tenant", number))
    api.down = False
    assert await recorder.drain(11)
    assert [event["series"]["count"] for event in stored(api)] == [2] * 50


@pytest.mark.looptime
async def test_what_a_recorder_keeps_of_namespaces_ends_with_their_last_event(api: StoreApi):
    recorder = start(api)
    for number in range(500):
        tell(recorder, of_namespace(f"tenant-{number}"))
    assert await recorder.drain(1)
    assert not recorder._queues
    api.down = True
    for number in range(500):
        tell(recorder, of_namespace(f"other-{number}"))
    assert await recorder.drain(300)
    assert not recorder._queues


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("name", "stem"),
    [
        pytest.param("System:Node.X", "system-node.x", id="colon and capitals"),
        pytest.param("-a-.-.b_", "a.b", id="labels that end badly"),
        pytest.param("ÄÖ", "event", id="nothing left"),
        pytest.param("a" * 253, "a" * 236, id="too long"),
    ],
)
async def test_event_names_are_dns_safe_and_within_253_characters(
    api: StoreApi, name: str, stem: str
):
    recorder = start(api)
    tell(recorder, ObjectReference("v1", "Pod", "tenant", name, "u"))
    assert await recorder.drain(1)
    (event,) = stored(api)
    found, _, suffix = event["metadata"]["name"].rpartition(".")
    assert found == stem
    assert int(suffix, 16) > 0
    assert len(event["metadata"]["name"]) <= 253


@pytest.mark.looptime
async def test_two_events_in_the_same_nanosecond_have_two_names(api: StoreApi):
    recorder = start(api, now=lambda: 1.7e9)
    tell(recorder)
    tell(recorder, reason=EventReason.MOVED)
    assert await recorder.drain(1)
    assert len(stored(api)) == 2


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        pytest.param("a\nb\r\nc\td", "a b  c d", id="line breaks"),
        pytest.param("\x1b[31mred", "\ufffd[31mred", id="terminal escape"),
        pytest.param("a\u202eb\u2066c", "a\ufffdb\ufffdc", id="text direction"),
        pytest.param("a\u2028b", "a\ufffdb", id="line separator"),
        pytest.param("\ud800x", "\ufffdx", id="lone surrogate"),
        pytest.param("é" * 1000, "é" * 512, id="cut at a character"),
        pytest.param(
            "a" + "é" * 1000, "a" + "é" * 511, id="cut before a character that does not fit"
        ),
        pytest.param("", "", id="empty"),
    ],
)
def test_notes_are_one_clean_line_of_at_most_1024_bytes(text: str, cleaned: str):
    assert clean_note(text) == cleaned


@given(st.text(max_size=1500))
def test_any_text_becomes_a_note_that_the_api_takes(text: str):
    note = clean_note(text)
    assert len(note.encode()) <= NOTE_BYTES_MAX
    assert "\n" not in note
    assert clean_note(note) == note


def test_the_fake_is_an_api(api: StoreApi):
    as_api: Api = api
    assert as_api is api


@pytest.mark.looptime
@pytest.mark.parametrize("reason", ["Whatever", "scheduled", "", "Scheduled\n"])
async def test_no_event_has_a_reason_that_is_not_in_the_closed_set(api: StoreApi, reason: str):
    recorder = start(api)
    with pytest.raises(ValueError, match="EventReason"):
        tell(recorder, reason=reason)
    assert await recorder.drain(1)
    assert stored(api) == []


@pytest.mark.parametrize("reason", list(EventReason))
def test_every_reason_is_a_word_that_is_explained(reason: EventReason):
    assert re.fullmatch(r"[A-Z][A-Za-z]{2,127}", reason)
    kind = EVENTS[reason]
    assert re.fullmatch(r"[A-Z][a-z]+ing(Out)?", kind.action), "a verb: Scheduling, RollingOut"
    assert kind.regarding
    assert kind.meaning
    assert kind.remedy or kind.type == "Normal"
