"""The installation's Leases, and which of them are of another number of buckets than is in force
(``model.bucket``).
"""

import re
from collections.abc import Sequence
from typing import Final

from extender.cli.doctor.checks.facts import Facts, age_s
from extender.kube.lease import announced_buckets, is_new
from extender.model.reading import Json, mapping, text

LEASE_S: Final = 15
_OF_BUCKETS: Final = re.compile(r".*\.\d{2}-of-(\d{2})", re.DOTALL)


def leases_of(facts: Facts) -> list[Json]:
    """All Leases of the installation."""
    return [
        lease
        for lease in facts.of("leases").items
        if text(lease, "metadata", "namespace") == facts.namespace
        and facts.names.has_lease(text(lease, "metadata", "name"))
    ]


def of_other_buckets(facts: Facts, leases: Sequence[Json]) -> list[Json]:
    """Those that nobody holds, and whose number of buckets is not the one by which the first
    bucket's holder leads: no pool waits for them. None while no number is in force.
    """
    first = facts.of("leases").named(facts.names.service, facts.namespace)
    buckets = announced_buckets({**first}) if first is not None and was_held(first) else 0
    return [
        lease
        for lease in leases
        if buckets
        and (found := _OF_BUCKETS.fullmatch(text(lease, "metadata", "name"))) is not None
        and int(found[1]) != buckets
        and not _is_held(lease, facts.now_s)
    ]


def was_held(lease: Json) -> bool:
    """Whether somebody has ever held it. Otherwise it may be there for a number that is to come."""
    return not is_new({**lease})


def duration_s(lease: Json) -> int:
    """How long it lasts after it was renewed."""
    value = mapping(lease, "spec").get("leaseDurationSeconds")
    return value if type(value) is int else LEASE_S


def _is_held(lease: Json, now_s: float) -> bool:
    ago_s = age_s(text(lease, "spec", "renewTime"), now_s)
    is_fresh = ago_s is not None and ago_s <= 2 * duration_s(lease)
    return bool(text(lease, "spec", "holderIdentity")) and is_fresh
