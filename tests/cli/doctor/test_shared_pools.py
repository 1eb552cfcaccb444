"""Of pools that two installations would serve."""

import copy

import pytest

from extender.cli.doctor.checks.registrations import MUTATING_PLURAL
from extender.cli.doctor.checks.verdict import Verdict
from tests.cli.doctor.breaking import BROKEN, Break, E, assert_found_alone
from tests.cli.doctor.scene import NS, Obj, Scene


def selecting(*namespaces: str) -> Obj:
    key = "kubernetes.io/metadata.name"
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [*namespaces]}]}


def another(name: str = "orders", *, selector: Obj | None = None) -> Break:
    """A second installation's webhook, which is called for the pods of these namespaces; for those
    of all without a selector.
    """

    def change(scene: Scene) -> None:
        registration = copy.deepcopy(scene.first(MUTATING_PLURAL))
        registration["metadata"]["name"] = name
        for hook in registration["webhooks"]:
            hook["namespaceSelector"] = selector or {}
            hook["clientConfig"]["service"] |= {
                "namespace": f"{name}-system",
                "name": f"{name}-webhook",
            }
        scene.items(MUTATING_PLURAL).append(registration)

    return change


ROWS = [
    pytest.param(
        another(selector=selector),
        "shared-pools",
        E,
        "AdapterPool knative-eventing/dispatcher are stamped by the webhooks of orders (Service "
        "orders-system/orders-webhook) and vreplica-scheduler",
        id=where,
    )
    for where, selector in (
        ("two that serve all namespaces", None),
        ("one of them serves all", selecting(NS, "other")),
    )
]


@pytest.mark.parametrize(BROKEN, ROWS)
def test_one_thing_that_is_wrong_is_found_by_its_check(broken, name, verdict, says):
    assert_found_alone(broken, name, verdict, says)


def test_installations_with_namespaces_of_their_own_share_no_pool():
    scene = Scene()
    another(selector=selecting("orders-adapters"))(scene)
    found = scene.results()["shared-pools"]
    assert (found.verdict, found.summary) == (
        Verdict.OK,
        "no pool has two installations, of 2 installations with a webhook",
    )


def test_a_webhook_that_is_registered_twice_is_one_installation():
    scene = Scene()
    again = copy.deepcopy(scene.first(MUTATING_PLURAL))
    again["metadata"]["name"] = "again"
    scene.items(MUTATING_PLURAL).append(again)
    assert scene.results()["shared-pools"].verdict is Verdict.OK


def test_where_no_webhook_stamps_pods_nothing_is_said_of_it():
    scene = Scene()
    scene.items(MUTATING_PLURAL).clear()
    assert scene.results()["shared-pools"].verdict is Verdict.SKIPPED


def test_pods_of_another_installation_have_its_scheduler():
    scene = Scene()
    for hook in scene.first(MUTATING_PLURAL)["webhooks"]:
        hook["namespaceSelector"] = selecting("elsewhere")
    another(selector=selecting(NS))(scene)
    for pod in scene.items("pods"):
        pod["spec"]["schedulerName"] = "orders"
    assert scene.results()["stranded-pods"].verdict is Verdict.OK
    scene.listed[MUTATING_PLURAL] = "forbidden: no"
    found = scene.results()["stranded-pods"]
    assert found.verdict is Verdict.UNKNOWN
    assert "another installation may have: forbidden: no" in found.evidence[0]


def test_what_another_installation_lacks_is_not_missing_here():
    scene = Scene()
    another(selector=selecting("orders-adapters"))(scene)
    registration = scene.items(MUTATING_PLURAL)[-1]
    for hook in registration["webhooks"]:
        del hook["clientConfig"]["caBundle"]
    results = scene.results()
    for name in ("webhook-registration", "webhook-certificate", "webhook-endpoints"):
        assert results[name].verdict is Verdict.OK


def test_the_options_for_another_installation_are_told_where_this_one_is_not_there():
    scene = Scene()
    another()(scene)
    scene.items(MUTATING_PLURAL).pop(0)
    scene.items("leases").clear()
    scene.items("deployments").clear()
    results = scene.results()
    for name in ("webhook-registration", "deployments", "leader"):
        assert "--name orders --namespace orders-system" in results[name].fix


def test_the_namespace_is_told_where_an_installation_with_this_name_is_in_another_one():
    scene = Scene()
    for hook in scene.first(MUTATING_PLURAL)["webhooks"]:
        hook["clientConfig"]["service"]["namespace"] = "apart"
    scene.items("leases").clear()
    scene.items("deployments").clear()
    assert "--name vreplica-scheduler --namespace apart" in scene.results()["leader"].fix
