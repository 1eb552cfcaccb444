"""Exclusive pools: an adapter that stops acknowledging loses its shares after its lease, although
its pod is Ready. The adapters here are the library's, without its I/O.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from vreplica_adapter.machine import Machine
from vreplica_adapter.progress import Outcome, Start
from vreplica_adapter.wire import read_assignment, write_acknowledgement

from extender.kube.token_review import TokenUser
from extender.model.assignment import (
    Acknowledged,
    Assignment,
    encode_acknowledged,
    encode_assignment,
)
from extender.model.decode import pod_from
from extender.model.errors import WireError
from extender.model.names import (
    ACKNOWLEDGED_ANNOTATION,
    ASSIGNMENT_ANNOTATION,
    UNSCHEDULABLE_ANNOTATION,
)
from extender.model.objects import Handoff, HandoffMode
from extender.model.timestamps import epoch_s, timestamp
from extender.service.app import Service
from extender.service.http.adapters.acknowledge import AcknowledgeVerb
from extender.service.http.adapters.callers import AdapterCaller
from extender.service.pools.adapter_leases import HEARS_S, LOOK_S, STORED_S, AdapterLeases
from extender.service.watching.caches import Caches
from tests.support.builders import NS, POOL, a_node, a_pod, a_pool, a_stateful_set
from tests.support.service import World, until, wall
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime
KEY = "tenant/a"
LEASE_S = 10
RESCHEDULE_S = 15
STEP_S = 0.1


@dataclass
class LibraryAdapter:
    """The adapter of one pod. ``stopped_at``: when it has last stopped serving (loop's time).
    ``hears_s``: it hears of an assignment so much later.
    """

    world: World
    verb: AcknowledgeVerb
    ordinal: int
    machine: Machine = field(default_factory=Machine)
    cut_off: bool = False
    stopped_at: float = 0.0
    served: int = 0
    hears_s: float = 0.0
    told: list[tuple[float, str]] = field(default_factory=list)

    async def run(self) -> None:
        await self.world.ready(self.ordinal)
        loop, heard_at, known = asyncio.get_running_loop(), 0.0, None
        while True:
            await asyncio.sleep(STEP_S)
            now = loop.time()
            self.machine.tick(now)
            text = await self._heard(now)
            if text is not None and not self.cut_off:
                wall_now = datetime.fromtimestamp(wall(), UTC)
                self.machine.assign(read_assignment(text.encode()), now, wall_now, news=True)
                every_s = (self.machine.lease_s or 3600.0) / 3
                due = now >= heard_at + every_s or self.machine.unsaid() or text != known
                if due and await self._say(now):
                    heard_at, known = now, text
            self._act(now)

    async def _heard(self, now: float) -> str | None:
        """The assignment as the adapter knows it."""
        text = await self.world.annotation(self.ordinal, ASSIGNMENT_ANNOTATION)
        if text is not None and text not in [one for _, one in self.told[-1:]]:
            self.told.append((now, text))
        return next((one for at, one in self.told[::-1] if at <= now - self.hears_s), None)

    def _act(self, now: float) -> None:
        while actions := self.machine.actions():
            for action in actions:
                if isinstance(action, Start):
                    self.machine.finished(action.progress, Outcome.DONE, "", now)
        progress, served = self.machine.progress.get(KEY), 0
        if progress is not None and progress.in_service and progress.served is not None:
            served = progress.served.vreplicas
        if self.served and not served:
            self.stopped_at = now
        self.served = served

    async def _say(self, now: float) -> bool:
        said = self.machine.acknowledgement()
        assert said is not None
        caller = AdapterCaller(TokenUser("adapter"), f"{NS}/dispatcher-{self.ordinal}", said.uid)
        try:
            answer, _ = await self.verb.acknowledge(caller, write_acknowledgement(said, {}))
        except WireError:
            return False
        now = asyncio.get_running_loop().time()
        self.machine.acknowledged(said, now, now, orjson.loads(answer)["generation"])
        return True


@dataclass
class AtWork:
    world: World
    service: Service
    adapters: list[LibraryAdapter]

    def served(self) -> dict[int, int]:
        return {one.ordinal: one.served for one in self.adapters if one.served}

    async def serves(self, wanted: dict[int, int], timeout_s: float) -> float:
        """Wait until this is served. Return how long that took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await until(lambda: self.served() == wanted, timeout_s=timeout_s)
        return loop.time() - began

    async def acknowledged(self, ordinal: int) -> dict[str, Any]:
        text = await self.world.annotation(ordinal, ACKNOWLEDGED_ANNOTATION)
        found: dict[str, Any] = orjson.loads(text or "{}")
        return found

    async def available(self) -> tuple[str, str]:
        found = (await self.world.conditions("a"))["Available"]
        return found["reason"], found["message"]


@asynccontextmanager
async def at_work_in(
    *ordinals: int, mode: str = "Exclusive", lease_s: int = LEASE_S, **pool: Any
) -> AsyncIterator[AtWork]:
    """A pool whose vpod of four vreplicas is served by these adapters."""
    lease = {"leaseSeconds": lease_s} if mode == "Exclusive" else {}
    pool = {"minPods": len(ordinals), "rescheduleAfterSeconds": RESCHEDULE_S, **pool}
    world = await World.create(replicas=len(ordinals), handoff={"mode": mode, **lease}, **pool)
    await world.pods(*ordinals)
    await world.vpod("a", 4)
    async with world.serving() as service:
        verb = service.acknowledge_verb(service.load_verb())
        scene = AtWork(world, service, [LibraryAdapter(world, verb, one) for one in ordinals])
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(adapter.run()) for adapter in scene.adapters]
            share = 4 // len(ordinals)
            await scene.serves(dict.fromkeys(ordinals, share), 60 + lease_s)
            yield scene
            for task in running:
                task.cancel()


