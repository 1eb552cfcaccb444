"""What becomes of renderings, told by small ones: files, additions, patches, deletions, and what
another component has done already.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from tests.manifests.generate import BASE_FILES, COMPONENTS, generated


def an_object(kind: str, name: str, **fields: Any) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields})


def config_map(name: str, **files: str) -> str:
    return an_object(
        "ConfigMap", name, data={file.replace("_", "."): text for file, text in files.items()}
    )


def a_chart(values: Mapping[str, Any]) -> dict[str, str]:
    """A chart of few words: a Role and a Secret, the Secret in one mode only; with cert-manager, a
    Certificate, and another Role.
    """
    mode = values.get("kubeScheduler", {}).get("mode", "sidecar")
    certified = values.get("certManager", {}).get("enabled", False)
    narrow = values["config"]["filter"]["narrowTo"] if "filter" in values.get("config", {}) else 0
    rendering = dict.fromkeys(BASE_FILES, an_object("Same", "same"))
    rendering["rbac-service.yaml"] = "# Why.\n" + an_object("Role", "role", rules=[str(certified)])
    rendering["service-accounts.yaml"] = an_object("Secret", "secret") if mode == "sidecar" else ""
    rendering["certificates.yaml"] = an_object("Certificate", "one") if certified else ""
    if certified and mode != "sidecar":
        rendering["certificates.yaml"] += "---\n" + an_object("Certificate", "two")
    rendering["service-config.yaml"] = config_map(
        "vreplica-scheduler-config", service_config=f"# of {mode}\nmode: x\n"
    )
    rendering["kube-scheduler-config.yaml"] = config_map(
        "vreplica-kube-scheduler-config", **{"config.yaml": f"narrow: {narrow}\n"}
    )
    return rendering


FILES = generated(a_chart)


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all(FILES[name]))


def test_a_file_of_the_base_is_its_template_with_its_comments():
    assert FILES["base/rbac-service.yaml"].splitlines()[1:3] == ["# Why.", "apiVersion: v1"]


def test_config_maps_become_files_where_kustomize_makes_them_of():
    assert FILES["base/service.config"].splitlines()[1:] == ["# of sidecar", "mode: x"]
    assert documents("kube-scheduler/config.yaml") == [{"narrow": 0}]
    assert documents("kube-scheduler/config-narrow.yaml") == [{"narrow": 16}]


def test_a_component_takes_away_what_its_values_do_not_have():
    (kustomization,) = documents("components/https/kustomization.yaml")
    (entry,) = kustomization["patches"]
    assert yaml.safe_load(entry["patch"]) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "secret"},
        "$patch": "delete",
    }
    assert "components/https/patches.yaml" not in FILES, (
        "kustomize 5.5 crashes over deletions in a file of several"
    )
    assert "components/https/resources.yaml" not in FILES


def test_a_component_adds_and_changes():
    (added,) = documents("components/cert-manager/resources.yaml")
    (patch,) = documents("components/cert-manager/patches.yaml")
    assert added["metadata"]["name"] == "one"
    assert (patch["kind"], patch["rules"]) == ("Role", ["True"])


def test_a_component_on_others_repeats_nothing_of_them():
    (added,) = documents("components/cert-manager-https/resources.yaml")
    assert added["metadata"]["name"] == "two"
    assert "components/cert-manager-https/patches.yaml" not in FILES


def test_a_changed_configuration_is_replaced_whole():
    (kustomization,) = documents("components/https/kustomization.yaml")
    (generator,) = kustomization["configMapGenerator"]
    assert (generator["behavior"], generator["files"]) == ("replace", ["service.config"])
    assert "# of existing" in FILES["components/https/service.config"]


def test_every_component_has_a_kustomization_that_lists_what_it_has():
    for component in COMPONENTS:
        folder = f"components/{component.name}"
        (kustomization,) = documents(f"{folder}/kustomization.yaml")
        listed = {
            *kustomization.get("resources", ()),
            *(each["path"] for each in kustomization.get("patches", ()) if "path" in each),
        }
        for generator in kustomization.get("configMapGenerator", ()):
            listed |= set(generator["files"])
        assert {f"{folder}/{name}" for name in listed} | {f"{folder}/kustomization.yaml"} == {
            name for name in FILES if name.startswith(f"{folder}/")
        }
