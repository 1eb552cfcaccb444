"""The Go client, in a controller that is built like Knative's of ConsumerGroups: two replicas of
it, two of the service, tokens and RBAC as the chart has them.
"""

import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from extender.kube.api import LEASES, SERVICE_ACCOUNTS, NotFound, Obj
from extender.kube.token_review import TTL_S
from extender.scheduling_api import (
    CallersVPod,
    HttpScheduler,
    InsufficientSlots,
    NotScheduled,
    RequestRefused,
)
from tests.e2e.build import ControlPlaneUnavailable
from tests.e2e.go_tool import CONSUMERGROUP_CONTROLLER
from tests.e2e.objects import write_json
from tests.e2e.operations import mark_unschedulable
from tests.e2e.processes import Process, free_port
from tests.e2e.real import RealBackend
from tests.e2e.replica import Replica
from tests.e2e.scenario import POOL, QUICK_ELECTION, Setup, System
from tests.e2e.test_sources import GROUPS, change, knative, ledgers, status_with
from tests.e2e.waiting import NotYet, eventually
from tests.manifests import chart
from tests.manifests.tool import ToolUnavailable, helm
from tests.service.authority import Authority

AUDIENCE = "vreplica-schedule"
ACCOUNT = "kafka-controller"
LEASE = "kafka-controller"
SERVER_NAME = "localhost"
RULES = [
    {
        "apiGroups": [GROUPS.group],
        "resources": ["consumergroups", "consumergroups/status"],
        "verbs": ["list", "watch", "patch"],
    },
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    },
]


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return CONSUMERGROUP_CONTROLLER.ready()
    except ControlPlaneUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    "arguments", [("vet", "./..."), ("test", "./...")], ids=["vet", "its own tests"]
)
def test_the_module_is_sound(arguments: tuple[str, ...]):
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    status, output = CONSUMERGROUP_CONTROLLER.go(*arguments)
    assert status == 0, output


def test_the_module_needs_the_standard_library_only():
    assert "require" not in (CONSUMERGROUP_CONTROLLER.module / "go.mod").read_text()
    assert not (CONSUMERGROUP_CONTROLLER.module / "go.sum").exists()


class Installed(System):
    """The service with the listener for controllers, and its rights from the chart."""

    def __init__(self, backend: RealBackend, directory: Path) -> None:
        super().__init__(backend, directory, Setup(election=QUICK_ELECTION))
        self.real = backend
        self.authority = Authority(directory, "schedule-ca")
        self.callers = ""
        self.urls: list[str] = []

    async def install_manifests(self) -> None:
        await super().install_manifests()
        self.callers = await self.backend.namespace("callers")
        values = {"enabled": True, "allowedServiceAccounts": [f"{self.callers}/{ACCOUNT}"]}
        roles = [
            obj
            for obj in chart.objects(chart.render({"schedule": values}))
            if (obj["kind"], obj["metadata"]["name"]) == ("ClusterRole", "vreplica-scheduler")
        ]
        assert any("tokenreviews" in rule["resources"] for rule in roles[0]["rules"])
        await self.backend.apply(roles)

    async def replica(self, url: str = "") -> Replica:
        plain = await super().replica(url)
        config = yaml.safe_load(plain.config.read_text())
        certificate, key = self.authority.issue("serving", SERVER_NAME)
        port = free_port()
        config["schedule"] = {
            "host": "127.0.0.1",
            "port": port,
            "allowedServiceAccounts": [f"{self.callers}/{ACCOUNT}"],
            "tls": {"certFile": certificate, "keyFile": key},
        }
        self.urls.append(f"https://{SERVER_NAME}:{port}")
        return Replica(write_json(plain.config, config), plain.url)


