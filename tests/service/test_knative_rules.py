"""The whole service with the profiles that place as Knative did up to 1.16: safe at every moment,
and it comes to rest.
"""

import random

import pytest

from extender.config.model import Config, LeaderElectionConfig, ServerConfig
from extender.engine.policy.framework import Weighted
from extender.engine.policy.ordinals import LowestOrdinalPriority
from extender.engine.policy.profile import KNATIVE_1_16_RULES, Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.service.app import Service
from tests.support.service import World, until, wall

pytestmark = pytest.mark.looptime

AFRESH = Profile(
    name="afresh", rules=KNATIVE_1_16_RULES, scores=(Weighted(LowestOrdinalPriority(), 1),)
)


class KnownWorld(World):
    """A service that also knows the profile ``afresh``."""

    def service(self, **_options: object) -> Service:
        config = Config(
            server=ServerConfig(port=0), leader_election=LeaderElectionConfig(leader_elect=False)
        )
        profiles = {**BUILT_IN_PROFILES, AFRESH.name: AFRESH}
        return Service(
            self.api, config, now=wall, rng=random.Random(1), serve=False, profiles=profiles
        )


async def a_world(profile: str, *, slots: int = 5, replicas: int = 3) -> World:
    world = await KnownWorld.create(
        profile=profile, slots=slots, replicas=replicas, maxPods=replicas
    )
    for ordinal in range(replicas):
        await world.pod(ordinal, node=f"node-{ordinal}", slots=slots)
    return world


async def published(world: World, expected: dict[int, int], name: str = "a") -> None:
    async def holds() -> bool:
        await world.check()
        return await world.published(name) == expected

    await until(holds)


async def test_maxfillup_fills_one_pod_after_the_other():
    world = await a_world("knative-maxfillup")
    async with world.serving():
        await world.vpod("a", 7)
        await published(world, {0: 5, 1: 2})
        await world.set_vreplicas("a", 9)
        await published(world, {0: 5, 1: 4})


async def test_growth_moves_the_whole_vpod_and_never_overcommits_a_pod_on_the_way():
    world = await a_world("afresh")
    await world.vpod("b", 5)
    async with world.serving():
        await published(world, {0: 5}, "b")
        await world.vpod("a", 4)
        await published(world, {1: 4})
        await world.set_vreplicas("b", 0)
        await published(world, {}, "b")
        await world.set_vreplicas("a", 6)
        await published(world, {0: 5, 1: 1})
    assert [await world.ledger(ordinal) for ordinal in range(3)] == [
        {"tenant/a": 5},
        {"tenant/a": 1},
        {},
    ]


async def test_growth_that_does_not_fit_waits_without_a_move():
    world = await a_world("afresh")
    await world.vpod("b", 10)
    async with world.serving():
        await published(world, {0: 5, 1: 5}, "b")
        await world.vpod("a", 3)
        await published(world, {2: 3})
        await world.set_vreplicas("a", 7)
        await until(world.condition, ("False", "InsufficientSlots"))
        await world.check()
        assert await world.published() == {2: 3}
        await world.set_vreplicas("b", 5)
        await published(world, {1: 5, 2: 2})
