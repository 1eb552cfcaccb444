"""Kubernetes' own tests of its volume binder, for what is about the binder's contract and not about
volumes: ``pkg/scheduler/framework/plugins/volumebinding/binder_test.go`` of 1.37.

An id is the upstream test's name for the row. A pod's vreplicas stand for its claims. Those that
its ordinal has already (published, or in its last ledger) stand for claims that are bound. Those
that are planned for it stand for claims that are bound or provisioned now.

Left out: rows about the matching of volumes, storage classes, capacity and migration to CSI, about
nodes that change while a claim is provisioned, and rows in which one of two caches refuses after
the other has assumed. Here one assume makes all changes.
"""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from extender.kube.api import Conflict
from extender.model.errors import AssumeError
from extender.model.reasons import ConflictReason
from extender.node.bind_ledger import BindLedger
from extender.node.candidates import Candidates
from extender.service.binding.binder import AssumedPod, BindRefused, SchedulerVReplicaBinder
from tests.support.builders import NS
from tests.support.service import World

NODE = "node-1"
SEEN_WITHIN_S = 5.0

pytestmark = pytest.mark.looptime


async def a_world(*vpods: tuple[str, int, dict[int, int]], node: str = "") -> World:
    """One adapter pod, pending unless ``node`` is given. ``vpods``: (name, vreplicas,
    published).
    """
    world = await World.create()
    for name, vreplicas, published in vpods:
        await world.vpod(name, vreplicas, published)
    await world.pod(0, {} if node else None, node=node)
    await world.sync()
    return world


def the_pod(world: World):
    pod = world.caches.pods.get(f"{NS}/dispatcher-0")
    assert pod is not None
    return pod


def find(world: World, binder: SchedulerVReplicaBinder) -> BindLedger:
    verdicts = binder.find(the_pod(world), Candidates.of([NODE]))
    assert list(verdicts.passed) == [NODE]
    found = binder.bind_ledger(the_pod(world).uid)
    assert found is not None
    return found


# -- TestAssumePodVolumes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vpods", "node", "all_bound", "ledger", "planned"),
    [
        pytest.param([], NODE, True, {}, [], id="all-bound"),
        pytest.param([("a", 2, {})], "", False, {"tenant/a": 2}, ["tenant/a"], id="one-binding"),
        pytest.param(
            [("a", 2, {}), ("b", 1, {})],
            "",
            False,
            {"tenant/a": 2, "tenant/b": 1},
            ["tenant/a", "tenant/b"],
            id="two-bindings",
        ),
        pytest.param([("a", 2, {0: 2})], "", False, {"tenant/a": 2}, [], id="pv-already-bound"),
    ],
)
async def test_assume(vpods, node, all_bound, ledger, planned):
    world = await a_world(*vpods, node=node)
    assumed = world.binder().assume(the_pod(world), NODE)
    assert assumed.all_bound is all_bound
    assert {key: share.vreplicas for key, share in assumed.bind_ledger.ledger.items()} == ledger
    assert sorted(assumed.bind_ledger.planned) == planned
    believed = the_pod(world)
    assert (believed.assumed, believed.node) == (not all_bound, NODE)


async def test_assume_tmpupdate_failed(monkeypatch):
    world = await a_world(("a", 2, {}))
    before = world.digest()

    def refuses(_pod) -> None:
        raise AssumeError("the cache has another version", "")

    monkeypatch.setattr(world.caches.pods, "assume", refuses)
    with pytest.raises(BindRefused) as refused:
        world.binder().assume(the_pod(world), NODE)
    assert refused.value.reason is ConflictReason.POD_CHANGED
    assert world.digest() == before


# -- TestRevertAssumedPodVolumes -------------------------------------------------------------------


