"""spec.rollout of an AdapterPool, as it is decoded and as its schema has it, and the mark that a
rollout leaves on a pod.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.model.decode import pool_from
from extender.model.errors import InvalidObject
from extender.model.eviction import Eviction, encode_eviction, eviction_of
from extender.model.moves import MoveReason
from extender.model.objects import AdapterPod, AdapterPool, Rollout, RolloutStrategy

CRD = Path(__file__).parents[2] / "manifests" / "crds" / "adapterpools.yaml"
HANDED_OVER = {"rollout": {"strategy": "HandedOver"}}


def a_pool(**spec: object) -> AdapterPool:
    spec = {"statefulSet": "s", "slotsPerPod": 20, **spec}
    return pool_from({"metadata": {"name": "p", "namespace": "k"}, "spec": spec})


@pytest.mark.parametrize(
    ("spec", "rollout", "rolls_out"),
    [
        pytest.param({}, Rollout(), False, id="absent"),
        pytest.param({"rollout": None}, Rollout(), False, id="null"),
        pytest.param({"rollout": {"surge": 0}}, Rollout(surge=0), False, id="surge alone"),
        pytest.param(
            {**HANDED_OVER, "handoff": {"mode": "Overlap"}},
            Rollout(strategy=RolloutStrategy.HANDED_OVER),
            True,
            id="HandedOver",
        ),
        pytest.param(
            HANDED_OVER,
            Rollout(strategy=RolloutStrategy.HANDED_OVER),
            False,
            id="HandedOver, and shares are not handed over",
        ),
    ],
)
def test_it_is_read(spec: dict[str, object], rollout: Rollout, rolls_out: bool):
    pool = a_pool(**spec)
    assert (pool.rollout, pool.rolls_out) == (rollout, rolls_out)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("strategy", "handedOver", "must be one of AsIs, HandedOver, not 'handedOver'"),
        ("surge", -1, "must be an integer from 0 to 2147483647, not -1"),
        ("surge", "1", "must be an integer from 0 to 2147483647, not '1'"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object, problem: str):
    with pytest.raises(InvalidObject) as caught:
        a_pool(rollout={field: value})
    assert str(caught.value) == f"AdapterPool k/p: spec.rollout.{field}: {problem}"


def schema() -> Any:
    (crd,) = yaml.safe_load_all(CRD.read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec["properties"]["rollout"]["properties"]


def test_the_schema_has_the_strategies_and_defaults_of_the_code():
    assert schema()["strategy"]["enum"] == list(RolloutStrategy)
    defaults = {name: each["default"] for name, each in schema().items()}
    assert a_pool(rollout=defaults).rollout == Rollout()


@pytest.mark.parametrize("reason", [MoveReason.EVICTED, MoveReason.ROLLOUT])
def test_a_mark_says_why_the_pod_is_to_go(reason: MoveReason):
    mark = Eviction(1_800_000_000.0, 1_800_000_060.0, reason)
    text = encode_eviction(mark, "u")
    pod = AdapterPod(namespace="k", name="s-0", pool="k/p", ordinal=0, uid="u", evicting_text=text)
    assert eviction_of(pod) == mark


def test_a_mark_of_an_eviction_is_written_as_before():
    assert "reason" not in encode_eviction(Eviction(1.0, 2.0), "u")
