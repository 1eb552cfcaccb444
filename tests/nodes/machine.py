"""What runs as the first process of a node's namespaces: containerd and the kubelet. ``python -m
tests.nodes.machine SETTINGS.json``.

Theory of operation. A node is a set of namespaces (network, mounts, processes) whose first process
is this program: when it dies, the kernel ends all that runs in them, shims and containers too, and
drops the mounts. So a lost machine is one SIGKILL, and nothing is left behind however the tests
end. The node's network is a loopback with the node's own address; ``wires.py`` connects it.

What had to be found out (Debian 12, cgroup v1, no CAP_SYS_RESOURCE, no bridge or veth):
restrict_oom_score_adj, or runc fails, for it may not lower oom_score_adj; two kubelets need a
containerd each; a CNI configuration of the loopback plugin alone makes the node Ready; pods need
hostNetwork; snapshotter native works everywhere.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

SERVICE_ADDRESS: Final = "10.0.0.1"
"""Of the Service ``kubernetes``, as pods are told."""
ADAPTERS_NAME: Final = "vreplica-adapters.vreplica-system.svc"
"""Of the Service that adapters call. Here it has the same address; see ``node.adapters_port``."""
CONTAINERD_TIMEOUT_S: Final = 60.0
CONTAINERD: Final = """version = 2
root = "{folder}/containerd"
state = "{folder}/state"
[grpc]
  address = "{folder}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/local/pause:1"
  restrict_oom_score_adj = true
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""


def kubelet_configuration(folder: Path) -> dict[str, Any]:
    """A KubeletConfiguration for a node among others on one machine."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "containerRuntimeEndpoint": f"unix://{folder}/c.sock",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "readOnlyPort": 0,
        "healthzPort": 0,
        "resolvConf": "",
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 12,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "volumePluginDir": f"{folder}/plugins",
        "podLogsDir": f"{folder}/podlogs",
    }


def _run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


def prepare(folder: Path, address: str) -> None:
    """Network and mounts of the namespaces that this process is the first of."""
    _run("ip", "link", "set", "lo", "up")
    for each in (address, SERVICE_ADDRESS):
        _run("ip", "address", "add", f"{each}/32", "dev", "lo")
    hosts = folder / "hosts"
    names = f"kubernetes.default.svc {ADAPTERS_NAME}"
    hosts.write_text(f"127.0.0.1 localhost\n{SERVICE_ADDRESS} {names}\n")
    # hostNetwork pods get the node's names.
    _run("mount", "--bind", hosts, "/etc/hosts")
    for shared in ("/run/containerd", "/var/lib/kubelet"):
        Path(shared).mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "tmpfs", shared)


class Machine:
    """The programs of one node."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.folder = Path(settings["folder"])
        self.ctr = ["ctr", "-a", f"{self.folder}/c.sock", "-n", "k8s.io"]

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        """A program with a log of its own."""
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)

    def run(self) -> int:
        """Starts everything; returns when the kubelet has ended."""
        folder = self.folder
        prepare(folder, self.settings["address"])
        (folder / "cni").mkdir(exist_ok=True)
        loopback = {"cniVersion": "0.4.0", "name": "lo", "plugins": [{"type": "loopback"}]}
        (folder / "cni" / "10-lo.conflist").write_text(json.dumps(loopback))
        toml = folder / "containerd.toml"
        toml.write_text(CONTAINERD.format(folder=folder, snapshotter=self.settings["snapshotter"]))
        config = folder / "kubelet.yaml"
        config.write_text(json.dumps(kubelet_configuration(folder)))
        self.start("containerd", "containerd", "-c", toml)
        self._containerd_answers()
        for archive in self.settings["images"]:
            _run(
                *self.ctr,
                "images",
                "import",
                "--snapshotter",
                self.settings["snapshotter"],
                archive,
            )
        kubelet = self.start(
            "kubelet",
            self.settings["kubelet"],
            f"--config={config}",
            f"--kubeconfig={self.settings['kubeconfig']}",
            f"--root-dir={folder / 'kubelet'}",
            f"--hostname-override={self.settings['name']}",
            f"--node-ip={self.settings['address']}",
            f"--cert-dir={folder / 'pki'}",
            f"--node-labels={self.settings['labels']}",
            "-v=2",
        )
        while kubelet.poll() is None:
            # As the first process it inherits orphans, shims and what they leave.
            reap(kubelet.pid)
            time.sleep(0.2)
        return kubelet.returncode

    def _containerd_answers(self) -> None:
        deadline = time.monotonic() + CONTAINERD_TIMEOUT_S
        while subprocess.run([*self.ctr, "version"], capture_output=True, check=False).returncode:
            if time.monotonic() > deadline:
                raise TimeoutError(f"containerd does not answer, see {self.folder}/containerd.log")
            time.sleep(0.1)


def reap(spared: int) -> None:
    """Takes note of children that have ended, other than ``spared``, whose own object waits
    for it.
    """
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == spared:
            return
        os.waitpid(found.si_pid, os.WNOHANG)


def main() -> int:
    """The node, until it is ended."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    return Machine(json.loads(Path(sys.argv[1]).read_text())).run()


if __name__ == "__main__":
    sys.exit(main())
