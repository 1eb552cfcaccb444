"""The last hour of each pool, in samples: bounded, cheap, and whole."""

import asyncio

import pytest

from extender.model.counted import EXACT_MAX
from extender.model.reading import COUNT_MAX
from extender.service.http.page import history, records
from extender.service.http.page.history import PERIOD_S, SAMPLES_MAX, History
from extender.service.pools import pool_status
from tests.support.builders import POOL, Scene, a_node


class Hour:
    """A history over a scene, ten seconds a sample."""

    def __init__(self, scene: Scene) -> None:
        self.now = 1_000.0
        self.history = History(scene.state, lambda: self.now)

    async def samples(self, count: int = 1) -> dict[str, list[int]]:
        for _ in range(count):
            await self.history.sample()
            self.now += PERIOD_S
        return self.history.of(POOL)


async def test_a_sample_is_what_the_pool_has_at_that_time():
    scene = Scene().pods(0, 1)
    hour = Hour(scene)
    before = {"1000": [40, 0, 40, 0, 2, 0, 0, 0, 0]}
    assert await hour.samples() == before
    scene.pod(0, ready=True).vpod("a", 9, {0: 4})
    assert await hour.samples() == {**before, "1010": [40, 4, 36, 5, 2, 5, 0, 0, 0]}


async def test_what_waits_is_counted_in_vreplicas_and_in_the_slots_that_they_would_take():
    scene = Scene().pod(0, ready=True)
    scene.vpod("heavy", 4, {0: 1}, weight=3)
    assert await Hour(scene).samples() == {"1000": [20, 3, 17, 3, 1, 9, 0, 0, 0]}


async def test_what_nobody_serves_is_counted_in_vreplicas_and_in_slots_and_a_lost_node_shows():
    scene = Scene().pod(0, ready=True).vpod("heavy", 4, {0: 2}, weight=3).vpod("a", 1, {0: 1})
    hour = Hour(scene)
    assert (await hour.samples())["1000"][-2:] == [0, 0]
    scene.node(a_node(ready=False))
    scene.pool.end_excuse("dispatcher-0")
    assert (await hour.samples())["1010"][-2:] == [7, 3]


async def test_vpods_that_ask_for_more_slots_than_64_bits_hold_are_counted_as_very_many():
    """Found by review: three valid VPods of a tenant ended every replica, again and again."""
    scene = Scene().pod(0, ready=True)
    for number in range(5):
        scene.vpod(f"huge-{number}", COUNT_MAX, weight=COUNT_MAX)
    (row,) = (await Hour(scene).samples()).values()
    assert row[history.FIELDS.index("pendingSlots")] == EXACT_MAX
    assert await Hour(scene).samples() == {"1000": row}
    assert records.pool_record(scene.pool)["pendingSlots"] == EXACT_MAX


async def test_the_last_hour_is_kept_and_no_more():
    scene = Scene().pods(0)
    samples = await Hour(scene).samples(SAMPLES_MAX + 40)
    assert (len(samples), min(map(int, samples)), max(map(int, samples))) == (
        360,
        1_400,
        1_000 + 399 * 10,
    )


async def test_a_pool_that_comes_later_begins_later_and_one_that_goes_is_forgotten():
    scene = Scene()
    hour = Hour(scene)
    pool = scene.pool.adapter_pool
    scene.state.adapter_pool_changed(pool, None)
    await hour.samples(3)
    assert hour.history.of(POOL) == {}
    scene.state.adapter_pool_changed(None, pool)
    assert list(await hour.samples(2)) == ["1030", "1040"]
    scene.state.adapter_pool_changed(pool, None)
    assert await hour.samples() == {}


async def test_a_pool_in_which_nothing_happens_is_not_counted_again(
    monkeypatch: pytest.MonkeyPatch,
):
    counted: list[str] = []
    numbers = pool_status.pool_numbers

    def noted(pool):
        counted.append(pool.key)
        return numbers(pool)

    monkeypatch.setattr(history, "pool_numbers", noted)
    await Hour(Scene().pods(0)).samples(30)
    assert counted == [POOL]


async def test_of_too_many_pools_the_first_by_name_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(history, "POOLS_MAX", 0)
    assert await Hour(Scene().pods(0)).samples() == {}


@pytest.mark.looptime
async def test_it_begins_when_the_state_is_known():
    scene = Scene().pods(0)
    hour, known = Hour(scene), asyncio.Event()
    task = asyncio.create_task(hour.history.run(known.wait))
    await asyncio.sleep(60)
    assert hour.history.of(POOL) == {}
    known.set()
    await asyncio.sleep(25)
    assert len(hour.history.times) == 3
    task.cancel()
