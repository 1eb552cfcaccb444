import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from extender.kube.api import Api, Forbidden, ListPage, Obj, WatchEvent, WatchEventType
from extender.kube.reflector import Reflector
from extender.model.objects import Namespace
from tests.kube.fakes import give_list
from tests.support.tasks import at_work
from tests.webhook.builders import NS, a_namespace, a_pool_object, a_vpod_object, caches
from webhook.caches import WebhookCaches
from webhook.metrics import Metrics


def event(kind: str, obj: Obj) -> WatchEvent:
    return WatchEvent(WatchEventType(kind), obj)


def test_caches_are_synced_when_each_has_had_its_list():
    view = WebhookCaches()
    for sink in view.sinks.values():
        assert not view.synced
        give_list(sink, [], "1")
    assert view.synced


def test_events_keep_objects_current():
    view = caches(pools=[a_pool_object()])
    view.vpods.apply(event("ADDED", a_vpod_object(weight=2)))
    assert view.vpods.objects["tenant-a/orders"].weight == 2
    view.vpods.apply(event("MODIFIED", a_vpod_object(weight=3)))
    assert view.vpods.objects["tenant-a/orders"].weight == 3
    view.vpods.apply(event("BOOKMARK", {"metadata": {"resourceVersion": "9"}}))
    view.vpods.apply(event("DELETED", a_vpod_object(weight=3)))
    assert not view.vpods.objects


def test_what_a_new_list_lacks_is_gone():
    view = caches(vpods=[a_vpod_object("a"), a_vpod_object("b")])
    give_list(view.vpods, [a_vpod_object("b", weight=7)], "2")
    assert {key: vpod.weight for key, vpod in view.vpods.objects.items()} == {"tenant-a/b": 7}


def test_an_unreadable_object_keeps_its_last_good_form_and_disturbs_no_other():
    view = caches(pools=[a_pool_object(slots=20)])
    view.pools.apply(event("MODIFIED", a_pool_object(slots=0)))
    assert view.pools.objects[f"{NS}/dispatcher"].slots_per_pod == 20
    give_list(view.pools, [a_pool_object(slots=0), a_pool_object("other", slots=5)], "2")
    assert view.pools.objects[f"{NS}/dispatcher"].slots_per_pod == 20
    assert view.pools.objects[f"{NS}/other"].slots_per_pod == 5


def test_an_object_counts_as_unreadable_once_until_it_is_readable_or_gone():
    pools = caches().pools
    bad = [event("ADDED", a_pool_object(name, slots=0)) for name in ("a", "b", "c")]
    for each in (*bad, *bad):
        pools.apply(each)
    assert pools.undecodable == 3
    pools.apply(event("MODIFIED", a_pool_object("a")))
    assert pools.undecodable == 2
    pools.apply(event("DELETED", a_pool_object("b", slots=0)))
    assert pools.undecodable == 1
    give_list(pools, [], "2")
    assert pools.undecodable == 0


def test_look_ups_by_statefulset_namespace_and_weight():
    view = caches(
        pools=[a_pool_object(), a_pool_object("b", statefulSet="dispatcher"), a_pool_object("c")],
        vpods=[
            a_vpod_object("x", weight=3),
            a_vpod_object("a", weight=3),
            a_vpod_object("y", pool="b", weight=9),
        ],
        namespaces=[a_namespace("tenant-a", team="x")],
    )
    assert [pool.name for pool in view.pools_of(f"{NS}/dispatcher")] == ["b", "dispatcher"]
    assert view.namespace("tenant-a") == Namespace(name="tenant-a", labels={"team": "x"})
    assert view.namespace("nope") is None
    assert [view.heavier_vpods(f"{NS}/dispatcher", slots) for slots in (2, 3)] == [2, 0]
    assert view.heavier_vpods(f"{NS}/nope", 0) == 0


@pytest.mark.looptime
async def test_that_nothing_is_heard_any_more_is_in_the_metrics():
    """Found by review: a webhook whose right to watch was taken away said that all was well."""
    caches, lists = WebhookCaches(), list[str]()
    metrics = Metrics(caches)

    class Forbidding:
        async def list_page(self, resource: Any, *_: Any, **__: Any) -> ListPage:
            lists.append(resource.plural)
            if len(lists) > len(caches.sinks):
                raise Forbidden(403, "Forbidden", "the role is gone")
            return ListPage([], "1", "", None)

        async def watch(self, *_: Any, **__: Any) -> AsyncGenerator[Any]:
            if lists:
                raise Forbidden(403, "Forbidden", "the role is gone")
            yield

    api = cast("Api", Forbidding())
    reflectors = [
        Reflector(api, resource, sink, rng=random.Random(1))
        for resource, sink in caches.sinks.items()
    ]
    metrics.add_reflectors(reflectors)
    async with at_work(*(reflector.run() for reflector in reflectors)):
        await asyncio.sleep(3600)
        silent = metrics.render().decode()
    assert caches.synced
    assert 'vreplica_webhook_reflector_silence_seconds{resource="adapterpools"} 36' in silent
