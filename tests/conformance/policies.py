"""The policies of a case of Knative up to 1.16, and the profile that they are imported as."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from extender.engine.policy.knative_configmap import knative_document
from extender.engine.policy.profile import KNATIVE_1_16_RULES, Profile
from extender.engine.policy.profile_document import profile_from
from extender.engine.policy.profiles import KNATIVE_MAXFILLUP_PROFILE

PREDICATES = {
    "PodFitsResources": None,
    "NoMaxResourceCount": "numpartitions",
    "EvenPodSpread": "maxskew",
}
"""Knative's predicates, and the argument of each in lower case."""
SCORES = {
    "AvailabilityNodePriority": "maxskew",
    "AvailabilityZonePriority": "maxskew",
    "EvenPodSpread": "maxskew",
    "LowestOrdinalPriority": None,
}
"""Knative's priorities for placing."""
DESCHEDULERS = {
    "RemoveWithAvailabilityNodePriority": "maxskew",
    "RemoveWithAvailabilityZonePriority": "maxskew",
    "RemoveWithEvenPodSpreadPriority": "maxskew",
    "RemoveWithHighestOrdinalPriority": None,
}
"""Knative's priorities for taking away."""
WEIGHTS = range(101)
"""What we take for a weight; Knative documents 0 to 10 and looks at none."""


@dataclass(frozen=True)
class Policy:
    """``type`` is MAXFILLUP, or "" where there are policies; ``scheduler`` and ``descheduler`` as
    in a ConfigMap.
    """

    type: str
    scheduler: Mapping[str, Any] | None
    descheduler: Mapping[str, Any] | None

    @property
    def fills_up(self) -> bool:
        """Whether pods are filled one after the other, without any policy."""
        return bool(self.type)

    @cached_property
    def predicates(self) -> frozenset[str]:
        """Names of what filters when placing."""
        return frozenset(item["name"] for item in _items(self.scheduler, "predicates"))

    @cached_property
    def removal_predicates(self) -> frozenset[str]:
        """Names of what filters when taking away."""
        return frozenset(item["name"] for item in _items(self.descheduler, "predicates"))

    @cached_property
    def placing_weights(self) -> dict[str, int]:
        """Name -> weight of what scores when placing; those of weight 0 play no part."""
        return _weights(self.scheduler)

    @cached_property
    def removal_weights(self) -> dict[str, int]:
        """Name -> weight of what scores when taking away; those of weight 0 play no part."""
        return _weights(self.descheduler)

    @cached_property
    def is_unreadable(self) -> bool:
        """Whether a name is unknown in its place or listed twice, or a weight or argument is none
        that we take.
        """
        lists = (
            (self.scheduler, "predicates", PREDICATES),
            (self.scheduler, "priorities", SCORES),
            (self.descheduler, "predicates", PREDICATES),
            (self.descheduler, "priorities", DESCHEDULERS),
        )
        for policy, field, known in lists:
            items = _items(policy, field)
            names = [item["name"] for item in items]
            if len(set(names)) < len(names) or any(_is_wrong(item, known) for item in items):
                return True
        return False


def profile_of(policy: Policy, *, ignore_unknown: bool = False) -> Profile:
    """The profile that places as the policy says, by the rules of that version. Raises
    InvalidObject.
    """
    if policy.fills_up:
        return KNATIVE_MAXFILLUP_PROFILE
    descheduler = (
        None if policy.descheduler is None else _config_map("descheduler", policy.descheduler)
    )
    scheduler = _config_map("scheduler", policy.scheduler or {})
    document = knative_document("case", scheduler, descheduler, ignore_unknown=ignore_unknown)
    return replace(profile_from(document), rules=KNATIVE_1_16_RULES)


def _config_map(name: str, policy: Mapping[str, Any]) -> dict[str, object]:
    data = {field: json.dumps(policy.get(field)) for field in ("predicates", "priorities")}
    return {"metadata": {"name": name}, "data": data}


def _items(policy: Mapping[str, Any] | None, field: str) -> list[Mapping[str, Any]]:
    return list((policy or {}).get(field) or [])


def _weights(policy: Mapping[str, Any] | None) -> dict[str, int]:
    return {item["name"]: item["weight"] for item in _items(policy, "priorities") if item["weight"]}


def _is_wrong(item: Mapping[str, Any], known: Mapping[str, str | None]) -> bool:
    if item["name"] not in known or item.get("weight", 0) not in WEIGHTS:
        return True
    argument = known[item["name"]]
    if argument is None:
        return False
    try:
        arguments = json.loads(item["args"])
    except (TypeError, ValueError):
        return True
    return not isinstance(arguments, dict) or any(
        name.lower() != argument or not isinstance(value, int) for name, value in arguments.items()
    )
