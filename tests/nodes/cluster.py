"""A cluster of real nodes: control plane, the cluster's own kube-scheduler, three nodes in three
zones, and our chart.

Theory of operation. All of it runs in namespaces of its own (``make e2e-nodes`` makes them): the
network is a loopback to which addresses of the nodes are added, so nothing of this machine changes,
and the end of the first process ends everything. Each node has a network of its own in turn
(``machine.py``), connected by ``wires.py``: pods with hostNetwork on different nodes do not share
ports, and the chart is installed with two values: ``extender.hostNetwork`` and
``webhook.hostNetwork``. Pods reach the API server at the Service's address, and the API server
reaches the webhook at its endpoint.
"""

import asyncio
import datetime
import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import yaml

from extender.kube.api import Obj
from tests.e2e.build import KUBELET, ready_binaries
from tests.e2e.controlplane import ControlPlane, Settings
from tests.e2e.processes import Processes
from tests.e2e.raw import RawHttp
from tests.e2e.waiting import NotYet, eventually
from tests.manifests.chart import CHART, RELEASE, run_helm
from tests.nodes.image import Content, image_file, pack
from tests.nodes.node import NODES, Node

SYSTEM: Final = "vreplica-system"
NAMESPACE: Final = "adapters"
"""Of adapter pods."""
TENANT: Final = "tenant"
ROUTER: Final = "router"
"""A ServiceAccount that may ask where vpods are served."""
GRACE_S: Final = 16
"""After that much silence a node is NotReady; 50 s in Kubernetes' own configuration."""
VALUES: Final[Obj] = {
    "extender": {"hostNetwork": True},
    "webhook": {"hostNetwork": True},
    "adapters": {
        "enabled": True,
        "namespaces": [NAMESPACE],
        "allowedServiceAccounts": [f"{NAMESPACE}/{ROUTER}"],
    },
    "rbac": {"rollouts": True, "descheduling": True},
    # The nodes have a kube-scheduler that was built here, under the name of the published one.
    "kubeScheduler": {"image": {"digests": None}},
}
BUSYBOX: Final = Path("/bin/busybox")
PROGRAMS: Final = ("containerd", "runc", "ctr", "mmdebstrap", "busybox", "unshare", "ip")
_WAITS: Final = "trap exit TERM; while :; do sleep 3600 & wait $!; done"
_DEFAULT_SCHEDULER: Final[Obj] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}


def lacking() -> str:
    """Why real nodes cannot run here, or ""."""
    if os.geteuid() != 0:
        return "real nodes need root"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"real nodes need {', '.join(missing)}"
    if not Path("/usr/lib/cni/loopback").exists():
        return "real nodes need containernetworking-plugins"
    if not os.access("/sys/fs/cgroup", os.W_OK):
        return "real nodes need the right to make cgroups"
    if Path("/proc/net/route").read_text().count("\n") > 1:
        return "real nodes run in namespaces of their own: make e2e-nodes"
    return "" if image_file().exists() else "no image: python -m tests.nodes.image has not made it"


