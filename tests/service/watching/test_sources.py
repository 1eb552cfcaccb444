"""Objects of foreign kinds as vpods: whose they are, how they are placed, and that none is taken
for gone unseen.
"""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml

from extender.kube.api import (
    ADAPTERPOOLS,
    CRDS,
    NAMESPACES,
    ApiError,
    Forbidden,
    Obj,
    PatchType,
    Resource,
)
from extender.model.decode import pod_from, pool_from
from extender.model.ledger import Share
from tests.support.builders import NS, POOL
from tests.support.service import TENANT, World, schedule, until

pytestmark = pytest.mark.looptime

KNATIVE = Path(__file__).parents[2] / "contract" / "knative"
EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples" / "knative"
GROUPS = Resource(
    "internal.kafka.eventing.knative.dev", "v1alpha1", "consumergroups", "ConsumerGroup"
)
KAFKA = Resource("sources.knative.dev", "v1beta1", "kafkasources", "KafkaSource")
GROUP_KEY = "consumergroup.internal.kafka.eventing.knative.dev"
KEY = f"{TENANT}/g@{GROUP_KEY}"
PRESET = {"preset": "knative-consumergroup"}
PLACE = {
    "group": GROUPS.group,
    "version": "v1alpha1",
    "resource": GROUPS.plural,
    "kind": GROUPS.kind,
}
"""What the preset names, as a pool says it by itself."""


async def define(world: World, *names: str) -> None:
    for name in names or ("consumergroups",):
        await world.cluster.create(CRDS, "", yaml.safe_load((KNATIVE / f"{name}.yaml").read_text()))


async def a_world(*, defined: bool = True, **pool_spec) -> World:
    world = await World.create(**{"sources": [PRESET], **pool_spec})
    if defined:
        await define(world)
    return world


async def group(world: World, name: str = "g", replicas: int | None = 3, **more) -> None:
    spec: Obj = {"template": {}} | ({} if replicas is None else {"replicas": replicas})
    metadata = {"name": name, **more.pop("metadata", {})}
    obj = {
        "apiVersion": GROUPS.api_version,
        "kind": GROUPS.kind,
        "metadata": metadata,
        "spec": spec,
    }
    await world.cluster.create(GROUPS, more.pop("namespace", TENANT), obj)
    if more:
        await set_status(world, name, **more)


async def set_status(world: World, name: str = "g", **status) -> None:
    await world.patch_status(GROUPS, TENANT, name, **status)


async def want(world: World, replicas: int, name: str = "g") -> None:
    await world.cluster.patch(
        GROUPS, TENANT, name, {"spec": {"replicas": replicas}}, patch_type=PatchType.MERGE
    )


async def status_of(world: World, name: str = "g", resource: Resource = GROUPS) -> Obj:
    return dict((await world.cluster.get(resource, TENANT, name)).get("status", {}))


async def placed(world: World, name: str = "g") -> int:
    return sum(p["vreplicas"] for p in (await status_of(world, name)).get("placements", []))


async def placed_is(world: World, count: int, name: str = "g") -> None:
    await until(lambda: placed(world, name), count, timeout_s=30)


async def condition_is(
    world: World, kind: str, status: str, reason: str, pool: str = "dispatcher"
) -> str:
    await until(lambda: world.pool_condition(kind, pool), (status, reason), timeout_s=60)
    return await world.pool_message(kind, pool)


async def keys(world: World) -> set[str]:
    return {key for ordinal in range(3) for key in await world.ledger(ordinal)}


async def test_a_consumer_group_is_placed_and_its_status_is_in_its_own_shape():
    world = await a_world()
    await world.pods(0, 1, 2)
    theirs: Obj = {
        "conditions": [{"type": "Ready", "status": "Unknown"}],
        "replicas": 0,
        "subscriberUri": "http://x",
    }
    await group(world, replicas=4)
    await set_status(world, **theirs)
    async with world.serving():
        await placed_is(world, 4)
        status = await status_of(world)
        ours = [c["type"] for c in status["conditions"] if c not in theirs["conditions"]]
        assert ours == ["vreplica.dev/Scheduled", "vreplica.dev/Available"]
        status["conditions"] = [c for c in status["conditions"] if c["type"] not in ours]
        assert {key: status[key] for key in theirs} == theirs
        assert status["placements"] == [
            {"podName": "dispatcher-0", "vreplicas": 2},
            {"podName": "dispatcher-1", "vreplicas": 1},
            {"podName": "dispatcher-2", "vreplicas": 1},
        ]
        assert set(status) == {*theirs, "placements"}
        assert await world.ledger(0) == {KEY: 2}


