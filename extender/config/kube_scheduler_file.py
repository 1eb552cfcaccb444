"""Reads kube-scheduler's configuration files.

They hold a KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``) or a legacy v1 Policy
(up to 1.22, with ``httpTimeout`` in integer nanoseconds). Defaults are kube-scheduler's. The
``read_*`` functions return all errors beside the configuration. ``load_configuration`` raises them
together.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from extender.config.kube_scheduler import (
    UNKNOWN,
    ExtenderConfig,
    FieldError,
    ManagedResource,
    ProfileConfig,
    SchedulerConfig,
    TLSConfig,
    invalid,
    validate,
)
from extender.config.policy import PolicyReader
from extender.model.errors import VReplicaError
from extender.model.names import DEFAULT_SCHEDULER_NAME
from extender.model.reading import mapping, mappings, text, texts
from extender.model.yaml_errors import NOT_YAML, why_not_yaml

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"


class InvalidConfiguration(VReplicaError):
    """A configuration that kube-scheduler would refuse; ``errors`` says why."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = errors


_DURATION_UNITS_S: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
INT64_MAX: Final = 2**63 - 1
"""Go's largest integer, and its longest duration in nanoseconds. kube-scheduler refuses more."""
_DURATION_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def duration_s(value: str) -> float:
    """A Go duration (``1m30s``, ``100ms``, ``0``) in seconds. Raises ValueError."""
    sign, rest = (-1, value[1:]) if value.startswith("-") else (1, value.removeprefix("+"))
    if rest == "0":
        return 0.0
    parts = _DURATION_PART.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise ValueError(f'time: invalid duration "{value}"')
    seconds = sum(float(number) * _DURATION_UNITS_S[unit] for number, unit in parts)
    if seconds * 1e9 > INT64_MAX:
        raise ValueError(f'time: invalid duration "{value}"')
    return sign * seconds


