"""Virtual time: what a paused process does not do, and does late."""

import asyncio
from contextvars import copy_context

from extender.lab.clock import PROCESS, VirtualTimeLoop, run_virtual


async def _ticks(seen: list[float], period_s: float = 1.0) -> None:
    while True:
        await asyncio.sleep(period_s)
        seen.append(asyncio.get_running_loop().time())


def _start(process: str, seen: list[float]) -> "asyncio.Task[None]":
    context = copy_context()
    context.run(PROCESS.set, process)
    return asyncio.get_running_loop().create_task(_ticks(seen), context=context)


def _loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def test_a_paused_process_does_nothing_and_the_others_go_on():
    async def main() -> tuple[int, int]:
        a: list[float] = []
        b: list[float] = []
        tasks = [_start("a", a), _start("b", b)]
        await asyncio.sleep(2.5)
        _loop().pause("a")
        await asyncio.sleep(10.0)
        result = len(a), len(b)
        _loop().resume("a")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return result

    assert run_virtual(main()) == (2, 12)


def test_a_timer_that_was_due_in_the_pause_runs_once_and_at_once_after_it():
    async def main() -> list[float]:
        seen: list[float] = []
        task = _start("a", seen)
        await asyncio.sleep(0.5)
        _loop().pause("a")
        await asyncio.sleep(20.0)
        _loop().resume("a")
        await asyncio.sleep(0.25)
        task.cancel()
        return [round(at, 3) for at in seen]

    assert run_virtual(main()) == [20.5]


def test_what_another_process_wakes_in_a_paused_one_waits_for_the_end_of_the_pause():
    async def main() -> list[str]:
        story: list[str] = []
        event = asyncio.Event()

        async def waits() -> None:
            await event.wait()
            story.append("woken")

        context = copy_context()
        context.run(PROCESS.set, "a")
        task = asyncio.get_running_loop().create_task(waits(), context=context)
        await asyncio.sleep(0.1)
        _loop().pause("a")
        event.set()
        await asyncio.sleep(5.0)
        story.append("end of pause")
        _loop().resume("a")
        await task
        return story

    assert run_virtual(main()) == ["end of pause", "woken"]


def test_a_timer_that_is_cancelled_in_the_pause_does_not_run():
    async def main() -> list[str]:
        story: list[str] = []
        context = copy_context()
        context.run(PROCESS.set, "a")
        timer = asyncio.get_running_loop().call_later(1.0, story.append, "rang", context=context)
        _loop().pause("a")
        timer.cancel()
        await asyncio.sleep(2.0)
        _loop().resume("a")
        await asyncio.sleep(2.0)
        return story

    assert run_virtual(main()) == []
