"""The rights in the manifests: enough for everything that is done, and nothing is done with others'
rights.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from extender.cli.doctor.checks.names import DEFAULT_NAMES
from extender.kube.api import (
    LEASES,
    MUTATING_WEBHOOKS,
    PODS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    VREPLICAQUOTAS,
    NotFound,
    Obj,
    PatchType,
    Resource,
)
from extender.model.names import LEASE_NAME
from tests.e2e.objects import MANIFESTS, load, without
from tests.e2e.raw import RawHttp
from tests.e2e.real import RealBackend
from tests.e2e.scenario import (
    POOL,
    SYSTEM_NAMESPACE,
    TOKENS_ACCOUNT,
    WEBHOOK_ACCOUNT,
    Setup,
    System,
)
from tests.e2e.waiting import NotYet, eventually

CERTIFICATE = DEFAULT_NAMES.certificate_secret
Right = tuple[str, str, str]
"""API group, resource (with subresource), verb."""


def granted(account: str) -> set[Right]:
    """What our own roles grant a ServiceAccount, wherever."""
    objects = load(MANIFESTS / "base")
    roles = {
        (obj["kind"], obj["metadata"]["name"]): obj
        for obj in objects
        if obj["kind"].endswith("Role")
    }
    rights: set[Right] = set()
    for obj in objects:
        if any(subject["name"] == account for subject in obj.get("subjects", [])):
            role = roles.get((obj["roleRef"]["kind"], obj["roleRef"]["name"]))
            rights |= set(_rights(role.get("rules", ()))) if role else set()
    return rights


def _rights(rules: Iterable[Obj]) -> Iterable[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield group, resource, verb


def used(events: Iterable[dict[str, Any]], account: str) -> set[Right]:
    """What the audit log says that it asked for; requests that are not for a resource (discovery)
    are everybody's.
    """
    rights = set()
    for event in events:
        if event["user"]["username"] == f"system:serviceaccount:{SYSTEM_NAMESPACE}:{account}":
            ref = event.get("objectRef")
            if ref is not None:
                sub = f"/{ref['subresource']}" if "subresource" in ref else ""
                rights.add((ref.get("apiGroup", ""), ref["resource"] + sub, event["verb"]))
    return rights


async def test_the_rights_that_are_used_are_the_rights_that_are_granted(
    real: RealBackend, tmp_path: Path
):
    """Neither more, which RBAC would refuse, nor less, which nobody would notice."""
    async with System(real, tmp_path, Setup(scheduler_account=True)) as system:
        node, *_ = await real.add_nodes(3, slots=20)
        namespace = await system.pool()
        tenant = await system.vpods(5, 8)
        (first, _) = await system.settled(pods=2)
        await real.api.delete(PODS, namespace, f"{POOL}-0")
        await system.came_back(first)
        await system.want(tenant, "source-0", 2)
        await system.want(tenant, "source-1", 14)
        await system.settled(pods=2)
        # More than there is room for: a refused pod that waits, until a node comes.
        more = await system.vpods(4, 8)
        await system.event(namespace, f"{POOL}-3", "FailedScheduling", "NodeSlotsExceeded")
        await _told_twice(system, more)
        await real.add_nodes(1, slots=20)
        await system.settled(pods=4)
        await _bind_what_is_not_there(system, node)
        await _quota_told(system, tenant)
        await _certificate_written_anew(system)
        await _lease_made_anew(system)
        assert system.service.process is not None
        await system.service.process.terminate()
        events = system.audit()
    for account in (
        "vreplica-scheduler",
        "vreplica-tokens",
        "vreplica-webhook",
        "vreplica-webhook-upkeep",
    ):
        assert used(events, account) == granted(account), account
    # The kube-scheduler binds adapter pods through us: its own right to bind is for others. What it
    # is granted beyond its lease are Kubernetes' own roles, which are for all that a scheduler may
    # ever do.
    scheduler = used(events, "vreplica-kube-scheduler")
    assert ("coordination.k8s.io", "leases", "update") in scheduler
    assert ("", "pods/binding", "create") not in scheduler


async def _quota_told(system: System, tenant: str) -> None:
    """The status of a VReplicaQuota is written, even in a pool without tenancy."""
    pool = {"namespace": system.namespace, "name": POOL}
    quota = {"metadata": {"name": "quota"}, "spec": {"poolRef": pool, "limit": 100}}
    await system.backend.api.create(VREPLICAQUOTAS, tenant, quota)

    async def told() -> bool:
        stored = await system.backend.api.get(VREPLICAQUOTAS, tenant, "quota")
        if not stored.get("status"):
            raise NotYet("no status yet")
        return True

    await eventually(told, 10.0, "the quota has a status")


async def _told_twice(system: System, tenant: str) -> None:
    """The second of two equal events patches the first: that is what events need patch for."""

    async def twice() -> bool:
        for name in [
            vpod.name for vpod in (await system.all_vpods()).values() if vpod.namespace == tenant
        ]:
            for event in await system.events(tenant, name):
                if event.get("reason") == "FailedScheduling" and event.get("series"):
                    return True
            # Still more than there is room for, and another spec: it is decided and told again.
            await system.want(tenant, name, 9)
        raise NotYet("no series yet")

    await eventually(twice, 20.0, "an event has been patched", interval_s=0.5)
    for vpod in (await system.all_vpods()).values():
        if vpod.namespace == tenant:
            await system.want(tenant, vpod.name, 8)


async def _bind_what_is_not_there(system: System, node: str) -> None:
    """A bind of a pod that the watch has not told of reads it: that is what pods need get for."""
    body = {"PodName": "nobody", "PodNamespace": system.namespace, "PodUID": "u", "Node": node}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{system.service_url}/v1/bind", json=body) as reply,
    ):
        assert "not found" in (await reply.json(content_type=None))["Error"]


async def _lease_made_anew(system: System) -> None:
    """The manifests bring the Lease; one that a person has deleted is made anew by who leads: that
    is what it needs create for.
    """
    api = system.backend.api
    await api.delete(LEASES, SYSTEM_NAMESPACE, LEASE_NAME)

    async def there() -> bool:
        try:
            return bool(
                (await api.get(LEASES, SYSTEM_NAMESPACE, LEASE_NAME))["spec"]["holderIdentity"]
            )
        except NotFound as error:
            raise NotYet("no Lease yet") from error

    await eventually(there, 20.0, "the leader has made the Lease anew", interval_s=0.5)


async def _certificate_written_anew(system: System) -> None:
    """Who finds a Secret in it that cannot be used updates it; the manifests bring an empty one."""
    assert system.webhook is not None
    await system.webhook.kill()
    patch = {"data": {"tls.crt": "", "tls.key": ""}}
    await system.backend.api.patch(
        SECRETS,
        SYSTEM_NAMESPACE,
        CERTIFICATE,
        patch,
        patch_type=PatchType.MERGE,
    )
    # What the first one has registered must not be taken for what the second one will.
    unset = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]
    await system.backend.api.patch(
        MUTATING_WEBHOOKS, "", "vreplica-scheduler", unset, patch_type=PatchType.JSON
    )
    await system.start_webhook()


async def test_a_right_that_is_taken_away_is_told_by_name_and_not_as_a_lack_of_slots(
    real: RealBackend, tmp_path: Path
):
    async with System(real, tmp_path) as system:
        await real.add_nodes(2)
        namespace = await system.pool(minPods=1)
        tenant = await system.vpods(1, 2)
        (adapter,) = await system.settled(pods=1)
        await real.apply([MANIFESTS / "base" / "rbac-service.yaml"], _without_writing_ledgers)
        await system.want(tenant, "source-0", 5)
        await eventually(
            lambda: _is_refused(system, f"{tenant}/source-0"), 30.0, "the condition says so"
        )
        for where, name in ((namespace, adapter.name), (tenant, "source-0")):
            told = await system.event(where, name, "WriteRefused", "cannot patch resource")
            assert told["type"] == "Warning"
        metrics = (await system.service.get("/metrics"))[1]
        assert 'vreplica_scheduler_refusals_total{reason="WriteRefused"}' in metrics
        await real.apply([MANIFESTS / "base" / "rbac-service.yaml"])
        await system.settled(pods=1)
        system.forget_audit()


def _without_writing_ledgers(obj: Obj) -> Obj | None:
    for rule in obj.get("rules", []):
        if rule["resources"] == ["pods"]:
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != "patch"]
    return obj


async def _is_refused(system: System, key: str) -> bool:
    vpod = (await system.all_vpods())[key]
    (scheduled,) = [entry for entry in vpod.conditions if entry.type == "Scheduled"]
    if (scheduled.status, scheduled.reason) != ("False", "WriteRefused"):
        raise NotYet(f"{scheduled}")
    assert "may not be written" in scheduled.message
    return True


@pytest.mark.parametrize("account", ["vreplica-webhook", "vreplica-webhook-upkeep"])
async def test_nobody_of_ours_makes_a_secret_that_is_filled_with_the_token_of_another(
    real: RealBackend, account: str
):
    await real.apply([MANIFESTS / "base"], without("Deployment"))
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets"
    token = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": CERTIFICATE,
            "annotations": {"kubernetes.io/service-account.name": "vreplica-scheduler"},
        },
        "type": "kubernetes.io/service-account-token",
    }
    async with RawHttp(await real.token_for(f"{SYSTEM_NAMESPACE}/{account}")) as they:
        # Also where a person has deleted the shipped one, and its name is free.
        await real.raw.delete(f"{path}/{CERTIFICATE}")
        created = await they.post(path, token)
        assert (created.status, "cannot create resource" in created.message) == (403, True), created
        await real.apply([MANIFESTS / "base" / "webhook-upkeep.yaml"], without("Deployment"))
        stored = (await real.raw.get(f"{path}/{CERTIFICATE}")).body
        assert (stored["type"], "data" in stored) == ("Opaque", False)
        changed = await they.request("PUT", f"{path}/{CERTIFICATE}", token)
        assert changed.status in {403, 422}, changed
        assert (await real.raw.get(f"{path}/{CERTIFICATE}")).body["type"] == "Opaque"


@pytest.mark.parametrize("resource", [MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS])
async def test_the_webhooks_own_account_registers_nothing(real: RealBackend, resource: Resource):
    await real.apply([MANIFESTS / "base"], without("Deployment"))
    path = f"/apis/{resource.api_version}/{resource.plural}"
    everything = [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    ]
    anywhere = {"url": "https://evil.example/"}
    ops = [
        {"op": "replace", "path": "/webhooks/0/rules", "value": everything},
        {"op": "replace", "path": "/webhooks/0/clientConfig", "value": anywhere},
    ]
    async with RawHttp(await real.token_for(WEBHOOK_ACCOUNT)) as they:
        for name in ("vreplica-scheduler", "another"):
            answer = await they.request(
                "PATCH",
                f"{path}/{name}",
                ops,
                content_type="application/json-patch+json",
                query={"dryRun": "All"},
            )
            assert (answer.status, "cannot patch resource" in answer.message) == (403, True), answer
        whole = (await they.get(f"{path}/vreplica-scheduler")).body
        for method, url in (
            ("PUT", f"{path}/vreplica-scheduler"),
            ("POST", path),
            ("DELETE", f"{path}/vreplica-scheduler"),
        ):
            answer = await they.request(method, url, whole, query={"dryRun": "All"})
            assert answer.status == 403, f"{method}: {answer}"


async def test_who_makes_tokens_makes_those_of_its_pod_and_reads_nothing(real: RealBackend):
    await real.apply([MANIFESTS / "base"], without("Deployment"))
    accounts = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts"
    wanted = {"spec": {"expirationSeconds": 3600}}
    async with RawHttp(await real.token_for(TOKENS_ACCOUNT)) as they:
        for name, made in {
            "vreplica-scheduler": 201,
            "vreplica-kube-scheduler": 201,
            "vreplica-tokens": 403,
            "vreplica-webhook": 403,
            "vreplica-webhook-upkeep": 403,
            "default": 403,
        }.items():
            answer = await they.post(f"{accounts}/{name}/token", wanted)
            assert answer.status == made, f"{name}: {answer}"
        for path in (accounts, f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets", "/api/v1/pods"):
            assert (await they.get(path)).status == 403


@pytest.mark.parametrize(
    "account",
    ["vreplica-scheduler", "vreplica-tokens", "vreplica-webhook", "vreplica-webhook-upkeep"],
)
def test_no_role_of_ours_grants_a_wildcard_or_a_way_to_more_rights(account: str):
    rights = granted(account)
    assert rights
    assert not [right for right in rights if "*" in right]
    assert not [right for right in rights if right[2] in {"escalate", "bind", "impersonate"}]
    reading = {"get", "list", "watch"}
    assert not [
        right
        for right in rights
        if right[1] == "secrets" and right[2] in {*reading, "create"} - {"get"}
    ]
    # What may write a registration may have any request shown to it and changed.
    registers = [
        right
        for right in rights
        if right[1].endswith("webhookconfigurations") and right[2] not in reading
    ]
    assert bool(registers) is (account == "vreplica-webhook-upkeep")
