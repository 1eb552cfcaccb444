"""The harness itself, and the facts about Kubernetes that the design rests on, over plain HTTP.

What names ``backend`` holds on the real control plane and on the embedded one alike: the second
column is the proof that the embedded cluster answers as Kubernetes does where we depend on it.
"""

import asyncio
import os
import shutil
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from extender.kube.api import NODES, PODS, SECRETS, ListOptions, NotFound, Obj, PatchType
from extender.model.names import PLACEMENTS_ANNOTATION, ZONE_LABEL
from tests.e2e import build
from tests.e2e.backend import Backend, node_failed, nodes_ready, pods_ready
from tests.e2e.controlplane import ControlPlane
from tests.e2e.objects import (
    MANIFESTS,
    extender_at,
    load,
    pod,
    resource_of,
    stateful_set,
    substituted,
    webhook_at,
    without,
)
from tests.e2e.processes import Probe, Processes, ProcessFailed, free_port
from tests.e2e.raw import Answer, RawHttp
from tests.e2e.real import RealBackend
from tests.e2e.waiting import NotYet, eventually

JSON_PATCH = "application/json-patch+json"
DEFAULT_SCHEDULER: Obj = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}
POLICY: Obj = {
    "kind": "Policy",
    "apiVersion": "v1",
    "predicates": [{"name": "PodFitsResources"}, {"name": "PodToleratesNodeTaints"}],
    "priorities": [{"name": "TaintTolerationPriority", "weight": 1}],
}


@pytest.fixture
async def raw(backend: Backend) -> AsyncIterator[RawHttp]:
    """Plain HTTP to the back end as administrator; starts the embedded one with what the test asked
    for so far.
    """
    await backend.namespace()
    async with RawHttp(backend.kubeconfig) as http:
        yield http


async def _created_pod(raw: RawHttp, namespace: str, name: str = "adapter-0") -> Obj:
    answer = await raw.post(f"/api/v1/namespaces/{namespace}/pods", pod(namespace, name))
    assert answer.status == 201, answer
    body: Obj = answer.body
    return body


async def _bind(raw: RawHttp, created: Obj, node: str, **metadata: Any) -> Answer:
    name, namespace = created["metadata"]["name"], created["metadata"]["namespace"]
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return await raw.post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", binding)


