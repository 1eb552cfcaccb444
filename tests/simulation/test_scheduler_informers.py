"""A pod that is parsed only in part, because its spec is as it was, reads as one that is parsed
anew.
"""

from dataclasses import fields
from typing import Any

import pytest

from extender.lab.scheduler.informers import _parsed
from extender.lab.scheduler.types import pod_info

POD: dict[str, Any] = {
    "metadata": {
        "namespace": "ns",
        "name": "p-0",
        "uid": "u1",
        "resourceVersion": "7",
        "labels": {"app": "p"},
    },
    "spec": {
        "schedulerName": "s",
        "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "100m"}}, "ports": [{"hostPort": 80}]}
        ],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
    "status": {"phase": "Pending"},
}
CHANGES: list[dict[str, Any]] = [
    {"metadata": {**POD["metadata"], "resourceVersion": "8", "labels": {"app": "q"}}},
    {"metadata": {**POD["metadata"], "uid": "u2"}},
    {"metadata": {**POD["metadata"], "deletionTimestamp": "2027-01-01T00:00:00Z"}},
    {"status": {"phase": "Running", "startTime": "2027-01-01T00:00:00Z", "nominatedNodeName": "n"}},
    {"spec": {**POD["spec"], "nodeName": "n1"}},
    {"spec": {**POD["spec"], "containers": []}},
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_parsed_in_part_is_what_is_parsed_anew(change: dict[str, Any]) -> None:
    before, obj = pod_info(POD), {**POD, **change}
    found, expected = _parsed(obj, before), pod_info(obj)
    for field in fields(expected):
        assert repr(getattr(found, field.name)) == repr(getattr(expected, field.name)), field.name