async def test_a_consumer_group_without_replicas_wants_one():
    world = await a_world()
    await world.pods(0)
    await group(world, replicas=None)
    async with world.serving():
        await placed_is(world, 1)


async def test_it_grows_shrinks_and_goes():
    world = await a_world()
    await world.pods(0, 1, 2)
    await group(world, replicas=3)
    async with world.serving():
        await placed_is(world, 3)
        await want(world, 9)
        await placed_is(world, 9)
        await want(world, 2)
        await placed_is(world, 2)
        await world.cluster.delete(GROUPS, TENANT, "g")

        await until(lambda: keys(world), set(), timeout_s=30)


async def test_a_kafka_source_has_its_count_written_and_its_limit_respected():
    world = await a_world(defined=False, sources=[{"preset": "knative-kafkasource"}])
    await define(world, "kafkasources")
    await world.pods(0, 1, 2)
    obj = {
        "apiVersion": KAFKA.api_version,
        "kind": "KafkaSource",
        "metadata": {"name": "k"},
        "spec": {"consumers": 9},
    }
    await world.cluster.create(KAFKA, TENANT, obj)
    await world.patch_status(KAFKA, TENANT, "k", maxAllowedVReplicas=5)
    async with world.serving():

        async def counted() -> bool:
            return (await status_of(world, "k", KAFKA)).get("consumers") == 5

        await until(counted, timeout_s=30)
        status = await status_of(world, "k", KAFKA)
        assert sum(p["vreplicas"] for p in status["placements"]) == 5


async def test_a_kind_that_is_not_served_stops_nothing_and_is_watched_when_it_comes():
    world = await a_world(defined=False)
    await world.pods(0)
    await world.vpod("a", 2)
    async with world.serving() as service:
        await until(world.published, {0: 2}, timeout_s=10)
        assert service.health.problems() == []
        message = await condition_is(world, "SourceUnavailable", "True", "NotServed")
        unavailable = f'vreplica_scheduler_source_unavailable{{source="{GROUP_KEY}"}}'
        assert f"{unavailable} 1.0" in service.metrics.render().decode()
        assert (
            "consumergroups are not served in internal.kafka.eventing.knative.dev/v1alpha1"
            in message
        )
        await define(world)
        await group(world, replicas=3)
        await condition_is(world, "SourceUnavailable", "False", "AllWatched")
        await placed_is(world, 3)
        rendered = service.metrics.render().decode()
        assert f"{unavailable} 0.0" in rendered
        assert f'vreplica_scheduler_source_objects{{source="{GROUP_KEY}"}} 1.0' in rendered


async def test_what_a_ledger_has_of_a_kind_that_cannot_be_listed_is_not_released():
    world = await a_world()
    await world.pod(0, {KEY: 3}, node="node-0")
    world.api.fail(
        "list", "consumergroups", times=10_000, before=Forbidden(403, "Forbidden", "no rights")
    )
    async with world.serving():
        message = await condition_is(world, "SourceUnavailable", "True", "Forbidden")
        assert "no rights" in message
        await asyncio.sleep(200)
        assert await world.ledger(0) == {KEY: 3}
        world.api.faults.clear()
        await until(lambda: world.ledger(0), {}, timeout_s=60)


async def test_a_pod_that_comes_back_at_the_start_waits_for_what_foreign_kinds_publish_on_it():
    world = await a_world()
    await group(world, replicas=3, placements=[{"podName": "dispatcher-0", "vreplicas": 3}])
    await world.pod(0)
    pause = world.api.pause("list", "consumergroups")
    service = world.service()
    task = asyncio.create_task(service.run())
    await pause.reached.wait()
    assert service.health.problems() == ["caches not synced: foreign sources"]
    pause.go_on.set()
    await service.informers.wait_synced()
    assert await schedule(service, await world.pod_object(0), ["node-0"]) == ""
    assert await world.ledger(0) == {KEY: 3}
    task.cancel()
    await asyncio.wait({task})


