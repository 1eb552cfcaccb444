"""``Run``: a scenario at work in a simulated world, whose replicas are killed at a place of one's
choice and started again.

A replica that was killed, or has ended by a SIGTERM, is started again a second later, as a kubelet
would.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final

import orjson

from extender.kube.api import PODS, STATEFULSETS, VPODS, Obj, PatchType, Resource
from extender.lab.faults import FaultRates
from extender.lab.simulation.checkers.all import Checkers
from extender.lab.simulation.run import wait_settled
from extender.lab.simulation.world.facts import PLACEMENTS
from extender.lab.simulation.world.objects import vpod_object
from extender.lab.simulation.world.replica import Replica
from extender.lab.simulation.world.scale import LOAD_METRIC, NAME, NS, TENANTS
from extender.lab.simulation.world.world import World
from extender.model.ledger import decode_ledger
from extender.model.objects import object_key
from extender.service.http.schedule import ScheduleRefused
from tests.simulation.suspensions import Place, Watch

RESTART_AFTER_S: Final = 1.0


class Run:
    """A scenario at work. ``told(process, place)`` of each suspension from ``arm`` on."""

    def __init__(
        self, world: World, checkers: Checkers, told: Callable[["Run", str, Place], None]
    ) -> None:
        self.world = world
        self.checkers = checkers
        self.processes: dict[str, Replica] = {}
        self._others: set[asyncio.Task[None]] = set()
        self.binds_twice = False
        self._told = told
        self._armed = False
        self._awaited: tuple[str, str, Callable[[str], None]] | None = None
        self._wanted = 0
        Watch(self._suspended).install()
        self._keeper = asyncio.create_task(self._keep(), name="keeper")

    def arm(self) -> None:
        """What follows is what the scenario is about."""
        self._armed = True

    def kill(self, process: str, *, lost: bool = False) -> None:
        """SIGKILL, and nothing more is told. ``lost``: nor does what is under way arrive."""
        self._armed = False
        self.processes[process].crash()
        if lost:
            self.processes[process].api.lose_under_way()

    def when(self, file: str, act: Callable[[str], None], *, phase: str = "_call") -> None:
        """Do something the next time that a call made in a module is in this phase; ``act`` gets
        the process.
        """
        self._awaited = (file, phase, act)

    def _suspended(self, process: str, place: Place) -> None:
        if self._awaited is not None and place.phase == self._awaited[1]:
            file, _, act = self._awaited
            if place.path[-1].file.endswith(file):
                self._awaited = None
                act(process)
        if self._armed:
            self._told(self, process, place)

    # -- processes ---------------------------------------------------------------------------------

    async def start(self, replicas: int = 1) -> None:
        """Keep so many running from now on; waits until one leads."""
        self._wanted = replicas
        for _ in range(replicas):
            self._start_one()
        if not self._armed:
            await self.world.until(lambda: self.world.leadership.leader is not None, "a leader")

    def join(self) -> None:
        """Keep one more running."""
        self._wanted += 1
        self._start_one()

    def terminate(self, process: str) -> None:
        """SIGTERM."""
        self.processes[process].task.cancel()

    def stop(self, *, leader: bool) -> None:
        """SIGTERM to the leader, or to another."""
        for replica in self.world.replicas:
            if replica.service.leading() is leader:
                self.terminate(replica.name)
                return

    def bypass_webhook(self) -> None:
        """From now on the API server cannot reach the webhook."""
        self.world.faults.rates = FaultRates(webhook_bypassed=1.0)

    def _start_one(self) -> None:
        replica = self.world.start_replica()
        self.processes[replica.name] = replica
        verbs, bind = replica.service.verbs, replica.service.verbs.bind

        async def twice(body: bytes) -> tuple[bytes, str]:
            """As kube-scheduler asks; also twice at once, as one that does not wait for its first
            answer.
            """
            return (
                await asyncio.gather(*[bind(body) for _ in range(2 if self.binds_twice else 1)])
            )[-1]

        verbs.bind = twice  # type: ignore[method-assign]

    async def schedule(self, vreplicas: int) -> None:
        """A caller that keeps its own status asks until it has what it wants."""
        vpod = {
            "namespace": TENANTS[0],
            "name": "x",
            "kind": "Broker",
            "group": "x.dev",
            "vreplicas": vreplicas,
        }
        body = orjson.dumps({"vpod": vpod, "pool": {"namespace": NS, "name": NAME}})
        left, pause_s = True, 0.0
        while left:
            await asyncio.sleep(pause_s)
            pause_s = 1.0
            if (leader := self.world.leadership.leader) is None:
                continue
            asked = leader._spawn(leader.service.schedule_verb().schedule(body))
            await asyncio.wait({asked}, timeout=4.0)
            asked.cancel()
            await asyncio.wait({asked})
            if leader.api.crashed:
                continue  # whatever it would have said: a process that was killed has not answered
            if not asked.cancelled() and (error := asked.exception()) is None:
                left = orjson.loads(asked.result()[0])["left"] > 0
            elif not (asked.cancelled() or isinstance(error, ScheduleRefused)):
                self.world.problems.append(f"schedule: {error!r}")

    async def report_load(self) -> None:
        """Once a second, the leader is told that each vreplica has a load of 1."""
        while True:
            await asyncio.sleep(1.0)
            if (leader := self.world.leadership.leader) is None:
                continue
            reports = [
                {"vpod": key, "pod": name, "load": share.vreplicas}
                for (_, name), pod in self.world.stored(PODS).items()
                for key, share in decode_ledger(
                    pod["metadata"].get("annotations", {}).get(PLACEMENTS)
                ).items()
            ]
            body = {"pool": object_key(NS, NAME), "metric": LOAD_METRIC, "reports": reports}
            told = leader._spawn(leader.service.load_verb().take(orjson.dumps(body)))
            await asyncio.wait({told})
            if not told.cancelled() and (error := told.exception()) is not None:
                assert isinstance(error, ScheduleRefused), error

    async def _keep(self) -> None:
        world = self.world
        while True:
            await asyncio.sleep(RESTART_AFTER_S)
            world.replicas = [r for r in world.replicas if not (r.api.crashed or r.task.done())]
            for _ in range(self._wanted - len(world.replicas)):
                self._start_one()

    def end(self) -> None:
        self._keeper.cancel()

    def meanwhile(self, act: Coroutine[Any, Any, None]) -> None:
        """Somebody else does something at this very moment."""
        self._others.add(asyncio.get_running_loop().create_task(act, context=Context()))

    # -- acts --------------------------------------------------------------------------------------

    async def vpods(self, *sizes: int, weights: tuple[int, ...] = (1, 2)) -> None:
        for number, size in enumerate(sizes):
            vpod = vpod_object(f"v{number}", size, weight=weights[number % len(weights)])
            await self.world.cluster.create(VPODS, TENANTS[number % 2], vpod)

    async def resize(self, number: int, vreplicas: int) -> None:
        await self.patch(
            VPODS, f"v{number}", {"spec": {"vreplicas": vreplicas}}, TENANTS[number % 2]
        )

    async def patch(
        self, resource: Resource, name: str, patch: Obj, namespace: str = NS, subresource: str = ""
    ) -> None:
        await self.world.cluster.patch(
            resource, namespace, name, patch, patch_type=PatchType.MERGE, subresource=subresource
        )

    async def annotate(self, pod: str, **annotations: str | None) -> None:
        await self.patch(PODS, pod, {"metadata": {"annotations": annotations}})

    async def settled(self) -> None:
        """All is as it should be."""
        problems = await wait_settled(self.world, self.checkers)
        assert not problems, problems

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        await self.world.until(holds, what, timeout_s=420.0)

    def replicas(self) -> int:
        return int(self.world.stored(STATEFULSETS)[NS, NAME]["spec"]["replicas"])
