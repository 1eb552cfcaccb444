"""POST /v1/schedule over real sockets: what it answers, what it reserves, what it refuses, what
outlives a restart.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest
from hypothesis import given, strategies as st

from extender.kube.api import ADAPTERPOOLS, LEASES, PODS, ApiError, Obj, PatchType
from extender.model import names
from extender.model.errors import WireError
from extender.model.ledger import Share
from extender.model.objects import VPod
from extender.service.app import Service
from extender.service.http import schedule as schedule_module
from extender.service.http.schedule import BODY_BYTES_MAX, vpod_of_request
from tests.service.watching.test_sources import GROUP_KEY, GROUPS, PRESET, define, group
from tests.support.builders import NS
from tests.support.service import TENANT, World, lost, until

KEY = f"{TENANT}/a@broker.x.dev"


@dataclass
class Reply:
    status: int
    body: Obj
    text: str
    headers: Mapping[str, str]

    @property
    def placed(self) -> dict[str, int]:
        return {item["podName"]: item["vreplicas"] for item in self.body["placements"]}


class Caller:
    """A controller that keeps its vpods' statuses itself."""

    def __init__(self, service: Service, session: aiohttp.ClientSession) -> None:
        self.service = service
        self._session = session

    async def ask(
        self, vreplicas: object = 3, placements: Mapping[str, int] | None = None, **vpod
    ) -> Reply:
        listed = [
            {"podName": name, "vreplicas": count} for name, count in (placements or {}).items()
        ]
        return await self.post(a_request(vreplicas=vreplicas, placements=listed, **vpod))

    async def post(self, body: Obj) -> Reply:
        async with self._session.post(f"{self.service.server.url}/v1/schedule", json=body) as reply:
            text = await reply.text()
            return Reply(
                reply.status, orjson.loads(text) if reply.status == 200 else {}, text, reply.headers
            )


def a_request(pool: Mapping[str, object] | None = None, **vpod) -> Obj:
    fields = {
        "namespace": TENANT,
        "name": "a",
        "kind": "Broker",
        "group": "x.dev",
        "vreplicas": 3,
        **vpod,
    }
    return {"vpod": fields, "pool": pool or {"namespace": NS, "name": "dispatcher"}}


@asynccontextmanager
async def calling(world: World, **options) -> AsyncIterator[Caller]:
    async with world.serving(serve=True, **options) as service, aiohttp.ClientSession() as session:
        await until(service.leading, timeout_s=5)
        yield Caller(service, session)


async def a_world(*ordinals: int, **pool_spec) -> World:
    world = await World.create(**pool_spec)
    await world.pods(*ordinals or (0, 1, 2))
    return world


async def test_all_is_placed_and_in_the_ledgers_before_the_answer():
    world = await a_world()
    async with calling(world) as caller:
        reply = await caller.ask(4)
        assert reply.body == {
            "placements": [
                {"podName": "dispatcher-0", "vreplicas": 2},
                {"podName": "dispatcher-1", "vreplicas": 1},
                {"podName": "dispatcher-2", "vreplicas": 1},
            ],
            "left": 0,
        }
        assert [await world.ledger(ordinal) for ordinal in range(3)] == [
            {KEY: 2},
            {KEY: 1},
            {KEY: 1},
        ]
        assert {call.what for call in world.api.writes()} <= {"pods", "adapterpools/status"}


async def test_a_call_that_is_repeated_has_the_same_answer_and_writes_nothing():
    world = await a_world()
    async with calling(world) as caller:
        first = await caller.ask(4)
        writes = world.api.count("patch", "pods")
        assert (await caller.ask(4)).body == first.body
        assert (await caller.ask(4, first.placed)).body == first.body
        assert world.api.count("patch", "pods") == writes


async def test_what_does_not_fit_is_left_with_a_reason_and_what_fits_is_kept():
    world = await a_world(0, replicas=1, maxPods=1)
    async with calling(world) as caller:
        reply = await caller.ask(25)
        assert (reply.placed, reply.body["left"]) == ({"dispatcher-0": 20}, 5)
        assert (reply.body["reason"], reply.body["retryAfterSeconds"]) == ("InsufficientSlots", 5)
        assert await world.ledger(0) == {KEY: 20}


