"""The CEL rules of our own definitions, which the embedded API server holds as the real one
does.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.kube.api import ADAPTERPOOLS, CRDS, VREPLICAQUOTAS, Invalid, Obj, PatchType
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.rules import RULES
from tests.simulation.cluster_scene import NS, a_cluster

CRD_DIR = Path(__file__).parents[2] / "manifests" / "crds"
SELECTOR = {"matchExpressions": [{"key": "a", "operator": "In"}]}
PRESET = {"preset": "knative-consumergroup"}


def shipped() -> list[Obj]:
    found = [yaml.safe_load(path.read_text()) for path in sorted(CRD_DIR.glob("*.yaml"))]
    return [obj for obj in found if obj["kind"] == "CustomResourceDefinition"]


def rules_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (
            " ".join(rule["rule"].split()) for rule in value.get("x-kubernetes-validations", ())
        )
        for inner in value.values():
            yield from rules_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from rules_in(inner)


def a_pool(**spec: object) -> Obj:
    return {"metadata": {"name": "p"}, "spec": {"statefulSet": "s", "slotsPerPod": 5, **spec}}


async def with_pools() -> Cluster:
    cluster = a_cluster()
    for definition in shipped():
        await cluster.create(CRDS, "", definition)
    return cluster


def test_each_rule_of_our_definitions_is_held_and_no_other_is_listed():
    assert {rule for definition in shipped() for rule in rules_in(definition)} == RULES.keys()


def a_source(**fields: object) -> Obj:
    paths = {"placements": "status.placements", "vreplicas": "spec.vreplicas"}
    whole = {"group": "a.dev", "version": "v1", "kind": "A", "resource": "as", "paths": paths}
    return {name: value for name, value in (whole | fields).items() if value is not None}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param(
            {"minPods": 5, "maxPods": 2},
            "spec.maxPods: Invalid value: maxPods must not be less than minPods",
            id="bounds",
        ),
        pytest.param(
            {"loadSource": "requests"},
            "spec.loadSource: Invalid value: loadSource needs rebalance.load",
            id="a source of a load that is not balanced",
        ),
        pytest.param(
            {"rollout": {"strategy": "HandedOver"}, "handoff": {"mode": "None"}},
            "spec.rollout.strategy: Invalid value: HandedOver needs handoff.mode Overlap or",
            id="a rollout without a hand-over",
        ),
        pytest.param(
            {"scaling": {"announcedReplicas": 2}},
            "spec.scaling.announcedReplicas: Invalid value: announcedReplicas needs mode External",
            id="an announcement to nobody",
        ),
        pytest.param(
            {"tenancy": {"defaultGuarantee": 3, "defaultLimit": 2}},
            "spec.tenancy.defaultGuarantee: Invalid value: defaultGuarantee must not be more than",
            id="a guarantee beyond the limit",
        ),
        pytest.param(
            {"maxPods": 2, "tenancy": {"defaultGuarantee": 11}},
            "spec.tenancy.defaultGuarantee: Invalid value: the pool can never have so many slots",
            id="a guarantee beyond the pool",
        ),
        pytest.param(
            {"namespaceSelector": SELECTOR},
            "spec.namespaceSelector.matchExpressions[0]: Invalid value: values are required with "
            "In",
            id="values",
        ),
        pytest.param(
            {"rebalance": {"load": {"metric": "m", "target": 1}}},
            "spec.rebalance.load.target: Invalid value: must be at least 1.05",
            id="an integer below a minimum that is none",
        ),
        pytest.param(
            {"sources": [PRESET | a_source()]}, "name either a preset, or group", id="both"
        ),
        pytest.param(
            {"sources": [a_source(kind=None)]}, "a resource needs group, version, kind", id="half"
        ),
        pytest.param(
            {"sources": [a_source(group="vreplica.dev")]}, "has no foreign kinds", id="ours"
        ),
        pytest.param(
            {"sources": [a_source(paths={"placements": "spec.p", "vreplicas": "spec.v"})]},
            "they must be below status",
            id="path",
        ),
        pytest.param(
            {
                "sources": [
                    a_source(
                        paths={
                            "placements": "status.p",
                            "vreplicas": "spec.v",
                            "conditions": "metadata.conditions",
                        }
                    )
                ]
            },
            "they must be below status",
            id="conditions",
        ),
    ],
)
async def test_what_a_rule_refuses_is_invalid_in_the_real_servers_words(spec: Obj, problem: str):
    cluster = await with_pools()
    with pytest.raises(Invalid, match="p") as refused:
        await cluster.create(ADAPTERPOOLS, NS, a_pool(**spec))
    assert problem in str(refused.value)


@pytest.mark.parametrize("sources", [[PRESET], [a_source()]], ids=["preset", "resource"])
async def test_what_the_rules_allow_is_stored_and_its_stateful_set_stays(sources: list[Obj]):
    cluster = await with_pools()
    await cluster.create(ADAPTERPOOLS, NS, a_pool(minPods=2, maxPods=2, sources=sources))
    with pytest.raises(
        Invalid, match=r"spec\.statefulSet: Invalid value: statefulSet cannot be changed"
    ):
        await _patch(cluster, statefulSet="other")
    await _patch(cluster, maxPods=3)


async def _patch(cluster: Cluster, **spec: object) -> None:
    await cluster.patch(ADAPTERPOOLS, NS, "p", {"spec": spec}, patch_type=PatchType.MERGE)


async def test_what_is_stored_already_is_not_held_to_a_rule_that_came_later():
    """CRDValidationRatcheting: the pool can still be changed elsewhere."""
    cluster = a_cluster()
    definition = shipped()[0]
    without = yaml.safe_load(yaml.safe_dump(definition))
    spec = without["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["x-kubernetes-validations"]
    await cluster.create(CRDS, "", without)
    await cluster.create(ADAPTERPOOLS, NS, a_pool(minPods=5, maxPods=2))
    name = definition["metadata"]["name"]
    await cluster.patch(CRDS, "", name, {"spec": definition["spec"]}, patch_type=PatchType.MERGE)
    labels = {"metadata": {"labels": {"a": "b"}}}
    await cluster.patch(ADAPTERPOOLS, NS, "p", labels, patch_type=PatchType.MERGE)
    with pytest.raises(Invalid):
        await _patch(cluster, slotsPerPod=6)


async def test_a_quota_whose_guarantee_is_beyond_its_limit_is_invalid():
    cluster = await with_pools()
    spec = {"poolRef": {"name": "p"}, "guarantee": 3, "limit": 2}
    with pytest.raises(
        Invalid, match=r"spec\.guarantee: Invalid value: guarantee must not be more"
    ):
        await cluster.create(VREPLICAQUOTAS, NS, {"metadata": {"name": "q"}, "spec": spec})