async def test_an_adapter_that_is_cut_off_stops_first_and_then_loses_its_shares():
    async with at_work_in(0, 1) as scene:
        await asyncio.sleep(100)
        cut_at = asyncio.get_running_loop().time()
        scene.adapters[0].cut_off = True
        await scene.serves({1: 2}, 2 * LEASE_S)
        assert scene.adapters[0].stopped_at <= cut_at + LEASE_S

        await until(lambda: is_expired(scene, 0), timeout_s=STORED_S + LEASE_S + 2 * LOOK_S)
        (event,) = await scene.world.events("LeaseExpired")
        assert event["regarding"]["name"] == "dispatcher-0"
        assert event["note"].startswith("the adapter has not renewed its lease of 10 s")
        await asyncio.sleep(12)
        assert await scene.available() == (
            "LeaseExpired",
            "2 of 4 vreplicas are served; nobody serves 2 on dispatcher-0 "
            "(the adapter's lease has run out)",
        )
        await scene.serves({1: 4}, RESCHEDULE_S + LEASE_S + 1)
        assert await scene.world.published() == {1: 4}


async def is_expired(scene: AtWork, ordinal: int) -> bool:
    return (await scene.acknowledged(ordinal)).get("expired") is True


async def test_a_drain_does_not_wait_for_an_adapter_whose_lease_has_run_out():
    """Its deadline may be an hour away."""
    handoff = {"mode": "Exclusive", "leaseSeconds": LEASE_S, "drainTimeoutSeconds": 3600}
    async with at_work_in(0, 1, rescheduleAfterSeconds=None) as scene:
        await scene.world.patch_pool(handoff=handoff)
        await asyncio.sleep(10)
        scene.adapters[0].cut_off = True
        await scene.world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        took_s = await scene.serves({1: 4}, STORED_S + 3 * LEASE_S)
        assert took_s > STORED_S
        assert await scene.world.published() == {1: 4}


async def test_an_adapter_that_comes_back_is_counted_on_again_with_what_it_had():
    async with at_work_in(0, 1, rescheduleAfterSeconds=None) as scene:
        scene.adapters[0].cut_off = True
        await until(lambda: is_expired(scene, 0), timeout_s=STORED_S + 3 * LEASE_S)
        await asyncio.sleep(30)
        assert (await scene.available())[0] == "LeaseExpired"
        scene.adapters[0].cut_off = False
        await scene.serves({0: 2, 1: 2}, 5)
        assert not await is_expired(scene, 0)
        await asyncio.sleep(5)
        assert (await scene.available())[0] == "AllReady"
        assert await scene.world.published() == {0: 2, 1: 2}


