"""An adapter beside a fake service on a local port: what arrives, what is said, and its faults."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from functools import partial
from unittest.mock import AsyncMock

import pytest

from vreplica_adapter import Adapter, Limits, Share, State
from vreplica_adapter.testing import QUICK, FakePod, FakeScheduler
from vreplica_adapter.testing.pod import Answer

ORDERS, CLICKS = "team-a/orders", "team-b/clicks"


class Calls:
    """Callbacks that note what they are called for. Each can be held, or made to fail."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []
        self.shares: dict[str, Share] = {}
        self.fails: set[str] = set()
        self.holds: dict[str, asyncio.Event] = {}
        self._called = asyncio.Event()

    async def _call(self, name: str, share: Share) -> None:
        self.made.append((name, share.key))
        self.shares[share.key] = share
        self._called.set()
        if (held := self.holds.get(f"{name} {share.key}")) is not None:
            await held.wait()
        if share.key in self.fails:
            raise RuntimeError("no database")

    async def prepare(self, share: Share) -> None:
        await self._call("prepare", share)

    async def serve(self, share: Share) -> None:
        await self._call("serve", share)

    async def drain(self, share: Share) -> None:
        await self._call("drain", share)

    async def stop(self, share: Share) -> None:
        await self._call("stop", share)

    def hold(self, name: str, key: str) -> asyncio.Event:
        self.holds[f"{name} {key}"] = asyncio.Event()
        return self.holds[f"{name} {key}"]

    async def until(self, name: str, key: str = ORDERS, times: int = 1) -> None:
        async with asyncio.timeout(5):
            while self.made.count((name, key)) < times:
                self._called.clear()
                await self._called.wait()

    def of(self, key: str) -> list[str]:
        return [name for name, called_for in self.made if called_for == key]

    @property
    def arguments(self) -> dict[str, object]:
        return {
            "on_prepare": self.prepare,
            "on_serve": self.serve,
            "on_drain": self.drain,
            "on_stop": self.stop,
        }


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
async def scheduler():
    async with FakeScheduler() as scheduler:
        yield scheduler


@pytest.fixture
def pod(scheduler: FakeScheduler) -> FakePod:
    return scheduler.pod("worker-0")


async def until(happens, what: str) -> None:
    try:
        async with asyncio.timeout(5):
            while not happens():
                await asyncio.sleep(0.001)
    except TimeoutError:
        pytest.fail(f"not within 5 s: {what}")


async def test_a_share_goes_through_its_life(pod, calls):
    async with pod.adapter(**calls.arguments) as adapter:
        pod.prepare(ORDERS, vreplicas=3, of=8, indexes=(0, 1, 5), epoch=7)
        await pod.ready(ORDERS)
        pod.assign(ORDERS, vreplicas=3)
        await pod.serving(ORDERS)
        share = adapter.shares[ORDERS]
        assert (share.namespace, share.name, share.state) == ("team-a", "orders", State.SERVE)
        assert (share.vreplicas, share.of, share.indexes, share.epoch) == (3, 8, (0, 1, 5), 7)
        assert share.still_mine(7)
        assert not share.still_mine(6)
        pod.drain(ORDERS, within_s=30, peer="worker-1", intent="Rebalance")
        await pod.drained(ORDERS)
        assert (share.state, share.peer, share.intent) == (State.DRAIN, "worker-1", "Rebalance")
        assert 20 < share.left_s <= 30
        assert not share.still_mine(7)
        pod.revoke(ORDERS)
        await calls.until("stop")
        assert calls.of(ORDERS) == ["prepare", "serve", "drain", "stop"]
        await pod.until(lambda said: not said.drained)
        assert dict(adapter.shares) == {}


async def test_only_on_serve_is_needed(pod, calls):
    async with pod.adapter(on_serve=calls.serve):
        pod.assign(ORDERS)
        await pod.serving(ORDERS)
        pod.drain(ORDERS)
        await pod.drained(ORDERS)
    assert calls.of(ORDERS) == ["serve"]


