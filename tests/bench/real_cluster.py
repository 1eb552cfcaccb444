"""A real control plane to measure on, with many nodes, and an installation of the service on it.

Theory of operation. The control plane of the end-to-end suite, without its audit log and with
leases that last for an hour, for a thousand nodes' heartbeats are load that is not measured.
``halted`` lets whatever is not measured stand still: in a cluster kubelets and controllers have
machines of their own, and here they would take the core that is measured on. Manifests are the
shipped ones; what the webhook stamps is in the pod template, so that creating pods costs no call of
it.
"""

import asyncio
import contextlib
import random
import signal
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar, cast

import uvloop

from extender.kube.api import (
    ADAPTERPOOLS,
    LEASES,
    NODES,
    PODS,
    STATEFULSETS,
    Api,
    ListOptions,
    NotFound,
    Obj,
    Resource,
    WatchEvent,
)
from extender.kube.reflector import Reflector
from extender.model.names import LEASE_NAME, SCHEDULER_NAME, SLOTS_ANNOTATION
from tests.bench.registry import Skipped
from tests.e2e.backend import condition
from tests.e2e.build import BuildFailed, ControlPlaneUnavailable, ready_binaries
from tests.e2e.controlplane import ControlPlane, Settings
from tests.e2e.objects import MANIFESTS, load, node, stateful_set, without, write_json
from tests.e2e.processes import VENV_BIN, Probe, Process, free_port
from tests.e2e.real import RealBackend
from tests.e2e.scenario import POOL, SERVICE_ACCOUNT, SLOTS_PER_POD, SYSTEM_NAMESPACE, adapter_pool
from tests.e2e.waiting import NotYet, eventually
from tests.kube.fakes import WholeList

LEASE_S: Final = 3600
"""Of nodes: none is missed as long as a bench lasts."""
IN_FLIGHT_MAX: Final = 32
"""Requests of ours at once while a cluster is filled."""
FILLED_TIMEOUT_S: Final = 240.0
KUBELETS: Final = "kwok"
CONTROLLERS: Final = "kube-controller-manager"

T = TypeVar("T")
_END: Final = object()


