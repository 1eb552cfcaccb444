"""``PlacementTranslator``: turns objects of foreign kinds into vpods, and decisions into patches of
their statuses, as Kubernetes' InTreeToCSITranslator translates volumes.

::

    ConsumerGroup, KafkaSource, ...  --to_vpod-->  VPod  --decision-->  status_of
                                                                            | merge patch
                                                                            v
                                                                        their status

All code between the two ends handles vpods only. A patch has the shape of the object, and sets only
our fields: the list of placements and, if the source names fields for them, the count of placed
vreplicas and conditions of our own types. Other conditions, observedGeneration and everything else
belong to the object's own controller.

Our conditions have a prefix (``CONDITION_PREFIX``), as Kubernetes advises for objects of others.
They have the severity Info: Knative's condition sets count each condition without a severity among
those that Ready depends on. They have no observedGeneration: Knative's controllers drop fields that
they do not know, so it would be written again and again.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import orjson

from extender.model.amounts import named_amounts
from extender.model.errors import InvalidObject
from extender.model.names import CONDITION_PREFIX
from extender.model.objects import Condition, Path, Source, VPod, object_key
from extender.model.reading import Json, count, mapping, placements_from, text, value_at

CONDITIONS_BYTES_MAX: Final = 32 * 1024
"""Of one object. If it has more, as JSON, none are written: a write has to repeat them."""
_SCHEDULED: Final = "Scheduled"
_SEVERITY: Final = "Info"


class PlacementTranslator:
    """Translates the objects of one source. Pure, without state; several pools may share one."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def to_vpod(self, obj: Json, pool: str = "") -> VPod:
        """The vpod for an object, in the pool with the key ``pool``. Raises InvalidObject.

        A foreign kind has no field for the generation that was decided, so its generation counts as
        observed. If its conditions are not written here, its Scheduled condition follows from the
        placements.
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
        listed = _listed(obj, paths.conditions, subject)
        conditions_json = _as_json(listed) if paths.conditions else None
        conditions = (
            (Condition(_SCHEDULED, "True" if placed == vreplicas else "False"),)
            if conditions_json is None
            else _ours(listed)
        )
        return VPod(
            namespace=namespace,
            name=name,
            uid=text(metadata, "uid"),
            resource_version=text(metadata, "resourceVersion"),
            generation=generation,
            pool=pool,
            vreplicas=vreplicas,
            weight=amount(paths.slots_per_vreplica, 1, 1),
            per_vreplica=named_amounts(
                value_at(obj, paths.per_vreplica) if paths.per_vreplica else None,
                subject,
                ".".join(paths.per_vreplica),
                key=f"{namespace}/{name}@{self.source.key}",
            ),
            placements=placements,
            observed_generation=generation,
            scheduled_vreplicas=amount(paths.scheduled, -1) if paths.scheduled else placed,
            conditions=conditions,
            conditions_json=conditions_json,
            deleting=bool(metadata.get("deletionTimestamp")),
            source=self.source.key,
            created_at=text(metadata, "creationTimestamp"),
        )

    def status_of(
        self, vpod: VPod, placements: Mapping[str, int], conditions: Iterable[Condition] = ()
    ) -> dict[str, object] | None:
        """The merge patch that publishes ``placements`` (pod name -> vreplicas) and ``conditions``;
        None if the object already has the placements, and there are no conditions to write.

        ``conditions`` replace those of their types, and all others stay as they are. UID and
        version of ``vpod`` are preconditions: the API server answers Conflict if the object has
        changed.
        """
        paths, placed = self.source.paths, sum(placements.values())
        written = tuple(conditions) if vpod.conditions_json is not None else ()
        if (
            not written
            and dict(vpod.placements) == dict(placements)
            and vpod.scheduled_vreplicas == placed
        ):
            return None
        patch: dict[str, object] = {
            "metadata": {"resourceVersion": vpod.resource_version, "uid": vpod.uid},
        }
        entries = [{paths.pod_name: name, paths.count: share} for name, share in placements.items()]
        _put(patch, paths.placements, entries)
        if paths.scheduled:
            _put(patch, paths.scheduled, placed)
        if written:
            _put(patch, paths.conditions, _merged(vpod.conditions_json or b"[]", written))
        return patch


def _listed(obj: Json, path: Path, subject: str) -> list[Json]:
    """The stored conditions; [] without a path. Raises InvalidObject."""
    listed = value_at(obj, path) if path else None
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise InvalidObject(subject, ".".join(path), "must be a list of conditions")
    return listed


def _as_json(listed: list[Json]) -> bytes | None:
    """The conditions, to repeat them in a write; None if they are too long or too deep for that."""
    try:
        stored = orjson.dumps(listed) if listed else b""
    except orjson.JSONEncodeError:
        return None
    return stored if len(stored) <= CONDITIONS_BYTES_MAX else None


def _ours(listed: Iterable[Json]) -> tuple[Condition, ...]:
    """Those of the stored conditions that this project has written, without the prefix."""
    return tuple(
        Condition(
            type=text(item, "type").removeprefix(CONDITION_PREFIX),
            status=text(item, "status"),
            reason=text(item, "reason"),
            message=text(item, "message"),
            last_transition_time=text(item, "lastTransitionTime"),
        )
        for item in listed
        if text(item, "type").startswith(CONDITION_PREFIX)
    )


def _merged(stored: bytes, conditions: Iterable[Condition]) -> list[object]:
    """The stored conditions, with ``conditions`` instead of those of the same types."""
    new = {CONDITION_PREFIX + item.type: item for item in conditions}
    others = [item for item in orjson.loads(stored) if text(item, "type") not in new]
    ours = [
        {
            "type": kind,
            "status": item.status,
            "severity": _SEVERITY,
            "reason": item.reason,
            "message": item.message,
            "lastTransitionTime": item.last_transition_time,
        }
        for kind, item in new.items()
    ]
    return [*others, *ours]


def _put(obj: dict[str, object], path: Path, value: object) -> None:
    """Set the field at ``path``, and create the mappings on the way."""
    for step in path[:-1]:
        inner = obj.setdefault(step, {})
        assert isinstance(inner, dict)
        obj = inner
    obj[path[-1]] = value
