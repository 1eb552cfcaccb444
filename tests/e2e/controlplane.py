"""The real control plane: etcd, kube-apiserver, kube-controller-manager, kwok, and kube-schedulers
on request.

Theory of operation. All of it runs on free ports of loopback from a folder of programs
(``build.py``), with verified TLS (``pki.py``), RBAC on and anonymous requests off.
kube-controller-manager and kwok act as administrator, a kube-scheduler as ``system:kube-scheduler``
unless a scenario gives it another kubeconfig: what runs beside us in a cluster has the rights it
has there. kwok plays the kubelets of every node that carries ``KWOK_LABEL`` and renews their leases
each quarter of ``node_lease_s``; a node that loses the label stops renewing, and after
``node_grace_s`` the node lifecycle controller marks it as it would a dead machine (Ready Unknown,
unreachable taints, pods not Ready, eviction after their toleration).

Requests of ServiceAccounts are written to an audit log, so that a scenario can show that our roles
suffice: none was answered with 403. Nothing here is bound to an event loop: it can be started in
one and used in another.
"""

import asyncio
import base64
import csv
import datetime
import itertools
import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e import pki as certificates
from tests.e2e.build import Binaries
from tests.e2e.objects import KWOK_LABEL, Source, scheduler_configuration, write_json
from tests.e2e.processes import Probe, Process, Processes, free_port
from tests.e2e.raw import RawHttp
from tests.e2e.waiting import NotYet, eventually

STAGES: Final = Path(__file__).parent / "controlplane" / "kwok-stages.yaml"
START_TIMEOUT_S: Final = 120.0
"""Of one program: as many control planes as there are workers start at the same time, and each
would do with some seconds alone.
"""
STOP_TIMEOUT_S: Final = 1.0

ADMIN: Final = "admin"
SCHEDULER: Final = "system:kube-scheduler"
_IDENTITIES: Final = {ADMIN: "system:masters", SCHEDULER: ""}
"""User name to group."""

_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True, slots=True)
class Settings:
    """``node_lease_s``: kwok renews a quarter of it; ``node_grace_s``: silence after which a node
    is NotReady.

    A machine that is busy keeps kwok from renewing for seconds: a node and its pods that are marked
    for that are Ready again soon, but a scenario that counts moves would see it.
    """

    node_lease_s: int = 8
    node_grace_s: int = 16
    audit: bool = True
    feature_gates: tuple[str, ...] = ()
    """What every program of the control plane turns on, by name."""
    kwok: bool = True
    """False: the nodes are real (``tests/nodes``). Then pods get ServiceAccount tokens, and
    webhooks are called at their endpoints.
    """
    runtime_config: str = ""
    """API versions that are off by default, as kube-apiserver's flag takes them."""
    start_timeout_s: float = START_TIMEOUT_S


