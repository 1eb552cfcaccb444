"""Controllers and kubelets of the embedded cluster, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from extender.kube.api import (
    CONFIGMAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    Api,
    ApiError,
    Binding,
    ListOptions,
    NotFound,
    Obj,
    PatchType,
    WatchEventType,
)
from extender.lab.apiserver.registry import CONTROLLERREVISIONS
from extender.lab.controllers.admission import Refusal, general_refusal
from extender.lab.controllers.stateful_set import REVISION_LABEL, is_running_and_ready
from extender.lab.embedded import (
    ControllerSettings,
    EmbeddedCluster,
    node_object,
    stateful_set_object,
)
from extender.lab.informer import Informer
from extender.lab.scheduler.types import NodeInfo, node_view, pod_info
from tests.simulation.cluster_scene import NS, a_pod, a_virtual_cluster

pytestmark = pytest.mark.looptime
MERGE = PatchType.MERGE
UNBOUND = ListOptions(field_selector="spec.nodeName=")


class Scene:
    """A running embedded cluster, with a scheduler that binds round robin over ``nodes``."""

    def __init__(self, embedded: EmbeddedCluster, nodes: list[str]) -> None:
        self.embedded = embedded
        self.api = embedded.cluster
        self.nodes = nodes

    async def schedule(self) -> None:
        turn = 0
        async for event in self.api.watch(PODS, UNBOUND, resource_version="0", timeout_s=1e6):
            if event.type is WatchEventType.ADDED and self.nodes:
                metadata = event.object["metadata"]
                await self.api.bind(
                    Binding(
                        metadata["namespace"], metadata["name"], self.nodes[turn % len(self.nodes)]
                    )
                )
                turn += 1

    async def pods(self) -> dict[str, Obj]:
        return {pod["metadata"]["name"]: pod for pod in (await self.api.list_page(PODS)).items}

    async def names(self) -> list[str]:
        return sorted(await self.pods())

    async def ready(self) -> list[str]:
        return [
            name
            for name, pod in sorted((await self.pods()).items())
            if is_running_and_ready(pod) and not pod["metadata"].get("deletionTimestamp")
        ]

    async def scale(self, replicas: int) -> None:
        await self.change({"replicas": replicas})

    async def change(self, spec: Obj) -> None:
        await self.api.patch(STATEFULSETS, NS, "s", {"spec": spec}, patch_type=MERGE)

    async def status(self) -> Obj:
        status: Obj = (await self.api.get(STATEFULSETS, NS, "s"))["status"]
        return status

    async def node(self, name: str) -> Obj:
        return await self.api.get(NODES, "", name)


@asynccontextmanager
async def a_scene(
    *sets: Obj, nodes: int = 2, wrap: Callable[[Api, str], Api] | None = None
) -> AsyncIterator[Scene]:
    settings = ControllerSettings(pod_start_delay_s=lambda _: 2.0, pod_stop_delay_s=lambda _: 1.0)
    if wrap is not None:
        settings = ControllerSettings(
            pod_start_delay_s=lambda _: 2.0, pod_stop_delay_s=lambda _: 1.0, controller_api=wrap
        )
    async with EmbeddedCluster(a_virtual_cluster(), settings) as embedded:
        names = [f"n{number}" for number in range(nodes)]
        for name in names:
            await embedded.cluster.create(NODES, "", node_object(name, "z"))
        for obj in sets:
            await embedded.cluster.create(STATEFULSETS, NS, obj)
        scene = Scene(embedded, names)
        scheduling = asyncio.create_task(scene.schedule())
        try:
            yield scene
        finally:
            scheduling.cancel()
            await asyncio.gather(scheduling, return_exceptions=True)


def a_set(replicas: int = 3, *, ordered: bool = False, **fields) -> Obj:
    obj = stateful_set_object("s", replicas=replicas, **fields)
    if ordered:
        obj["spec"]["podManagementPolicy"] = "OrderedReady"
    return obj


async def eventually(
    ask: Callable[[], Awaitable[object]], wanted: object, within_s: float = 60.0
) -> None:
    """Virtual time passes until ``ask()`` answers ``wanted``."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while (found := await ask()) != wanted:
        assert loop.time() < end, f"still {found!r}, wanted {wanted!r}"
        await asyncio.sleep(0.25)


