"""``Backend``: a cluster that scenarios run on, the real control plane or the embedded one, by the
same calls.

Theory of operation. A scenario says what a user would: apply manifests, add nodes, start a
kube-scheduler, run the service. It never asks which back end it is on (``name`` is for the few
facts that only one of both has). The order of calls is that of an installation: ``start_scheduler``
first, because the embedded cluster takes its schedulers when it starts; then nodes, manifests,
namespaces. What a scenario starts ends with it, and what it created is gone before the next one
begins.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

from extender.kube.api import (
    CRDS,
    NODES,
    PODS,
    Api,
    ListOptions,
    NotFound,
    Obj,
    PatchType,
)
from extender.model.names import UNREACHABLE_TAINT
from tests.e2e.objects import Source, Substitution, resource_of, substituted
from tests.e2e.processes import Process, Processes
from tests.e2e.waiting import NotYet, eventually

NODES_READY_TIMEOUT_S: Final = 30.0
NODE_FAILED_TIMEOUT_S: Final = 60.0
NODE_INTERVAL_S: Final = 0.2

_FIRST: Final = ("Namespace", "CustomResourceDefinition")


class Backend(Protocol):
    """A running cluster. Fixture ``backend`` of conftest.py makes and ends it."""

    @property
    def name(self) -> Literal["real", "embedded"]:
        """Which one."""
        ...

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        ...

    @property
    def api(self) -> Api:
        """The API server, as administrator."""
        ...

    @property
    def processes(self) -> Processes:
        """For the scenario's own programs (service, webhook); they end with the scenario."""
        ...

    async def start_scheduler(
        self, config: Source, *, kubeconfig: Path | None = None
    ) -> Process | None:
        """kube-scheduler with a KubeSchedulerConfiguration, ready. None where it is no process of
        its own.

        Call it before anything else. ``kubeconfig`` (another identity than system:kube-scheduler)
        matters on the real one only.
        """
        ...

    async def start_legacy_scheduler(self, policy: Source) -> Process | None:
        """kube-scheduler 1.22 with a v1 Policy; it serves ``default-scheduler``. Call it before
        anything else.
        """
        ...

    async def add_nodes(
        self, n: int, zones: int = 3, cpu: int = 8, slots: int | None = None
    ) -> list[str]:
        """``n`` more Ready nodes, round robin over zone-0 to zone-(zones-1); their names."""
        ...

    async def fail_node(self, name: str) -> None:
        """The node goes silent: it becomes NotReady within seconds (``node_failed`` waits), its
        pods stay as they are.
        """
        ...

    async def recover_node(self, name: str) -> None:
        """A node that failed is heard of again: Ready and without taints within seconds
        (``nodes_ready`` waits).
        """
        ...

    async def remove_node(self, name: str) -> None:
        """Deletes the Node object, as a cloud does for a machine that is gone."""
        ...

    async def namespace(self, prefix: str = "e2e", labels: dict[str, str] | None = None) -> str:
        """A new namespace with a name of its own."""
        ...

    async def apply(self, sources: Iterable[Source], *substitutions: Substitution) -> list[Obj]:
        """Creates or updates all objects (namespaces and CRDs first; CRDs are served when it
        returns); as stored.
        """
        ...

    async def token_for(self, service_account: str) -> Path:
        """A kubeconfig for ``NAMESPACE/NAME``, whose rights are those that RBAC grants it."""
        ...


async def apply_objects(
    api: Api, sources: Iterable[Source], substitutions: Sequence[Substitution]
) -> list[Obj]:
    """``Backend.apply``: a merge patch over what exists, so that fields of others are left
    alone.
    """
    objects = substituted(sources, substitutions)
    objects.sort(
        key=lambda obj: _FIRST.index(obj["kind"]) if obj["kind"] in _FIRST else len(_FIRST)
    )
    return [await _create_or_patch(api, obj) for obj in objects]


