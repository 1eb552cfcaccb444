"""Label and field selectors, in the text form of URLs and in the JSON form of LabelSelector
objects.

Each selector is compiled once into a predicate, because a watch evaluates it twice for every
change. A missing key satisfies ``!=`` and ``notin``, as in Kubernetes.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from extender.kube.api import (
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    ListOptions,
    Obj,
    Resource,
)
from extender.lab.apiserver.statuses import bad_request

Predicate = Callable[[Obj], bool]
LabelsPredicate = Callable[[Mapping[str, str]], bool]

REQUIREMENTS_MAX: Final = 200
_SET: Final = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^()]*)\)$")
_EQUALITY: Final = re.compile(r"^([^=!\s]+)\s*(==|=|!=)\s*([^=!\s]*)$")
_KEY: Final = re.compile(r"^(!?)\s*([A-Za-z0-9._/-]+)$")
_OUTSIDE_PARENTHESES: Final = re.compile(r",(?![^(]*\))")

FIELDS: Final[Mapping[Resource, tuple[str, ...]]] = {
    PODS: (
        "spec.nodeName",
        "spec.schedulerName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    NODES: ("spec.unschedulable",),
    NAMESPACES: ("status.phase",),
    SECRETS: ("type",),
    EVENTS: (
        "reason",
        "reportingController",
        "type",
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
    ),
}
"""The selectable fields of each kind, besides metadata.name and metadata.namespace."""


def labels_of(obj: Obj) -> Mapping[str, str]:
    """Return the object's labels, or an empty map."""
    labels: Mapping[str, str] | None = obj["metadata"].get("labels")
    return labels or {}


def parse_label_selector(text: str) -> LabelsPredicate | None:
    """Parse ``a=b,c!=d,e in (f,g),h notin (i),j,!k``. Return None if every object matches. Raises
    ApiError 400.
    """
    if not text.strip():
        return None
    parts = [part.strip() for part in _OUTSIDE_PARENTHESES.split(text)]
    if len(parts) > REQUIREMENTS_MAX:
        raise bad_request(f"unable to parse requirement: more than {REQUIREMENTS_MAX}")
    tests = [_label_requirement(part) for part in parts]
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def _label_requirement(part: str) -> LabelsPredicate:
    if found := _SET.match(part):
        key, operator, listed = found.groups()
        values = frozenset(value.strip() for value in listed.split(","))
        return _operator(key, "In" if operator == "in" else "NotIn", values)
    if found := _EQUALITY.match(part):
        key, operator, value = found.groups()
        return _operator(key, "NotIn" if operator == "!=" else "In", frozenset((value,)))
    if found := _KEY.match(part):
        absent, key = found.groups()
        return _operator(key, "DoesNotExist" if absent else "Exists", frozenset())
    raise bad_request(f"unable to parse requirement: found '{part}'")


def _operator(key: str, operator: str, values: frozenset[str]) -> LabelsPredicate:
    match operator:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: key not in labels or labels[key] not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case _:
            raise bad_request(f'"{operator}" is not a valid label selector operator')


def label_selector_object(selector: Mapping[str, Any] | None) -> LabelsPredicate:
    """Compile a metav1.LabelSelector; an empty one matches everything. Raises ApiError 400."""
    tests = [
        _operator(key, "In", frozenset((value,)))
        for key, value in ((selector or {}).get("matchLabels") or {}).items()
    ]
    tests += [
        _operator(
            expression["key"], expression["operator"], frozenset(expression.get("values") or ())
        )
        for expression in (selector or {}).get("matchExpressions") or ()
    ]
    return lambda labels: all(test(labels) for test in tests)


def selector_text(selector: Mapping[str, Any]) -> str:
    """Return a metav1.LabelSelector in URL form, as in ``status.selector`` of a Scale."""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        values = ",".join(sorted(expression.get("values") or ()))
        forms = {
            "In": f"{expression['key']} in ({values})",
            "NotIn": f"{expression['key']} notin ({values})",
            "Exists": expression["key"],
            "DoesNotExist": f"!{expression['key']}",
        }
        parts.append(forms[expression["operator"]])
    return ",".join(parts)


def field_text(obj: Obj, path: str) -> str:
    """Return the field at a dotted path as selectors compare it: "" if absent, "true" or "false"
    for booleans.
    """
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return "false" if path == "spec.unschedulable" else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def parse_field_selector(
    text: str, selectable: tuple[str, ...], *, custom: bool
) -> list[Predicate]:
    """Parse ``metadata.name=a,spec.nodeName!=b``. Raises ApiError 400 for a field that is not
    selectable.
    """
    tests: list[Predicate] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = re.match(r"^([^=!]+)(==|=|!=)(.*)$", part)
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        path, operator, value = found.groups()
        if path not in ("metadata.name", "metadata.namespace") and path not in selectable:
            raise bad_request(_unknown_field(path, listed=not selectable and not custom))
        tests.append(_field_test(path, value, wanted=operator != "!="))
    return tests


def _unknown_field(path: str, *, listed: bool) -> str:
    """Custom kinds and kinds with selectable fields do not list the known fields."""
    if not listed:
        return f"field label not supported: {path}"
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _field_test(path: str, value: str, *, wanted: bool) -> Predicate:
    return lambda obj: (field_text(obj, path) == value) is wanted


def compile_options(
    options: ListOptions, selectable: tuple[str, ...], *, custom: bool = False
) -> Predicate | None:
    """Return one predicate for the namespace and both selectors; None if everything matches. Raises
    ApiError 400.
    """
    by_label = parse_label_selector(options.label_selector)
    tests = parse_field_selector(options.field_selector, selectable, custom=custom)
    if by_label is not None:
        tests.append(lambda obj: by_label(labels_of(obj)))
    if namespace := options.namespace:
        tests.insert(0, lambda obj: obj["metadata"].get("namespace") == namespace)
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)
