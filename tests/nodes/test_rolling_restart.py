"""How many requests succeed while all adapters of a pool are restarted, 10 % at a time: 600 shares
on 20 adapters, as processes in real containers. ``make rolling-restart`` has the same scene, larger
and in virtual time.

A router learns from the service's replicas where vpods are served (``vreplica_adapter.Resolver``),
and sends its requests there. A request succeeds if the adapter serves the vpod at that moment, by
the adapter's own word.
"""

import asyncio
import random
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from vreplica_adapter import Resolver, State, Unresolved

from extender.kube.api import Obj
from tests.e2e.waiting import NotYet, eventually
from tests.nodes.cluster import NAMESPACE, ROUTER, TENANT, Cluster
from tests.nodes.measurements import RESTARTS_FILE
from tests.nodes.workers import URLS, Served, Workers, pool_objects, program_objects, vpod_of

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(900),
    pytest.mark.long,
]

PODS: Final = 20
VPODS: Final = 60
VREPLICAS: Final = 10
SLOTS: Final = 40
AT_ONCE: Final = PODS // 10
SERVES_ON_S: Final = 0.5
"""A worker that is told to drain a share serves it for so long, because routers do not know."""
LOOK_S: Final = 0.05
REQUESTS: Final = 10
"""Requests of each look, to vpods drawn at random."""
SEED: Final = 8_2


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a vpod, at a time (epoch seconds), to a pod; "" if the router knows none."""

    at: float
    vpod: str
    pod: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """What became of the requests of one restart."""

    took_s: float
    requests: int
    succeeded: int
    worst_second: float

    @property
    def success(self) -> float:
        """The part of the requests that succeeded."""
        return self.succeeded / self.requests

    def row(self, how: str) -> str:
        """Of the table."""
        return (
            f"| {how} | {self.success:.4%} ({self.succeeded:,} of {self.requests:,}) | "
            f"{self.worst_second:.1%} | {self.took_s:.0f} s |\n"
        )


def judged(requests: Sequence[Request], changes: Iterable[Served], took_s: float) -> Restarted:
    """Compare what was asked with what was served. ``changes`` are in order."""
    served: dict[tuple[str, str], tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
    for change in changes:
        times, counts = served[change.pod, change.vpod]
        times.append(change.at)
        counts.append(change.vreplicas)
    asked, answered = Counter[int](), Counter[int]()
    for request in requests:
        times, counts = served[request.pod, request.vpod]
        index = bisect_right(times, request.at) - 1
        asked[int(request.at)] += 1
        answered[int(request.at)] += index >= 0 and counts[index] > 0
    worst = min(answered[second] / count for second, count in asked.items())
    return Restarted(took_s, len(requests), answered.total(), worst)


class Router:
    """Sends requests to where the service's replicas say that vpods are served."""

    def __init__(self, resolver: Resolver, vpods: Sequence[str]) -> None:
        self._resolver = resolver
        self._vpods = vpods
        self._random = random.Random(SEED)
        self.requests: list[Request] = []

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            for vpod in self._random.choices(self._vpods, k=REQUESTS):
                self.requests.append(Request(time.time(), vpod, await self._pod_of(vpod)))
            await asyncio.sleep(LOOK_S)

    async def _pod_of(self, vpod: str) -> str:
        try:
            pods = list((await self._resolver.resolve(vpod)).pods)
        except Unresolved:
            return ""
        if not pods:
            return ""
        pods = [one for one in pods if one.state is State.SERVE] or pods
        (chosen,) = self._random.choices(pods, weights=[one.vreplicas for one in pods])
        return chosen.pod.partition("/")[2]

    async def is_ready(self) -> bool:
        """Whether it knows of all vpods; NotYet otherwise."""
        for vpod in self._vpods:
            try:
                if not (await self._resolver.resolve(vpod)).pods:
                    raise NotYet(f"{vpod} has no pods")
            except Unresolved as error:
                raise NotYet(str(error)) from error
        return True


