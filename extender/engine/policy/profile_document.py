"""Reads a profile from configuration: a document -> ``Profile``.

::

    name: three-zones
    ties: LowestOrdinal                                # or MostFreeZone, RoundRobin
    filters:
      - {name: ZoneSpread, args: {MaxSkew: 1}}         # hard
    scores:
      - {name: NodeSpread, weight: 10}                 # default 1; 0 switches it off
      - {name: LowestOrdinalPriority}
    deschedulers:
      - {name: ZoneSpread, weight: 10}
    descheduleFilters: []
    rules: {keepOnUnavailable: true}                   # differences from Knative; default: true

``args`` may be an object, or a text with that object as JSON, as in Knative. Anything unknown is an
error.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Final, TypeVar

from extender.engine.policy.arguments import arguments_from
from extender.engine.policy.framework import Weighted
from extender.engine.policy.profile import Profile, Rules, Ties
from extender.engine.policy.registry import BUILT_IN_PLUGINS, Maker, PluginFactory, Registry
from extender.model.errors import InvalidObject
from extender.model.safe_repr import safe_repr

WEIGHT_MAX: Final = 100
PLUGINS_MAX: Final = 50
"""Entries in one list."""
_KNOWN: Final = ("name", "ties", "filters", "scores", "deschedulers", "descheduleFilters", "rules")
_ROLES: Final[Mapping[str, str]] = {
    "filters": "filter",
    "scores": "score",
    "deschedulers": "descheduler",
    "descheduleFilters": "filter",
}
P = TypeVar("P")


def profile_from(document: Mapping[str, object], registry: Registry = BUILT_IN_PLUGINS) -> Profile:
    """Read a profile. Raises InvalidObject, which names the field and, for an unknown name, the
    known ones.
    """
    name = document.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidObject(
            "profile", "name", f"must be a text that is not empty, not {safe_repr(name)}"
        )
    reader = _Reader(f"profile {name}", registry)
    reader.only(document, "", _KNOWN)
    return Profile(
        name=name,
        rules=reader.rules(document.get("rules")),
        filters=tuple(
            plugin
            for plugin, _ in reader.plugins(document, "filters", lambda factory: factory.filter)
        ),
        scores=tuple(
            Weighted(plugin, weight)
            for plugin, weight in reader.plugins(document, "scores", lambda factory: factory.score)
            if weight
        ),
        deschedulers=tuple(
            Weighted(plugin, weight)
            for plugin, weight in reader.plugins(
                document, "deschedulers", lambda factory: factory.deschedule
            )
            if weight
        ),
        deschedule_filters=tuple(
            plugin
            for plugin, _ in reader.plugins(
                document, "descheduleFilters", lambda factory: factory.filter
            )
        ),
        ties=reader.ties(document.get("ties")),
    )


class _Reader:
    """Reads the parts of one profile. Every error names the profile."""

    def __init__(self, subject: str, registry: Registry) -> None:
        self.subject = subject
        self.registry = registry

    def only(self, raw: Mapping[str, object], field: str, known: Sequence[str]) -> None:
        """Refuse unknown fields."""
        for key in raw:
            if key not in known:
                where = f"{field}.{key}" if field else str(key)
                raise InvalidObject(
                    self.subject, where, f"is not known (known: {', '.join(known)})"
                )

    def rules(self, raw: object) -> Rules:
        """The rules: where to differ from Knative."""
        if raw is None:
            return Rules()
        if not isinstance(raw, Mapping):
            raise InvalidObject(self.subject, "rules", f"must be an object, not {safe_repr(raw)}")
        known = {camel(one.name): one.name for one in fields(Rules)}
        self.only(raw, "rules", tuple(known))
        for key, value in raw.items():
            if not isinstance(value, bool):
                raise InvalidObject(
                    self.subject, f"rules.{key}", f"must be true or false, not {safe_repr(value)}"
                )
        return Rules(**{known[key]: value for key, value in raw.items()})

    def ties(self, raw: object) -> Ties:
        """The rule for equally good pods."""
        if raw is None:
            return Ties.LOWEST_ORDINAL
        if not isinstance(raw, str) or raw not in list(Ties):
            raise InvalidObject(
                self.subject, "ties", f"must be one of {', '.join(Ties)}, not {safe_repr(raw)}"
            )
        return Ties(raw)

    def plugins(
        self,
        document: Mapping[str, object],
        where: str,
        role: Callable[[PluginFactory], Maker[P] | None],
    ) -> Iterator[tuple[P, int]]:
        """The plugins of one list, with their weights."""
        raw = document.get(where)
        if raw is None:
            return
        if not isinstance(raw, Sequence) or isinstance(raw, str) or len(raw) > PLUGINS_MAX:
            raise InvalidObject(
                self.subject, where, f"must be a list of at most {PLUGINS_MAX} plugins"
            )
        seen: set[object] = set()
        for index, item in enumerate(raw):
            field = f"{where}[{index}]"
            if not isinstance(item, Mapping):
                raise InvalidObject(
                    self.subject, field, f"must be an object, not {safe_repr(item)}"
                )
            weighted = where in ("scores", "deschedulers")
            self.only(item, field, ("name", "weight", "args") if weighted else ("name", "args"))
            name = item.get("name")
            maker = self._maker(name, where, role, field)
            if name in seen:
                raise InvalidObject(self.subject, f"{field}.name", f"{name} is listed twice")
            seen.add(name)
            arguments = arguments_from(
                item.get("args"), maker.signature, self.subject, f"{field}.args"
            )
            yield maker.make(arguments), self._weight(item.get("weight"), f"{field}.weight")

    def _maker(
        self, name: object, where: str, role: Callable[[PluginFactory], Maker[P] | None], field: str
    ) -> Maker[P]:
        factory = self.registry.get(name) if isinstance(name, str) else None
        maker = role(factory) if factory is not None else None
        if maker is None:
            known = ", ".join(
                sorted(one.name for one in self.registry.values() if role(one) is not None)
            )
            problem = "is not known" if factory is None else f"is no {_ROLES[where]}"
            raise InvalidObject(
                self.subject, f"{field}.name", f"{safe_repr(name)} {problem} (known: {known})"
            )
        return maker

    def _weight(self, raw: object, field: str) -> int:
        if raw is None:
            return 1
        if type(raw) is not int or not 0 <= raw <= WEIGHT_MAX:
            raise InvalidObject(
                self.subject,
                field,
                f"must be an integer from 0 to {WEIGHT_MAX}, not {safe_repr(raw)}",
            )
        return raw


def camel(name: str) -> str:
    """``one_name`` as ``oneName``, as files spell it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
