"""What the service's own account may not do although its role grants it: tried with its token on the real API server."""

from collections.abc import AsyncIterator
from typing import Final

import pytest

from extender.core.names import (
    PLACEMENTS_ANNOTATION,
    POOL_LABEL,
    RETRY_ANNOTATION,
)
from extender.kube.api import Obj
from tests.e2e.guarded import (
    BYSTANDER,
    MERGE,
    Guarded,
    a_guarded_cluster,
    adapter,
    annotated,
    binding,
    patch,
    refused,
    stored,
)
from tests.e2e.objects import pod, stateful_set
from tests.e2e.real import RealBackend
from tests.e2e.scenario import POOL


@pytest.fixture
async def guarded(real: RealBackend) -> AsyncIterator[Guarded]:
    """The cluster of these tests."""
    async with a_guarded_cluster(real) as there:
        yield there


async def test_the_service_has_a_pending_pod_looked_at_again(guarded: Guarded):
    assert (await guarded.tenant.post(guarded.pods, adapter(guarded, "dispatcher-9"))).status == 201
    retry = await patch(guarded.service, guarded.url("dispatcher-9"), annotated(**{RETRY_ANNOTATION: "5-1"}))
    assert retry.status == 200, retry


IMAGE: Final = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil.example/x:1"}]
CHANGES: Final[dict[str, Obj | list[Obj]]] = {
    "the image": IMAGE,
    "a label": {"metadata": {"labels": {"app": "other"}}},
    "the pool": {"metadata": {"labels": {POOL_LABEL: "other"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/x"]}},
    "an owner": {
        "metadata": {
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "00000000-0000-0000-0000-000000000001"}]
        }
    },
    "an annotation of others": annotated(**{"example.com/x": "y"}),
    "the drain of a person": annotated(**{"vreplica.dev/unschedulable": "true"}),
    "the deadline": {"spec": {"activeDeadlineSeconds": 1}},
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
async def test_whoever_has_the_services_token_changes_nothing_else_of_a_pod(guarded: Guarded, what: str):
    body = CHANGES[what]
    form = "application/json-patch+json" if isinstance(body, list) else MERGE
    for name in (f"{POOL}-0", BYSTANDER):
        before = (await stored(guarded, name))["metadata"] | {"resourceVersion": "", "managedFields": []}
        refused(await patch(guarded.service, guarded.url(name), body, form), "scheduler service may change")
        after = (await stored(guarded, name))["metadata"] | {"resourceVersion": "", "managedFields": []}
        assert after == before


@pytest.mark.parametrize("namespace", ["", "kube-system"])
async def test_a_pod_without_the_pools_label_is_untouchable_for_the_service(guarded: Guarded, namespace: str):
    pods = f"/api/v1/namespaces/{namespace}/pods" if namespace else guarded.pods
    victim = pod(namespace or guarded.namespace, "victim")
    assert (await guarded.admin.post(pods, victim)).status in {201, 409}
    for body in (annotated(**{PLACEMENTS_ANNOTATION: "{}"}), {"metadata": {"labels": {POOL_LABEL: POOL}}}):
        refused(await patch(guarded.service, f"{pods}/victim", body), "label vreplica.dev/pool only")
    refused(
        await patch(guarded.service, f"{pods}/victim", IMAGE, "application/json-patch+json"),
        "label vreplica.dev/pool only",
    )
    await guarded.admin.delete(f"{pods}/victim?gracePeriodSeconds=0")


async def test_the_service_scales_and_binds_where_there_are_pools_and_nowhere_else(
    guarded: Guarded, real: RealBackend
):
    elsewhere = await real.namespace("databases")
    await real.apply(
        [stateful_set(elsewhere, "db", 1, pool="db"), stateful_set(guarded.namespace, POOL, 0, pool=POOL)]
    )
    three = {"spec": {"replicas": 3}}
    for namespace, name, allowed in ((elsewhere, "db", False), (guarded.namespace, POOL, True)):
        url = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}/scale"
        scale = (await guarded.service.get(url)).body | three
        del scale["metadata"]["resourceVersion"]  # its controller writes meanwhile
        answer = await guarded.service.request("PUT", url, scale)
        assert (answer.status == 200) is allowed, answer
        assert allowed or "vreplica-service-namespaces" in answer.message
    victim = pod(elsewhere, "victim", schedulerName="nobody")
    await real.apply([victim])
    bind = binding(guarded, "victim") | {"metadata": {"name": "victim", "namespace": elsewhere}}
    answer = await guarded.service.post(f"/api/v1/namespaces/{elsewhere}/pods/victim/binding", bind)
    assert "vreplica-service-namespaces" in answer.message, answer
    assert (await guarded.tenant.post(guarded.pods, adapter(guarded, "dispatcher-8"))).status == 201
    more = binding(guarded, "dispatcher-8")
    more["metadata"]["annotations"] = {"example.com/x": "y"}
    refused(
        await guarded.service.post(guarded.url("dispatcher-8", "binding"), more),
        "may bind pods with annotations",
    )