async def test_renewals_are_stored_once_a_minute():
    async with at_work_in(0) as scene:
        await asyncio.sleep(STORED_S)
        before, writes = await scene.acknowledged(0), scene.world.api.count("patch", "pods")
        await asyncio.sleep(10 * STORED_S)
        after = await scene.acknowledged(0)
        assert 9 <= scene.world.api.count("patch", "pods") - writes <= 10
        passed_s = epoch_s(after["renewed"], 0) - epoch_s(before["renewed"], 0)
        assert 9 * STORED_S <= passed_s <= 11 * STORED_S


def leases_of(world: World, caches: Caches) -> AdapterLeases:
    clock = asyncio.get_running_loop().time
    recorder = world.recorder()
    return AdapterLeases(
        caches, fenced=lambda _pool: world.api, recorder=recorder, clock=clock, now=wall
    )


@pytest.mark.parametrize(
    ("stored_s_ago", "seen_s_ago", "stores"),
    [
        pytest.param(59, 59, False, id="lately"),
        pytest.param(60, 60, True, id="a minute ago"),
        pytest.param(60, 1, True, id="its watch was behind (seed 122428729)"),
        pytest.param(-3600, 59, False, id="its clock is an hour behind"),
        pytest.param(-3600, 60, True, id="its clock is an hour behind, and a minute has passed"),
        pytest.param(3600, 1, True, id="its clock is an hour ahead"),
        pytest.param(1, None, True, id="it has not seen it, because it has just started"),
    ],
)
async def test_when_a_replica_stores_a_renewal(
    stored_s_ago: float, seen_s_ago: float | None, stores: bool
):
    world, caches = World(), Caches()
    leases = leases_of(world, caches)
    stored = timestamp(wall() + (seen_s_ago or 0) - stored_s_ago)
    text = encode_acknowledged(Acknowledged(1, 1, renewed=stored))
    told = encode_assignment(Assignment(1, f"{NS}/dispatcher-0", "uid-0", {}, LEASE_S))
    pod = a_pod(0, {}, assignment_text=told, acknowledged_text=text, resource_version="2")
    if seen_s_ago is not None:
        caches.pods.update(a_pod(0, {}, assignment_text=told, resource_version="1"))
        caches.pods.update(pod)
        await asyncio.sleep(seen_s_ago)
    expected = timestamp(wall()) if stores else stored
    assert leases.renewed(pod) == expected


async def test_without_leases_nothing_is_stored_and_nobody_is_marked():
    async with at_work_in(0, 1, mode="Overlap") as scene:
        await asyncio.sleep(10)
        scene.adapters[0].cut_off = True
        writes = scene.world.api.count("patch", "pods")
        await asyncio.sleep(10 * STORED_S)
        assert scene.world.api.count("patch", "pods") == writes
        assert scene.served() == {0: 2, 1: 2}


async def test_a_pod_that_is_restarted_and_stays_silent_is_not_served_either():
    """As somebody does who sees its lease run out: the new pod had counted as one that serves."""
    async with at_work_in(0, 1, rescheduleAfterSeconds=None) as scene:
        scene.adapters[0].cut_off = True
        await until(lambda: is_expired(scene, 0), timeout_s=STORED_S + 3 * LEASE_S)
        await scene.world.remove_pod(0)
        await scene.world.pods(0)
        await scene.world.ready(0)
        await until(lambda: is_expired(scene, 0), timeout_s=HEARS_S + LEASE_S + 2 * LOOK_S)
        await asyncio.sleep(15)
        assert (await scene.available())[0] == "LeaseExpired"


async def test_an_adapter_that_has_never_acknowledged_has_time_to_hear_of_its_lease():
    async with at_work_in(0) as scene:
        await scene.world.patch_stateful_set(replicas=2)
        await scene.world.patch_pool(minPods=2)
        await scene.world.pods(1)
        await scene.world.ready(1)
        await asyncio.sleep(HEARS_S + LEASE_S - 1)
        assert await scene.acknowledged(1) == {}
        await until(lambda: is_expired(scene, 1), timeout_s=3 * LOOK_S)


