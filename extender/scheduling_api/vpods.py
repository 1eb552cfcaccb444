"""What a caller schedules: objects with attributes (``VPod``), or with the getters of Knative's
interface (``KnativeVPod``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, runtime_checkable

from extender.model.placements import Placement


class NamespacedName(NamedTuple):
    """The key of an object, as ``types.NamespacedName`` of Kubernetes' Go packages."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class VPod(Protocol):
    """An object to schedule: it wants ``vreplicas`` and publishes ``placements``.

    It may have ``resource_version`` too, the version of the object whose status says so.
    """

    @property
    def namespace(self) -> str:
        """Namespace of the object."""
        ...

    @property
    def name(self) -> str:
        """Name of the object."""
        ...

    @property
    def kind(self) -> str:
        """Kind of the object; "" for Placeable."""
        ...

    @property
    def group(self) -> str:
        """API group of the object; "" for duck.knative.dev."""
        ...

    @property
    def vreplicas(self) -> int:
        """The number of vreplicas that it wants."""
        ...

    @property
    def slots_per_vreplica(self) -> int:
        """Slots that one vreplica takes."""
        ...

    @property
    def placements(self) -> Sequence[Placement]:
        """The placements that its status publishes."""
        ...

    @property
    def deleted(self) -> bool:
        """Whether it has a deletion timestamp. Everything that it has is then released."""
        ...


@runtime_checkable
class KnativeVPod(Protocol):
    """An object to schedule, with the getters of Knative's ``scheduler.VPod``."""

    def GetKey(self) -> tuple[str, str]:  # noqa: N802  # Knative's names
        """(namespace, name), such as a ``NamespacedName``."""
        ...

    def GetVReplicas(self) -> int:  # noqa: N802
        """The number of vreplicas that it wants."""
        ...

    def GetPlacements(self) -> Sequence[Placement] | None:  # noqa: N802
        """The placements that its status publishes. None: none."""
        ...

    def GetResourceVersion(self) -> str:  # noqa: N802
        """The version of the object whose status says so; "" if not known."""
        ...

    def GetDeletionTimestamp(self) -> object | None:  # noqa: N802
        """When its deletion was asked for; None if it was not. Everything that it has is then
        released.
        """
        ...


AnyVPod = VPod | KnativeVPod


@dataclass(frozen=True, slots=True, kw_only=True)
class CallersVPod:
    """A plain ``VPod``, which is a ``KnativeVPod`` too.

    ``resource_version`` is that of the object whose status publishes ``placements``; "" if not
    known.
    ``per_vreplica``: what one vreplica takes of the pool's capacities.
    """

    namespace: str
    name: str
    kind: str = ""
    group: str = ""
    vreplicas: int
    slots_per_vreplica: int = 1
    placements: Sequence[Placement] = ()
    deleted: bool = False
    resource_version: str = ""
    per_vreplica: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> NamespacedName:
        """Namespace and name."""
        return NamespacedName(self.namespace, self.name)

    def GetKey(self) -> NamespacedName:  # noqa: N802
        """See ``KnativeVPod``."""
        return self.key

    def GetVReplicas(self) -> int:  # noqa: N802
        """See ``KnativeVPod``."""
        return self.vreplicas

    def GetPlacements(self) -> Sequence[Placement]:  # noqa: N802
        """See ``KnativeVPod``."""
        return self.placements

    def GetResourceVersion(self) -> str:  # noqa: N802
        """See ``KnativeVPod``."""
        return self.resource_version

    def GetDeletionTimestamp(self) -> object | None:  # noqa: N802
        """See ``KnativeVPod``. True instead of the time, which nobody reads."""
        return self.deleted or None


def source_of(kind: str, group: str) -> str:
    """``kind.group``, as the service's keys of vpods end."""
    return f"{kind or 'Placeable'}.{group or 'duck.knative.dev'}".lower()


def key_of(vpod: AnyVPod) -> NamespacedName:
    """Namespace and name of a caller's object."""
    if isinstance(vpod, KnativeVPod):
        return NamespacedName(*vpod.GetKey())
    return NamespacedName(vpod.namespace, vpod.name)


def plain(vpod: AnyVPod, *, kind: str = "", group: str = "") -> CallersVPod:
    """The facts of a caller's object at this moment. ``kind``, ``group``: those of an object that
    does not say its own.

    Raises TypeError if it has neither the attributes nor the getters.
    """
    known = vpod if isinstance(vpod, CallersVPod) else _read(vpod)
    return known if known.kind else replace(known, kind=kind, group=group)


def _read(vpod: AnyVPod) -> CallersVPod:
    if isinstance(vpod, KnativeVPod):
        namespace, name = vpod.GetKey()
        return CallersVPod(
            namespace=namespace,
            name=name,
            vreplicas=vpod.GetVReplicas(),
            placements=tuple(vpod.GetPlacements() or ()),
            deleted=vpod.GetDeletionTimestamp() is not None,
            resource_version=vpod.GetResourceVersion(),
        )
    if not hasattr(vpod, "namespace"):
        raise TypeError(
            f"{type(vpod).__name__} is no vpod: it needs the attributes of VPod, or GetKey, "
            "GetVReplicas, GetPlacements, GetResourceVersion and GetDeletionTimestamp"
        )
    return CallersVPod(
        namespace=vpod.namespace,
        name=vpod.name,
        kind=vpod.kind,
        group=vpod.group,
        vreplicas=vpod.vreplicas,
        slots_per_vreplica=vpod.slots_per_vreplica,
        placements=tuple(vpod.placements),
        deleted=vpod.deleted,
        # Not part of the protocol: objects written before it was read have none.
        resource_version=getattr(vpod, "resource_version", ""),
        per_vreplica=getattr(vpod, "per_vreplica", {}),
    )