class ControlPlane:
    """One control plane in ``work_dir``. ``await start()`` once, ``stop()`` at the end."""

    def __init__(
        self, binaries: Binaries, work_dir: Path, settings: Settings | None = None
    ) -> None:
        self.binaries = binaries
        self.work_dir = work_dir
        self.settings = settings or Settings()
        self.processes = Processes(work_dir / "logs")
        self.pki = certificates.create(work_dir / "pki", now=datetime.datetime.now(datetime.UTC))
        self.url = ""
        self.audit_log = work_dir / "audit.log"
        # No node's name is used twice: kwok 0.8.0 may queue a node that is deleted and made again
        # under the same name twice, and then renews no other node's lease any more (its heap looks
        # entries up by name, and cannot remove the older one).
        self.node_numbers = itertools.count()
        self._etcd_url = ""
        self._etcd_command: list[str | Path] = []
        self._apiserver_command: list[str | Path] = []
        self._tokens = {user: secrets.token_hex(16) for user in _IDENTITIES}
        self._names = 0

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.work_dir / "admin.kubeconfig"

    @property
    def scheduler_kubeconfig(self) -> Path:
        """Kubeconfig of user system:kube-scheduler."""
        return self.work_dir / "scheduler.kubeconfig"

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        """A kubeconfig with ``token`` and this cluster's authority."""
        authority = base64.b64encode(self.pki.ca_cert.read_bytes()).decode()
        cluster = {"server": self.url, "certificate-authority-data": authority}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": "e2e", "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        }
        return write_json(path, content)

    async def start(self) -> None:
        """Returns when the API server is ready, controllers run and kwok serves. Raises
        ProcessFailed with the log's end.
        """
        try:
            await self._start_etcd()
            await self._start_apiserver()
            others = [self._start_kwok()] if self.settings.kwok else []
            await asyncio.gather(self._start_controller_manager(), *others)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends everything and drops etcd's data; logs stay. Blocks for at most some seconds."""
        # kube-apiserver drains its watches for a minute, for nobody: the data is thrown away.
        self.processes.stop_all(STOP_TIMEOUT_S)
        shutil.rmtree(self.work_dir / "etcd", ignore_errors=True)

    async def start_scheduler(
        self, config: Source, *, kubeconfig: Path | None = None, leader_elect: bool = False
    ) -> Process:
        """kube-scheduler with a KubeSchedulerConfiguration (file or object), ready (its caches
        synced).
        """
        content = scheduler_configuration(
            config, kubeconfig=kubeconfig or self.scheduler_kubeconfig, leader_elect=leader_elect
        )
        name = self._next("kube-scheduler")
        file = write_json(self.work_dir / f"{name}.json", content)
        program = self.binaries.program("kube-scheduler")
        return await self._start_scheduler(
            name, [program, f"--config={file}", *self._gates(), "-v=2"], "readyz"
        )

    async def start_legacy_scheduler(
        self, policy: Source, *, kubeconfig: Path | None = None
    ) -> Process:
        """kube-scheduler 1.22 with a v1 Policy (file or object), ready.

        A Policy makes one profile, always named ``default-scheduler``: a pod with another
        schedulerName is not its own.
        """
        name = self._next("kube-scheduler-legacy")
        if isinstance(policy, Path):
            policy_file = policy
        else:
            policy_file = write_json(self.work_dir / f"{name}-policy.json", policy)
        arguments: list[str | Path] = [
            self.binaries.program("legacy-kube-scheduler"),
            f"--policy-config-file={policy_file}",
            f"--kubeconfig={kubeconfig or self.scheduler_kubeconfig}",
            "--leader-elect=false",
            # Its insecure port, by default open to all interfaces.
            "--port=0",
            # The v1beta1 API it would watch is gone since 1.27.
            "--feature-gates=CSIStorageCapacity=false",
            # From 2 on it prints its configuration as v1beta2, and fails: that lacks the arguments
            # of LeastRequestedPriority and MostRequestedPriority.
            "-v=1",
        ]
        return await self._start_scheduler(name, arguments, "healthz")

    def audit_end(self) -> int:
        """Where the audit log ends now: what comes later is behind it."""
        return len(self._audited(0))

    def audit_events(self, user: str = "", *, since: int = 0) -> list[dict[str, Any]]:
        """What ServiceAccounts asked for so far, oldest first; ``user`` narrows to
        system:serviceaccount:NS:NAME.

        ``since``: an ``audit_end``. The log is that of all scenarios so far, long before the last
        one.
        """
        events = [json.loads(line) for line in self._audited(since).splitlines()]
        return [event for event in events if user in {"", event["user"]["username"]}]

    def _audited(self, since: int) -> bytes:
        """Whole lines of the log: the last one may be half written."""
        if not self.audit_log.exists():
            return b""
        with self.audit_log.open("rb") as file:
            file.seek(since)
            data = file.read()
        return data[: data.rfind(b"\n") + 1]

    def _next(self, name: str) -> str:
        self._names += 1
        return f"{name}-{self._names}"

    async def _start_scheduler(self, name: str, arguments: list[str | Path], path: str) -> Process:
        port = free_port()
        process = self.processes.start(name, [*arguments, *self._serving(port)])
        probe = Probe(f"https://127.0.0.1:{port}/{path}", self.pki.ssl_context())
        try:
            await process.ready(probe, self.settings.start_timeout_s)
        except BaseException:
            await process.kill()
            raise
        return process

    def _serving(self, port: int) -> list[str]:
        return [
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={self.pki.serving_cert}",
            f"--tls-private-key-file={self.pki.serving_key}",
        ]

    async def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._etcd_url = client
        self._etcd_command = [
            self.binaries.program("etcd"),
            f"--data-dir={self.work_dir / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # It may be killed all the same: what it has written is the kernel's.
            "--unsafe-no-fsync",
        ]
        await self._run_etcd()

    async def _run_etcd(self) -> None:
        self.etcd = self.processes.start("etcd", self._etcd_command)
        await self.etcd.ready(Probe(f"{self._etcd_url}/health"), self.settings.start_timeout_s)

    async def kill_etcd(self, away_s: float) -> None:
        """SIGKILL; ``away_s`` later it is started again with its data and addresses. Returns when
        it serves.
        """
        await self.etcd.kill()
        await asyncio.sleep(away_s)
        await self._run_etcd()

    async def restart_kwok(self) -> None:
        """SIGKILL, and a new one, which looks at all nodes and pods anew."""
        await self.kwok.kill()
        await self._start_kwok()

    async def _start_apiserver(self) -> None:
        tokens = self.work_dir / "tokens.csv"
        tokens.touch(mode=0o600)
        with tokens.open("w", newline="") as out:
            for user, group in _IDENTITIES.items():
                csv.writer(out).writerow(
                    [self._tokens[user], user, user, group][: 4 if group else 3]
                )
        port = free_port()
        self.url = f"https://127.0.0.1:{port}"
        self.write_kubeconfig(self.kubeconfig, self._tokens[ADMIN])
        self.write_kubeconfig(self.scheduler_kubeconfig, self._tokens[SCHEDULER])
        arguments: list[str | Path] = [
            self.binaries.program("kube-apiserver"),
            *self._serving(port),
            "--advertise-address=127.0.0.1",
            f"--etcd-servers={self._etcd_url}",
            f"--token-auth-file={tokens}",
            "--anonymous-auth=false",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={self.pki.sa_pub}",
            f"--service-account-signing-key-file={self.pki.sa_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            # 1.37 refuses to publish a loopback address as the Service "kubernetes"; nothing here
            # uses it.
            "--endpoint-reconciler-type=none",
            # kwok's pods need no token, and need not wait for their namespace's ServiceAccount; no
            # kube-proxy serves real ones.
            "--disable-admission-plugins=ServiceAccount"
            if self.settings.kwok
            else "--enable-aggregator-routing=true",
            "--max-requests-inflight=3000",
            "--max-mutating-requests-inflight=1000",
            f"--runtime-config={self.settings.runtime_config}",
            *self._gates(),
            *self._audit_arguments(),
        ]
        self._apiserver_command = arguments
        await self._run_apiserver()

    async def _run_apiserver(self) -> None:
        self.apiserver = self.processes.start("kube-apiserver", self._apiserver_command)
        headers = {"Authorization": f"Bearer {self._tokens[ADMIN]}"}
        probe = Probe(f"{self.url}/readyz", self.pki.ssl_context(), headers)
        await self.apiserver.ready(probe, self.settings.start_timeout_s)

    async def kill_apiserver(self, away_s: float) -> None:
        """SIGKILL to kube-apiserver, and the same again after ``away_s``. Returns when it
        is ready.
        """
        await self.apiserver.kill()
        await asyncio.sleep(away_s)
        await self._run_apiserver()

    async def kill_all(self, away_s: float) -> None:
        """SIGKILL to etcd, kube-apiserver and kube-controller-manager; all again after ``away_s``.
        Returns when they work.
        """
        for process in (self.etcd, self.apiserver, self.controller_manager):
            await process.kill()
        await asyncio.sleep(away_s)
        await self._run_etcd()
        await self._run_apiserver()
        await self._start_controller_manager()

    def _gates(self) -> list[str]:
        gates = ",".join(f"{name}=true" for name in self.settings.feature_gates)
        return [f"--feature-gates={gates}"] if gates else []

    def _audit_arguments(self) -> list[str]:
        if not self.settings.audit:
            return []
        policy = write_json(self.work_dir / "audit-policy.json", _AUDIT_POLICY)
        # Blocking mode: a request is in the log before its answer is seen.
        return [
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking",
        ]

    async def _start_controller_manager(self) -> None:
        port = free_port()
        process = self.controller_manager = self.processes.start(
            "kube-controller-manager",
            [
                self.binaries.program("kube-controller-manager"),
                *self._serving(port),
                f"--kubeconfig={self.kubeconfig}",
                *self._gates(),
                "--leader-elect=false",
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
                f"--service-account-private-key-file={self.pki.sa_key}",
                f"--root-ca-file={self.pki.ca_cert}",
                "--controllers=*,-node-ipam-controller",
                "--node-monitor-period=500ms",
                f"--node-monitor-grace-period={self.settings.node_grace_s}s",
                "--node-startup-grace-period=60s",
                "--horizontal-pod-autoscaler-sync-period=1s",
                # Taints at once also when several nodes fail: its caution is for large clusters.
                "--node-eviction-rate=100",
                "--secondary-node-eviction-rate=100",
                "--large-cluster-size-threshold=1",
            ],
        )
        probe = Probe(f"https://127.0.0.1:{port}/healthz", self.pki.ssl_context())
        await process.ready(probe, self.settings.start_timeout_s)
        # Healthy comes before working: a namespace's ServiceAccount is made by a running
        # controller.
        async with RawHttp(self.kubeconfig) as raw:

            async def controllers_run() -> bool:
                answer = await raw.get("/api/v1/namespaces/default/serviceaccounts/default")
                if answer.status != 200:
                    raise NotYet(f"{answer.status} {answer.message}")
                return True

            await eventually(controllers_run, self.settings.start_timeout_s, "controllers run")

    async def _start_kwok(self) -> None:
        address = f"127.0.0.1:{free_port()}"
        self.kwok = self.processes.start(
            "kwok",
            [
                self.binaries.program("kwok"),
                f"--kubeconfig={self.kubeconfig}",
                f"--config={STAGES}",
                f"--manage-nodes-with-label-selector={KWOK_LABEL}",
                f"--node-lease-duration-seconds={self.settings.node_lease_s}",
                f"--server-address={address}",
            ],
        )
        await self.kwok.ready(Probe(f"http://{address}/healthz"), self.settings.start_timeout_s)
