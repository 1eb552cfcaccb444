"""``PlacementTranslator``: objects of foreign kinds to vpods, and decisions back to their statuses
(InTreeToCSITranslator).

::

    ConsumerGroup, KafkaSource, ...  --to_vpod-->  VPod  --decision-->  status_of
                                                                            | merge patch
                                                                            v
                                                                        their status

Everything between the two ends knows vpods only. A status is written in the object's own shape, and
only the fields that are ours: the list of placements, and the count of placed vreplicas where the
source names a field for it. Its conditions, its observedGeneration and everything else belong to
the object's own controller.
"""

from collections.abc import Mapping
from typing import Final

from extender.model.errors import InvalidObject
from extender.model.objects import Condition, Path, Source, VPod, object_key
from extender.model.reading import Json, count, mapping, placements_from, text, value_at

_SCHEDULED: Final = "Scheduled"


class PlacementTranslator:
    """Translates the objects of one source. Pure and without state; several pools may share one."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def to_vpod(self, obj: Json, pool: str = "") -> VPod:
        """The vpod that an object is, in the pool of that key. Raises InvalidObject.

        Its generation counts as observed, and it has a Scheduled condition as a VPod would: all
        that a foreign kind has for either is its placements.
        """
        paths, metadata = self.source.paths, mapping(obj, "metadata")
        namespace, name = text(metadata, "namespace"), text(metadata, "name")
        subject = f"{self.source.kind} {object_key(namespace, name)}"
        if not namespace:
            raise InvalidObject(
                subject, "metadata.namespace", "is required: only namespaced kinds have vpods"
            )

        def amount(path: Path, default: int | None = None, minimum: int = 0) -> int:
            value = value_at(obj, path) if path else None
            return count(value, subject, ".".join(path), default=default, minimum=minimum)

        vreplicas = amount(paths.vreplicas, paths.vreplicas_default)
        vreplicas = min(vreplicas, amount(paths.vreplicas_max, vreplicas))
        placements = placements_from(
            value_at(obj, paths.placements),
            subject,
            ".".join(paths.placements),
            pod_name=paths.pod_name,
            vreplicas=paths.count,
        )
        placed = sum(placements.values())
        generation = count(metadata.get("generation"), subject, "metadata.generation", default=0)
        return VPod(
            namespace=namespace,
            name=name,
            uid=text(metadata, "uid"),
            resource_version=text(metadata, "resourceVersion"),
            generation=generation,
            pool=pool,
            vreplicas=vreplicas,
            weight=amount(paths.slots_per_vreplica, 1, 1),
            placements=placements,
            observed_generation=generation,
            scheduled_vreplicas=amount(paths.scheduled, -1) if paths.scheduled else placed,
            conditions=(Condition(_SCHEDULED, "True" if placed == vreplicas else "False"),),
            deleting=bool(metadata.get("deletionTimestamp")),
            source=self.source.key,
        )

    def status_of(self, vpod: VPod, placements: Mapping[str, int]) -> dict[str, object] | None:
        """The merge patch that publishes ``placements`` (pod name -> vreplicas); None where the
        object says so already.

        UID and version of ``vpod`` are preconditions: an object that has changed since makes it a
        Conflict.
        """
        paths, placed = self.source.paths, sum(placements.values())
        if dict(vpod.placements) == dict(placements) and vpod.scheduled_vreplicas == placed:
            return None
        patch: dict[str, object] = {
            "metadata": {"resourceVersion": vpod.resource_version, "uid": vpod.uid},
        }
        entries = [{paths.pod_name: name, paths.count: share} for name, share in placements.items()]
        _put(patch, paths.placements, entries)
        if paths.scheduled:
            _put(patch, paths.scheduled, placed)
        return patch


def _put(obj: dict[str, object], path: Path, value: object) -> None:
    """Set the field at ``path``, making the mappings on the way."""
    for step in path[:-1]:
        inner = obj.setdefault(step, {})
        assert isinstance(inner, dict)
        obj = inner
    obj[path[-1]] = value
