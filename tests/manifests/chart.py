"""The chart's rendering: by helm itself, from values, into the text and the objects of each
template.

What only a Helm release has is taken off by ``plain``: the labels that name the release, and the
annotation that has pods replaced when their configuration changes (kustomize gives a ConfigMap
another name instead). Comments stay.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.manifests.tool import helm

Obj = dict[str, Any]
Values = Mapping[str, Any]
Rendering = Mapping[str, str]
"""Text by the template's file name (``scheduler.yaml``)."""

CHART: Final = Path(__file__).parents[2] / "manifests" / "helm" / "vreplica-scheduler"
NAMESPACE: Final = "vreplica-system"
RELEASE: Final = "vreplica-scheduler"
KUBE_VERSION: Final = "v1.36.3"
"""Of the cluster that is rendered for: it is the version of the second kube-scheduler."""
RENDER_TIMEOUT_S: Final = 60.0
_OF_A_RELEASE: Final = re.compile(
    r"^ *(app\.kubernetes\.io/(instance|managed-by)|helm\.sh/chart): .*\n"
    r"|^ *annotations:\n *checksum/config: [0-9a-f]{64}\n(?! {8}\S)"
    r"|^# Source: .*\n",
    re.MULTILINE,
)


_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, where PyYAML has it: the chart is 7,000 lines with its CRDs."""


def _load(text: str) -> Any:
    return yaml.load(text, Loader=_LOADER)


class RenderFailed(Exception):
    """helm refused the values or a template; the text is what it said."""


def run_helm(*arguments: str | Path, timeout_s: float = RENDER_TIMEOUT_S) -> str:
    """What a helm command printed. Raises RenderFailed with its words, ToolUnavailable where there
    is no helm.
    """
    with tempfile.TemporaryDirectory(prefix="vreplica-helm-") as home:
        # A helm of its own: no repository, plug-in or cache of whoever runs this.
        places = {
            f"HELM_{what}_HOME": f"{home}/{what.lower()}" for what in ("CACHE", "CONFIG", "DATA")
        }
        done = subprocess.run(
            [helm(), *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env={"PATH": "/usr/bin:/bin", "HOME": home, **places},
        )
    if done.returncode != 0:
        raise RenderFailed(done.stderr.strip())
    return done.stdout


def render(
    values: Values | None = None,
    *,
    namespace: str = NAMESPACE,
    release: str = RELEASE,
    hooks: bool = False,
) -> Rendering:
    """``helm template`` with these values. ``hooks``: with the tests' pods."""
    with tempfile.TemporaryDirectory(prefix="vreplica-chart-") as directory:
        file = Path(directory) / "values.yaml"
        file.write_text(yaml.safe_dump(dict(values or {})))
        out = Path(directory) / "out"
        run_helm(
            *("template", release, CHART, "--namespace", namespace, "--values", file),
            *("--kube-version", KUBE_VERSION, "--output-dir", out),
            *(() if hooks else ("--no-hooks",)),
        )
        return {path.name: path.read_text() for path in sorted(out.rglob("*.yaml"))}


def plain(text: str) -> str:
    """A template's text without what only a Helm release has."""
    return _OF_A_RELEASE.sub("", text)


def documents(text: str) -> Iterator[str]:
    """The documents of a file, as text; those without an object are left out."""
    for document in re.split(r"(?m)^---\s*\n", text):
        if _load(document):
            yield document.strip("\n") + "\n"


def objects(rendering: Rendering) -> list[Obj]:
    """All objects of a rendering, without what only a Helm release has."""
    texts = (document for text in rendering.values() for document in documents(plain(text)))
    return [_load(text) for text in texts]
