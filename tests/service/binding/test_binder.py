"""Binding adapter pods: what is written, what is refused, and that nothing is left behind."""

import asyncio
from dataclasses import replace

import pytest

from extender.engine.policy.profile import Profile
from extender.engine.policy.spreading import ZoneSpread
from extender.kube import api as kube_api
from extender.kube.api import (
    ADAPTERPOOLS,
    PODS,
    STATEFULSETS,
    ApiError,
    Binding,
    Conflict,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    PatchType,
    TooManyRequests,
)
from extender.model import decode, names
from extender.model.reasons import ConflictReason
from extender.node.candidates import Candidates
from extender.service.binding.binder import BindRefused, SchedulerVReplicaBinder, bind_owner
from extender.service.binding.pod_binder import PodBinder
from extender.service.watching.caches import Caches
from tests.support.builders import NS, POOL
from tests.support.service import World, always, lost, until

HA = Profile(name="ha", filters=(ZoneSpread(1),))
NODES = ["node-0", "node-1", "node-2"]


async def a_pending_pod(world: World, ordinal: int = 0, **pod) -> str:
    uid = await world.pod(ordinal, **pod)
    await world.sync()
    return uid


def find(world: World, binder, ordinal: int = 0):
    pod = world.caches.pods.get(f"{NS}/dispatcher-{ordinal}")
    assert pod is not None
    return binder.find(pod, Candidates.of(NODES), world.caches.state.nodes.get)


async def test_a_bind_writes_node_and_ledger_in_one_write():
    world = await World.create()
    await world.vpod("a", 3, {0: 3})
    uid = await a_pending_pod(world)
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert [call.verb for call in world.api.writes()] == ["bind"]
    assert await world.node_of(0) == "node-1"
    assert await world.ledger(0) == {"tenant/a": 3}
    assert await world.annotation(0, names.SLOTS_ANNOTATION) == "20"


async def test_a_bind_of_an_unstamped_pod_stamps_its_slots():
    world = await World.create()
    uid = await a_pending_pod(world, slots=None)
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert await world.annotation(0, names.SLOTS_ANNOTATION) == "20"


@pytest.mark.parametrize(
    "synced", [pytest.param(True, id="watch-has-come"), pytest.param(False, id="watch-lags")]
)
async def test_a_second_bind_of_the_same_pod_succeeds_without_a_write(synced: bool):
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    binder = world.pod_binder()
    await binder.bind(NS, "dispatcher-0", uid, "node-1")
    if synced:
        await world.sync()
    version = world.cluster.version
    await binder.bind(NS, "dispatcher-0", uid, "node-1")
    assert world.api.count("bind", "pods") == 1
    assert world.cluster.version == version
    assert await world.ledger(0) == {"tenant/a": 3}


async def test_the_same_bind_asked_three_times_at_once_writes_once():
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    binder = world.pod_binder()
    answers = 0

    async def ask(after: int) -> None:
        nonlocal answers
        for _ in range(after):
            await asyncio.sleep(0)
        await binder.bind(NS, "dispatcher-0", uid, "node-1")
        answers += 1

    await asyncio.gather(*(ask(after) for after in (0, 1, 2, 3, 4, 6)))
    assert answers == 6
    assert world.api.count("bind", "pods") == 1
    assert await world.ledger(0) == {"tenant/a": 3}
    assert binder._in_flight == {}


async def another_uid(world: World, uid: str) -> tuple[str, str]:
    return "some-other-uid", "node-1"


async def unknown_node(world: World, uid: str) -> tuple[str, str]:
    return uid, "node-9"


async def deleted_pod(world: World, uid: str) -> tuple[str, str]:
    await world.remove_pod(0)
    return uid, "node-1"


async def recreated_pod(world: World, uid: str) -> tuple[str, str]:
    await world.remove_pod(0)
    await world.pod(0)
    return uid, "node-1"


async def pod_being_deleted(world: World, uid: str) -> tuple[str, str]:
    finalizers = {"metadata": {"finalizers": ["example.dev/waits"]}}
    await world.cluster.patch(PODS, NS, "dispatcher-0", finalizers, patch_type=PatchType.MERGE)
    await world.remove_pod(0)
    return uid, "node-1"


async def bound_elsewhere(world: World, uid: str) -> tuple[str, str]:
    await world.cluster.bind(Binding(NS, "dispatcher-0", "node-2", uid=uid))
    return uid, "node-1"


