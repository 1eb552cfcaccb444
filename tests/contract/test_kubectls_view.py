"""What kubectl makes of our kinds: columns, ``explain``, conditions to wait for, and server-side
apply, by their definitions.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.lab.http.table import json_path
from tests.contract.test_manifests import documents

CRDS = Path(__file__).parents[2] / "manifests" / "crds"
PLURALS = ("adapterpools", "vpods")
SIMPLE = re.compile(r"(\.[A-Za-z]+|\[\?\(@\.type==\"[A-Za-z]+\"\)\])+")


def definition(plural: str) -> dict[str, Any]:
    [crd] = documents(CRDS / f"{plural}.yaml")
    spec: dict[str, Any] = crd["spec"]
    return spec


def schema_of(plural: str) -> dict[str, Any]:
    [version] = definition(plural)["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def columns_of(plural: str) -> list[dict[str, Any]]:
    [version] = definition(plural)["versions"]
    columns: list[dict[str, Any]] = version["additionalPrinterColumns"]
    return columns


def fields_of(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields_of(field, f"{path}.{name}")
    if "items" in schema:
        yield from fields_of(schema["items"], f"{path}[]")


@pytest.mark.parametrize(
    ("plural", "singular", "short"),
    [("adapterpools", "adapterpool", "apool"), ("vpods", "vpod", "vpod")],
)
def test_each_kind_has_a_short_name_and_is_in_the_category(plural: str, singular: str, short: str):
    names = definition(plural)["names"]
    assert (names["singular"], names["shortNames"], names["categories"]) == (
        singular,
        [short],
        ["vreplica"],
    )


@pytest.mark.parametrize("plural", PLURALS)
def test_kubectl_explain_has_a_sentence_for_every_field(plural: str):
    # The API server itself explains these three.
    given = {".apiVersion", ".kind", ".metadata"}
    silent = [path for path, field in fields_of(schema_of(plural)) if not field.get("description")]
    assert [path for path in silent if path not in given] == []


@pytest.mark.parametrize("plural", PLURALS)
def test_a_column_shows_one_value_that_the_schema_has_and_says_what_it_is(plural: str):
    """The API server prints the first of several values and no more: a column over a list would
    mislead.
    """
    fields = {re.sub(r"\[\]", "", path) for path, _ in fields_of(schema_of(plural))}
    for column in columns_of(plural):
        path = column["jsonPath"]
        assert SIMPLE.fullmatch(path), path
        if not path.startswith(".metadata."):
            assert re.sub(r"\[[^]]*\]", "", path) in fields
            assert column["description"]


def test_a_row_of_get_vpods_tells_whether_all_is_well():
    vpod = yaml.safe_load("""
      spec: {poolRef: {name: dispatcher}, vreplicas: 8}
      status:
        scheduledVReplicas: 5
        readyVReplicas: 3
        conditions:
          - {type: Moved, status: "True"}
          - {type: Scheduled, status: "False", reason: InsufficientSlots}
          - {type: Available, status: "False", reason: PodNotReady}
    """)
    shown = {
        column["name"]: json_path(vpod, column["jsonPath"])
        for column in columns_of("vpods")
        if not column.get("priority")
    }
    assert shown == {
        "Pool": "dispatcher",
        "VReplicas": 8,
        "Placed": 5,
        "Ready": 3,
        "Scheduled": "False",
        "Reason": "InsufficientSlots",
        "Available": "PodNotReady",
        "Age": None,
    }


def test_a_row_of_get_adapterpools_tells_whether_all_is_served_beside_whether_it_takes_more():
    pool = yaml.safe_load("""
      spec: {statefulSet: dispatcher}
      status:
        pods: 3
        slots: 60
        usedSlots: 40
        freeSlots: 0
        closedSlots: 20
        pendingVReplicas: 0
        unservedVReplicas: 14
        conditions:
          - {type: Ready, status: "True"}
          - {type: Available, status: "False", reason: NodeLost}
    """)
    shown = {
        column["name"]: json_path(pool, column["jsonPath"])
        for column in columns_of("adapterpools")
        if not column.get("priority")
    }
    assert list(shown)[-4:] == ["Unserved", "Available", "Ready", "Age"]
    assert (shown["Unserved"], shown["Available"], shown["Ready"]) == (14, "NodeLost", "True")


@pytest.mark.parametrize(
    ("plural", "path", "keys"),
    [
        ("vpods", ".status.conditions", ["type"]),
        ("vpods", ".status.placements", ["podName"]),
        ("adapterpools", ".status.conditions", ["type"]),
    ],
)
def test_an_entry_of_a_list_that_several_write_is_owned_by_itself(
    plural: str, path: str, keys: list[str]
):
    field = dict(fields_of(schema_of(plural)))[path]
    assert (field["x-kubernetes-list-type"], field["x-kubernetes-list-map-keys"]) == ("map", keys)


@pytest.mark.parametrize("plural", PLURALS)
def test_no_list_is_left_without_a_type(plural: str):
    """Without one the whole list is a new owner's at each apply, silently."""
    lists = {
        path: field for path, field in fields_of(schema_of(plural)) if field.get("type") == "array"
    }
    assert [path for path, field in lists.items() if "x-kubernetes-list-type" not in field] == []
