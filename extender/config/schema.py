"""The JSON schema (2020-12) of the configuration file, made from ``model`` and the form of
profiles.

It checks what the reader checks, except what a schema cannot express: that renewDeadlineSeconds
lies between two other settings, that two ports differ, that 15.0 is not a whole number, and that
two profiles have different names. It does not check names or arguments of plugins, because packages
may add plugins. ``x-reload`` is ``live`` if a running replica takes a changed setting from the
file.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from extender.config.load_sources import (
    LABEL,
    PERIOD_MAX_S,
    PERIOD_MIN_S,
    PERIOD_S,
    QUERY_CHARS_MAX,
    TIMEOUT_MIN_S,
    TIMEOUT_S,
    URL_CHARS_MAX,
    Labels,
)
from extender.config.model import DNS_LABEL, DNS_SUBDOMAIN, LOOPBACK
from extender.config.settings import SECTIONS, SETTINGS, Entry, ValueKind
from extender.config.view import plain
from extender.engine.policy.profile import Rules, Ties
from extender.engine.policy.profile_document import PLUGINS_MAX, WEIGHT_MAX, camel
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.policy.registry import BUILT_IN_PLUGINS, PluginFactory
from extender.model.names import CONFIG_API_VERSION, CONFIG_KIND

Schema = dict[str, Any]
SCHEMA_ID: Final = "urn:vreplica:config:v1alpha1"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_GIVEN: Final[Schema] = {"type": "string", "minLength": 1}
"""A string that is not empty."""
_ON: Final[Schema] = {"type": "integer", "minimum": 1}
"""A port that is listened on."""
_SHADOW: Final[Schema] = {"const": "shadow"}


def config_schema() -> Schema:
    """The schema of the whole file."""
    root: Schema = {
        "$schema": _DIALECT,
        "$id": SCHEMA_ID,
        "title": CONFIG_KIND,
        "description": "Configuration file of vreplica-scheduler. A field that is null has its "
        "default.",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {"apiVersion": {"const": CONFIG_API_VERSION}, "kind": {"const": CONFIG_KIND}},
        "additionalProperties": False,
    }
    sections: dict[str, Schema] = {"": root}
    for path, text in SECTIONS.items():
        above, _, name = path.rpartition(".")
        sections[path] = {
            "description": text,
            "type": ["object", "null"],
            "properties": {},
            "additionalProperties": False,
        }
        sections[above]["properties"][name] = sections[path]
    for entry in SETTINGS:
        above, _, name = entry.path.rpartition(".")
        sections[above]["properties"][name] = _setting(entry)
    sections["server.tls"]["allOf"] = _tls_rules()
    sections["server"]["allOf"] = [_beyond_loopback()]
    sections["schedule.tls"]["allOf"] = _tls_rules()
    sections["schedule"]["allOf"] = _schedule_rules()
    sections["adapters.tls"]["allOf"] = _key_rules()
    sections["adapters"]["allOf"] = [
        {"if": _has(port=_ON), "then": _has(tls=_has(certFile=_GIVEN))}
    ]
    for listener in ("schedule", "adapters"):
        sections[listener]["properties"]["audience"]["minLength"] = 1
        accounts = sections[listener]["properties"]["allowedServiceAccounts"]
        accounts["items"] = {**_GIVEN, "pattern": f"^{DNS_LABEL}/{DNS_SUBDOMAIN}$"}
    root["allOf"] = [
        {"if": _has(**{one: _has(port=_ON)}), "then": {"properties": {"mode": {"not": _SHADOW}}}}
        for one in ("schedule", "adapters")
    ]
    return root


def _setting(entry: Entry) -> Schema:
    schema: Schema = {
        "description": entry.setting.text,
        "default": plain(entry.default),
        "x-reload": str(entry.setting.reload),
    }
    match entry.kind:
        case ValueKind.TEXT:
            pattern = entry.setting.pattern
            return {
                **schema,
                "type": ["string", "null"],
                **({"pattern": f"^{pattern}$"} if pattern else {}),
            }
        case ValueKind.CHOICE:
            return {**schema, "enum": [*entry.choices, None]}
        case ValueKind.FLAG:
            return {**schema, "type": ["boolean", "null"]}
        case ValueKind.WHOLE | ValueKind.NUMBER:
            kind = "integer" if entry.kind is ValueKind.WHOLE else "number"
            low, high = plain(entry.setting.minimum), plain(entry.setting.maximum)
            return {**schema, "type": [kind, "null"], "minimum": low, "maximum": high}
        case ValueKind.TEXTS | ValueKind.MAPPINGS:
            items = _texts_of(entry) if entry.kind is ValueKind.TEXTS else _ITEMS[entry.path]()
            return {
                **schema,
                "type": ["array", "null"],
                "maxItems": entry.setting.items_max,
                "items": items,
            }


def _texts_of(entry: Entry) -> Schema:
    pattern = entry.setting.pattern
    return {**_GIVEN, **({"pattern": f"^{pattern}$"} if pattern else {})}


def _has(**properties: Schema) -> Schema:
    """The schema of an object that has all of these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _tls_rules() -> list[Schema]:
    """The rules of ``rules.broken_rules`` about server.tls."""
    listed = {"type": "array", "minItems": 1}
    return [
        *_key_rules(),
        {"if": _has(clientCAFile=_GIVEN), "then": _has(certFile=_GIVEN)},
        {"if": _has(allowedClients=listed), "then": _has(clientCAFile=_GIVEN)},
    ]


