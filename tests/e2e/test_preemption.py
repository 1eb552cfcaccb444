"""Preemption: kube-scheduler proposes victims for each node, and our verb has the fewest vreplicas
give way.
"""

import datetime
from pathlib import Path

from extender.kube.api import NODES, PODS, NotFound, Obj
from tests.e2e.backend import Backend, pods_ready
from tests.e2e.objects import pod, stateful_set
from tests.e2e.scenario import POOL, SLOTS_PER_POD, System, adapter_pool
from tests.e2e.waiting import NotYet, eventually

URGENT = "urgent"


def priority_class(name: str, value: int) -> Obj:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


async def an_urgent_adapter_pod(system: System) -> None:
    """A pool of one pod, as large as a node, before which others have to give way."""
    workload = stateful_set(system.namespace, URGENT, 1, pool=URGENT, cpu="900m")
    workload["spec"]["template"]["spec"]["priorityClassName"] = URGENT
    other = adapter_pool(system.namespace)
    other["metadata"]["name"] = other["spec"]["statefulSet"] = URGENT
    await system.backend.apply([other])
    await eventually(lambda: system.stamps(URGENT), 10.0, "pods of the urgent pool are stamped")
    await system.backend.apply([workload])


async def node_of_the_urgent_pod(system: System) -> str:
    """Where it runs in the end. kube-scheduler evicts asynchronously. If its watch shows that the
    victim has gone before the eviction is over, it looks at the urgent pod again only once another
    pod leaves a node, or after minutes.
    """
    api, selector = system.backend.api, f"app={URGENT}"
    try:
        (stored,) = await pods_ready(api, system.namespace, selector, 1, 10.0)
    except TimeoutError:
        nodes = (await api.list_page(NODES)).items
        for node in nodes:
            name = f"passing-{node['metadata']['name']}"
            passing = pod(system.namespace, name, nodeName=node["metadata"]["name"])
            await api.create(PODS, system.namespace, passing)
            await api.delete(PODS, system.namespace, name, grace_period_s=0)
        (stored,) = await pods_ready(api, system.namespace, selector, 1)
    return str(stored["spec"]["nodeName"])


async def test_of_two_adapter_pods_the_one_with_fewer_vreplicas_gives_way(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2, cpu=1)
        await backend.apply([priority_class(URGENT, 1000)])
        namespace = await system.pool(cpu="900m")
        tenant = await backend.namespace("tenant")
        # One after the other, the heavier last: without our verb kube-scheduler evicts what has run
        # for less time.
        await backend.apply([system.vpod(tenant, "light", 2)])
        (light,) = await system.settled(pods=1)
        await started_before_now(system, light.key)
        await backend.apply([system.vpod(tenant, "heavy", 1, slotsPerVReplica=SLOTS_PER_POD)])
        light, heavy = await system.settled(pods=2)
        await an_urgent_adapter_pod(system)
        assert await node_of_the_urgent_pod(system) == light.node
        assert (await system.requests())["preempt"] >= 1
        (kept,) = [obj for obj in await system.adapters() if obj["metadata"]["name"] == heavy.name]
        assert kept["metadata"]["uid"] == heavy.uid
        # What gave way keeps its placements and waits; a new node brings it back.
        assert (await system.all_vpods())[f"{tenant}/light"].placements == {light.name: 2}
        await backend.add_nodes(1, cpu=1)
        back = next(adapter for adapter in await system.settled(pods=3) if adapter.key == light.key)
        assert (back.uid != light.uid, back.ledger) == (True, light.ledger)
        assert back.key == f"{namespace}/{POOL}-0"
        assert back.node not in {light.node, heavy.node}


async def test_a_pod_without_vreplicas_gives_way_before_an_adapter_pod(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2, cpu=1)
        await backend.apply([priority_class(URGENT, 1000)])
        plain = pod(await backend.namespace("plain"), "plain", schedulerName="vreplica-scheduler")
        plain["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "900m"
        plain["metadata"]["labels"] = {"app": "plain"}
        await backend.apply([plain])
        (stored,) = await pods_ready(backend.api, plain["metadata"]["namespace"], "app=plain", 1)
        await started_before_now(system, f"{plain['metadata']['namespace']}/plain")
        await system.pool(cpu="900m")
        await system.vpods(1, 1)
        (adapter,) = await system.settled(pods=1)
        await an_urgent_adapter_pod(system)
        assert await node_of_the_urgent_pod(system) == stored["spec"]["nodeName"]
        assert adapter in await system.settled(pods=2)

        async def evicted() -> bool:
            try:
                await backend.api.get(PODS, plain["metadata"]["namespace"], "plain")
            except NotFound:
                return True
            raise NotYet("still there")

        await eventually(evicted, 10.0, "the plain pod is gone")


async def started_before_now(system: System, key: str) -> None:
    """Start times have whole seconds: waits until one that begins now is later than that pod's."""
    namespace, _, name = key.partition("/")
    stored = await system.backend.api.get(PODS, namespace, name)
    started = datetime.datetime.fromisoformat(stored["status"]["startTime"])

    async def later() -> bool:
        return datetime.datetime.now(datetime.UTC) >= started + datetime.timedelta(seconds=1)

    await eventually(later, 5.0, "a second has passed")