async def _create_or_patch(api: Api, obj: Obj) -> Obj:
    resource = resource_of(obj)
    name = str(obj["metadata"]["name"])
    namespace = str(obj["metadata"].get("namespace", "default")) if resource.namespaced else ""
    try:
        stored = await api.patch(resource, namespace, name, obj, patch_type=PatchType.MERGE)
    except NotFound:
        stored = await api.create(resource, namespace, obj)
    if resource == CRDS:
        await eventually(lambda: _served(api, obj), 15.0, f"{name} is served")
    return stored


async def _served(api: Api, crd: Obj) -> bool:
    names = crd["spec"]["names"]
    version = crd["spec"]["versions"][0]["name"]
    probe = {"apiVersion": f"{crd['spec']['group']}/{version}", "kind": names["kind"]}
    await api.list_page(resource_of(probe), limit=1)
    stored = await api.get(CRDS, "", crd["metadata"]["name"])
    conditions = stored.get("status", {}).get("conditions", [])
    if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
        raise NotYet(f"conditions {conditions}")
    return True


def condition(obj: Obj, kind: str) -> str:
    """Status of a condition: "True", "False", "Unknown", or "" where there is none."""
    for entry in obj.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return str(entry["status"])
    return ""


async def nodes_ready(
    api: Api, names: Iterable[str], timeout_s: float = NODES_READY_TIMEOUT_S
) -> None:
    """Returns when all ``names`` are Ready and untainted."""
    wanted = set(names)

    async def look() -> bool:
        page = await api.list_page(NODES)
        waiting = {
            obj["metadata"]["name"]: (condition(obj, "Ready"), obj["spec"].get("taints", []))
            for obj in page.items
            if obj["metadata"]["name"] in wanted
            and (condition(obj, "Ready") != "True" or obj["spec"].get("taints"))
        }
        missing = wanted - {obj["metadata"]["name"] for obj in page.items}
        if waiting or missing:
            raise NotYet(f"not ready: {waiting}, missing: {sorted(missing)}")
        return True

    await eventually(look, timeout_s, f"{len(wanted)} nodes are Ready", interval_s=NODE_INTERVAL_S)


async def node_failed(api: Api, name: str, timeout_s: float = NODE_FAILED_TIMEOUT_S) -> None:
    """Returns when the node lifecycle controller has marked the node: not Ready, both unreachable
    taints.

    NoExecute and NoSchedule are written one after the other. Every pod tolerates NoExecute for 300
    s, so until NoSchedule stands as well kube-scheduler still binds pods to the node.
    """

    async def look() -> bool:
        obj = await api.get(NODES, "", name)
        taints = {(taint["key"], taint["effect"]) for taint in obj["spec"].get("taints", [])}
        awaited = {(UNREACHABLE_TAINT, "NoExecute"), (UNREACHABLE_TAINT, "NoSchedule")}
        if condition(obj, "Ready") == "True" or not awaited <= taints:
            raise NotYet(f"Ready {condition(obj, 'Ready')}, taints {sorted(taints)}")
        return True

    await eventually(look, timeout_s, f"{name} is marked as failed", interval_s=NODE_INTERVAL_S)


async def pods_ready(
    api: Api, namespace: str, selector: str, count: int, timeout_s: float = 30.0
) -> list[Obj]:
    """The pods of a selector, when there are ``count`` and all are Ready; sorted by name."""

    async def look() -> list[Obj]:
        page = await api.list_page(PODS, ListOptions(namespace=namespace, label_selector=selector))
        seen = {
            obj["metadata"]["name"]: (obj["spec"].get("nodeName", ""), condition(obj, "Ready"))
            for obj in page.items
        }
        if len(seen) != count or any(ready != "True" for _, ready in seen.values()):
            raise NotYet(f"{len(seen)} pods (node, Ready): {seen}")
        return sorted(page.items, key=lambda obj: str(obj["metadata"]["name"]))

    return await eventually(look, timeout_s, f"{count} pods of {namespace}/{selector} are Ready")