def _key_rules() -> list[Schema]:
    return [
        {"if": _has(certFile=_GIVEN), "then": _has(keyFile=_GIVEN)},
        {"if": _has(keyFile=_GIVEN), "then": _has(certFile=_GIVEN)},
    ]


def _schedule_rules() -> list[Schema]:
    """The rules of ``rules.broken_rules`` about the listener for controllers."""
    listed = {"type": "array", "minItems": 1}
    accounts = _has(allowedServiceAccounts=listed)
    certificates = _has(tls=_has(clientCAFile=_GIVEN, allowedClients=listed))
    neither = {"not": {"allOf": [accounts, _has(tls=_has(clientCAFile=_GIVEN))]}}
    return [
        {
            "if": _has(port=_ON),
            "then": {
                "allOf": [
                    _has(tls=_has(certFile=_GIVEN)),
                    {"if": {"not": accounts}, "then": certificates},
                    neither,
                ]
            },
        }
    ]


def _beyond_loopback() -> Schema:
    """Beyond loopback, require client certificates and names, or ``insecure``."""
    beyond = {"type": "string", "not": {"enum": sorted(LOOPBACK)}}
    listed = {"type": "array", "minItems": 1}
    return {
        "if": {"allOf": [_has(host=beyond), {"not": _has(insecure={"const": True})}]},
        "then": _has(tls=_has(clientCAFile=_GIVEN, allowedClients=listed)),
    }


def _profile() -> Schema:
    """The schema of one entry of ``profiles``: plugins, or Knative's ConfigMaps."""
    plugins = {
        "filters": _plugins("filter"),
        "scores": _plugins("score"),
        "deschedulers": _plugins("descheduler"),
        "descheduleFilters": _plugins("filter"),
    }
    return {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {
                **_GIVEN,
                "not": {"enum": sorted(BUILT_IN_PROFILES)},
                "description": "Must differ from the names of the built-in profiles.",
            },
            "ties": {
                "enum": [*map(str, Ties), None],
                "description": "Which of several equally good pods gets a vreplica.",
            },
            "rules": {
                "type": ["object", "null"],
                "description": "Deliberate differences from Knative; false turns one off.",
                "properties": {camel(one.name): {"type": "boolean"} for one in fields(Rules)},
                "additionalProperties": False,
            },
            **plugins,
            "knativeConfigMaps": _knative(),
        },
        "additionalProperties": False,
        "if": {"required": ["knativeConfigMaps"]},
        "then": {"properties": dict.fromkeys(plugins, False)},
    }


