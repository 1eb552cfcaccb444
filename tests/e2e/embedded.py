"""``EmbeddedBackend``: ``Backend`` over ``vreplica cluster``, the embedded cluster as a process of
its own.

Theory of operation. One process a scenario, so nothing needs cleaning up. It takes the schedulers'
configurations when it starts, and therefore starts with the first call that needs it;
``start_scheduler`` comes before. Its API is plain HTTP on loopback; a bearer token is the name of
the user. It stores RBAC objects and Deployments without acting on them, so the same manifests apply
to both.
"""

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, Self

import yaml

from extender.kube.api import NAMESPACES, NODES, Api, Obj, PatchType
from extender.kube.client import KubeApi
from tests.e2e.backend import apply_objects, nodes_ready
from tests.e2e.objects import (
    Source,
    Substitution,
    load,
    node,
    scheduler_configuration,
    write_json,
)
from tests.e2e.processes import VENV_BIN, Probe, Process, Processes, free_port

HEARTBEAT_ANNOTATION: Final = "vreplica.dev/heartbeat"
"""On a node of the embedded cluster, value ``stopped``: its kubelet stand-in is silent until the
annotation goes.
"""

CLUSTER: Final = (VENV_BIN / "vreplica", "cluster")


class EmbeddedBackend:
    """An embedded cluster for one scenario; an async context manager.

    ``program``: what is run as the cluster, with the options of ``vreplica cluster``.
    """

    def __init__(self, scenario_dir: Path, program: Sequence[str | Path] = CLUSTER) -> None:
        self._dir = scenario_dir
        self._program = program
        self._processes = Processes(scenario_dir / "logs")
        self._configs: list[Path] = []
        self.cluster: Process | None = None
        self._api: KubeApi | None = None
        self._nodes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._api is not None:
            await self._api.close()
        self._processes.stop_all(timeout_s=0.0)

    @property
    def name(self) -> Literal["real", "embedded"]:
        """As ``Backend``."""
        return "embedded"

    @property
    def kubeconfig(self) -> Path:
        """As ``Backend``; written when the cluster starts."""
        return self._dir / "admin.kubeconfig"

    @property
    def api(self) -> Api:
        """As ``Backend``. Raises AssertionError before the first call that starts the cluster."""
        assert self._api is not None, (
            "the embedded cluster starts with the first namespace, apply or add_nodes"
        )
        return self._api

    @property
    def processes(self) -> Processes:
        """As ``Backend``."""
        return self._processes

    def log_tails(self) -> str:
        """The scenario's logs, for a failure's report."""
        return self._processes.log_tails()

    async def start_scheduler(self, config: Source, *, kubeconfig: Path | None = None) -> None:
        """As ``Backend``: noted for the cluster's start."""
        content = scheduler_configuration(config, kubeconfig=kubeconfig or self.kubeconfig)
        self._add_config(content)

    async def start_legacy_scheduler(self, policy: Source) -> None:
        """As ``Backend``: noted for the cluster's start."""
        (content,) = load(policy)
        self._add_config(content)

    def _add_config(self, content: Obj) -> None:
        if self.cluster is not None:
            raise RuntimeError(
                "the embedded cluster takes its schedulers at its start: start them first"
            )
        self._configs.append(
            write_json(self._dir / f"scheduler-{len(self._configs)}.json", content)
        )

    async def start(self) -> Api:
        """Starts the cluster unless it runs. Raises ProcessFailed."""
        if self._api is not None:
            return self._api
        port = free_port()
        arguments: list[str | Path] = [*self._program, "--port", str(port)]
        arguments += ["--kubeconfig-out", self.kubeconfig]
        for config in self._configs:
            arguments += ["--scheduler-config", config]
        self.cluster = self._processes.start("cluster", arguments)
        await self.cluster.ready(Probe(f"http://127.0.0.1:{port}/readyz"))
        self._api = await KubeApi.connect(kubeconfig=str(self.kubeconfig), qps=1000.0, burst=2000)
        return self._api

    async def add_nodes(
        self, n: int, zones: int = 3, cpu: int = 8, slots: int | None = None
    ) -> list[str]:
        """As ``Backend``."""
        api = await self.start()
        names = []
        for _ in range(n):
            obj = node(self._nodes, zone=self._nodes % zones, cpu=cpu, slots=slots)
            self._nodes += 1
            await api.create(NODES, "", obj)
            names.append(str(obj["metadata"]["name"]))
        await nodes_ready(api, names)
        return names

    async def fail_node(self, name: str) -> None:
        """As ``Backend``: the annotation stops what stands in for the node's kubelet."""
        await self._heartbeat(name, "stopped")

    async def recover_node(self, name: str) -> None:
        """As ``Backend``."""
        await self._heartbeat(name, None)

    async def _heartbeat(self, name: str, value: str | None) -> None:
        patch: Obj = {"metadata": {"annotations": {HEARTBEAT_ANNOTATION: value}}}
        await self.api.patch(NODES, "", name, patch, patch_type=PatchType.MERGE)

    async def remove_node(self, name: str) -> None:
        """As ``Backend``."""
        await self.api.delete(NODES, "", name)

    async def namespace(self, prefix: str = "e2e", labels: dict[str, str] | None = None) -> str:
        """As ``Backend``."""
        api = await self.start()
        name = f"{prefix}-{secrets.token_hex(3)}"
        metadata = {"name": name, "labels": labels or {}}
        await api.create(
            NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        )
        return name

    async def apply(self, sources: Iterable[Source], *substitutions: Substitution) -> list[Obj]:
        """As ``Backend``."""
        return await apply_objects(await self.start(), sources, substitutions)

    async def token_for(self, service_account: str) -> Path:
        """As ``Backend``: the user's name is the token."""
        await self.start()
        namespace, _, name = service_account.partition("/")
        content = yaml.safe_load(self.kubeconfig.read_text())
        for user in content["users"]:
            user["user"] = {"token": f"system:serviceaccount:{namespace}:{name}"}
        return write_json(self._dir / f"{namespace}-{name}.kubeconfig", content)
