"""Admission webhooks: which requests go to which, what their answers do, and what their failures
do.
"""

import asyncio

import orjson
import pytest

from extender.kube.api import (
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ApiError,
    Binding,
    Conflict,
    Forbidden,
    Obj,
    PatchType,
)
from extender.lab.apiserver.cluster import Cluster
from extender.lab.embedded import stateful_set_object
from tests.simulation.cluster_scene import (
    NS,
    WIDGETS,
    Answer,
    Webhooks,
    a_cluster,
    a_configuration,
    a_pod,
    a_webhook,
    a_widget,
    allowed,
    annotating,
    denying,
    patching,
    with_widgets,
)

MERGE = PatchType.MERGE


async def mutating(*hooks: Obj, **answers: Answer) -> tuple[Cluster, Webhooks]:
    """A cluster with these mutating webhooks, and the webhooks."""
    cluster, webhooks = a_cluster(), Webhooks(**answers)
    cluster.call_webhooks_with(webhooks)
    await cluster.create(MUTATING_WEBHOOKS, "", a_configuration(*hooks))
    return cluster, webhooks


async def validating(*hooks: Obj, **answers: Answer) -> tuple[Cluster, Webhooks]:
    cluster, webhooks = a_cluster(), Webhooks(**answers)
    cluster.call_webhooks_with(webhooks)
    await cluster.create(VALIDATING_WEBHOOKS, "", a_configuration(*hooks))
    return cluster, webhooks


async def test_the_review_of_a_create_is_as_the_api_server_sends_it():
    cluster, webhooks = await mutating(a_webhook(), hook=allowed)
    await cluster.as_user("alice", ["team-a"]).create(PODS, NS, a_pod(labels={"a": "1"}))
    [(_, request)] = webhooks.requests
    kind, resource = (
        {"group": "", "version": "v1", "kind": "Pod"},
        {"group": "", "version": "v1", "resource": "pods"},
    )
    assert (request["kind"], request["requestKind"], request["resource"]) == (kind, kind, resource)
    assert (request["name"], request["namespace"], request["operation"]) == ("p", NS, "CREATE")
    assert request["userInfo"] == {"username": "alice", "uid": "alice", "groups": ["team-a"]}
    assert (request["oldObject"], request["dryRun"]) == (None, False)
    assert request["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    pod = request["object"]
    assert (pod["kind"], pod["apiVersion"], pod["spec"]["priority"]) == ("Pod", "v1", 0)
    assert "uid" not in pod["metadata"]
    assert len(pod["spec"]["tolerations"]) == 2


async def test_a_patch_of_a_webhook_is_stored():
    add = {"op": "add", "path": "/spec/schedulerName", "value": "vreplica-scheduler"}
    cluster, _ = await mutating(a_webhook(), hook=patching(add))
    made = await cluster.create(PODS, NS, a_pod())
    assert made["spec"]["schedulerName"] == "vreplica-scheduler"
    assert await cluster.get(PODS, NS, "p") == made


async def test_a_custom_object_is_defaulted_and_pruned_again_after_a_webhook():
    cluster = await with_widgets(
        {"a": {"type": "object", "properties": {"n": {"type": "integer", "default": 7}}}}
    )
    add = patching(
        {"op": "add", "path": "/spec/a", "value": {}},
        {"op": "add", "path": "/spec/junk", "value": 1},
    )
    cluster.call_webhooks_with(Webhooks(hook=add))
    await cluster.create(MUTATING_WEBHOOKS, "", a_configuration(a_webhook(resources=["widgets"])))
    assert (await cluster.create(WIDGETS, NS, a_widget()))["spec"] == {"a": {"n": 7}}


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        pytest.param(
            {"code": 403, "reason": "Forbidden", "message": "not yours"},
            403,
            "denied the request: not yours",
            id="403",
        ),
        pytest.param(
            {"code": 422, "message": "bad"}, 422, "denied the request: bad", id="code of its own"
        ),
        pytest.param({"message": "bad"}, 400, "denied the request: bad", id="no code"),
        pytest.param({}, 400, "denied the request without explanation", id="no words"),
    ],
)
async def test_a_refusal_is_the_error_in_kubernetes_words(status, code, message):
    cluster, _ = await validating(a_webhook(), hook=lambda _: {"allowed": False, "status": status})
    with pytest.raises(ApiError) as refused:
        await cluster.create(PODS, NS, a_pod())
    assert refused.value.status == code
    assert refused.value.message == f'admission webhook "hook.example.dev" {message}'
    assert cluster.object_count(PODS) == 0