async def test_a_callback_that_fails_is_told_tried_again_and_costs_no_other_share(pod, calls):
    calls.fails.add(ORDERS)
    async with pod.adapter(**calls.arguments) as adapter:
        pod.assign(ORDERS)
        pod.assign(CLICKS)
        await pod.serving(CLICKS)
        await calls.until("prepare", times=3)
        said = await pod.until(lambda said: ORDERS in said.busy)
        assert ORDERS not in said.serving
        assert any("no database" in one.text and one.key == ORDERS for one in adapter.problems)
        calls.fails.clear()
        await pod.serving(ORDERS)


async def test_a_callback_that_hangs_is_told_and_costs_no_other_share(pod, calls):
    calls.hold("prepare", ORDERS)
    quick = Limits(prepare_s=0.05, retry_s=0.01)
    async with pod.adapter(**calls.arguments, limits=quick) as adapter:
        pod.assign(ORDERS)
        pod.assign(CLICKS)
        await pod.serving(CLICKS)
        await until(lambda: adapter.problems, "the problem is told")
        assert "took longer than 0.05 s" in adapter.problems[0].text
        await calls.until("prepare", times=2)


async def test_the_end_waits_no_longer_than_the_grace_period_for_one_that_ignores_it(pod):
    goes_on, called = asyncio.Event(), asyncio.Event()

    async def deaf(share: Share) -> None:
        called.set()
        while not goes_on.is_set():
            try:
                await goes_on.wait()
            except asyncio.CancelledError:
                continue

    adapter = pod.adapter(on_serve=deaf, grace_s=0.2, limits=Limits(stop_s=0.1, cancel_s=0.05))
    async with adapter:
        pod.assign(ORDERS)
        async with asyncio.timeout(5):
            await called.wait()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 2
    assert any("grace period is over" in one.text for one in adapter.problems)
    assert any("goes on" in one.text for one in adapter.problems)
    goes_on.set()
    await asyncio.sleep(0)


async def test_load_goes_out_with_an_acknowledgement_for_own_shares_only(pod, calls):
    async with pod.adapter(**calls.arguments) as adapter:
        pod.assign(ORDERS)
        await pod.serving(ORDERS)
        adapter.report_load({ORDERS: 0.5, CLICKS: 1.0})
        await until(lambda: pod.load, "the load is heard")
        assert pod.load == {ORDERS: 0.5}
        adapter.report_load({ORDERS: 0.75})
        await until(lambda: pod.load[ORDERS] == 0.75, "the new load is heard")


async def test_load_that_a_replica_ignores_goes_to_another_one_the_next_time(pod, calls):
    """Only the leader keeps it."""
    hear = pod.hear

    def ignoring(document: bytes) -> Answer:
        answer: Answer = hear(document)
        if not json.loads(document)["load"]:
            return answer
        return answer._replace(body={**answer.body, "load": "ignored: replica-1 leads"})

    pod.hear = ignoring
    async with FakeScheduler() as other:
        leader = other.pod("worker-0")
        leader.assignment = replace(leader.assignment, uid=pod.assignment.uid)
        adapter = pod.adapter(urls=[pod.url, leader.url], **calls.arguments)
        for one in (pod, leader):
            one.assign(ORDERS)
        async with adapter:
            await pod.serving(ORDERS)
            for _ in range(2):
                adapter.report_load({ORDERS: 0.5})
                await asyncio.sleep(0.1)
            await until(lambda: leader.load, "the leader hears it")


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 1e300, True, "x", None])
async def test_a_load_that_is_no_load_is_refused_with_the_rest(pod, calls, value):
    adapter = pod.adapter(**calls.arguments)
    with pytest.raises(ValueError, match=f"load of {ORDERS} must be a number from 0 to"):
        adapter.report_load({CLICKS: 1.0, ORDERS: value})
    async with adapter:
        pod.assign(CLICKS)
        await pod.serving(CLICKS)
        adapter.report_load({CLICKS: 2.0})
        await until(lambda: pod.load, "the load is heard")
    assert pod.load == {CLICKS: 2.0}