async def test_when_the_list_comes_late_a_group_keeps_where_it_is():
    world = await a_world(rebalance={"movesPerPeriod": 0})
    await world.pod(0, {}, node="node-0")
    await world.pod(1, {KEY: 3}, node="node-1")
    await group(world, replicas=3, placements=[{"podName": "dispatcher-1", "vreplicas": 3}])
    world.api.fail("list", "consumergroups", times=5, before=ApiError(500, "InternalError", "etcd"))
    async with world.serving():
        await asyncio.sleep(100)
        assert (await world.ledger(1), await world.ledger(0)) == ({KEY: 3}, {})
        assert await placed(world) == 3
    written = [
        call.what for call in world.api.writes() if call.what.startswith(("pods", "consumergroups"))
    ]
    assert written == ["consumergroups/status"], "its conditions, which it did not have"


async def test_an_object_that_becomes_unreadable_keeps_what_is_known_of_it():
    world = await a_world()
    await world.pods(0)
    await group(world, replicas=3)
    async with world.serving() as service:
        await placed_is(world, 3)
        await world.cluster.patch(
            GROUPS, TENANT, "g", {"spec": {"replicas": "many"}}, patch_type=PatchType.MERGE
        )
        await asyncio.sleep(90)
        assert await world.ledger(0) == {KEY: 3}
        known = service.caches.vpods.get(KEY)
        assert known is not None
        assert known.vreplicas == 3


async def test_a_pool_that_ceases_to_declare_a_kind_keeps_what_its_objects_publish():
    world = await a_world()
    await world.pods(0)
    await group(world, replicas=3)
    async with world.serving() as service:
        await placed_is(world, 3)
        await patch_pool(world, {"sources": []})
        await until(lambda: service.caches.vpods.get(KEY) is None, timeout_s=10)
        await asyncio.sleep(130)
        assert await world.ledger(0) == {KEY: 3}
        assert (await world.pool_condition("SourceUnavailable"))[0] == "False"
        watches = world.api.count("watch", "consumergroups")
        await asyncio.sleep(700)
        assert world.api.count("watch", "consumergroups") == watches


async def test_conditions_about_kinds_that_a_pool_has_dropped_meanwhile_go_with_the_next_leader():
    world = await a_world(defined=False)
    await world.pods(0)
    kinds = ("SourceUnavailable", "SourceConflict")
    async with world.serving():
        await condition_is(world, "SourceUnavailable", "True", "NotServed")
        await condition_is(world, "SourceConflict", "False", "NoConflict")
    await patch_pool(world, {"sources": []})
    async with world.serving(seed=2):
        for kind in kinds:
            await until(partial(world.pool_condition, kind), ("", ""), timeout_s=30)


async def patch_pool(world: World, spec: Obj, pool: str = "dispatcher") -> None:
    await world.cluster.patch(ADAPTERPOOLS, NS, pool, {"spec": spec}, patch_type=PatchType.MERGE)


async def another_pool(world: World, name: str, **spec) -> None:
    obj = {
        "apiVersion": "vreplica.dev/v1alpha1",
        "kind": "AdapterPool",
        "metadata": {"name": name},
        "spec": {"statefulSet": name, "slotsPerPod": 20, **spec},
    }
    await world.cluster.create(ADAPTERPOOLS, NS, obj)


async def test_of_two_pools_the_first_by_key_gets_and_keeps_an_object_and_the_other_is_told():
    world = await a_world()
    await another_pool(world, "later", sources=[PRESET])
    await world.pods(0)
    await group(world, replicas=3)
    async with world.serving() as service:
        await placed_is(world, 3)
        message = await condition_is(world, "SourceConflict", "True", "TakenByAnotherPool", "later")
        assert message == f"1 objects of {GROUP_KEY} belong to {POOL}"
        assert await world.pool_condition("SourceConflict") == ("False", "NoConflict")
        await another_pool(world, "a-first", sources=[PRESET])
        message = await condition_is(
            world, "SourceConflict", "True", "TakenByAnotherPool", "a-first"
        )
        assert message == f"1 objects of {GROUP_KEY} belong to {POOL}"
        await placed_is(world, 3)
        await world.cluster.delete(ADAPTERPOOLS, NS, "dispatcher")

        async def moved() -> bool:
            vpod = service.caches.vpods.get(KEY)
            return vpod is not None and vpod.pool == f"{NS}/a-first"

        await until(moved, timeout_s=10)


async def test_after_a_restart_an_object_is_of_the_pool_on_whose_pods_it_stands():
    world = await a_world()
    await world.pods(0)
    await group(world, replicas=3)
    async with world.serving():
        await placed_is(world, 3)
    await another_pool(world, "a-first", sources=[PRESET])
    async with world.serving() as service:
        await condition_is(world, "SourceConflict", "True", "TakenByAnotherPool", "a-first")
        (vpod,) = service.caches.state.pools[POOL].vpods.values()
        assert vpod.key == KEY
        await placed_is(world, 3)


