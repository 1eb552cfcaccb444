"""``LocalCluster`` and ``LocalSystem``: the embedded cluster over HTTP, and the whole product on
it.

The parts are connected as in a real cluster. The service and the webhook reach the API server
through the real client over HTTP, as the ServiceAccounts of the manifests. The API server calls the
webhook over HTTPS, with the CA bundle that the webhook has registered. The scheduler loop reads the
shipped KubeSchedulerConfiguration and calls the extender over HTTP.
"""

import asyncio
import json
import random
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from extender.config.kube_scheduler import SchedulerConfig
from extender.config.kube_scheduler_file import load_configuration
from extender.config.model import (
    AdaptersConfig,
    ClientConnectionConfig,
    Config,
    LeaderElectionConfig,
    ServerConfig,
    ServingTlsConfig,
)
from extender.kube.api import (
    CRDS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    VALIDATING_WEBHOOKS,
    AlreadyExists,
    Api,
    Obj,
    Resource,
)
from extender.kube.client import KubeApi
from extender.kube.serving.sockets import host_port
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.webhooks import HttpWebhookCaller
from extender.lab.embedded import EVICTION_WEBHOOK, ControllerSettings, EmbeddedCluster
from extender.lab.http.server import HttpApiServer
from extender.lab.informer import Informer
from extender.lab.scheduler.extender_transport import AiohttpTransport
from extender.lab.scheduler.scheduler import Scheduler
from extender.lab.scheduler.select_host import SELECTORS, host_selector
from extender.model.names import OWN_NAMESPACE
from extender.model.objects import Node
from extender.service.app import Service
from extender.shipped import manifests
from webhook.cli import Webhook
from webhook.settings import Settings
from webhook.x509 import first_certificate_in, new_authority, new_serving

SERVICE_USER: Final = "system:serviceaccount:vreplica-system:vreplica-scheduler"
WEBHOOK_USER: Final = "system:serviceaccount:vreplica-system:vreplica-webhook"
HEARTBEAT_ANNOTATION: Final = "vreplica.dev/heartbeat"
"""On a node of the embedded cluster: ``stopped`` cuts its power, any other value restores it."""
LOOPBACK_HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.02

_KINDS: Final[dict[str, Resource]] = {
    "CustomResourceDefinition": CRDS,
    "MutatingWebhookConfiguration": MUTATING_WEBHOOKS,
    "ValidatingWebhookConfiguration": VALIDATING_WEBHOOKS,
}