@pytest.mark.parametrize("key", [1, "", "orders", None])
async def test_a_load_of_what_is_no_share_is_refused(pod, calls, key):
    adapter = pod.adapter(**calls.arguments)
    with pytest.raises(ValueError, match=f"{key!r} is no share's key"):
        adapter.report_load({key: 1.0})


class Hooks:
    """A callback as an object, and as a method behind a wrapper."""

    async def __call__(self, share: Share) -> None:
        """As a function would."""

    async def told(self, level: int, share: Share) -> None:
        """It has an argument more."""


@pytest.mark.parametrize("name", ["on_prepare", "on_serve", "on_drain", "on_stop"])
async def test_a_callback_that_is_not_async_is_refused_by_its_name(pod, calls, name):
    def forgotten(share: Share) -> None:
        """It has no async."""

    for wrong in (forgotten, lambda share: None, partial(forgotten), Hooks, 3):
        with pytest.raises(TypeError, match=f"{name} must be an async function"):
            pod.adapter(**calls.arguments | {name: wrong})


async def test_an_object_or_a_partial_may_be_a_callback(pod):
    hooks = Hooks()
    told = partial(hooks.told, 3)
    async with pod.adapter(on_serve=hooks, on_drain=told, on_stop=AsyncMock()):
        pod.assign(ORDERS)
        await pod.serving(ORDERS)


async def test_leaving_the_block_drains_and_stops_and_says_so(pod, calls):
    async with pod.adapter(**calls.arguments):
        pod.assign(ORDERS)
        await pod.serving(ORDERS)
    assert calls.of(ORDERS) == ["prepare", "serve", "drain", "stop"]
    assert pod.acknowledgements[-1].drained == (ORDERS,)


async def test_sigterm_drains_and_ends_the_wait(pod, calls):
    held = calls.hold("drain", ORDERS)
    async with pod.adapter(**calls.arguments, handle_sigterm=True) as adapter:
        pod.assign(ORDERS)
        await pod.serving(ORDERS)
        os.kill(os.getpid(), signal.SIGTERM)
        await calls.until("drain")
        share = calls.shares[ORDERS]
        assert share.state is State.DRAIN, "no new work"
        assert share.still_mine(0), "what is under way is finished"
        assert 0 < share.left_s < 2
        held.set()
        async with asyncio.timeout(5):
            await adapter.stopped()
        assert pod.acknowledgements[-1].drained == (ORDERS,)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_one_that_is_not_drained_within_the_grace_period_is_stopped(pod, calls):
    calls.hold("drain", ORDERS)
    async with pod.adapter(**calls.arguments, grace_s=0.4):
        pod.assign(ORDERS)
        await pod.serving(ORDERS)
    assert calls.of(ORDERS) == ["prepare", "serve", "drain", "stop"]


async def test_the_end_waits_for_what_follows_a_drain_that_was_cancelled(pod):
    """on_drain may clean up for a while when it is cancelled, and on_stop comes after it."""
    happened: list[str] = []

    async def serve(_share: Share) -> None:
        happened.append("serves")

    async def drain(_share: Share) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.3)
            happened.append("drain ends")

    async def stop(_share: Share) -> None:
        await asyncio.sleep(0.01)
        happened.append("stopped")

    limits = Limits(cancel_s=5)
    async with pod.adapter(
        on_serve=serve, on_drain=drain, on_stop=stop, grace_s=0.4, limits=limits
    ):
        pod.assign(ORDERS)
        await pod.serving(ORDERS)
    assert happened == ["serves", "drain ends", "stopped"]


