"""``replicas``: how much each replica of the service has to do as pools, and replicas that share
them, become more.

Theory of operation. The embedded cluster runs as a process of its own, and so does each replica,
which leads as shipped but in ``BUCKETS`` buckets. Once the replicas share the pools, vpods come and
then change their size some times. All of it shares one machine here, and the embedded API server is
the slowest part of it, so seconds would tell of that. What is measured is processor time, replica
by replica: every replica hears of everything, and places only what it leads. ``busiest`` is what
limits: with machines of their own, replicas are as fast as the busiest of them. Peers of the same
run: one replica that leads all of the same pools, and for pools one pool with all the vpods. What a
replica spends without any load is measured before, told, and taken off.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from extender.kube.api import LEASES, PODS, STATEFULSETS, VPODS, ListOptions, Obj, PatchType
from extender.model.bucket import Bucket, bucket_of
from extender.model.decode import vpod_from
from extender.model.names import (
    LEASE_NAME,
    SCHEDULER_NAME,
    SLOTS_ANNOTATION,
)
from tests.bench.latency import cpu_seconds
from tests.bench.options import Options
from tests.bench.real_cluster import all_of, followed, stream
from tests.bench.registry import Skipped
from tests.bench.result import Result
from tests.bench.throughput import configuration
from tests.e2e.embedded import EmbeddedBackend
from tests.e2e.objects import MANIFESTS, load, stateful_set, without, write_json
from tests.e2e.processes import VENV_BIN, Probe, Process, free_port
from tests.e2e.replica import Replica
from tests.e2e.scenario import (
    SERVICE_ACCOUNT,
    SLOTS_PER_POD,
    SYSTEM_NAMESPACE,
    adapter_pool,
    is_placed,
)
from tests.e2e.waiting import NotYet, eventually

BUCKETS: Final = 8
IDLE_S: Final = 5.0
"""How long it is looked on what is spent without a load, which is taken off: leases, mostly."""
SHARED_TIMEOUT_S: Final = 120.0
PLACED_TIMEOUT_S: Final = 300.0
VREPLICAS: Final = (8, 10, 7)
"""What each vpod wants first, and after each change."""


@dataclass(frozen=True)
class Scale:
    """Counts over all pools, which are as large as each other."""

    pods: int
    vpods: int


FULL: Final = Scale(320, 640)
SHORT: Final = Scale(64, 64)


@dataclass(frozen=True)
class Case:
    """So many pools, led by so many replicas."""

    pools: int
    replicas: int


CASES: Final = (Case(1, 1), Case(8, 1), Case(8, 2), Case(8, 4))


@dataclass
class Placed:
    """Which vpods have all that they want now."""

    wants: int = VREPLICAS[0]
    done: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, obj: Obj) -> None:
        """Note a version of a vpod."""
        vpod = vpod_from(obj)
        if vpod.vreplicas == self.wants and is_placed(vpod):
            self.done.add(vpod.name)
            self.changed.set()

    async def all_of(self, count: int) -> None:
        """Return when so many are. Raises TimeoutError."""
        async with asyncio.timeout(PLACED_TIMEOUT_S):
            while len(self.done) < count:
                self.changed.clear()
                await self.changed.wait()


class Installation:
    """An embedded cluster with pools, and the replicas of the service on it."""

    def __init__(self, backend: EmbeddedBackend, directory: Path) -> None:
        self.backend = backend
        self.replicas: list[tuple[Process, Replica]] = []
        self.namespace = ""
        self.pools: list[str] = []
        self._directory = directory

    async def start(self, case: Case, scale: Scale) -> None:
        """Everything, with all pods bound and every replica leading its share."""
        ports = [free_port() for _ in range(case.replicas)]
        await self.backend.start_scheduler(configuration(f"http://127.0.0.1:{ports[0]}"))
        hooks = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        await self.backend.apply([MANIFESTS / "base"], without("Deployment", *hooks))
        for index in range(1, BUCKETS):
            name = Bucket(index, BUCKETS).lease_name(LEASE_NAME)
            await self.backend.api.create(LEASES, SYSTEM_NAMESPACE, {"metadata": {"name": name}})
        await self.backend.add_nodes(6, cpu=64)
        self.namespace = await self.backend.namespace("adapters")
        self.pools = _pools_of(self.namespace, case.pools)
        for pool in self.pools:
            await self._pool(pool, scale.pods // case.pools)
        for port in ports:
            await self._replica(port)
        await eventually(
            lambda: self._are_bound(scale.pods), PLACED_TIMEOUT_S, "all pods run", interval_s=0.5
        )
        await eventually(self._is_shared, SHARED_TIMEOUT_S, "the pools are shared", interval_s=0.5)

    async def _pool(self, name: str, pods: int) -> None:
        """As the webhook would have it, which does not run."""
        await self.backend.apply([adapter_pool(self.namespace, name, minPods=pods, maxPods=pods)])
        workload = stateful_set(self.namespace, name, pods, pool=name, cpu="10m")
        template = workload["spec"]["template"]
        template["spec"]["schedulerName"] = SCHEDULER_NAME
        template["metadata"]["annotations"] = {SLOTS_ANNOTATION: str(SLOTS_PER_POD)}
        await self.backend.api.create(STATEFULSETS, self.namespace, workload)

    async def _replica(self, port: int) -> None:
        (config,) = load(MANIFESTS / "base" / "service-config.yaml")
        config["server"]["port"] = port
        config["clientConnection"]["kubeconfig"] = str(
            await self.backend.token_for(SERVICE_ACCOUNT)
        )
        config["leaderElection"]["buckets"] = BUCKETS
        file = write_json(self._directory / f"service-{port}.json", config)
        process = self.backend.processes.start(
            "service", [VENV_BIN / "vreplica", "serve", "--config", file]
        )
        url = f"http://127.0.0.1:{port}"
        await process.ready(Probe(f"{url}/readyz"), PLACED_TIMEOUT_S)
        self.replicas.append((process, Replica(file, url)))

    async def _are_bound(self, count: int) -> bool:
        page = await self.backend.api.list_page(
            PODS, ListOptions(namespace=self.namespace), limit=0
        )
        running = sum(pod["status"].get("phase") == "Running" for pod in page.items)
        if running != count:
            raise NotYet(f"{running} of {count} run")
        return True

    async def _is_shared(self) -> bool:
        led = [
            sum(lease["leading"] for lease in (await replica.state())["leases"])
            for _, replica in self.replicas
        ]
        if sum(led) != BUCKETS or max(led) - min(led) > 1:
            raise NotYet(f"led: {led}")
        return True

    async def idle(self) -> list[float]:
        """What each replica, and last the cluster, spends in a second without a load, in
        seconds.
        """
        before = self._spent()
        await asyncio.sleep(IDLE_S)
        return [(b - a) / IDLE_S for a, b in zip(before, self._spent(), strict=True)]

    async def load(self, vpods: int) -> tuple[list[float], float]:
        """Vpods come, and change: what each replica, and last the cluster, spends on it, in
        seconds; and how long it takes.
        """
        loop = asyncio.get_running_loop()
        tenant = await self.backend.namespace("tenant")
        names = [f"source-{number}" for number in range(vpods)]
        placed = Placed()
        before, began = self._spent(), loop.time()
        async with followed(self.backend.api, VPODS, tenant, placed.see):
            objects = [self._vpod(tenant, name, number) for number, name in enumerate(names)]
            await all_of(lambda obj: self.backend.api.create(VPODS, tenant, obj), objects)
            await placed.all_of(vpods)
            for placed.wants in VREPLICAS[1:]:
                placed.done.clear()
                patch: Obj = {"spec": {"vreplicas": placed.wants}}
                await all_of(
                    lambda obj, patch=patch: self.backend.api.patch(  # type: ignore[misc]
                        VPODS, tenant, obj["metadata"]["name"], patch, patch_type=PatchType.MERGE
                    ),
                    objects,
                )
                await placed.all_of(vpods)
        return [b - a for a, b in zip(before, self._spent(), strict=True)], loop.time() - began

    def _spent(self) -> list[float]:
        assert self.backend.cluster is not None
        return [
            _spent_by(process) for process in (*(p for p, _ in self.replicas), self.backend.cluster)
        ]

    def _vpod(self, tenant: str, name: str, number: int) -> Obj:
        pool = {"namespace": self.namespace, "name": self.pools[number % len(self.pools)]}
        return {
            "apiVersion": "vreplica.dev/v1alpha1",
            "kind": "VPod",
            "metadata": {"name": name, "namespace": tenant},
            "spec": {"poolRef": pool, "vreplicas": VREPLICAS[0]},
        }


def _spent_by(process: Process) -> float:
    """Raises Skipped where the system does not tell."""
    seconds = cpu_seconds(process.pid)
    if seconds is None:
        raise Skipped("this system does not tell a process's processor time in /proc")
    return seconds


def _pools_of(namespace: str, count: int) -> list[str]:
    """Names of pools in as many buckets."""
    names: dict[int, str] = {}
    number = 0
    while len(names) < count:
        names.setdefault(bucket_of(f"{namespace}/pool-{number}", BUCKETS), f"pool-{number}")
        number += 1
    return list(names.values())


@contextlib.asynccontextmanager
async def _installed(case: Case, scale: Scale) -> AsyncIterator[Installation]:
    with tempfile.TemporaryDirectory(
        prefix="vreplica-bench-", ignore_cleanup_errors=True
    ) as directory:
        async with EmbeddedBackend(Path(directory)) as backend:
            installation = Installation(backend, Path(directory))
            try:
                await installation.start(case, scale)
                yield installation
            except Exception as error:
                error.add_note(backend.log_tails())
                raise


def bench(options: Options) -> Iterator[Result]:
    """A result for each case."""
    return stream(_cases(SHORT if options.short else FULL))


async def _cases(scale: Scale) -> AsyncGenerator[Result, None]:
    peers: dict[int, float] = {}
    for case in CASES:
        async with _installed(case, scale) as installation:
            idle = await installation.idle()
            total, took_s = await installation.load(scale.vpods)
        *spent, cluster = [
            all_of_it - each * took_s for all_of_it, each in zip(total, idle, strict=True)
        ]
        decided = scale.vpods * len(VREPLICAS)
        busiest = max(spent)
        peers.setdefault(case.pools, busiest)
        figures: dict[str, Any] = {
            "busiestMicrosecondsPerVpod": 1e6 * busiest / decided,
            "allMicrosecondsPerVpod": 1e6 * sum(spent) / decided,
            "clusterMicrosecondsPerVpod": 1e6 * cluster / decided,
            "idleMillicores": 1000 * max(idle[:-1]),
            "busiestToOneReplicaRatio": busiest / peers[case.pools],
            "toOnePoolRatio": busiest / peers[1] if case.replicas == 1 else None,
        }
        yield Result(
            "replicas",
            {
                "pools": case.pools,
                "replicas": case.replicas,
                "pods": scale.pods,
                "vpods": scale.vpods,
            },
            figures,
        )
