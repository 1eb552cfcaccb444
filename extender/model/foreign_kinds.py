"""Sources: the foreign kinds from which a pool takes its vpods, and the pool to which an object
belongs (DESIGN 5.6).

A pool declares a source by the name of a preset, or by the kind's group, version and resource and
the paths of its fields. An object belongs to the first pool, by key, that declares its kind and
selects both its labels and its namespace. Once the object is placed, it stays with its pool:

- A pool that selects it later takes nothing away, even if its key is lower.
- It stays if its namespace loses a label, as a VPod stays with the pool that it names.
- If its own labels select no pool any more, it stays until it publishes nothing. If they select
  another pool, it goes there.

After a restart, the pods that its placements name tell which pool it has.

Knative's presets set only fields that a scheduler writes. ConsumerGroup's own controller writes
``status.replicas``, the count of ready consumers, and the conditions Ready, Consumers,
ConsumersScheduled and Autoscaler, so the preset leaves them alone. KafkaSource's
``spec.consumers`` is 1 if absent, and at most ``status.maxAllowedVReplicas``, as in its
GetVReplicas.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from extender.model.errors import InvalidObject
from extender.model.names import GROUP
from extender.model.objects import AdapterPool, Path, Source, SourcePaths, ordinal_of
from extender.model.reading import Json, mapping, selector_from
from extender.model.safe_repr import safe_repr

SOURCES_MAX: Final = 16
"""Sources of one pool."""
PATH_STEPS_MAX: Final = 16

PRESETS: Final[Mapping[str, Source]] = MappingProxyType(
    {
        "knative-consumergroup": Source(
            group="internal.kafka.eventing.knative.dev",
            versions=("v1alpha1",),
            resource="consumergroups",
            kind="ConsumerGroup",
            paths=SourcePaths(
                vreplicas=("spec", "replicas"),
                vreplicas_default=1,
                placements=("status", "placements"),
                conditions=("status", "conditions"),
            ),
        ),
        "knative-kafkasource": Source(
            group="sources.knative.dev",
            versions=("v1", "v1beta1"),
            resource="kafkasources",
            kind="KafkaSource",
            paths=SourcePaths(
                vreplicas=("spec", "consumers"),
                vreplicas_default=1,
                vreplicas_max=("status", "maxAllowedVReplicas"),
                placements=("status", "placements"),
                scheduled=("status", "consumers"),
                conditions=("status", "conditions"),
            ),
        ),
    }
)

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?")
_STEP: Final = re.compile(r"[A-Za-z_][-A-Za-z0-9_]{0,127}")
_PLACE: Final = ("group", "version", "resource", "kind")
_SOURCE_FIELDS: Final = frozenset({"preset", "paths", "labelSelector", "writeStatus", *_PLACE})
_PATH_FIELDS: Final = frozenset(
    {
        "vreplicas",
        "placements",
        "podName",
        "count",
        "vreplicasMax",
        "slotsPerVReplica",
        "perVReplica",
        "scheduledVReplicas",
        "conditions",
    }
)
_CONDITIONS: Final = ("status", "conditions")


def source_of(vpod_key: str) -> str:
    """The source in a vpod's key; "" for a VPod."""
    return vpod_key.partition("@")[2]


def is_caller_kept(pool: AdapterPool | None, vpod_key: str) -> bool:
    """Whether only the vpod's caller may say that it is gone: the pool declares no source for its
    kind.

    Such a key is found in ledgers only. Its caller may just not have asked since this process
    started.
    """
    source = source_of(vpod_key)
    return bool(source) and (
        pool is None or all(declared.key != source for declared in pool.sources)
    )


# -- whose object it is ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claimant:
    """A pool that declares a kind, and whether it selects the object's namespace."""

    pool: AdapterPool
    source: Source
    selects_namespace: bool


def owner_of(
    claimants: Sequence[Claimant],
    labels: Mapping[str, str],
    placed_on: Iterable[str],
    has: str = "",
) -> tuple[Claimant | None, tuple[str, ...]]:
    """The pool that gets an object, and the keys of the other pools that select it too.

    ``claimants``: sorted by pool key. ``placed_on``: the pods that its placements name; read unless
    exactly one pool selects it. ``has``: the key of the pool that has it now, "" if not known.
    """
    labelled = [claimant for claimant in claimants if claimant.source.selector.matches(labels)]
    if not labelled:
        return _former_owner(claimants, set(placed_on), has), ()
    selecting = [claimant for claimant in labelled if claimant.selects_namespace]
    pods = set(placed_on) if labelled and len(selecting) != 1 else set()
    on_pods = [item for item in selecting or labelled if pods and _stands_on(item.pool, pods)]
    on_pods.sort(key=lambda item: item.pool.key != has)
    if not selecting:
        # No pool that matches the labels selects the namespace. An object whose placements name
        # pods of a former pool goes to the first that matches. As with a VPod that names a pool
        # which is closed to it, that pool refuses it, and writes that it publishes nothing before
        # it loses its places (I2). An object without known placements stays with its pool: a status
        # may be on its way.
        first = on_pods or (
            labelled if pods else [item for item in labelled if item.pool.key == has]
        )
        return (first[0] if first else None), ()
    winner = on_pods[0] if on_pods else selecting[0]
    others = {claimant.pool.key for claimant in selecting if claimant.pool.key != winner.pool.key}
    return winner, tuple(sorted(others))


def _former_owner(claimants: Sequence[Claimant], pods: set[str], has: str) -> Claimant | None:
    """The pool that keeps an object which no pool selects by its labels, while it publishes
    placements (I2).
    """
    former = [
        item for item in claimants if pods and (item.pool.key == has or _stands_on(item.pool, pods))
    ]
    return min(former, key=lambda item: item.pool.key != has, default=None)


