"""``ChartSystem``: an installation by ``helm``, whose programs run as the chart says, and what a
scenario changes of that.

Theory of operation. ``helm upgrade --install`` puts the chart's objects on the real control plane,
Deployments too: nobody starts their pods (no kube-scheduler serves them), the suite runs their
containers' commands itself. Everything a process is given comes from the API server: its arguments
from the Deployment, its files from the ConfigMaps, its credentials from the ServiceAccount that the
Deployment names or from the Secret that it mounts. What differs, because there is no pod around it:
paths of files, ports, the address of the API server, and the address in place of a Service's name
(its certificate is checked for that name all the same).
"""

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from extender.kube.api import (
    ADAPTERPOOLS,
    CONFIGMAPS,
    VPODS,
    NotFound,
    Obj,
    OutcomeUnknown,
    Resource,
    TooManyRequests,
)
from tests.e2e.objects import extender_at, write_json
from tests.e2e.processes import VENV_BIN, Probe, free_port
from tests.e2e.real import RealBackend
from tests.e2e.replica import Replica
from tests.e2e.scenario import SCHEDULER_ACCOUNT, Setup, System, python_of
from tests.e2e.waiting import NotYet, eventually
from tests.manifests.chart import CHART, RELEASE, Values, run_helm
from tests.service.authority import Authority, client_context

DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
CLIENT_NAME: Final = "vreplica-kube-scheduler"
HELM_TIMEOUT_S: Final = 60.0

OWN: Final = ("--take-ownership",)
"""Scenarios before this one have applied some of the same objects by hand on the same control
plane.
"""


