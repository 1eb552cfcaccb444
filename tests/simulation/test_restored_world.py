"""etcd restored in a simulated world: what the checkers are told of it, what it excuses, and who
has to begin anew.
"""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import orjson
import pytest

from extender.kube.api import PODS, VPODS, Binding, Obj, PatchType, Resource
from extender.lab.apiserver.store import Snapshot
from extender.lab.faults import ACTOR
from extender.lab.simulation.checkers.all import Checkers
from extender.lab.simulation.run import Trial, simulate
from extender.lab.simulation.workload.acts import Scene
from extender.lab.simulation.workload.fault_acts import FaultActs
from extender.lab.simulation.world.facts import PLACEMENTS, POOL, SLOTS
from extender.lab.simulation.world.objects import vpod_object
from extender.lab.simulation.world.profile import FaultProfile
from extender.lab.simulation.world.scale import NAME, NS, TENANTS, Scale
from extender.lab.simulation.world.world import World
from tests.simulation.checker_scene import PERSON, REPLICA, in_virtual_time, later

pytestmark = [pytest.mark.sim, pytest.mark.timeout(120)]

TENANT = TENANTS[0]
BUMPS = pytest.mark.parametrize(
    "bump", [0, 1_000_000], ids=["versions go back", "versions go on above"]
)


