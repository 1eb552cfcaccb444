"""API objects of the suite: read from the shipped manifests, changed by named substitutions, or
built here.

Theory of operation. Scenarios apply the files in ``manifests/`` themselves, so that what users
install is what is tested. Where the suite must differ (it has no cluster network, so a webhook is
reached by URL and not by Service) the difference is a ``Substitution``: a named function from
object to object, visible in the scenario.
"""

import base64
import copy
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from extender.kube.api import Obj, Resource
from extender.model.names import POOL_LABEL, SLOTS_RESOURCE, ZONE_LABEL

Source = Path | Obj
Substitution = Callable[[Obj], Obj | None]
"""From an object to what the suite applies instead; None: nothing."""

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
KWOK_LABEL: Final = "vreplica.dev/e2e-kwok"
"""Nodes with it are played by kwok; a node that loses it fails: no lease, no status, its pods run
on unseen.
"""
NODE_NAME: Final = "node-{:03d}"

_CLUSTER_SCOPED: Final = frozenset(
    {
        "KWOKNodeClass",
        "NodePool",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Node",
        "PriorityClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    }
)


def load(source: Source) -> list[Obj]:
    """Objects of a manifest (several documents, or a List), of a folder, or the object itself.

    Of a folder with a kustomization, its ``resources`` in their order; what it would generate or
    relabel is left out.
    """
    if not isinstance(source, Path):
        return [copy.deepcopy(source)]
    if source.is_dir():
        return [obj for path in _files_of(source) for obj in load(path)]
    found: list[Obj] = []
    for document in copy.deepcopy(_documents(source.read_text())):
        if document is None or document.get("kind") == "Kustomization":
            continue
        found += document["items"] if document.get("kind") == "List" else [document]
    return found


@cache
def _documents(text: str) -> list[Obj | None]:
    """Every scenario applies the same manifests, and YAML is slow to read."""
    return list(yaml.safe_load_all(text))


def _files_of(folder: Path) -> list[Path]:
    kustomization = folder / "kustomization.yaml"
    if kustomization.exists():
        listed: list[str] = yaml.safe_load(kustomization.read_text()).get("resources", [])
        return [folder / name for name in listed]
    return sorted(path for path in folder.iterdir() if path.suffix in {".yaml", ".yml", ".json"})


def substituted(sources: Iterable[Source], substitutions: Sequence[Substitution]) -> list[Obj]:
    """All objects of ``sources``, each through every substitution in turn."""
    objects = [obj for source in sources for obj in load(source)]
    for substitute in substitutions:
        objects = [changed for changed in map(substitute, objects) if changed is not None]
    return objects


def resource_of(obj: Obj) -> Resource:
    """The resource of an object by its apiVersion and kind, the plural by the rules that
    Kubernetes' own kinds follow.
    """
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    kind = str(obj["kind"])
    lower = kind.lower()
    if lower.endswith("y"):
        plural = lower[:-1] + "ies"
    elif lower.endswith(("s", "x", "ch")):
        plural = lower + "es"
    else:
        plural = lower + "s"
    return Resource(group, version, plural, kind, namespaced=kind not in _CLUSTER_SCOPED)


def webhook_at(url: str, ca_pem: bytes) -> Substitution:
    """Webhook configurations call ``url`` (+ their Service's path), verified against ``ca_pem``,
    instead of a Service.
    """
    bundle = base64.b64encode(ca_pem).decode()

    def substitute(obj: Obj) -> Obj | None:
        if obj["kind"] not in {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}:
            return obj
        for hook in obj["webhooks"]:
            path = hook["clientConfig"].get("service", {}).get("path", "")
            hook["clientConfig"] = {"url": url.rstrip("/") + path, "caBundle": bundle}
        return obj

    return substitute


def without(*kinds: str) -> Substitution:
    """Drops kinds, such as Deployment: kwok would play their pods, and the suite runs the programs
    itself.
    """
    return lambda obj: None if obj["kind"] in kinds else obj


def scheduler_configuration(source: Source, *, kubeconfig: Path, leader_elect: bool = False) -> Obj:
    """A KubeSchedulerConfiguration for ``kubeconfig``; without leader election unless a scenario is
    about it.
    """
    (config,) = load(source)
    if config["kind"] == "ConfigMap":
        (text,) = (
            value for value in config["data"].values() if "KubeSchedulerConfiguration" in value
        )
        config = yaml.safe_load(text)
    config.setdefault("clientConnection", {})["kubeconfig"] = str(kubeconfig)
    config.setdefault("leaderElection", {})["leaderElect"] = leader_elect
    return config


def extender_at(config: Obj, url: str, **fields: Any) -> Obj:
    """A KubeSchedulerConfiguration or Policy whose extenders are at ``url`` (without path), with
    other fields replaced.
    """
    config = copy.deepcopy(config)
    for extender in config["extenders"]:
        path = str(extender["urlPrefix"]).split("://", 1)[-1].partition("/")[2]
        extender.update(urlPrefix=f"{url.rstrip('/')}/{path}", **fields)
    return config


def write_json(path: Path, content: Any) -> Path:
    """Writes JSON (which is YAML too), private to the owner: it may hold a token."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(content))
    return path


def node(number: int, *, zone: int, cpu: int, slots: int | None) -> Obj:
    """Node ``node-NNN`` in ``zone-(zone)`` with ``cpu`` cores; ``slots``: allocatable
    vreplica.dev/slots.
    """
    name = NODE_NAME.format(number)
    room: dict[str, str] = {
        "cpu": str(cpu),
        "memory": "64Gi",
        "ephemeral-storage": "100Gi",
        "pods": "110",
    }
    if slots is not None:
        room[SLOTS_RESOURCE] = str(slots)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                HOSTNAME_LABEL: name,
                ZONE_LABEL: f"zone-{zone}",
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                KWOK_LABEL: "managed",
            },
        },
        "status": {"capacity": room, "allocatable": room},
    }


def pod(namespace: str, name: str, **spec: Any) -> Obj:
    """A pod with one container; ``spec`` is merged into its spec."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**_pod_spec("100m"), **spec},
    }


def stateful_set(
    namespace: str, name: str, replicas: int, *, pool: str = "", cpu: str = "100m", **spec: Any
) -> Obj:
    """A StatefulSet, its pods created in parallel; ``pool`` sets the opt-in label; ``spec`` is
    merged into its spec.
    """
    labels = {"app": name} | ({POOL_LABEL: pool} if pool else {})
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(cpu)},
            **spec,
        },
    }


def _pod_spec(cpu: str) -> Obj:
    resources = {"requests": {"cpu": cpu, "memory": "32Mi"}}
    return {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": "adapter", "image": "registry.invalid/adapter:1", "resources": resources},
        ],
    }
