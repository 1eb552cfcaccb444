"""The committed list is what the locks say, whole, and the same for everybody."""

import json
import re

from tests.supply import sbom
from tests.supply.locks import canonical, locked

LIST = json.loads(sbom.FILE.read_text())
COMPONENTS = {each["name"]: each for each in LIST["components"]}


def test_the_committed_list_is_made_of_these_locks():
    assert sbom.FILE.read_text() == sbom.text(), "make sbom"


def test_it_says_nothing_of_when_and_by_whom_it_was_made():
    assert "timestamp" not in LIST["metadata"]
    assert "serialNumber" not in LIST
    assert (LIST["bomFormat"], LIST["specVersion"]) == ("CycloneDX", "1.6")


def test_every_locked_package_is_in_it_with_its_hashes():
    for scope, packages in (("required", locked("image")), ("optional", sbom.extras()["otel"])):
        for each in packages:
            component = COMPONENTS[each.name]
            told = {
                found["content"]
                for ref in component["externalReferences"]
                for found in ref["hashes"]
            }
            assert component["version"] == each.version
            assert told == set(each.hashes)
            assert component["purl"] == f"pkg:pypi/{canonical(each.name)}@{each.version}"
            assert component["scope"] in {"required", scope}
    required = {name for name, each in COMPONENTS.items() if each["scope"] == "required"}
    assert required == {each.name for each in locked("image")} | {"docker.io/library/python"}


def test_every_package_has_a_license():
    assert [
        name
        for name, each in COMPONENTS.items()
        if each["type"] == "library" and "licenses" not in each
    ] == []


def test_the_base_is_in_it_by_its_digest():
    base = COMPONENTS["docker.io/library/python"]
    assert re.fullmatch(r"[0-9a-f]{64}", base["hashes"][0]["content"])
    assert base["hashes"][0]["content"] in base["purl"]


def test_what_needs_what_begins_with_us_and_reaches_all():
    needs = {each["ref"]: each["dependsOn"] for each in LIST["dependencies"]}
    reached, left = set(), [LIST["metadata"]["component"]["bom-ref"]]
    while left:
        ref = left.pop()
        if ref not in reached:
            reached.add(ref)
            left += needs[ref]
    assert reached == set(needs)
    assert reached - {LIST["metadata"]["component"]["bom-ref"]} == {
        each["bom-ref"] for each in COMPONENTS.values()
    }


def test_a_changed_lock_is_another_list(monkeypatch):
    def newer(name):
        packages = locked(name)
        packages[0].version += ".1"
        return packages

    monkeypatch.setattr(sbom, "locked", newer)
    assert sbom.text() != sbom.FILE.read_text()
