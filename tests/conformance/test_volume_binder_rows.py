"""Kubernetes' own tests of its volume binder, for what is about the binder's contract and not about
volumes: ``pkg/scheduler/framework/plugins/volumebinding/binder_test.go`` of 1.37.

An id is the upstream test's name for the row. A pod's vreplicas stand for its claims. Those that
its ordinal has already (published, or in its last ledger) stand for claims that are bound. Those
that are planned for it stand for claims that are bound or provisioned now.

``LEFT_OUT`` has the other rows, by what they are about. All rows, these too, run against the
embedded scheduler's own volume binder (``volume_binder_cases``).
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from extender.kube.api import Conflict
from extender.model.errors import AssumeError
from extender.model.reasons import ConflictReason
from extender.node.bind_ledger import BindLedger
from extender.node.candidates import Candidates
from extender.service.binding.binder import AssumedPod, BindRefused, SchedulerVReplicaBinder
from tests.conformance.volume_binder_cases import SUITE
from tests.support.builders import NS
from tests.support.service import World

TRANSLATED = {
    "TestAssumePodVolumes/all-bound": "test_assume",
    "TestAssumePodVolumes/one-binding": "test_assume",
    "TestAssumePodVolumes/two-bindings": "test_assume",
    "TestAssumePodVolumes/pv-already-bound": "test_assume",
    "TestAssumePodVolumes/tmpupdate-failed": "test_assume_tmpupdate_failed",
    "TestRevertAssumedPodVolumes": "test_revert_restores_what_was_there",
    "TestFindAssumeVolumes": "test_find_returns_what_was_assumed_however_often_it_is_asked",
    "TestBindPodVolumes/already-bound": "test_bind_nothing_to_bind_empty",
    "TestBindPodVolumes/binding-static-pv-succeeds-after-time": "test_bind_succeeds_after_time",
    "TestBindPodVolumes/binding-dynamic-pv-succeeds-after-time": "test_bind_succeeds_after_time",
    "TestBindPodVolumes/pod-deleted-after-time": (
        "test_bind_fails_once_the_watch_shows_that_the_pod_is_gone"
    ),
    "TestBindAPIUpdate/nothing-to-bind-empty": "test_bind_nothing_to_bind_empty",
    "TestBindAPIUpdate/api-update-failed": "test_bind_bound_by_another_before_bind",
    "TestCheckBindings/nothing-to-bind": "test_bind_nothing_to_bind_empty",
    "TestCheckBindings/binding-bound": "test_bind_succeeds_after_time",
    "TestCheckBindings/provisioning-pvc-unbound": (
        "test_bind_times_out_and_has_succeeded_all_the_same"
    ),
}
"""Recorded row -> the test that is its translation."""
LEFT_OUT = {
    "finding volumes, by class, size, zone and owner": (
        "TestFindPodVolumesWithoutProvisioning/*",
        "TestFindPodVolumesWithProvisioning/*",
    ),
    "free storage": ("TestCapacity/*",),
    "migration to CSI": (
        "TestFindPodVolumesWithCSIMigration/*",
        "TestCheckBindingsWithCSIMigration/*",
    ),
    "a second kind of object to write: here one assume and one write make all changes": (
        "TestAssumePodVolumes/one-binding, one-provision-tmpupdate-failed",
        "TestAssumePodVolumes/one-binding, one-pvc-provisioned",
        "TestBindAPIUpdate/binding-succeed, provision-api-update-failed",
        "TestBindAPIUpdate/provision-api-update-failed",
        "TestBindAPIUpdate/two-bindings",
        "TestBindAPIUpdate/api-already-updated",
        "TestCheckBindings/binding-bound-provisioning-unbound",
        "TestCheckBindings/binding-one-bound,one-unbound",
    ),
    "volumes that another controller binds or provisions: here the API server's answer counts": (
        "TestBindPodVolumes/node-affinity-fails",
        "TestBindPodVolumes/node-affinity-fails-dynamic-provisioning",
        "TestCheckBindings/binding-claimref-nil",
        "TestCheckBindings/binding-pvc-not-exists",
        "TestCheckBindings/provisioning-pvc-annotations-nil",
        "TestCheckBindings/provisioning-pvc-not-exists",
        "TestCheckBindings/provisioning-pvc-selected-node-dropped",
        "TestCheckBindings/provisioning-pvc-selected-node-wrong-node",
        "TestCheckBindings/tolerate-provisioning-pvc-bound-pv-not-found",
    ),
    "lists that are nil": (
        "TestBindPodVolumes/nothing-to-bind-nil",
        "TestCheckBindings/nothing-to-bind-bindings-nil",
        "TestCheckBindings/nothing-to-bind-nil",
        "TestCheckBindings/nothing-to-bind-provisionings-nil",
    ),
}
"""What the rows that have no translation are about; ``*``: all rows of a test."""
CASES = Path(os.environ.get("CASES") or Path(__file__).parents[3] / "shared" / "cases")

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


def recorded_rows() -> set[str]:
    """Upstream's rows, without what they are repeated with."""
    path = CASES / "assumecache.json"
    if not path.is_file():
        pytest.skip(f"no recorded cases at {path}")
    ids = [case["id"] for case in json.loads(path.read_bytes())]
    rows = [name for suite, _, name in (one.partition(":") for one in ids) if suite == SUITE]
    return {re.sub(r" \[.*\]$", "", row) for row in rows} - {"environment"}


def test_each_recorded_row_is_translated_or_left_out_by_name():
    left_out = [name for names in LEFT_OUT.values() for name in names]
    tests = {name[:-1] for name in left_out if name.endswith("*")}
    unnamed = {row for row in recorded_rows() if not row.startswith(tuple(tests))}
    named = [*TRANSLATED, *(name for name in left_out if not name.endswith("*"))]
    assert sorted(named) == sorted(unnamed)
    assert [row for row in TRANSLATED.values() if row not in globals()] == []


# -- TestAssumePodVolumes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vpods", "node", "already_bound", "ledger", "planned"),
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
async def test_assume(vpods, node, already_bound, ledger, planned):
    world = await a_world(*vpods, node=node)
    assumed = world.binder().assume(the_pod(world), NODE)
    assert assumed.already_bound is already_bound
    assert {key: share.vreplicas for key, share in assumed.bind_ledger.ledger.items()} == ledger
    assert sorted(assumed.bind_ledger.added) == planned
    believed = the_pod(world)
    assert (believed.assumed, believed.node) == (not already_bound, NODE)


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
    assert (assumed.already_bound, took) == (True, 0.0)
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
