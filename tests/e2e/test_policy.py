"""The shipped ValidatingAdmissionPolicies on the real API server: what nobody but the service
writes, webhook or not.

Here no webhook runs and none is registered: the API server decides alone. That the service, the
controllers and the kubelets are not hindered is what every other scenario shows, for the policies
are part of what all of them install.
"""

import asyncio

import pytest

from extender.kube.api import Obj
from extender.model.names import (
    API_VERSION,
    PLACEMENTS_ANNOTATION,
    POOL_LABEL,
    SLOTS_ANNOTATION,
)
from tests.e2e.guarded import (
    FORGED,
    LEDGER,
    POLICIES,
    SOURCES,
    Guarded,
    adapter,
    annotated,
    binding,
    patch,
    refused,
    stored,
)
from tests.e2e.objects import pod, stateful_set
from tests.e2e.real import RealBackend
from tests.e2e.scenario import POOL, adapter_pool
from tests.e2e.waiting import eventually
from webhook.validate import GUARDED_ANNOTATIONS


async def test_the_expressions_have_the_right_types_for_all_that_they_match(guarded: Guarded):
    policies = (await guarded.admin.get(POLICIES)).body["items"]
    assert sorted(policy["metadata"]["name"] for policy in policies) == [
        "vreplica-ledger",
        "vreplica-ledger-in-bindings",
        "vreplica-service-bindings",
        "vreplica-service-namespaces",
        "vreplica-service-pods",
        "vreplica-sources",
        "vreplica-statuses",
    ]
    for policy in policies:
        assert policy["status"].get("typeChecking", {}) == {}, policy["metadata"]["name"]


async def test_an_administrator_cannot_change_the_ledger_of_a_bound_pod_by_any_subresource(
    guarded: Guarded,
):
    before = (await stored(guarded))["metadata"]["annotations"]
    rows = [
        *((key, FORGED) for key in GUARDED_ANNOTATIONS),
        *((key, None) for key in (PLACEMENTS_ANNOTATION, SLOTS_ANNOTATION)),
    ]
    for key, value in rows:
        change = annotated(**{key: value})
        for subresource in ("", "status"):
            refused(await patch(guarded.admin, guarded.url(subresource=subresource), change), key)
        for subresource in ("resize", "ephemeralcontainers"):
            # The API server takes nothing but its own fields there, today: what counts is what is
            # stored.
            await patch(guarded.admin, guarded.url(subresource=subresource), change)
    assert (await stored(guarded))["metadata"]["annotations"] == before


async def test_the_pods_owner_cannot_either_by_no_form_of_a_write(guarded: Guarded):
    whole = await stored(guarded)
    whole["metadata"]["annotations"][PLACEMENTS_ANNOTATION] = FORGED
    del whole["metadata"]["resourceVersion"]  # the pod's kubelet writes meanwhile
    pointer = "/metadata/annotations/" + PLACEMENTS_ANNOTATION.replace("/", "~1")
    rows = {
        "PUT": guarded.tenant.request("PUT", guarded.url(), whole),
        "merge patch": patch(
            guarded.tenant, guarded.url(), annotated(**{PLACEMENTS_ANNOTATION: FORGED})
        ),
        "JSON patch": patch(
            guarded.tenant, guarded.url(),
            [{"op": "replace", "path": pointer, "value": FORGED}], "application/json-patch+json",
        ),
        "strategic merge patch": patch(
            guarded.tenant, guarded.url(), annotated(**{PLACEMENTS_ANNOTATION: FORGED}),
            "application/strategic-merge-patch+json",
        ),
        "all annotations removed": patch(
            guarded.tenant, guarded.url(), {"metadata": {"annotations": None}}
        ),
    }  # fmt: skip
    for answer in await asyncio.gather(*rows.values()):
        refused(answer, PLACEMENTS_ANNOTATION)
    apply = {"apiVersion": "v1", "kind": "Pod", **annotated(**{PLACEMENTS_ANNOTATION: FORGED})}
    answer = await guarded.tenant.request(
        "PATCH",
        guarded.url(),
        apply,
        content_type="application/apply-patch+yaml",
        query={"fieldManager": "team", "force": "true"},
    )
    refused(answer, PLACEMENTS_ANNOTATION)
    assert (await stored(guarded))["metadata"]["annotations"][PLACEMENTS_ANNOTATION] == LEDGER


