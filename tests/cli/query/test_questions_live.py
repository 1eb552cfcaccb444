"""The whole system over real HTTP: what ``explain`` and ``plan`` say of the live cluster is what
then happens.
"""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from extender.cli.query import object_names
from extender.cli.query.explain import run_explain
from extender.cli.query.live import CannotRead, history_from_events, open_live, read_cluster
from extender.cli.query.what_if import run_what_if
from extender.cli.query.where import Where
from extender.cli.terminal.cluster_access import ClusterAccess
from extender.cli.terminal.replica_access import ReplicaAccess
from extender.kube.api import (
    ADAPTERPOOLS,
    NODES,
    PODS,
    STATEFULSETS,
    VPODS,
    ApiError,
    Forbidden,
    ListPage,
    NotFound,
    PatchType,
)
from extender.kube.read_only import WriteRefused
from extender.lab.demo.local import LocalCluster, LocalSystem, create_namespace
from extender.lab.embedded import node_object, stateful_set_object
from extender.model.names import API_VERSION, UNSCHEDULABLE_ANNOTATION
from tests.support.service import until

NS, POOL, TENANT = "adapters", "dispatcher", "team-a"
SLOTS = 4
pytestmark = pytest.mark.timeout(60)


@asynccontextmanager
async def system(directory: Path, *, max_pods: int = 3) -> AsyncIterator[LocalSystem]:
    """Three nodes in three zones, and a pool that may have three pods of four slots."""
    async with LocalSystem(seed=1, directory=directory) as running:
        api = running.local.cluster
        for index in range(3):
            await api.create(NODES, "", node_object(f"n{index}", f"z{index}"))
        for namespace in (NS, TENANT):
            await create_namespace(api, namespace)
        await api.create(
            STATEFULSETS, NS, stateful_set_object(POOL, namespace=NS, replicas=0, pool=POOL)
        )
        spec = {
            "statefulSet": POOL,
            "slotsPerPod": SLOTS,
            "maxPods": max_pods,
            "scaleDownPeriodSeconds": 1,
        }
        pool = {
            "apiVersion": API_VERSION,
            "kind": "AdapterPool",
            "metadata": {"name": POOL},
            "spec": spec,
        }
        await api.create(ADAPTERPOOLS, NS, pool)
        yield running


async def ask_for(running: LocalSystem, name: str, vreplicas: int, *, tenant: str = TENANT) -> None:
    spec = {"poolRef": {"namespace": NS, "name": POOL}, "vreplicas": vreplicas}
    vpod = {"apiVersion": API_VERSION, "kind": "VPod", "metadata": {"name": name}, "spec": spec}
    await running.local.cluster.create(VPODS, tenant, vpod)


async def published(running: LocalSystem, name: str) -> dict[str, int]:
    status = (await running.local.cluster.get(VPODS, TENANT, name)).get("status", {})
    return {one["podName"]: one["vreplicas"] for one in status.get("placements", [])}


async def waits_for(running: LocalSystem, name: str, count: int) -> None:
    async def so() -> bool:
        running.local.check()
        return sum((await published(running, name)).values()) == count

    await until(so, timeout_s=30)


async def answered(capsys, running: LocalSystem, coroutine) -> Any:
    capsys.readouterr()
    assert await coroutine == 0
    return json.loads(capsys.readouterr().out)


async def explained(capsys, running: LocalSystem, where: Where, name: str) -> Any:
    return await answered(capsys, running, run_explain(where, name, output="json", check=False))


def live(running: LocalSystem) -> Where:
    return Where(cluster=ClusterAccess(kubeconfig=str(running.kubeconfig)))


def server(running: LocalSystem) -> Where:
    return Where(replica=ReplicaAccess(running.running.server.url))


async def test_the_fix_that_is_named_is_the_fix(tmp_path, capsys):
    async with system(tmp_path) as running:
        await ask_for(running, "a", 14)
        await waits_for(running, "a", 12)
        of_cluster = await explained(capsys, running, live(running), "a")
        of_server = await explained(capsys, running, server(running), f"{TENANT}/a")
        for answer in (of_cluster, of_server):
            fix = answer["fixes"][0]
            assert (fix["change"], fix["field"], fix["to"], fix["places"]) == (
                "maxPods 3 to 4",
                "spec.maxPods",
                4,
                2,
            )
        assert of_server["decided"]["by"] == running.running.identity
        assert {
            row["pod"]: row["vreplicas"] for row in of_cluster["candidates"]
        } == await published(running, "a")
        patch = {"spec": {"maxPods": 4}}
        await running.local.cluster.patch(ADAPTERPOOLS, NS, POOL, patch, patch_type=PatchType.MERGE)
        await waits_for(running, "a", 14)
        assert (await explained(capsys, running, live(running), "a"))["left"] == 0


