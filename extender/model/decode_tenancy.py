"""Decodes ``spec.tenancy`` and ``spec.preemption`` of AdapterPools, and VReplicaQuotas."""

from types import MappingProxyType

from extender.model.errors import InvalidObject
from extender.model.reading import Json, condition_in, count, key_of, mapping, text, value_at
from extender.model.tenancy import PATIENCE_S, Preemption, QuotaStatus, Tenancy, VReplicaQuota


def tenancy_from(obj: Json) -> Tenancy | None:
    """Read spec.tenancy of an AdapterPool; None if it is absent. Raises InvalidObject."""
    subject, where = f"AdapterPool {key_of(obj)}", "spec.tenancy"
    if not isinstance(value_at(obj, ("spec", "tenancy")), dict):
        return None
    raw = mapping(obj, "spec", "tenancy")
    guarantee = count(raw.get("defaultGuarantee"), subject, f"{where}.defaultGuarantee", default=0)
    limit = _optional(raw, "defaultLimit", subject, where)
    _check(guarantee, limit, subject, f"{where}.defaultGuarantee", "defaultLimit")
    return Tenancy(
        default_guarantee=guarantee,
        default_limit=limit,
        weights=MappingProxyType(
            {
                name: count(weight, subject, f"{where}.weights[{name!r:.80}]", minimum=1)
                for name, weight in mapping(raw, "weights").items()
            }
        ),
        tenant_label=text(raw, "tenantLabel"),
    )


def preemption_from(obj: Json) -> Preemption | None:
    """Read spec.preemption of an AdapterPool; None if it is absent. Raises InvalidObject."""
    if not isinstance(value_at(obj, ("spec", "preemption")), dict):
        return None
    subject, where = f"AdapterPool {key_of(obj)}", "spec.preemption"
    raw = mapping(obj, "spec", "preemption")
    patience = raw.get("patienceSeconds")
    slots = raw.get("slotsPerPeriod")
    return Preemption(
        patience_s=count(patience, subject, f"{where}.patienceSeconds", default=PATIENCE_S),
        slots_per_period=None
        if slots is None
        else count(slots, subject, f"{where}.slotsPerPeriod", minimum=1),
    )


def quota_from(obj: Json) -> VReplicaQuota:
    """Read a VReplicaQuota. Raises InvalidObject."""
    metadata, subject = mapping(obj, "metadata"), f"VReplicaQuota {key_of(obj)}"
    namespace, name = text(metadata, "namespace"), text(metadata, "name")
    pool = text(obj, "spec", "poolRef", "name")
    for field_, value in (("metadata.name", name), ("spec.poolRef.name", pool)):
        if not value:
            raise InvalidObject(subject, field_, "is required")
    spec = mapping(obj, "spec")
    guarantee = _optional(spec, "guarantee", subject, "spec")
    limit = _optional(spec, "limit", subject, "spec")
    _check(guarantee or 0, limit, subject, "spec.guarantee", "limit")
    return VReplicaQuota(
        namespace=namespace,
        name=name,
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        generation=count(metadata.get("generation"), subject, "metadata.generation", default=0),
        created_at=text(metadata, "creationTimestamp"),
        pool=f"{text(obj, 'spec', 'poolRef', 'namespace') or namespace}/{pool}",
        guarantee=guarantee,
        limit=limit,
        status=_status(obj),
        active_since=text(condition_in(obj, "Active"), "lastTransitionTime"),
    )


def _status(obj: Json) -> QuotaStatus | None:
    status = mapping(obj, "status")
    if not status:
        return None

    def number(name: str) -> int:
        value = status.get(name)
        return value if type(value) is int else 0

    return QuotaStatus(
        observed_generation=number("observedGeneration"),
        tenant=text(status, "tenant"),
        asked=number("askedSlots"),
        used=number("usedSlots"),
        waiting=number("waitingSlots"),
        reason=text(condition_in(obj, "Active"), "reason"),
    )


def _optional(raw: Json, name: str, subject: str, where: str) -> int | None:
    value = raw.get(name)
    return None if value is None else count(value, subject, f"{where}.{name}")


def _check(guarantee: int, limit: int | None, subject: str, field_: str, of_limit: str) -> None:
    if limit is not None and guarantee > limit:
        raise InvalidObject(
            subject,
            field_,
            f"must not be more than {of_limit}, which is {limit}; it is {guarantee}",
        )
