"""Karpenter on a control plane: the real program, with the provider that makes Node objects for
kwok to play.

Theory of operation. The program is Karpenter's own provider for kwok, built from its Go module. It
reads pending pods, simulates where they would fit, and makes a NodeClaim and a Node for what does
not. Its nodes carry the label by which our kwok takes nodes, so their kubelets are played as those
of all others. One instance type is offered, in three zones.
"""

import json
from pathlib import Path
from typing import Any, Final

from extender.kube.api import NODES, ListOptions, Obj
from extender.model.names import ZONE_LABEL
from tests.e2e.build import Binaries
from tests.e2e.objects import KWOK_LABEL
from tests.e2e.processes import Probe, Process, free_port
from tests.e2e.real import RealBackend

NODE_POOL: Final = "adapters"
NODE_POOL_LABEL: Final = "karpenter.sh/nodepool"
ZONES: Final = ("zone-0", "zone-1", "zone-2")
NODE_CPUS: Final = 4
_CRDS: Final = "karpenter*.yaml"


async def start_karpenter(backend: RealBackend, binaries: Binaries, directory: Path) -> Process:
    """Installs its CRDs and one NodePool, and starts it. Raises ProcessFailed with its
    log's end.
    """
    program = binaries.program("karpenter")
    await backend.apply([*sorted(program.parent.glob(_CRDS))])
    await backend.apply([_node_class(), _node_pool()])
    types = directory / "instance-types.json"
    types.write_text(json.dumps([_instance_type()]))
    health, metrics = free_port(), free_port()
    environment = {
        "KUBECONFIG": str(backend.kubeconfig),
        "KUBERNETES_MIN_VERSION": "1.19.0-0",
        "DISABLE_LEADER_ELECTION": "true",
        "INSTANCE_TYPES_FILE_PATH": str(types),
        "HEALTH_PROBE_PORT": str(health),
        "METRICS_PORT": str(metrics),
        "SYSTEM_NAMESPACE": "kube-system",
        "BATCH_IDLE_DURATION": "1s",
        "BATCH_MAX_DURATION": "3s",
    }
    process = backend.processes.start("karpenter", [program], env=environment)
    await process.ready(Probe(f"http://127.0.0.1:{health}/readyz"))
    return process


async def made_nodes(backend: RealBackend) -> list[Obj]:
    """The nodes that Karpenter has made and not taken away."""
    return (await backend.api.list_page(NODES, ListOptions(label_selector=NODE_POOL_LABEL))).items


def _instance_type() -> Obj:
    offerings = [
        {
            "Price": 1.0,
            "Available": True,
            "Requirements": [_is("karpenter.sh/capacity-type", "on-demand"), _is(ZONE_LABEL, zone)],
        }
        for zone in ZONES
    ]
    return {
        "name": f"m-{NODE_CPUS}x-amd64-linux",
        "offerings": offerings,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {
            "cpu": str(NODE_CPUS),
            "memory": "16Gi",
            "ephemeral-storage": "20Gi",
            "pods": "110",
        },
    }


def _is(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}


def _node_class() -> Obj:
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": NODE_POOL},
        "spec": {},
    }


def _node_pool() -> Obj:
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": NODE_POOL}
    spec = {
        "requirements": [_is("karpenter.sh/capacity-type", "on-demand")],
        "nodeClassRef": reference,
        "expireAfter": "Never",
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": NODE_POOL},
        "spec": {
            "template": {"metadata": {"labels": {KWOK_LABEL: "managed"}}, "spec": spec},
            # Without a budget of its own it takes a tenth of the nodes at a time.
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "0s",
                "budgets": [{"nodes": "100%"}],
            },
        },
    }
