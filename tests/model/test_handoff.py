"""spec.handoff of an AdapterPool, as it is decoded and as its schema has it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.model.decode import pool_from
from extender.model.errors import InvalidObject
from extender.model.objects import AdapterPool, Handoff, HandoffMode

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
            {"handoff": {"prepareTimeoutSeconds": 5, "drainTimeoutSeconds": 7}},
            Handoff(prepare_timeout_s=5, drain_timeout_s=7),
            False,
            id="timeouts",
        ),
    ],
)
def test_it_is_read(spec: dict[str, object], handoff: Handoff | None, hands_over: bool):
    pool = a_pool(**spec)
    assert (pool.handoff, pool.hands_over) == (handoff, hands_over)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("mode", "overlap", "must be one of None, Overlap, Exclusive, not 'overlap'"),
        ("prepareTimeoutSeconds", 0, "must be an integer from 1 to 2147483647, not 0"),
        ("prepareTimeoutSeconds", "30", "must be an integer from 1 to 2147483647, not '30'"),
        ("leaseSeconds", 4, "must be an integer from 5 to 2147483647, not 4"),
        ("drainTimeoutSeconds", 0, "must be an integer from 1 to 2147483647, not 0"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object, problem: str):
    with pytest.raises(InvalidObject) as caught:
        a_pool(handoff={field: value})
    assert str(caught.value) == f"AdapterPool k/p: spec.handoff.{field}: {problem}"


def schema() -> Any:
    (crd,) = yaml.safe_load_all(CRD.read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec["properties"]["handoff"]["properties"]


def test_the_schema_has_the_modes_of_the_code():
    assert schema()["mode"]["enum"] == list(HandoffMode)


def test_the_schema_has_the_defaults_of_the_code():
    defaults = {name: each["default"] for name, each in schema().items()}
    assert a_pool(handoff=defaults).handoff == Handoff()


@pytest.mark.parametrize("field", ["prepareTimeoutSeconds", "drainTimeoutSeconds"])
def test_what_the_schema_admits_is_decoded(field: str):
    for limit in ("minimum", "maximum"):
        assert a_pool(handoff={field: schema()[field][limit]}).handoff is not None
