"""A Lease as we read and write it: which one, what its record says, and what our annotations on it
mean.

- ``vreplica.dev/buckets``: into how many buckets the pools are divided (``model.bucket``), on the
  Lease that all replicas share. Absent for one; 0 while only its holder may lead;
- ``vreplica.dev/preferred-holder``: the replica that asks the holder for the Lease, or for which
  the Lease was given up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from extender.kube.api import Obj
from extender.model.names import BUCKETS_ANNOTATION, LEASE_NAME, PREFERRED_HOLDER_ANNOTATION
from extender.model.reading import mapping, text
from extender.model.resource_versions import parse_version

JITTER_FACTOR: Final = 1.2
"""client-go's: renewDeadline must be longer than 1.2 retry periods."""
RELEASED_S: Final = 1
"""leaseDurationSeconds of a released lease, client-go's and ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseConfig:
    """Which Lease, and client-go's three times in seconds. Raises ValueError if these contradict
    each other.
    """

    namespace: str
    name: str = LEASE_NAME
    duration_s: int = 15
    """How long others wait after the last renewal that they saw."""
    renew_deadline_s: float = 10.0
    """A leader that has not renewed for so long gives up: ``duration_s`` less the time that
    ``lead`` needs to stop.
    """
    retry_period_s: float = 2.0
    stop_timeout_s: float = 10.0
    """How long ``lead`` may take to end once cancelled."""

    def __post_init__(self) -> None:
        if self.duration_s <= self.renew_deadline_s:
            raise ValueError("duration_s must be greater than renew_deadline_s")
        if self.renew_deadline_s <= JITTER_FACTOR * self.retry_period_s or self.retry_period_s <= 0:
            raise ValueError(
                "renew_deadline_s must be greater than retry_period_s * 1.2, and that than 0"
            )


def is_new(lease: Obj) -> bool:
    """Whether nobody has ever held it: it is as it was installed."""
    held = ("holderIdentity", "acquireTime", "renewTime", "leaseTransitions")
    return not any(mapping(lease, "spec").get(name) for name in held)


def is_newer(lease: Obj, than: str) -> bool:
    """Whether it has a later version than ``than``; False if either is not a version."""
    version, before = parse_version(text(lease, "metadata", "resourceVersion")), parse_version(than)
    return version is not None and before is not None and version > before


def transitions(lease: Obj) -> int:
    """leaseTransitions, 0 if it is not set."""
    value = mapping(lease, "spec").get("leaseTransitions")
    return value if isinstance(value, int) else 0


def held_spec(current: Obj | None, holder: str, duration_s: int, stamp: str) -> Obj:
    """The spec as ``holder`` writes it at ``stamp``; ``current`` None: the Lease is created."""
    spec: Obj = {"holderIdentity": holder, "leaseDurationSeconds": duration_s, "renewTime": stamp}
    if current is None:
        spec |= {"acquireTime": stamp, "leaseTransitions": 0}
    elif text(current, "spec", "holderIdentity") != holder:
        count = 0 if is_new(current) else transitions(current) + 1
        spec |= {"acquireTime": stamp, "leaseTransitions": count}
    return spec


def released_spec(stamp: str) -> Obj:
    """The spec that releases the Lease at ``stamp``, as in client-go."""
    return {
        "holderIdentity": "",
        "leaseDurationSeconds": RELEASED_S,
        "renewTime": stamp,
        "acquireTime": stamp,
    }


def asked_by(lease: Obj) -> str:
    """The replica that asks for it; "" for none."""
    return text(lease, "metadata", "annotations", PREFERRED_HOLDER_ANNOTATION)


def announced_buckets(lease: Obj) -> int:
    """Into how many buckets its holder divides the pools; 1 if it does not say."""
    announced = text(lease, "metadata", "annotations", BUCKETS_ANNOTATION)
    is_number = announced.isascii() and announced.isdigit() and len(announced) < 4
    return int(announced) if is_number else 1


def annotated(lease: Obj, notes: Mapping[str, str]) -> Obj:
    """The Lease with ``notes`` in place of our annotations; others stay."""
    ours = {BUCKETS_ANNOTATION, PREFERRED_HOLDER_ANNOTATION}
    known = mapping(lease, "metadata", "annotations")
    if not notes and not ours & known.keys():
        return lease
    annotations = {name: value for name, value in known.items() if name not in ours}
    return {
        **lease,
        "metadata": {**mapping(lease, "metadata"), "annotations": {**annotations, **notes}},
    }