class _FieldReader:
    """Reads typed fields of one document and collects the errors."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def wrong(self, path: str, detail: str, value: object) -> None:
        self.errors.append(invalid(path, detail, value))

    def flag(self, raw: Mapping[str, object], key: str, path: str) -> bool:
        value = raw.get(key)
        if value is not None and not isinstance(value, bool):
            self.wrong(f"{path}.{key}", "must be a boolean", value)
        return value is True

    def word(self, raw: Mapping[str, object], key: str, path: str) -> str:
        value = raw.get(key)
        if value is not None and not isinstance(value, str):
            self.wrong(f"{path}.{key}", "must be a string", value)
        return value if isinstance(value, str) else ""

    def number(self, raw: Mapping[str, object], key: str, path: str, default: int) -> int:
        value = raw.get(key)
        if value is None:
            return default
        if type(value) is not int or abs(value) > INT64_MAX:
            self.wrong(f"{path}.{key}".lstrip("."), "must be an integer of 64 bits", value)
            return default
        return value

    def unknown(self, raw: Mapping[str, object], known: frozenset[str], path: str) -> None:
        self.errors += [
            FieldError(UNKNOWN, f"{path}.{key}".lstrip("."), f'unknown field "{key}"')
            for key in raw
            if key not in known
        ]

    def timeout_s(self, value: object, path: str, *, in_nanoseconds: bool) -> float:
        if value is None:
            return 0.0
        if in_nanoseconds:
            if type(value) is int and abs(value) <= INT64_MAX:
                return value / 1e9
            self.wrong(path, "must be an integer of nanoseconds", value)
            return 0.0
        if not isinstance(value, str):
            self.wrong(path, "must be a duration such as 5s", value)
            return 0.0
        try:
            return duration_s(value)
        except ValueError as error:
            self.wrong(path, str(error), value)
            return 0.0

    def data(self, raw: Mapping[str, object], key: str, path: str) -> bytes:
        try:
            return base64.b64decode(self.word(raw, key, path), validate=True)
        except binascii.Error as error:
            self.wrong(f"{path}.{key}", f"must be base64: {error}", raw.get(key))
            return b""


EXTENDER_FIELDS: Final = frozenset(
    {
        "urlPrefix",
        "filterVerb",
        "preemptVerb",
        "prioritizeVerb",
        "weight",
        "bindVerb",
        "enableHTTPS",
        "tlsConfig",
        "httpTimeout",
        "nodeCacheCapable",
        "managedResources",
        "ignorable",
    }
)
TLS_FIELDS: Final = frozenset(
    {"insecure", "serverName", "certFile", "keyFile", "caFile", "certData", "keyData", "caData"}
)


def _extender(
    reader: _FieldReader, raw: Mapping[str, Any], path: str, *, legacy: bool
) -> ExtenderConfig:
    https = "enableHttps" if legacy else "enableHTTPS"
    reader.unknown(raw, (EXTENDER_FIELDS - {"enableHTTPS"}) | {https}, path)
    tls, tls_path = mapping(raw, "tlsConfig"), f"{path}.tlsConfig"
    reader.unknown(tls, TLS_FIELDS, tls_path)
    return ExtenderConfig(
        url_prefix=reader.word(raw, "urlPrefix", path),
        filter_verb=reader.word(raw, "filterVerb", path),
        preempt_verb=reader.word(raw, "preemptVerb", path),
        prioritize_verb=reader.word(raw, "prioritizeVerb", path),
        weight=reader.number(raw, "weight", path, 0),
        bind_verb=reader.word(raw, "bindVerb", path),
        enable_https=reader.flag(raw, https, path),
        tls=TLSConfig(
            insecure=reader.flag(tls, "insecure", tls_path),
            server_name=reader.word(tls, "serverName", tls_path),
            cert_file=reader.word(tls, "certFile", tls_path),
            key_file=reader.word(tls, "keyFile", tls_path),
            ca_file=reader.word(tls, "caFile", tls_path),
            ca_data=reader.data(tls, "caData", tls_path),
        ),
        http_timeout_s=reader.timeout_s(
            raw.get("httpTimeout"), f"{path}.httpTimeout", in_nanoseconds=legacy
        ),
        node_cache_capable=reader.flag(raw, "nodeCacheCapable", path),
        managed_resources=tuple(
            ManagedResource(
                reader.word(item, "name", f"{path}.managedResources[{index}]"),
                reader.flag(item, "ignoredByScheduler", f"{path}.managedResources[{index}]"),
            )
            for index, item in enumerate(mappings(raw, "managedResources"))
        ),
        ignorable=reader.flag(raw, "ignorable", path),
    )


def _extenders(
    reader: _FieldReader, document: Mapping[str, Any], *, legacy: bool
) -> tuple[ExtenderConfig, ...]:
    return tuple(
        _extender(reader, raw, f"extenders[{index}]", legacy=legacy)
        for index, raw in enumerate(mappings(document, "extenders"))
    )


def read_configuration(document: Mapping[str, Any]) -> tuple[SchedulerConfig, list[FieldError]]:
    """Read a KubeSchedulerConfiguration with its defaults. Return it and all errors."""
    reader = _FieldReader()
    if text(document, "apiVersion") != API_VERSION:
        reader.wrong("apiVersion", f"must be {API_VERSION}", document.get("apiVersion"))
    if text(document, "kind") != KIND:
        reader.wrong("kind", f"must be {KIND}", document.get("kind"))
    raw_profiles = mappings(document, "profiles") or [{}]
    profiles = tuple(
        ProfileConfig(
            # Only a single profile gets the default name.
            reader.word(raw, "schedulerName", f"profiles[{index}]")
            or (
                DEFAULT_SCHEDULER_NAME
                if len(raw_profiles) == 1 and "schedulerName" not in raw
                else ""
            ),
            reader.number(raw, "percentageOfNodesToScore", f"profiles[{index}]", 0)
            if raw.get("percentageOfNodesToScore") is not None
            else None,
            ignored_resources=tuple(
                name
                for plugin in mappings(raw, "pluginConfig")
                if text(plugin, "name") == "NodeResourcesFit"
                for name in texts(plugin, "args", "ignoredResources")
            ),
        )
        for index, raw in enumerate(raw_profiles)
    )
    config = SchedulerConfig(
        profiles=profiles,
        percentage_of_nodes_to_score=reader.number(document, "percentageOfNodesToScore", "", 0),
        pod_initial_backoff_s=reader.number(document, "podInitialBackoffSeconds", "", 1),
        pod_max_backoff_s=reader.number(document, "podMaxBackoffSeconds", "", 10),
        extenders=_extenders(reader, document, legacy=False),
    )
    return config, [*reader.errors, *validate(config)]


def read_policy(document: Mapping[str, Any]) -> tuple[SchedulerConfig, list[FieldError]]:
    """Read a legacy v1 Policy."""
    reader = _FieldReader()
    if text(document, "kind") != "Policy":
        reader.wrong("kind", "must be Policy", document.get("kind"))
    if text(document, "apiVersion") != "v1":
        reader.wrong("apiVersion", "must be v1", document.get("apiVersion"))
    policy = PolicyReader(document)
    config = SchedulerConfig(
        extenders=_extenders(reader, document, legacy=True), policy=policy.read()
    )
    return config, [*reader.errors, *policy.errors, *validate(config)]


def load_configuration(document: str | bytes) -> SchedulerConfig:
    """Read YAML or JSON text of a KubeSchedulerConfiguration or a v1 Policy. Raises
    InvalidConfiguration.
    """
    try:
        raw = yaml.safe_load(document)
    except NOT_YAML as error:
        problem = f"cannot be parsed: {why_not_yaml(error)}"
        raise InvalidConfiguration([invalid("", problem, None)]) from error
    if not isinstance(raw, dict):
        raise InvalidConfiguration([invalid("", "must be one object", raw)])
    config, errors = read_policy(raw) if raw.get("kind") == "Policy" else read_configuration(raw)
    if errors:
        raise InvalidConfiguration(errors)
    return config
