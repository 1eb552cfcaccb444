"""Real kubelets, containers and our image: installed by helm, used, and broken in every way that
machines break.

The scenarios share one cluster and come in this order: each leaves the pool as it has found it,
with every vreplica served.
"""

import asyncio
import datetime
import time
from functools import partial

import pytest

from extender.kube.api import Obj
from extender.model.names import LEASE_NAME
from tests.e2e.waiting import NotYet, eventually
from tests.nodes.adapters import POOL, Adapters, is_ready, pool_objects, vpod
from tests.nodes.cluster import NAMESPACE, SYSTEM, Cluster, told
from tests.nodes.measurements import Measurements

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

PODS = 6
VPODS = 10
VREPLICAS = 8
TOTAL = VPODS * VREPLICAS
RESCHEDULE_AFTER_S = 20
AWAY_S = 60.0


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def seconds(since: datetime.datetime, until: datetime.datetime) -> str:
    return f"{(until - since).total_seconds():.1f} s"


async def published(adapters: Adapters) -> dict[str, dict[str, int]]:
    """Where every vpod is."""
    return {
        name: {each["podName"]: each["vreplicas"] for each in found["status"]["placements"]}
        for name, found in (await adapters.vpods()).items()
    }


def _says_lost(vpod: Obj, unserved: int) -> bool:
    """Whether a vpod says that so many of its vreplicas are on a node that is lost."""
    status = vpod["status"]
    (available,) = [each for each in status["conditions"] if each["type"] == "Available"]
    return (available["status"], available["reason"], status["readyVReplicas"]) == (
        "False",
        "NodeLost",
        VREPLICAS - unserved,
    )


async def test_the_chart_installs_our_image_and_every_pod_of_it_becomes_ready(
    cluster: Cluster, measurements: Measurements
):
    started = time.monotonic()
    said = await cluster.install()
    assert "with a kube-scheduler beside each replica" in said
    measurements.add(
        "`helm install`, until its Deployments are available", f"{time.monotonic() - started:.1f} s"
    )
    pods = (await cluster.get(f"/api/v1/namespaces/{SYSTEM}/pods"))["items"]
    assert len(pods) == 5
    for pod in pods:
        assert pod["spec"]["securityContext"]["runAsUser"] == 65532
        assert all(
            each["securityContext"]["readOnlyRootFilesystem"] for each in pod["spec"]["containers"]
        )
        assert all(each["restartCount"] == 0 for each in pod["status"]["containerStatuses"])
    users = {
        container.user
        for node in cluster.nodes
        for container in node.containers()
        if "vreplica" in container.command or "kube-scheduler" in container.command
    }
    assert users == {65532}


async def test_vreplicas_are_in_the_containers_files_soon_after_their_vpods_are_made(
    cluster: Cluster, adapters: Adapters, measurements: Measurements
):
    await cluster.apply(*pool_objects(PODS, RESCHEDULE_AFTER_S))
    await adapters.ready(PODS)
    pods = await adapters.pods()
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {"vreplica-scheduler"}
    assert len({pod["spec"]["nodeName"] for pod in pods.values()}) == len(cluster.nodes)
    vpods = [vpod(f"v-{number}", VREPLICAS) for number in range(VPODS)]
    started = now()
    await asyncio.gather(*(cluster.create(each) for each in vpods))
    read = await adapters.told_all(TOTAL)
    measurements.add(
        f"{VPODS} VPods are made, until {TOTAL} vreplicas are in the containers' files",
        seconds(started, read),
    )


async def test_a_pool_grows_for_what_has_no_room(
    cluster: Cluster, adapters: Adapters, measurements: Measurements
):
    before = await published(adapters)
    started = now()
    await cluster.create(vpod("large", 50))
    read = await adapters.told_all(TOTAL + 50, 90.0)
    pods = await adapters.pods()
    assert len(pods) > PODS
    measurements.add(
        "A VPod of 50 finds room for 40: the pool grows, until all are in files",
        seconds(started, read),
    )
    assert {
        name: at for name, at in (await published(adapters)).items() if name != "large"
    } == before
    await cluster.delete("large")
    await adapters.told_all(TOTAL)
    # The pool shrinks now, and not in the middle of a later scene.
    await _shrink_every(cluster, 5)
    await adapters.ready(PODS)
    await _shrink_every(cluster, 100)


