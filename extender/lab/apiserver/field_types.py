"""The types of the fields that the server itself reads, so that later code can rely on them.

A real API server decodes into Go structs, and answers 400 for a field of the wrong type. Here
objects are plain JSON. This module gives the types of the fields of built-in kinds, as small
structural schemas. For custom objects it checks only metadata: their own schema covers the rest.
"""

from collections.abc import Mapping
from typing import Any, Final

from extender.kube.api import (
    CONFIGMAPS,
    CRDS,
    EVENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NODES,
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    Obj,
    Resource,
)
from extender.lab.apiserver import schema
from extender.lab.apiserver.registry import DEPLOYMENTS, Kind

Schema = Mapping[str, Any]

_STRING: Final[Schema] = {"type": "string", "nullable": True}
_INTEGER: Final[Schema] = {"type": "integer", "nullable": True, "format": "int64"}
_BOOLEAN: Final[Schema] = {"type": "boolean", "nullable": True}
_QUANTITY: Final[Schema] = {
    "x-kubernetes-int-or-string": True,
    "pattern": r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$",
}
_MICRO_TIME: Final[Schema] = {
    "type": "string",
    "nullable": True,
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$",
}
_STRINGS: Final[Schema] = {"type": "array", "nullable": True, "items": {"type": "string"}}
_STRING_MAP: Final[Schema] = {
    "type": "object",
    "nullable": True,
    "additionalProperties": {"type": "string"},
}
_QUANTITIES: Final[Schema] = {"type": "object", "nullable": True, "additionalProperties": _QUANTITY}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "nullable": True, "properties": properties}


def _list_of(**properties: Schema) -> Schema:
    return {
        "type": "array",
        "nullable": True,
        "items": {"type": "object", "properties": properties},
    }


def _requiring(listed: Schema, *required: str) -> Schema:
    return {**listed, "items": {**listed["items"], "required": list(required)}}


_METADATA: Final = _object(
    name=_STRING,
    generateName=_STRING,
    namespace=_STRING,
    uid=_STRING,
    resourceVersion=_STRING,
    labels=_STRING_MAP,
    annotations=_STRING_MAP,
    finalizers=_STRINGS,
    ownerReferences=_list_of(
        apiVersion=_STRING, kind=_STRING, name=_STRING, uid=_STRING, controller=_BOOLEAN
    ),
)
_SELECTOR: Final = _object(
    matchLabels=_STRING_MAP,
    matchExpressions=_requiring(
        _list_of(key=_STRING, operator=_STRING, values=_STRINGS), "key", "operator"
    ),
)
_CONTAINERS: Final = _list_of(
    name=_STRING,
    image=_STRING,
    resources=_object(limits=_QUANTITIES, requests=_QUANTITIES),
    ports=_list_of(),
    env=_list_of(),
)
_POD_SPEC: Final = _object(
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
    nodeName=_STRING,
    nodeSelector=_STRING_MAP,
    schedulerName=_STRING,
    priorityClassName=_STRING,
    priority=_INTEGER,
    terminationGracePeriodSeconds=_INTEGER,
    tolerations=_list_of(
        key=_STRING, operator=_STRING, value=_STRING, effect=_STRING, tolerationSeconds=_INTEGER
    ),
    schedulingGates=_list_of(name=_STRING),
    topologySpreadConstraints=_list_of(),
    affinity=_object(),
)
_CONDITIONS: Final = _requiring(_list_of(type=_STRING, status=_STRING), "type", "status")
_TEMPLATE: Final = _object(metadata=_METADATA, spec=_POD_SPEC)
_WEBHOOKS: Final = _requiring(
    _list_of(
        name=_STRING,
        rules=_list_of(
            operations=_STRINGS, apiGroups=_STRINGS, apiVersions=_STRINGS, resources=_STRINGS
        ),
        clientConfig=_object(
            url=_STRING, caBundle=_STRING, service=_object(name=_STRING, namespace=_STRING)
        ),
        objectSelector=_SELECTOR,
        namespaceSelector=_SELECTOR,
        timeoutSeconds=_INTEGER,
        failurePolicy=_STRING,
    ),
    "name",
)
_VERSIONS: Final = _requiring(
    _list_of(
        name=_STRING,
        storage=_BOOLEAN,
        served=_BOOLEAN,
        schema=_object(openAPIV3Schema=_object()),
        subresources=_object(
            scale=_object(specReplicasPath=_STRING, statusReplicasPath=_STRING), status=_object()
        ),
        additionalPrinterColumns=_requiring(
            _list_of(name=_STRING, type=_STRING, jsonPath=_STRING), "name", "type", "jsonPath"
        ),
    ),
    "name",
)

