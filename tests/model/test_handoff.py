"""spec.handoff of an AdapterPool, as it is decoded and as its schema has it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.lab.apiserver.schema import problems
from extender.model.decode import pool_from
from extender.model.errors import InvalidObject
from extender.model.max_unavailable import MaxUnavailable, PodLimit
from extender.model.objects import AdapterPool, Handoff, HandoffMode, Identity

CRD = Path(__file__).parents[2] / "manifests" / "crds" / "adapterpools.yaml"


def a_pool(**spec: object) -> AdapterPool:
    spec = {"statefulSet": "s", "slotsPerPod": 20, **spec}
    return pool_from({"metadata": {"name": "p", "namespace": "k"}, "spec": spec})


@pytest.mark.parametrize(
    ("spec", "handoff", "hands_over"),
    [
        pytest.param({}, None, False, id="absent"),
        pytest.param({"handoff": None}, None, False, id="null"),
        pytest.param({"handoff": {}}, Handoff(), False, id="empty: adapters are told"),
        pytest.param({"handoff": {"mode": "None"}}, Handoff(), False, id="None"),
        pytest.param(
            {"handoff": {"mode": "Overlap"}}, Handoff(mode=HandoffMode.OVERLAP), True, id="Overlap"
        ),
        pytest.param(
            {"handoff": {"mode": "Exclusive", "leaseSeconds": 9}},
            Handoff(mode=HandoffMode.EXCLUSIVE, lease_s=9),
            True,
            id="Exclusive",
        ),
        pytest.param(
            {"handoff": {"identity": "Indexed"}},
            Handoff(identity=Identity.INDEXED),
            False,
            id="Indexed",
        ),
        pytest.param(
            {"handoff": {"prepareTimeoutSeconds": 5, "drainTimeoutSeconds": 7}},
            Handoff(prepare_timeout_s=5, drain_timeout_s=7),
            False,
            id="timeouts",
        ),
        pytest.param(
            {"handoff": {"mode": "Overlap", "maxUnavailable": {}}},
            Handoff(mode=HandoffMode.OVERLAP, max_unavailable=MaxUnavailable()),
            True,
            id="maxUnavailable, empty: one pod of the pool",
        ),
        pytest.param(
            {"handoff": {"maxUnavailable": {"pool": "10%", "perVPod": 2}}},
            Handoff(
                max_unavailable=MaxUnavailable(
                    pool=PodLimit(10, is_percentage=True), per_vpod=PodLimit(2)
                )
            ),
            False,
            id="maxUnavailable, which mode None ignores",
        ),
    ],
)
def test_it_is_read(spec: dict[str, object], handoff: Handoff | None, hands_over: bool):
    pool = a_pool(**spec)
    assert (pool.handoff, pool.hands_over) == (handoff, hands_over)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("maxUnavailable.pool", 0, "must be an integer from 1 to 2147483647, not 0"),
        (
            "maxUnavailable.pool",
            "0%",
            "must be an integer, or a percentage from 1% to 100%, not '0%'",
        ),
        (
            "maxUnavailable.perVPod",
            "two",
            "must be an integer, or a percentage from 1% to 100%, not 'two'",
        ),
        ("maxUnavailable.perVPod", True, "must be an integer from 1 to 2147483647, not True"),
        ("mode", "overlap", "must be one of None, Overlap, Exclusive, not 'overlap'"),
        ("identity", "indexed", "must be one of Counted, Indexed, not 'indexed'"),
        ("prepareTimeoutSeconds", 0, "must be an integer from 1 to 2147483647, not 0"),
        ("prepareTimeoutSeconds", "30", "must be an integer from 1 to 2147483647, not '30'"),
        ("leaseSeconds", 4, "must be an integer from 5 to 2147483647, not 4"),
        ("drainTimeoutSeconds", 0, "must be an integer from 1 to 2147483647, not 0"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object, problem: str):
    outer, _, inner = field.partition(".")
    with pytest.raises(InvalidObject) as caught:
        a_pool(handoff={outer: {inner: value} if inner else value})
    assert str(caught.value) == f"AdapterPool k/p: spec.handoff.{field}: {problem}"


def test_pods_of_a_pool_with_indexes_may_not_have_too_many_slots():
    a_pool(handoff={"identity": "Indexed"}, slotsPerPod=1000)
    with pytest.raises(InvalidObject, match=r"Indexed allows spec\.slotsPerPod of at most 1000"):
        a_pool(handoff={"identity": "Indexed"}, slotsPerPod=1001)


def schema() -> Any:
    (crd,) = yaml.safe_load_all(CRD.read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec["properties"]["handoff"]["properties"]


def test_the_schema_has_the_modes_of_the_code():
    assert schema()["mode"]["enum"] == list(HandoffMode)


def test_the_schema_has_the_identities_of_the_code():
    assert schema()["identity"]["enum"] == list(Identity)


def test_the_schema_has_the_defaults_of_the_code():
    defaults = {n: each["default"] for n, each in schema().items() if "default" in each}
    assert a_pool(handoff=defaults).handoff == Handoff()
    limits = schema()["maxUnavailable"]["properties"]
    defaults = {n: each["default"] for n, each in limits.items() if "default" in each}
    assert a_pool(handoff={"maxUnavailable": defaults}).max_unavailable == MaxUnavailable()


@pytest.mark.parametrize("value", [1, 2147483647, "1%", "99%", "100%", 0, "0%", "101%", "5", "%"])
def test_the_schema_admits_the_limits_that_are_decoded(value: int | str):
    one = schema()["maxUnavailable"]["properties"]["pool"]
    admitted = next(problems(value, one, "pool"), None) is None
    try:
        decoded = bool(a_pool(handoff={"maxUnavailable": {"pool": value}}))
    except InvalidObject:
        decoded = False
    assert admitted == decoded


@pytest.mark.parametrize("field", ["prepareTimeoutSeconds", "drainTimeoutSeconds"])
def test_what_the_schema_admits_is_decoded(field: str):
    for limit in ("minimum", "maximum"):
        assert a_pool(handoff={field: schema()[field][limit]}).handoff is not None
