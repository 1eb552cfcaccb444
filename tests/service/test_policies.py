"""The whole service with profiles of plugins: third parties' that fail, and zones that come into
and out of the rule.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import ClassVar

import pytest

from extender.config.model import Config, LeaderElectionConfig, ServerConfig
from extender.engine.policy.framework import Weighted
from extender.engine.policy.profile import Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.kube.api import NODES, Obj, PatchType
from extender.service.app import Service
from tests.support.builders import NS
from tests.support.service import World, until, wall

pytestmark = pytest.mark.looptime


@dataclass
class Acme:
    """A third party's score that cannot cope with vreplicas of 2 slots until it is ``mended``."""

    name: ClassVar[str] = "Acme"
    mended: bool = False

    def score(self, candidate, spread):
        if spread.weight == 2 and not self.mended:
            raise RuntimeError("cannot tell")
        return candidate.free


class PolicyWorld(World):
    """A world whose service knows a profile ``acme`` too."""

    def __init__(self) -> None:
        super().__init__()
        self.acme = Acme()

    @classmethod
    async def create(cls, **options) -> "PolicyWorld":
        world = await super().create(**options)
        assert isinstance(world, cls)
        return world

    def service(self, **_options) -> Service:
        config = Config(
            server=ServerConfig(port=0), leader_election=LeaderElectionConfig(leader_elect=False)
        )
        acme = Profile(name="acme", scores=(Weighted(self.acme, 1),))
        profiles = {**BUILT_IN_PROFILES, acme.name: acme}
        return Service(
            self.api, config, now=wall, rng=random.Random(1), serve=False, profiles=profiles
        )

    async def taint(self, name: str, *taints: Obj) -> None:
        spec = {"spec": {"taints": list(taints)}}
        await self.cluster.patch(NODES, "", name, spec, patch_type=PatchType.MERGE)

    async def tolerate(self, *tolerations: Obj) -> None:
        await self.patch_stateful_set(template={"spec": {"tolerations": list(tolerations)}})


async def test_a_plugin_that_fails_on_one_vpod_hinders_no_other_and_is_asked_again():
    world = await PolicyWorld.create(profile="acme", replicas=2, maxPods=2)
    await world.pods(0, 1)
    async with world.serving() as service:
        await world.vpod("bad", 3, slotsPerVReplica=2)
        await world.vpod("good", 4)
        await until(lambda: world.published("good"), {0: 2, 1: 2}, timeout_s=2)
        assert await world.condition("bad") == ("False", "PluginFailed")
        (event,) = await world.events("FailedScheduling")
        assert "plugin Acme failed: score: RuntimeError: cannot tell" in event["note"]
        await asyncio.sleep(60)
        assert service.placer.queues.of(f"{NS}/dispatcher").sizes["unschedulable"] == 1, (
            "parked, not tried in a loop"
        )
        await world.vpod("later", 2)
        await until(lambda: world.published("later"), {0: 1, 1: 1}, timeout_s=2)
        world.acme.mended = True
        await world.set_vreplicas("good", 2)
        await until(lambda: world.condition("bad"), ("True", "AllPlaced"), timeout_s=2)
    assert await world.placed("bad") == 3


GPU = {"key": "gpu", "effect": "NoSchedule"}


async def a_zone_without_pods() -> PolicyWorld:
    """Three zones, of which the pool has pods in two; a vpod waits for the third."""
    world = await PolicyWorld.create(profile="ha", replicas=2, maxPods=2)
    await world.pods(0, 1)
    await world.vpod("a", 6)
    return world


async def test_a_zone_that_takes_the_pools_pods_no_more_sets_free_what_waited_for_it():
    world = await a_zone_without_pods()
    async with world.serving():
        await until(world.published, {0: 1, 1: 1}, timeout_s=2)
        assert await world.condition("a") == ("False", "InsufficientSlots")
        await world.taint("node-2", GPU)
        await until(world.published, {0: 3, 1: 3}, timeout_s=2)


async def test_a_template_that_tolerates_less_sets_free_what_waited():
    world = await a_zone_without_pods()
    await world.taint("node-2", GPU)
    await world.tolerate({"key": "gpu", "operator": "Exists"})
    async with world.serving():
        await until(world.published, {0: 1, 1: 1}, timeout_s=2)
        await world.tolerate()
        await until(world.published, {0: 3, 1: 3}, timeout_s=2)


async def test_a_node_that_goes_with_its_zone_sets_free_what_waited():
    world = await a_zone_without_pods()
    async with world.serving():
        await until(world.published, {0: 1, 1: 1}, timeout_s=2)
        await world.cluster.delete(NODES, "", "node-2")
        await until(world.published, {0: 3, 1: 3}, timeout_s=2)