async def test_the_service_may_write_all_of_it(guarded: Guarded):
    for key in GUARDED_ANNOTATIONS:
        value = "20" if key == SLOTS_ANNOTATION else "{}"
        answer = await patch(guarded.service, guarded.url(), annotated(**{key: value}))
        assert answer.status == 200, answer
        assert (await stored(guarded))["metadata"]["annotations"][key] == value


async def test_whoever_leaves_the_ledger_alone_is_not_hindered(guarded: Guarded):
    rows: dict[str, tuple[str, Obj]] = {
        "a kubelet's status": ("status", {"status": {"phase": "Running", "message": "pulled"}}),
        "a drain": ("", annotated(**{"vreplica.dev/unschedulable": "true"})),
        "a retry": ("", annotated(**{"vreplica.dev/retry": "1"})),
        "another label": ("", {"metadata": {"labels": {"team": "x"}}}),
        "a finalizer": ("", {"metadata": {"finalizers": ["example.com/x"]}}),
        "no finalizer": ("", {"metadata": {"finalizers": None}}),
    }
    for what, (subresource, body) in rows.items():
        answer = await patch(guarded.admin, guarded.url(subresource=subresource), body)
        assert answer.status == 200, f"{what}: {answer}"


async def test_a_pod_with_a_ledger_joins_no_pool_and_leaves_none(guarded: Guarded):
    outside = pod(guarded.namespace, "outside-0")
    outside["metadata"]["annotations"] = {PLACEMENTS_ANNOTATION: FORGED}
    assert (await guarded.tenant.post(guarded.pods, outside)).status == 201
    joined = await patch(
        guarded.tenant, guarded.url("outside-0"), {"metadata": {"labels": {POOL_LABEL: POOL}}}
    )
    refused(joined, POOL_LABEL)
    left = await patch(guarded.tenant, guarded.url(), {"metadata": {"labels": {POOL_LABEL: None}}})
    refused(left, POOL_LABEL)


async def test_a_pod_is_created_with_what_a_webhook_stamps_but_not_on_a_node(guarded: Guarded):
    stamp = {PLACEMENTS_ANNOTATION: LEDGER, SLOTS_ANNOTATION: "20"}
    assert (
        await guarded.tenant.post(guarded.pods, adapter(guarded, "dispatcher-1", stamp))
    ).status == 201
    bound = await guarded.tenant.post(
        guarded.pods, adapter(guarded, "dispatcher-2", stamp, nodeName=guarded.node)
    )
    refused(bound, "spec.nodeName")
    for name, harmless in (
        ("dispatcher-3", {}),
        ("dispatcher-4", {PLACEMENTS_ANNOTATION: "{}", SLOTS_ANNOTATION: "20"}),
    ):
        answer = await guarded.tenant.post(
            guarded.pods, adapter(guarded, name, harmless, nodeName=guarded.node)
        )
        assert answer.status == 201, answer


async def test_another_scheduler_binds_a_pod_but_gives_it_no_ledger(guarded: Guarded):
    for name in ("dispatcher-5", "dispatcher-6"):
        assert (await guarded.tenant.post(guarded.pods, adapter(guarded, name))).status == 201
    forged = await guarded.admin.post(
        guarded.url("dispatcher-5", "binding"), binding(guarded, "dispatcher-5", FORGED)
    )
    refused(forged, PLACEMENTS_ANNOTATION)
    legacy = await guarded.admin.post(
        f"/api/v1/namespaces/{guarded.namespace}/bindings", binding(guarded, "dispatcher-5", FORGED)
    )
    refused(legacy, PLACEMENTS_ANNOTATION)
    assert "nodeName" not in (await stored(guarded, "dispatcher-5"))["spec"]
    plain = await guarded.admin.post(
        guarded.url("dispatcher-6", "binding"), binding(guarded, "dispatcher-6")
    )
    assert plain.status == 201, plain


