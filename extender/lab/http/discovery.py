"""Discovery: /version, the legacy discovery documents, and a minimal OpenAPI v3.

kubectl looks in OpenAPI whether the PATCH of a kind takes ``fieldValidation``. If so, it leaves
validation to the server and does not fetch schemas. ``kubectl explain`` reads the schemas, which
only custom kinds have. There is no aggregated discovery: clients fall back when the answer does not
have the type that they requested.
"""

from collections.abc import Iterable
from typing import Final

from extender.kube.api import PODS, Obj
from extender.lab.apiserver.core_events import CORE_EVENTS
from extender.lab.apiserver.registry import Kind, Registry
from extender.lab.apiserver.statuses import no_such_resource

VERSION: Final[Obj] = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0-embedded",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_READ_VERBS: Final = ("delete", "deletecollection", "get", "list", "watch")


def document(registry: Registry, steps: list[str]) -> Obj:
    """Return the discovery document at a path. Raises NotFound."""
    found: Obj
    match steps:
        case ["version"]:
            found = VERSION
        case ["api"]:
            found = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            found = groups(registry)
        case ["apis", name]:
            found = group(registry, name)
        case ["api", version]:
            found = resources(registry, "", version)
        case ["apis", name, version]:
            found = resources(registry, name, version)
        case ["openapi", "v3"]:
            found = openapi_index(registry)
        case ["openapi", "v3", "api", version]:
            found = openapi(registry, "", version)
        case ["openapi", "v3", "apis", name, version]:
            found = openapi(registry, name, version)
        case _:
            raise no_such_resource()
    return found


def groups(registry: Registry) -> Obj:
    """/apis."""
    versions = dict.fromkeys(
        (kind.resource.group, kind.resource.version)
        for kind in registry.kinds()
        if kind.resource.group
    )
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(*pair) for pair in versions],
    }


def _group(group: str, version: str) -> Obj:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def group(registry: Registry, name: str) -> Obj:
    """/apis/GROUP. Raises NotFound."""
    for kind in registry.kinds():
        if name and kind.resource.group == name:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, kind.resource.version)}
    raise no_such_resource()


def resources(registry: Registry, group_name: str, version: str) -> Obj:
    """/api/v1 and /apis/GROUP/VERSION. Raises NotFound."""
    kinds = _kinds_of(registry, group_name, version)
    listed = [entry for kind in kinds for entry in _resource_entries(kind)]
    if not group_name:
        listed.append(
            {
                "name": "events",
                "singularName": "event",
                "namespaced": True,
                "kind": CORE_EVENTS.kind,
                "verbs": list(_READ_VERBS),
                "shortNames": ["ev"],
            }
        )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group_name}/{version}" if group_name else version,
        "resources": listed,
    }


def _kinds_of(registry: Registry, group_name: str, version: str) -> list[Kind]:
    found = [kind for kind in registry.kinds() if _is_of(kind, group_name, version)]
    if not found:
        raise no_such_resource()
    return found


def _is_of(kind: Kind, group_name: str, version: str) -> bool:
    return (kind.resource.group, kind.resource.version) == (group_name, version)


def _resource_entries(kind: Kind) -> Iterable[Obj]:
    resource = kind.resource
    entry: Obj = {
        "name": resource.plural,
        "singularName": kind.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(_VERBS),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    yield entry
    sub = {"singularName": "", "namespaced": resource.namespaced}
    if kind.status:
        yield {
            **sub,
            "name": f"{resource.plural}/status",
            "kind": resource.kind,
            "verbs": ["get", "patch", "update"],
        }
    if kind.scale is not None:
        yield {
            **sub,
            "name": f"{resource.plural}/scale",
            "kind": "Scale",
            "group": "autoscaling",
            "version": "v1",
            "verbs": ["get", "patch", "update"],
        }
    if resource == PODS:
        yield {**sub, "name": "pods/binding", "kind": "Binding", "verbs": ["create"]}
        yield {
            **sub,
            "name": "pods/eviction",
            "kind": "Eviction",
            "group": "policy",
            "version": "v1",
            "verbs": ["create"],
        }


def openapi_index(registry: Registry) -> Obj:
    """/openapi/v3."""
    paths = dict.fromkeys(kind.resource.path.lstrip("/") for kind in registry.kinds())
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def openapi(registry: Registry, group_name: str, version: str) -> Obj:
    """Return /openapi/v3/PATH: each kind's PATCH parameters and schema. Raises NotFound."""
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    paths: Obj = {}
    schemas: Obj = {}
    for kind in _kinds_of(registry, group_name, version):
        resource = kind.resource
        middle = "/namespaces/{namespace}" if resource.namespaced else ""
        gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        schemas[f"{resource.group}.{resource.version}.{resource.kind}".lstrip(".")] = _schema(kind)
        paths[f"{resource.path}{middle}/{resource.plural}/{{name}}"] = {
            "patch": {
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": gvk,
                "parameters": parameters,
                "responses": {"200": {"description": "OK"}},
            }
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema(kind: Kind) -> Obj:
    """Return a custom kind's schema. A built-in kind has only a description."""
    resource = kind.resource
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    described: Obj = {
        "description": f"{resource.kind}: the embedded cluster describes no built-in kind."
    }
    own = kind.schema if kind.schema is not None else described
    properties = {
        **{name: {"type": "string"} for name in ("apiVersion", "kind")},
        "metadata": {"type": "object"},
        **(own.get("properties") or {}),
    }
    return {
        **own,
        "type": "object",
        "properties": properties,
        "x-kubernetes-group-version-kind": [gvk],
    }
