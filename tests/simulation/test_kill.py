"""SIGKILL at each API call in turn: whatever was half done, it settles without a move.

A kill right before a call is served leaves on the server what one right after the call before it does, so each call is
killed once only: the odd ones before, the even ones after they are served.
"""

import asyncio

import pytest

from extender.kube.api import PODS, VPODS
from extender.sim.clock import run_virtual
from extender.simulation.checkers import Checkers
from extender.simulation.run import state_problems, wait_settled
from extender.simulation.world import NS, TENANTS, Scale, World, vpod_object

pytestmark = pytest.mark.sim

CALLS_OF_GROWTH = 32
"""Lists, lease, statuses, scale-up, binds, statuses and events of the scenario: about so many calls, and some renewals."""
CALLS_OF_RETURN = 12


def problems_after_a_kill(call: int, *, after_effect: bool, returning: bool) -> list[str]:
    return run_virtual(_scenario(call, after_effect=after_effect, returning=returning))


async def _scenario(call: int, *, after_effect: bool, returning: bool) -> list[str]:
    """A pool grows from nothing; or, once it has, two of its pods are deleted and come back."""
    world = World(call, Scale(nodes=3, slots_per_pod=5, replicas=1))
    checkers = Checkers(world.trace)
    world.cluster.server.store.subscribers.append(checkers.on_change)
    async with world:
        await asyncio.sleep(0.5 if returning else 0.0)
        if not returning:
            _kill_at(world, call, after_effect)
        for number in range(4):
            vpod = vpod_object(f"v{number}", 3, weight=1 + number % 2)
            await world.cluster.create(VPODS, TENANTS[number % 2], vpod)
        if returning:
            await _settled(world, checkers)
            _kill_at(world, call, after_effect)
            for name in ("dispatcher-0", "dispatcher-1"):
                await world.cluster.delete(PODS, NS, name)
        await world.until(lambda: world.replicas[0].api.crashed, "the kill")
        world.bury()
        await asyncio.sleep(1.0)
        world.start_replica()
        problems = await _settled(world, checkers)
        moved = [f"moved: {checkers.moves}"] if checkers.moves else []
        return [*problems, *moved, *checkers.violations, *world.problems, *state_problems(world.replicas[0])]


def _kill_at(world: World, call: int, after_effect: bool) -> None:
    api = world.replicas[0].api
    api.crash_after_effect = after_effect
    api.crash_at_call = api.calls + call


async def _settled(world: World, checkers: Checkers) -> list[str]:
    problems = await wait_settled(world, checkers)
    await asyncio.sleep(2.0)
    return problems or checkers.differences()


@pytest.mark.parametrize("call", range(1, CALLS_OF_GROWTH + 1))
def test_a_pool_grows_whenever_its_leader_is_killed(call: int):
    assert problems_after_a_kill(call, after_effect=call % 2 == 0, returning=False) == []


@pytest.mark.parametrize("call", range(1, CALLS_OF_RETURN + 1))
def test_pods_come_back_with_what_they_had_whenever_the_leader_is_killed(call: int):
    assert problems_after_a_kill(call, after_effect=call % 2 == 0, returning=True) == []
