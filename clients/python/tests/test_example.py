"""The forty lines of the README do what it says."""

import asyncio
import importlib.util
import itertools
import os
import re
import signal
import sys
from contextlib import closing
from pathlib import Path

import looptime
import pytest

from vreplica_adapter.testing import FakeScheduler

FOLDER = Path(__file__).parents[1]
EXAMPLE = FOLDER / "examples/worker.py"
ORDERS = "team-a/orders"


def the_worker(work):
    spec = importlib.util.spec_from_file_location("worker", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Worker(work)


def the_pods(scheduler: FakeScheduler, pod) -> dict[str, object]:
    """The arguments of an adapter in this environment."""
    return {"urls": [pod.url], "handle_sigterm": False, "grace_s": 2.0}


class Pieces:
    """Work that says who does it; each piece waits until it is let on."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.ended: list[tuple[str, int]] = []
        self.indexes: list[int | None] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def work(self, key: str, index: int | None, epoch: int) -> None:
        self.indexes.append(index)
        self.begun.append((key, epoch))
        await self.goes_on.wait()
        await asyncio.sleep(0.001)
        self.ended.append((key, epoch))


def test_it_has_forty_lines_and_the_readme_starts_with_them():
    text = EXAMPLE.read_text()
    assert sum(1 for line in text.splitlines() if line) <= 40
    shown = re.search(r"```python\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == text


async def test_a_piece_that_fails_is_logged_not_counted_and_tried_again_a_second_later(caplog):
    begun: list[float] = []

    async def work(key: str, index: int | None, epoch: int) -> None:
        begun.append(asyncio.get_running_loop().time())
        raise ConnectionError("no queue")

    worker = the_worker(work)
    async with FakeScheduler() as scheduler:
        pod = scheduler.pod("worker-0")
        run = asyncio.create_task(worker.run(**the_pods(scheduler, pod)))
        pod.assign(ORDERS, vreplicas=1, epoch=7)
        await pod.serving(ORDERS)
        while len(begun) < 3:
            await asyncio.sleep(0.1)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    assert not worker.done[ORDERS]
    assert [later - earlier >= 1.0 for earlier, later in itertools.pairwise(begun)] == [True, True]
    assert "team-a/orders: 1 failed" in caplog.text
    assert "no queue" in caplog.text


async def test_a_share_is_handed_over_and_no_piece_of_work_is_lost():
    here, there = Pieces(), Pieces()
    async with FakeScheduler() as scheduler:
        pods = scheduler.pod("worker-0"), scheduler.pod("worker-1")
        runs = [
            asyncio.create_task(the_worker(pieces.work).run(**the_pods(scheduler, pod)))
            for pieces, pod in zip((here, there), pods, strict=True)
        ]
        pods[0].assign(ORDERS, vreplicas=2, epoch=7)
        await pods[0].serving(ORDERS)
        while len(here.ended) < 4:
            await asyncio.sleep(0)
        await scheduler.move(ORDERS, *pods)
        assert here.begun == here.ended
        assert set(here.begun) == {(ORDERS, 7)}
        count = len(here.begun)
        while len(there.ended) < 4:
            await asyncio.sleep(0)
        assert set(there.begun) == {(ORDERS, 8)}
        assert len(here.begun) == count
        for run in runs:
            run.cancel()
        await asyncio.wait(runs)


async def test_a_drain_that_is_taken_back_loses_no_piece_of_work_either():
    pieces = Pieces()
    async with FakeScheduler() as scheduler:
        pod = scheduler.pod("worker-0")
        run = asyncio.create_task(the_worker(pieces.work).run(**the_pods(scheduler, pod)))
        pod.assign(ORDERS, vreplicas=2, epoch=7)
        await pod.serving(ORDERS)
        pieces.goes_on.clear()
        count = len(pieces.begun)
        while len(pieces.begun) == count:
            await asyncio.sleep(0)
        pod.drain(ORDERS)
        await pod.until(lambda said: ORDERS in said.draining)
        pod.assign(ORDERS, vreplicas=2, epoch=8)
        await pod.until(lambda said: ORDERS in said.busy)
        pieces.goes_on.set()
        await pod.serving(ORDERS)
        while (ORDERS, 8) not in pieces.ended:
            await asyncio.sleep(0)
        assert pieces.ended.count((ORDERS, 7)) == pieces.begun.count((ORDERS, 7))
        run.cancel()
        await asyncio.wait([run])


AS_A_PROGRAM = """
import asyncio, sys
sys.path[:0] = ["examples", "."]
from worker import Worker

async def work(key, index, epoch):
    await asyncio.sleep(0.01)

asyncio.run(Worker(work).run())
"""


async def test_as_a_program_it_takes_the_service_from_its_environment_and_ends_well_at_sigterm():
    async with FakeScheduler() as scheduler:
        pod = scheduler.pod("worker-0")
        pod.assign(ORDERS, vreplicas=2)
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            AS_A_PROGRAM,
            cwd=FOLDER,
            env={**os.environ, "VREPLICA_URLS": pod.url},
        )
        await pod.serving(ORDERS, within_s=15)
        program.send_signal(signal.SIGTERM)
        assert await program.wait() == 0
        assert pod.acknowledgements[-1].drained == (ORDERS,)


async def test_a_worker_that_grows_works_on_without_a_second_loop():
    pieces = Pieces()
    async with FakeScheduler() as scheduler:
        pod = scheduler.pod("worker-0")
        worker = the_worker(pieces.work)
        run = asyncio.create_task(worker.run(**the_pods(scheduler, pod)))
        pod.assign(ORDERS, vreplicas=1)
        await pod.serving(ORDERS)
        loop = worker.loops[ORDERS]
        pod.assign(ORDERS, vreplicas=3)
        await pod.serving(ORDERS)
        assert worker.loops[ORDERS] is loop
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert loop.done()


async def test_a_piece_of_work_is_for_one_of_the_indexes_that_are_here():
    pieces = Pieces()
    async with FakeScheduler() as scheduler:
        pod = scheduler.pod("worker-0")
        run = asyncio.create_task(the_worker(pieces.work).run(**the_pods(scheduler, pod)))
        pod.assign(ORDERS, vreplicas=3, of=8, indexes=(0, 1, 5), epoch=7)
        await pod.serving(ORDERS)
        while len(pieces.ended) < 6:
            await asyncio.sleep(0)
        assert set(pieces.indexes) == {0, 1, 5}
        pod.assign(ORDERS, vreplicas=2, of=8, indexes=(0, 1), epoch=7)
        await pod.serving(ORDERS)
        pieces.indexes.clear()
        count = len(pieces.ended)
        while len(pieces.ended) < count + 6:
            await asyncio.sleep(0)
        assert set(pieces.indexes) == {0, 1}
        run.cancel()
        await asyncio.wait([run])


class Reports:
    """An adapter that stays until it is let go, and the load that was reported to it."""

    def __init__(self) -> None:
        self.load: list[dict[str, float]] = []
        self.ended = asyncio.Event()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def stopped(self) -> None:
        await self.ended.wait()

    def report_load(self, load: dict[str, float]) -> None:
        self.load.append(load)


def test_the_load_is_pieces_in_a_second_of_the_shares_that_are_here(monkeypatch):
    async def run() -> list[dict[str, float]]:
        reports = Reports()
        worker = the_worker(None)
        forever = asyncio.create_task(asyncio.sleep(1000))
        worker.loops = {ORDERS: forever, "team-a/idle": forever}
        monkeypatch.setitem(worker.run.__func__.__globals__, "Adapter", lambda **_: reports)
        running = asyncio.create_task(worker.run())
        worker.done[ORDERS] = 50
        worker.done["team-a/gone"] = 50
        await asyncio.sleep(10.5)
        worker.done[ORDERS] = 20
        await asyncio.sleep(10)
        reports.ended.set()
        await running
        forever.cancel()
        return reports.load

    with closing(looptime.new_event_loop()) as loop:
        reported = loop.run_until_complete(run())
    idle = {"team-a/idle": 0.0}
    assert reported == [{ORDERS: 5.0, **idle}, {ORDERS: 2.0, **idle}]
