"""Reads the facts: lists of limited length, the webhook's certificate, and one replica, if it is
named.

If only one kind cannot be read, that is the kind's problem. An error that concerns all kinds (no
API server, no credentials) is raised, because there is nothing to examine. Of the webhook's Secret,
only the certificate is kept.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from extender.cli.doctor.checks.deployed import (
    certificate_secret_of,
    scheduler_name_of,
    service_account_of,
)
from extender.cli.doctor.checks.descheduling import evicts
from extender.cli.doctor.checks.facts import (
    NOT_SERVED,
    Certificate,
    Facts,
    Listed,
    MayEvict,
    Replica,
)
from extender.cli.doctor.checks.ledgers import differ
from extender.cli.doctor.checks.names import DEFAULT_NAMES, InstallationNames
from extender.cli.doctor.checks.registrations import our_webhooks
from extender.cli.terminal.cluster_access import OpenCluster, objects
from extender.cli.terminal.replica import ReplicaError, open_replica
from extender.cli.terminal.replica_access import ReplicaAccess
from extender.kube.api import (
    ADAPTERPOOLS,
    CRDS,
    EVERYWHERE,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    VPODS,
    Api,
    ApiError,
    Forbidden,
    ListOptions,
    NotFound,
    Obj,
    OutcomeUnknown,
    Resource,
)
from extender.model.names import POOL_LABEL
from extender.model.reading import Json, mappings, text, value_at
from extender.shipped import manifests

OBJECTS_MAX: Final = 20_000
"""Limit for one kind."""
SETTLE_S: Final = 2.0
"""Pause before ledgers and statuses that differ are read again. A write takes milliseconds."""
URLS_MAX: Final = 8
"""Limit of webhooks that are registered by URL."""
ASK_TIMEOUT_S: Final = 5.0
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
SERVICES: Final = Resource("", "v1", "services", "Service")
ENDPOINTSLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
POLICIES: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
POLICY_BINDINGS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
REVIEWS_MAX: Final = 20
"""Limit of namespaces for which the service's rights are asked."""
_EVERYWHERE: Final = (
    CRDS,
    ADAPTERPOOLS,
    VPODS,
    STATEFULSETS,
    NAMESPACES,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    POLICIES,
    POLICY_BINDINGS,
)
_OURS: Final = (LEASES, DEPLOYMENTS, SERVICES, ENDPOINTSLICES)
"""Listed in the namespace of the installation only."""


async def fetch(
    cluster: OpenCluster,
    *,
    namespace: str,
    now_s: float,
    names: InstallationNames = DEFAULT_NAMES,
    replica: ReplicaAccess | None = None,
) -> Facts:
    """Read all facts. ``namespace``, ``names``: of the installation. Raises OutcomeUnknown,
    ApiError if nothing can be read.
    """
    api = cluster.api
    version = await _version(cluster)
    listed = await _listed(api, namespace)
    service = listed["deployments"].named(names.service, namespace)
    webhook = listed["deployments"].named(names.webhook, namespace)
    secret = certificate_secret_of(webhook, namespace, names.certificate_secret)
    listed["secrets"] = await _certificate_secret(api, *secret)
    facts = Facts(
        now_s=now_s,
        server=cluster.server,
        namespace=namespace,
        names=names,
        version=version,
        certificate_secret=secret,
        scheduler_name=scheduler_name_of(webhook, names.service),
        service_account=service_account_of(service, namespace),
        listed=listed,
        again=await _again(api, listed, now_s),
        crds_shipped=_shipped_crds(),
        policies_shipped=_shipped_policies(),
        replica=await ask_replica(replica) if replica is not None else None,
    )
    urls = {url for _, _, raw in our_webhooks(facts) if (url := text(raw, "clientConfig", "url"))}
    asked = sorted(urls)[:URLS_MAX]
    shown = await asyncio.gather(*(certificate_at(url) for url in asked))
    return replace(
        facts,
        certificates=dict(zip(asked, shown, strict=True)),
        may_evict=await _may_evict(cluster.review_access, facts),
    )


ReviewAccess = Callable[[Obj], Awaitable[Obj]]


async def _may_evict(review_access: ReviewAccess, facts: Facts) -> dict[str, MayEvict]:
    """``Facts.may_evict``."""
    pools = facts.of("adapterpools").items
    where = sorted({text(pool, "metadata", "namespace") for pool in pools if evicts(pool)})
    if not facts.service_account:
        return dict.fromkeys(where, MayEvict(problem=_no_account(facts)))
    asked = where[:REVIEWS_MAX]
    answers = await asyncio.gather(
        *(_may_evict_in(review_access, one, facts.service_account) for one in asked)
    )
    beyond = MayEvict(problem=f"doctor asks about {REVIEWS_MAX} namespaces only")
    return {**dict.fromkeys(where, beyond), **dict(zip(asked, answers, strict=True))}


def _no_account(facts: Facts) -> str:
    """Why the service's account is not known."""
    if problem := facts.of("deployments").problem:
        return f"Deployments could not be read: {problem}"
    return f"no Deployment {facts.namespace}/{facts.names.service} says which account it has"