@pytest.mark.parametrize("hears_s", [1.0, 5.0, 85.0])
async def test_adapters_that_serve_when_their_pool_becomes_exclusive_are_not_marked(hears_s: float):
    """They have never had a lease, and hear late that they need one."""
    async with at_work_in(0, 1, mode="Overlap") as scene:
        await asyncio.sleep(300)
        for adapter in scene.adapters:
            adapter.hears_s = hears_s
        handoff = {"mode": "Exclusive", "leaseSeconds": LEASE_S}
        await scene.world.patch_pool(handoff=handoff)
        await asyncio.sleep(hears_s + 2 * STORED_S)
        assert await scene.world.events("LeaseExpired") == []
        assert scene.served() == {0: 2, 1: 2}
        assert await scene.world.published() == {0: 2, 1: 2}


@pytest.mark.timeout(60)  # minutes of many adapters, and the machine may be busy
@pytest.mark.parametrize("hears_s", [1.0, 20.0, 85.0])
async def test_adapters_whose_lease_is_made_shorter_are_not_marked_while_they_have_the_longer_one(
    hears_s: float,
):
    async with at_work_in(0, 1, lease_s=600) as scene:
        await asyncio.sleep(250)
        scene.adapters[0].hears_s = hears_s
        await scene.world.patch_pool(handoff={"mode": "Exclusive", "leaseSeconds": LEASE_S})
        for _ in range(int(hears_s)):
            await asyncio.sleep(1)
            assert not (await is_expired(scene, 0) and scene.adapters[0].served)


async def test_a_container_that_is_ready_again_has_time_to_say_so():
    async with at_work_in(0, 1, rescheduleAfterSeconds=None) as scene:
        await scene.world.ready(0, ready=False)
        scene.adapters[0].cut_off = True
        await asyncio.sleep(5 * STORED_S)
        await scene.world.ready(0)
        await asyncio.sleep(2 * LOOK_S)
        assert await scene.world.events("LeaseExpired") == []


@pytest.mark.parametrize("mode", ["Overlap", "None"])
async def test_a_mark_goes_when_the_pool_is_exclusive_no_more(mode: str):
    async with at_work_in(0, 1, rescheduleAfterSeconds=None) as scene:
        scene.adapters[0].cut_off = True
        await until(lambda: is_expired(scene, 0), timeout_s=STORED_S + 3 * LEASE_S)
        await scene.world.patch_pool(handoff={"mode": mode})
        await asyncio.sleep(3 * LOOK_S)
        assert not await is_expired(scene, 0)
        assert (await scene.available())[0] == "AllReady"


async def test_a_pod_that_is_listed_again_counts_from_then():
    """Its watch was cut off while the pod was made anew."""
    async with at_work_in(0) as scene:
        await asyncio.sleep(5 * STORED_S)
        pods = scene.service.caches.pods
        (pod,) = pods.list()
        pods.replace([], str(int(pod.resource_version) + 1))
        pods.replace([pod], str(int(pod.resource_version) + 2))
        await asyncio.sleep(LOOK_S + 1)
        assert await scene.world.events("LeaseExpired") == []


async def test_if_no_adapter_reaches_the_service_nothing_moves_and_the_first_one_gets_no_more():
    async with at_work_in(0, 1) as scene:
        await asyncio.sleep(10)
        for adapter in scene.adapters:
            adapter.cut_off = True
        await asyncio.sleep(STORED_S + 10 * RESCHEDULE_S)
        assert [await is_expired(scene, ordinal) for ordinal in (0, 1)] == [True, True]
        assert (await scene.available())[1].startswith("0 of 4 vreplicas are served")
        scene.adapters[1].cut_off = False
        await scene.serves({1: 2}, 5)
        await asyncio.sleep(RESCHEDULE_S - 5)
        assert await scene.world.published() == {0: 2, 1: 2}
        scene.adapters[0].cut_off = False
        await scene.serves({0: 2, 1: 2}, 5)
        assert await scene.world.events("PodsAbandoned") == []