async def test_a_pod_is_made_as_kubernetes_makes_it():
    async with a_scene(a_set(1, pool="")) as scene:
        await eventually(scene.ready, ["s-0"])
        pod = (await scene.pods())["s-0"]
        labels = pod["metadata"]["labels"]
        assert labels.pop(REVISION_LABEL).startswith("s-")
        assert labels == {
            "app": "s",
            "vreplica.dev/pool": "s",
            "apps.kubernetes.io/pod-index": "0",
            "statefulset.kubernetes.io/pod-name": "s-0",
            "topology.kubernetes.io/zone": "z",
        }
        [owner] = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("StatefulSet", "s", True)
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("s-0", "s")


async def test_a_parallel_set_makes_all_at_once_and_reports_it():
    async with a_scene(a_set(3)) as scene:
        await eventually(scene.names, ["s-0", "s-1", "s-2"], within_s=1)
        await eventually(scene.ready, ["s-0", "s-1", "s-2"], within_s=4)
        await asyncio.sleep(1)
        status = await scene.status()
        counts = (
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "observedGeneration",
        )
        assert [status[field] for field in counts] == [3, 3, 3, 3, 1]


async def test_an_ordered_set_waits_for_each_pod_to_be_ready():
    async with a_scene(a_set(3, ordered=True)) as scene:
        await asyncio.sleep(1)
        assert await scene.names() == ["s-0"]
        await eventually(scene.names, ["s-0", "s-1"], within_s=3)
        await eventually(scene.ready, ["s-0", "s-1", "s-2"], within_s=6)


async def test_ordinals_begin_where_the_set_says():
    async with a_scene(a_set(2, start=5)) as scene:
        await eventually(scene.ready, ["s-5", "s-6"])


async def test_scaling_down_removes_the_highest_ordinals():
    async with a_scene(a_set(4)) as scene:
        await eventually(scene.ready, ["s-0", "s-1", "s-2", "s-3"])
        await scene.scale(2)
        await eventually(scene.names, ["s-0", "s-1"], within_s=3)


async def test_an_ordered_set_removes_one_at_a_time():
    async with a_scene(a_set(3, ordered=True)) as scene:
        await eventually(scene.ready, ["s-0", "s-1", "s-2"])
        await scene.scale(0)
        for left in (["s-0", "s-1"], ["s-0"], []):
            await eventually(scene.names, left, within_s=1.5)


async def test_a_deleted_pod_comes_back_under_its_name_once_it_is_gone():
    async with a_scene(a_set(2)) as scene:
        await eventually(scene.ready, ["s-0", "s-1"])
        old = (await scene.pods())["s-0"]["metadata"]["uid"]
        await scene.api.delete(PODS, NS, "s-0")
        await asyncio.sleep(0.5)
        assert (await scene.pods())["s-0"]["metadata"]["uid"] == old
        await eventually(scene.ready, ["s-0", "s-1"], within_s=5)
        assert (await scene.pods())["s-0"]["metadata"]["uid"] != old


async def test_a_failed_pod_is_made_anew():
    async with a_scene(a_set(1)) as scene:
        await eventually(scene.ready, ["s-0"])
        failed = {"status": {"phase": "Failed"}}
        await scene.api.patch(PODS, NS, "s-0", failed, patch_type=MERGE, subresource="status")
        await eventually(scene.ready, ["s-0"], within_s=5)


def image_of(pod: Obj) -> str:
    return str(pod["spec"]["containers"][0]["image"]).rpartition(":")[2]


async def roll(scene: Scene) -> None:
    template = stateful_set_object("s")["spec"]["template"]
    template["spec"]["containers"][0]["image"] = "registry.example/adapter:2"
    await scene.change({"template": template})


async def test_a_new_template_rolls_from_the_highest_ordinal_one_at_a_time():
    async with a_scene(a_set(3)) as scene:
        await eventually(scene.ready, ["s-0", "s-1", "s-2"])
        await roll(scene)
        for images in (["1", "1", "2"], ["1", "2", "2"], ["2", "2", "2"]):

            async def seen() -> list[str]:
                pods = await scene.pods()
                return [image_of(pods[name]) for name in sorted(pods)]

            await eventually(seen, images, within_s=8)
            assert len(await scene.ready()) >= 2 or images[-1] == "2"
        await eventually(scene.ready, ["s-0", "s-1", "s-2"])
        await asyncio.sleep(1)
        status = await scene.status()
        assert status["currentRevision"] == status["updateRevision"]
        assert status["currentReplicas"] == 3
        assert scene.api.object_count(CONTROLLERREVISIONS) == 2