async def bound_elsewhere_and_seen(world: World, uid: str) -> tuple[str, str]:
    await bound_elsewhere(world, uid)
    await world.sync()
    return uid, "node-1"


@pytest.mark.parametrize(
    ("situation", "refusal"),
    [
        pytest.param(another_uid, ConflictReason.POD_CHANGED, id="another-uid"),
        pytest.param(unknown_node, ConflictReason.NODE_UNKNOWN, id="unknown-node"),
        pytest.param(deleted_pod, NotFound, id="deleted-pod"),
        pytest.param(recreated_pod, ConflictReason.POD_CHANGED, id="recreated-pod"),
        pytest.param(pod_being_deleted, ConflictReason.POD_CHANGED, id="pod-being-deleted"),
        pytest.param(
            bound_elsewhere, ConflictReason.POD_ALREADY_BOUND, id="bound-elsewhere-unseen"
        ),
        pytest.param(
            bound_elsewhere_and_seen, ConflictReason.POD_ALREADY_BOUND, id="bound-elsewhere-seen"
        ),
    ],
)
async def test_a_bind_that_must_not_be_is_refused_and_leaves_nothing(situation, refusal):
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    binder = world.pod_binder()
    asked_uid, node = await situation(world, uid)
    version = world.cluster.version
    with pytest.raises((BindRefused, ApiError)) as raised:
        await binder.bind(NS, "dispatcher-0", asked_uid, node)
    assert refusal in {getattr(raised.value, "reason", ""), type(raised.value)}
    assert world.cluster.version == version
    assert not any(pod.assumed for pod in world.caches.pods.list())
    await world.sync()
    assert world.digest() == (await a_fresh_look(world)).digest()


async def test_a_refused_bind_names_all_its_reasons():
    world = await World.create()
    await world.node("small-9", slots=5)
    cordon = {"spec": {"unschedulable": True}}
    await world.cluster.patch(kube_api.NODES, "", "small-9", cordon, patch_type=PatchType.MERGE)
    uid = await a_pending_pod(world)
    with pytest.raises(BindRefused) as raised:
        await world.pod_binder().bind(NS, "dispatcher-0", uid, "small-9")
    assert str(raised.value) == "NodeSlotsExceeded: also NodeUnschedulable"


async def test_a_pod_that_is_made_anew_within_one_watch_event_leaves_no_reservation():
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    binder, pod = world.binder(), world.caches.pods.get(f"{NS}/dispatcher-0")
    assert pod is not None
    assert binder.assume(pod, "node-1").bind_ledger.added
    world.caches.pods.replace([replace(pod, uid="another", resource_version="9999")], "9999")
    assert bind_owner(uid) not in {owner for owner, _ in world.caches.state.pool(POOL).owners()}


async def a_fresh_look(world: World) -> World:
    """Another replica's caches, filled only now."""
    other = World()
    other.cluster, other.api = world.cluster, world.api
    await other.sync()
    return other


async def test_a_ledger_edited_between_filter_and_bind_is_refused():
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world, ledger={})
    binder = world.binder()
    find(world, binder)
    before = world.digest()
    await world.edit_ledger(0, {"tenant/x": 20})
    with pytest.raises(BindRefused) as raised:
        await PodBinder(world.api, world.caches, binder, knows_past=always).bind(
            NS, "dispatcher-0", uid, "node-1"
        )
    assert raised.value.reason is ConflictReason.LEDGER_CHANGED
    assert await world.node_of(0) == ""
    assert world.digest() == before


async def test_a_pod_of_which_only_the_version_changed_is_bound_all_the_same():
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world, ledger={})
    binder = world.binder()
    find(world, binder)
    await world.annotate(0, **{"example.dev/touched": "yes"})
    await PodBinder(world.api, world.caches, binder, knows_past=always).bind(
        NS, "dispatcher-0", uid, "node-1"
    )
    assert await world.ledger(0) == {"tenant/a": 3}
    assert world.api.count("bind", "pods") == 2


async def test_a_pod_that_changes_under_every_attempt_is_refused_in_the_end():
    world = await World.create()
    uid = await a_pending_pod(world)
    before = world.digest()
    touches = iter(range(9))

    async def touch() -> None:
        await world.annotate(0, **{"example.dev/touched": str(next(touches))})

    world.api.fail("bind", "pods", times=9, then=touch)
    with pytest.raises(Conflict):
        await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert world.api.count("bind", "pods") == PodBinder.ATTEMPTS_MAX
    assert world.digest() == before