async def test_what_is_left_makes_the_pool_larger():
    world = await a_world(0, replicas=1)
    async with calling(world) as caller:
        await caller.ask(25)
        await until(world.replicas, 2, timeout_s=5)


async def test_a_vreplica_weighs_what_the_caller_says():
    world = await a_world(0, replicas=1, maxPods=1)
    async with calling(world) as caller:
        reply = await caller.ask(5, slotsPerVReplica=8)
        assert (reply.placed, reply.body["left"]) == ({"dispatcher-0": 2}, 3)


async def test_what_a_shrink_takes_is_free_once_the_caller_no_longer_publishes_it():
    world = await a_world()
    async with calling(world) as caller:
        published = (await caller.ask(6)).placed
        reply = await caller.ask(2, published)
        assert sum(reply.placed.values()) == 2
        assert await held(world) == 6
        await caller.ask(2, reply.placed)
        assert await held(world) == 2


async def held(world: World, key: str = KEY) -> int:
    return sum([(await world.ledger(ordinal)).get(key, 0) for ordinal in range(3)])


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"vreplicas": 0}, id="none wanted"),
        pytest.param({"deleted": True}, id="deleted"),
    ],
)
async def test_a_caller_releases_everything(request_):
    world = await a_world()
    async with calling(world) as caller:
        await caller.ask(6)
        reply = await caller.post(a_request(**{"vreplicas": 6, **request_}))
        assert reply.body == {"placements": [], "left": 0}
        assert await held(world) == 0
        assert not caller.service.caches.state.pools[f"{NS}/dispatcher"].vpods


async def test_a_caller_gets_no_more_of_a_dimension_than_a_pod_has():
    world = await a_world(slotsPerPod=20, maxPods=1, replicas=1, capacities={"cpu": 1000})
    async with calling(world) as caller:
        reply = await caller.ask(5, perVReplica={"cpu": 300})
        assert (reply.status, reply.placed, reply.body["left"]) == (200, {"dispatcher-0": 3}, 2)
        assert await amounts_on_pod_0(world) == {KEY: [3, 1, {"cpu": 300}]}
        plain = await caller.ask(1, name="plain")
        assert plain.placed == {"dispatcher-0": 1}
        ledger = await amounts_on_pod_0(world)
        assert ledger == {KEY: [3, 1, {"cpu": 300}], KEY.replace("/a@", "/plain@"): 1}


async def test_a_caller_that_changes_the_amounts_keeps_what_fits():
    world = await a_world(slotsPerPod=20, maxPods=1, replicas=1, capacities={"cpu": 1000})
    async with calling(world) as caller:
        first = await caller.ask(3, perVReplica={"cpu": 300})
        again = await caller.ask(3, first.placed, perVReplica={"cpu": 450})
        assert (again.status, again.placed) == (200, {"dispatcher-0": 2})
        assert (await world.ledger(0))[KEY] == 3, "the status still publishes three"
        assert (await caller.ask(3, again.placed, perVReplica={"cpu": 450})).body["left"] == 1
        assert await amounts_on_pod_0(world) == {KEY: [2, 1, {"cpu": 450}]}


async def amounts_on_pod_0(world: World) -> Obj:
    """Its ledger, as the annotation has it."""
    ledger: Obj = orjson.loads(await world.annotation(0, names.PLACEMENTS_ANNOTATION) or "")
    return ledger