class Stage:
    """A world without the service, whose part the test plays. ``found``: what the checkers say."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.checkers = Checkers()
        world.cluster.server.store.subscribers.append(self.checkers.on_change)

    @property
    def found(self) -> list[str]:
        found = [line.partition(" s: ")[2] for line in self.checkers.violations]
        self.checkers.violations.clear()
        return found

    async def pod(self, ordinal: int, ledger: Mapping[str, int]) -> None:
        metadata: Obj = {
            "name": f"{NAME}-{ordinal}",
            "labels": {POOL: NAME},
            "annotations": {SLOTS: "4"},
        }
        spec = {"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}]}
        await self.world.cluster.create(PODS, NS, {"metadata": metadata, "spec": spec})
        # The webhook knows what a new pod holds, and leaves no other ledger on it.
        await self.ledger(ordinal, ledger, actor=PERSON)

    async def ledger(
        self, ordinal: int, ledger: Mapping[str, int], *, actor: str = REPLICA
    ) -> None:
        text = orjson.dumps(dict(ledger)).decode()
        patch = {"metadata": {"annotations": {PLACEMENTS: text}}}
        await self._write(actor, (PODS, NS, f"{NAME}-{ordinal}"), patch)

    async def status(self, name: str, placed: Mapping[int, int], *, actor: str = REPLICA) -> None:
        placements = [{"podName": f"{NAME}-{o}", "vreplicas": count} for o, count in placed.items()]
        patch = {"status": {"placements": placements}}
        await self._write(actor, (VPODS, TENANT, name), patch, "status")

    async def _write(
        self, actor: str, of: tuple[Resource, str, str], patch: Obj, subresource: str = ""
    ) -> None:
        resource, namespace, name = of
        token = ACTOR.set(actor)
        try:
            await self.world.cluster.patch(
                resource,
                namespace,
                name,
                patch,
                patch_type=PatchType.MERGE,
                subresource=subresource,
            )
        finally:
            ACTOR.reset(token)

    async def placed(self) -> Snapshot:
        """``v`` and ``w`` on the first of two pods, long ago; a backup; since then ``v`` has grown
        to the second one.
        """
        for name in ("v", "w"):
            await self.world.cluster.create(VPODS, TENANT, vpod_object(name, 2, 1, NAME))
        await self.pod(0, {f"{TENANT}/v": 2, f"{TENANT}/w": 2})
        await self.pod(1, {})
        await self.status("v", {0: 2}, actor=PERSON)
        await self.status("w", {0: 2}, actor=PERSON)
        await later(200.0)
        backup = self.world.cluster.snapshot()
        await self.world.cluster.patch(
            VPODS, TENANT, "v", {"spec": {"vreplicas": 3}}, patch_type=PatchType.MERGE
        )
        await self.ledger(1, {f"{TENANT}/v": 1})
        await self.status("v", {0: 2, 1: 1})
        assert self.found == []
        return backup


@asynccontextmanager
async def on_stage(seed: int) -> AsyncIterator[Stage]:
    """The checkers look on from the beginning."""
    stage = Stage(World(seed, Scale(replicas=0, slots_per_pod=4)))
    async with stage.world:
        yield stage


@BUMPS
@in_virtual_time
async def test_what_was_written_since_the_backup_is_gone_for_the_checkers_and_no_loss_of_ours(
    bump: int,
):
    async with on_stage(1) as stage:
        stage.world.restore(await stage.placed(), bump=bump)
        assert stage.found == []
        assert dict(stage.checkers.vpods[f"{TENANT}/v"].placements) == {f"{NAME}-0": 2}
        assert stage.checkers.pods[f"{NAME}-1"].total == 0


@BUMPS
@in_virtual_time
async def test_what_a_restore_has_changed_is_excused_and_what_it_has_not_is_not(bump: int):
    async with on_stage(2) as stage:
        stage.world.restore(await stage.placed(), bump=bump)
        await stage.status("v", {0: 1})
        assert stage.found == []
        await stage.status("w", {0: 1})
        assert [line.partition(":")[0] for line in stage.found] == ["I4"]


@BUMPS
@in_virtual_time
async def test_a_restore_excuses_no_overcommit(bump: int):
    async with on_stage(3) as stage:
        stage.world.restore(await stage.placed(), bump=bump)
        await stage.ledger(1, {f"{TENANT}/v": 9})
        assert any(line.startswith(f"I1: {REPLICA} wrote 9 slots") for line in stage.found)


@BUMPS
@in_virtual_time
async def test_a_pod_that_a_restore_has_brought_back_is_not_a_former_one(bump: int):
    async with on_stage(5) as stage:
        world, name = stage.world, f"{NAME}-0"
        await stage.pod(0, {})
        uid = world.cluster.server.store.collection("", "pods").entries[NS, name].uid
        backup = world.cluster.snapshot()
        await world.cluster.delete(PODS, NS, name, grace_period_s=0)
        assert world._binds.former_uid(NS, name, "node-1") == uid
        world.restore(backup, bump=bump)
        assert world._binds.former_uid(NS, name, "node-1") == ""


@BUMPS
@in_virtual_time
async def test_a_former_pod_whose_binding_a_restore_has_undone_was_on_its_node_all_the_same(
    bump: int,
):
    async with on_stage(6) as stage:
        world, name = stage.world, f"{NAME}-0"
        spec = {"containers": [{"name": "c", "image": "i"}]}
        await world.cluster.create(PODS, NS, {"metadata": {"name": name}, "spec": spec})
        uid = world.cluster.server.store.collection("", "pods").entries[NS, name].uid
        backup = world.cluster.snapshot()
        await world.cluster.bind(Binding(NS, name, "node-0"))
        world.restore(backup, bump=bump)
        await world.cluster.delete(PODS, NS, name, grace_period_s=0)
        assert world._binds.former_uid(NS, name, "node-0") == ""
        assert world._binds.former_uid(NS, name, "node-1") == uid


@BUMPS
@in_virtual_time
async def test_a_bind_that_a_restore_undoes_between_two_calls_may_be_refused_the_second_time(
    bump: int,
):
    """Seed 8000000."""
    async with on_stage(7) as stage:
        world, name = stage.world, f"{NAME}-0"
        spec = {"containers": [{"name": "c", "image": "i"}]}
        await world.cluster.create(PODS, NS, {"metadata": {"name": name}, "spec": spec})
        uid = world.cluster.server.store.collection("", "pods").entries[NS, name].uid
        body = orjson.dumps({"PodNamespace": NS, "PodName": name, "PodUID": uid, "Node": "node-0"})
        answers = (200, b'{"Error":""}'), (200, b'{"Error":"CatchingUp: not known"}')
        world._binds.repeated("/bind", body, *answers)
        assert len(world.problems) == 1, "nothing has undone it"
        backup = world.cluster.snapshot()
        await world.cluster.bind(Binding(NS, name, "node-0"))
        world.restore(backup, bump=bump)
        world._binds.repeated("/bind", body, *answers)
        assert len(world.problems) == 1


@BUMPS
@in_virtual_time
async def test_every_replica_ends_and_another_begins_in_its_place(bump: int):
    async with World(4) as world:
        backup = world.cluster.snapshot()
        await later(60.0)
        world.restore(backup, bump=bump)
        assert world.outdated() == ["replica-1", "replica-2"]
        await later(30.0)
        assert [replica.name for replica in world.replicas] == ["replica-3", "replica-4"]
        assert (world.outdated(), world.problems) == ([], [])


@in_virtual_time
async def test_one_that_ends_so_although_nothing_was_restored_is_a_problem():
    async with World(5) as world:
        backup = world.cluster.snapshot()
        await later(60.0)
        world.cluster.restore(backup)
        await later(30.0)
        assert [line.partition(" ended with ")[0] for line in world.problems[:2]] == [
            "replica-1",
            "replica-2",
        ]


@in_virtual_time
async def test_the_act_restores_what_was_there_before_it_and_is_seen():
    async with World(6) as world:
        scene = Scene(world)
        scene.rng = random.Random(1)
        await world.cluster.create(VPODS, TENANT, vpod_object("v", 12, 1, NAME))
        await later(60.0)
        at = world.stored(VPODS)[TENANT, "v"]["metadata"]["generation"]
        assert await FaultActs(scene).acts["etcdRestored"]()
        assert world.stored(VPODS)[TENANT, "v"]["metadata"]["generation"] == at
        await later(30.0)
        assert (world.outdated(), world.problems) == ([], [])


RESTORED = [
    Trial(seed, events=60, profile=FaultProfile({"etcdRestored": 0.05}, others="none"))
    for seed in (2, 4, 6)
]
"""The second one fails where a restored history goes unnoticed."""


def test_after_a_restore_the_invariants_hold_again():
    outcomes = [simulate(trial) for trial in RESTORED]
    assert [outcome.problems for outcome in outcomes] == [[]] * len(RESTORED)
    assert sum(outcome.faults["etcdRestored"] for outcome in outcomes) >= len(RESTORED)
