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
    CONFIGMAPS,
    CRDS,
    EVENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITYCLASSES,
    SECRETS,
    SERVICE_ACCOUNTS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    Obj,
    Resource,
)
from extender.lab.apiserver.selectors import FIELDS
from extender.lab.apiserver.statuses import no_such_resource

_STORAGE: Final = "storage.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"


def _cluster_wide(group: str, plural: str, kind: str) -> Resource:
    return Resource(group, "v1", plural, kind, namespaced=False)


SERVICES: Final = Resource("", "v1", "services", "Service")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
CONTROLLERREVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
PODDISRUPTIONBUDGETS: Final = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"
)
NETWORKPOLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
PERSISTENTVOLUMES: Final = _cluster_wide("", "persistentvolumes", "PersistentVolume")
PERSISTENTVOLUMECLAIMS: Final = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"
)
STORAGECLASSES: Final = _cluster_wide(_STORAGE, "storageclasses", "StorageClass")
CSINODES: Final = _cluster_wide(_STORAGE, "csinodes", "CSINode")
CSIDRIVERS: Final = _cluster_wide(_STORAGE, "csidrivers", "CSIDriver")
CSISTORAGECAPACITIES: Final = Resource(_STORAGE, "v1", "csistoragecapacities", "CSIStorageCapacity")
VOLUMEATTACHMENTS: Final = _cluster_wide(_STORAGE, "volumeattachments", "VolumeAttachment")


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


_ALL: Final = ("all",)


def _kind(resource: Resource, *short_names: str, **properties: Any) -> Kind:
    return Kind(
        resource=resource,
        singular=resource.kind.lower(),
        short_names=short_names,
        selectable=FIELDS.get(resource, ()),
        **properties,
    )


_SCALED: Final[Mapping[str, Any]] = {
    "status": True,
    "scale": ScalePaths(),
    "counts_generation": True,
    "categories": _ALL,
}
BUILT_IN: Final[tuple[Kind, ...]] = (
    _kind(PODS, "po", status=True, counts_generation=True, categories=_ALL),
    _kind(NODES, "no", status=True),
    _kind(NAMESPACES, "ns", status=True),
    _kind(SECRETS),
    _kind(CONFIGMAPS, "cm"),
    _kind(SERVICES, "svc", status=True, categories=_ALL),
    _kind(SERVICE_ACCOUNTS, "sa"),
    _kind(STATEFULSETS, "sts", **_SCALED),
    _kind(DEPLOYMENTS, "deploy", **_SCALED),
    _kind(CONTROLLERREVISIONS),
    _kind(LEASES, unconditional_update=False, create_on_update=True),
    _kind(EVENTS, "ev", create_on_update=True),
    _kind(CRDS, "crd", "crds", status=True, counts_generation=True, unconditional_update=False),
    _kind(MUTATING_WEBHOOKS, counts_generation=True, unconditional_update=False),
    _kind(VALIDATING_WEBHOOKS, counts_generation=True, unconditional_update=False),
    _kind(PRIORITYCLASSES, "pc", unconditional_update=False),
    _kind(PODDISRUPTIONBUDGETS, "pdb", status=True, counts_generation=True),
    _kind(NETWORKPOLICIES, "netpol", counts_generation=True),
    _kind(PERSISTENTVOLUMES, "pv", status=True),
    _kind(PERSISTENTVOLUMECLAIMS, "pvc", status=True),
    _kind(STORAGECLASSES, "sc"),
    _kind(CSINODES),
    _kind(CSIDRIVERS),
    _kind(CSISTORAGECAPACITIES),
    _kind(VOLUMEATTACHMENTS, status=True),
    # The roles and policies are stored, but not evaluated.
    _kind(Resource(_RBAC, "v1", "roles", "Role")),
    _kind(Resource(_RBAC, "v1", "rolebindings", "RoleBinding")),
    _kind(_cluster_wide(_RBAC, "clusterroles", "ClusterRole")),
    _kind(_cluster_wide(_RBAC, "clusterrolebindings", "ClusterRoleBinding")),
    _kind(_cluster_wide(_ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy")),
    _kind(
        _cluster_wide(
            _ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"
        )
    ),
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
        self._kinds = {kind.key: kind for kind in BUILT_IN}

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