class Controllers:
    """Replicas of the example's controller, as a ServiceAccount."""

    def __init__(self, system: Installed, program: Path, folder: Path) -> None:
        self._system, self._program, self._folder = system, program, folder
        self.running: dict[str, Process] = {}

    async def install(self) -> None:
        """The account, its rights and its two tokens, as a pod has them."""
        namespace = self._system.callers
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT}
        rbac = "rbac.authorization.k8s.io/v1"
        await self._system.backend.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {"name": ACCOUNT, "namespace": namespace},
                },
                {
                    "apiVersion": rbac,
                    "kind": "ClusterRole",
                    "metadata": {"name": ACCOUNT},
                    "rules": RULES,
                },
                {
                    "apiVersion": rbac,
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": ACCOUNT},
                    "roleRef": role,
                    "subjects": [subject],
                },
            ]
        )
        await self.token("api", [])
        await self.token("schedule", [AUDIENCE])

    async def token(self, file: str, audiences: list[str], account: str = ACCOUNT) -> None:
        spec: Obj = {"expirationSeconds": 3600}
        if audiences:
            spec["audiences"] = audiences
        path = f"/api/v1/namespaces/{self._system.callers}/serviceaccounts/{account}/token"
        answer = await self._system.raw.request("POST", path, {"spec": spec})
        assert answer.status == 201, answer.message
        (self._folder / file).write_text(answer.body["status"]["token"])

    def start(self, name: str) -> None:
        plane = self._system.real.control_plane
        self.running[name] = self._system.backend.processes.start(
            name,
            [
                self._program,
                f"-identity={name}",
                f"-server={plane.url}",
                f"-server-ca-file={plane.pki.ca_cert}",
                f"-server-token-file={self._folder / 'api'}",
                f"-lease={self._system.callers}/{LEASE}",
                f"-schedule-urls={','.join(self._system.urls)}",
                f"-token-file={self._folder / 'schedule'}",
                f"-ca-file={self._system.authority.file}",
                f"-statefulset-namespace={self._system.namespace}",
                f"-statefulset-name={POOL}",
                "-refresh-period=2s",
            ],
        )

    def logs(self) -> str:
        """What all replicas have said that run."""
        return "".join(process.log_tail() for process in self.running.values())

    async def leader(self) -> str:
        """Who holds the Lease, once it is one that runs."""

        async def look() -> str:
            try:
                lease = await self._system.backend.api.get(LEASES, self._system.callers, LEASE)
            except NotFound as error:
                raise NotYet("no Lease") from error
            holder: str = lease["spec"]["holderIdentity"]
            if holder not in self.running:
                raise NotYet(f"{holder} holds it")
            return holder

        return await eventually(look, 20.0, "a controller leads")


@asynccontextmanager
async def a_scene(
    real: RealBackend, folder: Path, program: Path
) -> AsyncIterator[tuple[Installed, Controllers, str]]:
    """A pool with the listener, the controllers' account, and a tenant's namespace."""
    try:
        helm()
    except ToolUnavailable as missing:
        pytest.skip(str(missing))
    async with Installed(real, folder) as system, knative(system):
        await real.add_nodes(3)
        # The service knows the objects, but their status is the controller's to write.
        await system.pool(
            maxPods=4, sources=[{"preset": "knative-consumergroup", "writeStatus": False}]
        )
        controllers = Controllers(system, program, folder)
        await controllers.install()
        yield system, controllers, await real.namespace("tenant")


async def a_group(system: System, namespace: str, name: str, replicas: int) -> None:
    obj = {"metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": replicas}}
    await system.backend.api.create(GROUPS, namespace, obj)


async def has(system: System, namespace: str, name: str, vreplicas: int) -> list[str]:
    """The pods that are published, once they and the ledgers have so many vreplicas."""
    status = await status_with(system, GROUPS, namespace, name, vreplicas)
    return [item["podName"] for item in status.get("placements", [])]


async def is_gone(system: System, namespace: str, name: str) -> None:
    async def look() -> bool:
        try:
            await system.backend.api.get(GROUPS, namespace, name)
        except NotFound:
            return True
        raise NotYet("it is still there")

    await eventually(look, 30.0, f"{namespace}/{name} is gone")


async def gave_back(system: System, key: str) -> None:
    async def look() -> bool:
        if held := await ledgers(system, key):
            raise NotYet(str(held))
        return True

    await eventually(look, 10.0, f"{key} is in no ledger")


