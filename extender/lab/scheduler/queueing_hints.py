"""The cluster events that may make a refused pod schedulable: kube-scheduler's EventsToRegister and
queueing hints.

A pod remembers the plugins that refused it, and only their registrations are checked. A pod that an
extender refused has the pseudo plugin "Extender". That one cannot know which events help, so it
reacts to all of them, including updates of the pod itself.
"""

from collections.abc import Callable, Collection
from typing import Final

from extender.lab.scheduler.cluster_events import Action, ClusterEvent, EventResource
from extender.lab.scheduler.csi_translation import MIGRATED_PLUGINS, in_tree_plugin_of
from extender.lab.scheduler.nodevolumelimits.csi import has_attachable_volumes, limits_of
from extender.lab.scheduler.nodevolumelimits.in_tree import IN_TREE_LIMITS
from extender.lab.scheduler.predicates import insufficient_resources
from extender.lab.scheduler.taints import untolerated_taint
from extender.lab.scheduler.types import NodeInfo, NodeView, PodInfo
from extender.lab.scheduler.volumebinding.matching import volume_limit, waits_for_consumer
from extender.lab.scheduler.volumes import volume_topology
from extender.model.reading import mapping, mappings, text

EXTENDER: Final = "Extender"
SCHEDULING_GATES: Final = "SchedulingGates"
DEFAULT_PREEMPTION: Final = "DefaultPreemption"


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
    return _names(pod, event, pod.claims)


def _its_claim_or_ephemeral(pod: PodInfo, event: ClusterEvent) -> bool:
    return _names(pod, event, [claim.name for claim in pod.volume_claims])


def _names(pod: PodInfo, event: ClusterEvent, claims: Collection[str]) -> bool:
    if not isinstance(event.new, dict):
        return False
    return (
        text(event.new, "metadata", "namespace") == pod.namespace
        and text(event.new, "metadata", "name") in claims
    )


def _had_attachable_volumes(pod: PodInfo, event: ClusterEvent) -> bool:
    return (
        isinstance(event.old, PodInfo)
        and _held_room(pod, event)
        and has_attachable_volumes(event.old)
    )


def _more_volumes(_pod: PodInfo, event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    if not isinstance(old, dict) or not isinstance(new, dict):
        return True
    before = limits_of(old)
    return any(limit > before.get(driver, 0) for driver, limit in limits_of(new).items())


def _detached(pod: PodInfo, event: ClusterEvent) -> bool:
    """Ephemeral volumes do not count here, as in kube-scheduler 1.37."""
    attacher = text(event.old, "spec", "attacher") if isinstance(event.old, dict) else ""
    plugins = (in_tree_plugin_of(volume) for volume in mappings(pod.obj, "spec", "volumes"))
    return bool(pod.claims) or any(one is not None and one.driver == attacher for one in plugins)


def _migrated(_pod: PodInfo, event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    if not isinstance(old, dict) or not isinstance(new, dict):
        return True
    path = ("metadata", "annotations", MIGRATED_PLUGINS)
    return text(old, *path) != text(new, *path)


def _capacity_untracked(pod: PodInfo, event: ClusterEvent) -> bool:
    """The pod's inline CSI volumes count, not its claims, as in kube-scheduler 1.37."""
    old, new = event.old, event.new
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    drivers = {text(volume, "csi", "driver") for volume in mappings(pod.obj, "spec", "volumes")}
    tracked, tracks = (mapping(one, "spec").get("storageCapacity") is True for one in (old, new))
    return text(new, "metadata", "name") in drivers and tracked and not tracks


def _more_capacity(_pod: PodInfo, event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    if not isinstance(old, dict) or not isinstance(new, dict):
        return True
    before, after = volume_limit(old), volume_limit(new)
    return after is not None and (before is None or after > before)


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
_CSI_NODES: Final = frozenset({EventResource.CSI_NODE})
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
    "NodeVolumeLimits": (
        (_CSI_NODES, _ADDED_OR_CHANGED, _more_volumes),
        (_PODS, Action.DELETE, _had_attachable_volumes),
        (_CLAIMS, Action.ADD, _its_claim_or_ephemeral),
        (frozenset({EventResource.VOLUME_ATTACHMENT}), Action.DELETE, _detached),
    ),
    # kube-scheduler 1.22 has no hints. Its changes of Services are left out.
    "ServiceAffinity": (
        (_NODES, Action.ADD | Action.UPDATE_NODE_LABEL, _always),
        (_PODS, Action.DELETE | Action.UPDATE | Action.UPDATE_POD_LABEL, _always),
    ),
    **dict.fromkeys(
        IN_TREE_LIMITS, ((_NODES, Action.ADD, _always), (_PODS, Action.DELETE, _always))
    ),
    "VolumeBinding": (
        (_CLASSES, _ADDED_OR_CHANGED, _class_reaches_further),
        (_CLAIMS, _ADDED_OR_CHANGED, _its_claim_or_ephemeral),
        (_VOLUMES, _ADDED_OR_CHANGED, _always),
        (_NODES, Action.ADD | Action.UPDATE_NODE_LABEL, _always),
        (_CSI_NODES, _ADDED_OR_CHANGED, _migrated),
        (frozenset({EventResource.CSI_DRIVER}), Action.UPDATE, _capacity_untracked),
        (
            frozenset({EventResource.CSI_STORAGE_CAPACITY}),
            _ADDED_OR_CHANGED,
            _more_capacity,
        ),
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
