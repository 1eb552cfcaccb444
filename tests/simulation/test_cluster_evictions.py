"""Evictions ask admission webhooks and the PodDisruptionBudgets, as kube-apiserver's do."""

import pytest

from extender.kube.api import (
    PODS,
    VALIDATING_WEBHOOKS,
    ApiError,
    Conflict,
    NotFound,
    PatchType,
    Preconditions,
    TooManyRequests,
)
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.registry import PODDISRUPTIONBUDGETS
from tests.simulation.cluster_scene import (
    NS,
    Answer,
    Webhooks,
    a_cluster,
    a_configuration,
    a_pod,
    a_webhook,
    allowed,
    denying,
)

pytestmark = pytest.mark.looptime


async def two_pods(*ready: bool, **budget) -> Cluster:
    """Pods p0 and p1 on a node, and a budget ``b`` of them; none without fields."""
    cluster = a_cluster()
    for index, is_ready in enumerate(ready):
        pod = a_pod(f"p{index}", nodeName="node-0")
        pod["metadata"]["labels"] = {"app": "a"}
        await cluster.create(PODS, NS, pod)
        status = {"conditions": [{"type": "Ready", "status": str(is_ready)}], "phase": "Running"}
        await cluster.patch(
            PODS,
            NS,
            f"p{index}",
            {"status": status},
            patch_type=PatchType.MERGE,
            subresource="status",
        )
    if budget:
        await give_budget(cluster, "b", **budget)
    return cluster


async def give_budget(cluster: Cluster, name: str, **fields) -> None:
    spec = {"selector": {"matchLabels": {"app": "a"}}, **fields}
    await cluster.create(PODDISRUPTIONBUDGETS, NS, {"metadata": {"name": name}, "spec": spec})


async def is_leaving(cluster: Cluster, name: str) -> bool:
    try:
        pod = await cluster.get(PODS, NS, name)
    except NotFound:
        return True
    return "deletionTimestamp" in pod["metadata"]


@pytest.mark.parametrize(
    ("ready", "budget", "evicted"),
    [
        pytest.param((True, True), {}, True, id="no budget"),
        pytest.param((True, True), {"maxUnavailable": 1}, True, id="one may be unavailable"),
        pytest.param((True, False), {"maxUnavailable": 1}, False, id="and one is"),
        pytest.param((True, True), {"maxUnavailable": 0}, False, id="none may be unavailable"),
        pytest.param((True, True), {"minAvailable": "50%"}, True, id="half must stay"),
        pytest.param((True, True), {"minAvailable": "51%"}, False, id="percentages round up"),
        pytest.param((False, True), {"minAvailable": 1}, True, id="it is not Ready, enough are"),
        pytest.param((False, False), {"minAvailable": 1}, False, id="it is not Ready, nor others"),
        pytest.param(
            (False, False),
            {"minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
            True,
            id="who is not Ready may always go",
        ),
    ],
)
async def test_a_budget_says_whether_a_pod_is_evicted(ready, budget, evicted):
    cluster = await two_pods(*ready, **budget)
    if evicted:
        await cluster.evict(NS, "p0")
    else:
        with pytest.raises(ApiError, match="429 TooManyRequests: Cannot evict pod") as refused:
            await cluster.evict(NS, "p0")
        assert refused.value.retry_after_s == 10.0
    assert await is_leaving(cluster, "p0") is evicted


async def test_a_second_eviction_counts_the_first():
    cluster = await two_pods(True, True, maxUnavailable=1)
    await cluster.evict(NS, "p0")
    with pytest.raises(ApiError, match="needs 1 healthy pods and has 1"):
        await cluster.evict(NS, "p1")


async def test_two_budgets_of_one_pod_are_an_error():
    cluster = await two_pods(True, True, maxUnavailable=1)
    await give_budget(cluster, "b2", maxUnavailable=1)
    with pytest.raises(ApiError, match="more than one PodDisruptionBudget"):
        await cluster.evict(NS, "p0")
    assert not await is_leaving(cluster, "p0")


async def test_another_pod_of_the_name_is_not_evicted():
    cluster = await two_pods(True, True)
    with pytest.raises(Conflict):
        await cluster.evict(NS, "p0", preconditions=Preconditions(uid="another"))
    assert not await is_leaving(cluster, "p0")


async def asking(cluster: Cluster, answer: Answer) -> Webhooks:
    """A webhook for evictions is asked from now on."""
    webhooks = Webhooks(hook=answer)
    cluster.call_webhooks_with(webhooks)
    hook = a_webhook(resources=["pods/eviction"], sideEffects="NoneOnDryRun")
    await cluster.create(VALIDATING_WEBHOOKS, "", a_configuration(hook))
    return webhooks


async def test_a_webhook_refuses_an_eviction_with_its_own_code():
    cluster = await two_pods(True, True)
    await asking(cluster, denying("not yet", code=429, reason="TooManyRequests"))
    with pytest.raises(TooManyRequests, match="denied the request: not yet"):
        await cluster.evict(NS, "p0")
    assert not await is_leaving(cluster, "p0")


async def test_the_review_of_an_eviction_is_as_the_api_server_sends_it():
    cluster = await two_pods(True, True)
    webhooks = await asking(cluster, allowed)
    await cluster.dry_run().evict(NS, "p0", grace_period_s=7)
    [(_, request)] = webhooks.requests
    assert request["kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert (request["subResource"], request["operation"]) == ("eviction", "CREATE")
    assert (request["namespace"], request["name"], request["dryRun"]) == (NS, "p0", True)
    assert request["object"] == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": NS, "name": "p0"},
        "deleteOptions": {"gracePeriodSeconds": 7, "dryRun": ["All"]},
    }
    assert not await is_leaving(cluster, "p0")


async def test_an_eviction_that_the_webhook_allows_still_needs_its_budget():
    cluster = await two_pods(True, True, maxUnavailable=0)
    await asking(cluster, allowed)
    with pytest.raises(TooManyRequests, match="disruption budget"):
        await cluster.evict(NS, "p0")
