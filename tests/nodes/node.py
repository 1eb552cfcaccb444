"""One real node: its namespaces, its folder, and what happens to it."""

import contextlib
import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.processes import Process, Processes
from tests.e2e.waiting import NotYet, eventually
from tests.nodes.machine import SERVICE_ADDRESS

CGROUPS: Final = Path("/sys/fs/cgroup")
CONTAINERS: Final = "/k8s.io/"
"""Where containerd puts containers whose pods have no cgroup of their own."""
SNAPSHOTTER: Final = "overlayfs" if "overlay" in Path("/proc/filesystems").read_text() else "native"
WEBHOOK_PORT: Final = 8443
KUBELET_PORT: Final = 10250
ADAPTERS_PORT: Final = 10264
NODES: Final = 3


def address_of(number: int) -> str:
    """The node's own address."""
    return f"10.0.1.{number + 1}"


def adapters_port(number: int) -> int:
    """The port of the Service's address at which every node's pods reach the listener for adapters
    of the replica on this node, if it has one.
    """
    return 8001 + number


@dataclass(frozen=True, slots=True)
class Container:
    """A process of a container, as this machine sees it."""

    pid: int
    user: int
    command: str
    environment: dict[str, str]


class Node:
    """A node that ``start`` makes; ``kill`` is the loss of the machine."""

    def __init__(self, number: int, folder: Path, processes: Processes) -> None:
        self.name = f"node-{number}"
        self.zone = f"zone-{'abc'[number % 3]}"
        self.address = address_of(number)
        self.folder = folder / self.name
        self.folder.mkdir(parents=True)
        self._processes = processes
        self._process: Process | None = None
        self._wires: Process | None = None

    async def start(
        self, kubelet: Path, kubeconfig: Path, images: list[Path], api_port: int
    ) -> None:
        """Starts it, or a lost one again with its disk; returns when its network is connected."""
        self.clean()
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        settings = {
            "name": self.name,
            "address": self.address,
            "folder": str(self.folder),
            "snapshotter": SNAPSHOTTER,
            "images": [str(image) for image in images],
            "kubelet": str(kubelet),
            "kubeconfig": str(kubeconfig),
            "labels": f"topology.kubernetes.io/zone={self.zone}",
        }
        file = self.folder / "settings.json"
        file.write_text(json.dumps(settings))
        namespaces = ("--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc")
        program = (sys.executable, "-m", "tests.nodes.machine", file)
        self._process = self._processes.start(self.name, ["unshare", *namespaces, *program])
        inside = await eventually(self._has_network, 10.0, f"{self.name} has its namespaces")
        await self._connect(inside, api_port)

    async def _has_network(self) -> int:
        return self._first_process()

    def _first_process(self) -> int:
        assert self._process is not None
        children = (
            Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        )
        if not children or self.name not in Path(f"/proc/{children[0]}/cmdline").read_text():
            raise NotYet(f"children {children}\n{self._process.log_tail()}")
        interface = Path(f"/proc/{children[0]}/net/fib_trie").read_text()
        if self.address not in interface or SERVICE_ADDRESS not in interface:
            raise NotYet("no address")
        return int(children[0])

    async def _connect(self, inside: int, api_port: int) -> None:
        wires: list[dict[str, Any]] = [
            {
                "inside": inside,
                "listen": [SERVICE_ADDRESS, 443],
                "to": 0,
                "address": ["127.0.0.1", api_port],
            },
            *(
                {
                    "inside": 0,
                    "listen": [self.address, port],
                    "to": inside,
                    "address": [self.address, port],
                }
                for port in (WEBHOOK_PORT, KUBELET_PORT, ADAPTERS_PORT)
            ),
            *(
                {
                    "inside": inside,
                    "listen": [SERVICE_ADDRESS, adapters_port(number)],
                    "to": 0,
                    "address": [address_of(number), ADAPTERS_PORT],
                }
                for number in range(NODES)
            ),
        ]
        file = self.folder / "wires.json"
        file.write_text(json.dumps(wires))
        self._wires = self._processes.start(
            f"{self.name}-wires", [sys.executable, "-m", "tests.nodes.wires", file]
        )

    async def kill(self) -> None:
        """The machine is lost: kubelet, containerd and all containers end at once."""
        assert self._process is not None
        assert self._wires is not None
        await self._process.kill()
        await self._wires.kill()

    def containers(self) -> list[Container]:
        """The processes of its containers: those of its network that are in a container's
        cgroup.
        """
        found = []
        network = self._network()
        for path in Path("/proc").iterdir():
            if not path.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if (path / "ns/net").readlink() != network:
                    continue
                if CONTAINERS not in (path / "cgroup").read_text():
                    continue
                variables = (path / "environ").read_text(errors="replace").split("\0")
                command = (path / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
                environment = dict(word.split("=", 1) for word in variables if "=" in word)
                found.append(Container(int(path.name), path.stat().st_uid, command, environment))
        return found

    def _network(self) -> Path | None:
        with contextlib.suppress(NotYet, OSError):
            return Path(f"/proc/{self._first_process()}/ns/net").readlink()
        return None

    def kill_containers(self, word: str, **environment: str) -> int:
        """SIGKILL to the containers whose command has ``word`` and that have these variables; how
        many processes.
        """
        killed = 0
        for container in self.containers():
            has = environment.items() <= container.environment.items()
            if word in container.command and has:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(container.pid, signal.SIGKILL)
                    killed += 1
        return killed

    def log_lines(self, pod: str, container: str) -> list[str]:
        """What a container said, oldest first, each with the time in front, as the kubelet keeps
        it.
        """
        lines: list[str] = []
        for file in self.folder.glob(f"podlogs/*_{pod}_*/{container}/*.log"):
            lines += file.read_text(errors="replace").splitlines()
        return sorted(lines)

    def end(self) -> None:
        """Ends all of it at once; nothing in it is worth waiting for."""
        for process in (self._process, self._wires):
            if process is not None:
                process.signal(signal.SIGKILL)

    def clean(self) -> None:
        """Removes what the kernel keeps of it: its containers' cgroups, which are empty once it has
        ended.
        """
        left = [
            path.name for path in self.folder.glob("state/io.containerd.runtime.v2.task/k8s.io/*")
        ]
        for controller in CGROUPS.iterdir():
            top = controller / CONTAINERS.strip("/")
            for folder in [*(top / name for name in left), top]:
                with contextlib.suppress(OSError):
                    folder.rmdir()
