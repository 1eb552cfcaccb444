"""The validation rules (``x-kubernetes-validations``) of this project's CRDs, as Python functions.

There is no CEL interpreter. ``RULES`` maps the text of a rule to its function. A rule that is not
in ``RULES`` is not evaluated, so objects that a real API server would refuse are accepted.
``docs/tutorial.md`` says so. Messages are those of apiextensions-apiserver (``cel/validation.go``).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from extender.lab.apiserver.store import identical
from extender.model.indexes import INDEXED_SLOTS_MAX

Rule = Callable[[Any, Any], bool]
"""(``self``, ``oldSelf`` or None for a new object) -> whether the rule holds."""

_OLD_SELF: Final = "oldSelf"
_SPELLED_OUT: Final = ("group", "version", "kind", "paths")
_STATUS: Final = "status."
_DIMENSION: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")


def _pods_between(spec: Mapping[str, Any], _old: object) -> bool:
    return not {"minPods", "maxPods"} <= spec.keys() or spec["maxPods"] >= spec["minPods"]


def _stateful_set_stays(spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> bool:
    return old is None or spec["statefulSet"] == old["statefulSet"]


def _rollout_hands_over(spec: Mapping[str, Any], _old: object) -> bool:
    hands_over = spec.get("handoff", {}).get("mode", "None") != "None"
    return bool(hands_over or spec.get("rollout", {}).get("strategy") != "HandedOver")


def _indexed_pods_are_small(spec: Mapping[str, Any], _old: object) -> bool:
    indexed = spec.get("handoff", {}).get("identity") == "Indexed"
    return not indexed or bool(spec["slotsPerPod"] <= INDEXED_SLOTS_MAX)


def _values_where_asked(expression: Mapping[str, Any], _old: object) -> bool:
    return (expression["operator"] in ("In", "NotIn")) == bool(expression.get("values"))


def _preset_or_resource(source: Mapping[str, Any], _old: object) -> bool:
    return ("preset" in source) != ("resource" in source)


def _resource_in_full(source: Mapping[str, Any], _old: object) -> bool:
    return all((name in source) == ("resource" in source) for name in _SPELLED_OUT)


def _not_ours(source: Mapping[str, Any], _old: object) -> bool:
    return source.get("group") != "vreplica.dev"


def _written_below_status(source: Mapping[str, Any], _old: object) -> bool:
    paths = source.get("paths")
    return paths is None or (
        paths["placements"].startswith(_STATUS)
        and paths.get("scheduledVReplicas", _STATUS).startswith(_STATUS)
        and paths.get("conditions", _STATUS).startswith(_STATUS)
    )


def _names_of_dimensions(amounts: Mapping[str, Any], _old: object) -> bool:
    return all(_DIMENSION.fullmatch(name) and name != "slots" for name in amounts)


def _per_vreplica_stays(spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> bool:
    return old is None or spec.get("perVReplica") == old.get("perVReplica")


def _load_is_balanced(spec: Mapping[str, Any], _old: object) -> bool:
    return "loadSource" not in spec or "load" in spec.get("rebalance", {})


def _guarantee_within(limit: str, guarantee: str) -> Rule:
    def holds(spec: Mapping[str, Any], _old: object) -> bool:
        return limit not in spec or spec.get(guarantee, 0) <= spec[limit]

    return holds


def _guarantee_fits(spec: Mapping[str, Any], _old: object) -> bool:
    guarantee = spec.get("tenancy", {}).get("defaultGuarantee", 0)
    return "maxPods" not in spec or bool(guarantee <= spec["maxPods"] * spec["slotsPerPod"])


def _target_at_least(target: float, _old: object) -> bool:
    return target >= 1.05


def _announced_to_others(scaling: Mapping[str, Any], _old: object) -> bool:
    return "announcedReplicas" not in scaling or scaling["mode"] == "External"


RULES: Final[Mapping[str, Rule]] = {
    "!has(self.defaultLimit) || self.defaultGuarantee <= self.defaultLimit": _guarantee_within(
        "defaultLimit", "defaultGuarantee"
    ),
    "!has(self.guarantee) || !has(self.limit) || self.guarantee <= self.limit": _guarantee_within(
        "limit", "guarantee"
    ),
    "!has(self.tenancy) || !has(self.tenancy.defaultGuarantee) || !has(self.maxPods) "
    "|| self.tenancy.defaultGuarantee <= self.maxPods * self.slotsPerPod": _guarantee_fits,
    "!has(self.maxPods) || !has(self.minPods) || self.maxPods >= self.minPods": _pods_between,
    "self.statefulSet == oldSelf.statefulSet": _stateful_set_stays,
    "self >= 1.05": _target_at_least,
    "!has(self.announcedReplicas) || self.mode == 'External'": _announced_to_others,
    "!has(self.loadSource) || (has(self.rebalance) && has(self.rebalance.load))": _load_is_balanced,
    "!has(self.rollout) || self.rollout.strategy != 'HandedOver'"
    " || (has(self.handoff) && self.handoff.mode != 'None')": _rollout_hands_over,
    "!has(self.handoff) || self.handoff.identity != 'Indexed' || self.slotsPerPod <= 1000": (
        _indexed_pods_are_small
    ),
    "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0"
    " : !has(self.values) || size(self.values) == 0": _values_where_asked,
    "has(self.preset) != has(self.resource)": _preset_or_resource,
    "has(self.resource) ? has(self.group) && has(self.version) && has(self.kind) && has(self.paths)"
    " : !has(self.group) && !has(self.version) && !has(self.kind) && "
    "!has(self.paths)": _resource_in_full,
    "!has(self.group) || self.group != 'vreplica.dev'": _not_ours,
    "!has(self.paths) || self.paths.placements.startsWith('status.')"
    " && (!has(self.paths.scheduledVReplicas)"
    " || self.paths.scheduledVReplicas.startsWith('status.'))"
    " && (!has(self.paths.conditions)"
    " || self.paths.conditions.startsWith('status.'))": _written_below_status,
    "self.all(name, name.matches('^[a-z][a-z0-9-]{0,30}$') && name != 'slots')": (
        _names_of_dimensions
    ),
    "has(self.perVReplica) == has(oldSelf.perVReplica)"
    " && (!has(self.perVReplica) || self.perVReplica == oldSelf.perVReplica)": _per_vreplica_stays,
}
"""Text of the rule, with single spaces -> its function."""


def rule_problems(value: Any, old: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the violations of a schema's rules. ``value`` must have the schema's types. ``old`` is
    the stored value, or None.

    Unchanged values are not checked again (CRDValidationRatcheting). Items of lists are compared by
    index.
    """
    if old is not None and identical(value, old):
        return
    yield from _broken(value, old if type(old) is type(value) else None, schema, path)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, sub in (schema.get("properties") or {}).items():
            if name in value:
                at = f"{path}.{name}" if path else name
                yield from rule_problems(value[name], before.get(name), sub, at)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        stood = old if isinstance(old, list) else []
        for number, item in enumerate(value):
            earlier = stood[number] if number < len(stood) else None
            yield from rule_problems(item, earlier, schema["items"], f"{path}[{number}]")


def _broken(value: Any, old: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations") or ():
        text = " ".join(str(rule.get("rule")).split())
        holds = RULES.get(text)
        if holds is None or (old is None and _OLD_SELF in text) or holds(value, old):
            continue
        yield (
            f"{path}{rule.get('fieldPath', '')}: Invalid value: "
            f"{rule.get('message') or f'failed rule: {text}'}"
        )
