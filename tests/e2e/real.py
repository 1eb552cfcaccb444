"""``RealBackend``: ``Backend`` over ``ControlPlane``, which outlives it: one control plane serves
all scenarios of a session.

Theory of operation. What makes scenarios independent is the cleanup: stop what the scenario
started, take away the webhooks first (a dead webhook would slow or refuse the deletes), then the
owners before what they own, again until nothing is left. CRDs, RBAC and the namespaces of the
manifests stay: applying them again changes nothing, and deleting them costs seconds. Namespaces of
scenarios have names of their own and end in the background.
"""

import contextlib
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, Self

from extender.kube.api import NAMESPACES, NODES, PODS, Api, ListOptions, NotFound, Obj, PatchType
from extender.kube.client import KubeApi
from extender.model.names import API_VERSION, PLACEMENTS_ANNOTATION
from tests.e2e.backend import apply_objects, nodes_ready
from tests.e2e.controlplane import ControlPlane
from tests.e2e.objects import KWOK_LABEL, Source, Substitution, node, pod
from tests.e2e.processes import Process, Processes
from tests.e2e.raw import RawHttp
from tests.e2e.waiting import NotYet, eventually

CLEANUP_TIMEOUT_S: Final = 30.0
_SYSTEM_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_OWNERS_FIRST: Final = (
    f"/apis/{API_VERSION} vpods",
    f"/apis/{API_VERSION} adapterpools",
    "/apis/apps/v1 deployments",
    "/apis/apps/v1 replicasets",
    "/apis/apps/v1 statefulsets",
    "/api/v1 pods",
    "/apis/events.k8s.io/v1 events",
)
_OF_INSTALLATION: Final = ("/apis/coordination.k8s.io/v1 leases", "/api/v1 secrets")
_CLUSTER_SCOPED: Final = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
)


