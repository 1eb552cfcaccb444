"""What the service's own account may not do although its role grants it: tried with its token on
the real API server.
"""

from typing import Final

import pytest

from extender.kube.api import Obj
from extender.model.names import (
    PLACEMENTS_ANNOTATION,
    POOL_LABEL,
    RETRY_ANNOTATION,
)
from tests.e2e.guarded import (
    BYSTANDER,
    MERGE,
    Guarded,
    adapter,
    annotated,
    binding,
    patch,
    refused,
    stored,
)
from tests.e2e.objects import pod, stateful_set
from tests.e2e.raw import Answer
from tests.e2e.real import RealBackend
from tests.e2e.scenario import POOL
from tests.e2e.waiting import NotYet, eventually


async def test_the_service_has_a_pending_pod_looked_at_again(guarded: Guarded):
    assert (await guarded.tenant.post(guarded.pods, adapter(guarded, "dispatcher-9"))).status == 201
    retry = await patch(
        guarded.service, guarded.url("dispatcher-9"), annotated(**{RETRY_ANNOTATION: "5-1"})
    )
    assert retry.status == 200, retry


IMAGE: Final = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil.example/x:1"}]
CHANGES: Final[dict[str, Obj | list[Obj]]] = {
    "the image": IMAGE,
    "a label": {"metadata": {"labels": {"app": "other"}}},
    "the pool": {"metadata": {"labels": {POOL_LABEL: "other"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/x"]}},
    "an owner": {
        "metadata": {
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": "x",
                    "uid": "00000000-0000-0000-0000-000000000001",
                }
            ]
        }
    },
    "an annotation of others": annotated(**{"example.com/x": "y"}),
    "the drain of a person": annotated(**{"vreplica.dev/unschedulable": "true"}),
    "the deadline": {"spec": {"activeDeadlineSeconds": 1}},
}


@pytest.mark.parametrize("what", CHANGES)
async def test_whoever_has_the_services_token_changes_nothing_else_of_a_pod(
    guarded: Guarded, what: str
):
    body = CHANGES[what]
    form = "application/json-patch+json" if isinstance(body, list) else MERGE
    for name in (f"{POOL}-0", BYSTANDER):
        before = (await stored(guarded, name))["metadata"] | {
            "resourceVersion": "",
            "managedFields": [],
        }
        refused(
            await patch(guarded.service, guarded.url(name), body, form),
            "scheduler service may change",
        )
        after = (await stored(guarded, name))["metadata"] | {
            "resourceVersion": "",
            "managedFields": [],
        }
        assert after == before


@pytest.mark.parametrize("namespace", ["", "kube-system"])
async def test_a_pod_without_the_pools_label_is_untouchable_for_the_service(
    guarded: Guarded, namespace: str
):
    pods = f"/api/v1/namespaces/{namespace}/pods" if namespace else guarded.pods
    victim = pod(namespace or guarded.namespace, "victim")
    assert (await guarded.admin.post(pods, victim)).status in {201, 409}
    for body in (
        annotated(**{PLACEMENTS_ANNOTATION: "{}"}),
        {"metadata": {"labels": {POOL_LABEL: POOL}}},
    ):
        refused(
            await patch(guarded.service, f"{pods}/victim", body), "label vreplica.dev/pool only"
        )
    refused(
        await patch(guarded.service, f"{pods}/victim", IMAGE, "application/json-patch+json"),
        "label vreplica.dev/pool only",
    )
    await guarded.admin.delete(f"{pods}/victim?gracePeriodSeconds=0")


async def test_the_service_scales_where_there_are_pools_and_nowhere_else(
    guarded: Guarded, real: RealBackend
):
    elsewhere = await real.namespace("databases")
    await real.apply(
        [
            stateful_set(elsewhere, "db", 1, pool="db"),
            stateful_set(guarded.namespace, POOL, 0, pool=POOL),
        ]
    )

    async def scaled(namespace: str, name: str, query: dict[str, str]) -> Answer:
        url = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}/scale"
        scale = (await guarded.service.get(url)).body | {"spec": {"replicas": 3}}
        del scale["metadata"]["resourceVersion"]  # its controller writes meanwhile
        return await guarded.service.request("PUT", url, scale, query=query)

    async def in_force() -> bool:
        answer = await scaled(elsewhere, "db", {"dryRun": "All"})
        if answer.status == 200:
            raise NotYet(str(answer))
        return True

    await eventually(in_force, 15.0, "the policy on scales is in force")
    answer = await scaled(elsewhere, "db", {})
    assert answer.status != 200
    assert "vreplica-service-namespaces" in answer.message
    answer = await scaled(guarded.namespace, POOL, {})
    assert answer.status == 200, answer


async def test_the_service_binds_any_pod_and_adds_nothing_to_it_but_what_is_ours(
    guarded: Guarded, real: RealBackend
):
    """Pods that are no adapters and name our kube-scheduler are bound by us, too, wherever they
    are.
    """
    elsewhere = await real.namespace("databases")
    for namespace, name in ((elsewhere, "plain"), (guarded.namespace, "dispatcher-8")):
        obj = adapter(guarded, name) if namespace == guarded.namespace else pod(namespace, name)
        obj["spec"]["schedulerName"] = "nobody"
        pods = f"/api/v1/namespaces/{namespace}/pods"
        assert (await guarded.admin.post(pods, obj)).status == 201
        bind = binding(guarded, name) | {"metadata": {"name": name, "namespace": namespace}}
        for what in ("annotations", "labels"):
            more = bind | {"metadata": bind["metadata"] | {what: {"example.com/x": "y"}}}
            refused(
                await guarded.service.post(f"{pods}/{name}/binding", more),
                "may bind pods with annotations",
            )
        answer = await guarded.service.post(f"{pods}/{name}/binding", bind)
        assert answer.status == 201, answer
