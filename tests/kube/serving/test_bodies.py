"""Bodies as they arrive: who is waited for, for how long, and who gives way to whom."""

import asyncio

import pytest

from extender.kube.serving.bodies import (
    ArrivalLimits,
    BodiesTooLarge,
    BodyBudget,
    BodyTooLarge,
    BodyTooSlow,
)

LIMITS = ArrivalLimits(arriving_max=2, lag_max_s=1.0, rate_min_bytes_s=100)

pytestmark = pytest.mark.looptime


class Sender:
    """A body that arrives in parts; each waits for ``send``."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._more = asyncio.Event()
        self._whole = False

    def send(self, *parts: bytes, end: bool = False) -> None:
        self._parts += parts
        self._whole = end
        self._more.set()

    def is_eof(self) -> bool:
        return self._whole

    async def readany(self) -> bytes:
        while not self._parts and not self._whole:
            self._more.clear()
            await self._more.wait()
        return self._parts.pop(0) if self._parts else b""


def reading(budget: BodyBudget, sender: Sender, bytes_max: int = 10_000) -> "asyncio.Task[bytes]":
    async def read() -> bytes:
        with budget.share() as share:
            return await share.read(sender, bytes_max=bytes_max, announced=None)

    return asyncio.create_task(read())


async def seconds_until_done(task: "asyncio.Task[bytes]") -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await asyncio.wait({task})
    return clock() - began


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_body_that_stops_is_given_up_and_its_bytes_come_back():
    budget, sender = BodyBudget(1000, LIMITS), Sender()
    sender.send(b"x" * 500)
    task = reading(budget, sender)
    await turns()
    assert (budget.bytes_used, budget.arriving) == (500, 1)
    assert await seconds_until_done(task) == pytest.approx(1.0, abs=0.01), (
        "a burst earns no more time"
    )
    with pytest.raises(BodyTooSlow, match="less than 100 bytes a second"):
        await task
    assert (budget.bytes_used, budget.arriving) == (0, 0)


async def test_a_body_below_the_rate_is_given_up_once_it_has_fallen_behind():
    budget, sender = BodyBudget(1000, LIMITS), Sender()
    task = reading(budget, sender)

    async def trickle() -> None:
        while True:  # half of the rate
            await asyncio.sleep(0.1)
            sender.send(b"x" * 5)

    trickling = asyncio.create_task(trickle())
    assert await seconds_until_done(task) == pytest.approx(2.0, abs=0.11)
    trickling.cancel()
    with pytest.raises(BodyTooSlow):
        await task


async def test_a_body_at_the_rate_is_waited_for_as_long_as_it_comes():
    budget, sender = BodyBudget(1000, LIMITS), Sender()
    task = reading(budget, sender)
    for _ in range(10):
        await asyncio.sleep(0.9)
        sender.send(b"x" * 90)
    sender.send(end=True)
    assert len(await task) == 900


async def test_over_the_limit_the_one_furthest_behind_gives_way_and_not_the_one_that_began_first():
    budget = BodyBudget(1000, LIMITS)
    steady, idle, new = Sender(), Sender(), Sender()
    tasks = []
    for sender in (steady, idle):
        tasks.append(reading(budget, sender))
        await asyncio.sleep(0.2)
    steady.send(b"x" * 50)
    await turns()
    tasks.append(reading(budget, new))
    await turns()
    assert [task.done() for task in tasks] == [False, True, False]
    with pytest.raises(BodyTooSlow, match="the slowest"):
        await tasks[1]
    for sender in (steady, new):
        sender.send(b"y", end=True)
    assert await tasks[0] == b"x" * 50 + b"y"
    assert await tasks[2] == b"y"
    assert (budget.bytes_used, budget.arriving) == (0, 0)


async def test_a_body_that_is_there_takes_no_place():
    budget = BodyBudget(1000, LIMITS)
    waiting = [reading(budget, Sender()) for _ in range(2)]
    await turns()
    whole = Sender()
    whole.send(b"a", b"b", end=True)
    assert await reading(budget, whole) == b"ab"
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert (budget.bytes_used, budget.arriving) == (0, 0), (
        "a request that is cancelled leaves nothing"
    )


async def test_a_thousand_that_begin_at_once_leave_the_newest_in_their_places():
    budget = BodyBudget(1000, LIMITS)
    tasks = []
    for _ in range(1000):
        tasks.append(reading(budget, Sender()))
        await turns(1)
        assert budget.arriving <= 2
    await asyncio.wait(tasks[:-2])
    assert not any(task.done() for task in tasks[-2:])
    await asyncio.wait(tasks)
    assert all(isinstance(task.exception(), BodyTooSlow) for task in tasks)
    assert budget.arriving == 0


@pytest.mark.parametrize("gives_way", [False, True], ids=["late", "gives-way"])
async def test_a_body_whose_end_comes_in_the_moment_it_is_given_up_is_whole(gives_way: bool):
    budget, sender = BodyBudget(1000, LIMITS), Sender()
    task = reading(budget, sender)
    await turns()
    (arrival,) = budget._arrivals
    if gives_way:
        arrival.give_way("another takes its place")
    else:
        arrival.timer.reschedule(0.0)
    sender.send(b"x" * 10, end=True)
    assert await task == b"x" * 10
    assert (budget.bytes_used, budget.arriving) == (0, 0)


async def test_one_that_is_being_given_up_already_is_not_asked_twice():
    budget = BodyBudget(1000, ArrivalLimits(arriving_max=1))
    first = reading(budget, Sender())
    await turns()
    (arrival,) = budget._arrivals
    arrival.timer.reschedule(0.0)
    await turns(1)
    assert arrival.timer.expired()
    assert not first.done()
    second = reading(budget, Sender())
    await turns()
    with pytest.raises(BodyTooSlow):
        await first
    assert not second.done()
    second.cancel()


@pytest.mark.parametrize(("bytes_max", "error"), [(10, BodyTooLarge), (10_000, BodiesTooLarge)])
async def test_what_is_refused_while_it_arrives_gives_back_its_place_and_its_bytes(
    bytes_max: int, error: type[Exception]
):
    budget, sender = BodyBudget(100, LIMITS), Sender()
    task = reading(budget, sender, bytes_max)
    for _ in range(20):
        sender.send(b"x" * 9)
        await turns()
    with pytest.raises(error):
        await task
    assert (budget.bytes_used, budget.arriving) == (0, 0)


async def test_a_timeout_of_the_stream_itself_is_not_taken_for_ours():
    class Broken(Sender):
        async def readany(self) -> bytes:
            raise TimeoutError("of the socket")

    with pytest.raises(TimeoutError, match="of the socket"):
        await reading(BodyBudget(100, LIMITS), Broken())


async def test_a_timer_that_rings_late_since_the_process_was_busy_gives_up_nobody():
    """What the sender has sent meanwhile is in the socket still: nobody has had the time to read
    it.
    """
    budget, sender = BodyBudget(1000, LIMITS), Sender()
    task = reading(budget, sender)
    await turns()
    (arrival,) = budget._arrivals
    on_time, late = arrival._time, True
    arrival._time = lambda: on_time() + (0.5 if late else 0.0)
    await asyncio.sleep(1.1)
    late = False
    assert not task.done()
    sender.send(b"x", end=True)
    assert await task == b"x"


async def test_who_stops_is_given_up_all_the_same_once_the_process_is_busy_no_more():
    budget, sender = BodyBudget(1000, LIMITS), Sender()
    task = reading(budget, sender)
    await turns()
    (arrival,) = budget._arrivals
    on_time = arrival._time
    arrival._time = lambda: on_time() + (0.5 if on_time() < 1.2 else 0.0)
    assert await seconds_until_done(task) == pytest.approx(2.5, abs=0.1)
    with pytest.raises(BodyTooSlow):
        await task


async def test_where_bytes_are_short_the_body_furthest_behind_gives_its_bytes_back_at_once():
    budget, first, slow = BodyBudget(1_000, LIMITS), Sender(), Sender()
    stops, goes_on = reading(budget, slow), reading(budget, first)
    slow.send(b"x" * 500)
    first.send(b"y" * 400)
    await asyncio.sleep(0.5)
    first.send(b"y" * 100)
    await turns()
    with budget.share() as share:
        taken = asyncio.create_task(share.read(_whole(b"z" * 300), bytes_max=1_000, announced=None))
        await turns()
        assert budget.bytes_used == 800, "of the one that goes on, and of the new one"
        assert await taken == b"z" * 300
    with pytest.raises(BodyTooSlow, match="needed for other bodies"):
        await stops
    first.send(end=True)
    assert await goes_on == b"y" * 500
    assert (budget.bytes_used, budget.arriving) == (0, 0)


async def test_the_body_furthest_behind_makes_nobody_give_way():
    budget, old, new = BodyBudget(1_000, LIMITS), Sender(), Sender()
    too_much = reading(budget, old)
    await asyncio.sleep(0.5)
    kept = reading(budget, new)
    new.send(b"y" * 600)
    await turns()
    old.send(b"x" * 500)
    with pytest.raises(BodiesTooLarge, match="600 bytes"):
        await too_much
    new.send(end=True)
    assert await kept == b"y" * 600


async def test_of_bodies_that_are_whole_none_gives_way():
    budget = BodyBudget(1_000, LIMITS)
    with budget.share() as whole, budget.share() as new:
        await whole.read(_whole(b"x" * 600), bytes_max=1_000, announced=None)
        with pytest.raises(BodiesTooLarge):
            await new.read(_whole(b"x" * 600), bytes_max=1_000, announced=None)
        assert budget.bytes_used == 600


async def test_a_body_that_has_given_its_bytes_up_is_none_even_if_its_end_has_come():
    budget, slow = BodyBudget(1_000, LIMITS), Sender()
    stops = reading(budget, slow)
    slow.send(b"x" * 800)
    await turns()
    slow.send(b"x", end=True)
    with budget.share() as share:
        assert await share.read(_whole(b"z" * 300), bytes_max=1_000, announced=None) == b"z" * 300
    with pytest.raises(BodyTooSlow):
        await stops
    assert budget.bytes_used == 0


def _whole(body: bytes) -> Sender:
    sender = Sender()
    sender.send(body, end=True)
    return sender