async def test_a_partition_keeps_lower_ordinals_on_the_old_template_also_when_they_come_back():
    stateful_set = a_set(3)
    stateful_set["spec"]["updateStrategy"] = {
        "type": "RollingUpdate",
        "rollingUpdate": {"partition": 2},
    }
    async with a_scene(stateful_set) as scene:
        await eventually(scene.ready, ["s-0", "s-1", "s-2"])
        await roll(scene)
        await asyncio.sleep(20)
        await scene.api.delete(PODS, NS, "s-0")
        await asyncio.sleep(20)
        pods = await scene.pods()
        assert [image_of(pods[name]) for name in sorted(pods)] == ["1", "1", "2"]


async def test_pods_of_a_deleted_set_are_collected():
    async with a_scene(a_set(2)) as scene:
        await eventually(scene.ready, ["s-0", "s-1"])
        await scene.api.delete(STATEFULSETS, NS, "s")
        await eventually(scene.names, [], within_s=3)
        assert scene.api.object_count(CONTROLLERREVISIONS) == 0


async def test_an_object_with_two_owners_lives_until_the_second_is_gone():
    async with a_scene() as scene:
        owners = []
        for name in ("a", "b"):
            made = await scene.api.create(CONFIGMAPS, NS, {"metadata": {"name": name}})
            reference = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": name,
                "uid": made["metadata"]["uid"],
            }
            owners.append(reference)
        await scene.api.create(
            CONFIGMAPS, NS, {"metadata": {"name": "c", "ownerReferences": owners}}
        )
        await scene.api.delete(CONFIGMAPS, NS, "a")
        await asyncio.sleep(1)
        assert (await scene.api.get(CONFIGMAPS, NS, "c"))["metadata"]["ownerReferences"] == owners[
            1:
        ]
        await scene.api.delete(CONFIGMAPS, NS, "b")
        await asyncio.sleep(1)
        assert scene.api.object_count(CONFIGMAPS) == 0


async def test_an_object_whose_owner_never_was_is_collected():
    async with a_scene() as scene:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "gone"}
        await scene.api.create(
            CONFIGMAPS, NS, {"metadata": {"name": "c", "ownerReferences": [owner]}}
        )
        await asyncio.sleep(1)
        assert scene.api.object_count(CONFIGMAPS) == 0


async def test_a_deleted_namespace_takes_everything_with_it():
    async with a_scene() as scene:
        await scene.api.create(NAMESPACES, "", {"metadata": {"name": "tenant"}})
        await scene.api.create(
            STATEFULSETS, "tenant", stateful_set_object("t", namespace="tenant", replicas=2)
        )
        await eventually(scene.ready, ["t-0", "t-1"])
        await scene.api.delete(NAMESPACES, "", "tenant")
        await eventually(scene.names, [], within_s=5)
        await asyncio.sleep(3)
        with pytest.raises(NotFound):
            await scene.api.get(NAMESPACES, "", "tenant")


async def test_a_pod_is_ready_after_its_start_delay_and_gone_after_its_stop_delay():
    async with a_scene() as scene:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await scene.api.create(PODS, NS, a_pod())
        await eventually(scene.ready, ["p"])
        assert loop.time() - began == pytest.approx(2.0, abs=0.5)
        began = loop.time()
        await scene.api.delete(PODS, NS, "p")
        await eventually(scene.names, [])
        assert loop.time() - began == pytest.approx(1.0, abs=0.5)


async def test_a_failing_readiness_probe_makes_a_pod_not_ready():
    async with a_scene(a_set(1)) as scene:
        await eventually(scene.ready, ["s-0"])
        scene.embedded.set_ready(NS, "s-0", ready=False)
        await eventually(scene.ready, [], within_s=1)
        scene.embedded.set_ready(NS, "s-0", ready=True)
        await eventually(scene.ready, ["s-0"], within_s=1)