class TestFactsOfBinding:
    """DESIGN 3: what makes a bind the commit of its vreplicas."""

    async def test_annotations_of_a_binding_land_in_the_same_version_as_the_node(
        self, backend: Backend, raw: RawHttp
    ):
        namespace = await backend.namespace()
        (node,) = await backend.add_nodes(1)
        created = await _created_pod(raw, namespace)
        answer = await _bind(raw, created, node, annotations={PLACEMENTS_ANNOTATION: '{"t/a":3}'})
        assert answer.status == 201, answer
        versions = [
            event["object"]
            for event in await _history(raw, namespace, created["metadata"]["resourceVersion"])
            if event["object"]["spec"].get("nodeName")
        ]
        assert versions[0]["spec"]["nodeName"] == node
        assert versions[0]["metadata"]["annotations"][PLACEMENTS_ANNOTATION] == '{"t/a":3}'

    async def test_annotations_of_a_binding_leave_others_alone(
        self, backend: Backend, raw: RawHttp
    ):
        namespace = await backend.namespace()
        (node,) = await backend.add_nodes(1)
        created = await _created_pod(raw, namespace)
        path = f"/api/v1/namespaces/{namespace}/pods/adapter-0"
        note = {"metadata": {"annotations": {"example.com/note": "kept"}}}
        await raw.request("PATCH", path, note, content_type="application/merge-patch+json")
        await _bind(raw, created, node, annotations={PLACEMENTS_ANNOTATION: "{}"})
        annotations = (await raw.get(path)).body["metadata"]["annotations"]
        assert annotations == {"example.com/note": "kept", PLACEMENTS_ANNOTATION: "{}"}

    @pytest.mark.parametrize(
        "precondition",
        [
            pytest.param({"uid": "00000000-0000-0000-0000-000000000000"}, id="uid of another pod"),
            pytest.param({"resourceVersion": "1"}, id="stale version"),
        ],
    )
    async def test_a_binding_with_a_stale_precondition_is_a_conflict_and_changes_nothing(
        self, backend: Backend, raw: RawHttp, precondition: dict[str, str]
    ):
        namespace = await backend.namespace()
        (node,) = await backend.add_nodes(1)
        created = await _created_pod(raw, namespace)
        answer = await _bind(
            raw, created, node, annotations={PLACEMENTS_ANNOTATION: "{}"}, **precondition
        )
        assert (answer.status, answer.body["reason"]) == (409, "Conflict"), answer
        stored = (await raw.get(f"/api/v1/namespaces/{namespace}/pods/adapter-0")).body
        assert stored["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]

    async def test_a_binding_with_the_current_uid_and_version_is_taken(
        self, backend: Backend, raw: RawHttp
    ):
        namespace = await backend.namespace()
        (node,) = await backend.add_nodes(1)
        created = await _created_pod(raw, namespace)
        metadata = created["metadata"]
        answer = await _bind(
            raw, created, node, uid=metadata["uid"], resourceVersion=metadata["resourceVersion"]
        )
        assert answer.status == 201, answer

    async def test_a_second_binding_is_a_conflict_also_to_the_same_node(
        self, backend: Backend, raw: RawHttp
    ):
        namespace = await backend.namespace()
        (node,) = await backend.add_nodes(1)
        created = await _created_pod(raw, namespace)
        await _bind(raw, created, node)
        second = await _bind(raw, created, node, annotations={PLACEMENTS_ANNOTATION: '{"t/a":1}'})
        assert second.status == 409, second
        assert f'already assigned to node "{node}"' in second.message
        stored = (await raw.get(f"/api/v1/namespaces/{namespace}/pods/adapter-0")).body
        assert PLACEMENTS_ANNOTATION not in stored["metadata"].get("annotations", {})

    async def test_a_json_patch_whose_test_fails_answers_422_and_changes_nothing(
        self, backend: Backend, raw: RawHttp
    ):
        namespace = await backend.namespace()
        created = await _created_pod(raw, namespace)
        path = f"/api/v1/namespaces/{namespace}/pods/adapter-0"
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": "another"},
            {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        ]
        answer = await raw.request("PATCH", path, operations, content_type=JSON_PATCH)
        assert (answer.status, answer.body["reason"]) == (422, "Invalid"), answer
        stored = (await raw.get(path)).body
        assert stored["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def _history(raw: RawHttp, namespace: str, version: str) -> list[Obj]:
    """Watch events of the namespace's pods after ``version``, as many as come within a second."""
    return await raw.watch(f"/api/v1/namespaces/{namespace}/pods", version, timeout_s=1)


class TestCluster:
    """Nodes, controllers and schedulers do what scenarios rely on."""

    async def test_nodes_are_ready_in_their_zones(self, backend: Backend):
        names = await backend.add_nodes(6, zones=3, slots=40)
        nodes = {obj["metadata"]["name"]: obj for obj in (await backend.api.list_page(NODES)).items}
        assert sorted(nodes) == sorted(names)
        zones = [nodes[name]["metadata"]["labels"][ZONE_LABEL] for name in names]
        assert zones == ["zone-0", "zone-1", "zone-2"] * 2
        assert nodes[names[0]]["status"]["allocatable"]["vreplica.dev/slots"] == "40"

    async def test_a_stateful_set_gets_its_pods_and_without_a_scheduler_they_wait(
        self, backend: Backend
    ):
        namespace = await backend.namespace()
        await backend.apply([stateful_set(namespace, "dispatcher", 3)])

        async def names() -> bool:
            page = await backend.api.list_page(PODS, ListOptions(namespace=namespace))
            found = sorted(str(obj["metadata"]["name"]) for obj in page.items)
            if found != ["dispatcher-0", "dispatcher-1", "dispatcher-2"]:
                raise NotYet(str(found))
            return all(not obj["spec"].get("nodeName") for obj in page.items)

        await eventually(names, 15.0, "three pending pods")

    async def test_the_default_scheduler_binds_and_the_kubelet_makes_ready(self, backend: Backend):
        await backend.start_scheduler(DEFAULT_SCHEDULER)
        await backend.add_nodes(3)
        namespace = await backend.namespace()
        await backend.apply([stateful_set(namespace, "dispatcher", 6)])
        pods = await pods_ready(backend.api, namespace, "app=dispatcher", 6)
        assert len({obj["spec"]["nodeName"] for obj in pods}) == 3

    async def test_a_kubelet_that_lives_makes_a_pod_ready_again_that_was_marked_as_not(
        self, backend: Backend
    ):
        await backend.start_scheduler(DEFAULT_SCHEDULER)
        await backend.add_nodes(1)
        namespace = await backend.namespace()
        await backend.apply([stateful_set(namespace, "dispatcher", 1)])
        (obj,) = await pods_ready(backend.api, namespace, "app=dispatcher", 1)
        others = [item for item in obj["status"]["conditions"] if item["type"] != "Ready"]
        marked: Obj = {"status": {"conditions": [*others, {"type": "Ready", "status": "False"}]}}
        await backend.api.patch(
            PODS,
            namespace,
            "dispatcher-0",
            marked,
            patch_type=PatchType.MERGE,
            subresource="status",
        )
        (again,) = await pods_ready(backend.api, namespace, "app=dispatcher", 1)
        assert again["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]
        assert {item["type"] for item in others} < {
            item["type"] for item in again["status"]["conditions"]
        }

    async def test_the_scheduler_of_1_22_takes_a_policy_file_and_binds(self, backend: Backend):
        await backend.start_legacy_scheduler(POLICY)
        await backend.add_nodes(2)
        namespace = await backend.namespace()
        await backend.apply([pod(namespace, "old")])

        async def bound() -> bool:
            stored = await backend.api.get(PODS, namespace, "old")
            if not stored["spec"].get("nodeName"):
                raise NotYet(str(stored["status"]))
            return True

        await eventually(bound, 15.0, "bound by 1.22")

    async def test_a_node_that_goes_silent_is_marked_alone_until_it_is_heard_of_again(
        self, backend: Backend
    ):
        first, *others = await backend.add_nodes(3)
        await backend.fail_node(first)
        await node_failed(backend.api, first)
        for name in others:
            assert not (await backend.api.get(NODES, "", name))["spec"].get("taints")
        await backend.recover_node(first)
        await nodes_ready(backend.api, [first])


class TestRealControlPlane:
    """What only the real one has: TLS, RBAC, audit, and a cleanup between scenarios."""

    async def test_without_credentials_nothing_is_answered(self, control_plane: ControlPlane):
        async with aiohttp.ClientSession() as session:
            tls = control_plane.pki.ssl_context()
            async with session.get(f"{control_plane.url}/api/v1/pods", ssl=tls) as answer:
                assert answer.status == 401

    async def test_its_certificate_is_not_trusted_by_others(self, control_plane: ControlPlane):
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(control_plane.url, ssl=ssl.create_default_context())

    async def test_a_service_account_has_only_the_rights_it_was_given_and_is_audited(
        self, real: RealBackend, control_plane: ControlPlane
    ):
        namespace = await real.namespace()
        user = f"system:serviceaccount:{namespace}:reader"
        role = {"name": "pods", "namespace": namespace}
        await real.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {**role, "name": "reader"},
                },
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "Role",
                    "metadata": role,
                    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
                },
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "RoleBinding",
                    "metadata": role,
                    "roleRef": {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "Role",
                        "name": "pods",
                    },
                    "subjects": [
                        {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
                    ],
                },
            ]
        )
        async with RawHttp(await real.token_for(f"{namespace}/reader")) as reader:

            async def may_list() -> bool:
                return (await reader.get(f"/api/v1/namespaces/{namespace}/pods")).status == 200

            await eventually(may_list, 5.0, "RBAC knows the role")
            assert (await reader.get("/api/v1/nodes")).status == 403
        codes = {
            (event["objectRef"]["resource"], event["responseStatus"]["code"])
            for event in control_plane.audit_events(user)
        }
        assert {("pods", 200), ("nodes", 403)} <= codes

    async def test_the_shipped_manifests_are_taken_and_taken_again(self, real: RealBackend):
        first = await real.apply([MANIFESTS / "base"], without("Deployment"))
        second = await real.apply([MANIFESTS / "base"], without("Deployment"))
        assert {obj["kind"] for obj in first} >= {
            "CustomResourceDefinition",
            "ClusterRole",
            "Namespace",
        }
        unchanged = [
            obj["metadata"]["generation"] for obj in second if obj["kind"].endswith("Configuration")
        ]
        assert unchanged == [1, 1]
        for account in [
            obj["metadata"]["name"] for obj in first if obj["kind"] == "ServiceAccount"
        ]:
            assert (await real.token_for(f"vreplica-system/{account}")).exists()

    async def test_both_schedulers_take_the_shipped_configurations(self, real: RealBackend):
        await real.start_scheduler(MANIFESTS / "kube-scheduler" / "config.yaml")
        await real.start_legacy_scheduler(MANIFESTS / "kube-scheduler" / "policy.json")

    async def test_a_scenario_leaves_no_pods_nodes_or_secrets_behind(
        self, control_plane: ControlPlane, tmp_path: Path
    ):
        async with RealBackend(control_plane, tmp_path / "first") as first:
            await first.start_scheduler(DEFAULT_SCHEDULER)
            names = set(await first.add_nodes(2))
            namespace = await first.namespace()
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "s", "namespace": namespace},
            }
            await first.apply([stateful_set(namespace, "dispatcher", 3), secret])
            await pods_ready(first.api, namespace, "app=dispatcher", 3)
        async with RealBackend(control_plane, tmp_path / "second") as second:
            for resource in (PODS, NODES):
                assert (await second.api.list_page(resource)).items == []
            assert names.isdisjoint(await second.add_nodes(2)), "kwok would forget the others"
            with pytest.raises(NotFound):
                await second.api.get(SECRETS, namespace, "s")
            assert all(
                "scheduler" not in process.name for process in control_plane.processes.running
            )


