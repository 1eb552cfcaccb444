"""A bind waits for what the ordinal's former pods held: for the watch a moment, and then for a list of vpods (I2)."""

import asyncio
from collections.abc import Callable

import pytest

from extender.core.model import AdapterPod
from extender.core.reasons import ConflictReason
from extender.core.succession import HOLD_S, Succession
from extender.service.binder import BindRefused, PodBinder
from extender.service.caches import Caches
from extender.service.predecessors import SEEN_TIMEOUT_S, Predecessors
from tests.support.builders import NS, a_pod
from tests.support.service import World

pytestmark = pytest.mark.looptime


class Bench:
    """``Predecessors`` after a list of pods that has just been taken."""

    def __init__(self, *, founded: Callable[[], bool] = lambda: False) -> None:
        self.caches = Caches()
        self.succession = Succession(asyncio.get_running_loop().time)
        self.lists = 0
        self.predecessors = Predecessors(
            self.caches, self.succession, list_vpods=self._list_vpods, founded=founded
        )

    async def _list_vpods(self) -> None:
        await asyncio.sleep(0.1)
        self.lists += 1

    def seen(self, uid: str = "uid-0") -> AdapterPod:
        """A pending pod that the watch tells of now."""
        pod = a_pod(0, node="", uid=uid, resource_version="7")
        self.caches.pods.update(pod)
        return pod


async def test_within_the_hold_a_pod_is_not_bound_and_nothing_is_listed_for_it():
    bench = Bench()
    assert not await bench.predecessors.known(bench.seen())
    assert bench.lists == 0


async def test_who_has_founded_the_lease_knows_all_that_anyone_has_written():
    bench = Bench(founded=lambda: True)
    assert await bench.predecessors.known(bench.seen())
    assert bench.lists == 0


async def test_once_the_hold_is_over_vpods_are_listed_once_and_then_it_is_known():
    bench = Bench()
    pod = bench.seen()
    await asyncio.sleep(HOLD_S)
    both = await asyncio.gather(bench.predecessors.known(pod), bench.predecessors.known(pod))
    assert (both, bench.lists) == ([True, True], 1)
    assert await bench.predecessors.known(pod)
    assert bench.lists == 1


async def test_a_pod_that_the_watch_tells_of_a_moment_later_is_waited_for():
    bench = Bench(founded=lambda: True)
    asyncio.get_running_loop().call_later(SEEN_TIMEOUT_S / 2, bench.seen)
    assert await bench.predecessors.known(a_pod(0, node=""))


async def test_a_pod_that_the_watch_does_not_tell_of_is_given_up_in_time():
    loop = asyncio.get_running_loop()
    bench, begun = Bench(founded=lambda: True), loop.time()
    assert not await bench.predecessors.known(a_pod(0, node=""))
    assert loop.time() - begun == pytest.approx(SEEN_TIMEOUT_S)


async def test_a_pod_whose_past_is_not_known_is_not_bound():
    world = await World.create()
    uid = await world.pod(0)
    await world.sync()

    async def never(_pod: AdapterPod) -> bool:
        return False

    binder = PodBinder(world.api, world.caches, world.binder(), knows_past=never)
    with pytest.raises(BindRefused) as refused:
        await binder.bind(NS, "dispatcher-0", uid, "node-0")
    assert refused.value.reason is ConflictReason.CATCHING_UP
    assert await world.node_of(0) == ""
