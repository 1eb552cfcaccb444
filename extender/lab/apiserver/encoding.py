"""The changes that decoding into Go types and encoding again make to an object.

kube-apiserver stores the encoding of its Go types, not the bytes that it received. Quantities
become canonical, empty strings are left out, and structs that are not pointers are written even
when empty. Clients see this: cpu ``1000m`` is read back as ``1``. The embedded server does the same
for the kinds and fields that this project reads.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

from extender.kube.api import (
    CONFIGMAPS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    STATEFULSETS,
    Obj,
    Resource,
)

_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)"
)
_DECIMAL: Final[Mapping[int, str]] = {
    18: "E", 15: "P", 12: "T", 9: "G", 6: "M", 3: "k", 0: "", -3: "m", -6: "u", -9: "n",
}  # fmt: skip
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_POWERS: Final = {suffix: power for power, suffix in _DECIMAL.items()}
_NODE_INFO: Final = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


@lru_cache(maxsize=4096)
def canonical_quantity(text: str) -> str:
    """Return a quantity as resource.Quantity writes it: 1000m is 1, 0.1 is 100m, 1024Mi is 1Gi.
    Raises ValueError for text that is no quantity.
    """
    value, found = amount(text), _QUANTITY.fullmatch(text.strip())
    if found is not None and (found["suffix"] or "").endswith("i"):
        return _decimal(value) if abs(value) < 1024 else _binary(value)
    return _decimal(value, exponential=found is not None and found["exponent"] is not None)


@lru_cache(maxsize=4096)
def amount(text: str) -> Fraction:
    """Return the value of a quantity. Raises ValueError for text that is no quantity."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no quantity")
    number, suffix = Fraction(found["number"]), found["suffix"] or ""
    if suffix.endswith("i"):
        return number * Fraction(1024 ** _BINARY.index(suffix))
    power = _POWERS[suffix] if found["exponent"] is None else int(found["exponent"])
    return number * Fraction(10) ** power


def _rounded_up(value: Fraction) -> Fraction:
    """Round to whole nanos, away from zero."""
    nanos = abs(value) * 10**9
    whole = -(-nanos.numerator // nanos.denominator)
    return Fraction(whole if value >= 0 else -whole, 10**9)


def _decimal(value: Fraction, *, exponential: bool = False) -> str:
    """Write a value with the greatest of the decimal powers that leaves a whole number."""
    if not value:
        return "0"
    value = _rounded_up(value)
    power = next(power for power in _DECIMAL if (value / Fraction(10) ** power).denominator == 1)
    suffix = _DECIMAL[power]
    if exponential:
        suffix = f"e{power}" if power else ""
    return f"{int(value / Fraction(10) ** power)}{suffix}"


def _binary(value: Fraction) -> str:
    if value.denominator != 1:
        return _decimal(value)
    whole, power = int(value), 0
    while whole % 1024 == 0 and power < len(_BINARY) - 1:
        whole, power = whole // 1024, power + 1
    return f"{whole}{_BINARY[power]}"


def _canonical(amounts: object) -> None:
    """Make a map's quantities canonical, in place. Invalid quantities were refused before."""
    if isinstance(amounts, dict):
        for name, amount in amounts.items():
            if isinstance(amount, str | int | float) and not isinstance(amount, bool):
                amounts[name] = canonical_quantity(str(amount))


def _containers(spec: Obj) -> None:
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        for part in ("limits", "requests"):
            _canonical(resources.get(part))


def _timed(obj: Obj, *times: str) -> None:
    """Set missing times of conditions to null."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        for when in times:
            condition.setdefault(when, None)


def _without_empty(obj: Obj, *fields: str) -> None:
    for field in fields:
        if field in obj and not obj[field]:
            del obj[field]


def as_stored(resource: Resource, obj: Obj) -> None:
    """Change an object of a built-in kind, in place, to the form in which its Go type is stored.
    Its fields must have the right types.
    """
    if resource == PODS:
        spec = obj.get("spec") or {}
        _containers(spec)
        if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
            spec["terminationGracePeriodSeconds"] = 1
        _without_empty(spec, "schedulingGates", "tolerations", "nodeSelector")
        _timed(obj, "lastProbeTime", "lastTransitionTime")
    elif resource == NODES:
        status = obj.setdefault("status", {})
        _canonical(status.get("capacity"))
        _canonical(status.get("allocatable"))
        status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {"Port": 0})
        _timed(obj, "lastHeartbeatTime", "lastTransitionTime")
        info = status.setdefault("nodeInfo", {})
        for field in _NODE_INFO:
            info.setdefault(field, "")
    elif resource == STATEFULSETS:
        _containers(((obj.get("spec") or {}).get("template") or {}).get("spec") or {})
        status = obj.setdefault("status", {})
        status.setdefault("replicas", 0)
        status.setdefault("availableReplicas", 0)
        _timed(obj, "lastTransitionTime")
    elif resource == CONFIGMAPS:
        _without_empty(obj, "data", "binaryData")
    elif resource == LEASES:
        obj.setdefault("spec", {})
    elif resource == EVENTS:
        obj.setdefault("deprecatedSource", {})
        obj.setdefault("deprecatedFirstTimestamp", None)
        obj.setdefault("deprecatedLastTimestamp", None)
        _without_empty(
            obj, "note", "reason", "action", "type", "reportingController", "reportingInstance"
        )
