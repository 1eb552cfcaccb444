"""Real containers with the library hand over what they serve: what is lost meanwhile, by their own
word, without and with ``spec.handoff.mode: Overlap``, in rollouts and under maintenance.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable
from functools import partial

import pytest

from extender.kube.api import Obj
from tests.e2e.waiting import NotYet, eventually
from tests.nodes.adapters import is_ready
from tests.nodes.cluster import NAMESPACE, Cluster
from tests.nodes.measurements import Measurements
from tests.nodes.workers import (
    Served,
    Workers,
    pool_objects,
    program_objects,
    served_twice,
    unserved_of,
    vpod_of,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

PODS = 6
VPODS = 10
VREPLICAS = 8
TOTAL = VPODS * VREPLICAS


def the_spec(mode: str) -> Obj:
    return {
        "profile": "spread",
        "minPods": PODS,
        "maxPods": PODS,
        "rescheduleAfterSeconds": None,
        "scaleDownPeriodSeconds": 5,
        "handoff": {"mode": mode},
        "rebalance": {"movesPerPeriod": 100, "cooldownSeconds": 0},
    }


async def lost_in(workers: Workers, what: Awaitable[object], kept: int) -> tuple[float, float]:
    """(vreplica-seconds of the first ``kept`` vpods that nobody served, seconds until it was
    done).
    """
    began = time.time()
    await what
    ended = time.time()
    wanted = {f"tenant/{workers.name}-{number}": VREPLICAS for number in range(kept)}
    return unserved_of(workers.changes(), wanted, began, ended), ended - began


async def test_the_chart_is_installed(cluster: Cluster):
    await cluster.install()
    await cluster.apply(*program_objects())


@pytest.mark.parametrize("mode", ["None", "Overlap"])
async def test_drains_and_a_scale_down_lose_nothing_where_shares_are_handed_over(
    mode: str, cluster: Cluster, measurements: Measurements
):
    """Without hand-over something is lost: a share is taken before another adapter is ready."""
    name = f"workers-{mode.lower()}"
    workers = Workers(cluster, name)
    await cluster.apply(*pool_objects(name, PODS, the_spec(mode), workers.said))
    await eventually(partial(all_ready, workers, PODS), 120.0, f"{PODS} workers are Ready")
    vpods = [vpod_of(name, f"{name}-{number}", VREPLICAS) for number in range(VPODS)]
    await asyncio.gather(*map(cluster.create, vpods))
    await eventually(partial(workers.settled, TOTAL), 60.0, "all are served")
    drained: list[str] = []

    async def drain(pod: str) -> None:
        drained.append(pod)
        await annotate(cluster, pod, "true")
        done = partial(workers.settled, TOTAL, without=drained)
        await eventually(done, 90.0, f"{drained} are empty")

    async def shrink() -> None:
        for pod in drained:
            await annotate(cluster, pod, "")
        patch = '{"spec":{"minPods":2}}'
        await cluster.kubectl(
            "patch", "adapterpool", name, "-n", NAMESPACE, "--type=merge", "-p", patch
        )
        await asyncio.gather(
            *(cluster.delete(f"{name}-{number}") for number in range(VPODS // 2, VPODS))
        )
        await eventually(partial(all_ready, workers, 2), 150.0, "two workers are left")
        await eventually(partial(workers.settled, TOTAL // 2), 30.0, "half is served")

    total = 0.0
    for what, step, kept in (
        ("A worker is drained", drain(f"{name}-1"), VPODS),
        ("A second worker is drained", drain(f"{name}-3"), VPODS),
        ("Half of the VPods are deleted, and four of six workers go", shrink(), VPODS // 2),
    ):
        lost, took_s = await lost_in(workers, step, kept)
        measurements.add(f"{what}, `handoff.mode: {mode}`", f"{took_s:.1f} s", lost=lost)
        total += lost
    await removed(workers)
    assert (total == 0) == (mode == "Overlap"), f"{total} vreplica-seconds were lost"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", ["AsIs", "HandedOver"])
async def test_a_rollout_loses_nothing_where_it_is_handed_over(
    strategy: str, cluster: Cluster, measurements: Measurements
):
    """As it is, what a worker served is down until its ordinal is back."""
    spec = {**the_spec("Overlap"), "rollout": {"strategy": strategy}}
    workers = await at_work(cluster, f"rolled-{strategy.lower()}", spec)
    lost, took_s = await lost_in(workers, rollout(workers), VPODS)
    what = f"`kubectl rollout restart` of {PODS} workers, `rollout.strategy: {strategy}`"
    measurements.add(what, f"{took_s:.1f} s", lost=lost)
    await removed(workers)
    assert (lost == 0) == (strategy == "HandedOver"), f"{lost} vreplica-seconds were lost"


@pytest.mark.timeout(600)
async def test_a_rollout_of_two_workers_at_a_time_serves_no_index_twice(
    cluster: Cluster, measurements: Measurements
):
    """Their pool is exclusive: what moves is out of service for a moment."""
    handoff = {
        "mode": "Exclusive",
        "identity": "Indexed",
        "leaseSeconds": 5,
        "maxUnavailable": {"pool": 2, "perVPod": "100%"},
    }
    spec = {
        **the_spec("Exclusive"),
        "handoff": handoff,
        "rollout": {"strategy": "HandedOver"},
    }
    workers = await at_work(cluster, "exclusive", spec)
    lost, took_s = await lost_in(workers, rollout(workers), VPODS)
    what = f"`kubectl rollout restart` of {PODS} workers, two at a time, `handoff.mode: Exclusive`"
    measurements.add(what, f"{took_s:.1f} s", lost=lost)
    indexes = [
        share["indexes"]
        for shares in (await workers.assigned()).values()
        for share in shares.values()
    ]
    await removed(workers)
    wanted = {f"tenant/{workers.name}-{number}": VREPLICAS for number in range(VPODS)}
    assert served_twice(workers.changes(), wanted) == []
    assert len(indexes) >= VPODS


@pytest.mark.timeout(600)
async def test_a_worker_that_hangs_loses_what_it_serves_after_its_lease(
    cluster: Cluster, measurements: Measurements
):
    """Its pod is Ready all the time. Once it goes on, it serves nothing that others have by then:
    what is served twice is judged by its own word.
    """
    handoff = {"mode": "Exclusive", "identity": "Indexed", "leaseSeconds": 5}
    spec = {**the_spec("Exclusive"), "handoff": handoff, "rescheduleAfterSeconds": 5}
    workers = await at_work(cluster, "hanging", spec)
    hanging = f"{workers.name}-1"
    process = cluster.containers_of(hanging, "python")[hanging]
    told = (await workers.assigned())[hanging]
    began = time.time()
    os.kill(process, signal.SIGSTOP)
    try:
        await eventually(partial(emptied, workers, hanging), 150.0, "others have its shares")
        await eventually(partial(served_without, workers, hanging), 30.0, "others serve them")
        took_s = time.time() - began
        assert is_ready((await workers.pods())[hanging])
    finally:
        os.kill(process, signal.SIGCONT)
    await eventually(partial(workers.settled, TOTAL), 60.0, "it has stopped, and all are served")
    stopped = [Served(began, hanging, vpod, 0) for vpod in told]
    changes = sorted([*workers.changes(), *stopped], key=lambda change: change.at)
    wanted = {f"tenant/{workers.name}-{number}": VREPLICAS for number in range(VPODS)}
    lost = unserved_of(changes, wanted, began, began + took_s)
    what = f"One of {PODS} workers hangs, `handoff.mode: Exclusive`, until others serve its shares"
    measurements.add(what, f"{took_s:.1f} s", lost=lost)
    events = await cluster.kubectl("get", "events", "-n", NAMESPACE, "-o", "name", *LEASE_EXPIRED)
    await removed(workers)
    assert served_twice(changes, wanted) == []
    assert len(events.split()) == 1


LEASE_EXPIRED = ("--field-selector", "reason=LeaseExpired")


async def emptied(workers: Workers, pod: str) -> bool:
    if shares := (await workers.assigned())[pod]:
        raise NotYet(f"{pod} has {len(shares)} shares")
    return True


async def served_without(workers: Workers, pod: str) -> bool:
    """Whether other pods serve all vreplicas."""
    serving = workers.serving().values()
    count = sum(count for pods in serving for name, count in pods.items() if name != pod)
    if count != TOTAL:
        raise NotYet(f"others serve {count}")
    return True


@pytest.mark.timeout(600)
async def test_a_node_that_is_cordoned_loses_its_workers_and_nothing_they_serve(
    cluster: Cluster, measurements: Measurements
):
    spec = {**the_spec("Overlap"), "descheduling": {"reasons": ["NodeMaintenance"]}}
    workers = await at_work(cluster, "maintained", spec)
    nodes = [pod["spec"]["nodeName"] for pod in (await workers.pods()).values()]
    node = max(set(nodes), key=nodes.count)

    async def left() -> bool:
        pods = await workers.pods()
        there = [name for name, pod in pods.items() if pod["spec"].get("nodeName") == node]
        if there:
            raise NotYet(f"{there} are on {node}")
        return True

    async def leave() -> None:
        await cluster.kubectl("cordon", node)
        await eventually(left, 300.0, f"the workers have left {node}")
        await eventually(partial(all_ready, workers, PODS), 60.0, "all workers are Ready")
        await eventually(partial(workers.settled, TOTAL), 60.0, "all are served")

    lost, took_s = await lost_in(workers, leave(), VPODS)
    await cluster.kubectl("uncordon", node)
    what = f"A node with {nodes.count(node)} of {PODS} workers is cordoned (`NodeMaintenance`)"
    measurements.add(what, f"{took_s:.1f} s", lost=lost)
    await removed(workers)
    assert lost == 0, f"{lost} vreplica-seconds were lost"


async def at_work(cluster: Cluster, name: str, spec: Obj) -> Workers:
    """A pool with that spec and room for one worker more, whose workers serve ``TOTAL``
    vreplicas.
    """
    workers = Workers(cluster, name)
    pool, stateful_set = pool_objects(name, PODS, {**spec, "maxPods": PODS + 1}, workers.said)
    if spec.get("rollout", {}).get("strategy") == "HandedOver":
        stateful_set["spec"]["updateStrategy"] = {"type": "OnDelete"}
    await cluster.apply(pool, stateful_set)
    await eventually(partial(all_ready, workers, PODS), 120.0, f"{PODS} workers are Ready")
    vpods = [vpod_of(name, f"{name}-{number}", VREPLICAS) for number in range(VPODS)]
    await asyncio.gather(*map(cluster.create, vpods))
    await eventually(partial(workers.settled, TOTAL), 60.0, "all are served")
    return workers


async def removed(workers: Workers) -> None:
    cluster = workers.cluster
    await cluster.kubectl("delete", "vpods", "--all", "-n", "tenant")
    await cluster.kubectl("delete", "statefulset", workers.name, "-n", NAMESPACE)


async def rollout(workers: Workers) -> None:
    """All workers are replaced, and serve again."""
    stateful_set = f"statefulset/{workers.name}"
    await workers.cluster.kubectl("rollout", "restart", stateful_set, "-n", NAMESPACE)
    await eventually(partial(rolled_out, workers), 400.0, "all workers are new")
    await eventually(partial(workers.settled, TOTAL), 60.0, "all are served again")


async def rolled_out(workers: Workers) -> bool:
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{workers.name}"
    stateful_set = await workers.cluster.get(path)
    status, spec = stateful_set["status"], stateful_set["spec"]
    counts = [status.get("updatedReplicas"), status.get("readyReplicas"), status["replicas"]]
    observed = status.get("observedGeneration") == stateful_set["metadata"]["generation"]
    if not observed or counts != [spec["replicas"]] * 3:
        raise NotYet(f"updated, Ready, all: {counts} of {spec['replicas']}")
    return True


async def all_ready(workers: Workers, count: int) -> bool:
    if (ready := await workers.ready()) != count:
        raise NotYet(f"{ready} are Ready")
    return True


async def annotate(cluster: Cluster, pod: str, drained: str) -> None:
    annotation = f"vreplica.dev/unschedulable{'=' if drained else '-'}{drained}"
    await cluster.kubectl("annotate", "pod", pod, "-n", NAMESPACE, annotation)
