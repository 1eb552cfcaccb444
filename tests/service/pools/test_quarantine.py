"""A vpod whose shares precede crashes of pods gets no further place until a person releases it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from extender.kube.api import ADAPTERPOOLS, PODS, VPODS, PatchType
from extender.lab.clock import wall_clock
from extender.model.names import RELEASED_ANNOTATION, UNSCHEDULABLE_ANNOTATION
from extender.model.timestamps import timestamp
from extender.service.app import Service
from tests.support.builders import NS
from tests.support.service import TENANT, World, until

pytestmark = pytest.mark.looptime


class Crashing:
    """A pool of four pods with ``spec.quarantine``."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._restarts: dict[int, int] = {}

    @classmethod
    @asynccontextmanager
    async def serving(cls, **quarantine: int) -> AsyncIterator["Crashing"]:
        limits = {"crashedPods": 3, "withinSeconds": 60, "maxVPods": 1, **quarantine}
        world = await World.create(replicas=4, quarantine=limits, minPods=4)
        await world.pods(0, 1, 2, 3)
        async with world.serving():
            yield cls(world)

    async def crash(self, *ordinals: int, reason: str = "Error", exit_code: int = 1) -> None:
        """The adapter's container of these pods ends, and is started again."""
        for ordinal in ordinals:
            self._restarts[ordinal] = self._restarts.get(ordinal, 0) + 1
            container = {
                "name": "adapter",
                "restartCount": self._restarts[ordinal],
                "lastState": {"terminated": {"exitCode": exit_code, "reason": reason}},
            }
            name = f"dispatcher-{ordinal}"
            await self.world.patch_status(PODS, NS, name, containerStatuses=[container])

    async def quarantined(self, name: str = "bad") -> str:
        """The status and the reason of the condition."""
        found = (await self.world.conditions(name)).get("Quarantined", {})
        return f"{found.get('status', '')} {found.get('reason', '')}".strip()

    async def release(self, name: str = "bad", ago_s: float = 0.0) -> None:
        stamp = timestamp(wall_clock() - ago_s)
        patch = {"metadata": {"annotations": {RELEASED_ANNOTATION: stamp}}}
        await self.world.cluster.patch(VPODS, TENANT, name, patch, patch_type=PatchType.MERGE)


async def placed(it: Crashing, name: str, vreplicas: int) -> None:
    await until(lambda: it.world.placed(name), vreplicas)


async def stays(read: Callable[[], Awaitable[object]], wanted: object, for_s: float = 30.0) -> None:
    """It reads so now, and for a while."""
    for _ in range(10):
        assert await read() == wanted
        await asyncio.sleep(for_s / 10)


async def a_bad_vpod(it: Crashing) -> None:
    """Three pods crash soon after they got a share of it."""
    await it.world.vpod("bad", 3)
    await placed(it, "bad", 3)
    await it.crash(0, 1, 2)
    await until(it.quarantined, "True PodsCrashed")


async def test_three_pods_that_crash_after_they_got_a_share_put_its_vpod_into_quarantine():
    async with Crashing.serving() as it:
        await a_bad_vpod(it)
        (event,) = await it.world.events("Quarantined")
        assert "dispatcher-0, dispatcher-1, dispatcher-2" in event["note"]


async def test_it_keeps_what_it_has_and_gets_no_further_place():
    async with Crashing.serving() as it:
        await a_bad_vpod(it)
        await it.world.set_vreplicas("bad", 9)
        await until(lambda: it.world.condition("bad"), ("False", "Quarantined"))
        await stays(lambda: it.world.placed("bad"), 3)


async def test_it_may_still_become_smaller():
    async with Crashing.serving() as it:
        await a_bad_vpod(it)
        await it.world.set_vreplicas("bad", 1)
        await placed(it, "bad", 1)


async def test_other_vpods_go_on():
    async with Crashing.serving() as it:
        await a_bad_vpod(it)
        await it.world.vpod("good", 8)
        await placed(it, "good", 8)


async def test_nothing_of_it_is_placed_elsewhere_when_its_pod_stays_away():
    async with Crashing.serving() as it:
        await it.world.patch_pool(rescheduleAfterSeconds=5)
        await a_bad_vpod(it)
        before = await it.world.published("bad")
        await it.world.ready(0, ready=False)
        await stays(lambda: it.world.published("bad"), before)


