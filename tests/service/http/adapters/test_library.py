"""The library for adapters' authors (``clients/python``) and the service understand each other."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from vreplica_adapter import Adapter, PlacedPod, Resolver, Share
from vreplica_adapter.timing import Timing

from extender.kube.api import VPODS
from extender.model.names import ASSIGNMENT_ANNOTATION
from tests.service.authority import Authority
from tests.service.http.adapters.scene import (
    VPOD,
    Adapters,
    adapters,
    configured,
    serving,
    token,
    world_of,
)
from tests.support.builders import NS
from tests.support.service import TENANT, until

TIMING = Timing(retry_s=0.02, retry_max_s=0.2, poll_s=0.05)
OTHER = "tenant/b"


class Worker:
    """An adapter of one pod, as its author writes it: what it was called for, in order."""

    def __init__(
        self, folder: Path, authority: Authority, *ports: int, ordinal: int = 0, **arguments: Any
    ) -> None:
        self.calls: list[tuple[str, str, int]] = []
        token_file = folder / f"token-{ordinal}"
        token_file.write_text(token(ordinal) + "\n")
        self.file = folder / f"assignment-{ordinal}"
        self.adapter = Adapter(
            on_prepare=self.noting("prepare"),
            on_serve=self.noting("serve"),
            on_drain=self.noting("drain"),
            on_stop=self.noting("stop"),
            urls=[f"https://localhost:{port}" for port in ports],
            token_file=token_file,
            ca_file=authority.file,
            assignment_file=self.file,
            handle_sigterm=False,
            **{"timing": TIMING, **arguments},
        )

    def noting(self, step: str) -> Any:
        async def callback(share: Share) -> None:
            self.calls.append((step, share.key, share.vreplicas))

        return callback

    @property
    def serves(self) -> dict[str, int]:
        """What may be worked on now."""
        shares = self.adapter.shares.items()
        return {key: one.vreplicas for key, one in shares if one.still_mine(one.epoch)}


def port_of(it: Adapters) -> int:
    return int(it.url.rpartition(":")[2])


async def happens(what: Callable[[], bool], timeout_s: float = 5.0) -> None:
    await until(what, timeout_s=timeout_s)


async def stopped(worker: Worker, key: str) -> None:
    await happens(lambda: key not in worker.adapter.shares)


async def heard(it: Adapters, ordinal: int, serving: int, timeout_s: float = 5.0) -> None:
    """Wait until the pod says that its adapter serves what is newest, so many shares."""

    async def is_so() -> bool:
        told = await it.assignment(ordinal)
        wanted = {"generation": told.get("generation"), "serving": serving}
        return await it.acknowledged(ordinal) == wanted

    await until(is_so, timeout_s=timeout_s)


def router(it: Adapters, folder: Path) -> Resolver:
    (folder / "router").write_text("router")
    return Resolver(
        [f"https://localhost:{port_of(it)}"],
        token_file=folder / "router",
        ca_file=it.authority.file,
        timing=TIMING,
    )


async def placed(resolver: Resolver, key: str, *pods: PlacedPod) -> None:
    async def is_so() -> bool:
        return (await resolver.resolve(key)).pods == pods

    await until(is_so, timeout_s=5)


async def test_a_resolver_is_told_where_a_vpod_is_and_that_it_is_gone(tmp_path: Path):
    async with adapters(tmp_path, 0) as it, router(it, tmp_path) as resolver:
        await placed(resolver, VPOD, PlacedPod(f"{NS}/dispatcher-0", 4))
        await it.world.set_vreplicas("a", 6)
        await placed(resolver, VPOD, PlacedPod(f"{NS}/dispatcher-0", 6))
        await it.world.cluster.delete(VPODS, TENANT, "a")
        await placed(resolver, VPOD)


async def test_an_object_of_a_foreign_kind_can_be_resolved(tmp_path: Path):
    async with adapters(tmp_path, 0) as it, router(it, tmp_path) as resolver:
        key = "tenant/orders@kafkasource.sources.knative.dev"
        assert (await resolver.resolve(key)).pods == ()


# -- an adapter ------------------------------------------------------------------------------------


async def test_an_adapter_serves_its_shares_through_a_restart_of_the_service_and_stops_what_goes(
    tmp_path: Path,
):
    world = await world_of(0, 1)
    authority = Authority(tmp_path, "ca")
    config = configured(authority)
    one, two = (Worker(tmp_path, authority, config.port, ordinal=ordinal) for ordinal in (0, 1))
    async with AsyncExitStack() as open_adapters:
        for worker in (one, two):
            await open_adapters.enter_async_context(worker.adapter)
        async with serving(world, authority, config) as it:
            for ordinal, worker in enumerate((one, two)):
                await heard(it, ordinal, serving=1)
                assert worker.serves == {VPOD: 2}
                assert worker.calls == [("prepare", VPOD, 2), ("serve", VPOD, 2)]
            await world.vpod("b", 3)
            await it.told(0, 2)
            await happens(lambda: one.serves.get(OTHER, 0) + two.serves.get(OTHER, 0) == 3)
            await heard(it, 0, serving=2)
        generations = [one.adapter.generation, two.adapter.generation]
        calls = [list(one.calls), list(two.calls)]
        await asyncio.sleep(0.3)
        assert [one.calls, two.calls] == calls, "nothing changes while the service is down"
        assert one.serves[VPOD] == 2
        await world.cluster.delete(VPODS, TENANT, "a")
        async with serving(world, authority, config) as it:
            for ordinal, worker in enumerate((one, two)):
                await stopped(worker, VPOD)
                assert worker.calls[len(calls[ordinal]) :] == [("stop", VPOD, 2)]
                assert worker.adapter.generation > generations[ordinal]
                await heard(it, ordinal, serving=1)
            assert one.serves.keys() | two.serves.keys() == {OTHER}
            generation = one.adapter.generation
            await open_adapters.aclose()
            assert [one.serves, two.serves] == [{}, {}]
            unserved = {"generation": generation, "serving": 0, "busy": [OTHER]}
            assert await it.acknowledged(0) == unserved


async def test_an_adapter_that_is_not_told_yet_waits_on_one_stream(tmp_path: Path):
    """An empty line shows that the replica is there."""
    timing = replace(TIMING, request_s=0.2)
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        pause = it.api.pause("patch", "pods")
        await it.world.annotate(0, **{ASSIGNMENT_ANNOTATION: None})
        await pause.reached.wait()
        worker = Worker(tmp_path, it.authority, port_of(it), timing=timing)
        async with worker.adapter:
            await asyncio.sleep(0.5)
            assert [one.text for one in worker.adapter.problems] == []
            pause.go_on.set()
            await happens(lambda: worker.serves == {VPOD: 4})
