"""The kinds that the API server serves: a table of built-in kinds, and custom kinds, which come and
go with their definitions.

A custom kind is served only in its storage version, without conversion. Kinds are looked up by
group and plural.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from extender.kube.api import (
    CRDS,
    EVENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    Obj,
    Resource,
)
from extender.lab.apiserver.selectors import FIELDS
from extender.lab.apiserver.statuses import no_such_resource

CONFIGMAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SERVICES: Final = Resource("", "v1", "services", "Service")
SERVICEACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
CONTROLLERREVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
PRIORITYCLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
PODDISRUPTIONBUDGETS: Final = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"
)
NETWORKPOLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
PERSISTENTVOLUMES: Final = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False
)
PERSISTENTVOLUMECLAIMS: Final = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"
)
STORAGECLASSES: Final = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
)
_RBAC: Final = ("rbac.authorization.k8s.io", "v1")
_ADMISSION: Final = ("admissionregistration.k8s.io", "v1")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The paths in an object of the fields that its Scale shows. ``selector`` is empty if the Scale
    has none.
    """

    spec_replicas: tuple[str, ...] = ("spec", "replicas")
    status_replicas: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ("spec", "selector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One served kind. ``schema`` is set only for custom kinds."""

    resource: Resource
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    """It has a status subresource: the main endpoint ignores status, ``/status`` ignores spec."""
    scale: ScalePaths | None = None
    unconditional_update: bool = True
    """A PUT without resourceVersion is allowed."""
    create_on_update: bool = False
    """A PUT of a missing object creates it."""
    counts_generation: bool = False
    schema: Mapping[str, Any] | None = None
    rules: bool = False
    """Whether the schema has CEL rules."""
    columns: tuple[Mapping[str, Any], ...] = ()
    """additionalPrinterColumns of a custom kind."""
    selectable: tuple[str, ...] = ()

    @property
    def custom(self) -> bool:
        """Whether a CustomResourceDefinition defines the kind."""
        return self.schema is not None

    @property
    def key(self) -> tuple[str, str]:
        """Group and plural."""
        return (self.resource.group, self.resource.plural)


_WITH_STATUS: Final = frozenset(
    {
        PODS,
        NODES,
        NAMESPACES,
        STATEFULSETS,
        DEPLOYMENTS,
        SERVICES,
        CRDS,
        PODDISRUPTIONBUDGETS,
        PERSISTENTVOLUMES,
        PERSISTENTVOLUMECLAIMS,
    }
)
_WITH_GENERATION: Final = frozenset(
    {
        PODS,
        STATEFULSETS,
        DEPLOYMENTS,
        CRDS,
        MUTATING_WEBHOOKS,
        VALIDATING_WEBHOOKS,
        PODDISRUPTIONBUDGETS,
        NETWORKPOLICIES,
    }
)
_CONDITIONAL: Final = frozenset(
    {LEASES, CRDS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, PRIORITYCLASSES}
)
_CREATED_BY_UPDATE: Final = frozenset({LEASES, EVENTS})
_SHORT_NAMES: Final[Mapping[Resource, tuple[str, ...]]] = {
    PODS: ("po",),
    NODES: ("no",),
    NAMESPACES: ("ns",),
    CONFIGMAPS: ("cm",),
    SERVICES: ("svc",),
    SERVICEACCOUNTS: ("sa",),
    STATEFULSETS: ("sts",),
    DEPLOYMENTS: ("deploy",),
    EVENTS: ("ev",),
    CRDS: ("crd", "crds"),
    PRIORITYCLASSES: ("pc",),
    PODDISRUPTIONBUDGETS: ("pdb",),
    NETWORKPOLICIES: ("netpol",),
    PERSISTENTVOLUMES: ("pv",),
    PERSISTENTVOLUMECLAIMS: ("pvc",),
    STORAGECLASSES: ("sc",),
}
BUILT_IN: Final[tuple[Resource, ...]] = (
    PODS,
    NODES,
    NAMESPACES,
    SECRETS,
    CONFIGMAPS,
    SERVICES,
    SERVICEACCOUNTS,
    STATEFULSETS,
    DEPLOYMENTS,
    CONTROLLERREVISIONS,
    LEASES,
    EVENTS,
    CRDS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    PRIORITYCLASSES,
    PODDISRUPTIONBUDGETS,
    NETWORKPOLICIES,
    PERSISTENTVOLUMES,
    PERSISTENTVOLUMECLAIMS,
    STORAGECLASSES,
    Resource(*_RBAC, "roles", "Role"),
    Resource(*_RBAC, "rolebindings", "RoleBinding"),
    Resource(*_RBAC, "clusterroles", "ClusterRole", namespaced=False),
    Resource(*_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    # Stored, but not evaluated, like the roles.
    Resource(
        *_ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
    ),
    Resource(
        *_ADMISSION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        namespaced=False,
    ),
)


def _built_in(resource: Resource) -> Kind:
    return Kind(
        resource=resource,
        singular=resource.kind.lower(),
        short_names=_SHORT_NAMES.get(resource, ()),
        categories=("all",) if resource in {PODS, SERVICES, STATEFULSETS, DEPLOYMENTS} else (),
        status=resource in _WITH_STATUS,
        scale=ScalePaths() if resource in {STATEFULSETS, DEPLOYMENTS} else None,
        unconditional_update=resource not in _CONDITIONAL,
        create_on_update=resource in _CREATED_BY_UPDATE,
        counts_generation=resource in _WITH_GENERATION,
        selectable=FIELDS.get((resource.group, resource.plural), ()),
    )


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.strip(".").split(".")) if text else ()


def kind_of_definition(definition: Obj) -> Kind:
    """Return the kind that a valid CustomResourceDefinition defines, in its storage version."""
    spec, names = definition["spec"], definition["spec"]["names"]
    version = next(item for item in spec["versions"] if item["storage"])
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    return Kind(
        resource=Resource(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            spec["scope"] == "Namespaced",
        ),
        singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in subresources,
        scale=None
        if scale is None
        else ScalePaths(
            _path(scale["specReplicasPath"]),
            _path(scale["statusReplicasPath"]),
            _path(scale.get("labelSelectorPath", "")),
        ),
        unconditional_update=False,
        counts_generation=True,
        schema=version["schema"]["openAPIV3Schema"],
        rules=b'"x-kubernetes-validations"' in orjson.dumps(version["schema"]),
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        selectable=tuple(
            field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()
        ),
    )


class Registry:
    """The kinds that are served."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], Kind] = {
            (resource.group, resource.plural): _built_in(resource) for resource in BUILT_IN
        }

    def resolve(self, resource: Resource) -> Kind:
        """Return a resource's kind. Raises NotFound ("could not find the requested resource")."""
        kind = self._kinds.get((resource.group, resource.plural))
        if kind is None or kind.resource.version != resource.version:
            raise no_such_resource()
        return kind

    def find(self, group: str, version: str, plural: str) -> Kind:
        """As ``resolve``, by the parts of a URL path."""
        return self.resolve(Resource(group, version, plural, ""))

    def kinds(self) -> Iterator[Kind]:
        """Iterate over all kinds, built-in ones first."""
        yield from self._kinds.values()

    def define(self, definition: Obj) -> Kind:
        """Serve a custom kind, or the new form of one."""
        kind = kind_of_definition(definition)
        self._kinds[kind.key] = kind
        return kind

    def withdraw(self, definition: Obj) -> Kind | None:
        """Stop serving a custom kind. Return what was served."""
        spec = definition["spec"]
        return self._kinds.pop((spec["group"], spec["names"]["plural"]), None)
