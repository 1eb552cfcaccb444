"""The profile that a legacy Policy means: its predicates as filter plugins, and its priorities with
their weights as score plugins, as kube-scheduler 1.22 maps them (``legacy_registry.go``).

Since 1.20, SelectorSpreadPriority is PodTopologySpread with the system's default constraints
(DefaultPodTopologySpread). EvenPodsSpreadPriority alone is that plugin without them. If a Policy
has both, the plugin has the weight of EvenPodsSpreadPriority, which comes first by name.

The plugins are those of the default profile, so their arithmetic is that of 1.37. Volume limits
are not simulated, nor is the annotation of nodes that NodePreferAvoidPods reads: without it, all
nodes have its highest score.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from extender.config.kube_scheduler import Policy, SchedulerConfig
from extender.config.policy import NODE_LABEL_PRIORITY, PREDICATES
from extender.lab.scheduler.framework import (
    CycleState,
    FilterPlugin,
    NodeLocalFilter,
    PlainScore,
    Profile,
    ScorePlugin,
)
from extender.lab.scheduler.inter_pod_affinity import HARD_POD_AFFINITY_WEIGHT, InterPodAffinity
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.pod_topology_spread import PodTopologySpread
from extender.lab.scheduler.predicates import (
    NodeAffinity as NodeAffinityFilter,
    NodeName,
    NodePorts,
    NodeResourcesFit as NodeResourcesFitFilter,
    NodeUnschedulable,
    TaintToleration as TaintTolerationFilter,
)
from extender.lab.scheduler.priorities import (
    ImageLocality,
    NodeAffinity,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    TaintToleration,
    default_profile,
)
from extender.lab.scheduler.types import MAX_NODE_SCORE, Code, NodeInfo, PodInfo, Status
from extender.lab.scheduler.volumebinding.binder import VolumeBinder
from extender.lab.scheduler.volumebinding.plugin import VolumeBinding
from extender.lab.scheduler.volumes import VolumeRestrictions, VolumeZone
from extender.model.errors import VReplicaError


class NotSimulated(VReplicaError):
    """A Policy names plugins that kube-scheduler 1.22 has, and the embedded one lacks."""


class NodeLabel(NodeLocalFilter, PlainScore):
    """Nodes that have some labels and lack others: as a filter, all; as a score, the share of
    ``preferred`` (label, whether it should be there) that holds.
    """

    name = "NodeLabel"
    _REFUSED: Final = Status(
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("node(s) didn't have the requested labels",)
    )

    def __init__(self, policy: Policy) -> None:
        self._present, self._absent = policy.present_labels, policy.absent_labels
        self._preferred = policy.preferred_labels

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a refusal if a label is missing, or is there and should not be."""
        del state, pod
        labels = node.view.labels
        lacks = any(label not in labels for label in self._present)
        return self._REFUSED if lacks or any(label in labels for label in self._absent) else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the mean over the preferences, in whole points."""
        del state, pod
        held = sum((label in node.view.labels) == there for label, there in self._preferred)
        return held * MAX_NODE_SCORE // len(self._preferred)


class NodeResourcesMostAllocated(PlainScore):
    """MostRequestedPriority: fuller nodes score higher, by CPU and memory."""

    name = "NodeResourcesMostAllocated"

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the mean of the used shares with the pod, in whole points."""
        del state
        allocatable = node.view.allocatable
        asked = (
            (node.non_zero_milli_cpu + pod.scored.milli_cpu, allocatable.milli_cpu),
            (node.non_zero_memory + pod.scored.memory, allocatable.memory),
        )
        shares = [min(used, most) * MAX_NODE_SCORE // most if most else 0 for used, most in asked]
        return sum(shares) // len(shares)


class NodePreferAvoidPods(PlainScore):
    """All nodes alike: no node of the embedded cluster has the annotation that it reads."""

    name = "NodePreferAvoidPods"

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the highest score."""
        del state, pod, node
        return MAX_NODE_SCORE


def profiles_of(
    config: SchedulerConfig, listers: Listers, binder: VolumeBinder
) -> dict[str, Profile]:
    """Return the profiles of a configuration, by scheduler name. Raises NotSimulated."""
    ignored = config.ignored_resources
    return {
        profile.scheduler_name: policy_profile(
            profile.scheduler_name, config.policy, listers, binder, ignored_resources=ignored
        )
        if config.policy is not None
        else default_profile(
            profile.scheduler_name,
            listers,
            binder=binder,
            ignored_resources=ignored,
            percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
        )
        for profile in config.profiles
    }


def policy_profile(
    scheduler_name: str,
    policy: Policy,
    listers: Listers,
    binder: VolumeBinder,
    *,
    ignored_resources: Collection[str] = (),
) -> Profile:
    """Return the profile of a Policy. Raises NotSimulated."""
    if policy.not_simulated:
        raise NotSimulated(
            f"the embedded kube-scheduler does not have {', '.join(policy.not_simulated)}: leave "
            f"it out of the Policy"
        )
    spread = PodTopologySpread(
        listers, system_defaults="SelectorSpreadPriority" in policy.priorities
    )
    affinity = InterPodAffinity(
        listers, hard_weight=policy.hard_pod_affinity_weight or HARD_POD_AFFINITY_WEIGHT
    )
    labels = NodeLabel(policy)
    volumes = VolumeBinding(listers, binder)
    filters = _filters(listers, NodeResourcesFitFilter(ignored_resources))
    filters |= {
        "CheckVolumeBinding": (volumes,),
        "EvenPodsSpread": (spread,),
        "MatchInterPodAffinity": (affinity,),
        "CheckNodeLabelPresence": (labels,),
    }
    ordered = [one for name in PREDICATES if name in policy.predicates for one in filters[name]]
    scores: dict[str, tuple[ScorePlugin, int]] = {}
    makers: dict[str, Callable[[], ScorePlugin]] = {
        **_SCORES,
        "EvenPodsSpreadPriority": lambda: spread,
        "SelectorSpreadPriority": lambda: spread,
        "InterPodAffinityPriority": lambda: affinity,
        NODE_LABEL_PRIORITY: lambda: labels,
    }
    for name, weight in sorted(policy.priorities.items()):
        plugin = makers[name]()
        # n preferences are one plugin with n times the weight.
        times = len(policy.preferred_labels) if name == NODE_LABEL_PRIORITY else 1
        scores.setdefault(plugin.name, (plugin, weight * times))
    return Profile(
        scheduler_name,
        list({one.name: one for one in ordered}.values()),
        list(scores.values()),
        run_all_filters=policy.always_check_all_predicates,
        reserves=(volumes,) if "CheckVolumeBinding" in policy.predicates else (),
    )


def _filters(listers: Listers, fit: NodeResourcesFitFilter) -> dict[str, tuple[FilterPlugin, ...]]:
    """Predicate -> its plugins, without those that score too."""
    name, ports, selector = NodeName(), NodePorts(), NodeAffinityFilter()
    return {
        "CheckNodeUnschedulable": (NodeUnschedulable(),),
        "GeneralPredicates": (fit, name, ports, selector),
        "HostName": (name,),
        "PodFitsHostPorts": (ports,),
        "MatchNodeSelector": (selector,),
        "PodFitsResources": (fit,),
        "NoDiskConflict": (VolumeRestrictions(listers),),
        "PodToleratesNodeTaints": (TaintTolerationFilter(),),
        "MaxEBSVolumeCount": (),
        "MaxGCEPDVolumeCount": (),
        "MaxCSIVolumeCountPred": (),
        "MaxAzureDiskVolumeCount": (),
        "MaxCinderVolumeCount": (),
        "NoVolumeZoneConflict": (VolumeZone(listers),),
    }


_SCORES: Final[Mapping[str, Callable[[], ScorePlugin]]] = {
    "LeastRequestedPriority": NodeResourcesFit,
    "MostRequestedPriority": NodeResourcesMostAllocated,
    "BalancedResourceAllocation": NodeResourcesBalancedAllocation,
    "NodePreferAvoidPodsPriority": NodePreferAvoidPods,
    "NodeAffinityPriority": NodeAffinity,
    "TaintTolerationPriority": TaintToleration,
    "ImageLocalityPriority": ImageLocality,
}