async def test_a_pool_that_comes_first_later_does_not_say_in_which_version_a_kind_is_read():
    world = await a_world()
    await world.pods(0)
    await group(world, replicas=3)
    paths = {"vreplicas": "spec.replicas", "placements": "status.placements"}
    place = {**PLACE, "version": "v2"}
    async with world.serving():
        await placed_is(world, 3)
        await another_pool(world, "a-first", sources=[{**place, "paths": paths}])
        message = await condition_is(
            world, "SourceConflict", "True", "TakenByAnotherPool", "a-first"
        )
        assert f"is read in version v1alpha1, as {POOL} says" in message
        await want(world, 5)
        await placed_is(world, 5)


async def test_another_version_of_a_kind_that_is_watched_is_a_conflict():
    world = await a_world()
    paths = {"vreplicas": "spec.replicas", "placements": "status.placements"}
    other = {
        "group": GROUPS.group,
        "version": "v2",
        "resource": GROUPS.plural,
        "kind": GROUPS.kind,
        "paths": paths,
    }
    await another_pool(world, "later", sources=[other])
    async with world.serving():
        message = await condition_is(world, "SourceConflict", "True", "TakenByAnotherPool", "later")
        assert f"is read in version v1alpha1, as {POOL} says" in message


async def test_only_objects_with_the_labels_and_namespaces_that_a_pool_selects_are_its_own():
    world = await a_world(
        sources=[{**PRESET, "labelSelector": {"matchLabels": {"pool": "here"}}}],
        namespaceSelector={"matchLabels": {"tier": "gold"}},
    )
    await world.pods(0)
    here = {"labels": {"pool": "here"}}
    await group(world, "g", 1, metadata=here)
    await group(world, "unlabelled", 1)
    async with world.serving() as service:
        await asyncio.sleep(5)
        assert not service.caches.vpods.list()
        labels = {"metadata": {"labels": {"tier": "gold"}}}
        await world.cluster.patch(NAMESPACES, "", TENANT, labels, patch_type=PatchType.MERGE)
        await placed_is(world, 1)
        assert [vpod.name for vpod in service.caches.vpods.list()] == ["g"]


async def test_an_object_whose_labels_no_pool_selects_now_keeps_its_place_until_it_wants_none():
    world = await a_world(sources=[{**PRESET, "labelSelector": {"matchLabels": {"pool": "here"}}}])
    await world.pods(0)
    await group(world, replicas=3, metadata={"labels": {"pool": "here"}})
    async with world.serving():
        await placed_is(world, 3)
        labels = {"metadata": {"labels": {"pool": "a-pool-that-is-gone"}}}
        await world.cluster.patch(GROUPS, TENANT, "g", labels, patch_type=PatchType.MERGE)
        await asyncio.sleep(100)
        assert (await world.ledger(0), await placed(world)) == ({KEY: 3}, 3)
    async with world.serving(seed=2):
        await asyncio.sleep(100)
        assert (await world.ledger(0), await placed(world)) == ({KEY: 3}, 3)
        await want(world, 0)
        await placed_is(world, 0)
        await until(lambda: world.ledger(0), {}, timeout_s=10)


async def test_two_entries_for_one_kind_read_and_write_their_own_objects():
    first = {"vreplicas": "spec.replicas", "placements": "status.placements"}
    second = {"vreplicas": "spec.n", "placements": "status.where", "podName": "pod", "count": "n"}
    world = await a_world(
        sources=[
            {**PLACE, "paths": first, "labelSelector": {"matchLabels": {"form": "first"}}},
            {**PLACE, "paths": second},
        ]
    )
    await world.pods(0)
    await group(world, "g", 2, metadata={"labels": {"form": "first"}})
    await group(world, "h", None)
    await world.cluster.patch(GROUPS, TENANT, "h", {"spec": {"n": 3}}, patch_type=PatchType.MERGE)
    async with world.serving():
        await placed_is(world, 2, "g")
        await until(
            lambda: status_of(world, "h"),
            {"where": [{"pod": "dispatcher-0", "n": 3}]},
            timeout_s=10,
        )