async def test_who_publishes_more_than_its_pod_came_back_with_is_answered_what_the_ledger_has():
    """Seed 280000453: slotsPerPod was lowered meanwhile, and each request was to write a ledger
    over the pod's slots.
    """
    world = await a_world(slotsPerPod=6, maxPods=1, replicas=1)
    await world.remove_pod(0)
    await world.pod(0, {KEY: Share(2, 3)}, node="node-0", slots=6)
    async with calling(world) as caller:
        reply = await caller.ask(3, {"dispatcher-0": 3}, slotsPerVReplica=3)
        assert (reply.status, reply.text and reply.placed) == (200, {"dispatcher-0": 2})
        again = await caller.ask(1, {"dispatcher-0": 3}, slotsPerVReplica=3)
        assert (again.placed, await world.ledger(0)) == ({"dispatcher-0": 1}, {KEY: 2})
        await caller.ask(1, again.placed, slotsPerVReplica=3)
        assert await world.ledger(0) == {KEY: 1}


async def test_deleted_counts_more_than_what_is_still_published():
    world = await a_world()
    async with calling(world) as caller:
        published = (await caller.ask(6)).placed
        assert (await caller.ask(6, published, deleted=True)).body == {"placements": [], "left": 0}
        assert await held(world) == 0


async def test_after_a_restart_the_ledgers_keep_the_share_until_the_caller_says_otherwise():
    world = await a_world()
    async with calling(world) as caller:
        first = await caller.ask(6)
    async with calling(world, seed=2) as caller:
        await caller.service.reconciler.reconcile()
        await world.vpod("other", 2)

        await until(lambda: world.placed("other"), 2, timeout_s=5)
        assert await held(world) == 6
        again = await caller.ask(6)
        assert again.body == first.body
        await caller.ask(deleted=True)
        assert await held(world) == 0


async def test_a_caller_and_vpods_never_overcommit_a_pod_between_them():
    world = await a_world()
    async with calling(world) as caller:
        asking = [caller.ask(7, name=f"n{index}") for index in range(6)]
        creating = [world.vpod(f"v{index}", 5) for index in range(5)]
        replies, _ = await asyncio.gather(asyncio.gather(*asking), asyncio.gather(*creating))
        assert {reply.status for reply in replies} == {200}
        await world.check()
        total = sum([sum((await world.ledger(ordinal)).values()) for ordinal in range(3)])
        assert total <= 60


async def test_the_reply_is_no_more_than_what_ledgers_cover():
    world = await a_world()
    world.api.fail(
        "patch", "pods", name="dispatcher-1", times=1, before=ApiError(500, "InternalError", "etcd")
    )
    async with calling(world) as caller:
        refused = await caller.ask(6)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert f"vpod {KEY} was not written" in refused.text
        reply = await caller.ask(6)
        assert sum(reply.placed.values()) == 6
        for name, count in reply.placed.items():
            assert (await world.ledger(int(name[-1])))[KEY] == count


async def test_what_a_write_that_may_still_arrive_would_take_away_is_not_answered():
    """Seed 284001082: a lowering was given up, more was wanted again and answered, and then that
    lowering was served.
    """
    world = await a_world(0, replicas=1, maxPods=1)
    async with calling(world) as caller:
        fewer = await caller.ask(2, (await caller.ask(6)).placed)
        world.api.fail("patch", "pods", name="dispatcher-0", times=1, before=lost("patch"))
        assert (await caller.ask(2, fewer.placed)).status == 503
        assert await world.ledger(0) == {KEY: 6}
        reply = await caller.ask(6, fewer.placed)
        assert (reply.placed, reply.body["left"], reply.body["retryAfterSeconds"]) == (
            {"dispatcher-0": 2},
            4,
            1,
        )


async def test_an_answer_that_comes_too_late_is_written_to_its_end():
    world = await a_world(0, replicas=1)
    pause = world.api.pause("patch", "pods", "dispatcher-0")
    async with calling(world, deadline_s=0.2) as caller:
        late = await caller.ask(3)
        assert late.status == 504
        pause.go_on.set()
        await until(lambda: world.ledger(0), {KEY: 3}, timeout_s=5)
        assert (await caller.ask(3)).placed == {"dispatcher-0": 3}


async def test_too_many_decisions_at_once_are_refused(monkeypatch):
    monkeypatch.setattr(schedule_module, "DECISIONS_MAX", 1)
    world = await a_world(0, replicas=1)
    pause = world.api.pause("patch", "pods", "dispatcher-0")
    async with calling(world) as caller:
        first = asyncio.create_task(caller.ask(3))
        await pause.reached.wait()
        assert (await caller.ask(1, name="b")).status == 503
        pause.go_on.set()
        assert (await first).status == 200