async def test_events_tell_who_decided_where_no_service_is_asked(tmp_path, capsys):
    async with system(tmp_path) as running:
        await ask_for(running, "a", 4)
        await waits_for(running, "a", 4)

        async def told() -> bool:
            answer = await explained(capsys, running, live(running), f"vpod/{TENANT}/a")
            return any(one["by"] == running.running.identity for one in answer["history"])

        await until(told, timeout_s=10)


async def test_a_drain_does_what_the_plan_has_said(tmp_path, capsys):
    async with system(tmp_path) as running:
        for name, vreplicas in (("a", 5), ("b", 3)):
            await ask_for(running, name, vreplicas)
            await waits_for(running, name, vreplicas)
        pod = "dispatcher-0"
        where = live(running)
        asked = {"drain": [f"pod/{pod}"], "autoscale": True}
        planned = await answered(
            capsys, running, run_what_if(where, asked, output="json", check=False)
        )
        same = await answered(
            capsys, running, run_what_if(server(running), asked, output="json", check=False)
        )
        assert planned["summary"] == same["summary"]
        assert planned["summary"]["unplacedAfter"] == 0
        patch = {"metadata": {"annotations": {UNSCHEDULABLE_ANNOTATION: "true"}}}
        await running.local.cluster.patch(PODS, NS, pod, patch, patch_type=PatchType.MERGE)

        async def drained() -> bool:
            now = [await published(running, name) for name in ("a", "b")]
            return all(pod not in one for one in now) and [sum(one.values()) for one in now] == [
                5,
                3,
            ]

        await until(drained, timeout_s=30)
        for row in planned["vpods"]:
            assert await published(running, row["name"].partition("/")[2]) == row["after"]
        stateful_set = await running.local.cluster.get(STATEFULSETS, NS, POOL)
        assert stateful_set["spec"]["replicas"] == planned["summary"]["podsAfter"]


async def test_a_pod_of_the_live_cluster(tmp_path, capsys):
    async with system(tmp_path) as running:
        await ask_for(running, "a", 4)
        await waits_for(running, "a", 4)
        for where in (live(running), server(running)):
            answer = await explained(capsys, running, where, f"pod/{NS}/dispatcher-0")
            assert (answer["kind"], answer["carries"][0]["vreplicas"]) == ("Pod", 4)


async def test_who_asks_about_a_live_cluster_cannot_write_there(tmp_path):
    async with LocalCluster(seed=1) as local:
        kubeconfig = local.write_kubeconfig(tmp_path / "kubeconfig")
        async with open_live(ClusterAccess(str(kubeconfig))) as api:
            with pytest.raises(WriteRefused):
                await api.delete(PODS, NS, "dispatcher-0")


async def test_a_cluster_without_our_kinds_says_what_is_missing(tmp_path):
    async with LocalCluster(seed=1) as local:
        kubeconfig = local.write_kubeconfig(tmp_path / "kubeconfig")
        async with open_live(ClusterAccess(str(kubeconfig))) as api:
            with pytest.raises(
                CannotRead,
                match=r"does not serve adapterpools.vreplica.dev\. Our kinds are not installed",
            ):
                await read_cluster(api, "plan")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(
            Forbidden(403, "Forbidden", "no"),
            "adapterpools.vreplica.dev may not be listed: no. This user",
            id="a role",
        ),
        pytest.param(
            NotFound(404, "NotFound", "no"), "kubectl apply -k manifests/crds", id="kinds"
        ),
    ],
)
async def test_what_the_cluster_refuses_says_what_to_do(error, said):
    class Refusing:
        async def list_page(self, *_args, **_more):
            await asyncio.sleep(0)
            raise error

    with pytest.raises(CannotRead, match=said):
        await read_cluster(Refusing(), "plan")  # type: ignore[arg-type]


