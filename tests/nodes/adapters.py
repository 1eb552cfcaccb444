"""An adapter pool on real nodes whose containers read their file, and what is measured of it."""

import asyncio
import contextlib
import datetime
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import aiohttp

from extender.kube.api import Obj
from extender.model.names import PLACEMENTS_ANNOTATION
from tests.e2e.waiting import NotYet, eventually
from tests.nodes.cluster import NAMESPACE, Cluster, told

POOL: Final = "dispatcher"
SLOTS: Final = 20
SAMPLE_S: Final = 0.25
KUBELET_RESYNC_S: Final = 100.0
"""Until a kubelet has certainly written a pod's file. It does so at once when an annotation
changes. But it can miss a change that comes while it writes the one before, and then writes it when
it next looks at the pod: after ``syncFrequency`` (a minute) and up to half as much again.
"""
_WORKER: Final = """trap 'exit 0' TERM
last=
while :; do
  now=$(busybox cat /assigned/placements 2>/dev/null)
  if [ "$now" != "$last" ]; then echo "$now"; last=$now; fi
  busybox sleep 0.1
done"""


def pool_objects(replicas: int, reschedule_after_s: int) -> list[Obj]:
    """The AdapterPool and its StatefulSet; the container is told by a file of the downward API."""
    labels = {"app": POOL, "vreplica.dev/pool": POOL}
    annotation = f"metadata.annotations['{PLACEMENTS_ANNOTATION}']"
    field = {"path": "placements", "fieldRef": {"fieldPath": annotation}}
    container = {
        "name": "worker",
        "image": "docker.io/local/worker:1",
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", _WORKER],
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [{"name": "assigned", "mountPath": "/assigned"}],
    }
    pod = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 2,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "assigned", "downwardAPI": {"items": [field]}}],
    }
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": POOL, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "serviceName": POOL,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": POOL}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    spec = {
        "statefulSet": POOL,
        "namespaceSelector": {},
        "slotsPerPod": SLOTS,
        "minPods": replicas,
        "maxPods": 12,
        "rescheduleAfterSeconds": reschedule_after_s,
    }
    pool = {
        "apiVersion": "vreplica.dev/v1alpha1",
        "kind": "AdapterPool",
        "metadata": {"name": POOL, "namespace": NAMESPACE},
        "spec": spec,
    }
    return [pool, stateful_set]


def vpod(name: str, vreplicas: int) -> Obj:
    """A VPod of the tenant."""
    return {
        "apiVersion": "vreplica.dev/v1alpha1",
        "kind": "VPod",
        "metadata": {"name": name, "namespace": "tenant"},
        "spec": {"poolRef": {"name": POOL, "namespace": NAMESPACE}, "vreplicas": vreplicas},
    }


@dataclass(slots=True)
class Loss:
    """vreplica-seconds without a Ready pod, summed over samples; ``longest_s``: until all are
    served again.
    """

    vreplica_seconds: float = 0.0
    longest_s: float = 0.0