async def test_a_failed_node_is_unknown_and_tainted_after_the_grace_and_its_pods_not_ready():
    async with a_scene(a_set(2)) as scene:
        await eventually(scene.ready, ["s-0", "s-1"])
        scene.embedded.fail_node("n0")
        await asyncio.sleep(39)
        assert len(await scene.ready()) == 2
        await asyncio.sleep(2)
        node = await scene.node("n0")
        [ready] = [item for item in node["status"]["conditions"] if item["type"] == "Ready"]
        assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
        taints = {(taint["key"], taint["effect"]) for taint in node["spec"]["taints"]}
        key = "node.kubernetes.io/unreachable"
        assert taints == {(key, "NoSchedule"), (key, "NoExecute")}
        assert len(await scene.ready()) == 1
        scene.embedded.recover_node("n0")
        await asyncio.sleep(1)
        assert "taints" not in (await scene.node("n0"))["spec"]
        assert len(await scene.ready()) == 2


async def on_node(scene: Scene, node: str) -> Obj:
    return next(pod for pod in (await scene.pods()).values() if pod["spec"].get("nodeName") == node)


async def test_pods_of_a_failed_node_are_evicted_after_their_toleration_and_stay_terminating():
    async with a_scene(a_set(2)) as scene:
        await eventually(scene.ready, ["s-0", "s-1"])
        scene.embedded.fail_node("n0")
        await asyncio.sleep(42 + 297)
        assert "deletionTimestamp" not in (await on_node(scene, "n0"))["metadata"]
        await asyncio.sleep(5)
        evicted = await on_node(scene, "n0")
        assert evicted["metadata"]["deletionTimestamp"]
        await asyncio.sleep(600)
        assert (await on_node(scene, "n0"))["metadata"]["uid"] == evicted["metadata"]["uid"]
        scene.embedded.recover_node("n0")
        await eventually(scene.ready, ["s-0", "s-1"], within_s=10)


async def test_a_node_that_recovers_in_time_keeps_its_pods():
    async with a_scene(a_set(2)) as scene:
        await eventually(scene.ready, ["s-0", "s-1"])
        before = {name: pod["metadata"]["uid"] for name, pod in (await scene.pods()).items()}
        scene.embedded.fail_node("n0")
        await asyncio.sleep(200)
        scene.embedded.recover_node("n0")
        await asyncio.sleep(600)
        assert {
            name: pod["metadata"]["uid"] for name, pod in (await scene.pods()).items()
        } == before


async def test_pods_that_tolerate_nothing_go_at_once_and_those_that_tolerate_forever_stay():
    async with a_scene() as scene:
        forever = [
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
        ]
        brief = [{**forever[0], "tolerationSeconds": 0}]
        await scene.api.create(PODS, NS, a_pod("brief", tolerations=brief))
        await scene.api.create(PODS, NS, a_pod("forever", tolerations=forever))
        await eventually(scene.ready, ["brief", "forever"])
        for node in ("n0", "n1"):
            scene.embedded.fail_node(node)
        await asyncio.sleep(45)
        pods = await scene.pods()
        assert "deletionTimestamp" in pods["brief"]["metadata"]
        await asyncio.sleep(5000)
        assert "deletionTimestamp" not in (await scene.pods())["forever"]["metadata"]


async def test_pods_of_a_deleted_node_are_removed_by_force_and_made_elsewhere():
    async with a_scene(a_set(2)) as scene:
        await eventually(scene.ready, ["s-0", "s-1"])
        scene.embedded.fail_node("n0")
        scene.nodes.remove("n0")
        await scene.api.delete(NODES, "", "n0")
        await asyncio.sleep(50)
        assert await scene.ready() == ["s-0", "s-1"]
        assert {pod["spec"]["nodeName"] for pod in (await scene.pods()).values()} == {"n1"}


async def test_terminating_pods_of_a_node_out_of_service_are_removed_and_those_of_a_ready_one_not():
    async with a_scene(a_set(2)) as scene:
        await eventually(scene.ready, ["s-0", "s-1"])
        out = [
            {
                "key": "node.kubernetes.io/out-of-service",
                "value": "nodeshutdown",
                "effect": "NoSchedule",
            }
        ]
        await scene.api.patch(NODES, "", "n1", {"spec": {"taints": out}}, patch_type=MERGE)
        scene.embedded.fail_node("n0")
        await asyncio.sleep(42 + 305)
        lost = await on_node(scene, "n0")
        assert lost["metadata"]["deletionTimestamp"]
        taints = [*(await scene.node("n0"))["spec"]["taints"], *out]
        await scene.api.patch(NODES, "", "n0", {"spec": {"taints": taints}}, patch_type=MERGE)
        await asyncio.sleep(5)
        again = (await scene.pods())[lost["metadata"]["name"]]
        assert again["metadata"]["uid"] != lost["metadata"]["uid"]
        assert again["spec"]["nodeName"] == "n1"
        assert "deletionTimestamp" not in again["metadata"], (
            "a taint of a node that is Ready ends nothing"
        )


