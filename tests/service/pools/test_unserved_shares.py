"""Shares that adapters are told to serve and do not serve, although their pods are Ready."""

import asyncio
import json

import pytest

from extender.model.assignment import (
    Acknowledged,
    Acknowledgement,
    AssignedShare,
    Assignment,
    acknowledged,
    decode_assignment,
    encode_acknowledged,
    encode_assignment,
    generation_of,
)
from extender.model.names import ACKNOWLEDGED_ANNOTATION, ASSIGNMENT_ANNOTATION
from extender.model.objects import Handoff, HandoffMode
from extender.service.placing.handover_view import HandOverViews
from extender.service.pools import unserved_shares
from extender.service.pools.unserved_shares import UnservedShares
from extender.service.watching.caches import Caches
from tests.support.builders import NS, POOL, a_node, a_pod, a_pool, a_vpod
from tests.support.service import World

pytestmark = pytest.mark.looptime


async def a_world() -> World:
    handoff = {"mode": "Overlap", "prepareTimeoutSeconds": 20}
    world = await World.create(replicas=1, handoff=handoff)
    await world.pods(0)
    await world.ready(0)
    return world


async def told(world: World) -> int:
    """The generation that the pod is told of now."""
    text = await world.annotation(0, ASSIGNMENT_ANNOTATION)
    return generation_of(text)


async def acknowledge(world: World, generation: int | None = None, *busy: str) -> None:
    """The adapter says that it serves all but ``busy``; of the newest generation, if of none."""
    said = {"generation": generation or await told(world), "serving": 0, "busy": busy}
    await world.annotate(0, **{ACKNOWLEDGED_ANNOTATION: json.dumps(said)})
    await asyncio.sleep(4)


async def available(world: World, name: str) -> tuple[str, str]:
    condition = (await world.conditions(name))["Available"]
    return condition["reason"], condition["message"]


async def test_what_an_adapter_that_hangs_is_told_counts_as_not_served_after_a_while():
    world = await a_world()
    async with world.serving() as service:
        await world.vpod("a", 2)
        await asyncio.sleep(2)
        await acknowledge(world)
        await world.vpod("b", 3)
        await asyncio.sleep(15)
        assert service.unserved_shares.vreplicas(POOL) == 3
        assert (await available(world, "b"))[0] == "AllReady"
        await asyncio.sleep(10)
        assert (await available(world, "b"))[0] == "AdapterNotServing"
        assert (await available(world, "a"))[0] == "AllReady"
        notes = [event["note"] for event in await world.events("Unavailable")]
        assert any("its adapter does not serve them" in note for note in notes)
        await acknowledge(world)
        assert (await available(world, "b"))[0] == "AllReady"
        assert service.unserved_shares.vreplicas(POOL) == 0


async def test_of_a_share_that_grows_only_what_is_new_is_not_served():
    world = await a_world()
    async with world.serving() as service:
        await world.vpod("a", 2)
        await asyncio.sleep(2)
        await acknowledge(world)
        await world.set_vreplicas("a", 5)
        await asyncio.sleep(2)
        await acknowledge(world, None, "tenant/a")
        assert service.unserved_shares.vreplicas(POOL) == 3
        await asyncio.sleep(25)
        reason, message = await available(world, "a")
        assert reason == "AdapterNotServing"
        assert message.startswith("2 of 5 vreplicas are served; nobody serves 3 on dispatcher-0")


async def test_an_adapter_that_is_always_one_generation_behind_serves_what_it_has_acknowledged():
    world = await a_world()
    async with world.serving() as service:
        generation = 0
        for count in range(8):
            await world.vpod(f"v{count}", 1)
            await asyncio.sleep(5)
            if generation:
                await acknowledge(world, generation)
                assert service.unserved_shares.vreplicas(POOL) == 1  # the newest
            generation = await told(world)
        assert service.caches.state.pools[POOL].unserved == {}


async def test_what_a_replica_sees_at_its_start_counts_as_served_unless_it_is_busy():
    world = await a_world()
    async with world.serving():
        for name in ("a", "b"):
            await world.vpod(name, 1)
        await asyncio.sleep(2)
        await acknowledge(world, None, "tenant/b")
        before = await told(world)
        await world.vpod("c", 1)
        await asyncio.sleep(2)
        assert await told(world) > before
    async with world.serving() as service:
        await asyncio.sleep(5)
        assert service.unserved_shares.vreplicas(POOL) == 1
        await asyncio.sleep(20)
        assert service.caches.state.pools[POOL].unserved == {"tenant/b": 1}


async def test_a_pod_without_the_contract_serves_while_it_is_ready():
    world = await a_world()
    async with world.serving() as service:
        await world.vpod("a", 2)
        await asyncio.sleep(30)
        assert service.unserved_shares.vreplicas(POOL) == 0
        assert (await available(world, "a"))[0] == "AllReady"


async def test_a_share_of_which_more_is_wanted_elsewhere_stays_served_while_it_is_busy():
    """The Python library says serving and busy while on_serve runs for a new ``of``."""
    handoff = {"mode": "Overlap", "prepareTimeoutSeconds": 20}
    world = await World.create(replicas=1, slots=2, handoff=handoff, maxPods=1)
    await world.pod(0, {}, node="node-0", slots=2)
    await world.ready(0)
    async with world.serving():
        await world.vpod("a", 2)
        await asyncio.sleep(2)
        await acknowledge(world)
        await world.set_vreplicas("a", 5)  # 2 stay here, 3 wait for room
        await asyncio.sleep(2)
        text = await world.annotation(0, ASSIGNMENT_ANNOTATION)
        key = frozenset({"tenant/a"})
        said = Acknowledgement(uid="", generation=await told(world), serving=key, busy=key)
        assignment = decode_assignment(text)
        assert assignment is not None
        stored = encode_acknowledged(acknowledged(said, assignment))
        await world.annotate(0, **{ACKNOWLEDGED_ANNOTATION: stored})
        await asyncio.sleep(30)
        assert (await available(world, "a"))[0] == "NotAllPlaced"


def test_a_look_looks_again_only_at_pods_that_have_changed(monkeypatch):
    caches, looked = Caches(), list[str]()
    state = caches.state
    state.node_changed(None, a_node())
    state.adapter_pool_changed(None, a_pool(handoff=Handoff(mode=HandoffMode.OVERLAP)))
    unserved = UnservedShares(
        caches, HandOverViews(caches), on_change=lambda *_: None, clock=lambda: 0.0
    )
    for index in range(3):
        shares = {f"tenant/v{index}": AssignedShare(1, 1, 1, 5)}
        assignment = Assignment(5, f"{NS}/dispatcher-{index}", f"uid-{index}", shares)
        caches.pods.update(
            a_pod(
                index,
                dict.fromkeys(shares, 1),
                ready=True,
                assignment_text=encode_assignment(assignment),
                acknowledged_text=encode_acknowledged(Acknowledged(5, 1)),
            )
        )
    note = unserved_shares._note_unserved

    def noted(known, *rest):
        looked.append(known.name)
        note(known, *rest)

    monkeypatch.setattr(unserved_shares, "_note_unserved", noted)
    unserved.look()
    assert sorted(looked) == ["dispatcher-0", "dispatcher-1", "dispatcher-2"]
    looked.clear()
    state.vpod_changed(None, a_vpod("v1", 1, {1: 1}))  # as its ledger has it
    unserved.look()
    assert looked == ["dispatcher-1"]
