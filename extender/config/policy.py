"""The predicates and priorities of a legacy v1 Policy, as kube-scheduler 1.22 understands them:
``legacy_registry.go`` and ``ValidatePolicy``. 1.23 removed the file.

A Policy without a list has the default set; an empty list is no predicate and no priority. Two
predicates run always. What kube-scheduler 1.22 has and the embedded one lacks (serviceAffinity,
serviceAntiAffinity, requestedToCapacityRatioArguments) is kept as ``not_simulated``: the file is
right, but the embedded scheduler does not start with it.
"""

from collections.abc import Mapping
from typing import Any, Final

from extender.config.kube_scheduler import INVALID, FieldError, Policy
from extender.model.reading import mapping, mappings, text, texts

WEIGHT_MAX: Final = (2**63 - 1) // 10
"""Weights stay below it (MaxWeight): a weight times an extender's highest score must not
overflow.
"""
MANDATORY_PREDICATES: Final = frozenset({"PodToleratesNodeTaints", "CheckNodeUnschedulable"})
NODE_LABEL_PREDICATE: Final = "CheckNodeLabelPresence"
NODE_LABEL_PRIORITY: Final = "NodeLabel"
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
_NOT_SIMULATED: Final = frozenset(
    {"CheckServiceAffinity", "ServiceAffinity", "RequestedToCapacityRatio"}
)
_EQUAL: Final = "EqualPriority"


class PolicyReader:
    """Reads one document. ``errors``: all that is wrong with it, in kube-scheduler's words."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self.errors: list[FieldError] = []
        self._present: list[str] = []
        self._absent: list[str] = []
        self._preferred: list[tuple[str, bool]] = []
        self._preference: tuple[str, int] | None = None
        """Name and weight of the last label preference."""
        self._not_simulated: list[str] = []

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
            not_simulated=tuple(dict.fromkeys(self._not_simulated)),
        )

    def _wrong(self, path: str, detail: str, value: object) -> None:
        self.errors.append(FieldError(INVALID, path, detail, value))

    def _predicate(self, raw: Mapping[str, Any], path: str) -> str:
        """The predicate's name, "" if it is wrong."""
        given = text(raw, "name")
        name = _FORMER_NAMES.get(given, given)
        argument = self._argument(raw, path, "predicate", ("serviceAffinity", "labelsPresence"))
        if argument == "":
            return ""
        if name in PREDICATES:
            return name
        if name in _NOT_SIMULATED:
            return self._leave_out(name)
        if argument is None:
            self._wrong(f"{path}.name", f'predicate type not found for "{name}"', name)
            return ""
        if argument == "labelsPresence":
            asked = mapping(raw, "argument", argument)
            there = self._present if asked.get("presence") is True else self._absent
            there += texts(asked, "labels")
            return NODE_LABEL_PREDICATE
        return self._leave_out(argument)

    def _priority(self, raw: Mapping[str, Any], weight: int, path: str) -> str:
        """The priority's name, "" if it is wrong."""
        given = text(raw, "name")
        name = _FORMER_NAMES.get(given, given)
        kinds = ("serviceAntiAffinity", "labelPreference", "requestedToCapacityRatioArguments")
        argument = self._argument(raw, path, "priority", kinds)
        if argument == "":
            return ""
        if name in PRIORITIES:
            return name
        if name in _NOT_SIMULATED:
            return self._leave_out(name)
        if argument is None:
            self._wrong(f"{path}.name", f'priority type not found for "{name}"', name)
            return ""
        if argument == "labelPreference":
            asked = mapping(raw, "argument", argument)
            self._preferred.append((text(asked, "label"), asked.get("presence") is True))
            self._check_same_weight(name, weight, path)
            return NODE_LABEL_PRIORITY
        return self._leave_out(argument)

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

    def _leave_out(self, name: str) -> str:
        self._not_simulated.append(name)
        return ""

    def _weight(self, raw: Mapping[str, Any], path: str) -> int:
        weight = raw.get("weight", 0)
        if type(weight) is int and 0 < weight < WEIGHT_MAX:
            return weight
        name = text(raw, "name")
        problem = f"priority {name} should have a positive weight applied to it or it has overflown"
        self._wrong(f"{path}.weight", problem, weight)
        return 1

    def _check_same_weight(self, name: str, weight: int, path: str) -> None:
        """All label preferences are one plugin, so they must have one weight."""
        before = self._preference
        self._preference = (name, weight)
        if before is not None and before[1] != weight:
            what = f'priority "{name}" has a different weight with "{before[0]}"'
            self._wrong(f"{path}.weight", f"LabelPreference  {what}", weight)

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
