"""Checks kube-scheduler's own settings, apart from extenders and profile names: those that it
refuses when it starts, not when it reads the file.

The rules come from ``pkg/scheduler/apis/config/validation``, component-base's validation of leader
election, client-go's ``NewLeaderElector``, and ``NewFramework``, which needs a queueSort and a bind
plugin. Arguments of plugins are not checked. A plugin that is not kube-scheduler's own may belong
to a custom build, so it is a warning.
"""

from typing import Final

from extender.cli.lint.codes import Subject
from extender.config.kube_scheduler_file import duration_s
from extender.config.nearest import did_you_mean, with_hint
from extender.config.rules import RETRY_JITTER
from extender.model.reading import Json, mapping, mappings, text

ROOT_FIELDS: Final = frozenset(
    {
        "apiVersion",
        "kind",
        "parallelism",
        "leaderElection",
        "clientConnection",
        "enableProfiling",
        "enableContentionProfiling",
        "percentageOfNodesToScore",
        "podInitialBackoffSeconds",
        "podMaxBackoffSeconds",
        "profiles",
        "extenders",
        "delayCacheUntilActive",
    }
)
"""Fields of KubeSchedulerConfiguration v1, which is decoded strictly."""
ELECTION_FIELDS: Final = frozenset(
    {
        "leaderElect",
        "leaseDuration",
        "renewDeadline",
        "retryPeriod",
        "resourceLock",
        "resourceName",
        "resourceNamespace",
    }
)
CONNECTION_FIELDS: Final = frozenset(
    {"kubeconfig", "acceptContentTypes", "contentType", "qps", "burst"}
)
PROFILE_FIELDS: Final = frozenset(
    {"schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"}
)
EXTENSION_POINTS: Final = frozenset(
    {
        "preEnqueue",
        "queueSort",
        "preFilter",
        "filter",
        "postFilter",
        "preScore",
        "score",
        "reserve",
        "permit",
        "preBind",
        "bind",
        "postBind",
        "multiPoint",
        "placementGenerate",
        "placementScore",
    }
)
IN_TREE: Final = frozenset(
    {
        "PrioritySort",
        "DefaultBinder",
        "DefaultPreemption",
        "DynamicResources",
        "GangScheduling",
        "ImageLocality",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodeName",
        "NodePorts",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "SchedulingGates",
        "TaintToleration",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
        "TopologyPlacementGenerator",
        "PodGroupPodsCount",
    }
)
"""The plugins of kube-scheduler 1.37."""
NEEDED: Final = {"queueSort": "PrioritySort", "bind": "DefaultBinder"}
"""Extension points that must not be empty, with their default plugins."""
_ELECTION_DEFAULTS: Final = {"leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s"}


def check_settings(subject: Subject) -> None:
    """Add what kube-scheduler refuses."""
    _unknown(subject, subject.raw, ROOT_FIELDS, "")
    _unknown(subject, mapping(subject.raw, "leaderElection"), ELECTION_FIELDS, "leaderElection.")
    _unknown(
        subject, mapping(subject.raw, "clientConnection"), CONNECTION_FIELDS, "clientConnection."
    )
    parallelism = subject.raw.get("parallelism")
    if parallelism is not None and (type(parallelism) is not int or parallelism <= 0):
        subject.found(
            "VS100", "parallelism", f"{parallelism!r:.80}: must be an integer greater than 0"
        )
    _check_election(subject)
    for index, profile in enumerate(mappings(subject.raw, "profiles")):
        path = f"profiles[{index}]."
        _unknown(subject, profile, PROFILE_FIELDS, path)
        _check_plugins(subject, mapping(profile, "plugins"), f"{path}plugins")


def _unknown(subject: Subject, raw: Json, known: frozenset[str], path: str) -> None:
    for name in sorted(raw.keys() - known):
        subject.found(
            "VS100", f"{path}{name}", with_hint("unknown field", did_you_mean(name, known))
        )


def _check_election(subject: Subject) -> None:
    raw = mapping(subject.raw, "leaderElection")
    if raw.get("leaderElect") is False:
        return
    lock = text(raw, "resourceLock")
    if lock not in {"", "leases"}:
        subject.found("VS100", "leaderElection.resourceLock", f"{lock!r:.80}: must be leases")
    seconds: dict[str, float] = {}
    for name, default in _ELECTION_DEFAULTS.items():
        # 0 also stands for the default.
        given = raw.get(name) or default
        try:
            seconds[name] = duration_s(str(given)) or duration_s(default)
        except ValueError as error:
            subject.found("VS100", f"leaderElection.{name}", f"{error}"[:200])
            return
        if seconds[name] < 0:
            subject.found(
                "VS100", f"leaderElection.{name}", f"{given!r:.80}: must be greater than 0"
            )
            return
    if seconds["leaseDuration"] <= seconds["renewDeadline"]:
        subject.found(
            "VS100",
            "leaderElection.leaseDuration",
            _below(seconds, "leaseDuration", "renewDeadline"),
        )
    elif seconds["renewDeadline"] <= RETRY_JITTER * seconds["retryPeriod"]:
        subject.found(
            "VS100",
            "leaderElection.renewDeadline",
            _below(seconds, "renewDeadline", "retryPeriod", f"{RETRY_JITTER} "),
        )


def _below(seconds: dict[str, float], name: str, other: str, times: str = "") -> str:
    return (
        f"{seconds[name]:g} s: must be greater than {times}{other}, which is {seconds[other]:g} s"
    )


def _check_plugins(subject: Subject, plugins: Json, path: str) -> None:
    _unknown(subject, plugins, EXTENSION_POINTS, f"{path}.")
    for point in sorted(plugins.keys() & EXTENSION_POINTS):
        for name in _names(plugins, point, "enabled"):
            if name not in IN_TREE:
                said = with_hint(
                    f"{name!r:.80}: none of kube-scheduler's own", did_you_mean(name, IN_TREE)
                )
                subject.found("VS123", f"{path}.{point}.enabled", said)
    for point, default in NEEDED.items():
        if not _has_one(plugins, point, default):
            subject.found(
                "VS100",
                f"{path}.{point}",
                f"no plugin is left; the default is {default}",
            )


def _has_one(plugins: Json, point: str, default: str) -> bool:
    """Whether an extension point that needs a plugin has one after MultiPoint is expanded. A
    foreign plugin may implement any point.
    """
    if _names(plugins, point, "enabled"):
        return True
    taken = set(_names(plugins, point, "disabled"))
    everywhere = set(_names(plugins, "multiPoint", "enabled"))
    gone = set(_names(plugins, "multiPoint", "disabled"))
    if "*" in taken:
        return False
    if everywhere - IN_TREE:
        return True
    return default not in taken and (default in everywhere or not gone & {default, "*"})


def _names(plugins: Json, point: str, which: str) -> list[str]:
    return [text(one, "name") for one in mappings(plugins, point, which)]