async def test_a_pool_that_reads_an_object_otherwise_does_not_lose_it_meanwhile():
    """Found by review: it was deleted and came anew, and that ended the doubt about a status write
    that could still arrive (I2).
    """
    paths = {"vreplicas": "spec.replicas", "placements": "status.placements"}
    form = {"labelSelector": {"matchLabels": {"form": "first"}}}
    other = {"vreplicas": "spec.n", "placements": "status.placements"}
    world = await a_world(
        sources=[{**PLACE, "paths": paths, **form}, {**PLACE, "paths": other}], minPods=1
    )
    await group(world, "g", 2, metadata={"labels": {"form": "first"}})
    await world.cluster.patch(GROUPS, TENANT, "g", {"spec": {"n": 3}}, patch_type=PatchType.MERGE)
    async with world.serving() as service:
        await until(lambda: service.caches.vpods.get(KEY) is not None, timeout_s=10)
        gone: list[str] = []
        service.caches.vpods.add_event_handler(
            lambda old, new: gone.append(old.key) if old and not new else None
        )
        form["labelSelector"] = {"matchLabels": {"form": "second"}}
        await patch_pool(
            world, {"sources": [{**PLACE, "paths": paths, **form}, {**PLACE, "paths": other}]}
        )

        async def is_read_otherwise() -> bool:
            vpod = service.caches.vpods.get(KEY)
            return vpod is not None and vpod.vreplicas == 3

        await until(is_read_otherwise, timeout_s=10)
        assert gone == []


async def test_a_namespace_that_is_selected_no_more_moves_nothing_and_gets_no_more():
    world = await a_world(namespaceSelector={"matchLabels": {"tier": "gold"}})
    labels: Obj = {"metadata": {"labels": {"tier": "gold"}}}
    await world.cluster.patch(NAMESPACES, "", TENANT, labels, patch_type=PatchType.MERGE)
    await world.pods(0)
    await group(world, replicas=3)
    async with world.serving():
        await placed_is(world, 3)
        labels["metadata"]["labels"]["tier"] = None
        await world.cluster.patch(NAMESPACES, "", TENANT, labels, patch_type=PatchType.MERGE)
        await want(world, 5)
        await asyncio.sleep(100)
        assert (await world.ledger(0), await placed(world)) == ({KEY: 3}, 3)
    async with world.serving(seed=2):
        await asyncio.sleep(100)
        assert (await world.ledger(0), await placed(world)) == ({KEY: 3}, 3)


async def test_where_the_status_is_the_callers_only_the_ledger_is_written():
    world = await a_world(sources=[{**PRESET, "writeStatus": False}])
    await world.pods(0)
    await group(world, replicas=3)
    async with world.serving():
        await until(lambda: world.ledger(0), {KEY: 3}, timeout_s=30)
        await asyncio.sleep(100)
        assert await status_of(world) == {}