async def test_a_replica_that_does_not_lead_says_who_does():
    world = await a_world()
    async with calling(world, elect=True) as leading:
        other = world.service(elect=True, seed=2, serve=True)
        task = asyncio.create_task(other.run())
        await other.informers.wait_synced()
        await until(lambda: other.leadership.leader(f"{NS}/dispatcher"), timeout_s=5)
        async with aiohttp.ClientSession() as session:
            reply = await Caller(other, session).ask(3)
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
        assert f"{leading.service.identity} leads" in reply.text
        assert await held(world) == 0
        task.cancel()
        await asyncio.wait({task})
    assert (await world.cluster.list_page(LEASES)).items


async def test_a_pool_that_does_not_exist_is_not_found_and_releasing_there_is_done_already():
    world = await a_world()
    nowhere = {"namespace": NS, "name": "nowhere"}
    async with calling(world) as caller:
        reply = await caller.post(a_request(nowhere))
        assert (reply.status, reply.text) == (404, f"AdapterPool {NS}/nowhere does not exist\n")
        released = await caller.post(a_request(nowhere, deleted=True))
        assert released.body == {"placements": [], "left": 0}
        assert f"{NS}/nowhere" not in caller.service.caches.state.pools


async def test_a_namespace_that_the_pool_does_not_select_gets_nothing():
    world = await a_world(namespaceSelector={"matchLabels": {"tier": "gold"}})
    async with calling(world) as caller:
        reply = await caller.ask(3)
        assert (reply.body["placements"], reply.body["left"]) == ([], 3)
        assert reply.body["reason"] == "TenantNotAllowed"


async def test_an_object_that_we_write_the_status_of_ourselves_is_not_the_callers():
    world = await a_world(sources=[PRESET])
    await define(world)
    async with calling(world) as caller:
        reply = await caller.ask(3, kind=GROUPS.kind, group=GROUPS.group)
        assert reply.status == 409
        assert "set writeStatus: false" in reply.text


async def test_the_watch_of_a_source_whose_status_is_the_callers_shows_what_it_publishes():
    world = await a_world(sources=[{**PRESET, "writeStatus": False}])
    await define(world)
    await group(world, "g", 6)
    key = f"{TENANT}/g@{GROUP_KEY}"
    async with calling(world) as caller:
        await until(lambda: held(world, key), 6, timeout_s=5)
        reply = await caller.ask(6, name="g", kind=GROUPS.kind, group=GROUPS.group)
        assert sum(reply.placed.values()) == 6
        await world.patch_status(GROUPS, TENANT, "g", placements=reply.body["placements"])

        async def seen() -> bool:
            vpod = caller.service.caches.vpods.get(key)
            return vpod is not None and vpod.scheduled_vreplicas == 6

        await until(seen, timeout_s=5)
        assert await held(world, key) == 6
        await world.cluster.delete(GROUPS, TENANT, "g")
        await until(lambda: held(world, key), 0, timeout_s=5)


def watched_vpod(vreplicas: int, placements: Mapping[str, int]) -> VPod:
    listed = [{"podName": name, "vreplicas": count} for name, count in placements.items()]
    body = a_request(
        name="g",
        kind=GROUPS.kind,
        group=GROUPS.group,
        vreplicas=vreplicas,
        placements=listed,
    )
    return vpod_of_request(orjson.dumps(body))


