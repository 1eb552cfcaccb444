"""``python -m tests.quality.rolling_restart``: how many requests succeed while all adapters of a
pool are restarted, as in section 8.2 of the Shard Manager paper (SOSP 2021).

The shipped service, webhook and controllers run in virtual time. Each vpod has one vreplica, and
adapters are restarted 10 % at a time. A router sends requests to the pod that a vpod publishes,
some time after it has published it. A request succeeds if the adapter there serves the vpod.

There are four ways to restart the pods:

- *handed over*: the pool has ``handoff.mode: Overlap``, and the pod is evicted until that succeeds,
  as by ``kubectl drain``;
- *rolled out*: the StatefulSet gets a new revision, and the pool has ``rollout.strategy:
  HandedOver`` and ``handoff.maxUnavailable: {pool: 10%}``;
- *drained*: the pool hands nothing over. The pod is marked with ``vreplica.dev/unschedulable``, and
  deleted once its ledger is empty;
- *at once*: the pod is deleted.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from extender.kube.api import PODS, STATEFULSETS, VPODS, Obj, PatchType, TooManyRequests
from extender.lab.clock import run_virtual
from extender.lab.embedded import ControllerSettings, EmbeddedCluster
from extender.lab.simulation.world.facts import is_ready
from extender.lab.simulation.world.objects import vpod_object
from extender.lab.simulation.world.scale import NAME, NS, TENANTS, Scale
from extender.lab.simulation.world.world import World
from extender.model.names import PLACEMENTS_ANNOTATION, UNSCHEDULABLE_ANNOTATION
from extender.service.app import Service
from extender.service.http.adapters.callers import AdapterCallers
from extender.service.http.adapters.placements import PlacementAnswers
from extender.service.http.adapters.streams import LineStreams

POD_START_S: Final = 10.0
POD_STOP_S: Final = 3.0
EVICT_AGAIN_S: Final = 5.0
"""kubectl drain tries again after this time."""
ROUTED_AFTER_S: Final = (0.02, 0.3)
"""The least and the most time until a router knows what a vpod publishes."""
SERVES_ON_S: Final = 0.5
"""An adapter that is told to drain a share serves it for so long, because routers do not know."""
LOOK_S: Final = 0.05
REQUESTS: Final = 50
"""Requests of each look, to vpods drawn at random."""
RESTARTED_AT_ONCE: Final = 0.1
ROOM: Final = 1.25
"""Slots of the pool per vpod."""
PLACED_MAX_S: Final = 600.0
BACK_MAX_S: Final = 300.0
RESTART_MAX_S: Final = 3600.0

HANDED_OVER, ROLLED_OUT, DRAINED, AT_ONCE = "handed over", "rolled out", "drained", "at once"
ROWS: Final = (HANDED_OVER, ROLLED_OUT, DRAINED, AT_ONCE)


@dataclass
class Figures:
    """What one row has found. ``failed``: by the second in which they were sent."""

    row: str
    requests: int = 0
    failed: dict[int, int] = field(default_factory=dict)
    took_s: float = 0.0
    moved: int = 0

    @property
    def success(self) -> float:
        """Share of the requests that succeeded, 0 to 1."""
        return 1.0 - sum(self.failed.values()) / max(1, self.requests)

    @property
    def worst_second(self) -> float:
        """The same in the worst second."""
        each = REQUESTS / LOOK_S
        return 1.0 - max(self.failed.values(), default=0) / each


class Router:
    """Where a router sends the requests for each vpod: what a replica answers to its watch of
    ``/v1/placements``, some time later.
    """

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self.pods: dict[str, str] = {}
        """vpod key -> pod name."""
        self.moved = 0

    def follow(self, service: Service) -> None:
        """Watch all vpods at this replica."""
        self._vpods = service.caches.vpods
        self._routable = service.committer.hand_overs.routable
        PlacementAnswers(
            service.caches,
            cast("AdapterCallers", None),
            cast("LineStreams", self),
            routable=self._routable,
            told_indexes=service.committer.hand_overs.indexed.told,
            seen_version=service.informers.vpods_seen_version,
        )

    def changed(self, key: str) -> None:
        """As ``LineStreams.changed``: there may be something new about a vpod."""
        vpod = self._vpods.latest(key)
        pods = list(self._routable(vpod)) if vpod is not None else []
        if pods and self.pods.get(key) != pods[0]:
            delay_s = self._rng.uniform(*ROUTED_AFTER_S)
            asyncio.get_running_loop().call_later(delay_s, self._learn, key, pods[0])

    def _learn(self, key: str, pod: str) -> None:
        self.moved += self.pods.get(key, pod) != pod
        self.pods[key] = pod

    def reaches(self, key: str) -> bool:
        """Whether a request for the vpod is answered."""
        adapter = self._world.adapters.adapter(self.pods[key])
        return adapter is not None and key in adapter.serving


class Scene:
    """One row in its own world."""

    def __init__(
        self, row: str, pods: int, vpods: int, seed: int, max_unavailable: str | int
    ) -> None:
        self.row = row
        self.pods = [f"{NAME}-{ordinal}" for ordinal in range(pods)]
        self.vpods = [(TENANTS[index % 2], f"v{index}") for index in range(vpods)]
        handoff: Obj = {"mode": "Overlap" if row in (HANDED_OVER, ROLLED_OUT) else "None"}
        if row == ROLLED_OUT:
            handoff["maxUnavailable"] = {"pool": max_unavailable, "perVPod": "100%"}
        pool = {
            "handoff": handoff,
            **({"rollout": {"strategy": "HandedOver"}} if row == ROLLED_OUT else {}),
            "profile": "spread",
            "rescheduleAfterSeconds": None,
            "minPods": pods,
            "maxPods": pods,
        }
        slots = -(-round(vpods * ROOM) // pods)
        self.world = World(seed, Scale(nodes=12, slots_per_pod=slots, replicas=2, pools=(pool,)))
        self.world.embedded = EmbeddedCluster(self.world.cluster, _settings())
        self.router = Router(self.world, self.world.rng("router"))
        self.figures = Figures(row)
        self._rng = self.world.rng("requests")

    async def run(self) -> Figures:
        async with self.world:
            await self._place()
            loop = asyncio.get_running_loop()
            began, moved = loop.time(), self.router.moved
            requests = asyncio.create_task(self._requests())
            async with asyncio.timeout(RESTART_MAX_S):
                await (self._roll_out() if self.row == ROLLED_OUT else self._restart_all())
            self.figures.took_s = loop.time() - began
            self.figures.moved = self.router.moved - moved
            requests.cancel()
            assert not self.world.problems, self.world.problems
        return self.figures

    async def _place(self) -> None:
        self.world.adapters.calm_down()
        self.world.adapters.serves_on_s = SERVES_ON_S
        self.router.follow(self.world.replicas[0].service)
        for namespace, name in self.vpods:
            await self.world.cluster.create(VPODS, namespace, vpod_object(name, 1))
        keys = [f"{namespace}/{name}" for namespace, name in self.vpods]
        await self.world.until(
            lambda: all(key in self.router.pods and self.router.reaches(key) for key in keys),
            "every vpod is served",
            PLACED_MAX_S,
        )

    async def _requests(self) -> None:
        loop, keys = asyncio.get_running_loop(), list(self.router.pods)
        while True:
            asked = self._rng.choices(keys, k=REQUESTS)
            failed = sum(not self.router.reaches(key) for key in asked)
            self.figures.requests += REQUESTS
            if failed:
                second = int(loop.time())
                self.figures.failed[second] = self.figures.failed.get(second, 0) + failed
            await asyncio.sleep(LOOK_S)

    # -- restarts ----------------------------------------------------------------------------------

    async def _restart_all(self) -> None:
        waiting: Iterator[str] = iter(self.pods)

        async def some() -> None:
            for name in waiting:
                await self._restart(name)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(max(1, round(len(self.pods) * RESTARTED_AT_ONCE))):
                tasks.create_task(some())

    async def _roll_out(self) -> None:
        former = {name: self._pod(name)["metadata"]["uid"] for name in self.pods}
        patch = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        await self.world.cluster.patch(STATEFULSETS, NS, NAME, patch, patch_type=PatchType.MERGE)
        await self.world.until(
            lambda: all(self._is_back(name, uid) for name, uid in former.items()),
            "all pods are back",
            RESTART_MAX_S,
        )

    async def _restart(self, name: str) -> None:
        uid = self._pod(name)["metadata"]["uid"]
        ways: dict[str, Callable[[str], Awaitable[None]]] = {
            HANDED_OVER: self._evict,
            DRAINED: self._drain,
            AT_ONCE: self._delete,
        }
        await ways[self.row](name)
        await self.world.until(lambda: self._is_back(name, uid), f"{name} is back", BACK_MAX_S)

    def _is_back(self, name: str, former_uid: str) -> bool:
        pod = self.world.stored(PODS).get((NS, name))
        return pod is not None and pod["metadata"]["uid"] != former_uid and is_ready(pod)

    async def _evict(self, name: str) -> None:
        while True:
            try:
                return await self.world.cluster.evict(NS, name)
            except TooManyRequests:
                await asyncio.sleep(EVICT_AGAIN_S)

    async def _drain(self, name: str) -> None:
        patch = {"metadata": {"annotations": {UNSCHEDULABLE_ANNOTATION: "true"}}}
        await self.world.cluster.patch(PODS, NS, name, patch, patch_type=PatchType.MERGE)
        await self.world.until(lambda: not self._carries(name), f"{name} is empty", BACK_MAX_S)
        await self._delete(name)

    def _carries(self, name: str) -> bool:
        ledger: Obj = json.loads(self._pod(name)["metadata"]["annotations"][PLACEMENTS_ANNOTATION])
        return bool(ledger)

    async def _delete(self, name: str) -> None:
        await self.world.cluster.delete(PODS, NS, name)

    def _pod(self, name: str) -> Obj:
        return self.world.stored(PODS)[NS, name]


def restarted(
    row: str, pods: int, vpods: int, seed: int = 0, *, max_unavailable: str | int = "10%"
) -> Figures:
    """Restart all pods of a pool in one of the ``ROWS``. ``max_unavailable``: of the pool, in a
    rollout.
    """

    async def run() -> Figures:
        return await Scene(row, pods, vpods, seed, max_unavailable).run()

    return run_virtual(run())


def _settings() -> ControllerSettings:
    return ControllerSettings(
        pod_start_delay_s=lambda _pod: POD_START_S, pod_stop_delay_s=lambda _pod: POD_STOP_S
    )


def main(arguments: list[str]) -> int:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=60)
    parser.add_argument("--vpods", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=ROWS)
    parser.add_argument("--max-unavailable", default="10%", help="of the pool, in a rollout")
    options = parser.parse_args(arguments)
    for row in ROWS if options.only is None else (options.only,):
        began = time.monotonic()
        limit = options.max_unavailable
        most = limit if limit.endswith("%") else int(limit)
        figures = restarted(row, options.pods, options.vpods, options.seed, max_unavailable=most)
        sys.stdout.write(
            f"{row:12} {figures.requests} requests, success {figures.success:.4%}, worst second "
            f"{figures.worst_second:.2%}, took {figures.took_s:.0f} s, {figures.moved} moves "
            f"(simulated in {time.monotonic() - began:.0f} s)\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