async def test_a_mutating_webhook_can_refuse_too():
    cluster, _ = await mutating(a_webhook(), hook=denying("no"))
    with pytest.raises(Forbidden, match="denied the request: no"):
        await cluster.create(PODS, NS, a_pod())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="unreachable"),
        pytest.param(lambda request: {"uid": "other", "allowed": True}, id="another uid"),
        pytest.param(lambda request: {"allowed": True, "patch": "e30="}, id="patch without a type"),
    ],
)
async def test_a_failed_call_counts_by_the_failure_policy(answer):
    answers = {} if answer is None else {"hook": answer}
    closed, _ = await mutating(a_webhook(), **answers)
    with pytest.raises(ApiError, match='failed calling webhook "hook') as refused:
        await closed.create(PODS, NS, a_pod())
    assert refused.value.status == 500
    open_, _ = await mutating(a_webhook(failurePolicy="Ignore"), **answers)
    assert (await open_.create(PODS, NS, a_pod()))["metadata"]["name"] == "p"


@pytest.mark.looptime
@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
async def test_a_webhook_that_takes_too_long_has_failed(policy):
    cluster = a_cluster()

    async def slow(call):
        await asyncio.sleep(1000)

    cluster.call_webhooks_with(slow)
    hook = a_webhook(timeoutSeconds=3, failurePolicy=policy)
    await cluster.create(MUTATING_WEBHOOKS, "", a_configuration(hook))
    loop = asyncio.get_running_loop()
    before = loop.time()
    if policy == "Ignore":
        await cluster.create(PODS, NS, a_pod())
    else:
        with pytest.raises(ApiError, match="context deadline exceeded"):
            await cluster.create(PODS, NS, a_pod())
    assert loop.time() - before == pytest.approx(3)


@pytest.mark.parametrize(
    ("fields", "called"),
    [
        pytest.param({}, True, id="all"),
        pytest.param(
            {"objectSelector": {"matchLabels": {"pool": "d"}}}, True, id="object selected"
        ),
        pytest.param(
            {"objectSelector": {"matchLabels": {"pool": "x"}}}, False, id="object not selected"
        ),
        pytest.param(
            {"objectSelector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}},
            True,
            id="label exists",
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"team": "a"}}}, True, id="namespace selected"
        ),
        pytest.param(
            {
                "namespaceSelector": {
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "NotIn",
                            "values": ["tenant"],
                        }
                    ]
                }
            },
            False,
            id="namespace excluded by name",
        ),
    ],
)
async def test_selectors_of_a_webhook(fields, called):
    cluster, webhooks = await mutating(a_webhook(**fields), hook=allowed)
    await cluster.create(NAMESPACES, "", {"metadata": {"name": "tenant", "labels": {"team": "a"}}})
    await cluster.create(PODS, "tenant", a_pod(labels={"pool": "d"}))
    assert bool(webhooks.requests) is called