class Cluster(RealBackend):
    """A control plane that is thrown away at the end, so that nothing is cleaned up."""

    async def __aexit__(self, *_: object) -> None:
        self.processes.stop_all(timeout_s=0.0)
        await self.raw.__aexit__()
        await self.api.close()  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def halted(self, *names: str) -> Iterator[None]:
        """Programs of the control plane (``KUBELETS``, ``CONTROLLERS``) stand still meanwhile."""
        halted = [
            process for process in self.control_plane.processes.running if process.name in names
        ]
        for process in halted:
            process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in halted:
                process.resume()

    async def fill(self, nodes: int) -> None:
        """CRDs, RBAC and configuration as shipped, and ``nodes`` Ready nodes in three zones."""
        admission = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        hooks = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        await self.apply([MANIFESTS / "base"], without("Deployment", *admission, *hooks))
        objects = [node(number, zone=number % 3, cpu=64, slots=None) for number in range(nodes)]
        await all_of(lambda obj: self.api.create(NODES, "", obj), objects)

        async def look() -> bool:
            made = await self.nodes()
            ready = [
                obj
                for obj in made
                if condition(obj, "Ready") == "True" and not obj["spec"].get("taints")
            ]
            if len(ready) < nodes:
                raise NotYet(f"{len(ready)} of {len(made)} are Ready")
            return True

        await eventually(look, FILLED_TIMEOUT_S, f"{nodes} nodes are Ready", interval_s=0.5)

    async def pool(
        self, pods: int, *, stamped: bool = True, scheduler: str = SCHEDULER_NAME
    ) -> str:
        """A pool and its StatefulSet with ``pods`` pods that wait for a scheduler; the namespace.

        Not ``stamped``: pods of no pool, which name our scheduler all the same.
        """
        namespace = await self.namespace("adapters")
        workload = stateful_set(namespace, POOL, pods, pool=POOL if stamped else "", cpu="10m")
        template = workload["spec"]["template"]
        template["spec"]["schedulerName"] = scheduler
        if stamped:
            await self.apply([adapter_pool(namespace, minPods=pods, maxPods=pods)])
            template["metadata"]["annotations"] = {SLOTS_ANNOTATION: str(SLOTS_PER_POD)}
        await self.api.create(STATEFULSETS, namespace, workload)
        await self.pods_are(namespace, pods)
        return namespace

    async def pods_are(self, namespace: str, count: int, *, running: bool = False) -> list[Obj]:
        """The pods of a namespace, once there are ``count`` (which are ``running``: bound and
        Running).
        """

        async def look() -> bool:
            pods = await self.pods(namespace)
            done = [pod for pod in pods if not running or pod["status"].get("phase") == "Running"]
            if len(pods) != count or len(done) != count:
                raise NotYet(f"{len(pods)} pods, {len(done)} done")
            return True

        await eventually(look, FILLED_TIMEOUT_S, f"{count} pods", interval_s=0.5)
        return await self.pods(namespace)

    async def pods(self, namespace: str) -> list[Obj]:
        """All pods of a namespace."""
        return list(
            (await self.api.list_page(PODS, ListOptions(namespace=namespace), limit=0)).items
        )

    async def nodes(self) -> list[Obj]:
        """All nodes."""
        return list((await self.api.list_page(NODES, limit=0)).items)

    async def drop(self, namespace: str) -> None:
        """Nothing is left of a pool."""
        for resource in (ADAPTERPOOLS, STATEFULSETS):
            with contextlib.suppress(NotFound):
                await self.api.delete(resource, namespace, POOL)
        await self.clear(PODS, namespace)
        await self.pods_are(namespace, 0)

    async def clear(self, resource: Resource, namespace: str) -> None:
        """Delete all of a kind, one by one: a collection of thousands takes longer than a request
        may.
        """

        async def delete(obj: Obj) -> None:
            with contextlib.suppress(NotFound):
                await self.api.delete(
                    resource, namespace, obj["metadata"]["name"], grace_period_s=0
                )

        page = await self.api.list_page(resource, ListOptions(namespace=namespace), limit=0)
        await all_of(delete, page.items)

    async def new_lease(self) -> None:
        """As if nobody had ever led: the next service has no predecessor whose last writes it must
        wait for.
        """
        with contextlib.suppress(NotFound):
            await self.api.delete(LEASES, SYSTEM_NAMESPACE, LEASE_NAME)
        await self.apply([MANIFESTS / "base" / "lease.yaml"])

    async def service(
        self, narrow_to: int = 0, *, port: int | None = None, **election: float
    ) -> tuple[Process, str]:
        """One replica as shipped, under its ServiceAccount, ready; its URL."""
        process, url = await self.launch_service(narrow_to, port=port, **election)
        await process.ready(Probe(f"{url}/readyz"), FILLED_TIMEOUT_S)
        return process, url

    async def launch_service(
        self, narrow_to: int = 0, *, port: int | None = None, **election: float
    ) -> tuple[Process, str]:
        """As ``service``, not waited for. ``narrow_to``: nodes that filter passes; ``port``: that
        of one that has ended;

        ``election``: of leaderElection.
        """
        port = port or free_port()
        (config,) = load(MANIFESTS / "base" / "service-config.yaml")
        config["server"]["port"] = port
        config["clientConnection"]["kubeconfig"] = str(await self.token_for(SERVICE_ACCOUNT))
        config["leaderElection"] |= election
        config["filter"] = {"narrowTo": narrow_to}
        file = write_json(self.control_plane.work_dir / f"service-{port}.json", config)
        process = self.processes.start(
            "service", [VENV_BIN / "vreplica", "serve", "--config", file]
        )
        return process, f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    """A control plane without nodes. Raises Skipped where there are no programs to run."""
    try:
        binaries = ready_binaries()
    except (ControlPlaneUnavailable, BuildFailed) as reason:
        raise Skipped(str(reason)) from reason
    with tempfile.TemporaryDirectory(
        prefix="vreplica-bench-", ignore_cleanup_errors=True
    ) as directory:
        settings = Settings(node_lease_s=LEASE_S, node_grace_s=2 * LEASE_S, audit=False)
        control_plane = ControlPlane(binaries, Path(directory), settings)
        await control_plane.start()
        try:
            async with Cluster(control_plane, Path(directory)) as cluster:
                yield cluster
        except Exception as error:
            error.add_note(control_plane.processes.log_tails())
            raise
        finally:
            control_plane.stop()


async def all_of(
    act: Callable[[Obj], Awaitable[object]],
    objects: Iterable[Obj],
    in_flight_max: int = IN_FLIGHT_MAX,
) -> float:
    """Do it to all, so many at once; how long it took, in seconds."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    waiting = iter(objects)

    async def work() -> None:
        for obj in waiting:
            await act(obj)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight_max):
            tasks.create_task(work())
    return loop.time() - started


class _Told:
    """A reflector's sink that hands on each version of each object."""

    def __init__(self, see: Callable[[Obj], None]) -> None:
        self._see = see

    def listing(self) -> WholeList:
        return WholeList(self._replace)

    def _replace(self, objects: list[Obj], _version: str) -> None:
        for obj in objects:
            self._see(obj)

    def apply(self, event: WatchEvent) -> None:
        self._see(event.object)


@contextlib.asynccontextmanager
async def followed(
    api: Api, resource: Resource, namespace: str, see: Callable[[Obj], None]
) -> AsyncIterator[None]:
    """``see`` gets each version of a namespace's objects, from those that there are when this is
    entered.

    By a reflector: an API server that is busy ends the watches of who reads slowly, and those are
    begun again.
    """
    options = ListOptions(namespace=namespace)
    reflector = Reflector(api, resource, _Told(see), rng=random.Random(1), options=options)
    task = asyncio.create_task(reflector.run(), name=f"follow {resource.plural}")
    try:
        await reflector.synced.wait()
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def stream(results: AsyncGenerator[T, None]) -> Iterator[T]:
    """What an asynchronous generator yields, each as soon as it is there."""

    async def following() -> object:
        return await anext(results, _END)

    # The service runs on uvloop, and what it is compared with shall not be slower for its loop.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            while (result := runner.run(following())) is not _END:
                yield cast("T", result)
        finally:
            runner.run(results.aclose())