async def test_a_controller_like_knatives_places_waits_fails_over_drains_and_gives_back(
    real: RealBackend, tmp_path: Path, program: Path
):
    async with a_scene(real, tmp_path, program) as (system, controllers, tenant):
        standby = await system.replica()
        await system.start(standby)
        controllers.start("controller-a")
        controllers.start("controller-b")
        await controllers.leader()
        await a_group(system, tenant, "orders", 8)
        await a_group(system, tenant, "mails", 6)
        await has(system, tenant, "orders", 8)
        await has(system, tenant, "mails", 6)

        # More than the pool has: what has a place is published, and the rest follows.
        await change(system, GROUPS, tenant, "orders", replicas=45)
        await has(system, tenant, "orders", 45)
        assert "vreplicas are not placed" in controllers.logs()

        # Another replica of the service leads.
        assert system.service.process is not None
        await system.service.process.kill()
        await standby.leads()
        await change(system, GROUPS, tenant, "mails", replicas=9)
        await has(system, tenant, "mails", 9)
        await system.start(system.service)

        # Another replica of the controller leads.
        before = await controllers.leader()
        await controllers.running.pop(before).kill()
        await change(system, GROUPS, tenant, "orders", replicas=5)
        await has(system, tenant, "orders", 5)
        assert await controllers.leader() != before

        # A drained pod: nobody changes the objects, and the controller hears of it all the same.
        (drained, *_) = await has(system, tenant, "orders", 5)
        await mark_unschedulable(system, drained)

        async def left() -> bool:
            pods = await has(system, tenant, "orders", 5)
            if drained in pods:
                raise NotYet(str(pods))
            return True

        await eventually(left, 45.0, f"{drained} is left")

        for name in ("orders", "mails"):
            await system.backend.api.delete(GROUPS, tenant, name)
            await is_gone(system, tenant, name)
            await gave_back(system, f"{tenant}/{name}@consumergroup.{GROUPS.group}")
        tokens = [(tmp_path / name).read_text() for name in ("api", "schedule")]
        logs = system.backend.processes.log_tails() + controllers.logs()
        assert not [token for token in tokens if token in logs]


async def test_the_api_server_says_whose_token_counts(
    real: RealBackend, tmp_path: Path, program: Path
):
    async with a_scene(real, tmp_path, program) as (system, controllers, tenant):
        vpod = CallersVPod(namespace=tenant, name="orders", vreplicas=1)
        context = ssl.create_default_context(cafile=str(system.authority.file))
        token = tmp_path / "schedule"
        scheduler = HttpScheduler(
            system.urls, pool=f"{system.namespace}/{POOL}", tls=context, token_file=token
        )
        async with scheduler:

            async def taken() -> bool:
                try:
                    await scheduler.schedule(vpod)
                except InsufficientSlots:
                    pass  # at first the pool has no pod
                except NotScheduled as error:
                    raise NotYet(str(error)) from error
                return True

            await eventually(taken, 20.0, "the account's token counts")
            await controllers.token("schedule", [])
            with pytest.raises(NotScheduled, match="does not accept the token"):
                await scheduler.schedule(vpod)
            account = {"metadata": {"name": "other", "namespace": system.callers}}
            await system.backend.api.create(SERVICE_ACCOUNTS, system.callers, account)
            await controllers.token("schedule", [AUDIENCE], "other")
            with pytest.raises(RequestRefused, match=r"callers.*:other is not in schedule"):
                await scheduler.schedule(vpod)
            await controllers.token("schedule", [AUDIENCE])
            await eventually(taken, 20.0, "the account's next token counts")
            await system.backend.api.delete(SERVICE_ACCOUNTS, system.callers, ACCOUNT)

            async def out() -> str:
                try:
                    await scheduler.schedule(vpod)
                except NotScheduled as error:
                    return str(error)
                except InsufficientSlots:
                    pass
                raise NotYet("the token still counts")

            refused = await eventually(out, TTL_S + 15.0, "the deleted account's token is refused")
            assert "does not accept" in refused
