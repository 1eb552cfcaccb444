"""The shipped fake answers as it is told, by the real one's Protocol."""

import asyncio
import inspect

import pytest

from extender.kube.api import Conflict
from extender.model.reasons import ConflictReason
from extender.node.candidates import Candidates
from extender.service.binding.binder import BindRefused, SchedulerVReplicaBinder, VReplicaBinder
from extender.service.binding.pod_binder import PodBinder
from tests.support.builders import NS, a_pod
from tests.support.fake_binder import FakeBinderConfig, FakeVReplicaBinder
from tests.support.service import World, always, lost

NODES = ["node-0", "node-1"]


def find(fake: FakeVReplicaBinder, uid: str = "uid-0"):
    return fake.find(a_pod(0, node="", uid=uid), Candidates.of(NODES), lambda _name: None)


def conforming(fake: FakeVReplicaBinder, real: SchedulerVReplicaBinder) -> list[VReplicaBinder]:
    """mypy: both are one."""
    return [fake, real]


def test_both_binders_have_the_protocols_methods():
    for name, wanted in inspect.getmembers(VReplicaBinder, inspect.isfunction):
        if not name.startswith("_"):
            for binder in (FakeVReplicaBinder, SchedulerVReplicaBinder):
                method = getattr(binder, name)
                assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(wanted)
                assert len(inspect.signature(method).parameters) == len(
                    inspect.signature(wanted).parameters
                )


def test_it_refuses_the_nodes_it_was_told_to_refuse():
    fake = FakeVReplicaBinder(
        FakeBinderConfig(find_reasons={"node-1": (ConflictReason.NODE_SLOTS_EXCEEDED,)})
    )
    verdicts = find(fake)
    assert list(verdicts.passed) == ["node-0"]
    assert verdicts.failed == {"node-1": (ConflictReason.NODE_SLOTS_EXCEEDED,)}
    assert fake.bind_ledger("uid-0") is fake.config.bind_ledger


def test_it_refuses_to_assume_as_told():
    fake = FakeVReplicaBinder(
        FakeBinderConfig(assume_error=BindRefused(ConflictReason.POD_CHANGED))
    )
    with pytest.raises(BindRefused):
        fake.assume(a_pod(0, node=""), "node-0")
    assert fake.assumed == {}


async def test_it_raises_the_bind_errors_it_was_given_in_order_and_then_binds():
    fake = FakeVReplicaBinder(
        FakeBinderConfig(bind_errors=[lost(), Conflict(409, "Conflict", "stale")])
    )
    for error in (type(lost()), Conflict):
        assumed = fake.assume(a_pod(0, node=""), "node-0")
        with pytest.raises(error):
            await fake.bind(assumed)
        fake.revert(assumed)
    await fake.bind(fake.assume(a_pod(0, node=""), "node-0"))
    assert fake.bound == {"uid-0": "node-0"}
    assert fake.assumed == {}
    assert [verb for verb, _, _ in fake.calls] == ["assume", "bind", "revert"] * 2 + [
        "assume",
        "bind",
    ]


async def test_pod_binder_retries_a_conflict_of_any_binder_and_reverts_each_time():
    world = await World.create()
    uid = await world.pod(0)
    await world.sync()
    fake = FakeVReplicaBinder(FakeBinderConfig(bind_errors=[Conflict(409, "Conflict", "stale")]))
    await PodBinder(world.api, world.caches, fake, knows_past=always).bind(
        NS, "dispatcher-0", uid, "node-1"
    )
    assert [verb for verb, _, _ in fake.calls] == ["assume", "bind", "revert", "assume", "bind"]
    assert fake.bound == {uid: "node-1"}


@pytest.mark.looptime
async def test_pod_binder_reverts_what_is_in_doubt_once_when_it_expires():
    world = await World.create()
    uid = await world.pod(0)
    await world.sync()
    fake = FakeVReplicaBinder(FakeBinderConfig(bind_errors=[lost()]))
    with pytest.raises(type(lost())):
        await PodBinder(world.api, world.caches, fake, knows_past=always).bind(
            NS, "dispatcher-0", uid, "node-1"
        )
    assert [verb for verb, _, _ in fake.calls] == ["assume", "bind"]
    await asyncio.sleep(31)
    assert [verb for verb, _, _ in fake.calls] == ["assume", "bind", "revert"]
