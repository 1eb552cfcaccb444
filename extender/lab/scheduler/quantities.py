"""Resource quantities, and the requests of pods as kube-scheduler counts them.

A Kubernetes quantity has at most nano precision, so here it is one int of nano units. Sums are
exact. kube-scheduler's two roundings (``MilliValue`` for cpu, ``Value`` for the rest, both up)
happen once, at the end.

``pod_requests`` follows component-helpers' PodRequests. The requests of containers add up. An init
container counts only if it needs more than they do together. A restartable init container (sidecar)
counts like a container. Pod-level requests replace the sum, and overhead is added.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from extender.config.kube_scheduler import is_native_resource
from extender.lab.apiserver import encoding
from extender.model.reading import Json, mapping, mappings, text

NANO: Final = 10**9

DEFAULT_MILLI_CPU_REQUEST: Final = 100
"""The cpu that scoring assumes for a container without a request (DefaultMilliCPURequest)."""
DEFAULT_MEMORY_REQUEST: Final = 200 * 1024 * 1024
"""The bytes of memory that scoring assumes for a container without a request."""

Nanos = dict[str, int]
"""Resource name -> quantity in nano units: kube-scheduler's ResourceList."""

_NON_MISSING: Final[Mapping[str, int]] = {
    "cpu": DEFAULT_MILLI_CPU_REQUEST * NANO // 1000,
    "memory": DEFAULT_MEMORY_REQUEST * NANO,
}


def nanos(value: object) -> int:
    """Return a quantity (text or JSON number) in nano units, rounded up. Return 0 for an invalid
    one, which the API server would have refused.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0
    try:
        return math.ceil(encoding.amount(str(value)) * NANO)
    except ValueError:
        return 0


def milli_value(amount_nanos: int) -> int:
    """Return thousandths, rounded up."""
    return -(-amount_nanos * 1000 // NANO)


def whole_value(amount_nanos: int) -> int:
    """Return whole units, rounded up."""
    return -(-amount_nanos // NANO)


def is_scalar_resource(name: str) -> bool:
    """Return whether a resource is counted as a plain number: extended, huge pages, prefixed
    native, attachable volumes.
    """
    return (
        (not is_native_resource(name) and not name.startswith("requests."))
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in name
    )


@dataclass(frozen=True, slots=True)
class Resources:
    """kube-scheduler's framework.Resource: cpu in thousandths, memory and ephemeral storage in
    bytes, ``pods`` as a count.
    """

    milli_cpu: int = 0
    memory: int = 0
    ephemeral_storage: int = 0
    pods: int = 0
    scalar: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def empty(self) -> bool:
        """Whether nothing is requested. As in kube-scheduler, a scalar of 0 counts as a request."""
        return not (self.milli_cpu or self.memory or self.ephemeral_storage or self.scalar)


def resources_of(amounts: Mapping[str, int]) -> Resources:
    """Convert a ResourceList in nano units."""
    return Resources(
        milli_cpu=milli_value(amounts.get("cpu", 0)),
        memory=whole_value(amounts.get("memory", 0)),
        ephemeral_storage=whole_value(amounts.get("ephemeral-storage", 0)),
        pods=whole_value(amounts.get("pods", 0)),
        scalar=MappingProxyType(
            {
                name: whole_value(amount)
                for name, amount in amounts.items()
                if is_scalar_resource(name)
            }
        ),
    )


def resource_list(raw: Json) -> Nanos:
    """Parse a ResourceList of the API into nano units."""
    return {name: nanos(value) for name, value in raw.items()}


def _add(total: Nanos, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Nanos, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if name not in total or amount > total[name]:
            total[name] = amount


def _container_requests(container: Json, non_missing: Mapping[str, int]) -> Nanos:
    return {**non_missing, **resource_list(mapping(container, "resources", "requests"))}


def pod_requests(pod: Json, *, non_zero: bool = False, pod_level: bool = True) -> Nanos:
    """Return the requests of a pod in nano units.

    ``non_zero``: a container without a request counts with the defaults that scoring assumes.
    ``pod_level`` False: leave out the requests of the pod itself (spec.resources).
    """
    non_missing = _NON_MISSING if non_zero else {}
    total: Nanos = {}
    for container in mappings(pod, "spec", "containers"):
        _add(total, _container_requests(container, non_missing))
    sidecars: Nanos = {}
    init_peak: Nanos = {}
    for container in mappings(pod, "spec", "initContainers"):
        requests = _container_requests(container, non_missing)
        if text(container, "restartPolicy") == "Always":
            _add(total, requests)
            _add(sidecars, requests)
            requests = dict(sidecars)
        else:
            _add(requests, sidecars)
        _raise_to(init_peak, requests)
    _raise_to(total, init_peak)
    for name, value in mapping(pod, "spec", "resources", "requests").items() if pod_level else ():
        if name in {"cpu", "memory"} or name.startswith("hugepages-"):
            total[name] = nanos(value)
    _add(total, resource_list(mapping(pod, "spec", "overhead")))
    return total
