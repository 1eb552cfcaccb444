r"""Reads Knative's scheduler and descheduler ConfigMaps (up to 1.16), unchanged, as a profile.

::

    data:
      predicates: |+
        [{"Name": "PodFitsResources"},
         {"Name": "NoMaxResourceCount", "Args": "{\"NumPartitions\": 100}"}]
      priorities: |+
        [{"Name": "AvailabilityZonePriority", "Weight": 10, "Args": "{\"MaxSkew\": 2}"}]

They are read as Go reads them. In an entry, keys match in any letter case, and unknown keys are
ignored. Text after the first JSON value is ignored. An entry without a weight has weight 0, which
switches it off. Data keys that begin with ``_`` (``_example``) are comments, so a descheduler
ConfigMap with nothing else gives no deschedulers. Any other unknown data key is an error.

Three things that Knative ignores silently are errors here: a name that is no plugin
(``ignore_unknown`` leaves it out, as Knative does), an entry listed twice (Knative takes the later
one), and arguments that a plugin cannot read (Knative then finds no pod for anything).
"""

from collections.abc import Mapping

from extender.engine.policy.arguments import first_json_value
from extender.engine.policy.profile_document import profile_from
from extender.engine.policy.registry import BUILT_IN_PLUGINS
from extender.model.errors import InvalidObject
from extender.model.safe_repr import safe_repr

Document = dict[str, object]


def knative_document(
    name: str,
    scheduler: Mapping[str, object],
    descheduler: Mapping[str, object] | None = None,
    *,
    ignore_unknown: bool = False,
) -> Document:
    """The ConfigMaps as a profile document of our configuration, for ``profile_from``. Raises
    InvalidObject.
    """
    part = _Part(name, scheduler, {"predicates": "filters", "priorities": "scores"})
    document: Document = {"name": name, **part.read(ignore_unknown=ignore_unknown)}
    if descheduler is not None:
        part = _Part(
            name, descheduler, {"predicates": "descheduleFilters", "priorities": "deschedulers"}
        )
        document |= part.read(ignore_unknown=ignore_unknown)
    return document


class _Part:
    """One ConfigMap. ``fields``: our configuration's names for its predicates and its
    priorities.
    """

    def __init__(
        self, profile: str, config_map: Mapping[str, object], fields: Mapping[str, str]
    ) -> None:
        self.profile = profile
        self.subject = _subject(config_map)
        self.data = config_map.get("data") or {}
        self.fields = fields

    def read(self, *, ignore_unknown: bool) -> Document:
        """Its lists under our names. An error in them is reported with the ConfigMap's
        own names.
        """
        if not isinstance(self.data, Mapping):
            raise InvalidObject(
                self.subject, "data", f"must be an object, not {safe_repr(self.data)}"
            )
        for key in self.data:
            if key not in self.fields and not str(key).startswith("_"):
                known = ", ".join(self.fields)
                raise InvalidObject(self.subject, f"data.{key}", f"is not known (known: {known})")
        places: dict[str, str] = {}
        part: Document = {}
        for key, ours in self.fields.items():
            entries = part[ours] = list[Document]()
            for index, raw in enumerate(_entries(self.data.get(key), self.subject, f"data.{key}")):
                field = f"data.{key}[{index}]"
                entry = _entry(raw, self.subject, field, weighted=key == "priorities")
                if not ignore_unknown or entry["name"] in BUILT_IN_PLUGINS:
                    places[f"{ours}[{len(entries)}]"] = field
                    entries.append(entry)
        try:
            profile_from({"name": self.profile, **part})
        except InvalidObject as error:
            raise InvalidObject(
                self.subject, _theirs(error.field, places), error.problem
            ) from error
        return part


def _theirs(field: str, places: Mapping[str, str]) -> str:
    """The ConfigMap's name for one of our fields: ``scores[0].name`` is
    ``data.priorities[0].Name``.
    """
    entry, dot, rest = field.partition(".")
    return places.get(entry, entry) + dot + rest[:1].upper() + rest[1:]


def _subject(config_map: Mapping[str, object]) -> str:
    metadata = config_map.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
    return f"ConfigMap {name}".rstrip()


def _entries(raw: object, subject: str, field: str) -> list[object]:
    """The list in a data value: JSON text, or a list already if the file has never been applied."""
    if isinstance(raw, str):
        raw = first_json_value(raw, subject, field)
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise InvalidObject(subject, field, f"must hold a JSON list, not {safe_repr(raw)}")
    return raw


def _entry(raw: object, subject: str, field: str, *, weighted: bool) -> Document:
    if not isinstance(raw, Mapping):
        raise InvalidObject(subject, field, f"must be an object, not {safe_repr(raw)}")
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
                subject,
                f"{field}.Args",
                f"of {name} must be a text with JSON, not {safe_repr(args)}",
            )
        entry["args"] = args
    return entry


def _takes_arguments(name: str) -> bool:
    """Whether Knative reads the arguments of that plugin. It ignores those of all others."""
    factory = BUILT_IN_PLUGINS.get(name)
    makers = (factory.filter, factory.score, factory.deschedule) if factory is not None else ()
    return any(maker is not None and maker.signature for maker in makers)
