"""Lists taken in slices end in the state that the same objects give one by one, and handlers are
told each difference.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import extender.engine.cache.caches
import extender.service.watching.caches
from extender.kube.api import Obj
from extender.model import decode
from extender.model.objects import AdapterPod, VPod
from extender.service.watching.caches import Caches
from extender.service.watching.informers import CacheSink
from tests.kube.fakes import give_list
from tests.support import worlds
from tests.support.builders import NS
from tests.support.worlds import Naive, World

VERSION = "1000"

clusters = st.lists(
    st.one_of(
        worlds.pods(),
        worlds.vpods(),
        worlds.pods(),
        worlds.nodes,
        worlds.pools,
        worlds.stateful_sets,
    ),
    max_size=25,
)


@pytest.fixture(autouse=True, scope="module")
def slices_of_one() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extender.engine.cache.caches, "SLICE_OBJECTS", 1)
        patch.setattr(extender.service.watching.caches, "SLICE_OBJECTS", 1)
        yield


def world_of(objects: list[Any]) -> World:
    """One by one, each with a version of its own; of objects with the same key the last."""
    world = World()
    for version, obj in enumerate(objects, 1):
        world.put(replace(obj, resource_version=str(version)))
    return world


def lists_into(caches: Caches, world: World, rng: random.Random) -> dict[str, Iterator[None]]:
    """A list of each kind that is under way, its objects in no order."""

    def listed(cache: Any, store: Mapping[str, object]) -> Iterator[None]:
        yield from cache.replacing(rng.sample(list(store.values()), len(store)), VERSION)

    return {
        "nodes": listed(caches.nodes, world.nodes),
        "sets": listed(caches.stateful_sets, world.stateful_sets),
        "pools": listed(caches.pools, world.pools),
        "pods": listed(caches.pods, world.pods),
        "vpods": listed(caches.vpods, world.vpods),
    }


def interleave(lists: dict[str, Iterator[None]], rng: random.Random) -> None:
    """To the end of all, vpods after pods as the informers have it."""
    while lists:
        kind = rng.choice(
            [kind for kind in sorted(lists) if kind != "vpods" or "pods" not in lists]
        )
        if next(lists[kind], "end") == "end":
            del lists[kind]


def is_as(caches: Caches, world: World) -> None:
    assert caches.state.digest() == world.rebuilt().state.digest()
    for key in world.pools:
        assert caches.state.digest()[key] == Naive(world, key).digest()


@settings(max_examples=150, deadline=None)
@given(clusters, st.randoms(use_true_random=False))
def test_first_lists_in_slices_give_the_state_of_the_same_objects_one_by_one(objects, rng):
    world, caches = world_of(objects), Caches()
    interleave(lists_into(caches, world, rng), rng)
    is_as(caches, world)


@settings(max_examples=150, deadline=None)
@given(clusters, clusters, st.randoms(use_true_random=False), st.booleans())
def test_a_list_over_another_tells_every_difference_and_forgets_what_is_gone(
    before, after, rng, at_once
):
    caches = Caches()
    told: dict[tuple[type, str], object] = {}

    def hear(old, new) -> None:
        key = (type(old or new), (old or new).key)
        assert told.get(key) == old
        told[key] = new

    interleave(lists_into(caches, world_of(before), rng), rng)
    caches.pods.add_event_handler(hear)
    caches.vpods.add_event_handler(hear)
    world = World()
    for version, obj in enumerate(after, 100):
        world.put(replace(obj, resource_version=str(version)))
    lists = lists_into(caches, world, rng)
    for kind in ("pods", "vpods") if at_once else ():
        for _ in lists.pop(kind):
            pass
    interleave(lists, rng)
    is_as(caches, world)
    there: dict[tuple[type, str], object] = {
        (AdapterPod, key): pod for key, pod in world.pods.items()
    }
    there.update({(VPod, key): vpod for key, vpod in world.vpods.items()})
    assert {key: obj for key, obj in told.items() if obj is not None} == there


@settings(max_examples=100, deadline=None)
@given(clusters, worlds.vpods(), st.randoms(use_true_random=False))
def test_what_is_written_while_a_list_is_taken_stays(objects, vpod, rng):
    world, caches = world_of(objects), Caches()
    lists = lists_into(caches, world, rng)
    for kind in ("nodes", "pods"):
        for _ in lists.pop(kind):
            pass
    next(lists["vpods"], None)
    vpod = replace(vpod, resource_version=str(int(VERSION) + 1))
    caches.vpods.update(vpod)
    world.vpods[vpod.key] = vpod
    interleave(lists, rng)
    is_as(caches, world)


def a_raw_pod(ordinal: int) -> Obj:
    return {"metadata": {"namespace": NS, "name": f"dispatcher-{ordinal}", "resourceVersion": "1"}}


def test_only_the_first_list_of_a_sink_lets_others_run_before_it_is_in():
    caches, listed = Caches(), []
    sink = CacheSink(decode.pod_from, caches.pods, on_listed=lambda pods: listed.append(len(pods)))
    for pauses in (3, 0):
        listing = sink.listing()
        listing.add([a_raw_pod(0), a_raw_pod(1)])
        listing.add([a_raw_pod(2)])
        before = len(caches.pods)
        assert len(list(listing.end("1"))) == pauses
        assert (before, len(caches.pods)) == (0 if pauses else 3, 3)
    assert listed == [3, 3]


def test_a_list_that_is_not_read_to_its_end_changes_nothing():
    caches = Caches()
    sink = CacheSink(decode.pod_from, caches.pods)
    sink.listing().add([a_raw_pod(0)])
    give_list(sink, [a_raw_pod(1)], "1")
    assert [pod.name for pod in caches.pods.list()] == ["dispatcher-1"]