class TestFaults:
    """The service fails in each way that a test can have."""

    @pytest.fixture
    async def adapter(self, pod, calls):
        async with pod.adapter(**calls.arguments) as adapter:
            pod.assign(ORDERS)
            await pod.serving(ORDERS)
            yield adapter

    async def test_a_stream_that_is_cut_is_opened_again(self, scheduler, pod, adapter):
        for vreplicas in range(2, 6):
            scheduler.cut()
            pod.assign(ORDERS, vreplicas=vreplicas)
            await pod.serving(ORDERS)

    @pytest.mark.parametrize("status", [503, 500, 404, 401, 302])
    async def test_work_goes_on_while_the_service_refuses(self, scheduler, pod, adapter, status):
        with scheduler.failing(status):
            pod.assign(CLICKS)
            await until(
                lambda: any(f" {status} " in one.text for one in adapter.problems), "it is told"
            )
            assert adapter.shares[ORDERS].still_mine(0)
        await pod.serving(CLICKS)

    async def test_work_goes_on_while_the_service_is_down(self, scheduler, pod, adapter):
        async with scheduler.down():
            pod.assign(CLICKS)
            await until(lambda: adapter.problems, "it is told")
            assert adapter.shares[ORDERS].still_mine(0)
        await pod.serving(CLICKS)

    async def test_a_stream_that_is_behind_is_left_once_the_service_says_so(
        self, scheduler, pod, adapter
    ):
        """The news was lost, and what the adapter acknowledges is out of date."""
        with pod.losing_news():
            pod.assign(CLICKS)
        adapter.report_load({ORDERS: 2.0})
        await pod.serving(CLICKS)
        assert pod.load == {ORDERS: 2.0}
        assert [one.text for one in adapter.problems] == []

    async def test_a_silent_service_is_left_after_its_limit(self, scheduler, pod, calls):
        timing = replace(QUICK, idle_s=0.1, request_s=0.1)
        async with pod.adapter(**calls.arguments, timing=timing) as adapter:
            pod.assign(ORDERS)
            await pod.serving(ORDERS)
            with scheduler.silent():
                await until(
                    lambda: any("silent for" in one.text for one in adapter.problems), "told"
                )
                pod.assign(CLICKS)
            await pod.serving(CLICKS)

    async def test_an_old_generation_changes_nothing(self, pod, calls, adapter):
        old = pod.document()
        pod.assign(CLICKS)
        await pod.serving(CLICKS)
        pod.send(old)
        pod.assign(CLICKS, vreplicas=2)
        await pod.serving(CLICKS)
        assert "stop" not in calls.of(CLICKS)

    @pytest.mark.parametrize(
        "line", [b"no json", b'{"generation": "x"}', b"[]", b"{" * 5000], ids=range(4)
    )
    async def test_a_line_that_cannot_be_read_is_told_and_the_next_is_taken(
        self, pod, adapter, line
    ):
        pod.send(line)
        await until(lambda: adapter.problems, "it is told")
        pod.assign(CLICKS)
        await pod.serving(CLICKS)
        assert adapter.shares[ORDERS].still_mine(0)

    async def test_a_line_without_end_is_cut_off(self, pod, adapter):
        pod.send(b"x" * 3_000_000)
        await until(lambda: any("longer than" in one.text for one in adapter.problems), "told")
        pod.assign(CLICKS)
        await pod.serving(CLICKS)

    @pytest.mark.parametrize("path", ["lines", "post"])
    async def test_whatever_breaks_on_the_way_costs_no_share(
        self, pod, calls, adapter, monkeypatch, path
    ):
        def breaks(*_: object) -> None:
            raise ZeroDivisionError("this is a test")

        with monkeypatch.context() as broken:
            broken.setattr(adapter._service, path, breaks)
            pod.send(b"no json")
            pod.assign(ORDERS, vreplicas=2)
            await until(
                lambda: any("ZeroDivisionError" in one.text for one in adapter.problems), "told"
            )
            assert adapter.shares[ORDERS].still_mine(0)
        await pod.serving(ORDERS)

    async def test_problems_are_kept_in_a_bounded_number(self, scheduler, pod, adapter):
        for number in range(200):
            adapter._report(f"problem {number}")
        assert len(adapter.problems) == 100
        assert adapter.problems[-1].text == "problem 199"


