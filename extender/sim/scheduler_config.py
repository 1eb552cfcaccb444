"""kube-scheduler's configuration: the part that concerns extenders, profiles and timing.

Reads a KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``) and the legacy v1 Policy (up to 1.22, ``httpTimeout``
in integer nanoseconds), with kube-scheduler's defaults and its validation: ``validate`` returns field errors as data, the
``load_*`` functions raise them all at once.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from extender.core.decode import mapping, mappings, text
from extender.core.errors import VReplicaError
from extender.core.names import DEFAULT_SCHEDULER_NAME
from extender.sim.quantities import is_native_resource

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
DEFAULT_HTTP_TIMEOUT_S: Final = 5.0
"""DefaultExtenderTimeout, used where httpTimeout is 0."""

INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
DUPLICATE: Final = "FieldValueDuplicate"
UNKNOWN: Final = "FieldValueUnknown"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong: apimachinery's error ``type``, the ``field`` path and the ``detail``."""

    type: str
    field: str
    detail: str
    value: object = None

    def __str__(self) -> str:
        return f"{self.field}: {self.type}: {self.value!r}: {self.detail}"


class InvalidConfiguration(VReplicaError):
    """A configuration that kube-scheduler would refuse; ``errors`` says why."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class ManagedResource:
    """An extended resource that an extender manages."""

    name: str
    ignored_by_scheduler: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSConfig:
    """tlsConfig of an extender."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    ca_data: bytes = b""

    @property
    def empty(self) -> bool:
        """Nothing is set."""
        return self == TLSConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderConfig:
    """One entry of ``extenders``. ``http_timeout_s`` 0 is the default."""

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = False
    tls: TLSConfig = field(default_factory=TLSConfig)
    http_timeout_s: float = 0.0
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """One profile: pods with that spec.schedulerName are ours."""

    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    percentage_of_nodes_to_score: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """What the embedded kube-scheduler needs. ``percentage_of_nodes_to_score`` 0: by the size of the cluster."""

    profiles: tuple[ProfileConfig, ...] = (ProfileConfig(),)
    percentage_of_nodes_to_score: int = 0
    pod_initial_backoff_s: float = 1.0
    pod_max_backoff_s: float = 10.0
    extenders: tuple[ExtenderConfig, ...] = ()

    @property
    def ignored_resources(self) -> frozenset[str]:
        """Extended resources that only extenders count."""
        return frozenset(
            resource.name
            for extender in self.extenders
            for resource in extender.managed_resources
            if resource.ignored_by_scheduler
        )


# Reading

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
_DURATION_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def duration_s(value: str) -> float:
    """A Go duration (``1m30s``, ``100ms``, ``0``) in seconds. Raises ValueError."""
    sign, rest = (-1, value[1:]) if value.startswith("-") else (1, value.removeprefix("+"))
    if rest == "0":
        return 0.0
    parts = _DURATION_PART.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise ValueError(f'time: invalid duration "{value}"')
    return sign * sum(float(number) * _DURATION_UNITS_S[unit] for number, unit in parts)


