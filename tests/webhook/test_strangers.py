"""Reviews that somebody has made up: the webhook's port is open, so what it answers has to be fit
for everybody.
"""

import base64
from typing import Any

import orjson
import pytest

from extender.kube.api import Obj
from tests.webhook.builders import (
    NS,
    PLACEMENTS,
    SLOTS,
    a_namespace,
    a_pod,
    a_pool_object,
    a_vpod_object,
    caches,
    request,
    review,
)
from tests.webhook.test_server import post, serving
from webhook.validate import DEFAULT_RULES, validate

OTHERS = ("tenant-a", "orders", "tenant-b", "invoices")
"""Namespaces and names of vpods that are none of the sender's business."""


def everything() -> Any:
    """Caches of a pool for teams, which two other tenants use."""
    return caches(
        pools=[a_pool_object(slots=37, namespaceSelector={"matchLabels": {"team": "yes"}})],
        vpods=[
            a_vpod_object(weight=30, placements={"dispatcher-0": 1}),
            a_vpod_object("invoices", "tenant-b", placements={"dispatcher-0": 5}),
        ],
        namespaces=[
            a_namespace("tenant-a", team="yes"),
            a_namespace("tenant-b", team="yes"),
            a_namespace("stranger"),
        ],
    )


def stored_pod() -> Obj:
    return a_pod("dispatcher-0", annotations={PLACEMENTS: "{}", SLOTS: "37"})


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(
    ("resource", "obj", "more"),
    [
        pytest.param("pods", a_pod("dispatcher-0"), {}, id="a pod that comes back"),
        pytest.param(
            "pods", a_pod("dispatcher-0", annotations={PLACEMENTS: "x"}), {}, id="with a ledger"
        ),
        pytest.param(
            "pods",
            a_pod("dispatcher-0", annotations={SLOTS: "1"}),
            {"oldObject": stored_pod()},
            id="changed",
        ),
        pytest.param("adapterpools", a_pool_object(slots=1), {}, id="a pool that has shrunk"),
        pytest.param(
            "adapterpools", a_pool_object("b", statefulSet="dispatcher"), {}, id="a second pool"
        ),
        pytest.param(
            "adapterpools",
            None,
            {"operation": "DELETE", "name": "dispatcher", "oldObject": a_pool_object()},
            id="a pool that goes",
        ),
        pytest.param(
            "vpods",
            a_vpod_object("mine", "stranger", weight=99),
            {"namespace": "stranger"},
            id="a vpod",
        ),
    ],
)
async def test_no_answer_names_a_vpod_of_others(
    path: str, resource: str, obj: Obj | None, more: Obj
):
    group = "" if resource == "pods" else "vreplica.dev"
    async with serving(everything()) as (_, client):
        status, body = await post(client, path, review(obj, resource=resource, group=group, **more))
    response = orjson.loads(body)["response"]
    told = body + base64.b64decode(response.get("patch", ""))
    assert status == 200
    assert not [name for name in OTHERS if name.encode() in told], told


@pytest.mark.parametrize("namespace", ["stranger", "nowhere"])
def test_a_pools_size_is_told_to_the_namespaces_that_it_selects_alone(namespace: str):
    obj = a_vpod_object("mine", namespace, weight=38)
    for old in (
        None,
        a_vpod_object("mine", namespace, pool="other"),
        a_vpod_object("mine", namespace),
    ):
        got = validate(request(obj, old, resource="vpods"), everything(), DEFAULT_RULES)
        assert "37" not in " ".join([got.message, *got.warnings])
        # Nor by trying which weights are refused.
        lighter = a_vpod_object("mine", namespace, weight=2)
        assert validate(request(lighter, old, resource="vpods"), everything(), DEFAULT_RULES) == got
    selected = validate(
        request(a_vpod_object("mine", weight=38), resource="vpods"), everything(), DEFAULT_RULES
    )
    assert f"AdapterPool {NS}/dispatcher has 37" in selected.message
