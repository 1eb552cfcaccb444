"""The predicates and priorities of a legacy v1 Policy, as kube-scheduler 1.22 understands them:
``legacy_registry.go`` and ``ValidatePolicy``. 1.23 removed the file.

A Policy without a list has the default set; an empty list is no predicate and no priority. Two
predicates run always. An entry with an argument is a custom one: its name only tells it apart.
"""

from collections.abc import Container, Mapping
from typing import Any, Final

from extender.config.kube_scheduler import REQUIRED, CapacityRatio, FieldError, Policy, invalid
from extender.model.reading import mapping, mappings, text, texts

WEIGHT_MAX: Final = (2**63 - 1) // 10
"""Weights stay below it (MaxWeight): a weight times an extender's highest score must not
overflow.
"""
MANDATORY_PREDICATES: Final = frozenset({"PodToleratesNodeTaints", "CheckNodeUnschedulable"})
NODE_LABEL_PREDICATE: Final = "CheckNodeLabelPresence"
NODE_LABEL_PRIORITY: Final = "NodeLabel"
SERVICE_AFFINITY_PREDICATE: Final = "CheckServiceAffinity"
SERVICE_AFFINITY_PRIORITY: Final = "ServiceAffinity"
CAPACITY_RATIO_PRIORITY: Final = "RequestedToCapacityRatio"
PREDICATES: Final = (
    "CheckNodeUnschedulable",
    "GeneralPredicates",
    "HostName",
    "PodFitsHostPorts",
    "MatchNodeSelector",
    "PodFitsResources",
    "NoDiskConflict",
    "PodToleratesNodeTaints",
    NODE_LABEL_PREDICATE,
    SERVICE_AFFINITY_PREDICATE,
    "MaxEBSVolumeCount",
    "MaxGCEPDVolumeCount",
    "MaxCSIVolumeCountPred",
    "MaxAzureDiskVolumeCount",
    "MaxCinderVolumeCount",
    "CheckVolumeBinding",
    "NoVolumeZoneConflict",
    "EvenPodsSpread",
    "MatchInterPodAffinity",
)
"""In the order in which they run (predicateOrdering)."""
DEFAULT_PREDICATES: Final = frozenset(
    {
        *("NoVolumeZoneConflict", "MaxEBSVolumeCount", "MaxGCEPDVolumeCount"),
        *("MaxAzureDiskVolumeCount", "MaxCSIVolumeCountPred", "MatchInterPodAffinity"),
        *("NoDiskConflict", "GeneralPredicates", "PodToleratesNodeTaints", "CheckVolumeBinding"),
        *("CheckNodeUnschedulable", "EvenPodsSpread"),
    }
)
DEFAULT_PRIORITIES: Final[Mapping[str, int]] = {
    "SelectorSpreadPriority": 1,
    "InterPodAffinityPriority": 1,
    "LeastRequestedPriority": 1,
    "BalancedResourceAllocation": 1,
    "NodePreferAvoidPodsPriority": 10_000,
    "NodeAffinityPriority": 1,
    "TaintTolerationPriority": 1,
    "ImageLocalityPriority": 1,
    "EvenPodsSpreadPriority": 2,
}
PRIORITIES: Final = frozenset({*DEFAULT_PRIORITIES, "MostRequestedPriority"})
_FORMER_NAMES: Final = {
    "PodFitsPorts": "PodFitsHostPorts",
    "ServiceSpreadingPriority": "SelectorSpreadPriority",
}
_PLUGIN_NAMES: Final = frozenset(
    {NODE_LABEL_PRIORITY, SERVICE_AFFINITY_PRIORITY, CAPACITY_RATIO_PRIORITY}
)
"""kube-scheduler 1.22 looks for such a priority before its argument, and does not start."""
_EQUAL: Final = "EqualPriority"


def _whole(value: object) -> int:
    """A whole number; -1, which is never right, for anything else."""
    return value if type(value) is int else -1