@pytest.mark.parametrize(
    ("rule", "called"),
    [
        pytest.param({"apiGroups": ["apps"]}, False, id="another group"),
        pytest.param({"apiVersions": ["v2"]}, False, id="another version"),
        pytest.param({"operations": ["UPDATE"]}, False, id="another operation"),
        pytest.param({"operations": ["*"]}, True, id="any operation"),
        pytest.param({"resources": ["*"]}, True, id="any resource"),
        pytest.param({"resources": ["*/*"]}, True, id="any resource and subresource"),
        pytest.param({"resources": ["pods/status"]}, False, id="only a subresource"),
        pytest.param({"scope": "Cluster"}, False, id="cluster scope"),
        pytest.param({"scope": "Namespaced"}, True, id="namespaced scope"),
    ],
)
async def test_rules_of_a_webhook(rule, called):
    hook = a_webhook()
    hook["rules"][0].update(rule)
    cluster, webhooks = await mutating(hook, hook=allowed)
    await cluster.create(PODS, NS, a_pod())
    assert bool(webhooks.requests) is called


async def test_subresources_are_asked_about_under_their_own_names():
    resources = ["pods/binding", "pods/status", "statefulsets/scale"]
    cluster, webhooks = await validating(
        a_webhook(operations=["*"], resources=resources), hook=allowed
    )
    await cluster.create(PODS, NS, a_pod())
    await cluster.bind(Binding(NS, "p", "n", annotations={"a": "b"}))
    await cluster.patch(
        PODS, NS, "p", {"status": {"phase": "Running"}}, patch_type=MERGE, subresource="status"
    )
    await cluster.create(STATEFULSETS, NS, stateful_set_object("s"))
    scale = {"spec": {"replicas": 2}}
    await cluster.patch(STATEFULSETS, NS, "s", scale, patch_type=MERGE, subresource="scale")
    asked = [(r["subResource"], r["operation"], r["kind"]["kind"]) for _, r in webhooks.requests]
    assert asked == [
        ("binding", "CREATE", "Binding"),
        ("status", "UPDATE", "Pod"),
        ("scale", "UPDATE", "Scale"),
    ]
    assert webhooks.requests[0][1]["object"]["metadata"]["annotations"] == {"a": "b"}


async def test_an_update_shows_both_objects_and_a_delete_the_old_one():
    cluster, webhooks = await validating(a_webhook(operations=["UPDATE", "DELETE"]), hook=allowed)
    await cluster.create(PODS, NS, a_pod())
    await cluster.patch(PODS, NS, "p", {"metadata": {"labels": {"a": "1"}}}, patch_type=MERGE)
    await cluster.delete(PODS, NS, "p")
    (_, update), (_, delete) = webhooks.requests
    assert update["oldObject"]["metadata"].get("labels") is None
    assert update["object"]["metadata"]["labels"] == {"a": "1"}
    assert delete["object"] is None
    assert delete["oldObject"]["metadata"]["labels"] == {"a": "1"}


async def test_a_refused_delete_leaves_the_object():
    cluster, _ = await validating(a_webhook(operations=["DELETE"]), hook=denying("keep it"))
    await cluster.create(PODS, NS, a_pod())
    with pytest.raises(Forbidden, match="keep it"):
        await cluster.delete(PODS, NS, "p")
    assert cluster.object_count(PODS) == 1


async def test_webhooks_run_in_order_and_each_sees_what_the_last_one_did():
    cluster, webhooks = await mutating(
        a_webhook("one.example.dev"),
        a_webhook("two.example.dev"),
        one=annotating("one"),
        two=annotating("two"),
    )
    made = await cluster.create(PODS, NS, a_pod())
    assert made["metadata"]["annotations"] == {"one": "yes", "two": "yes"}
    assert webhooks.requests[1][1]["object"]["metadata"]["annotations"] == {"one": "yes"}


@pytest.mark.parametrize(
    ("policy", "calls"),
    [
        pytest.param("Never", ["one", "two"], id="never"),
        pytest.param("IfNeeded", ["one", "two", "one"], id="if needed"),
    ],
)
async def test_a_webhook_is_called_again_when_a_later_one_changed_the_object(policy, calls):
    cluster, webhooks = await mutating(
        a_webhook("one.example.dev", reinvocationPolicy=policy),
        a_webhook("two.example.dev"),
        one=annotating("one"),
        two=annotating("two"),
    )
    await cluster.create(PODS, NS, a_pod())
    assert [name.partition(".")[0] for name, _ in webhooks.requests] == calls


