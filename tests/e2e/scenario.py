"""``System``: the shipped manifests, our two programs and a kube-scheduler on a back end, and what
scenarios do with them.

Theory of operation. ``async with System(backend, tmp_path, Setup(...))`` is an installation as a
user makes it, in an order that both back ends allow: kube-scheduler with the shipped configuration
(only the extender's URL and the kubeconfig replaced), the manifests of ``manifests/base``, the
webhook with the arguments of its Deployment, the service with its shipped configuration; and what
looks after the webhook's certificate, each as the ServiceAccounts of the manifests, so RBAC
decides. A ``Watcher`` records everything, and a scenario that ends well is held to the invariants
over its whole history and to having been refused nothing by RBAC.
"""

import asyncio
import base64
import contextlib
import logging
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from extender.kube.api import (
    ADAPTERPOOLS,
    EVENTS,
    MUTATING_WEBHOOKS,
    PODS,
    STATEFULSETS,
    VPODS,
    ListOptions,
    Obj,
    PatchType,
)
from extender.kube.serving.sockets import host_port
from extender.model.decode import pod_from, vpod_from
from extender.model.ledger import ledger_slots
from extender.model.names import (
    API_VERSION,
    PLACEMENTS_ANNOTATION,
    POOL_LABEL,
    SLOTS_ANNOTATION,
    SLOTS_RESOURCE,
)
from extender.model.objects import AdapterPod, VPod
from tests.e2e.backend import Backend, condition
from tests.e2e.objects import MANIFESTS, extender_at, load, pod, stateful_set, without, write_json
from tests.e2e.processes import VENV_BIN, Probe, Process, free_port
from tests.e2e.raw import RawHttp
from tests.e2e.real import RealBackend
from tests.e2e.replica import Replica
from tests.e2e.waiting import NotYet, T, eventually
from tests.e2e.watcher import Watcher

log: Final = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"

SYSTEM_NAMESPACE: Final = "vreplica-system"
SERVICE_ACCOUNT: Final = f"{SYSTEM_NAMESPACE}/vreplica-scheduler"
TOKENS_ACCOUNT: Final = f"{SYSTEM_NAMESPACE}/vreplica-tokens"
"""That of the pod in which service and kube-scheduler are."""
SCHEDULER_ACCOUNT: Final = f"{SYSTEM_NAMESPACE}/vreplica-kube-scheduler"
WEBHOOK_ACCOUNT: Final = f"{SYSTEM_NAMESPACE}/vreplica-webhook"
UPKEEP_ACCOUNT: Final = f"{SYSTEM_NAMESPACE}/vreplica-webhook-upkeep"
POOL: Final = "dispatcher"
SLOTS_PER_POD: Final = 20
TOLD_MAX: Final = 100
"""Of the first breaches and of the last versions of objects in a failure's report."""
SETTLE_TIMEOUT_S: Final = 45.0
LOOK_INTERVAL_S: Final = 0.1
"""Between two looks at a time when much changes."""
QUICK_ELECTION: Final[Mapping[str, float]] = {
    "leaseDurationSeconds": 4,
    "renewDeadlineSeconds": 3,
    "retryPeriodSeconds": 0.5,
}
"""After a kill nobody leads until the lease has run out: 15 s as shipped. With 2 s, leaders lost
their Lease for no reason of ours: an API server beside three others takes that long now and then.
"""
DEFAULT_SCHEDULER: Final[Obj] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a scenario wants otherwise than shipped."""

    host: str = LOOPBACK
    """The loopback address on which the service and the webhook listen."""
    node_cache_capable: bool = True
    legacy: bool = False
    """kube-scheduler 1.22 with the Policy file instead of the KubeSchedulerConfiguration."""
    default_scheduler: bool = False
    """The cluster's own kube-scheduler too."""
    webhook: bool = True
    extender_url: str = ""
    """What kube-scheduler calls instead of the service itself."""
    slots_resource: bool = False
    """Pods are marked with vreplica.dev/slots and the extender manages it, as for a kube-scheduler
    that others share; always with ``legacy``.
    """
    slots_counted: bool = False
    """``ignoredByScheduler: false``: kube-scheduler counts vreplica.dev/slots too, for clusters
    whose nodes all declare it.
    """
    scheduler_account: bool = False
    """kube-scheduler as its own ServiceAccount and with its lease, as deployed; on the real back
    end only.
    """
    election: Mapping[str, float] = field(default_factory=dict)
    """Replaces fields of leaderElection."""
    watch_timeout_s: float = 300.0
    """How long one watch of the watcher lasts: as long as the scenario, where the history is
    compacted in between.
    """


