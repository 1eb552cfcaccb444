"""The world of a simulated run: cluster, kube-scheduler, webhook and replicas of the shipped
service, in virtual time.

Every process has its own API, with injected faults. Only the workload and the checkers see the
cluster without faults. All randomness comes from ``random.Random(seed/what)``, so the draws of one
part do not depend on the others.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final, Self

from extender.config.kube_scheduler import SchedulerConfig
from extender.kube.api import PODS, Obj, Resource
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.store import Change, Snapshot
from extender.lab.clock import wall_clock
from extender.lab.embedded import ControllerSettings, EmbeddedCluster
from extender.lab.faults import CALM, FaultRates, Faults, FaultyApi, FaultyTransport
from extender.lab.scheduler.listers import CSI_KINDS
from extender.lab.scheduler.scheduler import Scheduler
from extender.lab.scheduler.select_host import RoundRobin, at_random
from extender.lab.simulation.world.adapters import SimulatedAdapters
from extender.lab.simulation.world.admission import Admission
from extender.lab.simulation.world.binds import BindChecker
from extender.lab.simulation.world.callers import Callers, Network
from extender.lab.simulation.world.installation import install
from extender.lab.simulation.world.kube_scheduler import (
    CLUSTERS_OWN,
    ExtenderService,
    scheduler_config,
)
from extender.lab.simulation.world.leadership import Leadership
from extender.lab.simulation.world.ledgers import RecordingApi
from extender.lab.simulation.world.load import AdapterLoads, LoadReporter
from extender.lab.simulation.world.old_lists import OldLists
from extender.lab.simulation.world.prometheus import SimulatedPrometheus
from extender.lab.simulation.world.replica import Replica, is_crash, is_replaced
from extender.lab.simulation.world.scale import LEASE, Scale, pool_of
from extender.lab.simulation.world.trace import Trace

SYNC_TIMEOUT_S: Final = 60.0
RESTART_S: Final = 2.0
"""The time until an ended container starts again."""
TOLD_FIRST: Final = ("namespaces", "nodes", "adapterpools", "vreplicaquotas", "statefulsets")
"""After a restore, these kinds are reported first, because the others are judged by them."""


class World:
    """The whole world, which runs between ``__aenter__`` and ``__aexit__``."""

    def __init__(
        self,
        seed: int,
        scale: Scale | None = None,
        *,
        rates: FaultRates = CALM,
        keep_trace: bool = False,
    ) -> None:
        self.seed = seed
        self.scale = scale or Scale()
        self.trace = Trace(keep=keep_trace)
        self.faults = Faults(self.rng("faults"), rates)
        self.calm = Faults(self.rng("network"), CALM)
        self._admission = Admission(self.calm, self.faults)
        self.cluster = Cluster(
            now=wall_clock,
            rng=self.rng("cluster"),
            webhook_caller=self._admission.call,
            history_events_max=50_000,
        )
        self.replicas: list[Replica] = []
        self._clocks: dict[str, Callable[[], float]] = {}
        """Name -> wall clock of every replica, even an ended one: its writes may still arrive."""
        self._apis: dict[str, FaultyApi] = {}
        self._processes: list[asyncio.Task[None]] = []
        self.problems: list[str] = []
        """What went wrong in the processes themselves: tasks that ended with an error, and repeated
        binds with different answers.
        """
        self.leadership = Leadership(lambda: self.replicas, self.scale.pool_names, self.problems)
        self.callers = Callers(
            Network(self.leadership.candidates, self.faults, self.trace, self.problems),
            dimensions=self.scale.dimensions,
        )
        self.adapters = SimulatedAdapters(
            self.rng("adapters"),
            replicas=lambda: self.replicas,
            run=self._run,
            trace=self.trace,
            problems=self.problems,
        )
        self.load = AdapterLoads(self.rng, pods=lambda: self.stored(PODS))
        self._prometheus = SimulatedPrometheus(self.load, self.faults)
        self._started = 0
        self.restored = False
        """Whether etcd was restored from a backup."""
        self._outdated: set[str] = set()
        """Replicas that ran when etcd was restored. Each may end because of it."""
        self._schedulers: dict[str, asyncio.Task[None]] = {}
        self._old_lists = OldLists(self.cluster, self.faults)
        self._binds = BindChecker(self.cluster.server.store, self.problems)
        self.cluster.server.store.subscribers.append(self._on_change)
        self.cluster.server.store.subscribers.append(self.adapters.on_change)
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        kubelet = self.rng("kubelet")
        self.ends_slowly_s: dict[str, float] = {}
        """StatefulSet -> additional seconds until its pods end."""
        settings = ControllerSettings(
            pod_start_delay_s=lambda _: kubelet.uniform(0.1, 1.0),
            pod_stop_delay_s=lambda pod: (
                kubelet.uniform(0.05, 0.5)
                + self.ends_slowly_s.get(pool_of(pod["metadata"]["name"]), 0.0)
            ),
            controller_api=lambda api, component: FaultyApi(
                api, self.calm, actor=component, record=self.trace
            ),
        )
        self.embedded = EmbeddedCluster(self.cluster, settings)

    def rng(self, what: str) -> random.Random:
        """Return the dice for one purpose. They are the same in each run of the seed."""
        return random.Random(f"{self.seed}/{what}")

    def api(self, actor: str, faults: Faults) -> FaultyApi:
        """Return the API of one process."""
        recording_api = RecordingApi(self.cluster)
        old_lists = partial(self._old_lists.page, recording_api) if faults is self.faults else None
        api = FaultyApi(recording_api, faults, actor=actor, record=self.trace, old_lists=old_lists)
        self._apis[actor] = api
        return api

    async def __aenter__(self) -> Self:
        asyncio.get_running_loop().set_exception_handler(self._loop_problem)
        await install(self.cluster, self.scale)
        await self._stack.enter_async_context(self.embedded)
        self._start_cluster()
        for _ in range(self.scale.replicas):
            self.start_replica()
        if self.scale.load:
            reporter = LoadReporter(self.load, replicas=lambda: self.replicas)
            _ = self._run(reporter.run(), "load reporter")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.callers.stop()
        for replica in self.replicas:
            replica.crash()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._processes, return_exceptions=True)
        await self._stack.aclose()

    def _start_cluster(self) -> None:
        """Start what reads the API server besides the service and the controllers."""
        self._admission.start(self.api("webhook", self.calm), self.rng, self._run)
        self.restart_scheduler()
        self._start_scheduler("default-scheduler", CLUSTERS_OWN)

    def restart_scheduler(self) -> None:
        """Start a new process of the shipped kube-scheduler. It does not know what the last one has
        assumed.
        """
        self._start_scheduler("kube-scheduler", scheduler_config())

    def _start_scheduler(self, name: str, config: SchedulerConfig) -> None:
        if (running := self._schedulers.get(name)) is not None:
            running.cancel()
        transport = FaultyTransport(
            ExtenderService(lambda: self.replicas, self.calm.rng, self.trace),
            self.faults,
            on_repeated=self._binds.repeated,
            on_odd=self._binds.odd,
            former_uid=self._binds.former_uid,
        )
        rng = self.rng(name)
        scheduler = Scheduler(
            self.api(name, self.calm),
            config,
            now=wall_clock,
            rng=rng,
            transport=transport,
            select_host=RoundRobin() if self.scale.take_turns else at_random(rng),
        )
        self._schedulers[name] = self._run(scheduler.run(unwatched=CSI_KINDS), name)

    def _on_change(self, kind: tuple[str, str], change: Change) -> None:
        self.leadership.check()
        self._old_lists.note(change)
        self._binds.note(kind, change)

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not is_crash(error):
            self.problems.append(f"{task.get_name()} ended with {error!r}")

    def _loop_problem(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or not is_crash(error):
            self.problems.append(f"{context.get('message')}: {error!r}")

    # -- the service -------------------------------------------------------------------------------

    def start_replica(self, *, lease: str = LEASE) -> Replica:
        """Start a new process of the service, which competes for the Lease named ``lease``."""
        self._started += 1
        name = f"replica-{self._started}"
        api, rng = self.api(name, self.faults), self.rng(name)
        buckets = self.scale.buckets if lease == LEASE else 1
        if buckets > 1 and self.rng(f"{name} counts").random() < self.scale.other_buckets_share:
            buckets = 1 if buckets == 2 else 2
        replica = Replica(
            name,
            api,
            rng,
            lease=lease,
            scale=replace(self.scale, buckets=buckets),
            load_server=self._prometheus.server,
        )
        replica.task.add_done_callback(partial(self._replica_ended, replica))
        self.replicas.append(replica)
        self._clocks[name] = replica.now
        self._processes.append(replica.task)
        self.trace(f"{name} started{' as a rival' if replica.rival else ''}")
        return replica

    def _replica_ended(self, replica: Replica, task: "asyncio.Task[None]") -> None:
        """Restart a replica that ended because its known history is gone, as its kubelet does. This
        may happen once for each restore.
        """
        error = None if task.cancelled() else task.exception()
        if error is None or not is_replaced(error) or replica.name not in self._outdated:
            self._ended(task)
            return
        self.trace(f"{replica.name} ends: etcd has been restored")
        self._outdated.discard(replica.name)
        replica.crash()
        if replica in self.replicas:
            self.replicas.remove(replica)
            _ = self._run(self._start_again(), "container restart")

    async def _start_again(self) -> None:
        await asyncio.sleep(RESTART_S)
        self.start_replica()

    def restore(self, backup: Snapshot, *, bump: int) -> None:
        """Restore a backup. All readers of the API server start again, except replicas, which have
        to notice it themselves.

        The store's subscribers get each difference as if a person had written it. So checkers
        excuse what concerns those objects, and nothing else.
        """
        store = self.cluster.server.store
        before = {kind: dict(collection.entries) for kind, collection in store.collections()}
        self.cluster.restore(backup, bump=bump)
        self._old_lists.forget()
        self.restored = True
        self._outdated = {replica.name for replica in self.replicas}
        self.trace(f"etcd restored to version {backup.version}, goes on at {store.version}")
        order = {plural: place for place, plural in enumerate(TOLD_FIRST)}
        for kind in sorted(before, key=lambda kind: (order.get(kind[1], len(order)), kind)):
            now = store.collection(*kind).entries
            for key in sorted({*before[kind], *now}):
                old, new = before[kind].get(key), now.get(key)
                if old is not new:
                    for subscriber in store.subscribers:
                        subscriber(kind, Change(store.version, old, new))
        self.embedded.begin_anew()
        self._start_cluster()

    def outdated(self) -> list[str]:
        """Return the replicas that ran when etcd was restored, and still run."""
        return [replica.name for replica in self.replicas if replica.name in self._outdated]

    def now_of(self, actor: str) -> float:
        """Return the wall clock of an actor, in epoch seconds."""
        return self._clocks.get(actor, wall_clock)()

    def failed_at(self, actor: str, plural: str, name: str) -> float:
        """Return the loop time of a process's last failed write of an object; -inf if none. Events
        count by their namespace.
        """
        api = self._apis.get(actor)
        return api.failed_at_s.get((plural, name), -inf) if api is not None else -inf

    def runs_since(self, actor: str) -> float:
        """Return the loop time since which a process has run without a break; inf if it does not
        run, or was told to end.
        """
        replica = next((one for one in self.replicas if one.name == actor), None)
        return replica.runs_since_s if replica is not None else inf

    def listed_at(self, actor: str) -> float:
        """Return the loop time of a process's last list of pods; -inf if there is none."""
        api = self._apis.get(actor)
        return api.listed_at_s.get("pods", -inf) if api is not None else -inf

    def kill(self, replica: Replica) -> None:
        """Kill a replica (SIGKILL)."""
        replica.crash()
        self.replicas.remove(replica)

    def stop(self, replica: Replica) -> None:
        """Stop a replica (SIGTERM). It ends by itself, within its grace period."""
        self.trace(f"{replica.name} is told to end")
        self.replicas.remove(replica)
        replica.task.cancel()

    def drop_crashed(self) -> None:
        """Drop replicas that have crashed by themselves."""
        self.replicas = [replica for replica in self.replicas if not replica.api.crashed]

    async def until(
        self, holds: Callable[[], bool], what: str, timeout_s: float = SYNC_TIMEOUT_S
    ) -> None:
        """Wait until the condition holds. Raises AssertionError after ``timeout_s``."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while not holds():
            assert loop.time() < end, f"not within {timeout_s} s: {what}"
            await asyncio.sleep(0.05)

    # -- what is stored ----------------------------------------------------------------------------

    def stored(self, resource: Resource) -> dict[tuple[str, str], Obj]:
        """Return all objects of a kind by namespace and name. Do not change them."""
        entries = self.cluster.server.store.collection(resource.group, resource.plural).entries
        return {key: entries[key].obj for key in sorted(entries)}
