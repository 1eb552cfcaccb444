"""The queue of one pool's vpods, on virtual time."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import pytest

from extender.service.placing.queue import BURST_S, ORDERED_VPODS_MAX, TURN_VPODS, VPodQueue

pytestmark = pytest.mark.looptime


def a_queue(weights: Mapping[str, int] | None = None) -> VPodQueue:
    """``weights``: by key; 1 for all others."""
    known = weights or {}
    clock = asyncio.get_running_loop().time
    return VPodQueue(clock, rank=lambda key: (0, known.get(key, 1)), incoming=Counter())


async def pop(queue: VPodQueue, keys_max: int = 10) -> list[str]:
    return await queue.pop_batch(keys_max)


async def nothing_comes(queue: VPodQueue, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await queue.pop_batch(10)
    except TimeoutError:
        return True
    return False


async def test_first_come_first_served_and_each_once():
    queue = a_queue()
    for key in ("b", "a", "b"):
        queue.add(key)
    assert await pop(queue) == ["b", "a"]


async def test_a_batch_has_no_more_than_asked():
    queue = a_queue()
    for key in "abc":
        queue.add(key)
    assert await pop(queue, 2) == ["a", "b"]
    queue.done("a")
    queue.done("b")
    assert await pop(queue, 2) == ["c"]


class TestHeaviestFirst:
    async def test_in_a_burst_whatever_came_first(self):
        queue = a_queue({"heavy": 5, "middle": 3})
        for key in ("light", "middle", "heavy", "other"):
            queue.add(key)
        assert await pop(queue) == ["heavy", "middle", "light", "other"]

    async def test_over_the_batches_of_a_round(self):
        queue = a_queue({"c": 2, "d": 3})
        for key in "abcd":
            queue.add(key)
        assert await pop(queue, 2) == ["d", "c"]
        queue.done("d")
        queue.done("c")
        assert await pop(queue, 2) == ["a", "b"]

    async def test_what_comes_during_a_round_is_in_the_next(self):
        queue = a_queue({"t/heavy": 5})
        for key in ("t/a", "t/b", "t/c"):
            queue.add(key)
        for key in await pop(queue, 2):
            queue.done(key)
        queue.add("t/heavy")
        assert await pop(queue) == ["t/c", "t/heavy"]

    async def test_of_a_vpod_that_is_forgotten_during_a_round_nothing_comes(self):
        queue = a_queue()
        for key in "abc":
            queue.add(key)
        assert await pop(queue, 1) == ["a"]
        queue.done("a")
        queue.forget("b")
        assert await pop(queue) == ["c"]

    async def test_a_light_one_that_waits_comes_before_heavy_ones_of_a_later_burst(self):
        queue = a_queue({"late": 9})
        queue.add("light")
        await pop(queue)
        queue.park("light")
        await asyncio.sleep(BURST_S)
        queue.add("late")
        queue.activate()
        assert await pop(queue) == ["light", "late"]

    @pytest.mark.parametrize("seed", range(20))
    async def test_nothing_is_decided_after_what_came_a_burst_later(self, seed: int):
        """Vpods of random weight come one by one. Each time, all that wait are tried again."""
        rng = random.Random(seed)
        weights = {f"v{number}": rng.randint(1, 20) for number in range(60)}
        queue, clock = a_queue(weights), asyncio.get_running_loop().time
        since: dict[str, float] = {}
        for key in weights:
            queue.add(key)
            queue.activate()
            since[key] = clock()
            taken: list[str] = []
            while len(taken) < len(since):
                batch = await pop(queue, 7)
                taken += batch
                for one in batch:
                    queue.park(one)
            for index, one in enumerate(taken):
                late = [other for other in taken[:index] if since[other] >= since[one] + BURST_S]
                assert not late, f"seed {seed}: {one} is decided after {late}"
            await asyncio.sleep(rng.choice((0.0, 1.0, 5.0)))


async def place(queue: VPodQueue, vpods: int) -> list[str]:
    """Take so many vpods in batches of 50, and place each."""
    taken: list[str] = []
    while len(taken) < vpods:
        batch = await pop(queue, 50)
        taken += batch
        for key in batch:
            queue.done(key)
    return taken


class TestTenantsTakeTurns:
    async def test_one_with_few_light_vpods_does_not_wait_behind_thousands_of_heavy_ones(self):
        few = {f"few/{index}": 1 for index in range(3)}
        many = {f"many/{index}": 9 for index in range(10_000)}
        queue = a_queue(many | few)
        for key in many | few:
            queue.add(key)
        taken = await place(queue, 100)
        assert taken.index("few/2") < TURN_VPODS + 3

    async def test_one_that_comes_during_a_round_does_not_wait_for_its_end(self):
        queue = a_queue()
        for index in range(10_000):
            queue.add(f"many/{index}")
        await place(queue, 500)
        await asyncio.sleep(BURST_S)  # those that have waited longer are another tenant's
        queue.add("late/a")
        assert "late/a" in await place(queue, 100)

    async def test_of_more_tenants_than_have_room_in_a_round_each_gets_its_turn(self):
        tenants = 2 * ORDERED_VPODS_MAX // TURN_VPODS
        queue = a_queue()
        for index in range(TURN_VPODS + 1):
            for tenant in range(tenants):
                queue.add(f"t{tenant}/{index}")
        taken = await place(queue, tenants * TURN_VPODS)
        assert len({key.partition("/")[0] for key in taken}) == tenants

    async def test_one_of_higher_priority_comes_before_anybodys_turn(self):
        clock = asyncio.get_running_loop().time
        queue = VPodQueue(
            clock, rank=lambda key: (int(key.startswith("high")), 1), incoming=Counter()
        )
        for index in range(TURN_VPODS + 10):
            queue.add(f"low/{index}")
            queue.add(f"high/{index}")
        taken = await place(queue, 2 * (TURN_VPODS + 10))
        assert all(key.startswith("high") for key in taken[: TURN_VPODS + 10])

    async def test_one_of_higher_priority_does_not_wait_for_the_end_of_its_tenants_round(self):
        """Its tenant had had its turn in that round, so it came last."""
        clock = asyncio.get_running_loop().time
        queue = VPodQueue(clock, rank=lambda key: (int(key == "t/high"), 1), incoming=Counter())
        for key in ("t/a", "u/a", "t/b", "u/b"):
            queue.add(key)
        for key in await pop(queue, 1):
            queue.done(key)
        queue.add("t/high")
        assert await pop(queue) == ["t/high", "t/b", "u/a", "u/b"]

    async def test_many_of_higher_priority_that_come_during_a_round_all_come_before_its_rest(self):
        """Those beyond one turn came after the round."""
        clock = asyncio.get_running_loop().time
        high = {f"vip/{index}" for index in range(TURN_VPODS + 36)}
        queue = VPodQueue(clock, rank=lambda key: (int(key in high), 1), incoming=Counter())
        for index in range(TURN_VPODS):
            queue.add(f"a/{index}")
            queue.add(f"b/{index}")
        await place(queue, 1)
        for key in sorted(high):
            queue.add(key)
        assert set(await place(queue, len(high))) == high

    async def test_those_of_higher_priority_that_come_often_do_not_let_one_tenant_fill_a_round(
        self,
    ):
        """With each of them all tenants joined the round anew, so the one with most filled it."""
        clock = asyncio.get_running_loop().time
        queue = VPodQueue(
            clock, rank=lambda key: (int(key.startswith("vip")), 1), incoming=Counter()
        )
        for index in range(10_000):
            queue.add(f"many/{index}")
        for index in range(100):
            queue.add(f"vip/{index}")
            await place(queue, 10)
        await asyncio.sleep(BURST_S)
        queue.add("late/a")
        assert "late/a" in await place(queue, 100)

    async def test_a_tenants_own_vpods_are_in_the_order_of_a_single_tenant(self):
        weights = {f"a/{index}": index % 7 + 1 for index in range(300)}
        alone, beside = a_queue(weights), a_queue(weights)
        for key in weights:
            alone.add(key)
            beside.add(key)
            beside.add(key.replace("a/", "b/"))
        mine = [key for key in await place(beside, 600) if key.startswith("a/")]
        assert mine == await place(alone, 300)


async def test_it_waits_for_something_to_do(looptime):
    queue = a_queue()
    asyncio.get_running_loop().call_later(5, queue.add, "a")
    assert await pop(queue) == ["a"]
    assert looptime == 5


async def test_what_failed_comes_back_after_1_2_4_8_10_and_10_seconds(looptime):
    queue = a_queue()
    queue.add("a")
    times = []
    for _ in range(7):
        assert await pop(queue) == ["a"]
        times.append(asyncio.get_running_loop().time())
        queue.retry("a")
    assert [later - earlier for earlier, later in pairwise(times)] == [1, 2, 4, 8, 10, 10]


async def test_backoff_starts_anew_after_success():
    queue = a_queue()
    for outcome in (queue.retry, queue.retry, queue.done):
        queue.add("a")
        await pop(queue)
        outcome("a")
    queue.add("a")
    await pop(queue)
    queue.retry("a")
    started = asyncio.get_running_loop().time()
    await pop(queue)
    assert asyncio.get_running_loop().time() - started == 1


async def test_a_change_of_its_own_ends_the_backoff_of_a_vpod(looptime):
    queue = a_queue()
    queue.add("a")
    await pop(queue)
    queue.retry("a")
    queue.add("a")
    assert await pop(queue) == ["a"]
    assert looptime == 0
    queue.done("a")
    assert await nothing_comes(queue, 20), "the old date must not bring it back"


async def test_what_is_parked_waits_for_an_event_that_may_help():
    queue = a_queue()
    queue.add("a")
    await pop(queue)
    queue.park("a")
    assert await nothing_comes(queue, 1000)
    queue.activate()
    assert await pop(queue) == ["a"]


async def test_an_event_does_not_end_the_backoff_of_a_failed_write():
    queue = a_queue()
    queue.add("a")
    await pop(queue)
    queue.retry("a")
    queue.activate()
    assert queue.sizes == {"active": 0, "backoff": 1, "unschedulable": 0}


def happens(queue: VPodQueue, event: str) -> None:
    {
        "add": lambda: queue.add("a"),
        "diverged": lambda: queue.diverged("a"),
        "activate": queue.activate,
    }[event]()


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        ("add", "done"),
        ("diverged", "done"),
        ("add", "park"),
        ("diverged", "park"),
        ("activate", "park"),
    ],
)
async def test_what_happens_while_it_is_decided_is_not_missed(event, outcome):
    queue = a_queue()
    queue.add("a")
    await pop(queue)
    happens(queue, event)
    assert queue.sizes["active"] == 0, "never handed out twice"
    getattr(queue, outcome)("a")
    assert queue.sizes == {"active": 1, "backoff": 0, "unschedulable": 0}
    assert await pop(queue) == ["a"]


@pytest.mark.parametrize("event", ["add", "diverged"])
async def test_a_change_during_a_write_that_fails_ends_the_backoff_a_difference_does_not(event):
    """Found by review: it waited out the back-off of the old decision."""
    queue = a_queue()
    queue.add("a")
    await pop(queue)
    happens(queue, event)
    queue.retry("a")
    changed = event == "add"
    assert queue.sizes == {"active": changed, "backoff": not changed, "unschedulable": 0}


@pytest.mark.parametrize(
    ("event", "agrees"), [("activate", False), ("activate", True), ("diverged", True)]
)
async def test_what_does_not_matter_to_what_is_placed_does_not_bring_it_back(event, agrees):
    queue = a_queue()
    queue.add("a")
    await pop(queue)
    happens(queue, event)
    queue.done("a", agrees=agrees)
    assert await nothing_comes(queue, 20)


async def test_a_change_counts_whatever_came_before_and_after_it():
    queue = a_queue()
    queue.add("a")
    await pop(queue)
    for event in ("diverged", "add", "diverged", "activate"):
        happens(queue, event)
    queue.done("a", agrees=True)
    assert await pop(queue) == ["a"]


async def test_a_vpod_that_diverges_and_is_not_being_decided_is_decided():
    queue = a_queue()
    queue.diverged("a")
    assert await pop(queue) == ["a"]


async def test_a_vpod_that_is_gone_is_forgotten_wherever_it_waits():
    queue = a_queue()
    for key in "abc":
        queue.add(key)
    await pop(queue)
    queue.retry("a")
    queue.park("b")
    queue.done("c")
    queue.add("c")
    for key in "abc":
        queue.forget(key)
    assert queue.sizes == {"active": 0, "backoff": 0, "unschedulable": 0}
    assert await nothing_comes(queue, 20)


async def test_a_batch_that_was_abandoned_comes_back_first():
    queue = a_queue()
    queue.add("a")
    queue.add("b")
    await pop(queue, 1)
    queue.add("a")
    # The leader has lost its lease in the middle of the batch; the next term begins with a new pop.
    assert await pop(queue) == ["a", "b"]


async def test_cancelled_while_waiting_it_loses_nothing():
    queue = a_queue()
    waiting = asyncio.ensure_future(queue.pop_batch(1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    queue.add("a")
    assert await pop(queue) == ["a"]


async def taken_before(queue: VPodQueue, wanted: str) -> int:
    ahead = 0
    while wanted not in (batch := await queue.pop_batch(64)):
        ahead += len(batch)
        for key in batch:
            queue.done(key)
    for key in batch:
        queue.done(key)
    return ahead


async def test_a_small_tenant_that_comes_again_in_a_round_does_not_wait_for_all_of_it():
    queue = VPodQueue(lambda: 0.0, rank=lambda key: (0, 1), incoming=Counter())
    for i in range(4000):
        queue.add(f"big/v{i}")
    queue.add("small/a")
    assert await taken_before(queue, "small/a") <= 2 * TURN_VPODS
    queue.add("small/b")
    assert await taken_before(queue, "small/b") <= 2 * TURN_VPODS


@pytest.mark.parametrize("tenants", [50, 128, 192])
async def test_newcomers_let_no_tenant_starve_and_do_not_wait_for_all(tenants):
    queue = VPodQueue(lambda: 0.0, rank=lambda key: (0, 1), incoming=Counter())
    for i in range(1000):
        for t in range(tenants):
            queue.add(f"t{t:03}/v{i}")
    got = Counter[str]()
    came: dict[str, int] = {}
    waits: list[int] = []
    count = 0
    for batch in range(100):
        came[f"new{batch}/x"] = count
        queue.add(f"new{batch}/x")
        for key in await queue.pop_batch(256):
            queue.done(key)
            got[key.partition("/")[0]] += 1
            count += 1
            if key in came:
                waits.append(count - came.pop(key))
    taken = [got[f"t{t:03}"] for t in range(tenants)]
    assert max(taken) - min(taken) <= 2 * TURN_VPODS, (min(taken), max(taken), taken.count(0))
    assert max(waits, default=0) <= (tenants + 100) * TURN_VPODS


# -- 6. Available lies -----------------------------------------------------------------------------