async def test_a_binding_whose_answer_was_lost_is_a_success():
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    world.api.fail("bind", "pods", after=lost())
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert await world.ledger(0) == {"tenant/a": 3}
    assert world.api.count("bind", "pods") == 1


async def test_a_binding_that_was_lost_is_sent_again():
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    world.api.fail("bind", "pods", before=lost())
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert await world.node_of(0) == "node-1"
    assert world.api.count("bind", "pods") == 2


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(TooManyRequests(429, "TooManyRequests", "later"), id="too-many-requests"),
        pytest.param(ApiError(500, "InternalError", "etcd"), id="internal-error"),
    ],
)
async def test_a_binding_that_the_api_server_refuses_is_undone_exactly(error: ApiError):
    world = await World.create()
    await world.vpod("a", 3)
    await world.vpod("b", 5, {0: 2})
    uid = await a_pending_pod(world)
    before = world.digest()
    world.api.fail("bind", "pods", before=error)
    with pytest.raises(type(error)):
        await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert world.digest() == before
    assert await world.node_of(0) == ""


async def test_a_binding_that_is_forbidden_is_undone_exactly_and_says_so():
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    before = world.digest()
    world.api.fail("bind", "pods", before=Forbidden(403, "Forbidden", "policy says no"))
    with pytest.raises(BindRefused, match="policy says no") as refused:
        await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert refused.value.reason is ConflictReason.WRITE_REFUSED
    assert world.digest() == before
    assert await world.node_of(0) == ""


DOUBTS = [
    pytest.param(lost("to the read either"), id="read-lost-too"),
    pytest.param(ApiError(500, "InternalError", "etcd"), id="read-failed"),
]


@pytest.mark.looptime
@pytest.mark.parametrize("unread", DOUBTS)
async def test_a_binding_that_nobody_knows_of_is_given_up_after_30_s(unread: ApiError):
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    before = world.digest()
    world.api.fail("bind", "pods", before=lost())
    world.api.fail("get", "pods", before=unread)
    with pytest.raises(OutcomeUnknown):
        await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert world.digest() != before, (
        "it may have arrived: its vreplicas are not given to anybody else"
    )
    await asyncio.sleep(29)
    assert world.digest() != before
    await asyncio.sleep(2)
    assert world.digest() == before


@pytest.mark.looptime
@pytest.mark.parametrize("unread", DOUBTS)
async def test_a_binding_in_doubt_that_did_arrive_is_success_when_asked_again(unread: ApiError):
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    binder = world.pod_binder()
    world.api.fail("bind", "pods", after=lost())
    world.api.fail("get", "pods", before=unread)
    with pytest.raises(OutcomeUnknown):
        await binder.bind(NS, "dispatcher-0", uid, "node-1")
    await binder.bind(NS, "dispatcher-0", uid, "node-1")
    assert world.api.count("bind", "pods") == 1
    await asyncio.sleep(31)
    assert world.digest() == (await a_fresh_look(world)).digest()


@pytest.mark.looptime
async def test_a_binding_stays_in_doubt_while_the_pod_cannot_be_read():
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    before = world.digest()
    binder = world.pod_binder()
    world.api.fail("bind", "pods", before=lost())
    world.api.fail("get", "pods", before=lost(), times=2)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            await binder.bind(NS, "dispatcher-0", uid, "node-1")
        assert world.digest() != before, "it may have arrived"
    await binder.bind(NS, "dispatcher-0", uid, "node-1")
    await world.sync()
    assert world.digest() == (await a_fresh_look(world)).digest()


@pytest.mark.looptime
async def test_a_bind_past_its_deadline_gives_its_vreplicas_to_nobody_else_until_it_expires():
    world = await World.create()
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    before = world.digest()
    pause = world.api.pause("bind", "pods")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4):
            await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert pause.reached.is_set()
    assert world.digest() != before
    await asyncio.sleep(31)
    assert world.digest() == before


async def test_two_pods_bound_at_once_share_the_last_pending_vreplicas():
    world = await World.create(slots=3)
    await world.vpod("a", 4)
    uids = [await world.pod(ordinal, slots=3) for ordinal in (0, 1)]
    await world.sync()
    binder = world.pod_binder()
    await asyncio.gather(
        *(binder.bind(NS, f"dispatcher-{i}", uid, "node-1") for i, uid in enumerate(uids))
    )
    placed = [(await world.ledger(ordinal)).get("tenant/a", 0) for ordinal in (0, 1)]
    assert sum(placed) == 4
    await world.sync()
    assert world.digest() == (await a_fresh_look(world)).digest()


