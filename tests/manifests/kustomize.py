"""What kustomize (kubectl's) makes of the base with components, brought into the form in which a
rendering of the chart is compared.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.manifests.generate import CONFIG_MAPS, MANIFESTS
from tests.manifests.patches import canonical, identity
from tests.manifests.tool import kubectl

Obj = dict[str, Any]
TIMEOUT_S: Final = 60.0
VERSION_LABEL: Final = "app.kubernetes.io/version"


def kustomized(components: Sequence[str] = ()) -> list[Obj]:
    """The objects of ``manifests/base`` with these components. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="vreplica-kustomize-") as directory:
        # kustomize takes no absolute paths.
        below = Path(os.path.relpath(MANIFESTS, Path(directory).resolve()))
        kustomization = {
            "resources": [str(below / "base")],
            "components": [str(below / "components" / name) for name in components],
        }
        (Path(directory) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        text = subprocess.run(
            [kubectl(), "kustomize", directory],
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        ).stdout
    return [obj for obj in yaml.safe_load_all(text) if obj]


def comparable(objects: Iterable[Obj]) -> dict[tuple[str, str, str], Obj]:
    """Objects by kind, namespace and name: merged lists in one order, ConfigMaps by the names that
    they have without their content's hash.

    CRDs are left out (kustomize has the files, the chart copies of them), and the data of
    ConfigMaps is read, so that comments do not count.
    """
    found = {}
    for obj in objects:
        if obj["kind"] == "CustomResourceDefinition":
            continue
        plain = canonical(_without_hashes(obj), obj["kind"])
        if obj["kind"] == "ConfigMap":
            plain["data"] = {name: yaml.safe_load(text) for name, text in obj["data"].items()}
            plain["metadata"].get("labels", {}).pop(VERSION_LABEL, None)
        found[identity(plain)] = plain
    return found


def _without_hashes(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_hashes(below) for name, below in value.items()}
    if isinstance(value, list):
        return [_without_hashes(item) for item in value]
    if isinstance(value, str) and value.rpartition("-")[0] in CONFIG_MAPS:
        return value.rpartition("-")[0]
    return value