_ANY_KIND: Final[Mapping[str, Schema]] = {"metadata": _METADATA}
_OBJECTS: Final[dict[str, Schema]] = {
    "metadata": _METADATA,
    "spec": _object(),
    "status": _object(),
}
_FIELD_TYPES: Final[Mapping[Resource, dict[str, Schema]]] = {
    PODS: {
        "spec": _POD_SPEC,
        "status": _object(phase=_STRING, conditions=_CONDITIONS, containerStatuses=_list_of()),
    },
    NODES: {
        "spec": _object(
            taints=_list_of(key=_STRING, effect=_STRING, value=_STRING, timeAdded=_STRING),
            unschedulable=_BOOLEAN,
        ),
        "status": _object(
            conditions=_CONDITIONS,
            addresses=_requiring(_list_of(type=_STRING, address=_STRING), "type", "address"),
            allocatable=_QUANTITIES,
            capacity=_QUANTITIES,
            nodeInfo=_object(),
        ),
    },
    STATEFULSETS: {
        "spec": _object(
            replicas=_INTEGER,
            selector=_SELECTOR,
            template=_TEMPLATE,
            ordinals=_object(start=_INTEGER),
            updateStrategy=_object(type=_STRING, rollingUpdate=_object(partition=_INTEGER)),
            serviceName=_STRING,
            podManagementPolicy=_STRING,
            minReadySeconds=_INTEGER,
            revisionHistoryLimit=_INTEGER,
        ),
        "status": _object(
            replicas=_INTEGER,
            readyReplicas=_INTEGER,
            currentReplicas=_INTEGER,
            updatedReplicas=_INTEGER,
            availableReplicas=_INTEGER,
            observedGeneration=_INTEGER,
            currentRevision=_STRING,
            updateRevision=_STRING,
            conditions=_CONDITIONS,
        ),
    },
    CONFIGMAPS: {"data": _STRING_MAP, "binaryData": _STRING_MAP, "immutable": _BOOLEAN},
    DEPLOYMENTS: {"spec": _object(replicas=_INTEGER, selector=_SELECTOR, template=_TEMPLATE)},
    LEASES: {
        "spec": _object(
            holderIdentity=_STRING,
            leaseDurationSeconds=_INTEGER,
            leaseTransitions=_INTEGER,
            acquireTime=_MICRO_TIME,
            renewTime=_MICRO_TIME,
        )
    },
    EVENTS: {
        "eventTime": _MICRO_TIME,
        "reason": _STRING,
        "action": _STRING,
        "note": _STRING,
        "reportingController": _STRING,
        "reportingInstance": _STRING,
        "regarding": _object(namespace=_STRING, name=_STRING),
        "series": _object(count=_INTEGER, lastObservedTime=_MICRO_TIME),
    },
    CRDS: {
        "spec": _object(
            group=_STRING,
            scope=_STRING,
            names=_object(plural=_STRING, kind=_STRING, singular=_STRING, shortNames=_STRINGS),
            versions=_VERSIONS,
        )
    },
    MUTATING_WEBHOOKS: {"webhooks": _WEBHOOKS},
    VALIDATING_WEBHOOKS: {"webhooks": _WEBHOOKS},
}


def problem(kind: Kind, obj: Obj, old: Obj | None = None) -> str:
    """Return the first field that has the wrong type, "" for none. Fields that equal those of
    ``old`` were checked before.
    """
    types = _ANY_KIND if kind.custom else _OBJECTS | _FIELD_TYPES.get(kind.resource, {})
    for field, shape in types.items():
        value = obj.get(field)
        if old is not None and isinstance(value, dict):
            known = old.get(field) or {}
            value = {
                name: item
                for name, item in value.items()
                if name not in known or known[name] != item
            }
        if not value and (value is None or old is not None):
            continue
        if found := next(iter(schema.problems(value, shape, field)), ""):
            return found
    return ""