class ChartSystem(System):
    """The chart with ``values`` in ``namespace``, installed with helm's ``options``; on the real
    back end only.
    """

    def __init__(
        self,
        backend: RealBackend,
        directory: Path,
        values: Values,
        *,
        namespace: str = "vreplica-system",
        options: Sequence[str] = (),
        chart: Path = CHART,
    ) -> None:
        super().__init__(backend, directory, Setup(scheduler_account=True))
        self.real = backend
        self.system_namespace = namespace
        self.values = dict(values)
        self.options = options
        self.chart = chart
        self.mode = str(self.values.get("kubeScheduler", {}).get("mode", "sidecar"))
        self.health_port = free_port()
        self._installed = False
        self._tls: ssl.SSLContext | None = None
        if self.https:
            self.service_url = self.service_url.replace("http:", "https:")
            self._make_secrets(directory)

    @property
    def https(self) -> bool:
        """Whether the extender is called over TLS."""
        return self.mode != "sidecar"

    def _make_secrets(self, directory: Path) -> None:
        """What the chart's user makes, or cert-manager: the files of both Secrets, each in a folder
        of its own.
        """
        authority = Authority(directory, "extender-ca")
        name = f"vreplica-scheduler.{self.system_namespace}.svc"
        served, client = authority.issue("serving", name), authority.issue(CLIENT_NAME)
        self._folders = {
            "/etc/vreplica-tls": directory / "extender-tls",
            "/etc/kube-scheduler-tls": directory / "kube-scheduler-tls",
        }
        for folder, (certificate, key), ca in zip(
            self._folders.values(), (served, client), ("client-ca.crt", "ca.crt"), strict=True
        ):
            folder.mkdir()
            for file, source in (("tls.crt", certificate), ("tls.key", key), (ca, authority.file)):
                (folder / file).write_bytes(Path(source).read_bytes())
        self._tls = client_context(authority, client)

    # -- helm --------------------------------------------------------------------------------------

    async def helm(self, *arguments: str | Path) -> str:
        """A helm command on this cluster, in the release's namespace."""
        place = ("--namespace", self.system_namespace, "--kubeconfig", self.real.kubeconfig)
        return await asyncio.to_thread(run_helm, *arguments, *place, timeout_s=HELM_TIMEOUT_S)

    async def upgrade(self, *options: str, **values: Any) -> str:
        """``helm upgrade --install`` with these values besides those that it has; what it said (the
        NOTES).
        """
        self.values |= values
        file = write_json(self._directory / "values.json", self.values)
        said = await self.helm(
            "upgrade",
            RELEASE,
            self.chart,
            "--install",
            "--create-namespace",
            "--values",
            file,
            *OWN,
            *options,
        )
        await eventually(self._kinds_are_served, 15.0, "our kinds are served")
        return said

    async def uninstall(self) -> None:
        """Ends the programs, as their pods' end would, and ``helm uninstall``."""
        for process in reversed(self.real.processes.running):
            await process.terminate()
        for scheduler in self.real._schedulers:
            await scheduler.terminate()
        await self.helm("uninstall", RELEASE)
        self._installed = False

    # -- what a process is given -------------------------------------------------------------------

    async def install_manifests(self) -> None:
        if not self._installed:
            await self.upgrade("--force-conflicts", *self.options)
            self._installed = True

    async def _kinds_are_served(self) -> bool:
        for resource in (VPODS, ADAPTERPOOLS):
            try:
                await self.real.api.list_page(resource, limit=1)
            except (NotFound, TooManyRequests) as error:
                # New, or changed a moment ago: its storage is made anew.
                raise NotYet(f"{resource.kind} is not") from error
        return True

    async def container(self, deployment: str, name: str) -> Obj:
        """A container of an installed Deployment."""

        async def read() -> Obj:
            try:
                return await self.real.api.get(DEPLOYMENTS, self.system_namespace, deployment)
            except OutcomeUnknown as error:
                # The first read of a kind that the API server has not cached yet can take long.
                raise NotYet(str(error)) from error

        stored = await eventually(read, 45.0, f"Deployment {deployment} is read")
        pod: Obj = stored["spec"]["template"]["spec"]
        containers: list[Obj] = [*pod.get("initContainers", ()), *pod["containers"]]
        return next(each for each in containers if each["name"] == name)

    async def file(self, config_map: str, name: str) -> Obj:
        """A configuration file as an installed ConfigMap has it, with the paths of this machine."""
        stored = await self.real.api.get(CONFIGMAPS, self.system_namespace, config_map)
        text = str(stored["data"][name])
        for mounted, folder in self._folders.items() if self.https else ():
            text = text.replace(mounted, str(folder))
        document: Obj = yaml.safe_load(text)
        return document

    async def service_config(self) -> Obj:
        config = await self.file("vreplica-scheduler-config", "service-config.yaml")
        server = config["server"]
        if "healthPort" in server:
            server |= {"healthPort": self.health_port, "shutdownDelaySeconds": 0}
        return config

    async def scheduler_config(self) -> Obj:
        await self.install_manifests()
        return extender_at(
            await self.file("vreplica-kube-scheduler-config", "config.yaml"), self.service_url
        )

    async def webhook_arguments(self) -> Sequence[str]:
        command: list[str] = (await self.container("vreplica-webhook", "webhook"))["command"]
        assert command[0] == "vreplica-webhook"
        return command[1:]

    async def upkeep_arguments(self) -> Sequence[str]:
        command: list[str] = (await self.container("vreplica-webhook-upkeep", "upkeep"))["command"]
        assert command[0] == "vreplica-webhook"
        return command[1:]

    async def scheduler_kubeconfig(self) -> Path:
        """In the extender's pod with a token that is made there, in its own with its
        ServiceAccount's.
        """
        return (
            await self.kubeconfig_for(SCHEDULER_ACCOUNT)
            if self.https
            else await super().scheduler_kubeconfig()
        )

    async def tokens_command(self) -> Sequence[str]:
        return python_of(await self.container("vreplica-scheduler", "tokens"))

    async def replica(self, url: str = "") -> Replica:
        replica = await super().replica(url)
        return (
            Replica(replica.config, replica.url.replace("http:", "https:"), self._tls)
            if self._tls
            else replica
        )

    async def start(self, replica: Replica) -> None:
        command: list[str] = (await self.container("vreplica-scheduler", "extender"))["command"]
        assert command[0] == "vreplica"
        kept = [argument for argument in command[1:] if not argument.startswith("--config=")]
        replica.process = self.backend.processes.start(
            "service", [VENV_BIN / "vreplica", *kept, f"--config={replica.config}"]
        )
        await replica.process.ready(Probe(f"{replica.url}/readyz", self._tls))
