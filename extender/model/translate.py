"""``PlacementTranslator``: turns objects of foreign kinds into vpods, and decisions into patches of
their statuses, as Kubernetes' InTreeToCSITranslator translates volumes.

::

    ConsumerGroup, KafkaSource, ...  --to_vpod-->  VPod  --decision-->  status_of
                                                                            | merge patch
                                                                            v
                                                                        their status

All code between the two ends handles vpods only. A patch has the shape of the object, and sets only
our fields: the list of placements and, if the source names a field for it, the count of placed
vreplicas. Conditions, observedGeneration and everything else belong to the object's own controller.
"""

from collections.abc import Mapping
from typing import Final

from extender.model.errors import InvalidObject
from extender.model.objects import Condition, Path, Source, VPod, object_key
from extender.model.reading import Json, count, mapping, placements_from, text, value_at

_SCHEDULED: Final = "Scheduled"


class PlacementTranslator:
    """Translates the objects of one source. Pure, without state; several pools may share one."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def to_vpod(self, obj: Json, pool: str = "") -> VPod:
        """The vpod for an object, in the pool with the key ``pool``. Raises InvalidObject.

        A foreign kind has no fields for a decision but its placements. So its generation counts as
        observed, and its Scheduled condition follows from the placements.
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
        """The merge patch that publishes ``placements`` (pod name -> vreplicas); None if the object
        already has them.

        UID and version of ``vpod`` are preconditions: the API server answers Conflict if the object
        has changed.
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
    """Set the field at ``path``, and create the mappings on the way."""
    for step in path[:-1]:
        inner = obj.setdefault(step, {})
        assert isinstance(inner, dict)
        obj = inner
    obj[path[-1]] = value