async def test_the_evictor_moves_nothing_of_it_off_a_drained_pod():
    async with Crashing.serving() as it:
        await a_bad_vpod(it)
        before = await it.world.published("bad")
        await it.world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        await stays(lambda: it.world.published("bad"), before, for_s=300.0)


async def test_a_person_releases_it():
    async with Crashing.serving() as it:
        await a_bad_vpod(it)
        await it.world.set_vreplicas("bad", 9)
        await until(lambda: it.world.condition("bad"), ("False", "Quarantined"))
        await it.release()
        await placed(it, "bad", 9)
        await until(it.quarantined, "False Released")
        assert len(await it.world.events("Released")) == 1
        await stays(it.quarantined, "False Released")


async def test_a_pool_that_goes_while_a_release_is_written_ends_nobody():
    """Seed 910000123."""
    async with Crashing.serving() as it:
        await a_bad_vpod(it)
        write = it.world.api.pause("patch", "vpods/status", name="bad")
        await it.release()
        await write.reached.wait()
        await it.world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")
        await asyncio.sleep(1)
        write.go_on.set()
        await asyncio.sleep(1)
        await it.world.pool(quarantine={"crashedPods": 3, "withinSeconds": 60, "maxVPods": 1})
        await it.world.vpod("good", 2)
        await placed(it, "good", 2)


async def test_a_release_before_the_quarantine_began_releases_nothing():
    async with Crashing.serving() as it:
        await a_bad_vpod(it)
        await it.release(ago_s=3600.0)
        await stays(it.quarantined, "True PodsCrashed")


async def test_a_released_vpod_whose_pods_crash_again_goes_back():
    async with Crashing.serving(crashedPods=2) as it:
        await it.world.vpod("bad", 2)
        await placed(it, "bad", 2)
        await it.crash(0, 1)
        await until(it.quarantined, "True PodsCrashed")
        await it.release()
        await until(it.quarantined, "False Released")
        await it.world.set_vreplicas("bad", 4)
        await placed(it, "bad", 4)
        await asyncio.sleep(2.0)  # times in annotations and conditions are whole seconds
        await it.crash(2, 3)
        await until(it.quarantined, "True PodsCrashed")


@pytest.mark.parametrize(
    ("reason", "exit_code"), [("Unknown", 255), ("ContainerStatusUnknown", 137), ("Completed", 0)]
)
async def test_an_end_that_is_no_crash_counts_against_nobody(reason: str, exit_code: int):
    async with Crashing.serving() as it:
        await it.world.vpod("bad", 3)
        await placed(it, "bad", 3)
        await it.crash(0, 1, 2, reason=reason, exit_code=exit_code)
        await stays(it.quarantined, "")


async def test_more_vpods_than_may_be_in_quarantine_have_another_cause():
    async with Crashing.serving() as it:
        for name in ("bad", "worse"):
            await it.world.vpod(name, 3)
            await placed(it, name, 3)
        await it.crash(0, 1, 2)
        await until(lambda: it.world.events("PodsCrash"))
        assert await it.quarantined() == ""


async def test_the_next_leader_goes_on_from_what_it_has_seen_itself():
    limits = {"crashedPods": 3, "withinSeconds": 60, "maxVPods": 1}
    world = await World.create(replicas=4, quarantine=limits, minPods=4)
    await world.pods(0, 1, 2, 3)
    it = Crashing(world)
    first: Service
    async with world.serving(checked=False) as first, world.serving() as second:
        await world.vpod("bad", 3)
        await placed(it, "bad", 3)
        await it.crash(0, 1)
        assert second.quarantine is not first.quarantine
        await until(lambda: len(second.quarantine), len(first.quarantine))


async def test_a_pool_without_it_puts_nobody_into_quarantine():
    async with Crashing.serving() as it:
        await it.world.patch_pool(quarantine=None)
        await it.world.vpod("bad", 3)
        await placed(it, "bad", 3)
        await it.crash(0, 1, 2)
        await stays(it.quarantined, "")