class _Reader:
    """Reads typed fields of one document and collects what is wrong with it."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def wrong(self, path: str, detail: str, value: object) -> None:
        self.errors.append(FieldError(INVALID, path, detail, value))

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
        if type(value) is not int:
            self.wrong(f"{path}.{key}".lstrip("."), "must be an integer", value)
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
            if type(value) is int:
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


_EXTENDER_FIELDS: Final = frozenset(
    {
        "urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "weight", "bindVerb", "enableHTTPS", "tlsConfig",
        "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable",
    }
)  # fmt: skip
_TLS_FIELDS: Final = frozenset(
    {"insecure", "serverName", "certFile", "keyFile", "caFile", "certData", "keyData", "caData"}
)


def _extender(reader: _Reader, raw: Mapping[str, Any], path: str, *, legacy: bool) -> ExtenderConfig:
    https = "enableHttps" if legacy else "enableHTTPS"
    reader.unknown(raw, (_EXTENDER_FIELDS - {"enableHTTPS"}) | {https}, path)
    tls, tls_path = mapping(raw, "tlsConfig"), f"{path}.tlsConfig"
    reader.unknown(tls, _TLS_FIELDS, tls_path)
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
        http_timeout_s=reader.timeout_s(raw.get("httpTimeout"), f"{path}.httpTimeout", in_nanoseconds=legacy),
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


def _extenders(reader: _Reader, document: Mapping[str, Any], *, legacy: bool) -> tuple[ExtenderConfig, ...]:
    return tuple(
        _extender(reader, raw, f"extenders[{index}]", legacy=legacy)
        for index, raw in enumerate(mappings(document, "extenders"))
    )


def read_configuration(document: Mapping[str, Any]) -> tuple[SchedulerConfig, list[FieldError]]:
    """Read a KubeSchedulerConfiguration, with its defaults; all that is wrong comes back beside it."""
    reader = _Reader()
    if text(document, "apiVersion") != API_VERSION:
        reader.wrong("apiVersion", f"must be {API_VERSION}", document.get("apiVersion"))
    if text(document, "kind") != KIND:
        reader.wrong("kind", f"must be {KIND}", document.get("kind"))
    raw_profiles = mappings(document, "profiles") or [{}]
    profiles = tuple(
        ProfileConfig(
            # Only a single profile gets the default name.
            reader.word(raw, "schedulerName", f"profiles[{index}]")
            or (DEFAULT_SCHEDULER_NAME if len(raw_profiles) == 1 and "schedulerName" not in raw else ""),
            reader.number(raw, "percentageOfNodesToScore", f"profiles[{index}]", 0)
            if raw.get("percentageOfNodesToScore") is not None
            else None,
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


def read_policy(
    document: Mapping[str, Any], *, scheduler_name: str = DEFAULT_SCHEDULER_NAME
) -> tuple[SchedulerConfig, list[FieldError]]:
    """Read a legacy v1 Policy. Its predicates and priorities are not looked at: the default plugins run."""
    reader = _Reader()
    if text(document, "kind") != "Policy":
        reader.wrong("kind", "must be Policy", document.get("kind"))
    if text(document, "apiVersion") != "v1":
        reader.wrong("apiVersion", "must be v1", document.get("apiVersion"))
    config = SchedulerConfig(
        profiles=(ProfileConfig(scheduler_name),), extenders=_extenders(reader, document, legacy=True)
    )
    return config, [*reader.errors, *validate(config)]


def load_configuration(document: str | bytes) -> SchedulerConfig:
    """Read YAML or JSON text of a KubeSchedulerConfiguration, or of a v1 Policy. Raises InvalidConfiguration."""
    try:
        raw = yaml.safe_load(document)
    except yaml.YAMLError as error:
        raise InvalidConfiguration([FieldError(INVALID, "", f"cannot be parsed: {error}")]) from error
    if not isinstance(raw, dict):
        raise InvalidConfiguration([FieldError(INVALID, "", "must be one object", raw)])
    config, errors = read_policy(raw) if raw.get("kind") == "Policy" else read_configuration(raw)
    if errors:
        raise InvalidConfiguration(errors)
    return config


# Validation, in kube-scheduler's order and words


def validate(config: SchedulerConfig) -> list[FieldError]:
    """ValidateKubeSchedulerConfiguration, for the fields that are kept here."""
    errors = []
    first: dict[str, int] = {}
    for index, profile in enumerate(config.profiles):
        path = f"profiles[{index}]"
        if not profile.scheduler_name:
            errors.append(FieldError(REQUIRED, f"{path}.schedulerName", ""))
        errors += _percentage(f"{path}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score)
        if profile.scheduler_name in first:
            known = f"profiles[{first[profile.scheduler_name]}].schedulerName"
            errors.append(FieldError(DUPLICATE, f"{path}.schedulerName", "", known))
        first[profile.scheduler_name] = index
    errors += _percentage("percentageOfNodesToScore", config.percentage_of_nodes_to_score)
    if config.pod_initial_backoff_s <= 0:
        errors.append(
            FieldError(
                INVALID, "podInitialBackoffSeconds", "must be greater than 0", config.pod_initial_backoff_s
            )
        )
    if config.pod_max_backoff_s < config.pod_initial_backoff_s:
        errors.append(
            FieldError(
                INVALID,
                "podMaxBackoffSeconds",
                "must be greater than or equal to PodInitialBackoffSeconds",
                config.pod_max_backoff_s,
            )
        )
    return [*errors, *validate_extenders(config.extenders)]


def _percentage(path: str, value: int | None) -> list[FieldError]:
    if value is None or 0 <= value <= 100:
        return []
    return [FieldError(INVALID, path, "not in valid range [0-100]", value)]


def validate_extenders(extenders: tuple[ExtenderConfig, ...]) -> list[FieldError]:
    """Weights, at most one binder, and managed resources that are valid and unique over all extenders."""
    errors = []
    seen: set[str] = set()
    for index, extender in enumerate(extenders):
        path = f"extenders[{index}]"
        if extender.prioritize_verb and extender.weight <= 0:
            errors.append(
                FieldError(
                    INVALID, f"{path}.weight", "must have a positive weight applied to it", extender.weight
                )
            )
        for position, resource in enumerate(extender.managed_resources):
            name_path = f"{path}.managedResources[{position}].name"
            errors += [
                FieldError(INVALID, name_path, detail, resource.name) for detail in _bad_name(resource.name)
            ]
            if resource.name in seen:
                errors.append(
                    FieldError(INVALID, name_path, "duplicate extender managed resource name", resource.name)
                )
            seen.add(resource.name)
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        errors.append(
            FieldError(
                INVALID,
                "extenders",
                "only one extender can implement bind",
                f"found {binders} extenders implementing bind",
            )
        )
    return errors


_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def qualified_name_errors(value: str) -> list[str]:
    """IsQualifiedName: an optional DNS subdomain and ``/``, then a name of at most 63 characters."""
    errors = []
    prefix, slash, name = value.rpartition("/")
    if value.count("/") > 1:
        return [
            f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if slash and not prefix:
        errors.append("prefix part must be non-empty")
    elif prefix:
        if len(prefix) > 253:
            errors.append("prefix part must be no more than 253 bytes")
        if not _SUBDOMAIN.fullmatch(prefix):
            errors.append(f"prefix part {_SUBDOMAIN_RULE}")
    if not name:
        errors.append("name part must be non-empty")
    elif len(name) > 63:
        errors.append("name part must be no more than 63 bytes")
    if not _NAME.fullmatch(name):
        errors.append(f"name part {_NAME_RULE}")
    return errors


def _bad_name(name: str) -> list[str]:
    errors = qualified_name_errors(name)
    if errors:
        return errors
    extended = (
        not is_native_resource(name)
        and not name.startswith("requests.")
        and not qualified_name_errors(f"requests.{name}")
    )
    return [] if extended else ["is an invalid extended resource name"]
