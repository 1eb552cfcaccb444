"""Adapters that are written with the library (``clients/python``), in a pool with
``spec.handoff.mode: Overlap``: a share that moves is served at every moment.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from vreplica_adapter import Adapter, Share, State

from extender.model.moves import Move, MoveReason
from extender.model.names import UNSCHEDULABLE_ANNOTATION
from extender.model.objects import LEASE_MIN_S
from tests.service.authority import Authority
from tests.service.http.adapters.scene import (
    VPOD,
    Adapters,
    configured,
    let_in,
    serving,
    token,
    world_of,
)
from tests.service.http.adapters.test_library import TIMING, happens, heard, router
from tests.support.builders import NS, POOL
from tests.support.service import World, until

VREPLICAS: Final = 2
SERVED: Final = [(0, "on_prepare"), (0, "on_serve")]
MOVED: Final = [(1, "on_prepare"), (1, "on_serve"), (0, "on_drain"), (0, "on_stop")]
Wait: TypeAlias = Callable[[], Awaitable[object]]


@dataclass
class Workers:
    """The adapters of two pods, which serve one vpod. ``before``: (ordinal, callback) -> what the
    callback awaits first. ``calls``: (ordinal, callback), as each one ends well.

    The vpod is served from the end of ``on_serve`` until ``on_drain`` or ``on_stop`` begins.
    ``gaps`` has each such beginning at which no other adapter served it.
    """

    before: dict[tuple[int, str], Wait]
    calls: list[tuple[int, str]] = field(default_factory=list)
    serving: dict[int, int] = field(default_factory=dict)
    """Ordinal -> vreplicas."""
    gaps: list[str] = field(default_factory=list)
    adapters: dict[int, Adapter] = field(default_factory=dict)

    def new(self, folder: Path, authority: Authority, port: int, ordinal: int) -> Adapter:
        token_file = folder / f"token-{ordinal}"
        token_file.write_text(token(ordinal))
        steps = ("on_prepare", "on_serve", "on_drain", "on_stop")
        callbacks: dict[str, Any] = {step: self._callback(ordinal, step) for step in steps}
        adapter = self.adapters[ordinal] = Adapter(
            **callbacks,
            urls=[f"https://localhost:{port}"],
            token_file=token_file,
            ca_file=authority.file,
            assignment_file=folder / "none",
            handle_sigterm=False,
            grace_s=2.0,
            timing=TIMING,
        )
        return adapter

    def _callback(self, ordinal: int, step: str) -> Callable[[Share], Awaitable[None]]:
        async def callback(share: Share) -> None:
            if step in {"on_drain", "on_stop"} and self.serving.pop(ordinal, 0):
                self.gaps += [] if self.serving else [f"{step} at {ordinal}"]
            if wait := self.before.get((ordinal, step)):
                await wait()
            if step == "on_serve":
                self.serving[ordinal] = share.vreplicas
            self.calls.append((ordinal, step))

        return callback

    async def serve(self, wanted: dict[int, int]) -> None:
        """Wait until these adapters serve so many vreplicas, and no others."""
        await happens(lambda: self.serving == wanted)


@dataclass
class Scene:
    """``it``: the service and its world."""

    it: Adapters
    workers: Workers

    @property
    def world(self) -> World:
        return self.it.world

    async def drain(self, ordinal: int) -> None:
        await self.world.annotate(ordinal, **{UNSCHEDULABLE_ANNOTATION: "true"})

    async def move(self, vreplicas: int) -> None:
        """From the first pod to the second one."""
        move = Move(VPOD, "dispatcher-0", "dispatcher-1", vreplicas, MoveReason.POLICY)
        assert await self.it.service.placer.move(POOL, [move]) == [move]

    async def placed(self, wanted: dict[int, int], timeout_s: float = 10) -> None:
        """Wait until the vpod is on these pods, by its status and by their ledgers."""

        async def is_so() -> bool:
            published = await self.world.published()
            ledgers = {
                ordinal: (await self.world.ledger(ordinal)).get(VPOD, 0) for ordinal in (0, 1)
            }
            return published == wanted and ledgers == {0: 0, 1: 0} | wanted

        await until(is_so, timeout_s=timeout_s)

    async def moved(self) -> None:
        """Wait until the second pod alone serves the vpod, and nobody holds anything else."""
        await self.placed({1: VREPLICAS})
        await happens(lambda: not self.workers.adapters[0].shares)
        assert self.workers.serving == {1: VREPLICAS}


@asynccontextmanager
async def overlap(
    folder: Path, before: Mapping[tuple[int, str], Wait] | None = None, **handoff: Any
) -> AsyncIterator[Scene]:
    """Two adapters. The first one serves a vpod, and the second one has come afterwards."""
    authority = Authority(folder, "ca")
    config = configured(authority)
    handoff = {"mode": "Overlap", **handoff}
    world = await world_of(0, vreplicas=VREPLICAS, handoff=handoff, minPods=2)
    workers = Workers(dict(before or {}))
    async with serving(world, authority, config) as it, AsyncExitStack() as opened:
        for ordinal in (0, 1):
            if ordinal:
                await world.pods(ordinal)
                await let_in(world, ordinal)
            await world.ready(ordinal)
            adapter = workers.new(folder, authority, config.port, ordinal)
            await opened.enter_async_context(adapter)
            await heard(it, ordinal, serving=1 - ordinal)
        yield Scene(it, workers)


async def test_a_drained_pod_serves_until_another_one_does(tmp_path: Path):
    async with overlap(tmp_path) as scene:
        await scene.drain(0)
        await scene.moved()
        assert scene.workers.calls == [*SERVED, *MOVED]
        assert scene.workers.gaps == []


async def test_a_part_that_moves_is_taken_from_an_adapter_that_goes_on(tmp_path: Path):
    async with overlap(tmp_path) as scene:
        await scene.move(1)
        await scene.placed({0: VREPLICAS - 1, 1: 1})
        await scene.workers.serve({0: VREPLICAS - 1, 1: 1})
        again = [(1, "on_prepare"), (1, "on_serve"), (0, "on_serve")]
        assert scene.workers.calls == [*SERVED, *again]


async def test_a_slow_on_prepare_delays_the_move(tmp_path: Path):
    goes_on = asyncio.Event()
    async with overlap(tmp_path, {(1, "on_prepare"): goes_on.wait}) as scene:
        await scene.move(VREPLICAS)
        await asyncio.sleep(0.5)
        assert scene.workers.serving == {0: VREPLICAS}
        assert scene.workers.calls == SERVED
        goes_on.set()
        await scene.moved()
        assert scene.workers.calls == [*SERVED, *MOVED]
        assert scene.workers.gaps == []


async def test_a_router_is_told_the_old_pod_until_the_new_one_serves(tmp_path: Path):
    goes_on = asyncio.Event()
    async with (
        overlap(tmp_path, {(1, "on_serve"): goes_on.wait}) as scene,
        router(scene.it, tmp_path) as resolver,
    ):

        async def routed() -> list[str]:
            return [pod.pod for pod in (await resolver.resolve(VPOD)).pods]

        await scene.move(VREPLICAS)
        await until(scene.world.published, {1: VREPLICAS}, timeout_s=10)
        await asyncio.sleep(0.3)
        assert scene.workers.serving == {0: VREPLICAS}
        assert await routed() == [f"{NS}/dispatcher-0"]
        goes_on.set()
        await scene.moved()
        assert await routed() == [f"{NS}/dispatcher-1"]


async def test_shares_with_indexes_say_which_vreplicas_move_and_where_a_router_finds_them(
    tmp_path: Path,
):
    async with (
        overlap(tmp_path, identity="Indexed") as scene,
        router(scene.it, tmp_path) as resolver,
    ):

        async def routed() -> dict[str, object]:
            return {pod.pod: pod.indexes for pod in (await resolver.resolve(VPOD)).pods}

        def indexes(ordinal: int) -> object:
            return scene.workers.adapters[ordinal].shares[VPOD].indexes

        assert indexes(0) == (0, 1)
        assert await routed() == {f"{NS}/dispatcher-0": (0, 1)}
        await scene.move(1)
        await scene.workers.serve({0: VREPLICAS - 1, 1: 1})
        assert (indexes(0), indexes(1)) == ((0,), (1,))
        await happens_soon(routed, {f"{NS}/dispatcher-0": (0,), f"{NS}/dispatcher-1": (1,)})


async def happens_soon(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    await until(ask, wanted, timeout_s=5)


async def test_an_on_prepare_that_fails_is_called_again_and_the_move_goes_on(tmp_path: Path):
    failures = iter([ConnectionError("no database")])

    async def fails_once() -> None:
        for error in failures:
            raise error

    async with overlap(tmp_path, {(1, "on_prepare"): fails_once}) as scene:
        await scene.move(VREPLICAS)
        await scene.moved()
        assert scene.workers.calls == [*SERVED, *MOVED]
        assert scene.workers.gaps == []
        (problem,) = scene.workers.adapters[1].problems
        assert "on_prepare has failed" in problem.text


async def test_a_move_whose_on_prepare_never_succeeds_is_taken_back(tmp_path: Path):
    async def fails() -> None:
        raise ConnectionError("no database")

    before = {(1, "on_prepare"): fails}
    async with overlap(tmp_path, before, prepareTimeoutSeconds=1) as scene:
        await scene.move(VREPLICAS)
        await happens(lambda: (1, "on_stop") in scene.workers.calls)
        await scene.placed({0: VREPLICAS})
        assert scene.workers.serving == {0: VREPLICAS}
        assert scene.workers.calls == [*SERVED, (1, "on_stop")]
        (event,) = await scene.world.events("PrepareTimedOut")
        assert "dispatcher-1" in event["note"]


async def test_a_slow_on_drain_has_its_time_while_another_one_serves(tmp_path: Path):
    goes_on = asyncio.Event()
    async with overlap(tmp_path, {(0, "on_drain"): goes_on.wait}) as scene:
        await scene.move(VREPLICAS)
        await scene.workers.serve({1: VREPLICAS})
        share = scene.workers.adapters[0].shares[VPOD]
        assert (share.state, share.peer, share.intent) == (State.DRAIN, "dispatcher-1", "Rebalance")
        assert 0 < share.left_s < math.inf
        assert (await scene.world.ledger(0)).get(VPOD) == VREPLICAS
        goes_on.set()
        await scene.moved()
        assert scene.workers.gaps == []


async def test_an_adapter_that_ends_while_it_is_drained_lets_go_and_the_move_ends(tmp_path: Path):
    """SIGTERM calls ``stop``."""
    goes_on = asyncio.Event()
    async with overlap(tmp_path, {(1, "on_prepare"): goes_on.wait}) as scene:
        await scene.drain(0)
        await happens(lambda: VPOD in scene.workers.adapters[1].shares)
        scene.workers.adapters[0].stop()
        await scene.workers.adapters[0].stopped()
        goes_on.set()
        await scene.placed({1: VREPLICAS})
        await scene.workers.serve({1: VREPLICAS})


async def test_in_an_exclusive_pool_the_old_pod_lets_go_before_the_new_one_serves(tmp_path: Path):
    """A pool that was not exclusive before: a new one serves a lease after that."""
    async with overlap(tmp_path) as scene:
        await scene.world.patch_pool(handoff={"mode": "Exclusive", "leaseSeconds": LEASE_MIN_S})

        async def is_told() -> bool:
            return "leaseSeconds" in await scene.it.assignment(0)

        await until(is_told, timeout_s=5)
        await scene.move(VREPLICAS)
        await scene.placed({1: VREPLICAS})
        await happens(lambda: scene.workers.serving == {1: VREPLICAS}, 3.0 * LEASE_MIN_S)
        calls = [one for one in scene.workers.calls if one != (0, "on_stop")]
        assert calls == [*SERVED, (1, "on_prepare"), (0, "on_drain"), (1, "on_serve")]
        assert scene.workers.gaps == ["on_drain at 0"]
