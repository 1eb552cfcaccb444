"""What a kubelet admits: it looks once more at each pod that is bound to its node, and refuses what
the node cannot take.

kube-scheduler decides on its cache. A second scheduler, a pod with ``spec.nodeName`` or a node that
shrank meanwhile can fill a node behind its back. So the kubelet checks the predicates that concern
the node alone: resources, required node affinity, host ports and NoExecute taints
(``pkg/kubelet/lifecycle/predicate.go``, kube-scheduler's ``AdmissionCheck``). A refused pod becomes
Failed, with a reason such as ``OutOfcpu``, and holds nothing on the node. Its controller makes it
anew.

The check of static pods, of operating systems and of devices is left out: these nodes have none.
"""

from dataclasses import dataclass

from extender.kube.api import Obj
from extender.lab.informer import Informer, ObjectKey
from extender.lab.scheduler.framework import CycleState
from extender.lab.scheduler.predicates import NodeAffinity, NodePorts, insufficient_resources
from extender.lab.scheduler.taints import untolerated_taint
from extender.lab.scheduler.types import NodeInfo, PodInfo, node_view, pod_info


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a kubelet refuses a pod. ``reason`` becomes ``status.reason``, and ``message`` the end of
    ``status.message``.
    """

    reason: str
    message: str


class Admission:
    """The pods that the kubelets of all nodes have admitted."""

    def __init__(self, nodes: Informer) -> None:
        self._nodes = nodes
        self._admitted: dict[str, dict[str, PodInfo]] = {}
        """Node -> uid -> pod."""
        self._node_of: dict[str, str] = {}
        self._refused: dict[str, Refusal] = {}
        """By uid."""
        self._refused_next: set[ObjectKey] = set()

    def refuse_next(self, namespace: str, name: str) -> None:
        """Let the next pod of this name fail in its kubelet's admission, as with a device that its
        plugin does not give.
        """
        self._refused_next.add((namespace, name))

    def refusal(self, pod: Obj) -> Refusal | None:
        """Return why the node of a bound pod cannot take it; None admits it. The first answer for
        a pod stays until ``forget``. Until then an admitted pod counts on its node.

        A node that is not known refuses nothing: without its object there is nothing to check.
        """
        uid, name = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        if uid in self._node_of:
            return None
        if uid not in self._refused:
            candidate = pod_info(pod)
            if (refused := self._first_look(candidate, name)) is None:
                self._admitted.setdefault(name, {})[uid] = candidate
                self._node_of[uid] = name
                return None
            self._refused[uid] = refused
        return self._refused[uid]

    def _first_look(self, pod: PodInfo, name: str) -> Refusal | None:
        key = (pod.namespace, pod.name)
        if key in self._refused_next:
            self._refused_next.discard(key)
            return Refusal("UnexpectedAdmissionError", "Allocate failed, which is unexpected")
        if (node := self._nodes.objects.get(("", name))) is None:
            return None
        info = NodeInfo(node_view(node))
        for admitted in self._admitted.get(name, {}).values():
            info.add_pod(admitted)
        return general_refusal(pod, info)

    def forget(self, uid: str) -> None:
        """A pod has finished or is gone: it holds nothing any more."""
        self._refused.pop(uid, None)
        if (node := self._node_of.pop(uid, None)) is not None:
            admitted = self._admitted[node]
            del admitted[uid]
            if not admitted:
                del self._admitted[node]


def general_refusal(pod: PodInfo, node: NodeInfo) -> Refusal | None:
    """Return the first reason for which a node with its pods cannot take another one, in the
    kubelet's order. Extended resources that the node does not offer are not counted: they belong
    to the cluster (removeMissingExtendedResources).
    """
    elsewhere = pod.requests.scalar.keys() - node.view.allocatable.scalar.keys()
    for lacking in insufficient_resources(pod, node, elsewhere):
        return Refusal(
            f"OutOf{lacking.resource}",
            f"Node didn't have enough resource: {lacking.resource}, requested: {lacking.requested},"
            f" used: {lacking.used}, capacity: {lacking.capacity}",
        )
    for plugin in (NodeAffinity(), NodePorts()):
        if (status := plugin.filter(CycleState(), pod, node)) is not None:
            return _predicate_failed(plugin.name, status.message)
    taints = [taint for taint in node.view.taints if taint.effect == "NoExecute"]
    if untolerated_taint(taints, pod.tolerations) is not None:
        text = "node(s) had taints that the pod didn't tolerate"
        return _predicate_failed("TaintToleration", text)
    return None


def _predicate_failed(name: str, text: str) -> Refusal:
    return Refusal(name, f"Predicate {name} failed: {text}")
