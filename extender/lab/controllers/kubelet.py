"""A stand-in for every node's kubelet. It starts bound pods and removes deleted ones, unless their
node has failed.

``delays.start_s(pod)`` after it was bound, a pod becomes Running and Ready, or Failed if its node
cannot take it (see ``admission``). A pod is removed (a delete with grace 0, with its
uid as precondition) ``delays.stop_s(pod)`` after its deletion was requested. A failed node does
none of it, and sends no heartbeat. The node lifecycle controller sees only the missing heartbeat. A
recovered node continues where it stopped.
"""

import asyncio
import ipaddress
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from extender.kube.api import (
    EVENTS,
    NODES,
    PODS,
    Api,
    ApiError,
    Conflict,
    NotFound,
    Obj,
    Preconditions,
)
from extender.lab.apiserver.strategy import rfc3339
from extender.lab.controllers.admission import Admission, Refusal
from extender.lab.controllers.controller import Controller
from extender.lab.controllers.stateful_set import has_failed, is_running_and_ready, is_terminating
from extender.lab.informer import Informer, ObjectKey, key_of
from extender.lab.scheduler.events import truncated_note
from extender.model.timestamps import micro_time

DelayOf = Callable[[Obj], float]
"""Pod -> seconds."""
ClockOf = Callable[[str], float]
"""Node -> its own clock, in epoch seconds."""
_POD_NETWORK: Final = ipaddress.IPv4Network("10.128.0.0/9")
_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


class Heartbeats:
    """The nodes that are alive. The last heartbeat of a failed node was when it failed."""

    def __init__(self) -> None:
        self._stopped: dict[str, float] = {}
        self._listeners: list[Callable[[str], None]] = []

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the name of every node that fails or recovers."""
        self._listeners.append(listener)

    def stop(self, node: str) -> None:
        """Let the node fail."""
        self._stopped.setdefault(node, asyncio.get_running_loop().time())
        self._tell(node)

    def resume(self, node: str) -> None:
        """Bring the node back."""
        self._stopped.pop(node, None)
        self._tell(node)

    def silent_s(self, node: str) -> float | None:
        """Return the seconds since the last heartbeat; None while the node is alive."""
        stopped = self._stopped.get(node)
        return None if stopped is None else asyncio.get_running_loop().time() - stopped

    def alive(self, node: str) -> bool:
        """Return whether the node sends heartbeats and runs pods."""
        return node not in self._stopped

    def _tell(self, node: str) -> None:
        for listener in self._listeners:
            listener(node)


class PodDelays(NamedTuple):
    """How long a pod takes to start after it was bound, and to stop after its deletion was
    requested.
    """

    start_s: DelayOf
    stop_s: DelayOf


class Kubelet(Controller[ObjectKey]):
    """All kubelets of the cluster."""

    def __init__(
        self,
        api: Api,
        pods: Informer,
        heartbeats: Heartbeats,
        admission: Admission,
        *,
        clock: ClockOf,
        delays: PodDelays,
    ) -> None:
        super().__init__(api)
        self._pods = pods
        self._admission = admission
        self._heartbeats = heartbeats
        self._clock = clock
        self._delays = delays
        self._due: dict[tuple[str, str], float] = {}
        self._unready: dict[str, None] = {}
        self._addresses = 0
        pods.on_change(self._pod_changed)
        heartbeats.on_change(self._node_changed)

    def set_ready(self, namespace: str, name: str, *, ready: bool) -> None:
        """Make a running pod's readiness probe fail or succeed."""
        pod = self._pods.objects[namespace, name]
        if ready:
            self._unready.pop(pod["metadata"]["uid"], None)
        else:
            self._unready[pod["metadata"]["uid"]] = None
        self.add((namespace, name))

    def _node_changed(self, node: str) -> None:
        for key, pod in self._pods.objects.items():
            if pod["spec"].get("nodeName") == node:
                self.add(key)

    def _pod_changed(self, before: Obj | None, after: Obj | None) -> None:
        if after is None and before is not None:
            uid = before["metadata"]["uid"]
            self._unready.pop(uid, None)
            self._admission.forget(uid)
            for what in ("start", "stop"):
                self._due.pop((uid, what), None)
        elif after is not None and after["spec"].get("nodeName"):
            if has_failed(after):
                self._admission.forget(after["metadata"]["uid"])
            self.add(key_of(after))

    async def sync(self, key: ObjectKey) -> None:
        """Do what the kubelet of the pod's node would do. Raises ApiError if a write failed."""
        pod = self._pods.objects.get(key)
        node = pod["spec"].get("nodeName") if pod is not None else None
        if pod is None or not node or not self._heartbeats.alive(node):
            # The key may also belong to the next pod of that name, which is not bound yet.
            return
        if is_terminating(pod):
            if self._is_due(pod, "stop", self._delays.stop_s):
                await self._remove(pod)
        elif (pod.get("status") or {}).get("phase") == "Pending":
            refused = self._admission.refusal(pod)
            if self._is_due(pod, "start", self._delays.start_s):
                await (self._report(pod) if refused is None else self._refuse(pod, refused))
        elif not has_failed(pod) and is_running_and_ready(pod) is (
            pod["metadata"]["uid"] in self._unready
        ):
            await self._report(pod)

    def _is_due(self, pod: Obj, what: str, delay_s: DelayOf) -> bool:
        """Return whether the pod's delay for ``what`` is over. It begins with the first call."""
        loop = asyncio.get_running_loop()
        mark = (pod["metadata"]["uid"], what)
        if mark not in self._due:
            self._due[mark] = loop.time() + delay_s(pod)
        left_s = self._due[mark] - loop.time()
        if left_s > 0:
            self.add_after(key_of(pod), left_s)
        return left_s <= 0

    async def _remove(self, pod: Obj) -> None:
        if (pod.get("status") or {}).get("containerStatuses"):
            await self._write_status(
                pod, _stopped(pod, rfc3339(self._clock(pod["spec"]["nodeName"])))
            )
        uid = Preconditions(pod["metadata"]["uid"])
        with suppress(NotFound, Conflict):
            await self._api.delete(PODS, *key_of(pod), preconditions=uid, grace_period_s=0)

    async def _refuse(self, pod: Obj, refused: Refusal) -> None:
        """As the kubelet's rejectPod does."""
        await self._write_status(
            pod,
            {
                "phase": "Failed",
                "reason": refused.reason,
                "message": f"Pod was rejected: {refused.message}",
            },
        )
        with suppress(ApiError):
            await self._api.create(EVENTS, key_of(pod)[0], self._rejected(pod, refused))

    def _rejected(self, pod: Obj, refused: Refusal) -> Obj:
        """The Warning of a refused pod. A pod is refused once, so its UID names the event."""
        metadata, node = pod["metadata"], pod["spec"]["nodeName"]
        reference = {name: metadata[name] for name in ("namespace", "name", "uid")}
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "name": f"{metadata['name'][:200]}.{metadata['uid']}",
                "namespace": metadata["namespace"],
            },
            "eventTime": micro_time(self._clock(node)),
            "reportingController": "kubelet",
            "reportingInstance": node,
            # A real kubelet writes a core Event, which has no action. This API demands one.
            "action": "Admitting",
            "reason": refused.reason,
            "type": "Warning",
            "note": truncated_note(refused.message),
            "regarding": {"apiVersion": "v1", "kind": "Pod", **reference},
        }

    async def _report(self, pod: Obj) -> None:
        await self._write_status(pod, self._status_of(pod))

    async def _write_status(self, pod: Obj, status: Obj) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        with suppress(NotFound, Conflict):
            await self._merge(PODS, key_of(pod), patch, "status")

    def _status_of(self, pod: Obj) -> Obj:
        """Return the status of a running pod. Conditions of other components are kept."""
        status, when = pod.get("status") or {}, rfc3339(self._clock(pod["spec"]["nodeName"]))
        ready = pod["metadata"]["uid"] not in self._unready
        kept = [item for item in status.get("conditions") or () if item["type"] not in _CONDITIONS]
        own = [
            {
                "type": kind,
                "status": "True"
                if ready or kind in ("PodReadyToStartContainers", "Initialized")
                else "False",
                "lastTransitionTime": when,
            }
            for kind in _CONDITIONS
        ]
        if not (address := status.get("podIP")):
            self._addresses = self._addresses % (_POD_NETWORK.num_addresses - 2) + 1
            address = str(_POD_NETWORK[self._addresses])
        started = status.get("startTime") or when
        containers = [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "containerID": f"sim://{pod['metadata']['uid']}/{container['name']}",
                "ready": ready,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": started}},
                "lastState": {},
            }
            for container in pod["spec"].get("containers") or ()
        ]
        return {
            "phase": "Running",
            "conditions": [*own, *kept],
            "containerStatuses": containers,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": started,
            "observedGeneration": pod["metadata"].get("generation", 1),
        }


