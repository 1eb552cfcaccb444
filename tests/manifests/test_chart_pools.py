"""``config.pools.namespaces`` in the chart: the webhook and the policies that guard ledgers and
statuses keep to the pools that this installation serves.
"""

from typing import Any

import pytest
import yaml

from tests.manifests.chart import Obj, RenderFailed, objects, render
from tests.support.configs import config_from

pytestmark = pytest.mark.usefixtures("needs_helm")

SERVED = ["adapters", "adapters-2"]
SELECTED = {
    "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": SERVED}]
}


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], Obj]:
    rendered = render({"config": {"pools": {"namespaces": SERVED}}})
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects(rendered)}


def spec_of(found: dict[tuple[str, str], Obj], policy: str) -> dict[str, Any]:
    spec: dict[str, Any] = found["ValidatingAdmissionPolicy", f"vreplica-{policy}"]["spec"]
    return spec


def webhooks_of(found: dict[tuple[str, str], Obj]) -> dict[str, dict[str, Any]]:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    return {
        hook["name"].removesuffix(".vreplica.dev"): hook
        for kind in kinds
        for hook in found[kind, "vreplica-scheduler"]["webhooks"]
    }


@pytest.mark.parametrize("pools", [{"namespaces": []}, {"namespaces": None}, {}, None])
def test_no_namespaces_render_what_the_chart_rendered_before(pools: object):
    assert render({"config": {"pools": pools}}) == render({})


def test_the_configuration_has_the_namespaces(found: dict[tuple[str, str], Obj]):
    data = found["ConfigMap", "vreplica-scheduler-config"]["data"]
    config = config_from(yaml.safe_load(data["service-config.yaml"]))
    assert config.pool_namespaces == set(SERVED)


@pytest.mark.parametrize("hook", ["pods.mutate", "pods.validate"])
def test_pods_of_other_namespaces_do_not_come_by(found: dict[tuple[str, str], Obj], hook: str):
    assert webhooks_of(found)[hook]["namespaceSelector"] == SELECTED


@pytest.mark.parametrize("policy", ["ledger", "ledger-in-bindings"])
def test_ledgers_of_other_namespaces_are_not_guarded(
    found: dict[tuple[str, str], Obj], policy: str
):
    assert spec_of(found, policy)["matchConstraints"]["namespaceSelector"] == SELECTED


def test_a_vpod_of_any_namespace_is_guarded_by_the_namespace_of_its_pool(
    found: dict[tuple[str, str], Obj],
):
    conditions = [
        *spec_of(found, "statuses")["matchConditions"],
        *webhooks_of(found)["objects.validate"]["matchConditions"],
    ]
    assert [one["name"] for one in conditions] == ["of-a-pool-that-is-served"] * 2
    for one in conditions:
        assert "object.spec.poolRef.?namespace" in one["expression"]
        assert one["expression"].endswith('in ["adapters","adapters-2"]')


@pytest.mark.parametrize("policy", ["service-pods", "service-namespaces"])
def test_the_service_itself_is_held_to_its_namespaces_everywhere(
    found: dict[tuple[str, str], Obj], policy: str
):
    spec = spec_of(found, policy)
    assert "namespaceSelector" not in spec["matchConstraints"]
    assert 'request.namespace in ["adapters","adapters-2"]' in [
        rule["expression"] for rule in spec["validations"]
    ]


@pytest.mark.parametrize("name", ["Adapters", "a/b", 'a"]||true||["', ""])
def test_what_is_no_namespace_is_refused(name: str):
    with pytest.raises(RenderFailed, match="/config/pools/namespaces/0"):
        render({"config": {"pools": {"namespaces": [name]}}})
