"""Node lifecycle, taint eviction and pod garbage collection, as in kube-controller-manager.

A node that is silent for ``grace_s`` gets Ready=Unknown, and its pods become not ready. A node that
is not Ready is tainted unreachable (Unknown) or not-ready (False), each with NoSchedule and
NoExecute. A cordoned node is tainted unschedulable.

A NoExecute taint deletes a pod at once, or after the shortest tolerationSeconds of its matching
tolerations, counted from the taint's timeAdded. The pod stays Terminating until its kubelet is
back, somebody forces the deletion, or its node object is deleted.

Pods of missing nodes are removed by force after ``orphan_grace_s``. The taint
``node.kubernetes.io/out-of-service`` says that a person knows that the machine is off. If a node
with that taint is not Ready, its Terminating pods are removed by force at once.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from extender.kube.api import NODES, PODS, Api, Conflict, NotFound, Obj, Preconditions
from extender.lab.apiserver.strategy import rfc3339
from extender.lab.controllers.controller import Controller
from extender.lab.controllers.kubelet import Heartbeats, ready_condition
from extender.lab.controllers.stateful_set import is_running_and_ready, is_terminating
from extender.lab.informer import Informer, ObjectKey, key_of
from extender.model.names import NOT_READY_TAINT, UNREACHABLE_TAINT
from extender.model.reading import condition_in, text

UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE_TAINT: Final = "node.kubernetes.io/out-of-service"
_OWN_TAINTS: Final = frozenset({NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT})


class PodsByNode:
    """The keys of each node's bound pods, kept up to date from an informer."""

    def __init__(self, pods: Informer) -> None:
        self._keys: dict[str, dict[ObjectKey, None]] = {}
        pods.on_change(self._changed)

    def __getitem__(self, node: str) -> list[ObjectKey]:
        return list(self._keys.get(node, ()))

    def _changed(self, before: Obj | None, after: Obj | None) -> None:
        if before is not None and (node := before["spec"].get("nodeName")):
            self._keys.get(node, {}).pop(key_of(before), None)
        if after is not None and (node := after["spec"].get("nodeName")):
            self._keys.setdefault(node, {})[key_of(after)] = None


class NodeLifecycleController(Controller[str]):
    """Maintains Ready conditions and taints of nodes, and the readiness of their pods."""

    def __init__(
        self,
        api: Api,
        nodes: Informer,
        pods: Informer,
        heartbeats: Heartbeats,
        *,
        now: Callable[[], float],
        grace_s: float,
    ) -> None:
        super().__init__(api)
        self._nodes = nodes
        self._pods = pods
        self._by_node = PodsByNode(pods)
        self._heartbeats = heartbeats
        self._now = now
        self._grace_s = grace_s
        nodes.on_change(self._node_changed)
        heartbeats.on_change(self.add)

    def _node_changed(self, _before: Obj | None, after: Obj | None) -> None:
        if after is not None:
            self.add(after["metadata"]["name"])

    async def sync(self, name: str) -> None:
        """Bring one node's conditions and taints up to date. Raises ApiError if a write failed."""
        node = self._nodes.objects.get(("", name))
        if node is None:
            return
        try:
            silent_s = self._heartbeats.silent_s(name)
            if silent_s is not None and silent_s < self._grace_s:
                self.add_after(name, self._grace_s - silent_s)
            elif silent_s is not None and ready_status(node) != "Unknown":
                node = await self._lose(node)
            await self._taint(node)
            if ready_status(node) != "True":
                await self._unready_pods(name)
        except (NotFound, Conflict):
            self.add_after(name, 0.0)

    async def _lose(self, node: Obj) -> Obj:
        message = "Kubelet stopped posting node status."
        unknown = ready_condition("Unknown", "NodeStatusUnknown", message, rfc3339(self._now()))
        kept = [
            item
            for item in (node.get("status") or {}).get("conditions") or ()
            if item["type"] != "Ready"
        ]
        patch = {"metadata": _exactly(node), "status": {"conditions": [*kept, unknown]}}
        return await self._merge(NODES, key_of(node), patch, "status")

    async def _taint(self, node: Obj) -> None:
        spec = node.get("spec") or {}
        present = spec.get("taints") or []
        wanted = self._wanted_taints(node)
        keys = {(taint["key"], taint["effect"]) for taint in wanted}
        kept = [
            taint
            for taint in present
            if taint["key"] not in _OWN_TAINTS or (taint["key"], taint["effect"]) in keys
        ]
        have = {(taint["key"], taint["effect"]) for taint in kept}
        taints = kept + [taint for taint in wanted if (taint["key"], taint["effect"]) not in have]
        if taints != present:
            patch = {"metadata": _exactly(node), "spec": {"taints": taints or None}}
            await self._merge(NODES, key_of(node), patch)

    def _wanted_taints(self, node: Obj) -> list[Obj]:
        key = {"Unknown": UNREACHABLE_TAINT, "False": NOT_READY_TAINT}.get(ready_status(node))
        when = rfc3339(self._now())
        wanted: list[Obj] = []
        if key:
            wanted = [
                {"key": key, "effect": effect, "timeAdded": when}
                for effect in ("NoSchedule", "NoExecute")
            ]
        if (node.get("spec") or {}).get("unschedulable"):
            wanted.append({"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule", "timeAdded": when})
        return wanted

    async def _unready_pods(self, node: str) -> None:
        """Mark the pods of a lost node not ready, whatever its kubelet reported last."""
        for key in self._by_node[node]:
            pod = self._pods.objects.get(key)
            if pod is None or not is_running_and_ready(pod) or self._heartbeats.alive(node):
                continue
            conditions = [
                {**item, "status": "False", "lastTransitionTime": rfc3339(self._now())}
                if item["type"] == "Ready"
                else item
                for item in pod["status"]["conditions"]
            ]
            patch = {"metadata": _exactly(pod), "status": {"conditions": conditions}}
            await self._merge(PODS, key, patch, "status")