class Kinds:
    """An API server that has these objects, by plural, in pages of one."""

    def __init__(self, **objects: list[dict[str, Any]]) -> None:
        self.objects = objects

    async def list_page(self, resource, *_args, continue_token="", **_more):
        await asyncio.sleep(0)
        items = self.objects.get(resource.plural)
        if items is None:
            raise NotFound(404, "NotFound", "no such kind")
        first = int(continue_token or 0)
        more = str(first + 1) if first + 1 < len(items) else ""
        return ListPage(items[first : first + 1], "1", more)


CORE: dict[str, list[dict[str, Any]]] = {
    "vpods": [],
    "statefulsets": [],
    "nodes": [],
    "namespaces": [],
    "pods": [],
}


def a_pool_with(*sources: dict[str, Any]) -> dict[str, Any]:
    spec = {"statefulSet": POOL, "slotsPerPod": SLOTS, "sources": list(sources)}
    return {"metadata": {"name": POOL, "namespace": NS}, "spec": spec}


async def test_objects_of_foreign_kinds_are_read_page_by_page():
    source = {"preset": "knative-consumergroup"}
    groups = [
        {"metadata": {"name": name, "namespace": "t"}, "spec": {"replicas": 2}} for name in "ab"
    ]
    api = Kinds(**CORE, adapterpools=[a_pool_with(source)], consumergroups=groups)
    manifests = await read_cluster(api, "plan")  # type: ignore[arg-type]
    assert sorted(manifests.state().pool(f"{NS}/{POOL}").vpods) == [
        f"t/{name}@consumergroup.internal.kafka.eventing.knative.dev" for name in "ab"
    ]


async def test_a_foreign_kind_that_is_not_served_is_told_and_the_rest_is_read(capsys):
    api = Kinds(**CORE, adapterpools=[a_pool_with({"preset": "knative-kafkasource"})])
    manifests = await read_cluster(api, "plan")  # type: ignore[arg-type]
    assert len(manifests.pools) == 1
    assert (
        "left out: the cluster does not serve kafkasources.sources.knative.dev"
        in capsys.readouterr().err
    )


async def test_an_object_that_cannot_be_read_is_left_out_and_told(capsys):
    strange = {"metadata": {"name": "a", "namespace": "t"}, "spec": {"vreplicas": 1}}
    api = Kinds(**{**CORE, "vpods": [strange]}, adapterpools=[a_pool_with()])
    manifests = await read_cluster(api, "explain")  # type: ignore[arg-type]
    assert manifests.vpods == []
    assert (
        "vreplica explain: left out: VPod t/a: spec.poolRef.name: is required"
        in capsys.readouterr().err
    )


async def test_a_series_of_events_stands_where_it_began_for_its_note_is_from_then():
    def event(reason: str, at: str, note: str, **more: Any) -> dict[str, Any]:
        regarding = {"kind": "VPod", "name": "a"}
        return {"reason": reason, "eventTime": at, "note": note, "regarding": regarding, **more}

    series = {"count": 9, "lastObservedTime": "2026-01-01T12:30:00.000000Z"}
    events = [
        event(
            "FailedScheduling",
            "2026-01-01T12:00:00.000000Z",
            "14 of 30 are not placed",
            series=series,
        ),
        event("Scheduled", "2026-01-01T12:10:00.000000Z", "all 30 are placed"),
    ]
    told = await history_from_events(Kinds(events=events), "vpod", "t/a")  # type: ignore[arg-type]
    assert [(one.at[11:16], one.why) for one in told] == [
        ("12:10", "event Scheduled"),
        ("12:00", "event FailedScheduling, again until 2026-01-01T12:30:00"),
    ]


async def test_of_events_that_end_in_an_error_the_newest_are_told_and_not_too_many():
    class Failing(Kinds):
        async def list_page(self, resource, *args, continue_token="", **more):
            if continue_token == "30":
                raise ApiError(410, "Expired", "the continue token has expired")
            page = super().list_page(resource, *args, continue_token=continue_token, **more)  # type: ignore[no-untyped-call]
            return await page

    regarding = {"kind": "VPod", "name": "a"}
    events = [
        {"eventTime": f"2026-01-01T12:{minute:02}:00.000000Z", "regarding": regarding}
        for minute in range(40)
    ]
    told = await history_from_events(Failing(events=events), "vpod", "t/a")  # type: ignore[arg-type]
    assert [one.at[14:16] for one in told] == [str(minute) for minute in range(29, 9, -1)]


