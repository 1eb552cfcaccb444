"""How many requests succeed while all adapters of a pool are restarted, 10 % at a time: 600 shares
on 20 adapters, as processes in real containers. ``make rolling-restart`` has the same scene, larger
and in virtual time.

A router learns from the service's replicas where vpods are served (``vreplica_adapter.Resolver``),
and sends its requests there. A request succeeds if the adapter serves the vpod at that moment, by
the adapter's own word.
"""

import asyncio
import json
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

import pytest

from extender.kube.api import Obj
from tests.e2e.waiting import NotYet, eventually
from tests.nodes.cluster import NAMESPACE, ROUTER, TENANT, Cluster
from tests.nodes.image import OURS
from tests.nodes.measurements import RESTARTS_FILE
from tests.nodes.workers import (
    URLS,
    Served,
    Workers,
    pool_objects,
    program_objects,
    program_sources,
    vpod_of,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]

PODS: Final = 20
VPODS: Final = 60
VREPLICAS: Final = 10
SLOTS: Final = 40
AT_ONCE: Final = PODS // 10
SERVES_ON_S: Final = 0.5
"""A worker that is told to drain a share serves it for so long, because routers do not know."""


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
    """A container that sends requests to where the service's replicas say that vpods are served.

    It writes what it does beside what the workers say, in the folder ``workers.said``.
    """

    def __init__(self, cluster: Cluster, workers: Workers, vpods: Sequence[str]) -> None:
        self._cluster = cluster
        self._vpods = vpods
        self._folder = workers.said / "requests"
        self._folder.mkdir()
        self._folder.chmod(0o777)

    async def __aenter__(self) -> Self:
        await self._cluster.apply(router_pod(self._folder, self._vpods))
        await eventually(self._sends, 90.0, "the router sends requests")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cluster.kubectl("delete", "pod", ROUTER, "-n", NAMESPACE)

    async def _sends(self) -> bool:
        return (self._folder / ROUTER).exists()

    def requests(self, since: float) -> list[Request]:
        """What it has sent since then (epoch seconds)."""
        lines = map(json.loads, (self._folder / ROUTER).read_text().splitlines())
        return [Request(**line) for line in lines if line["at"] >= since]


def router_pod(folder: Path, vpods: Sequence[str]) -> Obj:
    """The pod of the program ``router.py``, with a token of its ServiceAccount."""
    told = [
        {"serviceAccountToken": {"audience": "vreplica.dev", "path": "token"}},
        {"configMap": {"name": "vreplica-adapters-ca"}},
    ]
    container = {
        "name": "router",
        "image": OURS,
        "imagePullPolicy": "Never",
        "command": ["python", "/program/router.py"],
        "env": [
            {"name": "VREPLICA_URLS", "value": ",".join(URLS)},
            {"name": "VPODS", "value": ",".join(vpods)},
        ],
        "volumeMounts": [
            {"name": "vreplica", "mountPath": "/var/run/vreplica"},
            {"name": "program", "mountPath": "/program"},
            {"name": "said", "mountPath": "/said"},
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": ROUTER, "namespace": NAMESPACE},
        "spec": {
            "hostNetwork": True,
            "serviceAccountName": ROUTER,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [
                {"name": "vreplica", "projected": {"sources": told}},
                {"name": "program", "projected": {"sources": program_sources()}},
                {"name": "said", "hostPath": {"path": str(folder), "type": "Directory"}},
            ],
        },
    }


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


async def restarted(cluster: Cluster, how: str, **spec: object) -> Restarted:
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
    async with Router(cluster, workers, vpods) as router:
        began = time.time()
        await WAYS[how](cluster, workers)
        await eventually(settled, 120.0, "all are served again")
        took_s = time.time() - began
    result = judged(router.requests(began), workers.changes(), took_s)
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
    "handoff": {"mode": "Overlap", "maxUnavailable": {"pool": "10%", "perVPod": "100%"}},
    "rollout": {"strategy": "HandedOver"},
}
NOTHING: Final = {"handoff": {"mode": "None"}}
HEAD: Final = (
    "| pods are | requests that succeed | in the worst second | the restart takes |\n"
    "|---|---|---|---|\n"
)


@pytest.mark.timeout(900)
async def test_a_rolling_restart_that_is_handed_over_loses_no_request(
    cluster: Cluster,
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
        found[how] = await restarted(cluster, how, **spec)
        table += found[how].row(how)
        RESTARTS_FILE.parent.mkdir(exist_ok=True)
        RESTARTS_FILE.write_text(table)
    assert found[ROLLED_OUT].success >= 0.9999, table
    assert found[DRAINED].success < found[ROLLED_OUT].success, table
    assert found[DELETED].success < found[DRAINED].success, table
    assert found[ROLLED_OUT].took_s <= 2 * found[DELETED].took_s, table