async def test_a_statefulsets_controller_is_not_hindered(guarded: Guarded, real: RealBackend):
    workload = stateful_set(guarded.namespace, "plain", 2, pool="plain")
    workload["spec"]["template"]["metadata"]["annotations"] = {PLACEMENTS_ANNOTATION: FORGED}
    await real.apply([workload])

    async def made() -> bool:
        answer = await guarded.admin.get(guarded.pods, labelSelector="app=plain")
        return len(answer.body["items"]) == 2

    await eventually(made, 15.0, "two pods of the StatefulSet")


@pytest.mark.parametrize("plural", ["vpods", "adapterpools", "vreplicaquotas"])
async def test_a_status_of_ours_is_not_for_others_to_write(guarded: Guarded, plural: str):
    base = f"/apis/{API_VERSION}/namespaces/{guarded.namespace}/{plural}"
    obj = adapter_pool(guarded.namespace)
    if plural == "vpods":
        spec = {"poolRef": {"namespace": guarded.namespace, "name": POOL}, "vreplicas": 3}
        obj |= {"kind": "VPod", "spec": spec}
    elif plural == "vreplicaquotas":
        pool = {"namespace": guarded.namespace, "name": POOL}
        obj |= {"kind": "VReplicaQuota", "spec": {"poolRef": pool}}
    # A status that is sent along with a new object is dropped by the API server.
    made = await guarded.admin.post(base, {**obj, "status": {"observedGeneration": 9}})
    assert made.status == 201, made
    assert "status" not in made.body
    url = f"{base}/{POOL}/status"
    status = {"status": {"observedGeneration": 7}}
    by_admin = await patch(guarded.admin, url, status)
    refused(by_admin, "status of VPods, AdapterPools and VReplicaQuotas")
    by_tenant = await patch(guarded.tenant, url, status)
    assert by_tenant.status == 403
    assert (
        "cannot patch resource" in by_tenant.message
    )  # its role has no such right in the first place
    own = await patch(guarded.service, url, status)
    assert own.status == 200, own
    labelled = await patch(
        guarded.tenant, f"{base}/{POOL}", {"metadata": {"labels": {"team": "x"}}}
    )
    if plural == "vreplicaquotas":  # who has a namespace may read its quotas, and no more
        assert labelled.status == 403, labelled
        return
    assert labelled.status == 200, labelled
    assert labelled.body["status"]["observedGeneration"] == 7


async def test_objects_of_other_namespaces_are_for_a_cluster_administrator_to_claim(
    guarded: Guarded,
):
    claims = adapter_pool(guarded.namespace, "claims", sources=SOURCES)
    refused(await guarded.tenant.post(guarded.pools, claims), "claim adapterpools/sources")
    plain = await guarded.tenant.post(guarded.pools, adapter_pool(guarded.namespace, "plain"))
    assert plain.status == 201, plain
    later = await patch(guarded.tenant, f"{guarded.pools}/plain", {"spec": {"sources": SOURCES}})
    refused(later, "claim adapterpools/sources")
    assert (await guarded.admin.post(guarded.pools, claims)).status == 201
    url = f"{guarded.pools}/claims"
    wider = {"spec": {"namespaceSelector": {"matchLabels": {"team": "x"}}}}
    refused(await patch(guarded.tenant, url, wider), "claim adapterpools/sources")
    harmless: Obj
    for harmless in ({"spec": {"slotsPerPod": 30}}, {"spec": {"sources": []}}):
        answer = await patch(guarded.tenant, url, harmless)
        assert answer.status == 200, f"{harmless}: {answer}"