async def test_a_pod_is_marked_by_its_leader_a_lease_after_it_began_to_lead():
    """However long it has watched before."""
    world, caches = World(), Caches()
    fill(caches)
    leases = leases_of(world, caches)
    told = encode_assignment(Assignment(1, f"{NS}/dispatcher-0", "uid-0", {}, LEASE_S))
    said = encode_acknowledged(Acknowledged(1, 0, renewed=timestamp(wall())))
    caches.pods.update(a_pod(0, {}, ready=True, assignment_text=told, acknowledged_text=said))
    await asyncio.sleep(10 * STORED_S)
    async with at_work(leases.run()):
        await asyncio.sleep(STORED_S + LEASE_S - 1)
        assert world.api.count("patch", "pods") == 0
        await asyncio.sleep(LOOK_S + 1)
        assert world.api.count("patch", "pods") == 1


@pytest.mark.parametrize("lease_s", [LEASE_S, 200])
async def test_the_lease_that_counts_is_the_one_that_the_adapter_was_told(lease_s: int):
    """Its pool's may be shorter by now."""
    world, caches = World(), Caches()
    fill(caches)
    told = encode_assignment(Assignment(1, f"{NS}/dispatcher-0", "uid-0", {}, lease_s))
    said = encode_acknowledged(Acknowledged(1, 0, renewed=timestamp(wall())))
    pod = a_pod(0, {}, ready=True, assignment_text=told, acknowledged_text=said)
    caches.pods.update(pod)
    async with at_work(leases_of(world, caches).run()):
        await asyncio.sleep(STORED_S + lease_s - 1)
        assert world.api.count("patch", "pods") == 0
        await asyncio.sleep(LOOK_S + 1)
        assert world.api.count("patch", "pods") == 1


async def test_a_pod_whose_ordinal_is_gone_is_marked_too():
    """It serves what it has until there is room elsewhere."""
    world, caches = World(), Caches()
    fill(caches)
    told = encode_assignment(Assignment(1, f"{NS}/dispatcher-1", "uid-1", {}, LEASE_S))
    said = encode_acknowledged(Acknowledged(1, 0, renewed=timestamp(wall())))
    caches.pods.update(a_pod(1, {}, ready=True, assignment_text=told, acknowledged_text=said))
    assert caches.state.pool(POOL).pods["dispatcher-1"].condemned
    async with at_work(leases_of(world, caches).run()):
        await asyncio.sleep(STORED_S + LEASE_S + LOOK_S)
    assert world.api.count("patch", "pods", "dispatcher-1") == 1


@pytest.mark.parametrize("change", ["a renewal", "another pod"])
async def test_what_the_leader_has_not_seen_yet_is_not_marked(change: str):
    """Its watch is behind: its write compares what is stored."""
    world, caches = await World.create(replicas=1), Caches()
    await world.pods(0)
    told = encode_assignment(Assignment(1, f"{NS}/dispatcher-0", await world.uid(0), {}, LEASE_S))
    said = encode_acknowledged(Acknowledged(1, 0, renewed=timestamp(wall())))
    await world.annotate(0, **{ASSIGNMENT_ANNOTATION: told, ACKNOWLEDGED_ANNOTATION: said})
    await world.ready(0)
    fill(caches)
    caches.pods.update(pod_from(await world.pod_object(0)))
    if change == "a renewal":
        said = encode_acknowledged(Acknowledged(1, 0, renewed=timestamp(wall() + 9)))
    else:
        await world.remove_pod(0)
        await world.pods(0)
    await world.annotate(0, **{ASSIGNMENT_ANNOTATION: told, ACKNOWLEDGED_ANNOTATION: said})
    async with at_work(leases_of(world, caches).run()):
        await asyncio.sleep(STORED_S + LEASE_S + 3 * LOOK_S)
        assert world.api.count("patch", "pods") > 0
        assert await world.annotation(0, ACKNOWLEDGED_ANNOTATION) == said


def fill(caches: Caches) -> None:
    handoff = Handoff(mode=HandoffMode.EXCLUSIVE, lease_s=LEASE_S)
    caches.pools.update(a_pool(handoff=handoff))
    caches.stateful_sets.update(a_stateful_set(1))
    for number in range(3):
        caches.nodes.update(a_node(f"node-{number}"))