def _exactly(obj: Obj) -> Obj:
    """Return the metadata of a merge patch that applies only to this version of the object."""
    return {"uid": obj["metadata"]["uid"], "resourceVersion": obj["metadata"]["resourceVersion"]}


def ready_status(node: Obj) -> str:
    """Return the status of the Ready condition; "True" for a node that has not reported one yet."""
    return text(condition_in(node, "Ready"), "status") or "True"


def is_out_of_service(node: Obj) -> bool:
    """Return whether a node is not Ready and has the out-of-service taint (Kubernetes' non-graceful
    node shutdown).
    """
    taints = (node.get("spec") or {}).get("taints") or ()
    return ready_status(node) != "True" and any(
        taint["key"] == OUT_OF_SERVICE_TAINT for taint in taints
    )


def toleration_s(pod: Obj, taint: Mapping[str, Any]) -> float | None:
    """Return how long a pod stays under a NoExecute taint: 0 untolerated, None for ever."""
    matching = [item for item in pod["spec"].get("tolerations") or () if _tolerates(item, taint)]
    if not matching:
        return 0.0
    limits = [
        float(item["tolerationSeconds"])
        for item in matching
        if item.get("tolerationSeconds") is not None
    ]
    return max(min(limits), 0.0) if limits else None


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get(
        "value", ""
    )


class TaintEvictionController(Controller[ObjectKey]):
    """Deletes pods from nodes with NoExecute taints when their tolerations end. If the taint goes
    before, they stay.
    """

    def __init__(
        self, api: Api, nodes: Informer, pods: Informer, *, now: Callable[[], float]
    ) -> None:
        super().__init__(api)
        self._nodes = nodes
        self._pods = pods
        self._by_node = PodsByNode(pods)
        self._now = now
        nodes.on_change(self._node_changed)
        pods.on_change(self._pod_changed)

    def _node_changed(self, _before: Obj | None, after: Obj | None) -> None:
        if after is not None and (after.get("spec") or {}).get("taints"):
            for key in self._by_node[after["metadata"]["name"]]:
                self.add(key)

    def _pod_changed(self, _before: Obj | None, after: Obj | None) -> None:
        if after is not None and after["spec"].get("nodeName"):
            self.add(key_of(after))

    async def sync(self, key: ObjectKey) -> None:
        """Delete the pod if it is due, else plan the next sync. Raises ApiError."""
        pod = self._pods.objects.get(key)
        if pod is None or is_terminating(pod):
            return
        node = self._nodes.objects.get(("", pod["spec"].get("nodeName", "")))
        dues = [
            _epoch_s(taint.get("timeAdded"), self._now()) + stays_s
            for taint in ((node or {}).get("spec") or {}).get("taints") or ()
            if taint["effect"] == "NoExecute" and (stays_s := toleration_s(pod, taint)) is not None
        ]
        if not dues:
            return
        left_s = min(dues) - self._now()
        if left_s > 0:
            self.add_after(key, left_s)
            return
        with suppress(NotFound, Conflict):
            await self._api.delete(PODS, *key, preconditions=Preconditions(pod["metadata"]["uid"]))


def _epoch_s(when: str | None, default_s: float) -> float:
    return datetime.fromisoformat(when).timestamp() if when else default_s


class PodGarbageCollector(Controller[ObjectKey]):
    """Removes by force the pods that no kubelet will remove: those of missing nodes and of nodes
    out of service.
    """

    def __init__(self, api: Api, nodes: Informer, pods: Informer, *, orphan_grace_s: float) -> None:
        super().__init__(api)
        self._nodes = nodes
        self._pods = pods
        self._by_node = PodsByNode(pods)
        self._orphan_grace_s = orphan_grace_s
        nodes.on_change(self._node_changed)
        pods.on_change(self._pod_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._nodes.synced.wait()
        await super().run()

    def _node_changed(self, before: Obj | None, after: Obj | None) -> None:
        if after is None and before is not None:
            for key in self._by_node[before["metadata"]["name"]]:
                self.add_after(key, self._orphan_grace_s)
        elif after is not None and is_out_of_service(after):
            for key in self._by_node[after["metadata"]["name"]]:
                self.add(key)

    def _pod_changed(self, before: Obj | None, after: Obj | None) -> None:
        name = after["spec"].get("nodeName") if after else None
        if after is None or not name:
            return
        node = self._nodes.objects.get(("", name))
        fresh = before is None or not before["spec"].get("nodeName")
        if node is None and fresh:
            self.add_after(key_of(after), self._orphan_grace_s)
        elif node is not None and is_terminating(after) and is_out_of_service(node):
            self.add(key_of(after))

    async def sync(self, key: ObjectKey) -> None:
        """Remove the pod unless its node exists and is in service. Raises ApiError."""
        pod = self._pods.objects.get(key)
        if pod is None:
            return
        node = self._nodes.objects.get(("", pod["spec"].get("nodeName", "")))
        if node is not None and not (is_terminating(pod) and is_out_of_service(node)):
            return
        uid = pod["metadata"]["uid"]
        with suppress(NotFound, Conflict):
            await self._api.delete(PODS, *key, preconditions=Preconditions(uid), grace_period_s=0)
