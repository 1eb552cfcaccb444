"""The component for buckets: a Lease for each, and the right to it."""

from pathlib import Path
from typing import Any

import yaml

from extender.model.bucket import Bucket
from extender.model.names import LEASE_NAME

MANIFESTS = Path(__file__).parents[2] / "manifests"
COMPONENT = MANIFESTS / "components" / "buckets"
TOTAL = 4


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def of_kind(kind: str) -> list[Any]:
    return [obj for obj in documents(COMPONENT / "resources.yaml") if obj["kind"] == kind]


def names() -> list[str]:
    return [Bucket(index, TOTAL).lease_name(LEASE_NAME) for index in range(TOTAL)]


def test_with_the_bases_lease_every_bucket_has_one_that_nobody_has_held():
    leases = [*documents(MANIFESTS / "base" / "lease.yaml"), *of_kind("Lease")]
    assert [lease["metadata"]["name"] for lease in leases] == names()
    assert {lease["metadata"]["namespace"] for lease in leases} == {"vreplica-system"}
    assert not any(lease.get("spec") for lease in leases)


def test_the_service_may_read_and_write_those_leases_and_no_others():
    [role], [binding] = of_kind("Role"), of_kind("RoleBinding")
    assert [(rule["resourceNames"], rule["verbs"]) for rule in role["rules"]] == [
        (names()[1:], ["get", "update"])
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == ["vreplica-scheduler"]


def test_the_comment_tells_the_number_that_the_leases_are_for():
    assert f"buckets: {TOTAL}" in (COMPONENT / "kustomization.yaml").read_text()