async def test_what_a_lagging_controller_repeats_of_a_watched_object_goes_once_it_catches_up():
    """Failed before: only a change of the object lowered its ledgers, and none was due any more."""
    world = await a_world(sources=[{**PRESET, "writeStatus": False}])
    await define(world)
    await group(world, "g", 6)
    key = f"{TENANT}/g@{GROUP_KEY}"
    mine: dict[str, Any] = {"name": "g", "kind": GROUPS.kind, "group": GROUPS.group}

    async def publish(caller: Caller, reply: Reply) -> None:
        await world.patch_status(GROUPS, TENANT, "g", placements=reply.body["placements"])

        async def seen() -> bool:
            vpod = caller.service.caches.vpods.get(key)
            return vpod is not None and dict(vpod.placements) == reply.placed

        await until(seen, timeout_s=5)

    async with calling(world) as caller:
        many = await caller.ask(6, **mine)
        await publish(caller, many)
        few = await caller.ask(2, many.placed, **mine)
        await world.cluster.patch(
            GROUPS, TENANT, "g", {"spec": {"replicas": 2}}, patch_type=PatchType.MERGE
        )
        placer = caller.service.placer
        async with placer._lock(f"{NS}/dispatcher"):  # another decision is being written
            repeated = asyncio.create_task(placer.schedule(watched_vpod(2, many.placed)))
            await asyncio.sleep(0)
            await publish(caller, few)
        await repeated
        await caller.ask(2, few.placed, **mine)
        await until(lambda: held(world, key), 2, timeout_s=5)


async def take_pod_1_away(world: World, caller: Caller) -> None:
    await world.cluster.delete(PODS, NS, "dispatcher-1", grace_period_s=0)
    await until(lambda: caller.service.caches.pods.get(f"{NS}/dispatcher-1") is None, timeout_s=5)


async def test_a_pod_that_comes_back_carries_what_a_caller_has_there():
    world = await a_world()
    async with calling(world) as caller:
        await caller.ask(3, {})
        await take_pod_1_away(world, caller)
        reply = await caller.ask(3, {"dispatcher-0": 1, "dispatcher-1": 1, "dispatcher-2": 1})
        assert reply.status == 200
        async with world.adapters(caller.service):

            async def back() -> bool:
                try:
                    return await world.ledger(1) == {KEY: 1}
                except ApiError:
                    return False

            await until(back, timeout_s=5)


@pytest.mark.parametrize(
    "last", [{"deleted": True}, {"vreplicas": 0}], ids=["deleted", "none wanted"]
)
async def test_what_was_given_back_while_its_pod_was_away_is_taken_from_the_pod_that_comes_back(
    last,
):
    world = await a_world(minPods=3)
    async with calling(world) as caller:
        await caller.ask(3, {})
        await take_pod_1_away(world, caller)
        assert (await caller.ask(placements={}, **last)).status == 200
        async with world.adapters(caller.service):

            async def back() -> bool:
                try:
                    pod = await world.cluster.get(PODS, NS, "dispatcher-1")
                except ApiError:
                    return False
                return bool(pod["spec"].get("nodeName"))

            await until(back, timeout_s=5)
            await until(lambda: world.ledger(1), {}, timeout_s=15)
        await until(lambda: not caller.service.placer.external_vpods, timeout_s=5)


async def test_what_a_pool_still_holds_is_taken_back_where_all_is_given_back_in_another_one():
    """Seed 294000719: the caller had changed its pool while nobody led, so nobody knew that the
    first one held any of it.
    """
    world = await a_world(0, replicas=1)
    await world.edit_ledger(0, {KEY: 2})
    other = {"statefulSet": "other", "slotsPerPod": 20}
    await world.cluster.create(
        ADAPTERPOOLS,
        NS,
        {
            "apiVersion": names.API_VERSION,
            "kind": "AdapterPool",
            "metadata": {"name": "other"},
            "spec": other,
        },
    )
    async with calling(world) as caller:
        await asyncio.sleep(1)
        assert await world.ledger(0) == {KEY: 2}, "nobody has asked yet: it is kept as it stands"
        elsewhere = {"namespace": NS, "name": "other"}
        assert (await caller.post(a_request(elsewhere, deleted=True))).body == {
            "placements": [],
            "left": 0,
        }

        async def free() -> bool:
            return await world.ledger(0) == {} and not list(caller.service.placer.external_vpods)

        await until(free, timeout_s=20)


