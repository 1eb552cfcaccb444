"""What ``/validate`` refuses about tenants: in VReplicaQuotas, and in VPods of pools with a
tenancy.

A quota is for the tenant of its namespace. So a rule looks at the other quotas of the pool, and at
the labels of their namespaces. As for all rules here, the caches lag a little: two quotas for one
tenant that are created at the same moment both pass. Then the older one counts, and the status of
the other says so.
"""

from functools import partial

from extender.model.counted import counted, counted_are
from extender.model.objects import AdapterPool, VPod
from extender.model.tenancy import Tenancy, VReplicaQuota, counting_quotas
from webhook.caches import WebhookCaches


def quota_problems(
    new: VReplicaQuota, old: VReplicaQuota | None, view: WebhookCaches
) -> tuple[list[str], list[str]]:
    """What is wrong with a quota, and what its writer should know (problems, warnings)."""
    pool = view.pool(new.pool)
    if pool is None:
        return [], [
            f"AdapterPool {new.pool} (spec.poolRef) does not exist: the quota limits nobody until "
            f"it does"
        ]
    tenancy = pool.tenancy
    if tenancy is None:
        return [], [
            f"AdapterPool {new.pool} has no spec.tenancy: the quota limits nobody until it has"
        ]
    namespace = view.namespace(new.namespace)
    if namespace is not None and not pool.namespace_selector.matches(namespace.labels):
        # As for a VPod, this comes first: a namespace that is not selected learns nothing else.
        return [], [
            f"AdapterPool {new.pool} does not select namespace {new.namespace} "
            f"(spec.namespaceSelector): the quota limits nobody until it does"
        ]
    problems = []
    tenant = _tenant(tenancy, view, new.namespace)
    others = {
        quota.key: quota
        for quota in view.quotas.objects.values()
        if quota.pool == new.pool and quota.key != new.key
    }
    if old is None or old.pool != new.pool:
        problems += [
            f"VReplicaQuota {key} is for the same tenant ({tenant}) and pool already; change that "
            f"one"
            for key, quota in sorted(others.items())
            if _tenant(tenancy, view, quota.namespace) == tenant
        ][:1]
    was = (old.guarantee or 0) if old is not None and old.pool == new.pool else 0
    if pool.max_pods is not None and (new.guarantee or 0) > was:
        most = pool.max_pods * pool.slots_per_pod
        promised = sum(quota.guarantee or 0 for quota in others.values())
        if promised + (new.guarantee or 0) > most:
            problems.append(
                f"spec.guarantee {new.guarantee} cannot be kept: AdapterPool {pool.key} has at "
                f"most {counted(most, 'slot')}, of which {promised} are guaranteed to other "
                f"tenants"
            )
    limit = tenancy.default_limit
    if new.limit is None and limit is not None and (new.guarantee or 0) > limit:
        return problems, [
            f"spec.guarantee {new.guarantee} is not reached: without spec.limit, the limit is "
            f"tenancy.defaultLimit of AdapterPool {pool.key}, which is {limit}"
        ]
    return problems, []


def vpod_problem(new: VPod, pool: AdapterPool, view: WebhookCaches) -> str:
    """Why a tenant's limit never allows even one vreplica of a VPod, or what it needs together; ""
    if it does.
    """
    if pool.tenancy is None or not new.vreplicas:
        return ""
    quotas = counting_quotas(
        (quota for quota in view.quotas.objects.values() if quota.pool == pool.key),
        partial(_tenant, pool.tenancy, view),
    )
    limit = pool.tenancy.limit_of(quotas.get(_tenant(pool.tenancy, view, new.namespace)))
    if limit is None or new.weight * max(1, new.least) <= limit:
        return ""
    if new.weight <= limit:
        return (
            f"{counted(new.least, 'vreplica')} (spec.minAvailable) take "
            f"{counted(new.least * new.weight, 'slot')}, and the limit of its tenant in "
            f"AdapterPool {pool.key} is {limit}"
        )
    return (
        f"one vreplica takes {counted(new.weight, 'slot')} (spec.slotsPerVReplica), and the limit "
        f"of its tenant in AdapterPool {pool.key} is {limit}"
    )


def pool_warning(pool: AdapterPool, view: WebhookCaches) -> str:
    """What a pool with a tenancy guarantees and cannot have; "" if it can."""
    if pool.tenancy is None or pool.max_pods is None:
        return ""
    most = pool.max_pods * pool.slots_per_pod
    promised = sum(
        quota.guarantee or 0 for quota in view.quotas.objects.values() if quota.pool == pool.key
    )
    if promised <= most:
        return ""
    return (
        f"{counted_are(promised, 'slot')} guaranteed by VReplicaQuotas, and the pool has at most "
        f"{most}: guarantees shrink in proportion"
    )


def _tenant(tenancy: Tenancy, view: WebhookCaches, namespace: str) -> str:
    known = view.namespace(namespace)
    return tenancy.tenant_of(namespace, known.labels if known is not None else {})
