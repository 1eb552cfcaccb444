"""What is generated from the chart, as file contents: nothing here writes.

    chart, values of the base ------> manifests/base/*.yaml,
                                      manifests/kube-scheduler/{config,kubeconfig}.yaml
    chart, values of a component ---> what differs from its ground:
                                      manifests/components/NAME/{resources,patches}.yaml
    manifests/crds/*.yaml ----------> the chart's files/crds/*.yaml: the other way round, they are
                                      written by hand
    the configuration's schema -----> ``config`` of the chart's values.schema.json; the rest of that
                                      is written by hand, too

Theory of operation. A ConfigMap of the chart becomes files and a ``configMapGenerator`` in
kustomize, which names it by its content, so that pods are replaced when it changes. A component
holds the objects that its values add, patches of those that they change, and ``$patch: delete`` of
those that they take away: each in an entry of its own, as kustomize 5.5 (kubectl 1.32) panics over
several in one file. It builds on a ground (the base, or the base with other components), and what
the components below it have done already is not repeated. ``tests/e2e/test_chart.py`` holds that
kustomize makes of base and components what helm makes of the values.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from extender.config.schema import config_schema
from tests.manifests.chart import NAMESPACE, Obj, Rendering, Values, documents, objects, plain
from tests.manifests.patches import identity, is_removal, patch_of, removal_of

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
CHART_FOLDER: Final = "helm/vreplica-scheduler"
BASE_VALUES: Final[Values] = {
    # kustomize has the CRDs as files, and makes the namespace itself; helm's tests are helm's.
    "crds": {"install": False},
    "namespace": {"create": True},
    "tests": {"enabled": False},
}
BASE_FILES: Final = (
    "namespace.yaml",
    "priority-class.yaml",
    "service-accounts.yaml",
    "lease.yaml",
    "rbac-service.yaml",
    "rbac-sources.yaml",
    "rbac-kube-scheduler.yaml",
    "rbac-webhook.yaml",
    "rbac-tenants.yaml",
    "scheduler.yaml",
    "webhook-upkeep.yaml",
    "webhook.yaml",
    "network-policies.yaml",
    "webhook-configurations.yaml",
    "admission-policies.yaml",
)
"""In the order in which they are applied."""
CONFIG_MAPS: Final[Mapping[str, str]] = {
    "vreplica-scheduler-config": "base",
    "vreplica-kube-scheduler-config": "kube-scheduler",
}
"""Name to the folder whose files it is made of."""
DERIVED: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("apiVersion", "kind", "slotsResource", "schedule"),
    "server": ("port", "healthPort", "healthMetrics", "insecure", "tls"),
    "leaderElection": ("resourceNamespace", "resourceName"),
}
"""Settings that follow from other values of the chart, by section: nobody can give them twice."""
_NOTE: Final = "# Generated from the Helm chart by `make manifests`: change the chart.\n"
_FIRST: Final = (
    "Namespace",
    "PriorityClass",
    "ServiceAccount",
    "Secret",
    "Deployment",
    "PodDisruptionBudget",
    "Service",
)
"""Kinds that come before others of their file: what is needed first, then what runs. The rest
follows by name of the kind.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """``values``: what the ground is rendered with besides the base's own, and the component on top
    of it.
    """

    name: str
    text: str
    """The comment of its kustomization."""
    values: Values
    ground: tuple[str, ...] = ()
    """Components that have to stand before it in a kustomization."""
    ground_values: Values = field(default_factory=dict)
    configuration: bool = True
    """Whether it replaces ConfigMaps that its values change."""


def _merged(*parts: Values) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            below = merged.get(name)
            merged[name] = (
                _merged(below, value)
                if isinstance(below, Mapping) and isinstance(value, Mapping)
                else value
            )
    return merged


EXISTING: Final[Values] = {"kubeScheduler": {"mode": "existing"}}
OWN: Final[Values] = {"kubeScheduler": {"mode": "deployment"}}
CERT_MANAGER: Final[Values] = {"certManager": {"enabled": True}}
BUCKETS: Final = 4

