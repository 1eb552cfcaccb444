"""``end-to-end``: vpods placed, pods come back and a leader dies, on a real control plane with the
service as shipped.

Theory of operation. Each story has its yardstick from the same run:

    placing      from the first vpod created to the last status | status patches alone, as large,
                 committed                                      | as many at once
    backlog      vpods that are there when a leader comes: from | the same
                 the first status committed to the last         |
    failover     from SIGKILL to the leader to the first        | the Lease, which nobody can take
                 placement                                      | before it ends
    zone return  from deleting all pods of a zone to all of     | the pods that were bound when the
                 them bound again, with what they held          | pool was new

Placing has the vpods' creation in it, which is a write each, on the same two cores; backlog has
none. ``patches`` are the service's own writes meanwhile, of ledgers and statuses, by its metrics.
Patches are measured before the service starts and after it has gone, by the same client with as
many requests at once as the service has. Everything runs here at once: kubelets, controllers and
kube-scheduler share the machine with what is measured.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from extender.kube.api import PODS, VPODS, Obj, PatchType
from extender.model.decode import pod_from, vpod_from
from extender.model.ledger import Ledger
from extender.model.names import API_VERSION
from extender.service.placing.committer import WRITES_IN_FLIGHT_MAX
from tests.bench.options import Options
from tests.bench.real_cluster import (
    FILLED_TIMEOUT_S,
    KUBELETS,
    Cluster,
    all_of,
    followed,
    running,
    stream,
)
from tests.bench.result import Result
from tests.bench.throughput import configuration
from tests.e2e.processes import Process
from tests.e2e.replica import Replica
from tests.e2e.scenario import POOL, is_placed
from tests.e2e.waiting import NotYet, eventually

VREPLICAS: Final = 8
PLACED_TIMEOUT_S: Final = 240.0
LEASE_S: Final = 15.0
"""As shipped."""
ZONE: Final = 0
PATCHES: Final = re.compile(
    r'^vreplica_scheduler_rest_client_requests_total\{[^}]*method="PATCH"[^}]*\} (\S+)$',
    re.MULTILINE,
)


@dataclass(frozen=True)
class Scale:
    """Counts."""

    nodes: int
    pods: int
    vpods: int


FULL: Final = Scale(1000, 1000, 2000)
SHORT: Final = Scale(60, 60, 120)


@dataclass
class Statuses:
    """When each vpod was first seen with all its vreplicas in its status, in seconds of the
    loop.
    """

    at: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, obj: Obj) -> None:
        """Note a version of a vpod."""
        vpod = vpod_from(obj)
        if vpod.vreplicas and is_placed(vpod):
            self.at.setdefault(vpod.name, asyncio.get_running_loop().time())
            self.changed.set()

    async def reached(self, count: int) -> float:
        """When the last of ``count`` vpods was placed. Raises TimeoutError."""
        async with asyncio.timeout(PLACED_TIMEOUT_S):
            while len(self.at) < count:
                self.changed.clear()
                await self.changed.wait()
        return max(self.at.values())


@dataclass(frozen=True)
class Placed:
    """``patches``: what the service wrote meanwhile (count); ``creating_s``: None where the vpods
    were there before.
    """

    seconds: float
    patches: int
    creating_s: float | None


def bench(options: Options) -> Iterator[Result]:
    """A result for each story."""
    return stream(_stories(SHORT if options.short else FULL))


async def _stories(scale: Scale) -> AsyncGenerator[Result, None]:
    async with running() as cluster:
        await cluster.fill(scale.nodes)
        raw = [await _raw_patches(cluster, scale.vpods)]
        await cluster.new_lease()
        first, url = await cluster.service()
        await Replica(Path(), url).leads()
        scheduler = await cluster.control_plane.start_scheduler(configuration(url))
        started = time.monotonic()
        adapters = await cluster.pool(scale.pods)
        await cluster.pods_are(adapters, scale.pods, running=True)
        new_s = time.monotonic() - started
        tenant = await cluster.namespace("tenant")
        placing = await _placed(cluster, url, adapters, tenant, scale.vpods)
        await cluster.clear(VPODS, tenant)
        await _emptied(cluster, adapters)
        first, backlog = await _backlog(cluster, first, url, adapters, scale.vpods)
        # kwok's kubelets delete pods by name alone, and go on with that once those have new ones.
        with cluster.halted(KUBELETS):
            zone = await _zone_returns(cluster, adapters, scale.pods)
            # Only pods that hold nothing have room, at first: who takes over leaves them alone for
            # as long as a scale-down may live.
            second, on_empty_s = await _failover(cluster, first, adapters, tenant)
            _, failover_s = await _failover(cluster, second, adapters, tenant)
        await scheduler.kill()
        cluster.processes.stop_all(timeout_s=0.0)
        raw.append(await _raw_patches(cluster, scale.vpods))
    mean = sum(raw) / len(raw)
    size = {"nodes": scale.nodes, "pods": scale.pods, "vpods": scale.vpods}
    for story, placed in (("placing", placing), ("backlog", backlog)):
        yield Result(
            "end-to-end",
            {"story": story, **size},
            {
                "seconds": placed.seconds,
                "creatingSeconds": placed.creating_s,
                "vpodsPerSecond": scale.vpods / placed.seconds,
                "patches": placed.patches,
                "rawPatchesPerSecond": mean,
                "toRawRatio": scale.vpods / placed.seconds / mean,
                "patchesToRawRatio": placed.patches / placed.seconds / mean,
            },
        )
    returned, zone_s = zone
    yield Result(
        "end-to-end",
        {"story": "zone return", **size},
        {
            "seconds": zone_s,
            "podsPerSecond": returned / zone_s,
            "newPodsPerSecond": scale.pods / new_s,
            "toNewRatio": (returned / zone_s) / (scale.pods / new_s),
        },
    )
    for story, seconds in (
        ("failover, room on empty pods only", on_empty_s),
        ("failover", failover_s),
    ):
        yield Result(
            "end-to-end",
            {"story": story, **size},
            {"seconds": seconds, "leaseSeconds": LEASE_S, "toLeaseRatio": seconds / LEASE_S},
        )


async def _placed(cluster: Cluster, url: str, adapters: str, tenant: str, count: int) -> Placed:
    """From before the first is created."""
    loop = asyncio.get_running_loop()
    statuses, before = Statuses(), await _patches(url)
    objects = [vpod(adapters, tenant, f"source-{number}") for number in range(count)]
    async with followed(cluster.api, VPODS, tenant, statuses.see):
        started = loop.time()
        create_s = await all_of(lambda obj: cluster.api.create(VPODS, tenant, obj), objects)
        seconds = await statuses.reached(count) - started
    return Placed(seconds, await _patches(url) - before, create_s)


async def _backlog(
    cluster: Cluster, leader: Process, url: str, adapters: str, count: int
) -> tuple[Process, Placed]:
    """They are created while nobody leads; the new leader, and what it did from the first status to
    the last.
    """
    statuses = Statuses()
    tenant = await cluster.namespace("tenant")
    objects = [vpod(adapters, tenant, f"backlog-{number}") for number in range(count)]
    async with followed(cluster.api, VPODS, tenant, statuses.see):
        await leader.kill()
        await all_of(lambda obj: cluster.api.create(VPODS, tenant, obj), objects)
        await cluster.new_lease()
        # Where kube-scheduler knows the one before.
        leader, url = await cluster.service(port=urlsplit(url).port)
        last = await statuses.reached(count)
    return leader, Placed(last - min(statuses.at.values()), await _patches(url), None)


async def _emptied(cluster: Cluster, adapters: str) -> None:
    """No ledger holds anything any more."""

    async def look() -> bool:
        left = sum(len(ledger) for ledger in _ledgers(await cluster.pods(adapters)).values())
        if left:
            raise NotYet(f"{left} shares are left")
        return True

    await eventually(look, FILLED_TIMEOUT_S, "all ledgers are empty", interval_s=0.5)


async def _patches(url: str) -> int:
    """PATCH requests of the replica at ``url`` so far."""
    _, text = await Replica(Path(), url).get("/metrics")
    return round(sum(float(count) for count in PATCHES.findall(text)))


async def _zone_returns(cluster: Cluster, adapters: str, count: int) -> tuple[int, float]:
    """How many pods came back, and how long it took. Raises AssertionError where one holds
    something else than before.
    """
    before = await cluster.pods_are(adapters, count, running=True)
    zones = {node["metadata"]["name"]: node for node in await cluster.nodes()}
    gone = [pod for pod in before if _zone(zones[pod["spec"]["nodeName"]]) == f"zone-{ZONE}"]
    uids = {pod["metadata"]["uid"] for pod in gone}
    started = time.monotonic()
    await all_of(
        lambda pod: cluster.api.delete(PODS, adapters, pod["metadata"]["name"], grace_period_s=0),
        gone,
    )

    async def back() -> list[Obj]:
        pods = await cluster.pods(adapters)
        new = [
            pod
            for pod in pods
            if pod["metadata"]["uid"] not in uids and pod["spec"].get("nodeName")
        ]
        if len(new) != count:
            raise NotYet(f"{len(new)} of {count} are bound")
        return new

    after = await eventually(back, FILLED_TIMEOUT_S, "the zone's pods are back", interval_s=0.25)
    took_s = time.monotonic() - started
    assert _ledgers(after) == _ledgers(before), "a pod came back with something else than it held"
    return len(gone), took_s


async def _failover(
    cluster: Cluster, leader: Process, adapters: str, tenant: str
) -> tuple[Process, float]:
    """The next leader, and seconds from the end of the one before to the first placement by it."""
    follower, _ = await cluster.service()
    loop = asyncio.get_running_loop()
    statuses = Statuses()
    last = f"after-{leader.pid}"
    async with followed(cluster.api, VPODS, tenant, statuses.see):
        placed = len(statuses.at)
        started = loop.time()
        await leader.kill()
        await cluster.api.create(VPODS, tenant, vpod(adapters, tenant, last))
        await statuses.reached(placed + 1)
        return follower, statuses.at[last] - started


async def _raw_patches(cluster: Cluster, count: int) -> float:
    """Status patches a second, on vpods that nobody else cares about."""
    tenant = await cluster.namespace("raw")
    stored = [vpod("nowhere", tenant, f"raw-{number}") for number in range(count)]
    await all_of(lambda obj: cluster.api.create(VPODS, tenant, obj), stored)
    took_s = await all_of(
        lambda obj: cluster.api.patch(
            VPODS,
            tenant,
            obj["metadata"]["name"],
            status_patch(),
            patch_type=PatchType.MERGE,
            subresource="status",
        ),
        stored,
        WRITES_IN_FLIGHT_MAX,
    )
    await cluster.clear(VPODS, tenant)
    return count / took_s


def status_patch() -> Obj:
    """As large as what the service writes when a vpod is placed."""
    placed = {"type": "Scheduled", "status": "True", "reason": "AllPlaced", "message": ""}
    since = {"observedGeneration": 1, "lastTransitionTime": "2026-11-20T12:06:12Z"}
    placements = [{"podName": f"{POOL}-{number}", "vreplicas": 1} for number in range(VREPLICAS)]
    return {
        "status": {
            "observedGeneration": 1,
            "placements": placements,
            "scheduledVReplicas": VREPLICAS,
            "conditions": [placed | since],
        }
    }


def vpod(adapters: str, tenant: str, name: str) -> Obj:
    """A VPod that wants ``VREPLICAS`` of the pool in ``adapters``."""
    return {
        "apiVersion": API_VERSION,
        "kind": "VPod",
        "metadata": {"name": name, "namespace": tenant},
        "spec": {"poolRef": {"namespace": adapters, "name": POOL}, "vreplicas": VREPLICAS},
    }


def _zone(node: Obj) -> str:
    zone: str = node["metadata"]["labels"]["topology.kubernetes.io/zone"]
    return zone


def _ledgers(pods: list[Obj]) -> dict[str, Ledger]:
    return {pod.name: dict(pod.ledger) for pod in map(pod_from, pods)}