class Cluster:
    """An async context manager; within it the nodes are Ready. Logs are below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.grace_s = GRACE_S
        binaries = ready_binaries(KUBELET)
        self.binaries = binaries
        settings = Settings(node_grace_s=GRACE_S, audit=False, kwok=False)
        self.control_plane = ControlPlane(binaries, folder / "control-plane", settings)
        self.processes = Processes(folder / "logs")
        self.nodes = [Node(number, folder / "nodes", self.processes) for number in range(NODES)]
        self.raw: RawHttp

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if hasattr(self, "raw"):
            await self.raw.__aexit__()
        for node in self.nodes:
            node.end()
        self.processes.stop_all(10.0)
        self.control_plane.stop()
        for node in self.nodes:
            node.clean()

    async def _start(self) -> None:
        self._open_network()
        await self.control_plane.start()
        self.raw = await RawHttp(self.control_plane.kubeconfig).__aenter__()
        await self.control_plane.start_scheduler(_DEFAULT_SCHEDULER)
        images = await asyncio.to_thread(self._images)
        await asyncio.gather(*(self.start_node(node, images) for node in self.nodes))
        self.images = images
        for node in self.nodes:
            await eventually(partial(self.node_is_ready, node.name), 120.0, f"{node.name} is Ready")

    def _open_network(self) -> None:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for node in self.nodes:
            subprocess.run(
                ["ip", "address", "replace", f"{node.address}/32", "dev", "lo"], check=True
            )

    async def start_node(self, node: Node, images: list[Path]) -> None:
        """Starts a node, new or lost."""
        kubeconfig = yaml.safe_load(self.control_plane.kubeconfig.read_text())
        kubeconfig["clusters"][0]["cluster"]["server"] = "https://10.0.0.1"
        file = node.folder / "kubeconfig"
        file.write_text(json.dumps(kubeconfig))
        port = int(self.control_plane.url.rpartition(":")[2])
        await node.start(self.binaries.program("kubelet"), file, images, port)

    def _images(self) -> list[Path]:
        folder = self.folder / "images"
        folder.mkdir()
        version = KUBELET.kubernetes
        busybox, shell = {"/bin/busybox": BUSYBOX}, {"/bin/sh": "busybox"}
        program = {"/usr/local/bin/kube-scheduler": self.binaries.program("kube-scheduler")}
        path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        pause = Content(["/bin/sh", "-c", _WAITS], files=busybox, links=shell)
        worker = Content(["/bin/sh"], files=busybox, links=shell, env=path)
        scheduler = Content(["kube-scheduler"], files=program, env=path)
        return [
            pack("docker.io/local/pause:1", pause, folder / "pause.tar"),
            pack("docker.io/local/worker:1", worker, folder / "worker.tar"),
            pack(
                f"registry.k8s.io/kube-scheduler:{version}",
                scheduler,
                folder / "kube-scheduler.tar",
            ),
            image_file(),
        ]

    async def get(self, path: str) -> Any:
        """An object or a list; AssertionError where it is not."""
        answer = await self.raw.get(path)
        assert answer.status == 200, f"{path}: {answer.status} {answer.message}"
        return answer.body

    async def node_is_ready(self, name: str) -> bool:
        """Whether the API server says so."""
        node = await self.get(f"/api/v1/nodes/{name}")
        conditions = {each["type"]: each for each in node["status"].get("conditions", ())}
        if conditions.get("Ready", {}).get("status") != "True":
            raise NotYet(json.dumps(conditions.get("Ready")))
        return True

    async def node_renewed(self, name: str, since: datetime.datetime) -> bool:
        """Whether a node's kubelet has renewed its lease after ``since``."""
        lease = await self.get(
            f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        )
        renewed = str(lease["spec"].get("renewTime"))
        if datetime.datetime.fromisoformat(renewed) <= since:
            raise NotYet(f"{name} renewed its lease at {renewed}")
        return True

    async def install(self) -> str:
        """``helm install`` of the chart as the README has it; returns when its Deployments are
        available.
        """
        await self.apply(
            *(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                for name in (NAMESPACE, TENANT)
            )
        )
        file = self.folder / "values.json"
        file.write_text(json.dumps(VALUES))
        options = ("--namespace", SYSTEM, "--create-namespace", "--values", file)
        place = ("--kubeconfig", self.control_plane.kubeconfig)
        said = await asyncio.to_thread(
            run_helm, "install", RELEASE, CHART, *options, *place, timeout_s=60.0
        )
        for name in ("vreplica-scheduler", "vreplica-webhook", "vreplica-webhook-upkeep"):
            await eventually(partial(self.is_available, name), 180.0, f"{name} is available")
        return said

    async def is_available(self, name: str) -> bool:
        """Whether all replicas of one of our Deployments are."""
        deployment = await self.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{name}")
        status, wanted = deployment["status"], deployment["spec"]["replicas"]
        counted = {key: status.get(key, 0) for key in ("updatedReplicas", "availableReplicas")}
        if status.get("observedGeneration") != deployment["metadata"]["generation"] or set(
            counted.values()
        ) != {wanted}:
            pods = await self.get(f"/api/v1/namespaces/{SYSTEM}/pods")
            raise NotYet(f"{counted}; {[told(pod) for pod in pods['items']]}")
        return True

    async def create(self, obj: Obj) -> None:
        """A VPod; AssertionError where it is refused."""
        path = f"/apis/{obj['apiVersion']}/namespaces/{obj['metadata']['namespace']}/vpods"
        answer = await self.raw.post(path, obj)
        assert answer.status == 201, f"{answer.status} {answer.message}"

    async def created(self, obj: Obj) -> bool:
        """As ``create``, for an API server that is only just back."""
        path = f"/apis/{obj['apiVersion']}/namespaces/{obj['metadata']['namespace']}/vpods"
        try:
            answer = await self.raw.post(path, obj)
        except aiohttp.ClientError as error:
            raise NotYet(repr(error)) from error
        # 409: an earlier try whose answer was lost.
        assert answer.status in {201, 409}, f"{answer.status} {answer.message}"
        return True

    async def delete(self, vpod: str) -> None:
        """A VPod of the tenant."""
        answer = await self.raw.delete(
            f"/apis/vreplica.dev/v1alpha1/namespaces/tenant/vpods/{vpod}"
        )
        assert answer.status == 200, f"{answer.status} {answer.message}"

    def containers_of(self, pods: str, command: str = "/bin/sh") -> dict[str, int]:
        """The first process of each adapter container, by its pod's name: the oldest of those that
        run ``command``. A shell forks others.
        """
        found: dict[str, int] = {}
        for node in self.nodes:
            for container in node.containers():
                pod = container.environment.get("POD", "")
                if pod.startswith(pods) and container.command.startswith(command):
                    found[pod] = min(container.pid, found.get(pod, container.pid))
        return found

    def log_tails(self) -> str:
        """The ends of all logs."""
        parts = [self.processes.log_tails(), self.control_plane.processes.log_tails()]
        for node in self.nodes:
            for file in (
                *node.folder.glob("*.log"),
                *node.folder.glob(f"podlogs/{SYSTEM}_*/*/*.log"),
            ):
                lines = file.read_text(errors="replace").splitlines()[-12:]
                parts += [f"--- {file}", *(line[:300] for line in lines)]
        return "\n".join(parts)

    async def kubectl(self, *words: str, timeout_s: float = 60.0) -> str:
        """What kubectl says; AssertionError where it fails."""
        program = self.binaries.program("kubectl")
        options = (
            f"--kubeconfig={self.control_plane.kubeconfig}",
            f"--cache-dir={self.folder / 'cache'}",
        )
        process = await asyncio.create_subprocess_exec(
            program,
            *options,
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(timeout_s):
            said = (await process.communicate())[0].decode()
        assert process.returncode == 0, said
        return said

    async def apply(self, *objects: Obj) -> None:
        """``kubectl apply``."""
        file = self.folder / "applied.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        await self.kubectl("apply", "-f", str(file))


def told(pod: Obj) -> str:
    """A pod in a line: name, node, phase, and what its containers wait for."""
    status = pod["status"]
    containers = [
        f"{each['name']}={json.dumps(each.get('state'))[:200]}/{each.get('restartCount')}"
        for each in status.get("containerStatuses", ())
    ]
    why = [
        each.get("message", "") for each in status.get("conditions", ()) if each["status"] != "True"
    ]
    return (
        f"{pod['metadata']['name']} {pod['spec'].get('nodeName')} {status.get('phase')} "
        f"{containers} {why[:1]}"
    )
