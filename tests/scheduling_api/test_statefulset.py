"""``extender.scheduling_api.statefulset``: when a scheduler calls its ``VPodLister`` and its
``Evictor``, and what it releases.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extender.kube.api import Obj
from extender.model import names
from extender.scheduling_api import (
    AnyVPod,
    CallersVPod,
    InsufficientSlots,
    NamespacedName,
    Placement,
    StaleVPod,
)
from extender.scheduling_api.statefulset import ConfigMismatch, ResyncFailed, StatefulSetScheduler
from tests.support.builders import NS
from tests.support.scheduling import (
    SOURCE,
    SampleVPod,
    VPodClient,
    a_config,
    a_scheduler,
    by_ordinal,
    controller,
    placed,
)
from tests.support.service import World, a_world, until

KEY = f"tenant/a@{SOURCE}"
DRAINING = {names.UNSCHEDULABLE_ANNOTATION: "true"}


async def a_placed_vpod(
    client: VPodClient, scheduler: StatefulSetScheduler, vreplicas: int = 4, name: str = "a"
) -> SampleVPod:
    """A vpod that publishes its answer."""
    vpod = client.create("tenant", name, vreplicas, {})
    return client.publish(vpod.key, await scheduler.schedule(vpod))


async def a_pool(*ordinals: int, **spec) -> World:
    return await a_world(*ordinals, replicas=len(ordinals), **spec)


def only_one_takes_work(
    scheduler: StatefulSetScheduler, ordinal: int = 0
) -> Callable[[], Awaitable[bool]]:
    """For ``until``: the service has seen that of two pods one is left, by default the first."""

    async def is_so() -> bool:
        return (await scheduler.state()).schedulable_pods == (ordinal,)

    return is_so


# -- the evictor -----------------------------------------------------------------------------------


async def test_what_is_on_a_draining_pod_goes_to_the_evictor_and_is_then_placed_elsewhere():
    world, client = await a_pool(0, 1), VPodClient()
    pods = {"dispatcher-1": {"kind": "Pod"}}
    async with a_scheduler(world, client, pod_lister=pods.get) as scheduler:
        vpod = await a_placed_vpod(client, scheduler)
        assert by_ordinal(vpod.published) == {0: 2, 1: 2}
        await world.annotate(1, **DRAINING)
        await until(only_one_takes_work(scheduler), timeout_s=5)
        client.changed.get_nowait()  # the reconciler has been there before the pod was drained
        async with controller(client, scheduler):

            async def has_moved() -> bool:
                counts = by_ordinal(client.vpods[vpod.key].published)
                return counts == {0: 4} and await world.ledger(1) == {}

            await until(has_moved, timeout_s=5)
    assert client.evicted == [({"kind": "Pod"}, vpod.key, Placement("dispatcher-1", 2))]


async def test_nothing_is_evicted_while_no_other_pod_has_room():
    world, client = await a_pool(0, 1, slots=2, maxPods=2), VPodClient()
    async with a_scheduler(world, client) as scheduler:
        await a_placed_vpod(client, scheduler)
        await world.annotate(1, **DRAINING)
        await until(only_one_takes_work(scheduler), timeout_s=5)
        await scheduler.resync()
    assert client.evicted == []


async def test_what_a_pod_has_that_restarts_is_not_evicted():
    world, client = await a_pool(0, 1), VPodClient()
    async with a_scheduler(world, client) as scheduler:
        await a_placed_vpod(client, scheduler)
        await world.remove_pod(1)
        await until(only_one_takes_work(scheduler), timeout_s=5)
        await scheduler.resync()
    assert client.evicted == []


async def test_an_evictor_that_fails_stops_no_other_vpod_and_is_called_again():
    world, client = await a_pool(0, 1), VPodClient()
    broken = True

    async def evict(pod: object, vpod: SampleVPod, from_: Placement) -> None:
        if broken and vpod.key.name == "a":
            raise ConnectionError("no API server")
        await client.evict(pod, vpod, from_)

    async with a_scheduler(world, client, evictor=evict) as scheduler:
        for name in ("a", "b"):
            await a_placed_vpod(client, scheduler, name=name)
        await world.annotate(1, **DRAINING)
        await until(only_one_takes_work(scheduler), timeout_s=5)
        with pytest.raises(ResyncFailed, match="tenant/a: ConnectionError"):
            await scheduler.resync()
        assert [key.name for _, key, _ in client.evicted] == ["b"]
        broken = False
        await scheduler.resync()
    assert [key.name for _, key, _ in client.evicted] == ["b", "a"]


async def test_a_status_that_differs_otherwise_is_enqueued_and_one_that_agrees_is_not():
    world, client = await a_pool(0, 1), VPodClient()
    enqueued: list[NamespacedName] = []
    async with a_scheduler(world, client) as scheduler:
        await a_placed_vpod(client, scheduler, name="agrees")
        new = client.create("tenant", "new", 3, {})
        scheduler.Promote(enqueued.append)
        await until(lambda: enqueued, timeout_s=5)
        await scheduler.resync()
    assert set(enqueued) == {new.key}
    assert client.evicted == []


async def test_a_controller_that_no_longer_leads_evicts_nothing_more():
    world, client = await a_pool(0, 1), VPodClient()
    reached = asyncio.Event()
    cancelled = asyncio.Event()

    async def evict(_pod: object, _vpod: SampleVPod, _from: Placement) -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with a_scheduler(world, client, evictor=evict) as scheduler:
        client.create("tenant", "a", 4, {0: 2, 7: 2})
        scheduler.promote()
        await asyncio.wait_for(reached.wait(), 5)
        scheduler.demote()
        await asyncio.wait_for(cancelled.wait(), 5)
        lists = client.lists
        scheduler.autoscale()
        await scheduler.reserved()
        assert client.lists == lists


# -- the lister ------------------------------------------------------------------------------------


async def test_listed_vpods_get_their_places_back_after_a_restart_without_one_pod():
    """Only the statuses say what the pod had."""
    world, client = await a_pool(0, 1), VPodClient()
    async with a_scheduler(world, client) as scheduler:
        vpod = await a_placed_vpod(client, scheduler)
        await world.remove_pod(1)
    async with a_scheduler(world, client) as scheduler:
        await scheduler.resync()
        await world.pod(1, {}, node="node-1")

        async def is_back() -> bool:
            await scheduler.resync()
            return await world.ledger(1) == {KEY: 2}

        await until(is_back, timeout_s=5)
        assert await scheduler.schedule(vpod) == placed({0: 2, 1: 2})


async def test_a_vpod_that_two_lists_lack_is_released():
    world, client = await a_pool(0), VPodClient()
    async with a_scheduler(world, client) as scheduler:
        vpod = await a_placed_vpod(client, scheduler)
        other = await a_placed_vpod(client, scheduler, name="other")
        del client.vpods[vpod.key]
        await scheduler.resync()
        assert (await world.ledger(0))[KEY] == 4
        await scheduler.resync()
        assert await world.ledger(0) == {f"tenant/other@{SOURCE}": 4}
        assert (await scheduler.Reserved()).keys() == {other.key}


async def test_what_a_former_process_left_behind_is_released_too():
    world, client = await a_pool(0), VPodClient()
    async with a_scheduler(world, client) as scheduler:
        vpod = await a_placed_vpod(client, scheduler)
    del client.vpods[vpod.key]
    async with a_scheduler(world, client) as scheduler:
        await scheduler.resync()
        await scheduler.resync()
        assert await world.ledger(0) == {}


async def test_a_vpod_that_is_scheduled_while_the_list_lags_behind_is_not_released():
    world, client = await a_pool(0), VPodClient()
    async with a_scheduler(world, client) as scheduler:
        for _ in range(2):
            vpod = client.create("tenant", "a", 2, {0: 2})
            await scheduler.schedule(vpod)
            del client.vpods[vpod.key]
            await scheduler.resync()
        assert await world.ledger(0) == {KEY: 2}


async def test_vpods_of_other_kinds_are_not_released():
    world, client = await World.create(replicas=1), VPodClient()
    theirs = {"tenant/theirs@broker.x.dev": 2, "tenant/vpod": 1}
    await world.vpod("vpod", 1, {0: 1})
    await world.pod(0, theirs, node="node-0")
    async with a_scheduler(world, client) as scheduler:
        for _ in range(3):
            await scheduler.resync()
        assert await world.ledger(0) == theirs
        assert await scheduler.reserved() == {}


async def test_a_vpod_that_has_gone_to_another_pool_is_not_released():
    world, client, elsewhere = await a_pool(0), VPodClient(), VPodClient()
    await world.pool(name="second")
    async with a_scheduler(world, client) as first:
        config = replace(first._config, pool="second", vpod_lister=elsewhere.list)
        async with StatefulSetScheduler(config) as second:
            vpod = await a_placed_vpod(client, first)
            del client.vpods[vpod.key]
            moved = elsewhere.create(*vpod.key, 3, {})
            with pytest.raises(InsufficientSlots):
                await second.schedule(replace(moved, version="12399"))
            for _ in range(3):
                await first.resync()
            known = await second._http.describe()
            assert [item["vreplicas"] for item in known["vpodList"]] == [3]


async def test_a_lister_that_fails_releases_nothing():
    world, client = await a_pool(0), VPodClient()
    ready = True

    def list_vpods() -> Sequence[AnyVPod]:
        if not ready:
            raise RuntimeError("the cache has not synced")
        return client.list()

    async with a_scheduler(world, client, vpod_lister=list_vpods) as scheduler:
        await a_placed_vpod(client, scheduler)
        ready = False
        for _ in range(3):
            with pytest.raises(ResyncFailed, match=r"the VPodLister: .*has not synced"):
                await scheduler.resync()
        assert await world.ledger(0) == {KEY: 4}


# -- versions and deletion -------------------------------------------------------------------------


async def test_an_object_older_than_the_listed_one_is_refused():
    world, client = await a_pool(0), VPodClient()
    async with a_scheduler(world, client) as scheduler:
        old = client.create("tenant", "a", 4, {})
        new = client.publish(old.key, placed({0: 4}))
        with pytest.raises(StaleVPod, match="12345 is older than the listed 12346") as caught:
            await scheduler.schedule(old)
        assert caught.value.retry_after_s == 1.0
        assert await scheduler.schedule(new) == placed({0: 4})
        assert await scheduler.schedule(replace(new, version="12347")) == placed({0: 4})


async def test_a_list_that_lags_behind_what_was_scheduled_changes_nothing():
    world, client = await a_pool(0, 1), VPodClient()
    async with a_scheduler(world, client) as scheduler:
        old = await a_placed_vpod(client, scheduler, 2)
        await scheduler.schedule(replace(old, wanted=6, version="12399"))
        await scheduler.resync()
        reserved = await scheduler.reserved()
    assert reserved[old.key] == {"dispatcher-0": 3, "dispatcher-1": 3}
    assert client.evicted == []


async def test_an_object_with_a_deletion_timestamp_is_released_when_it_is_scheduled():
    world, client = await a_pool(0), VPodClient()
    async with a_scheduler(world, client) as scheduler:
        vpod = await a_placed_vpod(client, scheduler)
        gone = replace(vpod, deletion_timestamp="2026-06-17T00:00:00Z")
        client.vpods[vpod.key] = gone
        for _ in range(3):
            await scheduler.resync()
        assert await world.ledger(0) == {KEY: 4}  # its finalizers may need the adapters
        assert await scheduler.schedule(gone) == []
        assert await world.ledger(0) == {}


async def test_an_object_without_the_getters_is_refused_by_the_name_of_its_type():
    class Incomplete:
        def GetKey(self) -> tuple[str, str]:  # noqa: N802
            return "tenant", "a"

    async with StatefulSetScheduler(a_config("http://127.0.0.1:1", VPodClient())) as scheduler:
        with pytest.raises(TypeError, match=r"Incomplete is no vpod: .*GetResourceVersion"):
            await scheduler.schedule(Incomplete())  # type: ignore[arg-type]


def test_a_plain_vpod_has_the_getters_of_knative():
    vpod = CallersVPod(namespace="tenant", name="a", vreplicas=3, resource_version="7")
    found = (vpod.GetKey(), vpod.GetVReplicas(), vpod.GetPlacements(), vpod.GetResourceVersion())
    assert found == (("tenant", "a"), 3, (), "7")
    assert vpod.GetDeletionTimestamp() is None
    assert replace(vpod, deleted=True).GetDeletionTimestamp() is not None


# -- the configuration -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"pod_capacity": 50},
            f"Config.pod_capacity is 50, and spec.slotsPerPod of AdapterPool {NS}/dispatcher is 20",
            id="capacity",
        ),
        pytest.param({"min_replicas": 2}, "spec.minPods of .* is 1", id="the pool's minimum"),
        pytest.param({"min_replicas": 1}, "spec.minPodsPerVPod of .* is 3", id="a vpod's minimum"),
    ],
)
async def test_a_setting_that_the_pool_has_otherwise_is_logged_once_and_the_rest_goes_on(
    fields, message, caplog
):
    world, client = await a_pool(0, 1, minPods=1, minPodsPerVPod=3), VPodClient()
    async with a_scheduler(world, client, **fields) as scheduler:
        await a_placed_vpod(client, scheduler, vreplicas=1)
        await world.annotate(0, **DRAINING)
        await until(only_one_takes_work(scheduler, ordinal=1), timeout_s=5)
        for _ in range(2):
            await scheduler.resync()
    assert len([line for line in caplog.messages if re.search(message, line)]) == 1
    assert [placement.pod_name for *_, placement in client.evicted] == ["dispatcher-0"]


async def test_the_pool_of_another_stateful_set_is_refused():
    world, client = await a_pool(0), VPodClient()
    fields: dict[str, Any] = {"stateful_set_name": "other", "pool": "dispatcher"}
    async with a_scheduler(world, client, **fields) as scheduler:
        with pytest.raises(ConfigMismatch, match=r"Config.stateful_set_name is other"):
            await scheduler.resync()


@pytest.mark.parametrize("field", ["refresh_period_s", "retry_period_s"])
def test_a_period_of_nothing_is_refused(field):
    with pytest.raises(ValueError, match="over 0 s"):
        a_config("http://127.0.0.1:1", VPodClient(), **{field: 0})


# -- the page --------------------------------------------------------------------------------------


class Framework:
    """What the example of docs/python-api.md calls ``controller``."""

    def __init__(self, client: dict[NamespacedName, Any], made_of: Callable[[Obj], Any]) -> None:
        self.objects = client
        self.made_of = made_of
        self.later: list[tuple[NamespacedName, float]] = []
        self._queue: asyncio.Queue[NamespacedName] = asyncio.Queue()
        self.enqueue = self._queue.put_nowait

    def get(self, key: NamespacedName) -> Any:
        return self.made_of(self.objects[key])

    def list(self) -> Sequence[Any]:
        return [self.made_of(obj) for obj in self.objects.values()]

    def enqueue_after(self, key: NamespacedName, delay_s: float) -> None:
        self.later.append((key, delay_s))

    async def write_status(self, key: NamespacedName, placements: Sequence[Placement]) -> None:
        listed = [{"podName": item.pod_name, "vreplicas": item.vreplicas} for item in placements]
        obj = self.objects[key]
        if obj.get("status", {}).get("placements", []) == listed:
            return
        version = str(int(obj["metadata"]["resourceVersion"]) + 1)
        metadata = {**obj["metadata"], "resourceVersion": version}
        self.objects[key] = {**obj, "metadata": metadata, "status": {"placements": listed}}
        self.enqueue(key)

    async def run(self, reconcile: Callable[[NamespacedName], Awaitable[None]]) -> None:
        while True:
            await reconcile(await self._queue.get())


async def test_the_controller_of_the_page_places_drains_and_asks_again():
    page = (Path(__file__).parents[2] / "docs" / "python-api.md").read_text()
    module: dict[str, Any] = {}
    code = page[page.index("## Porting") :].partition("```python\n")[2].partition("```")[0]
    exec(code.replace("refresh_period_s=100", "refresh_period_s=0.1"), module)
    key = NamespacedName("tenant", "a")
    metadata = {"namespace": "tenant", "name": "a", "resourceVersion": "7"}
    objects = {key: {"metadata": metadata, "spec": {"replicas": 4}}}
    framework = Framework(objects, module["ConsumerGroup"])

    def published() -> dict[int, int]:
        return by_ordinal(framework.get(key).GetPlacements())

    world = await a_pool(0, 1, maxPods=2)
    async with a_scheduler(world, VPodClient()) as other:
        (url,) = other._http._urls
        task = asyncio.create_task(module["run"](url, framework))
        await until(published, {0: 2, 1: 2}, timeout_s=5)
        await world.annotate(1, **DRAINING)
        await until(published, {0: 4}, timeout_s=5)
        task.cancel()
        await asyncio.wait({task})
    assert framework.later == []