def _stands_on(pool: AdapterPool, pods: Iterable[str]) -> bool:
    return all(
        name.rpartition("-")[0] == pool.stateful_set and ordinal_of(name) is not None
        for name in pods
    )


# -- spec.sources ----------------------------------------------------------------------------------


def sources_from(listed: object) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """Read ``spec.sources`` of an AdapterPool: the valid sources, and a sentence for each invalid
    entry.
    """
    if listed is None:
        return (), ()
    if not isinstance(listed, list):
        return (), ("spec.sources must be a list",)
    sources: list[Source] = []
    problems: list[str] = []
    for index, item in enumerate(listed[:SOURCES_MAX]):
        try:
            sources.append(_source(item))
        except InvalidObject as error:
            field = f".{error.field}" if error.field else ""
            problems.append(f"spec.sources[{index}]{field} {error.problem}")
    if len(listed) > SOURCES_MAX:
        problems.append(f"spec.sources has {len(listed)} entries, and the limit is {SOURCES_MAX}")
    return tuple(sources), tuple(problems)


def _source(item: object) -> Source:
    if not isinstance(item, Mapping):
        raise InvalidObject("", "", "must be a mapping")
    _no_others(item, "", _SOURCE_FIELDS)
    base = _preset(item) if item.get("preset") is not None else _place(item)
    write_status = item.get("writeStatus", True)
    if not isinstance(write_status, bool):
        raise InvalidObject(
            "", "writeStatus", f"must be true or false, not {safe_repr(write_status)}"
        )
    if not write_status:
        # Whoever writes the placements says what has become of them.
        base = replace(base, paths=replace(base.paths, conditions=()))
    return replace(
        base, selector=selector_from(mapping(item, "labelSelector")), write_status=write_status
    )


def _preset(item: Json) -> Source:
    name = item.get("preset")
    found = PRESETS.get(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidObject(
            "",
            "preset",
            f"{safe_repr(name, 80)} is not known; known are {', '.join(sorted(PRESETS))}",
        )
    stray = [field for field in (*_PLACE, "paths") if field in item]
    if stray:
        raise InvalidObject("", stray[0], "must be left out: a preset says all of them")
    return found


def _place(item: Json) -> Source:
    place = {}
    for field in _PLACE:
        value = item.get(field)
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise InvalidObject("", field, "must be a name, unless there is a preset")
        place[field] = value
    if place["group"] == GROUP:
        raise InvalidObject(
            "", "group", f"{GROUP} has no foreign kinds: VPods belong to the pool that they name"
        )
    return Source(
        group=place["group"],
        versions=(place["version"],),
        resource=place["resource"],
        kind=place["kind"],
        paths=_paths(item.get("paths")),
    )


def _paths(raw: object) -> SourcePaths:
    if not isinstance(raw, Mapping):
        raise InvalidObject(
            "", "paths", "is required: a resource needs group, version, kind and paths"
        )
    _no_others(raw, "paths.", _PATH_FIELDS)
    written = {
        field: _written_path(raw, field)
        for field in ("placements", "scheduledVReplicas", "conditions")
        if field in raw or field == "placements"
    }
    _apart(written)
    return SourcePaths(
        vreplicas=_path(raw, "vreplicas"),
        placements=written["placements"],
        pod_name=_entry_key(raw, "podName", "podName"),
        count=_entry_key(raw, "count", "vreplicas"),
        vreplicas_max=_path(raw, "vreplicasMax") if "vreplicasMax" in raw else (),
        slots_per_vreplica=_path(raw, "slotsPerVReplica") if "slotsPerVReplica" in raw else (),
        per_vreplica=_path(raw, "perVReplica") if "perVReplica" in raw else (),
        scheduled=written.get("scheduledVReplicas", ()),
        conditions=written.get("conditions", ()),
    )


def _path(raw: Json, field: str) -> Path:
    value = raw.get(field)
    steps = tuple(value.split(".")) if isinstance(value, str) else ()
    if not 1 <= len(steps) <= PATH_STEPS_MAX or not all(_STEP.fullmatch(step) for step in steps):
        raise InvalidObject(
            "",
            f"paths.{field}",
            f"must be keys with dots between them (as spec.replicas), not {safe_repr(value, 80)}",
        )
    return steps


def _written_path(raw: Json, field: str) -> Path:
    """The path of a field that this project writes."""
    steps = _path(raw, field)
    if len(steps) < 2 or steps[0] != "status":
        problem = "must be below status: we write it"
    elif field != "conditions" and steps[:2] == _CONDITIONS:
        problem = "must be below status and not its conditions: we write it"
    else:
        return steps
    value = safe_repr(".".join(steps), 80)
    raise InvalidObject("", f"paths.{field}", f"{problem}, not {value}")


def _apart(written: Mapping[str, Path]) -> None:
    """Refuse paths of which one leads through another: one write would overwrite the other."""
    for field, path in written.items():
        for other, within in written.items():
            if field != other and within[: len(path)] == path:
                raise InvalidObject(
                    "",
                    f"paths.{other}",
                    f"must not be paths.{field} or below it: both are written",
                )


def _entry_key(raw: Json, field: str, default: str) -> str:
    value = raw.get(field, default)
    if not isinstance(value, str) or not _STEP.fullmatch(value):
        raise InvalidObject("", f"paths.{field}", f"must be one key, not {safe_repr(value, 80)}")
    return value


def _no_others(raw: Json, prefix: str, known: frozenset[str]) -> None:
    for field in raw:
        if field not in known:
            raise InvalidObject(
                "", f"{prefix}{field}"[:100], f"is not known; known are {', '.join(sorted(known))}"
            )