async def _may_evict_in(review_access: ReviewAccess, where: str, account: str) -> MayEvict:
    namespace, _, name = account.partition("/")
    attributes = {"namespace": where, "verb": "create", "resource": "pods"}
    spec = {
        "user": f"system:serviceaccount:{namespace}:{name}",
        "groups": [
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        ],
        "resourceAttributes": {**attributes, "subresource": "eviction"},
    }
    try:
        answer = await review_access({"spec": spec})
    except NotFound:
        # A server that does not know the kind, as the embedded one, has no RBAC.
        return MayEvict(allowed=True)
    except ApiError as error:
        return MayEvict(problem=str(error)[:200])
    return MayEvict(allowed=value_at(answer, ("status", "allowed")) is True)


async def _version(cluster: OpenCluster) -> Json | None:
    try:
        return await cluster.server_version()
    except (Forbidden, NotFound):
        return None


async def _listed(api: Api, namespace: str) -> dict[str, Listed]:
    ours = ListOptions(namespace=namespace)
    wanted: dict[str, Awaitable[Listed]] = {
        one.plural: _list(api, one, EVERYWHERE) for one in _EVERYWHERE
    }
    wanted |= {one.plural: _list(api, one, ours) for one in _OURS}
    wanted["pods"] = _list(api, PODS, ListOptions(label_selector=POOL_LABEL))
    wanted["nodes"] = _list(api, NODES, EVERYWHERE, keep=node_in_short)
    return dict(zip(wanted, await asyncio.gather(*wanted.values()), strict=True))


async def _list(
    api: Api, resource: Resource, options: ListOptions, *, keep: Callable[[Obj], Obj] | None = None
) -> Listed:
    """List up to ``OBJECTS_MAX``. ``keep`` reduces each object, for large kinds of which the
    checks need little.
    """
    items: list[Obj] = []
    try:
        async for obj in objects(api, resource, options):
            if len(items) == OBJECTS_MAX:
                return Listed(tuple(items), truncated=True)
            items.append(keep(obj) if keep is not None else obj)
    except ApiError as error:
        return Listed(problem=problem_of(error))
    return Listed(tuple(items))


def node_in_short(node: Obj) -> Obj:
    """Reduce a node to what says whether it exists and is Ready: its images alone are kilobytes."""
    return {
        "metadata": {"name": text(node, "metadata", "name")},
        "spec": {"taints": mappings(node, "spec", "taints")},
        "status": {
            "conditions": [
                one for one in mappings(node, "status", "conditions") if one.get("type") == "Ready"
            ]
        },
    }


def problem_of(error: ApiError) -> str:
    """Why a kind could not be read, in a few words. Raises the error if nothing can be read at
    all.
    """
    if isinstance(error, Forbidden):
        return f"forbidden: {' '.join(error.message.split())[:200]}"
    if isinstance(error, NotFound):
        return NOT_SERVED
    if isinstance(error, OutcomeUnknown) or error.status == 401:
        raise error
    return str(error)[:200]


async def _certificate_secret(api: Api, namespace: str, name: str) -> Listed:
    """The Secret with its certificate only, without keys."""
    try:
        secret = await api.get(SECRETS, namespace, name)
    except NotFound:
        return Listed()
    except ApiError as error:
        return Listed(problem=problem_of(error))
    metadata = {"name": name, "namespace": namespace}
    return Listed(({"metadata": metadata, "data": {"tls.crt": text(secret, "data", "tls.crt")}},))


async def _again(api: Api, listed: Mapping[str, Listed], now_s: float) -> Mapping[str, Listed]:
    """Read pods and vpods again if ledgers and statuses differ."""
    if not differ(listed["pods"], listed["vpods"], now_s):
        return {}
    await asyncio.sleep(SETTLE_S)
    pods, vpods = await asyncio.gather(
        _list(api, PODS, ListOptions(label_selector=POOL_LABEL)), _list(api, VPODS, EVERYWHERE)
    )
    return {"pods": pods, "vpods": vpods}


def _shipped_crds() -> dict[str, Json]:
    names = ("vpods", "adapterpools", "vreplicaquotas")
    found = [crd for name in names for crd in manifests(f"crds/{name}.yaml")]
    return {text(crd, "metadata", "name"): crd for crd in found}


def _shipped_policies() -> tuple[str, ...]:
    documents = manifests("base/admission-policies.yaml")
    return tuple(
        text(one, "metadata", "name")
        for one in documents
        if text(one, "kind") == POLICIES.kind and mappings(one, "spec", "validations")
    )


async def certificate_at(url: str) -> Certificate:
    """Get the certificate of the server at an https:// URL, without verifying it."""
    try:
        parts = urlsplit(url)
        address = (parts.hostname or "", parts.port or 443)
        pem = await asyncio.to_thread(ssl.get_server_certificate, address, timeout=ASK_TIMEOUT_S)
    except (OSError, ValueError) as error:
        return Certificate(
            problem=f"{url[:200]} could not be asked: {str(error)[:200] or 'no answer'}"
        )
    return Certificate(pem.encode())


async def ask_replica(access: ReplicaAccess) -> Replica:
    """Ask a replica for /readyz and /state.json. Raises InvalidObject for files that are not
    certificates.
    """
    try:
        async with open_replica(access) as replica:
            ready = await replica.readiness(timeout_s=ASK_TIMEOUT_S)
            # A pool that does not exist: the facts are about the replica itself.
            state = await replica.get("/state.json", {"pool": "-/-"}, timeout_s=ASK_TIMEOUT_S)
    except ReplicaError as error:
        return Replica(access.url, problem=str(error))
    return Replica(access.url, ready, state)