COMPONENTS: Final = (
    Component(
        name="https",
        values=EXISTING,
        text="""\
For a kube-scheduler that runs elsewhere, with ../../kube-scheduler/config-https.yaml: the extender
listens beyond loopback, over TLS, for clients on its list only; the kube-scheduler beside it is
left out. In a kustomization of yours:
  resources: [manifests/base]
  components: [manifests/components/https]
It wants a Secret of yours (by hand, or by ../cert-manager and ../cert-manager-https); a renewed one
is used without a restart:
  kubectl -n vreplica-system create secret generic vreplica-extender-tls \\
    --from-file=tls.crt --from-file=tls.key --from-file=client-ca.crt
tls.crt: for vreplica-scheduler.vreplica-system.svc. client-ca.crt: the CA of kube-scheduler's
client certificate, best one for this purpose alone.""",
    ),
    Component(
        name="kube-scheduler",
        values=OWN,
        text="""\
The second kube-scheduler in a Deployment of its own, which calls the extender over TLS. Besides the
Secret that ../https tells of it wants one with kube-scheduler's client certificate, common name
vreplica-kube-scheduler, and the extender's authority:
  kubectl -n vreplica-system create secret generic vreplica-kube-scheduler-tls \\
    --from-file=ca.crt --from-file=tls.crt --from-file=tls.key""",
    ),
    Component(
        name="cert-manager",
        values=CERT_MANAGER,
        text="The webhook's certificate and caBundle by cert-manager, which has to be installed, "
        "from an authority of our own.",
    ),
    Component(
        name="cert-manager-https",
        values=_merged(EXISTING, CERT_MANAGER),
        ground=("https", "cert-manager"),
        ground_values=EXISTING,
        text="""\
With ../cert-manager and one of ../https and ../kube-scheduler, which stand before it: the
certificates of the extender and of kube-scheduler, too.""",
    ),
    Component(
        name="knative",
        values={"sources": {"knative": True}},
        text="""\
For pools with the sources knative-consumergroup or knative-kafkasource: the rights to Knative's
kinds. In a kustomization of yours:   components: [manifests/components/knative]""",
    ),
    Component(
        name="buckets",
        values={"config": {"leaderElection": {"buckets": BUCKETS}}},
        configuration=False,
        text=f"""\
For many busy pools: replicas of the service share them, in four buckets with a Lease each. In a
kustomization of yours:
  resources: [manifests/base]
  components: [manifests/components/buckets]
and in the service's configuration (service-config.yaml):
  leaderElection: {{..., buckets: {BUCKETS}}}
Another number: as many Leases, named as below, in both files (or the chart, which makes them).
docs/scaling-out.md says what a good number is.""",
    ),
)


def generated(render: Callable[[Values], Rendering]) -> dict[str, str]:
    """All generated files, content by path below ``manifests``. ``render``: ``chart.render``."""
    base = render(BASE_VALUES)
    files = {f"base/{name}": _base_file(base[name]) for name in BASE_FILES}
    files["base/kustomization.yaml"] = _base_kustomization()
    files |= _configuration(base, {})
    narrow = render(_merged(BASE_VALUES, {"config": {"filter": {"narrowTo": 16}}}))
    files["kube-scheduler/config-narrow.yaml"] = (
        _NOTE + _config_maps(narrow)["vreplica-kube-scheduler-config"]["config.yaml"]
    )
    for component in COMPONENTS:
        files |= _component(component, base, render)
    return files | chart_files()


def chart_files() -> dict[str, str]:
    """What the chart has of elsewhere, content by path below ``manifests``."""
    crds = sorted((MANIFESTS / "crds").glob("*.yaml"))
    return {f"{CHART_FOLDER}/values.schema.json": _values_schema()} | {
        f"{CHART_FOLDER}/files/crds/{path.name}": path.read_text()
        for path in crds
        if path.name != "kustomization.yaml"
    }


def _values_schema() -> str:
    """The file as it is, with the configuration's own schema less what follows from other
    values.
    """
    schema = json.loads((MANIFESTS / CHART_FOLDER / "values.schema.json").read_text())
    config = config_schema()
    for path, names in DERIVED.items():
        section = config["properties"][path] if path else config
        for name in names:
            del section["properties"][name]
    # What it says of those settings together.
    del config["properties"]["server"]["allOf"]
    schema["properties"]["config"] = {
        "description": f"{config['title']}, without what follows from other values.",
        "type": "object",
        "required": ["mode", "leaderElection"],
        "properties": config["properties"],
        "additionalProperties": False,
    }
    return json.dumps(schema, indent=2) + "\n"


def _base_file(text: str) -> str:
    found = [(document, yaml.safe_load(document)) for document in documents(plain(text))]
    names = [obj["metadata"]["name"] for _, obj in found]

    def order(entry: tuple[str, Obj]) -> tuple[int, str]:
        obj = entry[1]
        if obj["kind"].startswith("ValidatingAdmissionPolicy"):
            # A policy and its binding stay side by side.
            return names.index(obj["metadata"]["name"]), obj["kind"]
        return _by_kind(obj)

    return _NOTE + "---\n".join(document for document, _ in sorted(found, key=order))


