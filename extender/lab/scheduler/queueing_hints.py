"""The cluster events that may make a refused pod schedulable: kube-scheduler's EventsToRegister and
queueing hints.

A pod remembers the plugins that refused it, and only their registrations are checked. A pod that an
extender refused has the pseudo plugin "Extender". That one cannot know which events help, so it
reacts to all of them, including updates of the pod itself.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Final

from extender.kube.api import Obj
from extender.lab.scheduler.predicates import insufficient_resources
from extender.lab.scheduler.taints import untolerated_taint
from extender.lab.scheduler.types import NodeInfo, NodeView, PodInfo
from extender.lab.scheduler.volumebinding.matching import waits_for_consumer
from extender.lab.scheduler.volumes import volume_topology
from extender.model.reading import text

EXTENDER: Final = "Extender"
SCHEDULING_GATES: Final = "SchedulingGates"
DEFAULT_PREEMPTION: Final = "DefaultPreemption"


class EventResource(Enum):
    """The subject of an event. Pods with and without a node are separate. WILDCARD concerns every
    refused pod.
    """

    NODE = auto()
    ASSIGNED_POD = auto()
    UNSCHEDULED_POD = auto()
    PERSISTENT_VOLUME = auto()
    PERSISTENT_VOLUME_CLAIM = auto()
    STORAGE_CLASS = auto()
    WILDCARD = auto()


class Action(Flag):
    """The kind of change. UPDATE is any change that has no name of its own."""

    ADD = auto()
    DELETE = auto()
    UPDATE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    UPDATE_NODE_CONDITION = auto()
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    UPDATE_POD_GATES_ELIMINATED = auto()
    UPDATE_POD_TOLERATION = auto()


Thing = PodInfo | NodeView | Obj | None
"""Volumes, claims and classes are the API's objects."""


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One change, with the object before and after it; None: it did not exist."""

    resource: EventResource
    action: Action
    old: Thing = None
    new: Thing = None


def unschedulable_timeout() -> ClusterEvent:
    """Return the event for pods that waited too long without any event."""
    return ClusterEvent(EventResource.WILDCARD, Action.UPDATE)


def force_activate(pod: PodInfo) -> ClusterEvent:
    """Return the event that makes the queue try that pod again."""
    return ClusterEvent(EventResource.WILDCARD, Action.UPDATE, new=pod)


# Hints get the refused pod and the event, and return whether the change may help.

Hint = Callable[[PodInfo, ClusterEvent], bool]


def _always(_pod: PodInfo, _event: ClusterEvent) -> bool:
    return True


def _never(_pod: PodInfo, _event: ClusterEvent) -> bool:
    return False


def _itself(pod: PodInfo, event: ClusterEvent) -> bool:
    return isinstance(event.new, PodInfo) and event.new.uid == pod.uid


def _uncordoned(_pod: PodInfo, event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    return isinstance(new, NodeView) and not new.unschedulable and (
        not isinstance(old, NodeView) or old.unschedulable
    )  # fmt: skip


def _taints_now_tolerated(pod: PodInfo, event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    if not isinstance(new, NodeView) or untolerated_taint(new.taints, pod.tolerations):
        return False
    return (
        not isinstance(old, NodeView) or untolerated_taint(old.taints, pod.tolerations) is not None
    )


def _affinity_now_met(pod: PodInfo, event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    affinity = pod.node_affinity
    if not isinstance(new, NodeView) or not affinity.matches(new.name, new.labels):
        return False
    return not isinstance(old, NodeView) or not affinity.matches(old.name, old.labels)


def _node_big_enough(pod: PodInfo, event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    if not isinstance(new, NodeView) or insufficient_resources(pod, NodeInfo(new)):
        return False
    return not isinstance(old, NodeView) or _grew(pod, old, new)


def _grew(pod: PodInfo, old: NodeView, new: NodeView) -> bool:
    before, after, wanted = old.allocatable, new.allocatable, pod.requests
    return (
        after.pods > before.pods
        or (wanted.milli_cpu > 0 and after.milli_cpu > before.milli_cpu)
        or (wanted.memory > 0 and after.memory > before.memory)
        or (wanted.ephemeral_storage > 0 and after.ephemeral_storage > before.ephemeral_storage)
        or any(
            amount and after.scalar.get(name, 0) > before.scalar.get(name, 0)
            for name, amount in wanted.scalar.items()
        )
    )


def _held_room(_pod: PodInfo, event: ClusterEvent) -> bool:
    return isinstance(event.old, PodInfo) and bool(event.old.node_name or event.old.nominated_node)


def _held_ports(pod: PodInfo, event: ClusterEvent) -> bool:
    old = event.old
    if not isinstance(old, PodInfo) or not _held_room(pod, event):
        return False
    wanted = {(port.protocol, port.port) for port in pod.host_ports}
    return any((port.protocol, port.port) in wanted for port in old.host_ports)


def _in_its_namespace(pod: PodInfo, event: ClusterEvent) -> bool:
    others = [thing for thing in (event.old, event.new) if isinstance(thing, PodInfo)]
    return all(
        other.uid == pod.uid
        or (bool(other.node_name or other.nominated_node) and other.namespace == pod.namespace)
        for other in others
    )


def _runs(pod: PodInfo, event: ClusterEvent) -> bool:
    others = [thing for thing in (event.old, event.new) if isinstance(thing, PodInfo)]
    return any(other.uid == pod.uid for other in others) or all(
        other.node_name or other.nominated_node for other in others
    )


def _same_claim_freed(pod: PodInfo, event: ClusterEvent) -> bool:
    old = event.old
    return (
        isinstance(old, PodInfo)
        and old.namespace == pod.namespace
        and not set(pod.claims).isdisjoint(old.claims)
    )


def _its_claim(pod: PodInfo, event: ClusterEvent) -> bool:
    if not isinstance(event.new, dict):
        return False
    return (
        text(event.new, "metadata", "namespace") == pod.namespace
        and text(event.new, "metadata", "name") in pod.claims
    )


def _class_reaches_further(_pod: PodInfo, event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    if not isinstance(old, dict) or not isinstance(new, dict):
        return True
    return old.get("allowedTopologies") != new.get("allowedTopologies")


def _class_waits(_pod: PodInfo, event: ClusterEvent) -> bool:
    return isinstance(event.new, dict) and waits_for_consumer(event.new)


def _volume_moved(_pod: PodInfo, event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    if not isinstance(old, dict) or not isinstance(new, dict):
        return True
    return volume_topology(old) != volume_topology(new)


_PODS: Final = frozenset({EventResource.ASSIGNED_POD, EventResource.UNSCHEDULED_POD})
_NODES: Final = frozenset({EventResource.NODE})
_VOLUMES: Final = frozenset({EventResource.PERSISTENT_VOLUME})
_CLAIMS: Final = frozenset({EventResource.PERSISTENT_VOLUME_CLAIM})
_CLASSES: Final = frozenset({EventResource.STORAGE_CLASS})
_ADDED_OR_CHANGED: Final = Action.ADD | Action.UPDATE
_Registration = tuple[frozenset[EventResource], Action, Hint]

REGISTRATIONS: Final[dict[str, tuple[_Registration, ...]]] = {
    "NodeUnschedulable": (
        (_NODES, Action.ADD | Action.UPDATE_NODE_TAINT, _uncordoned),
        (_PODS, Action.UPDATE_POD_TOLERATION, _itself),
    ),
    "NodeName": ((_NODES, Action.ADD, _always),),
    "TaintToleration": (
        (_NODES, Action.ADD | Action.UPDATE_NODE_TAINT, _taints_now_tolerated),
        (_PODS, Action.UPDATE_POD_TOLERATION, _itself),
    ),
    "NodeAffinity": ((_NODES, Action.ADD | Action.UPDATE_NODE_LABEL, _affinity_now_met),),
    "NodePorts": (
        (_PODS, Action.DELETE, _held_ports),
        (_NODES, Action.ADD, _always),
    ),
    "NodeResourcesFit": (
        (_PODS, Action.DELETE, _held_room),
        (_PODS, Action.UPDATE_POD_SCALE_DOWN, _runs),
        (_NODES, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, _node_big_enough),
    ),
    "VolumeRestrictions": (
        (_PODS, Action.DELETE, _same_claim_freed),
        (_CLAIMS, Action.ADD, _its_claim),
        (_NODES, Action.ADD, _always),
    ),
    "VolumeBinding": (
        (_CLASSES, _ADDED_OR_CHANGED, _class_reaches_further),
        (_CLAIMS, _ADDED_OR_CHANGED, _its_claim),
        (_VOLUMES, _ADDED_OR_CHANGED, _always),
        (_NODES, Action.ADD | Action.UPDATE_NODE_LABEL, _always),
    ),
    "VolumeZone": (
        (_CLASSES, Action.ADD, _class_waits),
        (_CLAIMS, _ADDED_OR_CHANGED, _its_claim),
        (_VOLUMES, _ADDED_OR_CHANGED, _volume_moved),
        (_NODES, Action.ADD | Action.UPDATE_NODE_LABEL, _always),
    ),
    "PodTopologySpread": (
        (
            _PODS,
            Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION,
            _in_its_namespace,
        ),
        (
            _NODES,
            Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT,
            _always,
        ),
    ),
    "InterPodAffinity": (
        (_PODS, Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL, _runs),
        (_NODES, Action.ADD | Action.UPDATE_NODE_LABEL, _always),
    ),
    SCHEDULING_GATES: ((_PODS, Action.UPDATE_POD_GATES_ELIMINATED, _itself),),
    # The gate holds a pod back only while its victims are being deleted. The plugins that refused
    # the pod decide.
    DEFAULT_PREEMPTION: ((_PODS, Action.DELETE, _never),),
}


def may_open(gate: str, event: ClusterEvent) -> bool:
    """Return whether the plugin that holds a pod back registered for the event."""
    return any(
        event.resource in resources and event.action in actions
        for resources, actions, _ in REGISTRATIONS.get(gate, ())
    )


def may_help(pod: PodInfo, refused_by: Collection[str], event: ClusterEvent) -> bool:
    """Return whether to try a pod again that these plugins refused (isPodWorthRequeuing)."""
    if not refused_by:
        return True
    if event.resource is EventResource.WILDCARD:
        return event.new is None or _itself(pod, event)
    if EXTENDER in refused_by:
        return True
    return any(
        event.resource in resources and event.action in actions and hint(pod, event)
        for plugin in refused_by
        for resources, actions, hint in REGISTRATIONS.get(plugin, ())
    )


# Changes between two versions of an object, as events


def node_change_events(old: NodeView, new: NodeView) -> list[ClusterEvent]:
    """NodeSchedulingPropertiesChange. A change that does not concern scheduling gives no event."""
    actions = []
    if old.unschedulable and not new.unschedulable:
        actions.append(Action.UPDATE_NODE_TAINT)
    if old.allocatable != new.allocatable:
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if old.labels != new.labels:
        actions.append(Action.UPDATE_NODE_LABEL)
    if old.taints != new.taints:
        actions.append(Action.UPDATE_NODE_TAINT)
    if _conditions(old) != _conditions(new):
        actions.append(Action.UPDATE_NODE_CONDITION)
    if _annotations(old) != _annotations(new):
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    return [ClusterEvent(EventResource.NODE, action, old, new) for action in actions]


def _conditions(node: NodeView) -> dict[str, str]:
    conditions = (node.obj.get("status") or {}).get("conditions") or ()
    return {str(c.get("type")): str(c.get("status")) for c in conditions}


def _annotations(node: NodeView) -> object:
    return (node.obj.get("metadata") or {}).get("annotations") or {}


def pod_change_events(old: PodInfo, new: PodInfo) -> list[ClusterEvent]:
    """PodSchedulingPropertiesChange. It is never empty: any other change is UPDATE."""
    resource = EventResource.ASSIGNED_POD if new.node_name else EventResource.UNSCHEDULED_POD
    actions = []
    if old.labels != new.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    before, after = old.requests, new.requests
    if (
        after.milli_cpu < before.milli_cpu
        or after.memory < before.memory
        or any(after.scalar.get(name, 0) < amount for name, amount in before.scalar.items())
    ):
        actions.append(Action.UPDATE_POD_SCALE_DOWN)
    if old.scheduling_gates and not new.scheduling_gates:
        actions.append(Action.UPDATE_POD_GATES_ELIMINATED)
    if old.tolerations != new.tolerations:
        actions.append(Action.UPDATE_POD_TOLERATION)
    return [ClusterEvent(resource, action, old, new) for action in actions or [Action.UPDATE]]