class LocalCluster:
    """The embedded cluster with its controllers and an HTTP server. Schedulers can be added. An
    async context manager.
    """

    def __init__(
        self,
        *,
        seed: int,
        host: str = LOOPBACK_HOST,
        port: int = 0,
        select_host: str = SELECTORS[0],
    ) -> None:
        """``select_host``: how its schedulers choose among equal nodes (``SELECTORS``)."""
        self._select_host = select_host
        self._rng = random.Random(seed)
        self.cluster = Cluster(now=time.time, rng=self._rng)
        self.embedded = EmbeddedCluster(
            self.cluster,
            ControllerSettings(
                pod_start_delay_s=lambda _pod: self._rng.uniform(0.05, 0.25),
                pod_stop_delay_s=lambda _pod: 0.1,
                node_monitor_grace_s=2.0,
                volumes=True,
            ),
        )
        self.server = HttpApiServer(self.cluster, host, port, webhooks=HttpWebhookCaller())
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        await self.server.start()
        self._stack.push_async_callback(self.server.stop)
        await self._stack.enter_async_context(self.embedded)
        nodes = Informer(self.cluster, NODES)
        nodes.on_change(self._follow_heartbeat)
        self.spawn(nodes.run(), "heartbeats")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.end_tasks()
        await self._stack.__aexit__(kind, error, trace)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task until the cluster ends. An earlier error is raised by ``check``."""
        self._tasks.append(asyncio.create_task(coroutine, name=name))

    def check(self) -> None:
        """Raise the error that ended a spawned task, if any."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def end_tasks(self) -> None:
        """End the spawned tasks while everything that they need still runs. Code that has added to
        the cluster must call this first.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start_scheduler(self, config: SchedulerConfig) -> None:
        """Run kube-scheduler's loop."""
        transport = AiohttpTransport(config.extenders)
        self._stack.push_async_callback(transport.close)
        user = self.cluster.as_user(
            "system:kube-scheduler", ("system:masters", "system:authenticated")
        )
        scheduler = Scheduler(
            user,
            config,
            now=time.time,
            rng=self._rng,
            transport=transport,
            select_host=host_selector(self._select_host, self._rng),
        )
        self.spawn(scheduler.run(), "kube-scheduler")

    def write_kubeconfig(self, path: Path, token: str = "") -> Path:
        """Write a kubeconfig for admin, or for the user that ``token`` names."""
        path.write_text(json.dumps(self.server.kubeconfig(token), indent=1) + "\n")
        return path

    def _follow_heartbeat(self, _before: Obj | None, node: Obj | None) -> None:
        if node is None:
            return
        name, annotations = node["metadata"]["name"], node["metadata"].get("annotations") or {}
        stopped = annotations.get(HEARTBEAT_ANNOTATION) == "stopped"
        if stopped and self.embedded.heartbeats.alive(name):
            self.embedded.fail_node(name)
        elif not stopped and not self.embedded.heartbeats.alive(name):
            self.embedded.recover_node(name)


@dataclass(frozen=True, slots=True)
class AdapterAccess:
    """How adapters reach the service. ``directory``: for their tokens."""

    url: str
    ca_file: Path
    directory: Path