class Adapters:
    """The pool of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def pods(self) -> dict[str, Obj]:
        """The adapter pods by name."""
        found = await self.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/pods")
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    async def ready(self, count: int, timeout_s: float = 90.0) -> None:
        """Returns when ``count`` pods are Ready, and no other is there."""

        async def all_ready() -> bool:
            pods = await self.pods()
            if len(pods) != count or not all(map(is_ready, pods.values())):
                raise NotYet(f"{[told(pod) for pod in pods.values()]}")
            return True

        await eventually(all_ready, timeout_s, f"{count} adapter pods are Ready")

    async def vpods(self) -> dict[str, Obj]:
        """The tenant's vpods by name."""
        found = await self.cluster.get("/apis/vreplica.dev/v1alpha1/namespaces/tenant/vpods")
        return {vpod["metadata"]["name"]: vpod for vpod in found["items"]}

    def told(self) -> dict[str, tuple[datetime.datetime, dict[str, int]]]:
        """What each pod's container has read last, and when."""
        found: dict[str, tuple[datetime.datetime, dict[str, int]]] = {}
        for number in range(12):
            pod = f"{POOL}-{number}"
            lines = sorted(
                line for node in self.cluster.nodes for line in node.log_lines(pod, "worker")
            )
            for line in reversed(lines):
                at, _, _, text = [*line.split(" ", 3), ""][:4]
                with contextlib.suppress(json.JSONDecodeError):
                    read = json.loads(text or "{}")
                    found[pod] = (datetime.datetime.fromisoformat(at[:26] + "+00:00"), read)
                    break
        return found

    async def told_all(self, wanted: int, timeout_s: float = 60.0) -> datetime.datetime:
        """Returns when the files of Ready pods are what the vpods publish, ``wanted`` vreplicas
        together; when the last was read.

        ``timeout_s`` is the service's time, until the annotations are so; the kubelet has its own.
        The containers of a lost machine can no longer be told anything: theirs do not count.
        """
        await eventually(
            lambda: self._annotated(wanted), timeout_s, f"{wanted} vreplicas are in annotations"
        )

        async def in_files() -> datetime.datetime:
            annotated = await self._annotated(wanted)
            told_now = {pod: each for pod, each in self.told().items() if pod in annotated}
            read = {pod: counts for pod, (_, counts) in told_now.items()}
            late = {pod: at for pod, at in annotated.items() if read.get(pod, {}) != at}
            if late:
                raise NotYet("; ".join(f"{pod} has {read.get(pod)}" for pod in late))
            return max(at for at, counts in told_now.values() if counts)

        return await eventually(
            in_files, KUBELET_RESYNC_S, f"{wanted} vreplicas are in the containers' files"
        )

    async def _annotated(self, wanted: int) -> dict[str, dict[str, int]]:
        """The annotations of the Ready pods, once they are what the vpods publish."""
        pods, vpods = await self.pods(), await self.vpods()
        published: dict[str, dict[str, int]] = {}
        for name, each in vpods.items():
            for placement in each.get("status", {}).get("placements", ()):
                held = published.setdefault(placement["podName"], {})
                held[f"tenant/{name}"] = placement["vreplicas"]
        annotated = {
            name: json.loads(pod["metadata"]["annotations"].get(PLACEMENTS_ANNOTATION, "{}"))
            for name, pod in pods.items()
            if is_ready(pod)
        }
        wrong = {
            pod: f"{annotated.get(pod)}, published {published.get(pod)}"
            for pod in annotated.keys() | published.keys()
            if annotated.get(pod, {}) != published.get(pod, {})
        }
        total = sum(sum(counts.values()) for counts in annotated.values())
        if wrong or total != wanted:
            raise NotYet(f"{total} are; {wrong}")
        return annotated

    async def unserved(self, dead: frozenset[str] = frozenset()) -> int:
        """Wanted vreplicas that are on no Ready pod; ``dead`` pods are known to serve nobody,
        whatever the API server still says.
        """
        pods, vpods = await self.pods(), await self.vpods()
        served = {name for name, pod in pods.items() if is_ready(pod)} - dead
        return sum(
            each["spec"]["vreplicas"]
            - sum(
                placement["vreplicas"]
                for placement in each.get("status", {}).get("placements", ())
                if placement["podName"] in served
            )
            for each in vpods.values()
        )

    async def all_served(self, timeout_s: float = 90.0) -> None:
        """Returns when every vreplica is on a Ready pod."""

        async def served() -> bool:
            if count := await self.unserved():
                raise NotYet(
                    f"{count} are not; {[told(pod) for pod in (await self.pods()).values()]}"
                )
            return True

        await eventually(served, timeout_s, "every vreplica is on a Ready pod")

    @contextlib.asynccontextmanager
    async def losses(self, dead: frozenset[str] = frozenset()) -> AsyncIterator[Loss]:
        """What is lost meanwhile. While the API server is away, the last state it told
        counts on.
        """
        loss = Loss()
        task = asyncio.create_task(self._watch(loss, dead))
        try:
            yield loss
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _watch(self, loss: Loss, dead: frozenset[str]) -> None:
        before, since, unserved = time.monotonic(), 0.0, 0
        while True:
            with contextlib.suppress(aiohttp.ClientError, AssertionError, OSError):
                unserved = await self.unserved(dead)
            now = time.monotonic()
            loss.vreplica_seconds += unserved * (now - before)
            since = since + now - before if unserved else 0.0
            loss.longest_s = max(loss.longest_s, since)
            before = now
            await asyncio.sleep(SAMPLE_S)


def is_ready(pod: Obj) -> bool:
    """Whether it is Ready and stays."""
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
