"""A watch of pods that is silent is found out by what the API server answers to reads."""

import asyncio

import pytest

from extender.kube.api import PODS
from extender.service.watching.pods_behind import LIST_PERIOD_S, PATIENCE_S, PodsBehind
from tests.service.placing.test_committer import OWNER, a_decision, made_now
from tests.support.builders import NS, POOL, a_pod
from tests.support.clock import Clock
from tests.support.service import NoLists, World, a_world


class CountedLists(NoLists):
    of_pods = 0

    def request_pods(self) -> None:
        self.of_pods += 1


async def a_silent_watch(clock: Clock) -> tuple[PodsBehind, World, list[float]]:
    world = await a_world(0)
    await world.sync()
    listed: list[float] = []
    behind = PodsBehind(world.caches, clock, lambda: listed.append(clock.now))
    return behind, world, listed


KEY = f"{NS}/dispatcher-0"


@pytest.mark.parametrize("gone", [True, False], ids=["it is gone", "it was created anew"])
async def test_pods_are_listed_where_a_read_shows_for_two_seconds_what_the_watch_does_not(
    gone: bool,
):
    clock = Clock()
    behind, _, listed = await a_silent_watch(clock)
    anew = None if gone else a_pod(0, uid="anew")
    times = (0.0, PATIENCE_S - 0.1, PATIENCE_S, PATIENCE_S + 1, PATIENCE_S + LIST_PERIOD_S - 0.1)
    for clock.now in times:
        behind.read(KEY, anew)
    assert listed == [PATIENCE_S]
    clock.now = PATIENCE_S + LIST_PERIOD_S
    behind.read(KEY, anew)
    assert listed == [PATIENCE_S, PATIENCE_S + LIST_PERIOD_S]


async def test_a_pod_that_the_watch_has_told_of_lists_nothing_however_often_it_is_read():
    clock = Clock()
    behind, world, listed = await a_silent_watch(clock)
    same = world.caches.pods.latest(KEY)
    for clock.now in (0.0, PATIENCE_S, 2 * PATIENCE_S):
        behind.read(KEY, same)
    assert listed == []


@pytest.mark.looptime
async def test_a_committer_whose_writes_are_refused_since_a_pod_came_back_has_the_pods_listed():
    """Seed 320000291: for 78 s each write was refused and each read answered, and the pod looked
    lost.
    """
    world = await a_world(0)
    await world.vpod("a", 3)
    await world.sync()
    await world.remove_pod(0)
    await world.pods(0)
    lists = CountedLists()
    committer = world.committer(lists)
    for _ in range(3):
        decision = made_now(world, a_decision("a", {0: 3}))
        committer.reserve(OWNER, decision)
        assert (await committer.commit(OWNER, POOL, [decision])).failed
        await asyncio.sleep(PATIENCE_S / 2)
    assert lists.of_pods == 1
    assert world.api.count("get", PODS.plural) == 3
