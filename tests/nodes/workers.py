"""A pool of real containers whose adapters are written with the library (``clients/python``), and
what they have served by their own word.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from extender.kube.api import Obj
from tests.e2e.waiting import NotYet
from tests.nodes.adapters import is_ready
from tests.nodes.cluster import NAMESPACE, TENANT, Cluster
from tests.nodes.image import OURS, ROOT
from tests.nodes.machine import ADAPTERS_NAME
from tests.nodes.node import NODES, adapters_port

SLOTS: Final = 20
LIBRARY: Final = ROOT / "clients" / "python"
URLS: Final = [f"https://{ADAPTERS_NAME}:{adapters_port(number)}" for number in range(NODES)]


def program_objects() -> list[Obj]:
    """The library and the programs, as ConfigMaps that the containers mount as one folder."""
    package = {file.name: file.read_text() for file in (LIBRARY / "vreplica_adapter").glob("*.py")}
    here = Path(__file__).parent
    program = {name: (here / name).read_text() for name in ("worker.py", "router.py")}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "data": data,
        }
        for name, data in (("library", package), ("program", program))
    ]


def pool_objects(name: str, replicas: int, spec: Obj, said: Path) -> list[Obj]:
    """An AdapterPool and its StatefulSet, whose pods run the program in our own image: that has
    Python and aiohttp. ``said``: the folder of this machine in which they write.
    """
    annotation = "metadata.annotations['vreplica.dev/assignment']"
    told = [
        {"serviceAccountToken": {"audience": "vreplica.dev", "path": "token"}},
        {"configMap": {"name": "vreplica-adapters-ca"}},
        {"downwardAPI": {"items": [{"path": "assignment", "fieldRef": {"fieldPath": annotation}}]}},
    ]
    container = {
        "name": "worker",
        "image": OURS,
        "imagePullPolicy": "Never",
        "command": ["python", "/program/worker.py"],
        "env": [
            {"name": "VREPLICA_URLS", "value": ",".join(URLS)},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "volumeMounts": [
            {"name": "vreplica", "mountPath": "/var/run/vreplica"},
            {"name": "program", "mountPath": "/program"},
            {"name": "said", "mountPath": "/said"},
        ],
    }
    pod = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 30,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [
            {"name": "vreplica", "projected": {"sources": told}},
            {"name": "program", "projected": {"sources": program_sources()}},
            {"name": "said", "hostPath": {"path": str(said), "type": "Directory"}},
        ],
    }
    labels = {"app": name, "vreplica.dev/pool": name}
    metadata = {"name": name, "namespace": NAMESPACE}
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata,
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    pool = {
        "apiVersion": "vreplica.dev/v1alpha1",
        "kind": "AdapterPool",
        "metadata": metadata,
        "spec": {"statefulSet": name, "namespaceSelector": {}, "slotsPerPod": SLOTS, **spec},
    }
    return [pool, stateful_set]


def program_sources() -> list[Obj]:
    """Of the folder of the library and the programs."""
    package = [{"key": file, "path": f"vreplica_adapter/{file}"} for file in _package_files()]
    return [
        {"configMap": {"name": "library", "items": package}},
        {"configMap": {"name": "program"}},
    ]


def _package_files() -> list[str]:
    return sorted(file.name for file in (LIBRARY / "vreplica_adapter").glob("*.py"))


def vpod_of(pool: str, name: str, vreplicas: int) -> Obj:
    """A VPod of the tenant in that pool."""
    return {
        "apiVersion": "vreplica.dev/v1alpha1",
        "kind": "VPod",
        "metadata": {"name": name, "namespace": TENANT},
        "spec": {"poolRef": {"name": pool, "namespace": NAMESPACE}, "vreplicas": vreplicas},
    }


@dataclass(frozen=True, slots=True)
class Served:
    """From ``at`` on (epoch seconds) a pod serves so many vreplicas of a vpod; ``indexes``: which,
    in a pool with indexes.
    """

    at: float
    pod: str
    vpod: str
    vreplicas: int
    indexes: frozenset[int] = frozenset()


def unserved_of(
    changes: Iterable[Served], wanted: Mapping[str, int], since: float, until: float
) -> float:
    """vreplica-seconds that nobody served between two moments. ``changes`` are in order.
    ``wanted``: vpod -> vreplicas.
    """
    serving: dict[str, dict[str, int]] = {vpod: {} for vpod in wanted}
    lost, before = 0.0, since

    def missing() -> int:
        return sum(max(0, wanted[vpod] - sum(serving[vpod].values())) for vpod in wanted)

    for change in changes:
        if change.vpod in wanted:
            at = min(max(change.at, since), until)
            lost += missing() * (at - before)
            before = at
            serving[change.vpod][change.pod] = change.vreplicas
    return lost + missing() * (until - before)


def served_twice(changes: Iterable[Served], wanted: Mapping[str, int]) -> list[str]:
    """Each moment at which more was served than ``wanted`` (vpod -> vreplicas), or an index twice.
    ``changes`` are in order.
    """
    serving: dict[str, dict[str, Served]] = {vpod: {} for vpod in wanted}
    found = []
    for change in changes:
        if change.vpod not in wanted:
            continue
        now = serving[change.vpod]
        now[change.pod] = change
        indexes = [index for one in now.values() for index in one.indexes]
        total = sum(one.vreplicas for one in now.values())
        if total > wanted[change.vpod] or len(indexes) != len(set(indexes)):
            found.append(f"{change.at}: {now}")
    return found


class Workers:
    """The pool ``name`` of a cluster."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.said = cluster.folder / name
        """A file for each pod. Its container is nobody, and has to write there."""
        self.said.mkdir()
        self.said.chmod(0o777)

    async def pods(self) -> dict[str, Obj]:
        """The pool's pods by name."""
        found = await self.cluster.get(
            f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{self.name}"
        )
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    async def ready(self) -> int:
        """How many pods are Ready; NotYet if one is not, or goes."""
        pods = await self.pods()
        if not all(map(is_ready, pods.values())):
            raise NotYet(str([name for name, pod in pods.items() if not is_ready(pod)]))
        return len(pods)

    def changes(self) -> list[Served]:
        """What all containers have said, in order, those of former pods included."""
        found = [
            Served(
                line["at"],
                file.name,
                line["vpod"],
                line["vreplicas"],
                frozenset(line.get("indexes", ())),
            )
            for file in self.said.iterdir()
            if file.is_file()
            for line in map(json.loads, file.read_text().splitlines())
        ]
        return sorted(found, key=lambda one: one.at)

    def serving(self) -> dict[str, dict[str, int]]:
        """vpod -> pod -> vreplicas, of those that are served now."""
        found: dict[str, dict[str, int]] = {}
        for change in self.changes():
            counts = found.setdefault(change.vpod, {})
            counts[change.pod] = change.vreplicas
        return {
            vpod: {pod: count for pod, count in counts.items() if count}
            for vpod, counts in found.items()
        }

    async def published(self) -> dict[str, dict[str, int]]:
        """vpod -> pod -> vreplicas, by the vpods' statuses."""
        path = f"/apis/vreplica.dev/v1alpha1/namespaces/{TENANT}/vpods"
        vpods = (await self.cluster.get(path))["items"]
        return {
            f"{TENANT}/{each['metadata']['name']}": {
                placement["podName"]: placement["vreplicas"]
                for placement in each.get("status", {}).get("placements", ())
            }
            for each in vpods
            if each["spec"]["poolRef"]["name"] == self.name
        }

    async def assigned(self) -> dict[str, dict[str, Any]]:
        """Pod -> vpod -> share, as the pods are told."""
        key = "vreplica.dev/assignment"
        pods = await self.pods()
        texts = {name: pod["metadata"]["annotations"].get(key) for name, pod in pods.items()}
        return {name: json.loads(text)["shares"] for name, text in texts.items() if text}

    async def settled(self, vreplicas: int, *, without: Iterable[str] = ()) -> bool:
        """Whether so many vreplicas are served where they are published, none of them on the pods
        ``without``, and nothing is being handed over; else NotYet.
        """
        serving, published = self.serving(), await self.published()
        assigned = await self.assigned()
        serving = {vpod: pods for vpod, pods in serving.items() if vpod in published}
        total = sum(sum(pods.values()) for pods in published.values())
        busy = {pod for pod, shares in assigned.items() if shares and pod in without} | {
            pod
            for pod, shares in assigned.items()
            if any(share["state"] != "Serve" for share in shares.values())
        }
        if serving != published or total != vreplicas or busy:
            raise NotYet(f"{total} published; busy {busy}; {_different(serving, published)}")
        return True


def _different(one: Mapping[str, object], other: Mapping[str, object]) -> str:
    keys = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
    return "; ".join(f"{key}: serves {one.get(key)}, has {other.get(key)}" for key in keys[:5])
