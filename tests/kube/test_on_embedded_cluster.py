"""The reflector, the elector and the recorder over the embedded cluster, which keeps the API
server's rules.
"""

import asyncio
import random

import pytest

from extender.kube.api import EVENTS, LEASES, NAMESPACES, ListOptions, Obj, PatchType, WatchEvent
from extender.kube.events import EventRecorder, ObjectReference
from extender.kube.leader import LeaderElector
from extender.kube.lease import LeaseConfig
from extender.kube.reflector import Reflector, ReflectorSettings
from extender.lab.apiserver.cluster import Cluster
from extender.model.event_reasons import EventReason
from tests.kube.fakes import WholeList, wall

pytestmark = pytest.mark.looptime


class Names:
    """A sink that keeps versions by name."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}

    def listing(self) -> WholeList:
        return WholeList(self.replace)

    def replace(self, objects: list[Obj], resource_version: str) -> None:
        self.versions = {
            obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in objects
        }

    def apply(self, event: WatchEvent) -> None:
        metadata = event.object["metadata"]
        if event.type == "DELETED":
            self.versions.pop(metadata["name"])
        else:
            self.versions[metadata["name"]] = metadata["resourceVersion"]


def cluster_of(seed: int = 1) -> Cluster:
    return Cluster(now=wall, rng=random.Random(seed))


async def truth(cluster: Cluster) -> dict[str, str]:
    page = await cluster.list_page(NAMESPACES, limit=0)
    return {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in page.items}


async def disturb(cluster: Cluster, rng: random.Random) -> None:
    """One random change, or a compaction that sends every watch and page token to 410."""
    name = f"tenant-{rng.randrange(12)}"
    if rng.random() < 0.1:
        cluster.compact()
    elif name in await truth(cluster):
        labels = {"metadata": {"labels": {"n": str(rng.randrange(1000))}}}
        await cluster.patch(NAMESPACES, "", name, labels, patch_type=PatchType.MERGE)
    else:
        await cluster.create(NAMESPACES, "", {"metadata": {"name": name}})


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_happens_the_mirror_ends_equal_to_the_cluster(seed: int):
    rng, cluster, sink = random.Random(seed), cluster_of(seed), Names()
    settings = ReflectorSettings(page_items=3, watch_timeout_s=20.0)
    reflector = Reflector(cluster, NAMESPACES, sink, rng=rng, settings=settings)
    task = asyncio.create_task(reflector.run())
    for _ in range(150):
        await disturb(cluster, rng)
        await asyncio.sleep(rng.random() * 2)
        if rng.random() < 0.02:
            reflector.request_relist()
    await asyncio.sleep(60)
    assert sink.versions == await truth(cluster)
    assert reflector.events > 0
    assert reflector.watches > 5
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_leadership_passes_on_over_the_clusters_leases():
    cluster = cluster_of()
    await cluster.create(LEASES, "default", {"metadata": {"name": "vreplica-scheduler"}})
    electors = [
        LeaderElector(
            cluster, LeaseConfig(namespace="default"), identity=name, now=wall, rng=random.Random(i)
        )
        for i, name in enumerate(["one", "two"])
    ]

    async def lead() -> None:
        await asyncio.Event().wait()

    tasks = [asyncio.create_task(elector.run(lead)) for elector in electors]
    await asyncio.sleep(30)
    first = electors.index(next(elector for elector in electors if elector.still_leading()))
    tasks[first].cancel()
    await asyncio.sleep(10)
    lease = await cluster.get(LEASES, "default", "vreplica-scheduler")
    assert lease["spec"]["holderIdentity"] == electors[1 - first].identity
    assert lease["spec"]["leaseTransitions"] == 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_events_and_their_series_pass_the_clusters_validation():
    cluster = cluster_of()
    recorder = EventRecorder(cluster, reporting_instance="replica-1", now=wall)
    task = asyncio.create_task(recorder.run())

    def tell(regarding: ObjectReference) -> None:
        recorder.event(regarding, reason=EventReason.FAILED_SCHEDULING, note="é\n" * 999)

    pod = ObjectReference("v1", "Pod", "default", "p-0", "u")
    tell(pod)
    assert await recorder.drain(1)
    tell(pod)
    tell(ObjectReference("v1", "Node", "", "n", "u"))
    tell(ObjectReference("v1", "Pod", "no-such-namespace", "p", "u"))
    assert await recorder.drain(1)
    assert recorder.failed == {"NotFound": 1}
    events = (await cluster.list_page(EVENTS, ListOptions(namespace="default"))).items
    assert sorted(event.get("series", {}).get("count", 1) for event in events) == [1, 2]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
