r"""Knative's scheduler and descheduler ConfigMaps (up to 1.16), as they are -> a profile.

::

    data:
      predicates: |+
        [{"Name": "PodFitsResources"}, {"Name": "NoMaxResourceCount", "Args": "{\"NumPartitions\": 100}"}]
      priorities: |+
        [{"Name": "AvailabilityZonePriority", "Weight": 10, "Args": "{\"MaxSkew\": 2}"}]

Read as Go reads them: keys in any letter case, unknown ones ignored, nothing after the first JSON value counts, an entry
without a weight has weight 0, which switches it off. Data keys that begin with ``_`` (``_example``) are comments, so a
descheduler ConfigMap with nothing else gives no deschedulers.

What Knative passes over in silence is an error here, with a message: a name that is no plugin, an entry listed twice
(Knative takes the later one), arguments that a plugin cannot read (Knative then finds no pod for anything).
"""

import json
from collections.abc import Mapping
from typing import Final

from extender.core.errors import InvalidObject
from extender.core.policy.profile import Profile
from extender.core.policy.profile_document import profile_from
from extender.core.policy.registry import BUILT_IN_PLUGINS

_KEYS: Final = ("predicates", "priorities")
_GO_SPACE: Final = " \t\r\n"
Document = dict[str, object]


def knative_profile(
    name: str, scheduler: Mapping[str, object], descheduler: Mapping[str, object] | None = None
) -> Profile:
    """The profile that two ConfigMaps describe. Raises InvalidObject."""
    return profile_from(knative_document(name, scheduler, descheduler))


def knative_document(
    name: str, scheduler: Mapping[str, object], descheduler: Mapping[str, object] | None = None
) -> Document:
    """The same as the plain document that our configuration has; ``profile_from`` reads it. Raises InvalidObject."""
    predicates, priorities = _lists(scheduler)
    document: Document = {"name": name, "filters": predicates, "scores": priorities}
    if descheduler is not None:
        predicates, priorities = _lists(descheduler)
        document |= {"deschedulers": priorities, "descheduleFilters": predicates}
    # Says what is wrong with a name or an argument before anybody writes the document down.
    profile_from(document)
    return document


def _lists(config_map: Mapping[str, object]) -> tuple[list[Document], list[Document]]:
    subject = _subject(config_map)
    data = config_map.get("data") or {}
    if not isinstance(data, Mapping):
        raise InvalidObject(subject, "data", f"must be an object, not {data!r:.50}")
    for key in data:
        if key not in _KEYS and not str(key).startswith("_"):
            raise InvalidObject(subject, f"data.{key}", f"is not known (known: {', '.join(_KEYS)})")
    predicates = _entries(data.get("predicates"), subject, "data.predicates")
    priorities = _entries(data.get("priorities"), subject, "data.priorities")
    return (
        [_entry(raw, subject, f"data.predicates[{i}]", weighted=False) for i, raw in enumerate(predicates)],
        [_entry(raw, subject, f"data.priorities[{i}]", weighted=True) for i, raw in enumerate(priorities)],
    )


def _subject(config_map: Mapping[str, object]) -> str:
    metadata = config_map.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
    return f"ConfigMap {name}".rstrip()


def _entries(raw: object, subject: str, field: str) -> list[object]:
    """The list in a data value: JSON text, or (a file that nobody has applied yet) already a list."""
    if isinstance(raw, str):
        try:
            raw, _ = json.JSONDecoder().raw_decode(raw.lstrip(_GO_SPACE))
        except (ValueError, RecursionError):
            raise InvalidObject(subject, field, f"is not JSON: {raw!r:.50}") from None
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise InvalidObject(subject, field, f"must hold a JSON list, not {raw!r:.50}")
    return raw


def _entry(raw: object, subject: str, field: str, *, weighted: bool) -> Document:
    if not isinstance(raw, Mapping):
        raise InvalidObject(subject, field, f"must be an object, not {raw!r:.50}")
    given = {str(key).lower(): value for key, value in raw.items()}
    name, args = given.get("name"), given.get("args")
    if not isinstance(name, str) or not name:
        raise InvalidObject(subject, f"{field}.Name", "is required")
    entry: Document = {"name": name}
    if weighted:
        entry["weight"] = given.get("weight", 0)
    if _takes_arguments(name):
        if not isinstance(args, str):
            raise InvalidObject(
                subject, f"{field}.Args", f"of {name} must be a text with JSON, not {args!r:.50}"
            )
        entry["args"] = args
    return entry


def _takes_arguments(name: str) -> bool:
    """Whether Knative reads the arguments of that plugin; those of the others it ignores."""
    factory = BUILT_IN_PLUGINS.get(name)
    makers = (factory.filter, factory.score, factory.deschedule) if factory is not None else ()
    return any(maker is not None and maker.signature for maker in makers)