async def _shrink_every(cluster: Cluster, period_s: int) -> None:
    patch = f'{{"spec": {{"scaleDownPeriodSeconds": {period_s}}}}}'
    await cluster.kubectl(
        "patch", "adapterpool", POOL, "-n", NAMESPACE, "--type", "merge", "-p", patch
    )


async def test_a_killed_container_comes_back_with_what_it_had(
    cluster: Cluster, adapters: Adapters, measurements: Measurements
):
    before = await published(adapters)
    async with adapters.losses() as loss:
        started = time.monotonic()
        assert sum(node.kill_containers("trap", POD=f"{POOL}-0") for node in cluster.nodes)

        async def restarted() -> bool:
            pod = (await adapters.pods())[f"{POOL}-0"]
            status = pod["status"]["containerStatuses"][0]
            if status["restartCount"] < 1 or not status["ready"]:
                raise NotYet(str(status))
            return True

        await eventually(restarted, 60.0, "the container runs again")
        done = time.monotonic() - started
        await adapters.all_served()
    await adapters.told_all(TOTAL)
    assert await published(adapters) == before
    measurements.add(
        "A container is killed", f"{done:.1f} s", loss.longest_s, loss.vreplica_seconds
    )


async def test_a_rollout_moves_nothing(
    cluster: Cluster, adapters: Adapters, measurements: Measurements
):
    before = await published(adapters)
    async with adapters.losses() as loss:
        started = time.monotonic()
        await cluster.kubectl("rollout", "restart", f"statefulset/{POOL}", "-n", NAMESPACE)
        await cluster.kubectl(
            "rollout",
            "status",
            f"statefulset/{POOL}",
            "-n",
            NAMESPACE,
            "--timeout=120s",
            timeout_s=130.0,
        )
        done = time.monotonic() - started
        await adapters.all_served()
    await adapters.told_all(TOTAL)
    assert await published(adapters) == before
    measurements.add(
        "`kubectl rollout restart` of the adapters",
        f"{done:.1f} s",
        loss.longest_s,
        loss.vreplica_seconds,
    )


async def test_a_drain_takes_adapter_pods_elsewhere_with_what_they_had(
    cluster: Cluster, adapters: Adapters, measurements: Measurements
):
    before = await published(adapters)
    node = cluster.nodes[0].name
    async with adapters.losses() as loss:
        started = time.monotonic()
        await cluster.kubectl(
            "drain",
            node,
            f"--pod-selector=app={POOL}",
            "--delete-emptydir-data",
            "--timeout=60s",
            timeout_s=90.0,
        )
        await adapters.all_served()
        done = time.monotonic() - started
    assert node not in {pod["spec"]["nodeName"] for pod in (await adapters.pods()).values()}
    await adapters.told_all(TOTAL)
    assert await published(adapters) == before
    await cluster.kubectl("uncordon", node)
    measurements.add(
        "`kubectl drain` of a node", f"{done:.1f} s", loss.longest_s, loss.vreplica_seconds
    )


async def leader(cluster: Cluster) -> str:
    lease = await cluster.get(
        f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{LEASE_NAME}"
    )
    return str(lease["spec"].get("holderIdentity") or "")


async def test_the_leader_is_killed_and_another_places(
    cluster: Cluster, adapters: Adapters, measurements: Measurements
):
    before, old = await published(adapters), await leader(cluster)
    (node,) = [
        each
        for each in cluster.nodes
        if old in "".join(each.log_lines("vreplica-scheduler-*", "extender"))
    ]
    async with adapters.losses() as loss:
        started = now()
        assert node.kill_containers(" serve ")
        await cluster.create(vpod("after-leader", 4))
        read = await adapters.told_all(TOTAL + 4, 60.0)
    after = await published(adapters)
    assert {name: after[name] for name in before} == before
    measurements.add(
        "The leader is killed, until a new VPod is in files",
        seconds(started, read),
        loss.longest_s,
        loss.vreplica_seconds,
    )
    await cluster.delete("after-leader")
    await adapters.told_all(TOTAL)