async def test_a_dry_run_says_so_and_needs_a_webhook_without_side_effects():
    cluster, webhooks = await mutating(a_webhook(), hook=allowed)
    await cluster.dry_run().create(PODS, NS, a_pod())
    assert webhooks.requests[0][1]["dryRun"] is True
    careless, _ = await mutating(a_webhook(sideEffects="Some"), hook=allowed)
    with pytest.raises(ApiError, match="does not support dry run"):
        await careless.dry_run().create(PODS, NS, a_pod())


async def test_the_version_is_checked_again_after_the_webhooks_answer():
    """A write that comes while a webhook is asked: the patch is done again on the new object, the
    update refused.
    """
    cluster = a_cluster()
    await cluster.create(PODS, NS, a_pod(labels={"n": "0"}))
    webhooks = Webhooks(hook=allowed)
    raced = False

    async def racing(call):
        nonlocal raced
        if not raced:
            raced = True
            await cluster.bind(Binding(NS, "p", "n1"))
        return await webhooks(call)

    cluster.call_webhooks_with(racing)
    await cluster.create(VALIDATING_WEBHOOKS, "", a_configuration(a_webhook(operations=["UPDATE"])))
    patched = await cluster.patch(
        PODS, NS, "p", {"metadata": {"labels": {"n": "1"}}}, patch_type=MERGE
    )
    assert (patched["spec"]["nodeName"], patched["metadata"]["labels"]) == ("n1", {"n": "1"})
    assert webhooks.operations() == ["UPDATE", "UPDATE"]

    raced = True
    old = await cluster.get(PODS, NS, "p")

    async def racing_again(call):
        cluster.call_webhooks_with(webhooks)
        await cluster.patch(PODS, NS, "p", {"metadata": {"labels": {"n": "2"}}}, patch_type=MERGE)
        return await webhooks(call)

    cluster.call_webhooks_with(racing_again)
    old["metadata"]["labels"]["n"] = "3"
    with pytest.raises(Conflict, match="has been modified"):
        await cluster.update(PODS, NS, "p", old)


async def test_webhook_configurations_are_not_sent_to_webhooks():
    cluster, webhooks = await mutating(a_webhook(operations=["*"], resources=["*"]), hook=denying())
    await cluster.delete(MUTATING_WEBHOOKS, "", "hooks")
    assert webhooks.requests == []


async def test_a_changed_configuration_holds_from_the_next_request_on():
    cluster, webhooks = await mutating(a_webhook(), hook=allowed)
    await cluster.create(PODS, NS, a_pod("a"))
    operations = [{"op": "replace", "path": "/webhooks/0/rules/0/resources", "value": ["nodes"]}]
    await cluster.patch(MUTATING_WEBHOOKS, "", "hooks", operations, patch_type=PatchType.JSON)
    await cluster.create(PODS, NS, a_pod("b"))
    assert [request["name"] for _, request in webhooks.requests] == ["a"]


async def test_webhooks_cannot_reach_what_is_stored():
    cluster = a_cluster()

    async def vandal(call):
        request = call.review["request"]
        for obj in (request["object"], request["oldObject"]):
            if obj:
                obj["metadata"].clear()
        answer = {"uid": request["uid"], "allowed": True}
        return orjson.loads(
            orjson.dumps(
                {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": answer}
            )
        )

    cluster.call_webhooks_with(vandal)
    await cluster.create(VALIDATING_WEBHOOKS, "", a_configuration(a_webhook(operations=["*"])))
    await cluster.create(PODS, NS, a_pod())
    await cluster.patch(PODS, NS, "p", {"metadata": {"labels": {"a": "1"}}}, patch_type=MERGE)
    assert (await cluster.get(PODS, NS, "p"))["metadata"]["labels"] == {"a": "1"}