class TestFile:
    """What the downward API writes, while no replica answers."""

    async def test_it_counts_while_the_service_is_down(self, scheduler, pod, calls):
        pod.assign(ORDERS)
        pod.write_file()
        async with scheduler.down(), pod.adapter(**calls.arguments, grace_s=0.2):
            await calls.until("serve")
            pod.assign(CLICKS)
            pod.write_file()
            await calls.until("serve", CLICKS)

    async def test_one_that_is_older_than_what_was_heard_changes_nothing(
        self, scheduler, pod, calls
    ):
        pod.assign(ORDERS)
        pod.write_file()
        pod.assign(CLICKS)
        async with pod.adapter(**calls.arguments) as adapter:
            await pod.serving(CLICKS)
            async with scheduler.down():
                await until(lambda: adapter.problems, "it is down")
                pod.write_file(pod.document().replace(b'"generation":2', b'"generation":1'))
                pod.revoke(CLICKS)
                pod.write_file()
                await calls.until("stop", CLICKS)
                assert adapter.generation == 3
        assert calls.of(ORDERS)[:2] == ["prepare", "serve"]

    async def test_it_is_not_read_while_a_replica_answers(self, pod, calls):
        newer = json.loads(pod.document()) | {"generation": 99}
        async with pod.adapter(**calls.arguments) as adapter:
            pod.assign(ORDERS)
            await pod.serving(ORDERS)
            pod.write_file(json.dumps(newer).encode())
            pod.assign(CLICKS)
            await pod.serving(CLICKS)
            await asyncio.sleep(3 * QUICK.poll_s)
            assert adapter.generation == 2

    async def test_one_that_cannot_be_read_is_told_once_and_an_empty_one_is_none(
        self, scheduler, pod, calls
    ):
        pod.write_file(b"\n")
        async with scheduler.down(), pod.adapter(**calls.arguments) as adapter:
            await until(lambda: adapter.problems, "it is down")
            pod.write_file(b'{"generation": -1, "uid": "u", "shares": {}}')
            wrong = lambda: [one for one in adapter.problems if "cannot be read" in one.text]  # noqa: E731
            await until(wrong, "it is told")
            await asyncio.sleep(3 * QUICK.poll_s)
            assert len(wrong()) == 1
            assert "generation must be from 0" in wrong()[0].text


class TestLease:
    """``handoff.mode: Exclusive``, with a lease of a second."""

    @pytest.fixture
    async def scheduler(self):
        async with FakeScheduler(lease_s=1.0) as scheduler:
            yield scheduler

    async def test_it_is_held_as_long_as_the_service_hears_the_pod(self, pod, calls):
        async with pod.adapter(**calls.arguments):
            pod.assign(ORDERS)
            await pod.serving(ORDERS)
            count = len(pod.acknowledgements)
            await until(lambda: len(pod.acknowledgements) > count + 3, "it is renewed")
            assert calls.of(ORDERS) == ["prepare", "serve"]

    async def test_a_pod_that_nobody_hears_stops_by_itself_in_time_and_comes_back(
        self, scheduler, pod, calls
    ):
        loop = asyncio.get_running_loop()
        async with pod.adapter(**calls.arguments):
            pod.assign(ORDERS, epoch=3)
            await pod.serving(ORDERS)
            share = calls.shares[ORDERS]
            with scheduler.failing(503):
                began = loop.time()
                await calls.until("stop")
                assert loop.time() - began < 1.0
                assert not share.still_mine(3)
            await calls.until("serve", times=2)
            assert calls.of(ORDERS) == ["prepare", "serve", "stop", "prepare", "serve"]
            assert not share.still_mine(3), "another life"
            assert calls.shares[ORDERS].still_mine(3)

    async def test_a_pod_without_a_lease_asks_for_its_assignment_several_times_a_lease(
        self, scheduler, pod, calls
    ):
        """It does no work until it is answered. Waits that double come to ten seconds."""
        timing = replace(QUICK, retry_s=0.05, retry_max_s=30.0)
        async with pod.adapter(timing=timing, **calls.arguments) as adapter:
            pod.assign(ORDERS)
            await pod.serving(ORDERS)
            with scheduler.failing(503):

                def asked() -> int:
                    return sum("no assignments" in one.text for one in adapter.problems)

                await until(lambda: asked() > 12, "it asks again and again")

    async def test_a_move_waits_until_the_source_has_let_go(self, scheduler, pod, calls):
        other, others = scheduler.pod("worker-1"), Calls()
        held = calls.hold("drain", ORDERS)
        async with pod.adapter(**calls.arguments), other.adapter(**others.arguments):
            pod.assign(ORDERS)
            await pod.serving(ORDERS)
            move = asyncio.create_task(scheduler.move(ORDERS, pod, other))
            await calls.until("drain")
            assert others.of(ORDERS) == ["prepare"]
            held.set()
            await move
            assert others.of(ORDERS) == ["prepare", "serve"]


