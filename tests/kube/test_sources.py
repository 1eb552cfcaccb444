"""One foreign kind: which version is watched, what is told while none is, and when its objects are
all there.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from extender.kube.api import (
    CRDS,
    ApiError,
    Forbidden,
    NotFound,
    Obj,
    OutcomeUnknown,
    Resource,
    WatchEvent,
    WatchEventType,
)
from extender.kube.sources import KindWatch
from extender.lab.apiserver.cluster import Cluster
from tests.kube.fakes import WholeList
from tests.simulation.cluster_scene import NS, WIDGETS, a_definition, a_virtual_cluster, a_widget
from tests.support.service import FaultApi, until
from tests.support.tasks import at_work

pytestmark = pytest.mark.looptime

LATER = Resource(WIDGETS.group, "v2", WIDGETS.plural, WIDGETS.kind)


class Names:
    """A sink that keeps the names of what it is given."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def listing(self) -> WholeList:
        return WholeList(self.replace)

    def replace(self, objects: list[Obj], resource_version: str) -> None:
        self.names = {obj["metadata"]["name"] for obj in objects}

    def apply(self, event: WatchEvent) -> None:
        name = event.object["metadata"]["name"]
        (self.names.discard if event.type is WatchEventType.DELETED else self.names.add)(name)


class Scene:
    def __init__(self, cluster: Cluster, *versions: Resource) -> None:
        self.cluster = cluster
        self.api = FaultApi(cluster)
        self.sink = Names()
        self.watch = KindWatch(self.api, versions or (WIDGETS,), self.sink, rng=random.Random(1))

    async def is_complete(self, complete: bool = True, *, timeout_s: float = 60) -> None:
        async def look() -> bool:
            return self.watch.complete is complete

        await until(look, timeout_s=timeout_s)

    async def has_problem(self, reason: str) -> str:
        async def look() -> bool:
            return self.watch.problem is not None and self.watch.problem.reason == reason

        await until(look, timeout_s=120)
        assert self.watch.problem is not None
        return self.watch.problem.message

    async def change_behind_its_back(self, name: str) -> None:
        """A new object whose event the watch does not get: its version is too old."""
        await self.cluster.create(WIDGETS, NS, a_widget(name))
        self.cluster.compact()

    async def sees(self, *names: str) -> None:
        async def look() -> bool:
            return self.sink.names == set(names)

        await until(look, timeout_s=10)


@asynccontextmanager
async def watching(*versions: Resource, defined: bool = True) -> AsyncIterator[Scene]:
    cluster = a_virtual_cluster()
    if defined:
        await cluster.create(CRDS, "", a_definition())
        await cluster.create(WIDGETS, NS, a_widget("a"))
    scene = Scene(cluster, *versions)
    async with at_work(scene.watch.run()):
        yield scene


async def test_a_kind_that_is_served_is_complete_after_its_first_list():
    async with watching() as scene:
        assert scene.watch.problem is not None
        assert scene.watch.problem.reason == "NotListed"
        await scene.watch.settled.wait()
        assert scene.watch.complete
        assert scene.sink.names == {"a"}
        await scene.cluster.create(WIDGETS, NS, a_widget("b"))
        await scene.sees("a", "b")


async def test_the_first_version_that_is_served_is_watched():
    async with watching(LATER, WIDGETS) as scene:
        await scene.is_complete()
        assert scene.watch.resource == WIDGETS


async def test_a_kind_that_is_not_served_names_all_versions_and_is_asked_for_ever_less_often():
    async with watching(LATER, WIDGETS, defined=False) as scene:
        await scene.watch.settled.wait()
        message = await scene.has_problem("NotServed")
        assert (
            message
            == "widgets are not served in example.dev/v2, example.dev/v1: is the CRD installed?"
        )
        await asyncio.sleep(3600)
        assert scene.api.count("list", "widgets") < 2 * (3600 / 30 + 10)
        await scene.cluster.create(CRDS, "", a_definition())
        await scene.is_complete(timeout_s=70)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(Forbidden(403, "Forbidden", "no rights"), "Forbidden", id="no rights"),
        pytest.param(OutcomeUnknown(0, "Timeout", "no answer"), "Unreachable", id="no answer"),
        pytest.param(ApiError(500, "", "etcd"), "Status500", id="an error without a reason"),
    ],
)
async def test_what_the_api_server_says_is_told_and_waited_out(error, reason):
    async with watching() as scene:
        scene.api.fail("list", "widgets", before=error, times=4)
        assert str(error) in await scene.has_problem(reason)
        assert scene.watch.settled.is_set()
        await scene.is_complete()