class TestProcesses:
    """Nothing is left behind, and failures say why."""

    async def test_what_a_killed_run_started_dies_with_it(self, tmp_path: Path):
        program = (
            "import os, signal, sys\n"
            "from pathlib import Path\n"
            "from tests.e2e.processes import Processes\n"
            "started = Processes(Path(sys.argv[1])).start('child', ['sh', '-c', 'sleep 100 & echo "
            "$!; wait'])\n"
            "log = Path(sys.argv[1]) / 'child.log'\n"
            "while not log.read_text().strip(): pass\n"
            "print(started.pid, log.read_text().strip(), flush=True)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        run = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            str(tmp_path),
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        out, _ = await run.communicate()
        assert run.returncode == -signal.SIGKILL
        pids = [int(word) for word in out.split()]
        assert len(pids) == 2

        async def dead() -> bool:
            alive = [pid for pid in pids if not _is_dead(pid)]
            if alive:
                raise NotYet(f"alive: {alive}")
            return True

        await eventually(dead, 5.0, "the child and its child are dead")

    async def test_a_program_that_ends_early_fails_the_wait_with_the_end_of_its_log(
        self, tmp_path: Path
    ):
        processes = Processes(tmp_path)
        process = processes.start("broken", ["sh", "-c", "echo no such flag; exit 3"])
        with pytest.raises(ProcessFailed, match=r"broken ended with 3:\nno such flag"):
            await process.ready(Probe(f"http://127.0.0.1:{free_port()}/readyz"), timeout_s=10.0)
        processes.stop_all()

    async def test_a_program_that_ignores_sigterm_is_killed(self, tmp_path: Path):
        processes = Processes(tmp_path)
        process = processes.start(
            "stubborn", ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"]
        )

        async def up() -> bool:
            return "up" in process.log_tail()

        await eventually(up, 5.0)
        if sys.platform == "linux":
            assert process.peak_memory_bytes() > 100_000
        assert await process.terminate(timeout_s=0.2) == -signal.SIGKILL
        assert processes.running == ()
        processes.stop_all()

    async def test_a_wait_in_vain_tells_what_it_saw_last(self):
        async def three_pods() -> bool:
            raise NotYet("2 pods: a-0, a-1")

        with pytest.raises(
            TimeoutError, match=r"three pods: not so within 0.1 s .* last seen: 2 pods: a-0, a-1"
        ):
            await eventually(three_pods, 0.1, "three pods")


def _is_dead(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A dead child of a dead parent may wait for its new parent to notice.
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z"


class TestBuild:
    """Where the programs come from."""

    def test_without_go_and_without_a_folder_it_says_so_and_ends_well(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        monkeypatch.delenv(build.BIN_VARIABLE, raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path))
        assert build.main([]) == 0
        with pytest.raises(build.ControlPlaneUnavailable) as reason:
            build.ready_binaries()
        assert "Go is not installed" in str(reason.value)
        assert str(reason.value) in capsys.readouterr().out

    def test_a_named_folder_that_lacks_a_program_is_an_error_not_a_skip(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        monkeypatch.setenv(build.BIN_VARIABLE, str(tmp_path))
        with pytest.raises(build.BuildFailed, match="no program etcd"):
            build.ready_binaries()

    def test_another_go_sum_is_another_folder(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        before = build.KWOK.target()
        shutil.copytree(build.MODULES_DIR / "kwok", tmp_path / "kwok")
        monkeypatch.setattr(build, "MODULES_DIR", tmp_path)
        assert build.KWOK.target() == before
        with (tmp_path / "kwok" / "go.sum").open("a") as out:
            out.write("\n")
        assert build.KWOK.target() != before

    def test_without_a_version_it_is_the_newest(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delenv(build.VERSION_VARIABLE, raising=False)
        assert build.kubernetes_module().folder == build.VERSIONS[-1]

    def test_each_version_builds_the_kubernetes_of_its_name(self, monkeypatch: pytest.MonkeyPatch):
        for version in build.VERSIONS:
            monkeypatch.setenv(build.VERSION_VARIABLE, version)
            assert build.kubernetes_module().kubernetes.startswith(f"v{version}.")

    def test_a_version_without_a_module_is_refused_with_those_that_have_one(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        monkeypatch.setenv(build.VERSION_VARIABLE, "1.12")
        assert build.main([]) == 1
        assert (
            f"KUBERNETES=1.12: there are modules for {', '.join(build.VERSIONS)}"
            in capsys.readouterr().out
        )


class TestObjects:
    """The small changes that the suite makes to shipped files."""

    def test_a_webhook_is_reached_by_url_with_its_own_path(self):
        hook = {"name": "a", "clientConfig": {"service": {"name": "w", "path": "/mutate"}}}
        configuration = {"kind": "MutatingWebhookConfiguration", "webhooks": [hook]}
        (changed,) = substituted([configuration], [webhook_at("https://127.0.0.1:1/", b"ca")])
        assert changed["webhooks"][0]["clientConfig"] == {
            "url": "https://127.0.0.1:1/mutate",
            "caBundle": "Y2E=",
        }

    def test_dropped_kinds_are_not_applied_and_the_rest_is_untouched(self):
        objects: list[Obj] = [{"kind": "Deployment"}, {"kind": "Role"}]
        assert substituted([*objects], [without("Deployment")]) == [{"kind": "Role"}]

    def test_an_extender_keeps_its_path_at_another_url(self):
        config = {"extenders": [{"urlPrefix": "http://127.0.0.1:10261/v1", "weight": 1}]}
        (changed,) = extender_at(config, "http://127.0.0.1:7", nodeCacheCapable=False)["extenders"]
        assert changed == {
            "urlPrefix": "http://127.0.0.1:7/v1",
            "weight": 1,
            "nodeCacheCapable": False,
        }

    def test_a_folder_is_read_in_its_kustomization_s_order(self, tmp_path: Path):
        (tmp_path / "kustomization.yaml").write_text(
            "kind: Kustomization\nresources: [b.yaml, a.yaml]\n"
        )
        (tmp_path / "a.yaml").write_text("kind: A\n---\nkind: List\nitems: [{kind: C}]\n")
        (tmp_path / "b.yaml").write_text("kind: B\n")
        assert [obj["kind"] for obj in load(tmp_path)] == ["B", "A", "C"]

    @pytest.mark.parametrize(
        ("api_version", "kind", "plural"),
        [
            pytest.param("v1", "Pod", "pods", id="core"),
            pytest.param("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", id="y"),
            pytest.param("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", id="s"),
            pytest.param("vreplica.dev/v1alpha1", "VPod", "vpods", id="ours"),
        ],
    )
    def test_the_plural_follows_kubernetes_own_rule(self, api_version: str, kind: str, plural: str):
        resource = resource_of({"apiVersion": api_version, "kind": kind})
        assert (resource.plural, resource.api_version) == (plural, api_version)