class PolicyReader:
    """Reads one document. ``errors``: all that is wrong with it, in kube-scheduler's words."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self.errors: list[FieldError] = []
        self._present: list[str] = []
        self._absent: list[str] = []
        self._preferred: list[tuple[str, bool]] = []
        self._affinity: list[str] = []
        self._anti_affinity: list[str] = []
        self._capacity_ratio: tuple[str, CapacityRatio] | None = None
        """With the name of its priority."""
        self._weights: dict[str, tuple[str, int]] = {}
        """Kind of custom priority -> name and weight of the last one."""

    def read(self) -> Policy:
        """Return what the document asks for, as far as it is right."""
        document = self._document
        predicates = (
            DEFAULT_PREDICATES
            if document.get("predicates") is None
            else frozenset(
                name
                for index, raw in enumerate(mappings(document, "predicates"))
                if (name := self._predicate(raw, f"predicates[{index}]"))
            )
        )
        priorities = dict(DEFAULT_PRIORITIES)
        if document.get("priorities") is not None:
            priorities = {}
            for index, raw in enumerate(mappings(document, "priorities")):
                path = f"priorities[{index}]"
                weight = self._weight(raw, path)
                if text(raw, "name") == _EQUAL:
                    continue
                if name := self._priority(raw, weight, path):
                    priorities[name] = weight
        self._check_no_conflict("predicates", self._present, self._absent)
        wanted, unwanted = (
            [label for label, there in self._preferred if there is wanted]
            for wanted in (True, False)
        )
        self._check_no_conflict("priorities", wanted, unwanted)
        return Policy(
            predicates=predicates | MANDATORY_PREDICATES,
            priorities=priorities,
            present_labels=tuple(self._present),
            absent_labels=tuple(self._absent),
            preferred_labels=tuple(self._preferred),
            hard_pod_affinity_weight=self._hard_weight(),
            always_check_all_predicates=document.get("alwaysCheckAllPredicates") is True,
            affinity_labels=tuple(self._affinity),
            anti_affinity_labels=tuple(self._anti_affinity),
            capacity_ratio=self._capacity_ratio[1] if self._capacity_ratio is not None else None,
        )

    def _wrong(self, path: str, detail: str, value: object) -> None:
        self.errors.append(invalid(path, detail, value))

    def _predicate(self, raw: Mapping[str, Any], path: str) -> str:
        """The predicate's name, "" if it is wrong."""
        kinds = ("serviceAffinity", "labelsPresence")
        name, argument = self._entry(raw, path, "predicate", PREDICATES, kinds)
        if not argument:
            return name
        asked = mapping(raw, "argument", argument)
        labels = texts(asked, "labels")
        if argument == "serviceAffinity":
            self._affinity += labels
            return SERVICE_AFFINITY_PREDICATE
        there = self._present if asked.get("presence") is True else self._absent
        there += labels
        return NODE_LABEL_PREDICATE

    def _priority(self, raw: Mapping[str, Any], weight: int, path: str) -> str:
        """The priority's name, "" if it is wrong."""
        kinds = ("serviceAntiAffinity", "labelPreference", "requestedToCapacityRatioArguments")
        name, argument = self._entry(raw, path, "priority", PRIORITIES, kinds)
        if not argument:
            return name
        if name in _PLUGIN_NAMES:
            problem = f'priority "{name}" has the name of a plugin: its argument is ignored'
            self._wrong(f"{path}.name", f"{problem}. Give it another name", name)
            return ""
        asked = mapping(raw, "argument", argument)
        if argument == "requestedToCapacityRatioArguments":
            self._read_capacity_ratio(name, asked, path)
            return CAPACITY_RATIO_PRIORITY
        kind = argument[0].upper() + argument[1:]
        self._check_same_weight(kind, name, weight, path)
        if argument == "serviceAntiAffinity":
            self._anti_affinity.append(text(asked, "label"))
            return SERVICE_AFFINITY_PRIORITY
        self._preferred.append((text(asked, "label"), asked.get("presence") is True))
        return NODE_LABEL_PRIORITY

    def _entry(
        self,
        raw: Mapping[str, Any],
        path: str,
        what: str,
        known: Container[str],
        kinds: tuple[str, ...],
    ) -> tuple[str, str]:
        """(its name, "" to add none; the argument that makes it a custom one, "" for none)."""
        given = text(raw, "name")
        name = _FORMER_NAMES.get(given, given)
        argument = self._argument(raw, path, what, kinds)
        if argument == "":
            return "", ""
        if name in known:
            return name, ""
        if argument is None:
            self._wrong(f"{path}.name", f'{what} type not found for "{name}"', name)
            return "", ""
        return name, argument

    def _read_capacity_ratio(self, name: str, asked: Mapping[str, Any], path: str) -> None:
        path = f"{path}.argument.requestedToCapacityRatioArguments"
        if self._capacity_ratio is not None:
            what = f'priority "{name}" redeclares custom priority "{CAPACITY_RATIO_PRIORITY}"'
            self._wrong(path, f'{what}, from: "{self._capacity_ratio[0]}"', name)
            return
        shape = tuple(
            (_whole(point.get("utilization", 0)), _whole(point.get("score", 0)))
            for point in mappings(asked, "shape")
        )
        resources = {
            text(one, "name"): _whole(one.get("weight", 0)) for one in mappings(asked, "resources")
        }
        self._capacity_ratio = (name, CapacityRatio(shape, resources))
        if not shape:
            problem = "at least one point must be specified"
            self.errors.append(FieldError(REQUIRED, f"{path}.shape", problem))
        utilizations = [utilization for utilization, _ in shape]
        if sorted(set(utilizations)) != utilizations:
            problem = "utilization values must be sorted in increasing order"
            self._wrong(f"{path}.shape", problem, utilizations)
        for index, (utilization, score) in enumerate(shape):
            for field, value, most in (("utilization", utilization, 100), ("score", score, 10)):
                if not 0 <= value <= most:
                    problem = f"not in valid range [0, {most}]"
                    self._wrong(f"{path}.shape[{index}].{field}", problem, value)
        for index, (resource, weight) in enumerate(resources.items()):
            if weight < 1:
                problem = f"resource weight of {resource} not in valid range [1, inf)"
                self._wrong(f"{path}.resources[{index}].weight", problem, weight)

    def _argument(
        self, raw: Mapping[str, Any], path: str, what: str, kinds: tuple[str, ...]
    ) -> str | None:
        """Which argument an entry has; None for none, "" if that is wrong."""
        if raw.get("argument") is None:
            return None
        argument = mapping(raw, "argument")
        given = [kind for kind in kinds if argument.get(kind) is not None]
        if len(given) == 1:
            return given[0]
        problem = f"exactly 1 {what} argument is required, numArgs: {len(given)}"
        self._wrong(f"{path}.argument", problem, text(raw, "name"))
        return ""

    def _weight(self, raw: Mapping[str, Any], path: str) -> int:
        weight = raw.get("weight", 0)
        if type(weight) is int and 0 < weight < WEIGHT_MAX:
            return weight
        name = text(raw, "name")
        problem = f"priority {name} should have a positive weight applied to it or it has overflown"
        self._wrong(f"{path}.weight", problem, weight)
        return 1

    def _check_same_weight(self, kind: str, name: str, weight: int, path: str) -> None:
        """All priorities of one kind are one plugin, so they must have one weight."""
        before = self._weights.get(kind)
        self._weights[kind] = (name, weight)
        if before is not None and before[1] != weight:
            what = f'priority "{name}" has a different weight with "{before[0]}"'
            self._wrong(f"{path}.weight", f"{kind}  {what}", weight)

    def _check_no_conflict(self, path: str, present: list[str], absent: list[str]) -> None:
        both = sorted(set(present) & set(absent))
        if both:
            problem = (
                f'detecting at least one label (e.g., "{both[0]}") that exist in both the '
                f"present({present}) and absent({absent}) label list"
            )
            self._wrong(path, problem, both[0])

    def _hard_weight(self) -> int:
        weight = self._document.get("hardPodAffinitySymmetricWeight", 0)
        if type(weight) is int and 0 <= weight <= 100:
            return weight
        self._wrong("hardPodAffinitySymmetricWeight", "not in valid range [0-100]", weight)
        return 0
