"""Cluster events: what has changed, as kube-scheduler's queue hears of it. A change of a node or
pod gives one event for each kind of field that differs.
"""

from dataclasses import dataclass
from enum import Enum, Flag, auto

from extender.kube.api import Obj
from extender.lab.scheduler.types import NodeView, PodInfo


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
    CSI_NODE = auto()
    CSI_DRIVER = auto()
    CSI_STORAGE_CAPACITY = auto()
    VOLUME_ATTACHMENT = auto()
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
