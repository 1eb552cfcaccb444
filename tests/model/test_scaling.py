"""spec.scaling of an AdapterPool, as it is decoded."""

import pytest

from extender.model.decode import pool_from
from extender.model.errors import InvalidObject
from extender.model.objects import AdapterPool, Scaling, ScalingMode


def a_pool(**spec: object) -> AdapterPool:
    spec = {"statefulSet": "s", "slotsPerPod": 20, **spec}
    return pool_from({"metadata": {"name": "p", "namespace": "k"}, "spec": spec})


@pytest.mark.parametrize(
    ("spec", "scaling"),
    [
        pytest.param({}, Scaling(), id="absent"),
        pytest.param({"scaling": None}, Scaling(), id="null"),
        pytest.param({"scaling": {}}, Scaling(), id="empty"),
        pytest.param(
            {"scaling": {"mode": "Advise"}}, Scaling(mode=ScalingMode.ADVISE), id="a mode"
        ),
        pytest.param(
            {"scaling": {"mode": "External", "announcedReplicas": 0}},
            Scaling(mode=ScalingMode.EXTERNAL, announced_replicas=0),
            id="announced",
        ),
    ],
)
def test_it_is_read(spec: dict[str, object], scaling: Scaling):
    assert a_pool(**spec).scaling == scaling


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("mode", "external", "must be one of Managed, External, Advise, not 'external'"),
        ("announcedReplicas", -1, "must be an integer from 0 to 2147483647, not -1"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object, problem: str):
    with pytest.raises(InvalidObject) as caught:
        a_pool(scaling={field: value})
    assert str(caught.value) == f"AdapterPool k/p: spec.scaling.{field}: {problem}"