async def test_an_entry_that_cannot_be_read_does_not_stop_the_others():
    world = await a_world()
    source = {"group": "x.dev", "version": "v1", "resource": "xs", "kind": "X"}
    paths = {"vreplicas": "spec.n", "placements": "spec.placements"}
    definition = await world.cluster.get(CRDS, "", "adapterpools.vreplica.dev")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["properties"]["sources"] = {
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    await world.cluster.update(CRDS, "", "adapterpools.vreplica.dev", definition)
    await patch_pool(world, {"sources": [{**source, "paths": paths}, PRESET]})
    await world.pods(0)
    await group(world, replicas=3)
    async with world.serving():
        await placed_is(world, 3)
        message = await condition_is(world, "SourceUnavailable", "True", "InvalidSource")
        assert message.startswith("spec.sources[0].paths.placements must be below status")


async def test_paths_that_change_are_read_from_the_next_list_on():
    world = await a_world(defined=False, sources=[])
    await define(world)
    await world.pods(0, 1)
    await group(world, replicas=2)
    paths = {"vreplicas": "spec.replicas", "placements": "status.placements"}
    await patch_pool(world, {"sources": [{**PLACE, "paths": paths}]})
    async with world.serving():
        await placed_is(world, 2)
        await world.cluster.patch(
            GROUPS, TENANT, "g", {"spec": {"other": 5, "weight": 2}}, patch_type=PatchType.MERGE
        )
        paths = {**paths, "vreplicas": "spec.other", "slotsPerVReplica": "spec.weight"}
        await patch_pool(world, {"sources": [{**PLACE, "paths": paths}]})
        await placed_is(world, 5)
        await asyncio.sleep(30)
        ledgers = [
            share for ordinal in (0, 1) for share in _shares(await world.pod_object(ordinal))
        ]
        assert sum(share.vreplicas for share in ledgers) == 5
        assert {share.weight for share in ledgers} == {2}


def _shares(pod: Obj) -> list[Share]:
    return list(pod_from(pod).ledger.values())


async def test_a_kind_that_is_dropped_while_its_old_watch_is_stopped_ends_nothing():
    paths = {"vreplicas": "spec.replicas", "placements": "status.placements"}
    place = {**PLACE, "paths": paths}
    world = await a_world(sources=[place])
    await world.pods(0)
    await group(world, replicas=3)
    async with world.serving() as service:
        await placed_is(world, 3)
        sources, pools = service.informers.sources, service.caches.pools
        await patch_pool(world, {"sources": [{**place, "version": "v1beta9"}]})
        while sources.objects():  # noqa: ASYNC110 - the watch is about to end
            await asyncio.sleep(0)
        pool = pools.get(POOL)
        assert pool is not None
        pools.update(replace(pool, sources=(), generation=pool.generation + 1))
        await asyncio.sleep(5)
        assert service.caches.vpods.get(KEY) is None
        await patch_pool(world, {"sources": [place]})
        await want(world, 5)
        await placed_is(world, 5)


async def test_vpods_are_listed_again_without_losing_those_of_foreign_kinds():
    world = await a_world()
    await world.pods(0)
    await world.vpod("a", 1)
    await group(world, replicas=3)
    async with world.serving() as service:
        await placed_is(world, 3)
        await service.informers._vpods.relist()
        assert {vpod.key for vpod in service.caches.vpods.list()} == {f"{TENANT}/a", KEY}


async def test_a_version_that_ceases_to_be_served_is_probed_for_again():
    world = await a_world()
    await world.pods(0)
    await group(world, replicas=3)
    async with world.serving() as service:
        await placed_is(world, 3)
        await world.cluster.delete(CRDS, "", "consumergroups.internal.kafka.eventing.knative.dev")
        # Ends the watches, as an API server does with those of a kind that goes.
        world.cluster.compact()
        await condition_is(world, "SourceUnavailable", "True", "NotServed")
        await define(world)
        await group(world, "h", 2)
        await condition_is(world, "SourceUnavailable", "False", "AllWatched")
        await placed_is(world, 2, "h")
        assert service.caches.vpods.get(KEY) is None


async def test_what_nobody_serves_of_a_foreign_kind_is_told_by_the_pool_and_by_the_object():
    world = await a_world()
    await world.pods(0)
    async with world.serving() as service:
        await group(world, replicas=3)
        await placed_is(world, 3)
        await asyncio.sleep(5)
        pool = await world.cluster.get(ADAPTERPOOLS, NS, "dispatcher")
        counts = ("readyVReplicas", "unservedVReplicas", "unavailableVPods")
        assert [pool["status"][name] for name in counts] == [0, 3, 1], (
            "its pod has not been Ready yet"
        )
        assert await world.pool_condition("Available") == ("False", "PodNotReady")
        text = service.metrics.render().decode()
        assert f'pool_unserved_vreplicas{{pool="{POOL}"}} 3.0' in text
        status = await status_of(world)
        assert [c["reason"] for c in status["conditions"]] == ["AllPlaced", "PodNotReady"]
        assert not {"readyVReplicas", "replicas"} & status.keys()
        assert [
            event
            for event in await world.events("Unavailable")
            if event["regarding"]["kind"] == "ConsumerGroup"
        ] == []


@pytest.mark.parametrize(
    ("kind", "stateful_set"),
    [
        ("kafkasource", "kafka-source-dispatcher"),
        ("trigger", "kafka-broker-dispatcher"),
        ("kafkachannel", "kafka-channel-dispatcher"),
    ],
)
def test_a_consumer_group_is_of_the_pool_whose_dispatchers_serve_its_kind(
    kind: str, stateful_set: str
):
    """The StatefulSets and labels of Knative's consumergroup controller (getSelectorLabel)."""
    pools = [
        pool_from(yaml.safe_load(file.read_text()))
        for file in sorted(EXAMPLES.glob("kafka-*-dispatcher.yaml"))
    ]
    assert len(pools) == 3
    labels = {"kafka.eventing.knative.dev/metadata.kind": kind}
    selecting = [pool for pool in pools if pool.sources[0].selector.matches(labels)]
    assert [(pool.name, pool.stateful_set) for pool in selecting] == [(stateful_set, stateful_set)]
