"""The presets agree with Knative's definitions, with the rights that the manifests give, and with
the pool's schema.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.model.foreign_kinds import PRESETS, SOURCES_MAX, sources_from
from extender.model.objects import Source

MANIFESTS = Path(__file__).parents[2] / "manifests"
KNATIVE = Path(__file__).parent / "knative"
COMPONENT = MANIFESTS / "components" / "knative"


def documents(path: Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def definition(source: Source) -> Any:
    [found] = documents(KNATIVE / f"{source.resource}.yaml")
    return found["spec"]


def item_schema() -> Any:
    [pool] = documents(MANIFESTS / "crds" / "adapterpools.yaml")
    schema = pool["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema["properties"]["sources"]


@pytest.mark.parametrize("preset", sorted(PRESETS))
class TestPresets:
    def test_the_kind_is_where_the_preset_looks_for_it(self, preset):
        source = PRESETS[preset]
        spec = definition(source)
        assert (spec["group"], spec["scope"]) == (source.group, "Namespaced")
        assert (spec["names"]["plural"], spec["names"]["kind"]) == (source.resource, source.kind)
        assert {version["name"] for version in spec["versions"]} <= set(source.versions)

    def test_vreplicas_are_what_its_scale_subresource_changes(self, preset):
        source = PRESETS[preset]
        for version in definition(source)["versions"]:
            assert version["subresources"]["scale"]["specReplicasPath"] == "." + ".".join(
                source.paths.vreplicas
            )
            assert "status" in version["subresources"]

    def test_the_component_gives_the_rights_that_it_needs_and_no_others(self, preset):
        source = PRESETS[preset]
        [role] = documents(COMPONENT / "resources.yaml")
        rights = {
            resource: rule["verbs"]
            for rule in role["rules"]
            if rule["apiGroups"] == [source.group]
            for resource in rule["resources"]
        }
        assert rights == {
            source.resource: ["list", "watch"],
            f"{source.resource}/status": ["patch"],
        }

    def test_the_pools_schema_names_it(self, preset):
        assert preset in item_schema()["items"]["properties"]["preset"]["description"]


def test_the_components_role_is_added_to_the_one_that_the_service_is_bound_to():
    [kustomization] = documents(COMPONENT / "kustomization.yaml")
    [role] = documents(COMPONENT / "resources.yaml")
    aggregated, binding = documents(MANIFESTS / "base" / "rbac-sources.yaml")
    assert (kustomization["kind"], kustomization["resources"]) == ("Component", ["resources.yaml"])
    [selector] = aggregated["aggregationRule"]["clusterRoleSelectors"]
    assert selector["matchLabels"].items() <= role["metadata"]["labels"].items()
    assert "rules" not in aggregated, "Kubernetes writes them"
    assert binding["roleRef"]["name"] == aggregated["metadata"]["name"]


def test_the_schema_has_every_path_that_is_read_and_the_same_defaults():
    schema = item_schema()
    assert schema["maxItems"] == SOURCES_MAX
    paths = schema["items"]["properties"]["paths"]["properties"]
    below_status = {"placements", "scheduledVReplicas", "conditions"}
    full = {
        name: inner.get("default", f"{'status' if name in below_status else 'spec'}.{name.lower()}")
        for name, inner in paths.items()
    }
    place = {"group": "x.dev", "version": "v1", "resource": "xs", "kind": "X"}
    (source,), problems = sources_from([{**place, "paths": full}])
    assert problems == ()
    minimal = {name: full[name] for name in schema["items"]["properties"]["paths"]["required"]}
    (plain,), problems = sources_from([{**place, "paths": minimal}])
    assert problems == ()
    assert (plain.paths.pod_name, plain.paths.count) == (source.paths.pod_name, source.paths.count)
    assert plain.write_status is schema["items"]["properties"]["writeStatus"]["default"]
