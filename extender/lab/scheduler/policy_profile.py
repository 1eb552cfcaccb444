"""The profile that a legacy Policy means: its predicates as filter plugins, and its priorities with
their weights as score plugins, as kube-scheduler 1.22 maps them (``legacy_registry.go``).

Since 1.20, SelectorSpreadPriority is PodTopologySpread with the system's default constraints
(DefaultPodTopologySpread). EvenPodsSpreadPriority alone is that plugin without them. If a Policy
has both, the plugin has the weight of EvenPodsSpreadPriority, which comes first by name.

The plugins are those of the default profile, so their arithmetic is that of 1.37. The limits of
in-tree volumes are 1.22's (``nodevolumelimits.in_tree``). The annotation of nodes that
NodePreferAvoidPods reads is not simulated: without it, all nodes have its highest score.
"""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Final

from extender.config.kube_scheduler import Policy, SchedulerConfig
from extender.config.policy import (
    CAPACITY_RATIO_PRIORITY,
    NODE_LABEL_PREDICATE,
    NODE_LABEL_PRIORITY,
    PREDICATES,
    SERVICE_AFFINITY_PREDICATE,
    SERVICE_AFFINITY_PRIORITY,
)
from extender.lab.scheduler.framework import (
    FilterPlugin,
    Profile,
    ScorePlugin,
)
from extender.lab.scheduler.inter_pod_affinity import HARD_POD_AFFINITY_WEIGHT, InterPodAffinity
from extender.lab.scheduler.legacy_plugins import (
    NodeLabel,
    NodePreferAvoidPods,
    NodeResourcesMostAllocated,
    RequestedToCapacityRatio,
    ServiceAffinity,
)
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.nodevolumelimits.csi import NodeVolumeLimits
from extender.lab.scheduler.nodevolumelimits.in_tree import (
    IN_TREE_LIMITS,
    InTreeVolumeLimits,
    max_volumes_of,
    migrated_in_1_22,
)
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
from extender.lab.scheduler.volumebinding.binder import VolumeBinder
from extender.lab.scheduler.volumebinding.plugin import VolumeBinding
from extender.lab.scheduler.volumes import VolumeRestrictions, VolumeZone


def profiles_of(
    config: SchedulerConfig, listers: Listers, binder: VolumeBinder
) -> dict[str, Profile]:
    """Return the profiles of a configuration, by scheduler name."""
    ignored = config.ignored_resources
    return {
        profile.scheduler_name: policy_profile(
            config.policy, listers, binder, ignored_resources=ignored
        )
        if config.policy is not None
        else default_profile(
            listers,
            binder=binder,
            ignored_resources=ignored,
            percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
        )
        for profile in config.profiles
    }


def policy_profile(
    policy: Policy,
    listers: Listers,
    binder: VolumeBinder,
    *,
    ignored_resources: Collection[str] = (),
) -> Profile:
    """Return the profile of a Policy."""
    spread = PodTopologySpread(
        listers, system_defaults="SelectorSpreadPriority" in policy.priorities
    )
    affinity = InterPodAffinity(
        listers, hard_weight=policy.hard_pod_affinity_weight or HARD_POD_AFFINITY_WEIGHT
    )
    labels, services = NodeLabel(policy), ServiceAffinity(policy, listers)
    volumes = VolumeBinding(listers, binder)
    filters = _filters(listers, NodeResourcesFitFilter(ignored_resources))
    filters |= {
        "CheckVolumeBinding": (volumes,),
        "EvenPodsSpread": (spread,),
        "MatchInterPodAffinity": (affinity,),
        NODE_LABEL_PREDICATE: (labels,),
        SERVICE_AFFINITY_PREDICATE: (services,),
    }
    ordered = [one for name in PREDICATES if name in policy.predicates for one in filters[name]]
    scores: dict[str, tuple[ScorePlugin, int]] = {}
    makers: dict[str, Callable[[], ScorePlugin]] = {
        **_SCORES,
        "EvenPodsSpreadPriority": lambda: spread,
        "SelectorSpreadPriority": lambda: spread,
        "InterPodAffinityPriority": lambda: affinity,
        NODE_LABEL_PRIORITY: lambda: labels,
        SERVICE_AFFINITY_PRIORITY: lambda: services,
    }
    if (ratio := policy.capacity_ratio) is not None:
        makers[CAPACITY_RATIO_PRIORITY] = lambda: RequestedToCapacityRatio(ratio)
    # n custom priorities of a kind are one plugin with n times the weight.
    times = {
        NODE_LABEL_PRIORITY: len(policy.preferred_labels),
        SERVICE_AFFINITY_PRIORITY: len(policy.anti_affinity_labels),
    }
    for name, weight in sorted(policy.priorities.items()):
        plugin = makers[name]()
        scores.setdefault(plugin.name, (plugin, weight * times.get(name, 1)))
    return Profile(
        list({one.name: one for one in ordered}.values()),
        list(scores.values()),
        run_all_filters=policy.always_check_all_predicates,
        reserves=(volumes,) if "CheckVolumeBinding" in policy.predicates else (),
    )


def _filters(listers: Listers, fit: NodeResourcesFitFilter) -> dict[str, tuple[FilterPlugin, ...]]:
    """Predicate -> its plugins, without those that score too."""
    name, ports, selector = NodeName(), NodePorts(), NodeAffinityFilter()
    max_volumes = max_volumes_of(os.environ)
    in_tree = {
        limit.name: InTreeVolumeLimits(limit, listers, max_volumes)
        for limit in IN_TREE_LIMITS.values()
    }
    return {
        "CheckNodeUnschedulable": (NodeUnschedulable(),),
        "GeneralPredicates": (fit, name, ports, selector),
        "HostName": (name,),
        "PodFitsHostPorts": (ports,),
        "MatchNodeSelector": (selector,),
        "PodFitsResources": (fit,),
        "NoDiskConflict": (VolumeRestrictions(listers),),
        "PodToleratesNodeTaints": (TaintTolerationFilter(),),
        "MaxEBSVolumeCount": (in_tree["EBSLimits"],),
        "MaxGCEPDVolumeCount": (in_tree["GCEPDLimits"],),
        "MaxCSIVolumeCountPred": (NodeVolumeLimits(listers, migrated_in_1_22),),
        "MaxAzureDiskVolumeCount": (in_tree["AzureDiskLimits"],),
        "MaxCinderVolumeCount": (in_tree["CinderLimits"],),
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