async def test_what_was_given_back_in_another_pool_is_taken_from_a_pod_that_comes_back():
    """Seed 313000179: nothing of the caller's pool was still to be bound, so who it was had been
    forgotten.
    """
    world = await a_world(0, replicas=1)
    await world.edit_ledger(0, {KEY: 2})
    spec = {"statefulSet": "other", "slotsPerPod": 20}
    body = {
        "apiVersion": names.API_VERSION,
        "kind": "AdapterPool",
        "metadata": {"name": "other"},
        "spec": spec,
    }
    await world.cluster.create(ADAPTERPOOLS, NS, body)
    async with calling(world) as caller:
        await asyncio.sleep(1)
        first = await world.uid(0)
        await world.remove_pod(0)
        await asyncio.sleep(1)
        elsewhere = {"namespace": NS, "name": "other"}
        assert (await caller.post(a_request(elsewhere, deleted=True))).body == {
            "placements": [],
            "left": 0,
        }
        async with world.adapters(caller.service):

            async def free() -> bool:
                with suppress(ApiError):
                    pod = await world.pod_object(0)
                    bound = pod["metadata"]["uid"] != first and bool(pod["spec"].get("nodeName"))
                    return (
                        bound
                        and await world.ledger(0) == {}
                        and not list(caller.service.placer.external_vpods)
                    )
                return False

            await until(free, timeout_s=60)


BAD_BODIES = [
    pytest.param(b"{", "the body is not JSON", id="not JSON"),
    pytest.param(b"[]", "request: must be a JSON object", id="a list"),
    pytest.param({"vpod": {}}, "pool: is required", id="no pool"),
    pytest.param(
        {"vpod": {}, "pool": {"name": "p"}}, "vpod.vreplicas: is required", id="an empty vpod"
    ),
    pytest.param(
        {**a_request(), "pool": {"name": "p"}}, "pool.namespace: is required", id="no namespace"
    ),
    pytest.param(
        {**a_request(), "other": 1}, "other: is not known; known are pool, vpod", id="unknown"
    ),
]
BAD_VPODS = [
    pytest.param({"vreplica": 1}, "vpod.vreplica: is not known", id="a typing error"),
    pytest.param({"vreplicas": None}, "vpod.vreplicas: is required", id="no vreplicas"),
    pytest.param(
        {"vreplicas": -1}, "vpod.vreplicas: must be an integer from 0", id="fewer than none"
    ),
    pytest.param(
        {"vreplicas": True}, "vpod.vreplicas: must be an integer", id="a flag for a count"
    ),
    pytest.param({"vreplicas": 2**31}, "vpod.vreplicas: must be an integer", id="more than int32"),
    pytest.param(
        {"slotsPerVReplica": 0}, "vpod.slotsPerVReplica: must be an integer from 1", id="no weight"
    ),
    pytest.param(
        {"perVReplica": {"cpu": 0}},
        "vpod.perVReplica: cpu must be an integer from 1 to 2147483647, not 0",
        id="an amount of nothing",
    ),
    pytest.param(
        {"perVReplica": {"cpu": 2**31}}, "vpod.perVReplica: cpu must be", id="an absurd amount"
    ),
    pytest.param(
        {"perVReplica": {"slots": 1}}, "vpod.perVReplica: 'slots' is no name", id="slots by amount"
    ),
    pytest.param(
        {"perVReplica": dict.fromkeys("abcde", 1)},
        "vpod.perVReplica: must have at most 4",
        id="five dimensions",
    ),
    pytest.param({"perVReplica": 5}, "vpod.perVReplica: must be an object", id="a bare amount"),
    pytest.param(
        {
            "name": "n" * 253,
            "kind": "K" * 63,
            "group": "g" * 230,
            "perVReplica": {letter * 31: 1 for letter in "abcd"},
        },
        "both together may take 635",
        id="a long name and long amounts",
    ),
    pytest.param({"namespace": "a/b"}, "vpod.namespace: is not a valid name", id="a slash"),
    pytest.param({"name": "a@b"}, "vpod.name: is not a valid name", id="an at sign"),
    pytest.param({"name": ""}, "vpod.name: is not a valid name", id="an empty name"),
    pytest.param({"kind": "a.b"}, "vpod.kind: is not a valid name", id="a dot in a kind"),
    pytest.param({"group": "vreplica.dev"}, "vpod.group: vreplica.dev is ours", id="our own group"),
    pytest.param({"deleted": "yes"}, "vpod.deleted: must be true or false", id="a text for a flag"),
    pytest.param(
        {"resourceVersion": "v7"}, "vpod.resourceVersion: is not a valid name", id="no number"
    ),
    pytest.param(
        {"resourceVersion": [7]}, "vpod.resourceVersion: is not a valid name", id="a list"
    ),
    pytest.param(
        {"placements": {}}, "vpod.placements: must be a list", id="placements as a mapping"
    ),
    pytest.param(
        {"placements": [{"vreplicas": 1}]}, "vpod.placements[0].podName: is required", id="no pod"
    ),
    pytest.param(
        {"placements": [{"podName": "a-0", "vreplicas": 1}] * 10_001},
        "vpod.placements: has 10001 entries",
        id="too many placements",
    ),
]