class System:
    """An installation on ``backend``; an async context manager that checks the whole history at its
    end.
    """

    def __init__(self, backend: Backend, directory: Path, setup: Setup | None = None) -> None:
        self.backend = backend
        self.setup = setup or Setup()
        self.service_url = f"http://{host_port(self.setup.host, free_port())}"
        self.webhook_url = f"https://{host_port(self.setup.host, free_port())}"
        self.webhook: Process | None = None
        self.upkeep: Process | None = None
        """Renews the webhook's certificate and writes its registration."""
        self.webhook_tls: ssl.SSLContext | None = None
        self.namespace = ""
        self.system_namespace = SYSTEM_NAMESPACE
        self._directory = directory
        self._replicas = 0
        self._audited_from = 0
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        try:
            await self._install()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.watcher.check()
                self.nothing_forbidden()
            else:
                await self._tell()
        finally:
            await self._stack.aclose()

    async def _install(self) -> None:
        self.forget_audit()
        scheduling = asyncio.create_task(self._start_schedulers(), name="schedulers")
        try:
            # The embedded cluster takes them before it starts; an account of their own is in the
            # manifests, applied once.
            if self.backend.name == "embedded" or self.setup.scheduler_account:
                await scheduling
            await self._start_ours()
            await scheduling
        finally:
            scheduling.cancel()
            await asyncio.gather(scheduling, return_exceptions=True)
        log.info("schedulers started")

    async def _start_ours(self) -> None:
        backend = self.backend
        await self.install_manifests()
        log.info("manifests applied")
        self.watcher = Watcher(
            backend.api, slots_per_pod=SLOTS_PER_POD, watch_timeout_s=self.setup.watch_timeout_s
        )
        await self.watcher.start()
        self._stack.push_async_callback(self.watcher.stop)
        self.raw = await self._stack.enter_async_context(RawHttp(backend.kubeconfig))
        self.service = await self.replica(self.service_url)
        starting = [self.start(self.service)]
        if self.setup.webhook:
            starting.append(self.start_webhook())
        await asyncio.gather(*starting)
        await self.service.leads()
        log.info("service and webhook work")

    async def _tell(self) -> None:
        """Logs what stands, for a failure's report."""
        for obj in await self.adapters():
            status = obj.get("status", {})
            log.info(
                "%s on %s: %s, %s",
                obj["metadata"]["name"],
                obj["spec"].get("nodeName"),
                obj["metadata"].get("annotations"),
                status.get("conditions"),
            )
            await self._tell_events(obj["metadata"]["namespace"], obj["metadata"]["name"])
        for vpod in (await self.all_vpods()).values():
            log.info("%s wants %d: %s", vpod.key, vpod.vreplicas, dict(vpod.placements))
            for one in vpod.conditions:
                log.info("  %s is %s, %s: %s", one.type, one.status, one.reason, one.message)
            await self._tell_events(vpod.namespace, vpod.name)
        for breach in (await self.watcher.breaches())[:TOLD_MAX]:
            log.info("breach: %s", breach)
        for version in self.watcher.versions[-TOLD_MAX:]:
            obj = version.object
            ledger = obj["metadata"].get("annotations", {}).get(PLACEMENTS_ANNOTATION)
            placed = obj.get("status", {}).get("placements")
            log.info("%.3f %s: %s", version.seen_at, version, ledger or placed)

    async def _tell_events(self, namespace: str, name: str) -> None:
        for event in await self.events(namespace, name):
            log.info("  %s %s: %s", event.get("reason"), event.get("type"), event.get("note"))

    # -- what is installed: the kustomize base, and its files --------------------------------------

    async def install_manifests(self) -> None:
        """All but what would run: the suite runs the programs itself."""
        await self.backend.apply([MANIFESTS / "base"], without("Deployment"))

    async def service_config(self) -> Obj:
        """The service's configuration file as installed, with a port for probes of its own."""
        (config,) = load(MANIFESTS / "base" / "service-config.yaml")
        config["server"]["healthPort"] = free_port()
        return config

    async def scheduler_config(self) -> Obj:
        """The second kube-scheduler's configuration file as installed."""
        (config,) = load(MANIFESTS / "kube-scheduler" / "config.yaml")
        return config

    async def webhook_arguments(self) -> Sequence[str]:
        """The webhook's arguments as installed."""
        return _deployed("webhook.yaml")

    async def upkeep_arguments(self) -> Sequence[str]:
        """Those of what looks after its certificate and registration."""
        return _deployed("webhook-upkeep.yaml")

    @property
    def _slots_resource(self) -> bool:
        return self.setup.slots_resource or self.setup.slots_counted or self.setup.legacy

    # -- programs ----------------------------------------------------------------------------------

    async def _start_schedulers(self) -> None:
        url = self.setup.extender_url or self.service_url
        fields: dict[str, Any] = {"nodeCacheCapable": self.setup.node_cache_capable}
        if self._slots_resource:
            ignored = not self.setup.slots_counted
            fields["managedResources"] = [{"name": SLOTS_RESOURCE, "ignoredByScheduler": ignored}]
        if self.setup.legacy:
            (policy,) = load(MANIFESTS / "kube-scheduler" / "policy.json")
            await self.backend.start_legacy_scheduler(extender_at(policy, url, **fields))
            return
        config = extender_at(await self.scheduler_config(), url, **fields)
        if self._slots_resource:
            # As the chart: what the extender manages is ignored, or counted, by that alone.
            for profile in config["profiles"]:
                profile["pluginConfig"] = [
                    plugin
                    for plugin in profile.get("pluginConfig", [])
                    if plugin["name"] != "NodeResourcesFit"
                ]
        if self.setup.scheduler_account and isinstance(self.backend, RealBackend):
            await self.install_manifests()
            kubeconfig = await self.scheduler_kubeconfig()
            await self.backend.start_scheduler(config, kubeconfig=kubeconfig, leader_elect=True)
            return
        await self.backend.start_scheduler(config)
        if self.setup.default_scheduler:
            await self.backend.start_scheduler(DEFAULT_SCHEDULER)

    async def kubeconfig_for(self, account: str) -> Path:
        """With what a new process of ours reaches the API server. ``account``: as in the base's
        namespace.
        """
        return await self.backend.token_for(f"{self.system_namespace}/{account.partition('/')[2]}")

    async def scheduler_kubeconfig(self) -> Path:
        """With what the second kube-scheduler reaches it: beside the extender, a token that the
        pod's third process makes.
        """
        assert isinstance(self.backend, RealBackend)
        # A new pod has new memory.
        mounted, folder = (
            "/run/tokens",
            Path(tempfile.mkdtemp(prefix="tokens-", dir=self._directory)),
        )
        for name in ("service", "kube-scheduler"):
            (folder / name).mkdir()
        arguments = [word.replace(mounted, str(folder)) for word in await self.tokens_command()]
        kubeconfig = await self.kubeconfig_for(TOKENS_ACCOUNT)
        process = self.backend.processes.start("tokens", [*arguments, f"--kubeconfig={kubeconfig}"])

        async def made() -> str:
            assert process.returncode is None, process.log_tail()
            file = folder / "kube-scheduler" / "token"
            if not file.exists():
                raise NotYet("no token")
            return file.read_text()

        token = await eventually(made, 20.0, "kube-scheduler's token is made")
        return self.backend.control_plane.write_kubeconfig(folder / "scheduler.kubeconfig", token)

    async def tokens_command(self) -> Sequence[str]:
        """The command that makes the tokens as installed, by our Python."""
        return python_of(_pod_of("scheduler.yaml")["initContainers"][0])

    async def replica(self, url: str = "") -> Replica:
        """A replica of the service with the shipped configuration, not started."""
        url = url or f"http://{host_port(self.setup.host, free_port())}"
        config = await self.service_config()
        if self.setup.host != LOOPBACK:
            config["server"]["host"] = self.setup.host
        config["server"]["port"] = int(url.rpartition(":")[2])
        config["clientConnection"]["kubeconfig"] = str(await self.kubeconfig_for(SERVICE_ACCOUNT))
        config["leaderElection"].update(self.setup.election)
        self._replicas += 1
        return Replica(write_json(self._directory / f"service-{self._replicas}.json", config), url)

    async def start(self, replica: Replica) -> None:
        """Starts it, ready; it need not lead."""
        command: list[str | Path] = [
            VENV_BIN / "vreplica",
            "--log-level",
            "info",
            "serve",
            "--config",
            replica.config,
        ]
        replica.process = self.backend.processes.start("service", command)
        await replica.process.ready(Probe(f"{replica.url}/readyz"))

    async def restart(self) -> None:
        """The service is killed without warning and started again; it need not lead yet."""
        assert self.service.process is not None
        await self.service.process.kill()
        await self.start(self.service)

    async def start_webhook(self) -> None:
        """Starts the webhook, and its upkeep anew, with their Deployments' arguments; waits until
        the API server calls it.
        """
        await self._start_upkeep()
        authority = await eventually(self._registered, 20.0, "the webhook is registered")
        arguments = await self.webhook_arguments()
        port = self.webhook_url.rpartition(":")[2]
        config = write_json(self._directory / "webhook.json", await self.service_config())
        replaced = {"--config": config, "--port": port, "--shutdown-delay-seconds": "0"}
        kept = [argument for argument in arguments if argument.partition("=")[0] not in replaced]
        kept += [f"{name}={value}" for name, value in replaced.items()]
        kubeconfig = await self.kubeconfig_for(WEBHOOK_ACCOUNT)
        kept += [
            f"--host={self.setup.host}",
            f"--url={self.webhook_url}",
            f"--kubeconfig={kubeconfig}",
        ]
        if self._slots_resource:
            kept.append("--slots-resource")
        if self.setup.slots_counted:
            kept.append("--slots-counted")
        if self.setup.legacy:
            kept.append("--scheduler-name=default-scheduler")
        self.webhook = self.backend.processes.start(
            "webhook", [VENV_BIN / "vreplica-webhook", *kept]
        )
        self.webhook_tls = ssl.create_default_context(cadata=authority)
        await self.webhook.ready(Probe(f"{self.webhook_url}/readyz", self.webhook_tls))

    async def _start_upkeep(self) -> None:
        if self.upkeep is not None and self.upkeep.returncode is None:
            await self.upkeep.terminate()
        kept = [
            each for each in await self.upkeep_arguments() if each.partition("=")[0] != "--config"
        ]
        kubeconfig = await self.kubeconfig_for(UPKEEP_ACCOUNT)
        kept += [f"--url={self.webhook_url}", f"--kubeconfig={kubeconfig}"]
        self.upkeep = self.backend.processes.start("upkeep", [VENV_BIN / "vreplica-webhook", *kept])

    async def _registered(self) -> str:
        assert self.upkeep is not None
        assert self.upkeep.returncode is None, self.upkeep.log_tail()
        found = await self.backend.api.get(MUTATING_WEBHOOKS, "", "vreplica-scheduler")
        client = found["webhooks"][0]["clientConfig"]
        if not client.get("caBundle") or not str(client.get("url")).startswith(self.webhook_url):
            raise NotYet(str(client)[:200])
        return base64.b64decode(client["caBundle"]).decode()

    # -- objects -----------------------------------------------------------------------------------

    async def pool(
        self,
        name: str = POOL,
        *,
        cpu: str = "100m",
        pod_spec: Obj | None = None,
        claims: Sequence[Obj] = (),
        **spec: Any,
    ) -> str:
        """An AdapterPool and its StatefulSet, in the namespace that all pools of the scenario
        share; the namespace.

        ``claims``: volumeClaimTemplates. ``spec``: the pool's.
        """
        self.namespace = self.namespace or await self.backend.namespace("adapters")
        if "slotsPerPod" in spec:
            self.watcher.slots_of[name] = spec["slotsPerPod"]
        await self.backend.apply([adapter_pool(self.namespace, name, **spec)])
        if self.webhook is not None:
            await eventually(lambda: self.stamps(name), 10.0, "the API server has pods stamped")
        workload = stateful_set(self.namespace, name, 0, pool=name, cpu=cpu)
        workload["spec"]["template"]["spec"].update(pod_spec or {})
        if claims:
            workload["spec"]["volumeClaimTemplates"] = list(claims)
        await self.backend.apply([workload])
        return self.namespace

    async def stamps(self, pool: str) -> bool:
        """Whether pods of that pool pass through the webhook, which knows the pool: both get around
        within a moment.
        """
        probe = pod(self.namespace, f"{pool}-999")  # an ordinal that no scenario has
        probe["metadata"]["labels"] = {POOL_LABEL: pool}
        answer = await self.raw.request(
            "POST", f"/api/v1/namespaces/{self.namespace}/pods", probe, query={"dryRun": "All"}
        )
        if SLOTS_ANNOTATION not in answer.body["metadata"].get("annotations", {}):
            raise NotYet(f"not stamped: {answer}")
        return True

    async def vpods(
        self,
        count: int,
        vreplicas: int,
        *,
        tenant: str = "",
        prefix: str = "source",
        pool: str = POOL,
    ) -> str:
        """``count`` VPods in the namespace ``tenant`` (a new one); the namespace."""
        tenant = tenant or await self.backend.namespace("tenant")
        objects = [
            self.vpod(tenant, f"{prefix}-{index}", vreplicas, pool) for index in range(count)
        ]
        await asyncio.gather(*(self.backend.api.create(VPODS, tenant, obj) for obj in objects))
        return tenant

    def vpod(
        self, namespace: str, name: str, vreplicas: int, pool_name: str = POOL, **spec: Any
    ) -> Obj:
        """A VPod of a pool of the scenario."""
        pool = {"namespace": self.namespace, "name": pool_name}
        return {
            "apiVersion": API_VERSION,
            "kind": "VPod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"poolRef": pool, "vreplicas": vreplicas, **spec},
        }

    async def want(self, namespace: str, name: str, vreplicas: int) -> None:
        """A tenant changes how many it wants."""
        patch = {"spec": {"vreplicas": vreplicas}}
        await self.backend.api.patch(VPODS, namespace, name, patch, patch_type=PatchType.MERGE)

    # -- what is there -----------------------------------------------------------------------------

    async def adapters(self, pool: str = "") -> list[Obj]:
        """The adapter pods of one pool, or of all, by ordinal."""
        selector = f"{POOL_LABEL}={pool}" if pool else POOL_LABEL
        options = ListOptions(namespace=self.namespace, label_selector=selector)
        items = (await self.backend.api.list_page(PODS, options)).items
        return sorted(items, key=lambda obj: int(str(obj["metadata"]["name"]).rpartition("-")[2]))

    async def came_back(self, before: AdapterPod, timeout_s: float = 15.0) -> Obj:
        """The pod that has taken the place of one that was deleted: same name, another UID."""

        async def look() -> Obj:
            stored = await self.backend.api.get(PODS, before.namespace, before.name)
            if stored["metadata"]["uid"] == before.uid:
                raise NotYet("still the old one")
            return stored

        return await self.eventually(look, timeout_s, f"a new pod {before.key}")

    async def eventually(self, look: Callable[[], Awaitable[T]], timeout_s: float, what: str) -> T:
        """``waiting.eventually`` for what VPods, adapter pods and StatefulSets become: it looks
        when one of them has changed.
        """
        return await eventually(
            look, timeout_s, what, interval_s=LOOK_INTERVAL_S, news=self.watcher.news
        )

    async def all_vpods(self) -> dict[str, VPod]:
        """The VPods by key."""
        page = await self.backend.api.list_page(VPODS)
        return {vpod.key: vpod for vpod in map(vpod_from, page.items)}

    async def settled(
        self,
        *,
        pods: int | None = None,
        down: Collection[str] = (),
        timeout_s: float = SETTLE_TIMEOUT_S,
    ) -> list[AdapterPod]:
        """I3: everything placed and told to be served, ledgers equal statuses, all pods bound and
        Ready (``pods``: so many; else as many as the StatefulSets ask for); the pods.

        ``down``: names of pods that are not Ready as long as their node has failed; whom they serve
        is not looked at then. The watcher has seen all that when it returns.
        """
        adapters = await self.eventually(lambda: self._settled(pods, down), timeout_s, "settled")
        await self.watcher.catch_up()
        return adapters

    async def _settled(self, pods: int | None, down: Collection[str]) -> list[AdapterPod]:
        objects = await self.adapters()
        vpods = await self.all_vpods()
        missing = {
            vpod.key: (vpod.placements, vpod.vreplicas)
            for vpod in vpods.values()
            if not is_placed(vpod)
        }
        if missing:
            raise NotYet(f"{len(missing)} vpods not placed: {list(missing.items())[:3]}")
        waiting = [
            obj["metadata"]["name"]
            for obj in objects
            if (condition(obj, "Ready") == "True") is (obj["metadata"]["name"] in down)
        ]
        if pods is None:
            pods = await self._pods_asked_for()
        if waiting or len(objects) != pods:
            raise NotYet(
                f"{len(objects)} of {pods} pods, not Ready (or Ready and should not): {waiting}"
            )
        # Told a moment after the last pod is Ready: a write that a scenario would otherwise take
        # for one of its own.
        not_told = [vpod.key for vpod in vpods.values() if vpod.ready_vreplicas != vpod.vreplicas]
        if not_told and not down:
            raise NotYet(f"not told yet that they are served: {not_told}")
        adapters = [pod_from(obj) for obj in objects]
        ledger = {
            (key, adapter.name): share.vreplicas
            for adapter in adapters
            for key, share in adapter.ledger.items()
        }
        status = {
            (vpod.key, name): count
            for vpod in vpods.values()
            for name, count in vpod.placements.items()
        }
        if ledger != status:
            raise NotYet(f"ledger and status differ: {set(ledger.items()) ^ set(status.items())}")
        assert all(ledger_slots(adapter.ledger) <= SLOTS_PER_POD for adapter in adapters)
        return adapters

    async def _pods_asked_for(self) -> int:
        """Replicas of all StatefulSets of the scenario, or of their pools' ``minPods``."""
        api = self.backend.api
        options = ListOptions(namespace=self.namespace)
        sets = (await api.list_page(STATEFULSETS, options)).items
        pools = (await api.list_page(ADAPTERPOOLS, options)).items
        at_least = {pool["spec"]["statefulSet"]: pool["spec"].get("minPods", 0) for pool in pools}
        return sum(
            max(obj["spec"]["replicas"], at_least.get(obj["metadata"]["name"], 0)) for obj in sets
        )

    async def events(self, namespace: str, name: str) -> list[Obj]:
        """Events about an object: ours and kube-scheduler's."""
        page = await self.backend.api.list_page(EVENTS, ListOptions(namespace=namespace))
        return [obj for obj in page.items if obj["regarding"].get("name") == name]

    async def event(
        self, namespace: str, name: str, reason: str, text: str = "", *, timeout_s: float = 15.0
    ) -> Obj:
        """The first event about an object with that reason and, in its note, that text."""

        async def look() -> Obj:
            found = await self.events(namespace, name)
            for obj in found:
                if obj.get("reason") == reason and text in obj.get("note", ""):
                    return obj
            raise NotYet(str([(obj.get("reason"), obj.get("note")) for obj in found]))

        return await eventually(look, timeout_s, f"event {reason} about {namespace}/{name}")

    def binds(self) -> int:
        """Adapter pods that the watcher has seen bound so far."""
        return len(
            {
                v.object["metadata"]["uid"]
                for v in self.watcher.of(PODS)
                if v.object["spec"].get("nodeName")
            }
        )

    async def requests(self) -> dict[str, int]:
        """Requests to the service's verbs since it started."""
        counted: dict[str, int] = (await self.service.state())["requests"]
        return counted

    # -- rights ------------------------------------------------------------------------------------

    def audit(self) -> list[dict[str, Any]]:
        """What ServiceAccounts asked of the real API server in this scenario."""
        if isinstance(self.backend, RealBackend):
            return self.backend.control_plane.audit_events(since=self._audited_from)
        return []

    def forget_audit(self) -> None:
        """What was refused up to now was meant to be."""
        if isinstance(self.backend, RealBackend):
            self._audited_from = self.backend.control_plane.audit_end()

    def nothing_forbidden(self) -> None:
        """AssertionError where RBAC refused a request of ours."""
        refused = [
            (event["user"]["username"], event["verb"], event["requestURI"])
            for event in self.audit()
            if event.get("responseStatus", {}).get("code") == 403
            and event["user"]["username"].startswith(
                f"system:serviceaccount:{self.system_namespace}:"
            )
        ]
        assert not refused, refused