async def test_how_far_the_reading_is_is_told(monkeypatch):
    monkeypatch.setattr("extender.cli.query.live.PAGE_OBJECTS", 2)
    nodes = [{"metadata": {"name": f"n{index}"}} for index in range(5)]
    told: list[str] = []
    api = Kinds(**{**CORE, "nodes": nodes}, adapterpools=[a_pool_with()])
    await read_cluster(api, "plan", told.append)  # type: ignore[arg-type]
    assert told == ["reading the cluster: 2 nodes", "reading the cluster: 4 nodes", "thinking"]


# -- completion ------------------------------------------------------------------------------------


async def completed(*typed: str, tries: int = 20) -> list[str]:
    """The words of ``vreplica __complete``, in a process of its own, as a shell starts it. On a
    busy machine it may have none within its two seconds, so somebody types again.
    """
    command = (sys.executable, "-m", "extender.cli.main", "__complete", *typed)
    words: list[str] = []
    while not words and tries:
        tries -= 1
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        words = [line for line in output.decode().splitlines() if not line.startswith(":")]
    return words


@pytest.mark.timeout(180)  # a completion that takes long gives up, and is tried again
async def test_a_shell_completes_the_names_of_objects(tmp_path):
    async with system(tmp_path) as running:
        await ask_for(running, "a", 4)
        await ask_for(running, "ab", 1)
        await waits_for(running, "a", 4)
        cluster = ("--kubeconfig", str(running.kubeconfig))
        tenant = ("-n", TENANT)
        assert await completed("explain", *cluster, *tenant, "a") == ["a", "ab"]
        assert f"pod/{POOL}-0" in await completed("explain", *cluster, "-n", NS, "pod/")
        assert TENANT in await completed("doctor", *cluster, "-n", "")
        assert f"{NS}/{POOL}" in await completed("plan", *cluster, "--pool", "")
        places = await completed("plan", *cluster, "--drain", "")
        assert {word.partition("/")[0] for word in places} == {"pod", "node", "zone"}
        no_such = await completed("explain", "--kubeconfig", str(tmp_path / "none"), "a", tries=1)
        assert no_such == [], "whatever goes wrong is not told while somebody types"


class Whole(Kinds):
    """One that has them in one page each, and tells nobody of VPods."""

    async def list_page(self, resource, *_args, **_more):
        await asyncio.sleep(0)
        if (items := self.objects.get(resource.plural)) is None:
            raise NotFound(404, "NotFound", "no such kind")
        return ListPage(items, "1", "")


async def test_objects_of_foreign_kinds_are_completed_by_the_name_that_explain_takes(
    monkeypatch: pytest.MonkeyPatch,
):
    def named(*names: str) -> list[dict[str, Any]]:
        return [{"metadata": {"name": name, "namespace": TENANT}} for name in names]

    sources = ({"preset": "knative-consumergroup"}, {"preset": "knative-kafkasource"})
    unserved = {"group": "example.com", "version": "v1", "resource": "things", "kind": "Thing"}
    unserved["paths"] = {"vreplicas": "spec.n", "placements": "status.p"}  # type: ignore[assignment]
    api = Whole(
        **{**CORE, "vpods": named("a")},
        adapterpools=[a_pool_with(unserved, *sources)],
        consumergroups=named("chan", "both"),
        kafkasources=named("both"),
    )

    @asynccontextmanager
    async def opened(_access: ClusterAccess) -> AsyncIterator[Any]:
        yield SimpleNamespace(api=api, namespace=TENANT)

    monkeypatch.setattr(object_names, "open_cluster", opened)
    monkeypatch.setattr(logging, "disable", lambda: None)
    assert await asyncio.to_thread(object_names.names, "explained", {}) == [
        "a",
        "chan",
        "both@consumergroup.internal.kafka.eventing.knative.dev",
        "both@kafkasource.sources.knative.dev",
    ]


async def test_names_are_completed_in_a_namespace_behind_more_objects_than_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(object_names, "NAMES_MAX", 1)
    monkeypatch.setattr(logging, "disable", lambda: None)
    async with system(tmp_path) as running:
        await create_namespace(running.local.cluster, "another-team")
        await ask_for(running, "theirs", 1, tenant="another-team")
        await ask_for(running, "ours", 1)
        given = {"kubeconfig": str(running.kubeconfig), "namespace": TENANT}
        assert await asyncio.to_thread(object_names.names, "explained", given) == ["ours"]