@pytest.mark.parametrize(("body", "message"), BAD_BODIES)
def test_a_body_that_cannot_be_read_is_told_where(body, message):
    with pytest.raises(WireError, match=re.escape(message)) as caught:
        vpod_of_request(body if isinstance(body, bytes) else orjson.dumps(body))
    assert caught.value.status == 400


@pytest.mark.parametrize(("vpod", "message"), BAD_VPODS)
def test_a_vpod_that_cannot_be_read_is_told_which_field(vpod, message):
    with pytest.raises(WireError, match=re.escape(message)) as caught:
        vpod_of_request(orjson.dumps(a_request(**vpod)))
    assert caught.value.status == 400


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("tenant"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "vpod",
                        "pool",
                        "namespace",
                        "name",
                        "kind",
                        "vreplicas",
                        "placements",
                        "podName",
                        "deleted",
                        "resourceVersion",
                    ]
                ),
                inner,
            )
        ),
    )
)
def test_no_body_raises_anything_but_an_answer(body):
    try:
        encoded = orjson.dumps(body)
    except TypeError:  # an integer that JSON cannot carry
        return
    with suppress(WireError):
        vpod_of_request(encoded)


async def test_an_older_version_of_an_object_is_refused_and_takes_nothing_away():
    world = await a_world()
    async with calling(world) as caller:
        first = await caller.ask(2, resourceVersion="100")
        grown = await caller.ask(6, first.placed, resourceVersion="205")
        late = await caller.ask(2, first.placed, resourceVersion="100")
        assert (late.status, late.headers["Retry-After"]) == (412, "1")
        assert "resourceVersion 205, and 100 is older: read the object again" in late.text
        assert await world.ledger(2) == {KEY: 2}
        again = await caller.ask(6, grown.placed, resourceVersion="205")
        assert (again.status, again.placed) == (200, grown.placed)


@pytest.mark.parametrize("versions", [("100", None), (None, "100"), ("99", "100")])
async def test_a_request_without_a_version_or_with_a_newer_one_is_answered(versions):
    world = await a_world()
    async with calling(world) as caller:
        for version in versions:
            reply = await caller.ask(2, resourceVersion=version)
            assert reply.status == 200


async def test_another_leader_does_not_know_which_version_was_scheduled():
    world = await a_world()
    async with calling(world) as caller:
        await caller.ask(2, resourceVersion="205")
    async with calling(world) as caller:
        assert (await caller.ask(2, resourceVersion="100")).status == 200


def test_a_body_over_the_limit_is_refused_unread():
    with pytest.raises(WireError) as caught:
        vpod_of_request(b" " * (BODY_BYTES_MAX + 1))
    assert caught.value.status == 413


def test_a_caller_that_does_not_say_what_it_is_has_placements():
    body = a_request()
    del body["vpod"]["kind"], body["vpod"]["group"]
    assert vpod_of_request(orjson.dumps(body)).key == f"{TENANT}/a@placeable.duck.knative.dev"
