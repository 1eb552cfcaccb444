"""What can be told of the chart without helm: its copies, versions, values and schema fit each
other and the code.
"""

import base64
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.model.names import CONFIG_API_VERSION, CONFIG_KIND
from tests.manifests.__main__ import differences
from tests.manifests.chart import CHART
from tests.manifests.generate import COMPONENTS, DERIVED, MANIFESTS, chart_files
from tests.support.configs import config_from

ROOT = Path(__file__).parents[2]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def resolved(schema: Any) -> Any:
    if "$ref" in schema:
        return SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    return schema


def closed(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All schemas of mappings whose keys are known, by path."""
    schema = resolved(schema)
    if "properties" in schema and schema.get("type") in ("object", ["object", "null"]):
        yield path, schema
        for name, below in schema["properties"].items():
            yield from closed(below, f"{path}.{name}".lstrip("."))
    if isinstance(schema.get("items"), dict):
        yield from closed(schema["items"], f"{path}[]")


def test_the_charts_copies_are_what_they_are_copies_of():
    assert chart_files()
    assert differences(chart_files(), MANIFESTS) == []


def test_chart_package_and_image_have_one_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert f"vreplica-scheduler:{version}" in (MANIFESTS / "base" / "scheduler.yaml").read_text()
    assert f"vreplica-scheduler:{version}" in (ROOT / "Makefile").read_text()


def test_that_the_chart_has_no_home_is_told_with_the_reason():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    design = (ROOT / "docs" / "design.md").read_text()
    assert "home" in chart or "Chart.yaml has no `home`" in design


def test_the_charts_icon_is_that_of_the_page():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    kind, _, content = chart["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(content) == (ROOT / "extender" / "ui" / "icon.svg").read_bytes().strip()


@pytest.mark.parametrize(
    ("path", "schema"),
    list(closed(SCHEMA)),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_key_that_is_not_known_is_refused_everywhere(path: str, schema: Any):
    # The fields of a profile are the service's to know, and a parent chart has others in global.
    if path not in {"config.profiles[]", "global"}:
        assert schema["additionalProperties"] is False


def test_every_value_is_in_the_schema_and_every_part_of_the_schema_has_a_default():
    def compare(values: Mapping[str, Any], schema: Any, path: str) -> None:
        properties = resolved(schema)["properties"]
        assert values.keys() <= properties.keys(), path
        for name, value in values.items():
            below = resolved(properties[name])
            if isinstance(value, dict) and value and "properties" in below:
                compare(value, below, f"{path}.{name}")

    compare(VALUES, SCHEMA, "")
    assert SCHEMA["properties"].keys() == VALUES.keys()
    assert set(SCHEMA["required"]) == VALUES.keys()


def test_of_the_configuration_the_values_have_all_but_what_follows_from_others():
    values = {"apiVersion": CONFIG_API_VERSION, "kind": CONFIG_KIND, **VALUES["config"]}
    config = config_from(values)
    assert config.leader_election.buckets == 1
    for path, names in DERIVED.items():
        section = SCHEMA["properties"]["config"]
        section = section["properties"][path] if path else section
        assert not section["properties"].keys() & set(names)


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.name)
def test_what_a_components_comment_names_exists(component):
    folder = MANIFESTS / "components" / component.name
    for path in re.findall(r"\.\./[\w./-]+[\w]", component.text):
        assert (folder / path).exists(), path
    for name in re.findall(r"manifests/[\w./-]+[\w]", component.text):
        assert (ROOT / name).exists(), name


def test_a_generated_file_that_was_changed_by_hand_or_is_left_over_is_told(tmp_path: Path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "a.yaml").write_text("one\n")
    (tmp_path / "base" / "old.yaml").write_text("")
    wanted = {"base/a.yaml": "two\n", "base/b.yaml": "three\n"}
    changed, new, old = differences(wanted, tmp_path)
    assert "-one" in changed
    assert "+two" in changed
    assert "+three" in new
    assert old == "base/old.yaml is not generated any more"
    (tmp_path / "base" / "old.yaml").unlink()
    for name, text in wanted.items():
        (tmp_path / name).write_text(text)
    assert differences(wanted, tmp_path) == []