async def test_a_cordoned_node_is_tainted_until_it_is_not():
    async with a_scene() as scene:
        await scene.api.patch(NODES, "", "n0", {"spec": {"unschedulable": True}}, patch_type=MERGE)
        await asyncio.sleep(1)
        [taint] = (await scene.node("n0"))["spec"]["taints"]
        assert (taint["key"], taint["effect"]) == ("node.kubernetes.io/unschedulable", "NoSchedule")
        await scene.api.patch(NODES, "", "n0", {"spec": {"unschedulable": None}}, patch_type=MERGE)
        await asyncio.sleep(1)
        assert "taints" not in (await scene.node("n0"))["spec"]


async def test_a_node_made_without_a_status_becomes_ready():
    async with a_scene(nodes=0) as scene:
        await scene.api.create(NODES, "", {"metadata": {"name": "bare"}})
        await asyncio.sleep(1)
        [ready] = (await scene.node("bare"))["status"]["conditions"]
        assert ready["status"] == "True"


async def test_a_new_node_is_tainted_until_it_was_seen_ready():
    async with a_scene(nodes=0) as scene:
        made = await scene.api.create(NODES, "", {"metadata": {"name": "new"}})
        [taint] = made["spec"]["taints"]
        assert taint == {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        await asyncio.sleep(1)
        assert "taints" not in (await scene.node("new"))["spec"]


class Flaky:
    """An Api whose every third write fails before it has any effect."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._writes = 0

    def __getattr__(self, name: str):
        found = getattr(self._api, name)
        if name not in ("create", "update", "patch", "delete"):
            return found

        async def sometimes(*args, **kwargs):
            self._writes += 1
            if self._writes % 3 == 0:
                raise ApiError(500, "InternalError", "injected")
            return await found(*args, **kwargs)

        return sometimes


async def test_controllers_retry_what_fails():
    def flaky(api: Api, _component: str) -> Api:
        wrapped: Api = Flaky(api)
        return wrapped

    async with a_scene(a_set(6), wrap=flaky) as scene:
        names = [f"s-{ordinal}" for ordinal in range(6)]
        await eventually(scene.ready, names)
        await scene.scale(2)
        await eventually(scene.names, names[:2])


async def test_an_informer_lists_again_when_its_version_is_gone():
    async with a_scene() as scene:
        informer = Informer(scene.api, NODES)
        seen: list[tuple[str, str]] = []

        def note(before: Obj | None, after: Obj | None) -> None:
            what = "added" if before is None else "deleted" if after is None else "changed"
            seen.append((what, (after or before or {})["metadata"]["name"]))

        informer.on_change(note)
        running = asyncio.create_task(informer.run())
        await informer.synced.wait()
        # Without a turn of the loop in between, the watch cannot keep up, and compaction ends it.
        server = scene.api.server
        target = server.target(NODES, "", "n0")
        server.remove(target, target.entry())
        scene.api.compact()
        await asyncio.sleep(2)
        running.cancel()
        assert seen == [("added", "n0"), ("added", "n1"), ("deleted", "n0")]


async def test_equal_seeds_run_equally():
    async def run() -> list[Obj]:
        async with a_scene(a_set(3)) as scene:
            await eventually(scene.ready, ["s-0", "s-1", "s-2"])
            await scene.api.delete(PODS, NS, "s-1")
            await asyncio.sleep(10)
            start = asyncio.get_running_loop().time()
            assert start > 0
            return (await scene.api.list_page(PODS)).items

    first, second = await run(), await run()
    # The second run begins later on the same clock; everything but the times must agree.
    times = ("creationTimestamp", "startTime", "lastTransitionTime", "startedAt")

    def timeless(value: object) -> object:
        if isinstance(value, dict):
            return {key: timeless(item) for key, item in value.items() if key not in times}
        return [timeless(item) for item in value] if isinstance(value, list) else value

    assert timeless(first) == timeless(second)


def asking(cpu: str, **spec) -> Obj:
    """A pod that asks for CPU."""
    pod = a_pod("p", **spec)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return pod


HOST_PORT = [{"containerPort": 80, "hostPort": 80}]


async def test_a_kubelet_refuses_a_pod_for_which_its_node_has_no_cpu():
    async with a_scene(a_set(1), nodes=1) as scene:
        await eventually(scene.ready, ["s-0"])
        await scene.api.create(PODS, NS, asking("7950m", nodeName="n0"))
        await asyncio.sleep(3)
        status = (await scene.pods())["p"]["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
        assert status["message"] == (
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 7950, used: 100, "
            "capacity: 8000"
        )
        events = (await scene.api.list_page(EVENTS, ListOptions(NS), limit=100)).items
        (event,) = [one for one in events if one["reason"] == "OutOfcpu"]
        assert (event["type"], event["regarding"]["name"]) == ("Warning", "p")
        assert (event["reportingController"], event["reportingInstance"]) == ("kubelet", "n0")
        assert status["message"] == f"Pod was rejected: {event['note']}"


@pytest.mark.parametrize(
    ("pod", "reason", "text"),
    [
        pytest.param(
            a_pod(nodeSelector={"disk": "ssd"}),
            "NodeAffinity",
            "node(s) didn't match Pod's node affinity/selector",
            id="a label that the node does not have",
        ),
        pytest.param(
            a_pod(tolerations=[{"key": "other", "operator": "Exists"}]),
            "TaintToleration",
            "node(s) had taints that the pod didn't tolerate",
            id="a NoExecute taint",
        ),
    ],
)
def test_a_predicate_that_fails_is_the_reason(pod: Obj, reason: str, text: str):
    node = node_object("n0", "z")
    if reason == "TaintToleration":
        node["spec"]["taints"] = [
            {"key": "full", "effect": "NoSchedule"},
            {"key": "gone", "effect": "NoExecute"},
        ]
    refused = general_refusal(pod_info(pod), NodeInfo(node_view(node)))
    assert refused == Refusal(reason, f"Predicate {reason} failed: {text}")


def test_a_kubelet_looks_at_no_noschedule_taint_and_no_resource_that_its_node_does_not_offer():
    node, pod = node_object("n0", "z"), asking("1")
    node["spec"]["taints"] = [{"key": "full", "effect": "NoSchedule"}]
    pod["spec"]["containers"][0]["resources"]["requests"]["vreplica.dev/slots"] = "20"
    assert general_refusal(pod_info(pod), NodeInfo(node_view(node))) is None


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(asking("7900m"), id="what is left of the CPU"),
        pytest.param(a_pod("p", tolerations=[{"operator": "Exists"}]), id="tolerates all"),
    ],
)
async def test_a_kubelet_admits_what_fits(pod: Obj):
    async with a_scene(a_set(1), nodes=1) as scene:
        await eventually(scene.ready, ["s-0"])
        await scene.api.create(PODS, NS, {**pod, "spec": {**pod["spec"], "nodeName": "n0"}})
        await eventually(scene.ready, ["p", "s-0"])


async def test_a_host_port_is_free_again_once_the_pod_that_held_it_is_gone():
    def with_port(name: str) -> Obj:
        pod = a_pod(name, nodeName="n0")
        pod["spec"]["containers"][0]["ports"] = HOST_PORT
        return pod

    async with a_scene(nodes=1) as scene:
        for name in ("p", "q"):
            await scene.api.create(PODS, NS, with_port(name))
            await asyncio.sleep(3)
        assert (await scene.pods())["q"]["status"]["reason"] == "NodePorts"
        await scene.api.delete(PODS, NS, "p")
        await scene.api.delete(PODS, NS, "q")
        await eventually(scene.names, [])
        await scene.api.create(PODS, NS, with_port("r"))
        await eventually(scene.ready, ["r"])


async def test_a_pod_of_a_set_that_a_kubelet_refused_is_made_anew_until_it_fits():
    async with a_scene(nodes=1) as scene:
        await scene.api.create(
            PODS, NS, asking("7950m", nodeName="n0", schedulerName="no scheduler of ours")
        )
        await eventually(scene.ready, ["p"])
        await scene.api.create(STATEFULSETS, NS, a_set(1))
        await eventually(scene.names, ["p", "s-0"])
        refused = (await scene.pods())["s-0"]["metadata"]["uid"]
        await asyncio.sleep(10)
        assert await scene.ready() == ["p"]
        assert (await scene.pods())["s-0"]["metadata"]["uid"] != refused
        await scene.api.delete(PODS, NS, "p")
        await eventually(scene.ready, ["s-0"])
