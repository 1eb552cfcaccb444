"""What a pod needs of volumes, and why it cannot have it: the values that the volume binder takes
and returns, and the texts of its errors.
"""

from dataclasses import dataclass, field

from extender.kube.api import Obj, Resource
from extender.model.errors import AssumeError, NotFound, VersionConflict, VReplicaError


class VolumeBindingError(VReplicaError):
    """A volume could not be found, assumed or bound. The text is kube-scheduler's."""


@dataclass(slots=True)
class BindingInfo:
    """A claim and the existing volume for it."""

    claim: Obj
    volume: Obj


@dataclass(slots=True)
class DynamicProvision:
    """A claim whose volume is to be made. ``capacity``: the CSIStorageCapacity that has room for
    it; None if its driver publishes none.
    """

    claim: Obj
    capacity: Obj | None = None


@dataclass(slots=True)
class PodVolumes:
    """What a pod needs on one node beyond its bound volumes."""

    static_bindings: list[BindingInfo] = field(default_factory=list)
    dynamic_provisions: list[DynamicProvision] = field(default_factory=list)


@dataclass(slots=True)
class PodVolumeClaims:
    """A pod's claims. ``volumes``: those of the storage classes of ``delayed``."""

    bound: list[Obj] = field(default_factory=list)
    delayed: list[Obj] = field(default_factory=list)
    immediate: list[Obj] = field(default_factory=list)
    volumes: dict[str, list[Obj]] = field(default_factory=dict)


def not_found(resource: Resource, key: str) -> str:
    """An informer's error for an object that is not there, as client-go's listers word it."""
    return f'{resource.plural} "{key}" not found'


def why_not_assumed(resource: Resource, error: AssumeError) -> str:
    """Why an object could not be assumed, as the volume binder's assume cache words it."""
    match error:
        case VersionConflict():
            return f'"{error.key}" is out of sync (stored: {error.stored}, assume: {error.offered})'
        case NotFound():
            return not_found(resource, error.key)
        case _:
            return str(error)