def _by_kind(obj: Mapping[str, Any]) -> tuple[int, str]:
    """An order of its own: that of helm's output is helm's to change."""
    kind = str(obj["kind"])
    return (_FIRST.index(kind) if kind in _FIRST else len(_FIRST)), kind


def _base_kustomization() -> str:
    resources = "".join(f"  - {name}\n" for name in ("../crds", "../kube-scheduler", *BASE_FILES))
    return f"""{_NOTE}\
# The default installation: the extender and a second kube-scheduler in one pod, and the webhook.
# Nothing of the cluster's own kube-scheduler is touched.   kubectl apply -k manifests/base
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
{resources}configMapGenerator:
  - name: vreplica-scheduler-config
    namespace: {NAMESPACE}
    files: [service-config.yaml]
labels:
  - pairs:
      app.kubernetes.io/part-of: vreplica-scheduler
"""


def _config_maps(rendering: Rendering) -> dict[str, dict[str, str]]:
    return {
        obj["metadata"]["name"]: obj["data"]
        for obj in objects(rendering)
        if obj["kind"] == "ConfigMap"
    }


def _configuration(
    rendering: Rendering, before: Mapping[str, Mapping[str, str]], folder: str = ""
) -> dict[str, str]:
    """Files of the ConfigMaps that are not as ``before``."""
    return {
        f"{folder or CONFIG_MAPS[name]}/{file}": _NOTE + text
        for name, data in _config_maps(rendering).items()
        if data != before.get(name)
        for file, text in data.items()
    }


def _component(
    component: Component, base: Rendering, render: Callable[[Values], Rendering]
) -> dict[str, str]:
    folder = f"components/{component.name}"
    after = render(_merged(BASE_VALUES, component.values))
    before = (
        render(_merged(BASE_VALUES, component.ground_values)) if component.ground_values else base
    )
    done = (
        [] if not component.ground else _changes(base, render(_merged(BASE_VALUES, CERT_MANAGER)))
    )
    changes = [change for change in _changes(before, after) if change not in done]
    added = [obj for obj, is_patch in changes if not is_patch]
    patches = [obj for obj, is_patch in changes if is_patch and not is_removal(obj)]
    removals = [obj for obj, is_patch in changes if is_patch and is_removal(obj)]
    files: dict[str, str] = {}
    if component.configuration:
        files |= _configuration(after, _config_maps(before), folder)
    config_maps = {
        name: sorted(data)
        for name, data in _config_maps(after).items()
        if component.configuration and data != _config_maps(before).get(name)
    }
    if added:
        files[f"{folder}/resources.yaml"] = _NOTE + _dumped(added)
    if patches:
        files[f"{folder}/patches.yaml"] = _NOTE + _dumped(patches)
    files[f"{folder}/kustomization.yaml"] = _component_kustomization(
        component,
        resources=bool(added),
        patches=bool(patches),
        removals=removals,
        config_maps=config_maps,
    )
    return files


def _component_kustomization(
    component: Component,
    *,
    resources: bool,
    patches: bool,
    removals: Iterable[Obj],
    config_maps: Mapping[str, Iterable[str]],
) -> str:
    document: Obj = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
    if resources:
        document["resources"] = ["resources.yaml"]
    if config_maps:
        document["configMapGenerator"] = [
            {"name": name, "namespace": NAMESPACE, "behavior": "replace", "files": list(names)}
            for name, names in config_maps.items()
        ]
    applied: list[Obj] = [{"path": "patches.yaml"}] if patches else []
    applied += [{"patch": _dumped([removal])} for removal in sorted(removals, key=_by_kind)]
    if applied:
        document["patches"] = applied
    comment = "".join(f"# {line}\n" for line in component.text.splitlines())
    return _NOTE + comment + _dumped([document])


def _changes(before: Rendering, after: Rendering) -> list[tuple[Obj, bool]]:
    """From one rendering to the other: (object, False) to add, (patch, True) to apply. ConfigMaps
    that stay are files, not here.
    """
    had = {identity(obj): obj for obj in objects(before)}
    has = {identity(obj): obj for obj in objects(after)}
    changes: list[tuple[Obj, bool]] = []
    for key, obj in has.items():
        if key not in had:
            changes.append((obj, False))
        elif key[0] != "ConfigMap" and (patch := patch_of(had[key], obj)):
            changes.append((patch, True))
    return changes + [(removal_of(obj), True) for key, obj in had.items() if key not in has]


class _Readable(yaml.SafeDumper):
    """Scripts as blocks; each object written out, without anchors."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _text)


def _dumped(objects_: Iterable[Obj]) -> str:
    ordered = sorted(objects_, key=_by_kind)
    return "---\n".join(
        yaml.dump(obj, Dumper=_Readable, sort_keys=False, width=120) for obj in ordered
    )