async def test_a_kind_that_goes_leaves_what_the_sink_has_and_is_incomplete_until_listed_again():
    async with watching() as scene:
        await scene.is_complete()
        scene.api.fail("list", "widgets", before=NotFound(404, "NotFound", "gone"), times=10_000)
        await scene.change_behind_its_back("b")
        await scene.has_problem("NotServed")
        assert not scene.watch.complete
        assert scene.sink.names == {"a"}
        scene.api.faults.clear()
        await scene.is_complete()
        assert scene.sink.names == {"a", "b"}


async def test_while_lists_are_refused_it_is_not_complete_and_afterwards_only_with_a_new_list():
    async with watching() as scene:
        await scene.is_complete()
        scene.api.fail(
            "list", "widgets", before=Forbidden(403, "Forbidden", "no rights"), times=10_000
        )
        await scene.change_behind_its_back("b")
        await scene.has_problem("Forbidden")
        await asyncio.sleep(60)
        assert not scene.watch.complete
        scene.api.faults.clear()
        await scene.is_complete()
        assert scene.sink.names == {"a", "b"}


async def test_an_expired_version_is_no_trouble():
    async with watching() as scene:
        await scene.is_complete()
        lists = scene.api.count("list", "widgets")
        await scene.change_behind_its_back("b")
        await scene.sees("a", "b")
        assert scene.api.count("list", "widgets") > lists
        await asyncio.sleep(20)
        assert scene.watch.complete


async def test_until_a_list_that_was_asked_for_is_in_it_is_not_complete():
    async with watching() as scene:
        await scene.is_complete()
        pause = scene.api.pause("list", "widgets")
        catching_up = asyncio.create_task(scene.watch.relist(timeout_s=2))
        await pause.reached.wait()
        assert not scene.watch.complete
        await catching_up
        assert not scene.watch.complete
        pause.go_on.set()
        await scene.is_complete(timeout_s=1)


async def test_however_often_a_kind_that_cannot_be_listed_is_asked_for_nothing_piles_up():
    async with watching() as scene:
        await scene.is_complete()
        scene.api.fail(
            "list", "widgets", before=Forbidden(403, "Forbidden", "no rights"), times=10_000
        )
        await scene.change_behind_its_back("b")
        tasks = len(asyncio.all_tasks())
        for _ in range(50):
            scene.watch.read_again()
            assert not await scene.watch.relist(timeout_s=0.5)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) <= tasks + 1
        assert not scene.watch.complete
        scene.api.faults.clear()
        assert await scene.watch.relist(timeout_s=60)
        await scene.is_complete()
        assert scene.sink.names == {"a", "b"}


async def test_who_waits_for_a_list_of_a_kind_that_goes_waits_no_longer():
    async with watching() as scene:
        await scene.is_complete()
        scene.api.fail("list", "widgets", before=NotFound(404, "NotFound", "gone"), times=10_000)
        await scene.watch.relist(timeout_s=200)
        assert scene.watch.problem is not None
        assert scene.watch.problem.reason == "NotServed"
        scene.api.faults.clear()
        await scene.is_complete()


async def test_an_unexpected_error_of_the_sink_is_not_hidden(monkeypatch):
    cluster = a_virtual_cluster()
    await cluster.create(CRDS, "", a_definition())
    scene = Scene(cluster)

    def broken(objects: list[Obj], resource_version: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(scene.sink, "replace", broken)
    with pytest.raises(ZeroDivisionError):
        await scene.watch.run()


async def test_a_kind_whose_versions_go_back_is_listed_anew_and_ends_nothing_else():
    async with watching() as scene:
        await scene.is_complete()
        backup = scene.cluster.snapshot()
        await scene.cluster.create(WIDGETS, NS, a_widget("b"))
        await scene.sees("a", "b")
        scene.cluster.restore(backup)
        await asyncio.sleep(200)
        assert scene.watch.complete
        assert scene.sink.names == {"a"}