async def test_revert_restores_what_was_there():
    world = await a_world(("a", 2, {}), ("b", 3, {0: 1}))
    before, pod = world.digest(), the_pod(world)
    binder = world.binder()
    assumed = binder.assume(pod, NODE)
    assert world.digest() != before
    binder.revert(assumed)
    assert (world.digest(), the_pod(world)) == (before, pod)


# -- TestFindAssumeVolumes -------------------------------------------------------------------------


async def test_find_returns_what_was_assumed_however_often_it_is_asked():
    world = await a_world(("a", 2, {}), ("b", 1, {0: 1}))
    binder, pending = world.binder(), the_pod(world)
    find(world, binder)
    assumed = binder.assume(pending, NODE)
    for _ in range(50):
        assert find(world, binder).ledger == assumed.bind_ledger.ledger


# -- TestBindPodVolumes, TestCheckBindings ---------------------------------------------------------

Later = Callable[[World], Coroutine[None, None, None]]


async def nothing(_world: World) -> None:
    pass


async def the_watch_shows_it(world: World) -> None:
    await asyncio.sleep(0.5)
    await world.sync("pods")


async def the_pod_is_deleted(world: World) -> None:
    await asyncio.sleep(0.5)
    await world.remove_pod(0)
    await world.sync("pods")


async def another_has_its_name(world: World) -> None:
    await asyncio.sleep(0.5)
    await world.remove_pod(0)
    await world.pod(0)
    await world.sync("pods")


async def bind(world: World, later: Later) -> tuple[AssumedPod, float]:
    """Assume and bind while something happens. Return how long the bind took, in seconds."""
    binder = world.binder(seen_within_s=SEEN_WITHIN_S)
    assumed = binder.assume(the_pod(world), NODE)
    loop = asyncio.get_running_loop()
    started, meanwhile = loop.time(), asyncio.create_task(later(world))
    try:
        await binder.bind(assumed)
    finally:
        took = loop.time() - started
        await meanwhile
    return assumed, took


async def test_bind_nothing_to_bind_empty():
    world = await a_world(node=NODE)
    assumed, took = await bind(world, nothing)
    assert (assumed.all_bound, took) == (True, 0.0)
    assert world.api.writes() == []


async def test_bind_succeeds_after_time():
    """The rows binding-static-pv-succeeds-after-time and binding-dynamic-pv-succeeds-after-time."""
    world = await a_world(("a", 2, {}))
    _, took = await bind(world, the_watch_shows_it)
    assert took == pytest.approx(0.5)
    assert (await world.node_of(0), await world.ledger(0)) == (NODE, {"tenant/a": 2})
    assert not the_pod(world).assumed


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(the_pod_is_deleted, id="pod-deleted-after-time"),
        pytest.param(another_has_its_name, id="pod-deleted-after-time, and made anew"),
    ],
)
async def test_bind_fails_once_the_watch_shows_that_the_pod_is_gone(later: Later):
    world = await a_world(("a", 2, {}))
    with pytest.raises(BindRefused, match="is gone") as refused:
        await bind(world, later)
    assert refused.value.reason is ConflictReason.POD_CHANGED


async def test_bind_bound_by_another_before_bind():
    """The row bound-by-pv-controller-before-bind."""
    world = await a_world(("a", 2, {}))
    binder = world.binder(seen_within_s=SEEN_WITHIN_S)
    assumed = binder.assume(the_pod(world), NODE)
    await world.annotate(0, note="somebody has written it since")
    with pytest.raises(Conflict):
        await binder.bind(assumed)


async def test_bind_times_out_and_has_succeeded_all_the_same():
    """The row binding-times-out. There it fails, since nobody knows whether the claims will be
    bound. Here the API server has answered that the pod is bound, and only our watch is late.
    """
    world = await a_world(("a", 2, {}))
    _, took = await bind(world, nothing)
    assert took == pytest.approx(SEEN_WITHIN_S)
    assert await world.node_of(0) == NODE
    assert the_pod(world).assumed, "it stays assumed until the watch shows it"
