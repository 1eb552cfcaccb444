"""The world of a simulated run: cluster, kube-scheduler, webhook and replicas of the shipped service, in virtual time.

Every process has an API of its own that faults fall on. Only the workload and the checkers see the cluster as it is.
All that is random comes from ``random.Random(seed/what)``, so one part's dice do not disturb another's.
"""

import asyncio
import hashlib
import random
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import orjson

from extender.app import Service
from extender.core.bucket import Bucket
from extender.core.errors import WireError
from extender.core.names import OWN_NAMESPACE
from extender.core.reasons import ConflictReason
from extender.kube.api import (
    ADAPTERPOOLS,
    CRDS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    ListOptions,
    ListPage,
    Obj,
    Resource,
)
from extender.kube.reflector import Reflector
from extender.service.config import Config, LeaderElectionConfig
from extender.service.proofs import UNDER_WAY_S
from extender.service.verbs import ERROR
from extender.shipped import manifests, manifests_dir
from extender.sim.apiserver.admission import WebhookCall, WebhookCallError
from extender.sim.apiserver.store import Change
from extender.sim.clock import PROCESS, VirtualTimeLoop, wall_clock
from extender.sim.cluster import Cluster
from extender.sim.embedded import ControllerSettings, EmbeddedCluster, node_object, stateful_set_object
from extender.sim.faults import CALM, Answer, Crashed, FaultRates, Faults, FaultyApi, FaultyTransport
from extender.sim.faults.transport import UNKNOWN_NODE
from extender.sim.scheduler.config import ProfileConfig, SchedulerConfig
from extender.sim.scheduler.config_file import load_configuration
from extender.sim.scheduler.extender_transport import TIMED_OUT, TransportError
from extender.sim.scheduler.scheduler import Scheduler
from extender.simulation import streams
from extender.simulation.callers import Callers, Network
from extender.simulation.ledgers import Overseen
from webhook.caches import WebhookCaches
from webhook.mutate import stamp
from webhook.review import decode_review, encode_review

LEASE: Final = "vreplica-scheduler"
NS: Final = "adapters"
NAME: Final = "dispatcher"
NAMES: Final = (NAME, "receiver", "poller")
"""Pools, with a StatefulSet of the same name each; a world has at least the first."""
POOL: Final = f"{NS}/{NAME}"
TENANTS: Final = ("tenant-a", "tenant-b")
ZONES: Final = 3
DEADLINE_S: Final = 4.0
SYNC_TIMEOUT_S: Final = 60.0
CACHE_AGE_MAX_S: Final = 5.0
VERSIONS_KEPT: Final = 4000

T = TypeVar("T")


@cache
def scheduler_config() -> SchedulerConfig:
    """The shipped configuration, and the default profile for pods that slipped past the webhook."""
    shipped = load_configuration((manifests_dir() / "kube-scheduler" / "config.yaml").read_bytes())
    return replace(shipped, profiles=(*shipped.profiles, ProfileConfig()))


def pool_object(pool: str = NAME, /, **spec: Any) -> Obj:
    """An AdapterPool of the StatefulSet with its name."""
    return {"metadata": {"name": pool}, "spec": {"statefulSet": pool, **spec}}


def vpod_object(name: str, vreplicas: int, weight: int = 1, pool: str = NAME) -> Obj:
    """A VPod of one of the pools."""
    ref = {"namespace": NS, "name": pool}
    return {
        "metadata": {"name": name},
        "spec": {"poolRef": ref, "vreplicas": vreplicas, "slotsPerVReplica": weight},
    }


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the world is at its beginning. ``pools``: more of the spec of each pool, of which there are so many."""

    nodes: int = 4
    slots_per_pod: int = 8
    min_pods: int = 0
    max_pods: int | None = None
    replicas: int = 2
    node_slots: int | None = None
    """That every node declares."""
    pools: tuple[Mapping[str, Any], ...] = ({},)
    buckets: int = 1
    """In how many the replicas lead the pools."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of namespaces."""
    narrow_to: int = 0
    """Nodes that the replicas' filter passes at the most; 0: all."""
    sources: bool = False
    """Whether the pools take Streams, too."""
    counts_otherwise: float = 0.0
    """Share of the replicas that lead in another number of buckets, as while that is rolled out."""