@asynccontextmanager
async def routed(cluster: Cluster, vpods: Sequence[str], folder: Path) -> AsyncIterator[Router]:
    """A router that is at work."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ROUTER}/token"
    answer = await cluster.raw.post(path, {"spec": {"audiences": ["vreplica.dev"]}})
    assert answer.status == 201, answer.message
    token, authority = folder / "token", folder / "ca.crt"
    token.write_text(answer.body["status"]["token"])
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/vreplica-adapters-ca"
    authority.write_text((await cluster.get(path))["data"]["ca.crt"])
    async with Resolver(URLS, token_file=token, ca_file=authority) as resolver:
        router = Router(resolver, vpods)
        await eventually(router.is_ready, 60.0, "the router knows all vpods")
        task = asyncio.create_task(router.run())
        try:
            yield router
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def the_pool(name: str, said: Path, **spec: object) -> tuple[Obj, Obj]:
    """The AdapterPool and its StatefulSet, whose pods are only replaced if they are deleted."""
    limits = {"minPods": PODS, "maxPods": PODS, "slotsPerPod": SLOTS, "profile": "spread"}
    moves = {"rebalance": {"movesPerPeriod": 100, "cooldownSeconds": 0}}
    timing = {"rescheduleAfterSeconds": None, "scaleDownPeriodSeconds": 60}
    pool, stateful_set = pool_objects(name, PODS, {**limits, **moves, **timing, **spec}, said)
    stateful_set["spec"]["updateStrategy"] = {"type": "OnDelete"}
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    container["env"].append({"name": "SERVES_ON_S", "value": str(SERVES_ON_S)})
    return pool, stateful_set


async def restarted(cluster: Cluster, how: str, folder: Path, **spec: object) -> Restarted:
    """Restart all workers of a new pool in one of the ways, while a router sends requests."""
    name = f"restart-{how.replace(' ', '-')}"
    workers = Workers(cluster, name)
    await cluster.apply(*the_pool(name, workers.said, **spec))
    await eventually(partial(workers_ready, workers), 240.0, f"{PODS} workers are Ready")
    await asyncio.gather(
        *(cluster.create(vpod_of(name, f"{name}-{number}", VREPLICAS)) for number in range(VPODS))
    )
    settled = partial(workers.settled, VPODS * VREPLICAS)
    await eventually(settled, 120.0, "all are served")
    vpods = [f"{TENANT}/{name}-{number}" for number in range(VPODS)]
    async with routed(cluster, vpods, folder) as router:
        began = time.time()
        await WAYS[how](cluster, workers)
        await eventually(settled, 120.0, "all are served again")
        took_s = time.time() - began
    result = judged(router.requests, workers.changes(), took_s)
    await cluster.kubectl("delete", "vpods", "--all", "-n", TENANT)
    await cluster.kubectl("delete", "adapterpool,statefulset", name, "-n", NAMESPACE)
    return result


async def workers_ready(workers: Workers) -> bool:
    if (ready := await workers.ready()) != PODS:
        raise NotYet(f"{ready} pods")
    return True


async def uids(workers: Workers) -> dict[str, str]:
    """Pod -> UID."""
    return {name: pod["metadata"]["uid"] for name, pod in (await workers.pods()).items()}


async def all_new(workers: Workers, former: dict[str, str], names: Iterable[str]) -> bool:
    """Whether those pods are other ones than before, and all are Ready; NotYet otherwise."""
    await workers_ready(workers)
    now = await uids(workers)
    old = [name for name in names if now[name] == former[name]]
    if old:
        raise NotYet(f"{old} are the old ones")
    return True


async def roll_out(cluster: Cluster, workers: Workers) -> None:
    """kubectl rollout restart, which the leader hands over."""
    former = await uids(workers)
    await cluster.kubectl("rollout", "restart", f"statefulset/{workers.name}", "-n", NAMESPACE)
    await eventually(partial(all_new, workers, former, former), 600.0, "all workers are new")


async def delete_at_once(cluster: Cluster, workers: Workers) -> None:
    """Delete 10 % of the pods, wait until they are back and serve, and so on."""
    for some in batches():
        await _replace(cluster, workers, some)


async def drain_and_delete(cluster: Cluster, workers: Workers) -> None:
    """The same, with pods that were emptied before."""
    for some in batches():
        names = [f"{workers.name}-{ordinal}" for ordinal in some]
        await cluster.kubectl(
            "annotate", "pods", *names, "-n", NAMESPACE, "vreplica.dev/unschedulable=true"
        )
        await eventually(partial(are_empty, workers, names), 60.0, f"{names} are empty")
        await _replace(cluster, workers, some)


def batches() -> Iterable[range]:
    """Ordinals, 10 % at a time."""
    return (range(first, first + AT_ONCE) for first in range(0, PODS, AT_ONCE))


async def _replace(cluster: Cluster, workers: Workers, ordinals: Iterable[int]) -> None:
    names = [f"{workers.name}-{ordinal}" for ordinal in ordinals]
    former = await uids(workers)
    await cluster.kubectl("delete", "pods", *names, "-n", NAMESPACE, "--wait=false")
    await eventually(partial(all_new, workers, former, names), 120.0, f"{names} are new")
    settled = partial(workers.settled, VPODS * VREPLICAS)
    await eventually(settled, 60.0, "all are served again")


async def are_empty(workers: Workers, names: Iterable[str]) -> bool:
    """Whether nothing is assigned to those pods; NotYet otherwise."""
    assigned = await workers.assigned()
    busy = [name for name in names if assigned.get(name)]
    if busy:
        raise NotYet(f"{busy} have shares")
    return True


ROLLED_OUT, DELETED, DRAINED = "rolled out", "deleted", "drained"
WAYS: Final = {ROLLED_OUT: roll_out, DELETED: delete_at_once, DRAINED: drain_and_delete}
OVERLAP: Final = {
    "handoff": {"mode": "Overlap", "maxUnavailable": {"pool": "10%"}},
    "rollout": {"strategy": "HandedOver"},
}
NOTHING: Final = {"handoff": {"mode": "None"}}
HEAD: Final = (
    "| pods are | requests that succeed | in the worst second | the restart takes |\n"
    "|---|---|---|---|\n"
)


async def test_a_rolling_restart_that_is_handed_over_loses_no_request(
    cluster: Cluster, tmp_path: Path
):
    await cluster.install()
    await cluster.apply(
        *program_objects(),
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ROUTER, "namespace": NAMESPACE},
        },
    )
    found: dict[str, Restarted] = {}
    table = HEAD
    for how, spec in ((ROLLED_OUT, OVERLAP), (DRAINED, NOTHING), (DELETED, NOTHING)):
        found[how] = await restarted(cluster, how, tmp_path, **spec)
        table += found[how].row(how)
        RESTARTS_FILE.parent.mkdir(exist_ok=True)
        RESTARTS_FILE.write_text(table)
    assert found[ROLLED_OUT].success >= 0.9999, table
    assert found[DRAINED].success < found[ROLLED_OUT].success, table
    assert found[DELETED].success < found[DRAINED].success, table
    assert found[ROLLED_OUT].took_s <= 2 * found[DELETED].took_s, table