def _stopped(pod: Obj, when: str) -> Obj:
    """The status that a kubelet reports before it deletes a pod."""
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": when}
    containers = [
        {**each, "ready": False, "started": False, "state": {"terminated": ended}}
        for each in pod["status"]["containerStatuses"]
    ]
    return {"phase": "Succeeded", "containerStatuses": containers}


class NodeRegistrar(Controller[str]):
    """Reports Ready for nodes that have no Ready condition, as their kubelets would."""

    def __init__(
        self, api: Api, nodes: Informer, heartbeats: Heartbeats, *, clock: ClockOf
    ) -> None:
        super().__init__(api)
        self._nodes = nodes
        self._heartbeats = heartbeats
        self._clock = clock
        nodes.on_change(self._node_changed)
        heartbeats.on_change(self.add)

    def _node_changed(self, _before: Obj | None, after: Obj | None) -> None:
        if after is not None:
            self.add(after["metadata"]["name"])

    async def sync(self, name: str) -> None:
        """Report Ready for a living node whose condition is missing or Unknown."""
        node = self._nodes.objects.get(("", name))
        if node is None or not self._heartbeats.alive(name):
            return
        conditions = (node.get("status") or {}).get("conditions") or []
        stored = next((item for item in conditions if item["type"] == "Ready"), None)
        if stored is not None and stored["status"] != "Unknown":
            return
        ready = ready_condition(
            "True", "KubeletReady", "kubelet is posting ready status", rfc3339(self._clock(name))
        )
        kept = [item for item in conditions if item["type"] != "Ready"]
        patch = {
            "metadata": {"uid": node["metadata"]["uid"]},
            "status": {"conditions": [*kept, ready]},
        }
        with suppress(NotFound, Conflict):
            await self._merge(NODES, ("", name), patch, "status")


def ready_condition(status: str, reason: str, message: str, when: str) -> Obj:
    """Return a node's Ready condition."""
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": when,
        "lastTransitionTime": when,
    }