def _load_source() -> Schema:
    """The schema of one entry of ``loadSources``. It does not check that the time-out is within
    the period, or that two names differ.
    """
    label = {"type": ["string", "null"], "pattern": f"^{LABEL}$"}
    file = {"type": ["string", "null"], "default": ""}
    return {
        "type": "object",
        "required": ["name", "url", "query"],
        "properties": {
            "name": {
                **_GIVEN,
                "pattern": f"^{DNS_LABEL}$",
                "description": "What spec.loadSource of an AdapterPool names.",
            },
            "url": {
                "type": "string",
                "pattern": "^https?://[^\\s@?#]+$",
                "maxLength": URL_CHARS_MAX,
                "description": "Where Prometheus is. /api/v1/query is added.",
            },
            "query": {
                **_GIVEN,
                "maxLength": QUERY_CHARS_MAX,
                "description": "An instant query in PromQL. $namespace, $pool and $statefulSet "
                "stand for the pool's.",
            },
            "labels": {
                "type": ["object", "null"],
                "description": "The labels that name the vpod and its pod.",
                "properties": {
                    "vpodNamespace": {
                        **label,
                        "pattern": f"^({LABEL})?$",
                        "default": Labels().vpod_namespace,
                    },
                    "vpod": {**label, "default": Labels().vpod},
                    "pod": {**label, "default": Labels().pod},
                },
                "additionalProperties": False,
            },
            "caFile": {**file, "description": "Authorities of its certificate, PEM."},
            "tokenFile": {**file, "description": "A bearer token. Needs a url with https."},
            "periodSeconds": {
                "type": ["number", "null"],
                "minimum": plain(PERIOD_MIN_S),
                "maximum": plain(PERIOD_MAX_S),
                "default": plain(PERIOD_S),
            },
            "timeoutSeconds": {
                "type": ["number", "null"],
                "minimum": TIMEOUT_MIN_S,
                "maximum": plain(PERIOD_MAX_S),
                "default": plain(TIMEOUT_S),
            },
        },
        "additionalProperties": False,
        "if": _has(url={"type": "string", "pattern": "^http://"}),
        "then": {"allOf": [{"not": _has(caFile=_GIVEN)}, {"not": _has(tokenFile=_GIVEN)}]},
    }


def _plugins(role: str) -> Schema:
    names = sorted(name for name, factory in BUILT_IN_PLUGINS.items() if _plays(factory, role))
    weight = {"type": ["integer", "null"], "minimum": 0, "maximum": WEIGHT_MAX, "default": 1}
    properties: Mapping[str, Schema] = {
        "name": {**_GIVEN, "examples": names},
        "args": {"type": ["object", "string", "null"]},
        **({"weight": weight} if role != "filter" else {}),
    }
    entry = {
        "type": "object",
        "required": ["name"],
        "properties": properties,
        "additionalProperties": False,
    }
    return {"type": ["array", "null"], "maxItems": PLUGINS_MAX, "items": entry}


def _plays(factory: PluginFactory, role: str) -> bool:
    roles = {"filter": factory.filter, "score": factory.score, "descheduler": factory.deschedule}
    return roles[role] is not None


def _knative() -> Schema:
    return {
        "type": "object",
        "description": "Files with Knative's ConfigMaps. Relative names start from the folder of "
        "the configuration file.",
        "required": ["scheduler"],
        "properties": {
            "scheduler": _GIVEN,
            "descheduler": _GIVEN,
            "ignoreUnknown": {
                "type": "boolean",
                "default": False,
                "description": "Skip names that are no plugin, as Knative does.",
            },
        },
        "additionalProperties": False,
    }


_ITEMS: Final[Mapping[str, Callable[[], Schema]]] = {
    "profiles": _profile,
    "loadSources": _load_source,
}
"""The schema of an item of each list of mappings."""