def _deployed(manifest: str) -> Sequence[str]:
    """The arguments of the first container of a manifest's Deployment, without its program."""
    command: list[str] = _pod_of(manifest)["containers"][0]["command"]
    return command[1:]


def _pod_of(manifest: str) -> Obj:
    (deployment,) = (
        obj for obj in load(MANIFESTS / "base" / manifest) if obj["kind"] == "Deployment"
    )
    pod: Obj = deployment["spec"]["template"]["spec"]
    return pod


def python_of(container: Obj) -> Sequence[str]:
    """A container's command, which is the image's Python's, by ours. Not isolated: the checkout is
    not installed.
    """
    program, isolated, *rest = container["command"]
    assert (program, isolated) == ("python3", "-I")
    return [str(VENV_BIN / "python"), *rest]


def is_placed(vpod: VPod) -> bool:
    """Whether its status says, of its present spec, that all is placed."""
    return (
        sum(vpod.placements.values()) == vpod.vreplicas == vpod.scheduled_vreplicas
        and vpod.observed_generation == vpod.generation
    )


def adapter_pool(namespace: str, name: str = POOL, **spec: Any) -> Obj:
    """An AdapterPool with 20 slots a pod, its StatefulSet of the same name."""
    return {
        "apiVersion": API_VERSION,
        "kind": "AdapterPool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"statefulSet": name, "slotsPerPod": SLOTS_PER_POD, **spec},
    }