class TestArguments:
    """What cannot work is refused at once."""

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            pytest.param({"urls": []}, "no URL", id="no URL"),
            pytest.param({"urls": ["ftp://x"]}, "is no http", id="another scheme"),
            pytest.param(
                {"urls": ["http://x"], "token_file": "/x"}, "https:// URLs only", id="TLS"
            ),
            pytest.param({"urls": ["http://x"], "lease_s": 0}, "lease_s", id="no lease"),
            pytest.param({"urls": ["http://x"], "grace_s": -1}, "grace_s", id="no grace"),
        ],
    )
    def test_they_are_refused(self, calls, arguments, said):
        with pytest.raises(ValueError, match=said):
            Adapter(on_serve=calls.serve, **arguments)

    def test_the_urls_may_come_from_the_environment(self, calls, monkeypatch):
        monkeypatch.setenv("VREPLICA_URLS", "https://one:10263, https://two:10263")
        adapter = Adapter(on_serve=calls.serve)
        assert adapter._service._access.urls == ["https://one:10263", "https://two:10263"]

    def test_the_folder_of_the_mounted_files_may_come_from_the_environment(
        self, calls, monkeypatch, tmp_path
    ):
        monkeypatch.setenv("VREPLICA_DIR", str(tmp_path))
        (tmp_path / "token").write_text("a token")
        adapter = Adapter(on_serve=calls.serve, urls=["https://one:10264"])
        assert adapter._service._access.token_file == tmp_path / "token"
        assert adapter._service._access.ca_file is None
        assert adapter._listener._file == tmp_path / "assignment"

    async def test_an_adapter_is_opened_once(self, pod, calls):
        adapter = pod.adapter(**calls.arguments)
        async with adapter:
            pass
        with pytest.raises(RuntimeError, match="once"):
            await adapter.__aenter__()

    async def test_what_breaks_in_the_library_itself_ends_the_wait(self, pod, calls, monkeypatch):
        adapter = pod.adapter(**calls.arguments)
        async with adapter:
            pod.assign(ORDERS)
            await pod.serving(ORDERS)
            monkeypatch.setattr(adapter._machine, "due_at", lambda: 1 / 0)
            pod.assign(CLICKS)
            with pytest.raises(ZeroDivisionError):
                async with asyncio.timeout(5):
                    await adapter.stopped()
        assert calls.of(ORDERS)[-1] == "stop"


async def test_last_words_wait_for_the_generation_that_an_answer_has_named():
    """While the last share drained, the service has written one more."""
    calls = Calls()
    async with FakeScheduler() as scheduler:
        pod = scheduler.pod("worker-0")
        pod.assign(ORDERS, 2)
        adapter = pod.adapter(**calls.arguments)
        async with adapter:
            await pod.serving(ORDERS)
            drained = calls.hold("drain", ORDERS)
            adapter.stop()
            await calls.until("drain")
            await asyncio.sleep(0.2)
            with pod.losing_news():
                pod.drain(ORDERS, within_s=60)
                drained.set()
                await asyncio.sleep(0.3)
            pod.send(pod.document())
            await asyncio.wait_for(adapter.stopped(), 5)
        assert pod.acknowledgements[-1].drained == (ORDERS,)
