"""The quick look at an object agrees with the one that words every violation, and is what plain
objects get.
"""

import random
from typing import Any

import pytest

from extender.lab.apiserver import field_types, schema
from extender.lab.apiserver.conforming import conforms
from extender.lab.embedded import node_object, stateful_set_object
from extender.lab.simulation.world.objects import pool_object, vpod_object
from extender.shipped import manifests

ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    7,
    2**40,
    1.5,
    "",
    "x",
    "A" * 300,
    [],
    {},
    [1, 1],
    ["a", "a"],
    {"": ""},
]


def _schema_of(path: str) -> dict[str, Any]:
    return dict(manifests(path)[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


CASES = [
    (
        _schema_of("crds/vpods.yaml"),
        {
            **vpod_object("v", 3, 2),
            "status": {
                "observedGeneration": 1,
                "scheduledVReplicas": 3,
                "placements": [
                    {"podName": "dispatcher-0", "vreplicas": 2},
                    {"podName": "dispatcher-1", "vreplicas": 1},
                ],
            },
        },
    ),
    (
        _schema_of("crds/adapterpools.yaml"),
        pool_object("p", slotsPerPod=4, maxPods=3, rebalance={"dryRun": True}),
    ),
    (
        {"type": "object", "properties": dict(field_types._FIELD_TYPES["", "nodes"])},
        node_object("n", "z", slots=3),
    ),
    (
        {"type": "object", "properties": dict(field_types._FIELD_TYPES["apps", "statefulsets"])},
        stateful_set_object("s", namespace="ns", replicas=2, pool=""),
    ),
    (
        {
            "type": "object",
            "required": ["listed"],
            "properties": {
                "listed": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "maxItems": 3,
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}},
                    },
                },
                "one": {"type": "string", "enum": ["a", "b"]},
                "share": {"type": "number", "minimum": 0},
                "either": {"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+%?$"},
            },
        },
        {"listed": [{"name": "a"}, {"name": "b"}], "one": "a", "either": "5%"},
    ),
]


def _changed(value: Any, rng: random.Random) -> Any:
    """A copy with something odd at one place."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        copy = dict(value)
        name = rng.choice(sorted(copy))
        if rng.random() < 0.15:
            del copy[name]
        else:
            copy[name] = _changed(copy[name], rng)
        return copy
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], _changed(value[at], rng), *value[at:][: rng.randrange(3)]]
    return rng.choice(ODD)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_plain_object_is_seen_to_conform_at_once(case: int) -> None:
    shape, obj = CASES[case]
    assert conforms(obj, shape, is_root=True)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_what_conforms_has_no_problems(case: int) -> None:
    shape, obj = CASES[case]
    rng = random.Random(case)
    found = 0
    for _ in range(4000):
        changed = _changed(obj, rng)
        # Who asks has seen that there is metadata.
        if (
            isinstance(changed, dict)
            and isinstance(changed.get("metadata", {}), dict)
            and conforms(changed, shape, is_root=True)
        ):
            assert not list(schema.problems(changed, shape)), changed
            found += 1
    assert found > 50