class RealBackend:
    """One scenario's use of a control plane; an async context manager that cleans up behind it."""

    def __init__(self, control_plane: ControlPlane, scenario_dir: Path) -> None:
        self.control_plane = control_plane
        self._dir = scenario_dir
        self._processes = Processes(scenario_dir / "logs")
        self._schedulers: list[Process] = []
        self._namespaces: list[str] = []
        self._nodes = 0
        self._api: KubeApi | None = None
        self.raw = RawHttp(control_plane.kubeconfig)

    async def __aenter__(self) -> Self:
        self._api = await KubeApi.connect(kubeconfig=str(self.kubeconfig), qps=1000.0, burst=2000)
        await self.raw.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            # How they end by themselves is for scenarios about it: the lease and all the rest are
            # deleted here.
            self._processes.stop_all(timeout_s=0.0)
            for scheduler in self._schedulers:
                if scheduler.returncode is None:
                    await scheduler.kill()
            await self._clean()
        finally:
            await self.raw.__aexit__()
            if self._api is not None:
                await self._api.close()

    @property
    def name(self) -> Literal["real", "embedded"]:
        """As ``Backend``."""
        return "real"

    @property
    def kubeconfig(self) -> Path:
        """As ``Backend``."""
        return self.control_plane.kubeconfig

    @property
    def api(self) -> Api:
        """As ``Backend``."""
        assert self._api is not None, "enter it first"
        return self._api

    @property
    def processes(self) -> Processes:
        """As ``Backend``."""
        return self._processes

    def log_tails(self) -> str:
        """The scenario's logs and the control plane's, for a failure's report."""
        return f"{self._processes.log_tails()}\n{self.control_plane.processes.log_tails()}"

    async def start_scheduler(
        self, config: Source, *, kubeconfig: Path | None = None, leader_elect: bool = False
    ) -> Process:
        """As ``Backend``; ``leader_elect`` as configured, for a scenario about its rights."""
        process = await self.control_plane.start_scheduler(
            config, kubeconfig=kubeconfig, leader_elect=leader_elect
        )
        self._schedulers.append(process)
        return process

    async def start_legacy_scheduler(self, policy: Source) -> Process:
        """As ``Backend``."""
        process = await self.control_plane.start_legacy_scheduler(policy)
        self._schedulers.append(process)
        return process

    async def add_nodes(
        self, n: int, zones: int = 3, cpu: int = 8, slots: int | None = None
    ) -> list[str]:
        """As ``Backend``."""
        names = []
        for _ in range(n):
            obj = node(
                next(self.control_plane.node_numbers),
                zone=self._nodes % zones,
                cpu=cpu,
                slots=slots,
            )
            self._nodes += 1
            await self.api.create(NODES, "", obj)
            names.append(str(obj["metadata"]["name"]))
        await nodes_ready(self.api, names)
        return names

    async def fail_node(self, name: str) -> None:
        """As ``Backend``: kwok lets go of the node, so its lease and status are renewed no more."""
        patch: Obj = {"metadata": {"labels": {KWOK_LABEL: None}}}
        await self.api.patch(NODES, "", name, patch, patch_type=PatchType.MERGE)

    async def recover_node(self, name: str) -> None:
        """As ``Backend``: kwok takes the node again, and without a phase it reports the node Ready
        as on the first day.
        """
        patch: Obj = {"metadata": {"labels": {KWOK_LABEL: "managed"}}, "status": {"phase": None}}
        await self.api.patch(NODES, "", name, patch, patch_type=PatchType.MERGE)
        await self.api.patch(
            NODES, "", name, patch, patch_type=PatchType.MERGE, subresource="status"
        )
        await self._recover_pods(name)

    async def _recover_pods(self, node: str) -> None:
        """A kubelet reports its pods Ready again, which the controllers had marked; kwok does so
        for a pod without address.
        """
        page = await self.api.list_page(PODS, ListOptions(field_selector=f"spec.nodeName={node}"))
        unreported: Obj = {"status": {"podIP": None, "podIPs": None}}
        for obj in page.items:
            metadata = obj["metadata"]
            with contextlib.suppress(NotFound):  # gone since it was listed
                await self.api.patch(
                    PODS,
                    metadata["namespace"],
                    metadata["name"],
                    unreported,
                    patch_type=PatchType.MERGE,
                    subresource="status",
                )

    async def remove_node(self, name: str) -> None:
        """As ``Backend``."""
        await self.api.delete(NODES, "", name)

    async def namespace(self, prefix: str = "e2e", labels: dict[str, str] | None = None) -> str:
        """As ``Backend``."""
        name = f"{prefix}-{secrets.token_hex(3)}"
        obj: Obj = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": labels or {}},
        }
        await self.api.create(NAMESPACES, "", obj)
        self._namespaces.append(name)
        return name

    async def apply(self, sources: Iterable[Source], *substitutions: Substitution) -> list[Obj]:
        """As ``Backend``."""
        return await apply_objects(self.api, sources, substitutions)

    async def token_for(self, service_account: str) -> Path:
        """As ``Backend``: by a TokenRequest, valid for an hour. Raises AssertionError with the
        server's words.
        """
        namespace, _, name = service_account.partition("/")
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = await self.raw.post(path, {"spec": {"expirationSeconds": 3600}})
        assert answer.status == 201, (
            f"no token for {service_account}: {answer.status} {answer.message}"
        )
        file = self._dir / f"{namespace}-{name}.kubeconfig"
        return self.control_plane.write_kubeconfig(file, answer.body["status"]["token"])

    async def _clean(self) -> None:
        for path in _CLUSTER_SCOPED:
            await self.raw.delete(path)
        await eventually(
            self._emptied, CLEANUP_TIMEOUT_S, "the scenario's objects are gone", interval_s=0.1
        )
        await self.raw.delete("/api/v1/nodes")
        await eventually(
            self._no_policy, CLEANUP_TIMEOUT_S, "no admission policy is in force", interval_s=0.1
        )
        classes = await self.raw.get("/apis/scheduling.k8s.io/v1/priorityclasses")
        for item in classes.body["items"]:
            if not item["metadata"]["name"].startswith("system-"):
                await self.raw.delete(
                    f"/apis/scheduling.k8s.io/v1/priorityclasses/{item['metadata']['name']}"
                )
        for name in self._namespaces:
            await self.raw.delete(f"/api/v1/namespaces/{name}")

    async def _emptied(self) -> bool:
        """Deletes all that is left, and tells what that was: a controller may have made more
        meanwhile.
        """
        left: list[str] = []
        listed = await self.raw.get("/api/v1/namespaces")
        namespaces = {str(item["metadata"]["name"]) for item in listed.body["items"]}
        for entry in _OWNERS_FIRST:
            left += await self._delete_all(entry)
        for namespace in namespaces - _SYSTEM_NAMESPACES:
            for entry in _OF_INSTALLATION:
                prefix, plural = entry.split()
                await self.raw.delete(f"{prefix}/namespaces/{namespace}/{plural}")
        if left:
            raise NotYet(f"{len(left)} left: {left[:10]}")
        return True

    async def _no_policy(self) -> bool:
        """The API server forgets policies once a second, maybe not all at once: the next scenario
        may be about facts of Kubernetes.
        """
        forged = pod("default", "probe", nodeName="nowhere")
        binding: Obj = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "probe", "namespace": "default"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
        }
        pods = "/api/v1/namespaces/default/pods"
        for path, body in ((pods, forged), (f"{pods}/probe/binding", binding)):
            body["metadata"] |= {"annotations": {PLACEMENTS_ANNOTATION: '{"no/body":1}'}}
            answer = await self.raw.request("POST", path, body, query={"dryRun": "All"})
            if "ValidatingAdmissionPolicy" in answer.message:
                raise NotYet(answer.message)
        return True

    async def _delete_all(self, entry: str) -> list[str]:
        prefix, plural = entry.split()
        listed = await self.raw.get(f"{prefix}/{plural}")
        if listed.status == 404:  # the scenario applied no CRDs
            return []
        if listed.status == 429:  # it has just changed them: their storage is made anew
            return [f"{plural}: {listed.message}"]
        items = listed.body["items"]
        now = {"gracePeriodSeconds": 0}
        for namespace in {item["metadata"]["namespace"] for item in items}:
            await self.raw.delete(f"{prefix}/namespaces/{namespace}/{plural}", now)
        return [
            f"{plural} {item['metadata']['namespace']}/{item['metadata']['name']}" for item in items
        ]