class LocalSystem:
    """A ``LocalCluster`` with the CRDs, the webhook, the service and its kube-scheduler. An async
    context manager.
    """

    def __init__(
        self, *, seed: int, directory: Path, host: str = LOOPBACK_HOST, adapters: bool = False
    ) -> None:
        """Everything listens on the address ``host``, and is reached there. ``adapters``: whether
        the service has a listener for adapters, and evictions wait for them.
        """
        self._host = host
        self._adapters = adapters
        self.adapter_access: AdapterAccess | None = None
        self.local = LocalCluster(seed=seed, host=host)
        self.service: Service | None = None
        self.kubeconfig = directory / "kubeconfig"
        self._rng = random.Random(seed + 1)
        self._directory = directory
        self._stack = AsyncExitStack()
        self._stop_webhook = asyncio.Event()

    @property
    def running(self) -> Service:
        """The service. Raises RuntimeError before the start."""
        if self.service is None:
            raise RuntimeError("the local system has not been started")
        return self.service

    def node_of(self, name: str) -> Node | None:
        """Return a node as the service sees it; None if it is unknown."""
        return self.running.caches.nodes.get(name)

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        await self._stack.enter_async_context(self.local)
        self.local.write_kubeconfig(self.kubeconfig)
        for name in (
            "crds/adapterpools.yaml",
            "crds/vpods.yaml",
            "crds/vreplicaquotas.yaml",
            "base/webhook-configurations.yaml",
        ):
            documents = deepcopy(manifests(name))
            if self._adapters:
                _add_evictions(documents)
            await create_all(self.local.cluster, documents)
        await create_namespace(self.local.cluster, OWN_NAMESPACE)
        for lease in deepcopy(manifests("base/lease.yaml")):
            await self.local.cluster.create(LEASES, OWN_NAMESPACE, lease)
        async with asyncio.timeout(START_TIMEOUT_S):
            await self._start_webhook()
            await self._start_service()
        self.local.start_scheduler(self._scheduler_config())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_webhook.set()
        # The service releases its Lease and writes its last events through API sessions that the
        # stack closes.
        await self.local.end_tasks()
        await self._stack.__aexit__(kind, error, trace)

    async def _connect(self, user: str) -> KubeApi:
        path = self.local.write_kubeconfig(
            self._directory / f"{user.rpartition(':')[2]}.kubeconfig", user
        )
        api = await KubeApi.connect(kubeconfig=str(path), qps=2000, burst=4000)
        self._stack.push_async_callback(api.close)
        return api

    async def _start_webhook(self) -> None:
        port = await _free_port(self._host)
        settings = replace(
            Settings(),
            host=self._host,
            port=port,
            cert_dir=str(self._directory / "webhook-certificates"),
            url=f"https://{host_port(self._host, port)}",
        )
        webhook = Webhook(settings, await self._connect(WEBHOOK_USER))
        self.local.spawn(webhook.run(self._stop_webhook), "webhook")
        while not await self._registered(settings.url):
            self.local.check()
            await asyncio.sleep(POLL_S)

    async def _registered(self, url: str) -> bool:
        found = await self.local.cluster.get(MUTATING_WEBHOOKS, "", "vreplica-scheduler")
        client = found["webhooks"][0]["clientConfig"]
        return bool(client.get("caBundle")) and str(client.get("url", "")).startswith(url)

    async def _start_service(self) -> None:
        config = Config(
            server=ServerConfig(host=self._host, port=0),
            adapters=await self._adapters_config() if self._adapters else AdaptersConfig(),
            leader_election=LeaderElectionConfig(resource_namespace=OWN_NAMESPACE),
            client_connection=ClientConnectionConfig(),
        )
        self.service = Service(
            await self._connect(SERVICE_USER), config, now=time.time, rng=self._rng
        )
        self.local.spawn(self.service.run(), "service")
        while (
            not self.service.server.url
            or self.service.health.problems()
            or not self.service.leadership.has_begun()
        ):
            self.local.check()
            await asyncio.sleep(POLL_S)

    async def _adapters_config(self) -> AdaptersConfig:
        """Make an authority and a certificate for the listener for adapters."""
        now = datetime.now(UTC)
        authority = new_authority(now)
        certificate = first_certificate_in(authority.cert_pem)
        assert certificate is not None
        serving = new_serving(certificate, authority.key_pem, [self._host], now)
        files = {"ca.crt": authority.cert_pem, "crt": serving.cert_pem, "key": serving.key_pem}
        paths = {name: self._directory / f"adapters.{name}" for name in files}
        for name, pem in files.items():
            paths[name].write_bytes(pem)
        port = await _free_port(self._host)
        url = f"https://{host_port(self._host, port)}"
        self.adapter_access = AdapterAccess(url, paths["ca.crt"], self._directory)
        tls = ServingTlsConfig(cert_file=str(paths["crt"]), key_file=str(paths["key"]))
        return AdaptersConfig(host=self._host, port=port, tls=tls)

    def _scheduler_config(self) -> SchedulerConfig:
        (document,) = deepcopy(manifests("kube-scheduler/config.yaml"))
        for extender in document["extenders"]:
            extender["urlPrefix"] = f"{self.running.server.url}/v1"
        return load_configuration(json.dumps(document))


def _add_evictions(documents: Sequence[Obj]) -> None:
    """Register the webhook for evictions, as the chart does where adapters are served."""
    for document in documents:
        if document["kind"].startswith("Validating"):
            document["webhooks"].append(deepcopy(EVICTION_WEBHOOK["webhooks"][0]))


async def create_all(api: Api, objects: Sequence[Obj]) -> None:
    """Create cluster-scoped objects of the kinds that the demonstration needs."""
    for obj in objects:
        await api.create(_KINDS[obj["kind"]], "", obj)


async def create_namespace(api: Api, name: str) -> None:
    """Create a namespace unless it exists."""
    try:
        await api.create(
            NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
    except AlreadyExists:
        return


async def _free_port(host: str) -> int:
    """Return a free port. The webhook must know its own URL before it listens. Another process
    could take the port in between.
    """
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), host, 0)
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    return port