async def test_two_pods_bound_at_once_do_not_both_take_the_last_vreplica():
    world = await World.create()
    await world.vpod("a", 1)
    uids = [await world.pod(ordinal) for ordinal in (0, 1)]
    await world.sync()
    binder = world.pod_binder()
    await asyncio.gather(
        *(binder.bind(NS, f"dispatcher-{i}", uid, "node-1") for i, uid in enumerate(uids))
    )
    assert sum([(await world.ledger(ordinal)).get("tenant/a", 0) for ordinal in (0, 1)]) == 1


@pytest.mark.parametrize(
    ("leads", "ledger"),
    [
        pytest.param(True, {"tenant/a": 3, "tenant/b": 2}, id="leader"),
        pytest.param(False, {"tenant/a": 3}, id="not-leading"),
    ],
)
async def test_only_the_leader_gives_a_binding_pod_what_is_still_pending(
    leads: bool, ledger: dict[str, int]
):
    world = await World.create()
    world.leads = leads
    await world.vpod("a", 3, {0: 3})
    await world.vpod("b", 2)
    uid = await a_pending_pod(world)
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert await world.ledger(0) == ledger


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("leads", "ledger"), [(True, {"tenant/b": 2}), (False, {})], ids=["leader", "follower"]
)
async def test_a_new_pod_bound_by_a_follower_has_an_empty_ledger_until_the_leader_places(
    leads: bool, ledger: dict[str, int]
):
    """As docs/concepts.md tells it."""
    world = await World.create()
    world.leads = leads
    await world.vpod("b", 2)
    uid = await a_pending_pod(world)
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert await world.ledger(0) == ledger
    async with world.serving():
        await until(lambda: world.published("b"), {0: 2}, timeout_s=10)
    assert await world.ledger(0) == {"tenant/b": 2}


async def test_what_plugins_decide_on_is_left_to_the_placer_and_what_stands_there_comes_back():
    world = await World.create()
    await world.vpod("a", 3, {0: 3})
    await world.vpod("b", 2)
    uid = await a_pending_pod(world)
    world.caches.state.pool(POOL).set_profile(HA)
    binder = world.binder()
    find(world, binder)
    bind_ledger = binder.bind_ledger(uid)
    assert bind_ledger is not None
    assert bind_ledger.added == {"tenant/b": 2}, "an estimate, to prioritize by"
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert await world.ledger(0) == {"tenant/a": 3}


async def test_a_closed_ordinal_is_bound_with_what_stands_there_alone():
    world = await World.create()
    await world.vpod("a", 3, {0: 3})
    await world.vpod("b", 2)
    uid = await a_pending_pod(world)
    world.caches.state.pool(POOL).set_closed(0b1)
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert await world.ledger(0) == {"tenant/a": 3}


async def test_a_pod_is_not_bound_where_the_hard_zone_rule_no_longer_holds():
    """Filter has let two pods pass; binding the first one leaves the second no place in
    that zone.
    """
    world = await World.create()
    await world.vpod("a", 2, {0: 1, 1: 1})
    uids = [await a_pending_pod(world, ordinal) for ordinal in (0, 1)]
    world.caches.state.pool(POOL).set_profile(HA)
    binder = world.binder()
    assert [list(find(world, binder, ordinal).passed) for ordinal in (0, 1)] == [NODES, NODES]
    pods = PodBinder(world.api, world.caches, binder, knows_past=always)
    await pods.bind(NS, "dispatcher-0", uids[0], "node-1")
    before = world.digest()
    with pytest.raises(BindRefused) as raised:
        await pods.bind(NS, "dispatcher-1", uids[1], "node-1")
    assert raised.value.reason is ConflictReason.ZONE_SKEW_EXCEEDED
    assert world.digest() == before
    assert list(find(world, binder, 1).passed) == ["node-0", "node-2"]
    await pods.bind(NS, "dispatcher-1", uids[1], "node-2")