@pytest.mark.parametrize(
    "what",
    ["etcd", "kube-apiserver", "the control plane"],
)
async def test_the_control_plane_is_away_and_adapters_go_on(
    what: str, cluster: Cluster, adapters: Adapters, measurements: Measurements
):
    before = await published(adapters)
    control_plane = cluster.control_plane
    away = {
        "etcd": control_plane.kill_etcd,
        "kube-apiserver": control_plane.kill_apiserver,
        "the control plane": control_plane.kill_all,
    }
    away_s = AWAY_S if what == "the control plane" else 5.0
    running = cluster.containers_of(POOL)
    async with adapters.losses() as loss:
        await away[what](away_s)
        back = now()
        name = f"after-{what.rsplit(maxsplit=1)[-1]}"
        await eventually(
            lambda: cluster.created(vpod(name, 4)), 30.0, "the API server takes a VPod"
        )
        read = await adapters.told_all(TOTAL + 4, 90.0)
        await adapters.all_served()
    assert cluster.containers_of(POOL) == running, "no container was restarted"
    after = await published(adapters)
    assert {each: after[each] for each in before} == before
    measurements.add(
        f"{what} is killed and away for {away_s:.0f} s, from its return until a new VPod is in "
        f"files",
        seconds(back, read),
        loss.longest_s,
        loss.vreplica_seconds,
    )
    await cluster.delete(name)
    await adapters.told_all(TOTAL)
    # Kubelets try again with longer and longer pauses. Until each has renewed its lease, its node
    # may still be called lost.
    for node in cluster.nodes:
        await eventually(
            partial(cluster.node_renewed, node.name, back), 60.0, f"{node.name} renews its lease"
        )


async def test_what_stood_on_a_lost_machine_is_placed_elsewhere(
    cluster: Cluster, adapters: Adapters, measurements: Measurements
):
    node = cluster.nodes[2]
    pods = await adapters.pods()
    lost = frozenset(name for name, pod in pods.items() if pod["spec"]["nodeName"] == node.name)
    assert lost
    on_lost = {
        name: sum(placements.get(pod, 0) for pod in lost)
        for name, placements in (await published(adapters)).items()
    }
    started = now()
    await node.kill()
    async with adapters.losses(dead=lost) as loss:

        async def told_lost() -> bool:
            vpods = await adapters.vpods()
            wrong = {
                name: vpods[name]["status"]
                for name, count in on_lost.items()
                if count and not _says_lost(vpods[name], count)
            }
            if wrong:
                raise NotYet(str(wrong)[:500])
            return True

        async def moved() -> bool:
            at = await published(adapters)
            left = {pod for placements in at.values() for pod in placements} & lost
            total = sum(sum(placements.values()) for placements in at.values())
            if left or total != TOTAL:
                raise NotYet(f"{left} still have some, {total} placed")
            return True

        await eventually(told_lost, cluster.grace_s + 30.0, "vpods say that their node is lost")
        await eventually(moved, 150.0, "all is placed elsewhere")
        read = await adapters.told_all(TOTAL)
        await adapters.all_served()
    measurements.add(
        f"A machine is lost (NotReady after {cluster.grace_s} s, rescheduleAfterSeconds: "
        f"{RESCHEDULE_AFTER_S}), "
        "until its vreplicas are in other containers' files",
        seconds(started, read),
        loss.longest_s,
        loss.vreplica_seconds,
    )


async def test_a_machine_that_comes_back_serves_again_and_nothing_moves_for_it(
    cluster: Cluster, adapters: Adapters, measurements: Measurements
):
    before = await published(adapters)
    node = cluster.nodes[2]
    async with adapters.losses() as loss:
        started = time.monotonic()
        await cluster.start_node(node, cluster.images)

        async def back() -> bool:
            pods = await adapters.pods()
            if any(not is_ready(pod) for pod in pods.values()) or node.name not in {
                pod["spec"]["nodeName"] for pod in pods.values()
            }:
                raise NotYet(f"{[told(pod) for pod in pods.values()]}")
            return True

        await eventually(back, 120.0, f"every pod is Ready, some of them on {node.name}")
        done = time.monotonic() - started
    await adapters.told_all(TOTAL)
    assert await published(adapters) == before
    measurements.add(
        "The lost machine comes back, until its pods are Ready again",
        f"{done:.1f} s",
        loss.longest_s,
        loss.vreplica_seconds,
    )