class Trace:
    """One line for each thing that happened; the hash of all of them tells whether two runs were the same."""

    def __init__(self, *, keep: bool = False) -> None:
        self._hash = hashlib.sha256()
        self._keep = keep
        self.lines: list[str] = []
        self.count = 0

    def __call__(self, line: str) -> None:
        """Take note."""
        line = f"{asyncio.get_running_loop().time():.6f} {line}"
        self.count += 1
        self._hash.update(line.encode())
        if self._keep:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits."""
        return self._hash.hexdigest()[:16]


class Replica:
    """One process of the service: its API, its clock, its object, its tasks. ``crash`` is SIGKILL, ``pause`` SIGSTOP."""

    def __init__(
        self, name: str, api: FaultyApi, rng: random.Random, *, lease: str = LEASE, scale: Scale
    ) -> None:
        self.name = name
        self.rival = lease != LEASE
        """Whether it competes for a Lease of its own, and so leads whoever else does."""
        self.api = api
        self.clock_ahead_s = 0.0
        """Of its wall clock. Its monotonic clock is right."""
        self._context = copy_context()
        self._context.run(PROCESS.set, name)
        election = LeaderElectionConfig(
            resource_namespace=OWN_NAMESPACE, resource_name=lease, buckets=scale.buckets
        )
        config = Config(leader_election=election, narrow_to=scale.narrow_to)
        self.service = self._context.run(partial(Service, api, config, now=self.now, rng=rng, serve=False))
        self._schedule = self.service.schedule_verb()
        self.task = self._spawn(self.service.run())
        self.verbs: set[asyncio.Task[tuple[bytes, str]]] = set()
        api.on_crash = self._crashed

    def now(self) -> float:
        """Its wall clock, epoch seconds."""
        return wall_clock() + self.clock_ahead_s

    def _spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        return asyncio.get_running_loop().create_task(work, name=self.name, context=self._context)

    @property
    def ready(self) -> bool:
        """Whether kube-proxy would send it anything: a paused process takes connections for a while."""
        return not self.api.crashed and not self.task.done() and not self.service.health.problems()

    def crash(self) -> None:
        """SIGKILL."""
        self.api.crash()

    @property
    def paused(self) -> bool:
        """Whether it is stopped now."""
        return _loop().is_paused(self.name)

    def pause(self) -> None:
        """SIGSTOP; nothing where it is dead."""
        if not self.api.crashed:
            _loop().pause(self.name)

    def resume(self) -> None:
        """SIGCONT."""
        if self.paused:
            _loop().resume(self.name)

    def _crashed(self) -> None:
        self.resume()  # SIGKILL ends a stopped process, too, also one that comes with an answer on its way
        self.task.cancel()
        for task in self.verbs:
            task.cancel()

    async def answer(self, verb: str, body: bytes, timeout_s: float) -> Answer:
        """What its HTTP server would answer. Raises TransportError."""
        try:
            async with asyncio.timeout(min(DEADLINE_S, timeout_s)):
                task = self._spawn(self._run(verb, body))
                self.verbs.add(task)
                task.add_done_callback(self.verbs.discard)
                reply, _ = await task
        except WireError as error:
            return error.status, str(error).encode()
        except TimeoutError:
            if timeout_s <= DEADLINE_S or self.paused:
                raise TransportError(TIMED_OUT) from None
            return 504, b"not answered in time"
        except (Crashed, asyncio.CancelledError):
            if not self.api.crashed:
                raise
            raise TransportError("EOF") from None
        if self.api.crashed:  # whatever it would have said: a process that was killed has not answered
            raise TransportError("EOF")
        return 200, reply

    async def schedule(self, body: bytes, timeout_s: float) -> Answer:
        """What its HTTP server would answer to ``POST /v1/schedule``. Raises TransportError.

        A request that has arrived is served whatever becomes of its caller.
        """
        if not self.ready and not self.paused:
            raise TransportError("dial tcp 127.0.0.1:10261: connect: connection refused")
        task = self._spawn(self._schedule.schedule(body))
        self.verbs.add(task)
        task.add_done_callback(self.verbs.discard)
        task.add_done_callback(_tell_unexpected)
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done():
            raise TransportError(TIMED_OUT)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, WireError):
            return error.status, str(error).encode()
        if self.api.crashed:
            raise TransportError("EOF")
        return 200, task.result()[0]

    async def _run(self, verb: str, body: bytes) -> tuple[bytes, str]:
        verbs = self.service.verbs
        if verb == "bind":
            return await verbs.bind(body)
        at_once = {"filter": verbs.filter, "prioritize": verbs.prioritize, "preempt": verbs.preempt}
        return at_once.get(verb, lambda _: (b"", ERROR))(body)


class World:
    """Everything, between ``__aenter__`` and ``__aexit__``."""

    def __init__(
        self, seed: int, scale: Scale | None = None, *, rates: FaultRates = CALM, keep_trace: bool = False
    ) -> None:
        self.seed = seed
        self.scale = scale or Scale()
        self.trace = Trace(keep=keep_trace)
        self.faults = Faults(self.rng("faults"), rates)
        self.calm = Faults(self.rng("network"), CALM)
        self.cluster = Cluster(
            now=wall_clock,
            rng=self.rng("cluster"),
            webhook_caller=self._call_webhook,
            history_events_max=50_000,
        )
        self.replicas: list[Replica] = []
        self._clocks: dict[str, Callable[[], float]] = {}
        self._apis: dict[str, FaultyApi] = {}
        """Every replica's wall clock by its name: what one that has ended sent may still arrive."""
        self._processes: list[asyncio.Task[None]] = []
        self.problems: list[str] = []
        """What went wrong in the processes themselves: tasks that ended with an error, repeated binds that differ."""
        self.callers = Callers(Network(self._asked_by_callers, self.faults, self.trace, self.problems))
        self._led_twice: set[str] = set()
        self._reapplied_until = 0.0
        self._started = 0
        self._rivals_until = 0.0
        self._scheduler: asyncio.Task[None] | None = None
        self._versions: list[tuple[float, int]] = []
        """(time, version) of the latest writes, for lists from old caches."""
        self._former: dict[tuple[str, str], tuple[str, str]] = {}
        """(namespace, name) -> UID and node of the pod that had the name before."""
        self.cluster.server.store.subscribers.append(self._on_change)
        self._webhook = WebhookCaches()
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        kubelet = self.rng("kubelet")
        settings = ControllerSettings(
            pod_start_delay_s=lambda _: kubelet.uniform(0.1, 1.0),
            pod_stop_delay_s=lambda _: kubelet.uniform(0.05, 0.5),
            controller_api=lambda api, component: FaultyApi(
                api, self.calm, actor=component, record=self.trace
            ),
        )
        self.embedded = EmbeddedCluster(self.cluster, settings)

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of the pools that there are."""
        return NAMES[: len(self.scale.pools)]

    @property
    def leases(self) -> tuple[str, ...]:
        """Names of the Leases by which the pools are led."""
        buckets = self.scale.buckets
        return tuple(Bucket(index, buckets).lease_name(LEASE) for index in range(buckets))

    def rng(self, what: str) -> random.Random:
        """Dice for one purpose, always the same ones."""
        return random.Random(f"{self.seed}/{what}")

    def api(self, actor: str, faults: Faults) -> FaultyApi:
        """The way of a process to the API server."""
        overseen = Overseen(self.cluster)
        old_lists = partial(self._old_list, overseen) if faults is self.faults else None
        api = FaultyApi(overseen, faults, actor=actor, record=self.trace, old_lists=old_lists)
        self._apis[actor] = api
        return api

    async def __aenter__(self) -> Self:
        asyncio.get_running_loop().set_exception_handler(self._loop_problem)
        await self._furnish()
        await self._stack.enter_async_context(self.embedded)
        self._start_webhook()
        self.restart_scheduler()
        for _ in range(self.scale.replicas):
            self.start_replica()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.callers.stop()
        for replica in self.replicas:
            replica.crash()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._processes, return_exceptions=True)
        await self._stack.aclose()

    def restart_scheduler(self) -> None:
        """A new process of kube-scheduler, which knows nothing of what the one before has assumed."""
        if self._scheduler is not None:
            self._scheduler.cancel()
        transport = FaultyTransport(
            self._post,
            self.faults,
            on_repeated=self._repeated,
            on_odd=self._odd,
            former_uid=self._former_uid,
        )
        scheduler = Scheduler(
            self.api("kube-scheduler", self.calm),
            scheduler_config(),
            now=wall_clock,
            rng=self.rng("kube-scheduler"),
            transport=transport,
        )
        self._scheduler = self._run(scheduler.run(), "kube-scheduler")
        self._tasks.append(self._scheduler)

    def _check_leaders(self) -> None:
        """A pool has one leader at the most, rivals aside."""
        if self.two_lead() or asyncio.get_running_loop().time() < self._reapplied_until:
            return
        for pool in self.pools:
            key = f"{NS}/{pool}"
            leaders = [r.name for r in self.replicas if not r.api.crashed and r.service.leadership.leads(key)]
            if len(leaders) > 1 and key not in self._led_twice:
                self._led_twice.add(key)
                now = asyncio.get_running_loop().time()
                self.problems.append(f"at {now:.3f} s: {key} is led by {' and '.join(leaders)}")

    def _on_change(self, kind: tuple[str, str], change: Change) -> None:
        self._check_leaders()
        now = asyncio.get_running_loop().time()
        self._versions.append((now, change.version))
        if len(self._versions) > 2 * VERSIONS_KEPT:
            del self._versions[:VERSIONS_KEPT]
        if kind == ("", "pods") and change.after is None and change.before is not None:
            node = change.before.obj["spec"].get("nodeName") or ""
            self._former[change.before.key] = (change.before.uid, node)

    def _former_uid(self, namespace: str, name: str, node: str) -> str:
        uid, was_on = self._former.get((namespace, name), ("", ""))
        return uid if was_on != node else ""

    async def _old_list(
        self, overseen: Overseen, resource: Resource, options: ListOptions
    ) -> ListPage | None:
        """A kind as it was some seconds ago."""
        since = asyncio.get_running_loop().time() - self.faults.rng.uniform(0.0, CACHE_AGE_MAX_S)
        version = next((version for at, version in reversed(self._versions) if at <= since), 0)
        page = self.cluster.server.list_at(resource, options, version) if version else None
        if page is not None and resource == PODS:
            overseen.note(page.items)
        return page

    async def _furnish(self) -> None:
        for path in ("crds/adapterpools.yaml", "crds/vpods.yaml"):
            for definition in manifests(path):
                await self.cluster.create(CRDS, "", definition)
        if self.scale.sources:
            await self.cluster.create(CRDS, "", streams.definition())
        for namespace in (OWN_NAMESPACE, NS, *TENANTS):
            labels = self.scale.labels.get(namespace, {})
            await self.cluster.create(
                NAMESPACES, "", {"metadata": {"name": namespace, "labels": dict(labels)}}
            )
        for lease in self.leases:
            await self.install_lease(lease)
        hook = manifests("base/webhook-configurations.yaml")[0]
        await self.cluster.create(MUTATING_WEBHOOKS, "", hook)
        for index in range(self.scale.nodes):
            node = node_object(f"node-{index}", f"zone-{index % ZONES}", slots=self.scale.node_slots)
            await self.cluster.create(NODES, "", node)
        spec: Obj = {"slotsPerPod": self.scale.slots_per_pod, "minPods": self.scale.min_pods}
        if self.scale.max_pods is not None:
            spec["maxPods"] = self.scale.max_pods
        for pool, more in zip(self.pools, self.scale.pools, strict=True):
            stateful_set = stateful_set_object(pool, namespace=NS, replicas=0, pool="")
            await self.cluster.create(STATEFULSETS, NS, stateful_set)
            sources = {"sources": [streams.source(pool)]} if self.scale.sources else {}
            await self.cluster.create(ADAPTERPOOLS, NS, pool_object(pool, **{**spec, **more, **sources}))

    async def install_lease(self, name: str) -> None:
        """A Lease that nobody has ever held."""
        await self.cluster.create(LEASES, OWN_NAMESPACE, {"metadata": {"name": name}})

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not _is_crash(error):
            self.problems.append(f"{task.get_name()} ended with {error!r}")

    def _loop_problem(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or not _is_crash(error):
            self.problems.append(f"{context.get('message')}: {error!r}")

    # -- the service ----------------------------------------------------------------------------------------------

    def start_replica(self, *, lease: str = LEASE) -> Replica:
        """A new process of the service. ``lease``: the name of the one that it competes for."""
        self._started += 1
        name = f"replica-{self._started}"
        api, rng = self.api(name, self.faults), self.rng(name)
        buckets = self.scale.buckets if lease == LEASE else 1
        if buckets > 1 and self.rng(f"{name} counts").random() < self.scale.counts_otherwise:
            buckets = 1 if buckets == 2 else 2
        replica = Replica(name, api, rng, lease=lease, scale=replace(self.scale, buckets=buckets))
        replica.task.add_done_callback(self._ended)
        self.replicas.append(replica)
        self._clocks[name] = replica.now
        self._processes.append(replica.task)
        self.trace(f"{name} started{' as a rival' if replica.rival else ''}")
        return replica

    def lease_reapplied(self) -> None:
        """Somebody has deleted a Lease and applied it again.

        Where its first holder has written nothing yet, one that starts just then takes it at once (docs/reliability.md).
        """
        self._reapplied_until = asyncio.get_running_loop().time() + LeaderElectionConfig().lease_duration_s

    def two_lead(self) -> bool:
        """Whether a rival is there, or may still have something under way: then I1 alone is promised."""
        now = asyncio.get_running_loop().time()
        if any(replica.rival for replica in self.replicas):
            self._rivals_until = now + UNDER_WAY_S
        return now < self._rivals_until

    def now_of(self, actor: str) -> float:
        """Its wall clock, epoch seconds."""
        return self._clocks.get(actor, wall_clock)()

    def ledger_failed_at(self, actor: str, pod_name: str) -> float:
        """The loop's time at which a write of this pod last failed for a process; -inf where none has."""
        api = self._apis.get(actor)
        return api.failed_at_s.get(("pods", pod_name), -inf) if api is not None else -inf

    def listed_at(self, actor: str) -> float:
        """The loop's time at which a process last listed pods; -inf where it never has."""
        api = self._apis.get(actor)
        return api.listed_at_s.get("pods", -inf) if api is not None else -inf

    def _asked_by_callers(self) -> list[Replica]:
        return [replica for replica in self.replicas if not replica.rival and not replica.api.crashed]

    def kill(self, replica: Replica) -> None:
        """SIGKILL one."""
        replica.crash()
        self.replicas.remove(replica)

    def stop(self, replica: Replica) -> None:
        """SIGTERM one: it ends by itself, within its grace period."""
        self.trace(f"{replica.name} is told to end")
        self.replicas.remove(replica)
        replica.task.cancel()

    def bury(self) -> None:
        """Forget replicas that have crashed by themselves."""
        self.replicas = [replica for replica in self.replicas if not replica.api.crashed]

    @property
    def leader(self) -> Replica | None:
        """One that believes that it leads, rivals aside."""
        ours = (r for r in self.replicas if not r.rival and not r.api.crashed)
        return next((r for r in ours if r.service.leading()), None)

    def led_since(self) -> float:
        """When a replica that leads now has begun to: the Lease tells of no term that begins where the same one had led before."""
        since = (
            elector.leading_since
            for replica in self.replicas
            if not replica.api.crashed
            for elector in replica.service.leadership.electors
        )
        return max((at for at in since if at < inf), default=-inf)

    def unled(self) -> list[str]:
        """Keys of pools that nobody leads, rivals aside."""
        ours = [r for r in self.replicas if not r.rival and not r.api.crashed]
        keys = [f"{NS}/{pool}" for pool in self.pools]
        return [key for key in keys if not any(r.service.leadership.leads(key) for r in ours)]

    async def until(self, holds: Callable[[], bool], what: str, timeout_s: float = SYNC_TIMEOUT_S) -> None:
        """Wait until it holds; AssertionError if it takes too long."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while not holds():
            assert loop.time() < end, f"not within {timeout_s} s: {what}"
            await asyncio.sleep(0.05)

    async def _post(self, url: str, body: bytes, timeout_s: float) -> Answer:
        """The extender's Service: any ready replica."""
        ready = [replica for replica in self.replicas if replica.ready]
        if not ready:
            raise TransportError("dial tcp 127.0.0.1:10261: connect: connection refused")
        replica = self.calm.rng.choice(ready)
        verb = urlsplit(url).path.rpartition("/")[2]
        try:
            status, reply = await replica.answer(verb, body, timeout_s)
        except TransportError as error:
            self.trace(f"{verb} at {replica.name}: {error}")
            raise
        self.trace(f"{verb} at {replica.name}: {status} {hashlib.sha256(reply).hexdigest()[:8]}")
        return status, reply

    def _repeated(self, url: str, body: bytes, first: Answer, second: Answer) -> None:
        """I5: a bind that is repeated after it succeeded succeeds, unless the pod has changed meanwhile."""
        if not url.endswith("/bind") or first[0] != 200 or second[0] != 200:
            return
        args, errors = (
            orjson.loads(body),
            [str(orjson.loads(a[1]).get("Error") or "") for a in (first, second)],
        )
        refused = errors[1].partition(":")[0] in set(ConflictReason)
        key = (args["PodNamespace"], args["PodName"])
        entry = self.cluster.server.store.collection("", "pods").entries.get(key)
        if entry is None or entry.uid != args["PodUID"] or entry.obj["metadata"].get("deletionTimestamp"):
            return
        if not errors[0] and refused:
            self.problems.append(f"I5: bind of {key[1]} succeeded, and repeated was refused: {errors[1]}")

    def _odd(self, what: str, answer: Answer) -> None:
        """What nobody should ask for must not be granted."""
        status, body = answer
        if status != 200:
            return
        reply = orjson.loads(body)
        if what.startswith("bind") and not reply.get("Error"):
            self.problems.append(f"{what} was granted")
        if what.endswith("unknown node") and UNKNOWN_NODE in (reply.get("NodeNames") or ()):
            self.problems.append(f"{what} let it pass")

    # -- the webhook ------------------------------------------------------------------------------------------------

    def _start_webhook(self) -> None:
        api = self.api("webhook", self.calm)
        for resource, sink in self._webhook.sinks.items():
            reflector = Reflector(api, resource, sink, rng=self.rng(f"webhook {resource.plural}"))
            self._tasks.append(self._run(reflector.run(), f"webhook {resource.plural}"))

    async def _call_webhook(self, call: WebhookCall) -> Obj:
        await self.calm.delay()
        if self.faults.hits("webhook_slow"):
            await asyncio.sleep(self.faults.seconds())
        if self.faults.hits("webhook_bypassed"):
            raise WebhookCallError("injected: connection refused")
        request = decode_review(orjson.dumps(call.review))
        review: Obj = orjson.loads(encode_review(request.uid, stamp(request, self._webhook)))
        return review

    # -- what is stored ----------------------------------------------------------------------------------------------

    def stored(self, resource: Resource) -> dict[tuple[str, str], Obj]:
        """All objects of a kind by namespace and name. They are the store's own: read only."""
        entries = self.cluster.server.store.collection(resource.group, resource.plural).entries
        return {key: entries[key].obj for key in sorted(entries)}

    def vpods(self) -> dict[str, Obj]:
        """All vpods by key."""
        return {f"{namespace}/{name}": obj for (namespace, name), obj in self.stored(VPODS).items()}


def _tell_unexpected(task: "asyncio.Task[Any]") -> None:
    """Also of one that nobody waits for any more."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, WireError) and not _is_crash(error):
        _loop().call_exception_handler({"message": f"{task.get_name()} ended", "exception": error})


def _loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def _is_crash(error: BaseException) -> bool:
    """Whether an error is (nothing but) our own SIGKILL."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_crash(inner) for inner in error.exceptions)
    return isinstance(error, Crashed | asyncio.CancelledError)
