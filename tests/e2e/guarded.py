"""``Guarded``: a real control plane with the shipped ValidatingAdmissionPolicies in force, and who
asks it for things.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from extender.kube.api import Obj
from extender.model.names import (
    API_VERSION,
    PLACEMENTS_ANNOTATION,
    POOL_LABEL,
    SLOTS_ANNOTATION,
)
from tests.e2e.objects import MANIFESTS, pod, without
from tests.e2e.raw import Answer, RawHttp
from tests.e2e.real import RealBackend
from tests.e2e.scenario import POOL, SERVICE_ACCOUNT, adapter_pool
from tests.e2e.waiting import NotYet, eventually

MERGE: Final = "application/merge-patch+json"
LEDGER: Final = '{"tenant/a":3}'
FORGED: Final = '{"tenant/a":20}'
SOURCES: Final = [{"preset": "knative-consumergroup"}]
BYSTANDER: Final = "bystander"
"""A pod that is none of ours."""
PROBE: Final = "probe"
"""A pool whose status nobody may write once its policy is in force."""
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
NO_WEBHOOK: Final = without(
    "Deployment", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
)


@dataclass(frozen=True, slots=True)
class Guarded:
    """A cluster with the policies in force, one bound adapter pod, and three who ask for things."""

    namespace: str
    node: str
    admin: RawHttp
    service: RawHttp
    tenant: RawHttp
    """Has the role ``admin`` in the namespace, as a team that owns it."""

    @property
    def pods(self) -> str:
        """URL of the namespace's pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def pools(self) -> str:
        """URL of the namespace's AdapterPools."""
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/adapterpools"

    def url(self, name: str = f"{POOL}-0", subresource: str = "") -> str:
        """URL of one pod."""
        return f"{self.pods}/{name}" + (f"/{subresource}" if subresource else "")


@asynccontextmanager
async def a_guarded_cluster(real: RealBackend) -> AsyncIterator[Guarded]:
    """All that the manifests bring but the webhook, with a bound adapter pod and a pod that is none
    of ours.
    """
    await real.apply([MANIFESTS / "base"], NO_WEBHOOK)
    namespace = await real.namespace("adapters")
    (node,) = await real.add_nodes(1)
    await real.apply([_role_binding(namespace), adapter_pool(namespace, PROBE)])
    async with AsyncExitStack() as stack:
        service, tenant = [
            await stack.enter_async_context(RawHttp(await real.token_for(account)))
            for account in (SERVICE_ACCOUNT, f"{namespace}/{await _account(real, namespace)}")
        ]
        there = Guarded(namespace, node, real.raw, service, tenant)
        await real.apply([pod(namespace, BYSTANDER)])
        await eventually(lambda: _in_force(there), 15.0, "the policies are in force")
        created = await real.raw.post(there.pods, adapter(there))
        assert created.status == 201, created
        bound = await service.post(there.url(subresource="binding"), binding(there, ledger=LEDGER))
        assert bound.status == 201, bound
        yield there


async def _in_force(there: Guarded) -> bool:
    """The API server takes up new policies once a second, and what it takes may be some of them:
    each is asked for.
    """
    forged = adapter(there, "probe", {PLACEMENTS_ANNOTATION: LEDGER}, nodeName=there.node)
    status = f"{there.pools}/{PROBE}/status"
    strange = binding(there, "probe")
    strange["metadata"]["annotations"] = {"example.com/x": "y"}
    for who, method, url, body, content_type in (
        (there.service, "PATCH", there.url(BYSTANDER), annotated(probe="x"), MERGE),
        (there.service, "POST", there.url("probe", "binding"), strange, "application/json"),
        (there.admin, "POST", there.pods, forged, "application/json"),
        (
            there.admin,
            "POST",
            there.url("probe", "binding"),
            binding(there, "probe", LEDGER),
            "application/json",
        ),
        (there.admin, "PATCH", status, {"status": {"observedGeneration": 1}}, MERGE),
        (
            there.tenant,
            "POST",
            there.pools,
            adapter_pool(there.namespace, "claims", sources=SOURCES),
            "application/json",
        ),
    ):
        answer = await who.request(
            method, url, body, content_type=content_type, query={"dryRun": "All"}
        )
        if "ValidatingAdmissionPolicy" not in answer.message:
            raise NotYet(f"{method} {url}: {answer.status} {answer.message}")
    for policy in (await there.admin.get(POLICIES)).body["items"]:
        if policy["metadata"]["generation"] != policy.get("status", {}).get("observedGeneration"):
            raise NotYet(f"{policy['metadata']['name']} is not checked yet")
    return True


async def _account(real: RealBackend, namespace: str) -> str:
    """The namespace's own ServiceAccount, which a controller makes."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"

    async def made() -> str:
        answer = await real.raw.get(path)
        if answer.status != 200:
            raise NotYet(f"{answer.status}")
        return "default"

    return await eventually(made, 15.0, "the namespace has its ServiceAccount")


def _role_binding(namespace: str) -> Obj:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "team", "namespace": namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }


def adapter(
    there: Guarded, name: str = f"{POOL}-0", annotations: dict[str, str] | None = None, **spec: Any
) -> Obj:
    """An adapter pod that no webhook has stamped."""
    obj = pod(there.namespace, name, **spec)
    obj["metadata"] |= {"labels": {POOL_LABEL: POOL}, "annotations": annotations or {}}
    return obj


def binding(there: Guarded, name: str = f"{POOL}-0", ledger: str = "") -> Obj:
    """A Binding, with a ledger or without."""
    annotations = {PLACEMENTS_ANNOTATION: ledger, SLOTS_ANNOTATION: "20"} if ledger else {}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": there.namespace, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": there.node},
    }


async def patch(who: RawHttp, url: str, body: Any, content_type: str = MERGE) -> Answer:
    """A PATCH."""
    return await who.request("PATCH", url, body, content_type=content_type)


def annotated(**annotations: str | None) -> Obj:
    """A merge patch."""
    return {"metadata": {"annotations": annotations}}


def refused(answer: Answer, *words: str) -> None:
    """403, by a policy, in words that name what is wrong."""
    assert answer.status == 403, f"{answer.status} {answer.message}"
    for word in ("ValidatingAdmissionPolicy", *words):
        assert word in answer.message


async def stored(there: Guarded, name: str = f"{POOL}-0") -> Obj:
    """A pod as it stands."""
    answer = await there.admin.get(there.url(name))
    assert answer.status == 200, answer
    body: Obj = answer.body
    return body