async def test_a_returning_ordinal_carries_what_it_carried_although_the_vpods_watch_lags():
    world = await World.create()
    world.leads = False
    await world.vpod("a", 5)
    await world.pod(0, {"tenant/a": 5}, node="node-0")
    await world.sync()
    # The leader's status write has not come through here, the pod's end and its successor have.
    await world.remove_pod(0)
    await world.sync("pods")
    uid = await world.pod(0)
    await world.sync("pods")
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert await world.ledger(0) == {"tenant/a": 5}


async def test_standing_placements_never_overcommit_a_pod_that_has_become_smaller():
    world = await World.create(slots=4)
    await world.vpod("a", 3, {0: 3})
    await world.vpod("b", 3, {0: 3})
    uid = await a_pending_pod(world, slots=4)
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert sum((await world.ledger(0)).values()) <= 4


async def test_a_tenant_that_the_pool_does_not_select_gets_nothing_from_a_bind():
    world = await World.create(namespaceSelector={"matchLabels": {"paid": "yes"}})
    await world.vpod("a", 3)
    uid = await a_pending_pod(world)
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert await world.ledger(0) == {}


async def test_a_ledger_over_128_kib_is_refused_by_filter_and_by_bind():
    world = await World.create(slots=10_000)
    for index in range(560):
        await world.vpod(f"{index:04}" + "x" * 230, 1, {0: 1})
    uid = await a_pending_pod(world, slots=10_000)
    before = world.digest()
    verdicts = find(world, world.binder())
    assert not verdicts.passed
    assert set(verdicts.unresolvable.values()) == {(ConflictReason.LEDGER_TOO_LARGE,)}
    with pytest.raises(BindRefused) as raised:
        await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert raised.value.reason is ConflictReason.LEDGER_TOO_LARGE
    assert world.digest() == before


async def test_pending_vreplicas_for_which_the_ledger_has_no_bytes_do_not_keep_a_pod_from_binding():
    world = await World.create(slots=10_000)
    await world.vpod("standing", 1, {0: 1})
    for index in range(560):
        await world.vpod(f"{index:04}" + "x" * 230, 1)
    uid = await a_pending_pod(world, slots=10_000)
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    ledger = await world.ledger(0)
    assert ledger["tenant/standing"] == 1
    assert 200 < len(ledger) < 280, "as many as are the namespace's share"


def decided(binder: SchedulerVReplicaBinder, uid: str) -> set[str]:
    """The nodes to which the pod may be bound by the last filter."""
    return {node for node in NODES if binder._filter_results.get(uid, node) is not None}


async def test_decisions_of_an_earlier_filter_are_replaced_and_end_with_the_pod():
    world = await World.create()
    uid = await a_pending_pod(world)
    binder = world.binder()
    find(world, binder)
    assert decided(binder, uid) == set(NODES)
    pod = world.caches.pods.get(f"{NS}/dispatcher-0")
    assert pod is not None
    binder.find(pod, Candidates.of(["node-2"]), world.caches.state.nodes.get)
    assert decided(binder, uid) == {"node-2"}
    await world.remove_pod(0)
    await world.sync()
    assert decided(binder, uid) == set()


async def test_a_pod_that_the_watch_has_not_shown_is_refused_and_tried_again_by_kube_scheduler():
    world = await World.create()
    await world.sync()
    uid = await world.pod(0)
    with pytest.raises(BindRefused) as raised:
        await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert raised.value.reason is ConflictReason.POD_CHANGED
    await world.sync()
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    assert await world.node_of(0) == "node-1"


async def test_a_bind_that_was_done_is_success_also_where_another_replica_would_refuse_it_now():
    world = await World.create()
    uid = await a_pending_pod(world)
    lagging = Caches()
    for item in (await world.cluster.list_page(PODS)).items:
        lagging.pods.update(decode.pod_from(item))
    for item in (await world.cluster.list_page(STATEFULSETS)).items:
        lagging.stateful_sets.update(decode.stateful_set_from(item))
    for item in (await world.cluster.list_page(ADAPTERPOOLS)).items:
        lagging.pools.update(decode.pool_from(item))
    await world.pod_binder().bind(NS, "dispatcher-0", uid, "node-1")
    clock = asyncio.get_running_loop().time
    binder = SchedulerVReplicaBinder(world.api, lagging, clock=clock, leads=lambda _: False)
    await PodBinder(world.api, lagging, binder, knows_past=always).bind(
        NS, "dispatcher-0", uid, "node-1"
    )
    assert world.api.count("bind", "pods") == 1
