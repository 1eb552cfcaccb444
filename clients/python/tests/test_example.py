"""The forty lines of the README do what it says."""

import asyncio
import importlib.util
import os
import re
import signal
import sys
from pathlib import Path

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
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def work(self, key: str, epoch: int) -> None:
        self.begun.append((key, epoch))
        await self.goes_on.wait()
        await asyncio.sleep(0.001)
        self.ended.append((key, epoch))


def test_it_has_forty_lines_and_the_readme_starts_with_them():
    text = EXAMPLE.read_text()
    assert len(text.splitlines()) <= 42
    shown = re.search(r"```python\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == text


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
        await pod.serving(ORDERS)
        pieces.goes_on.set()
        while (ORDERS, 8) not in pieces.ended:
            await asyncio.sleep(0)
        assert pieces.ended.count((ORDERS, 7)) == pieces.begun.count((ORDERS, 7))
        run.cancel()
        await asyncio.wait([run])


AS_A_PROGRAM = """
import asyncio, sys
sys.path[:0] = ["examples", "."]
from worker import Worker

async def work(key, epoch):
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
