"""The part of kube-scheduler's configuration that is used here (extenders, profiles and timing),
with kube-scheduler's validation.

``validate`` returns field errors as data. ``kube_scheduler_file`` reads the documents.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.model.names import DEFAULT_SCHEDULER_NAME

DEFAULT_HTTP_TIMEOUT_S: Final = 5.0
"""kube-scheduler's DefaultExtenderTimeout, used if httpTimeout is 0."""

INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
DUPLICATE: Final = "FieldValueDuplicate"
UNKNOWN: Final = "FieldValueUnknown"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error: apimachinery's error ``type``, the ``field`` path and the ``detail``."""

    type: str
    field: str
    detail: str
    value: object = None

    def __str__(self) -> str:
        return f"{self.field}: {self.type}: {self.value!r}: {self.detail}"


def invalid(path: str, detail: str, value: object) -> FieldError:
    """Return the error of a field whose value is not allowed."""
    return FieldError(INVALID, path, detail, value)


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
        """Whether nothing is set."""
        return self == TLSConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderConfig:
    """One entry of ``extenders``. With ``http_timeout_s`` 0, ``DEFAULT_HTTP_TIMEOUT_S`` applies."""

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
    """One profile. It schedules the pods whose spec.schedulerName is ``scheduler_name``."""

    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    percentage_of_nodes_to_score: int | None = None
    ignored_resources: tuple[str, ...] = ()
    """From NodeResourcesFit's arguments. The embedded scheduler merges those of all profiles."""


@dataclass(frozen=True, slots=True)
class CapacityRatio:
    """The argument requestedToCapacityRatioArguments. ``shape``: points (utilization 0..100, score
    0..10), in increasing order; ``resources``: name -> weight.
    """

    shape: tuple[tuple[int, int], ...]
    resources: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a Policy asks of the plugins. ``priorities``: name -> weight.

    ``present_labels``, ``absent_labels``: labels that a node must have, or must not have (argument
    labelsPresence). ``preferred_labels``: label -> whether nodes with it are preferred, or those
    without (argument labelPreference).
    """

    predicates: frozenset[str]
    priorities: Mapping[str, int]
    present_labels: tuple[str, ...] = ()
    absent_labels: tuple[str, ...] = ()
    preferred_labels: tuple[tuple[str, bool], ...] = ()
    hard_pod_affinity_weight: int = 0
    """hardPodAffinitySymmetricWeight; 0: InterPodAffinity's own default."""
    always_check_all_predicates: bool = False
    affinity_labels: tuple[str, ...] = ()
    """Labels of nodes that the pods of a Service have in common (argument serviceAffinity)."""
    anti_affinity_labels: tuple[str, ...] = ()
    """Labels over whose values the pods of a Service spread (argument serviceAntiAffinity)."""
    capacity_ratio: CapacityRatio | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """The configuration of the embedded kube-scheduler. With ``percentage_of_nodes_to_score`` 0,
    the percentage depends on the size of the cluster.
    """

    profiles: tuple[ProfileConfig, ...] = (ProfileConfig(),)
    percentage_of_nodes_to_score: int = 0
    pod_initial_backoff_s: float = 1.0
    pod_max_backoff_s: float = 10.0
    extenders: tuple[ExtenderConfig, ...] = ()
    policy: Policy | None = None
    """The plugins of a legacy Policy file; None: the default profile's."""

    @property
    def ignored_resources(self) -> frozenset[str]:
        """Extended resources that NodeResourcesFit ignores. If extenders manage any such resource,
        NodeResourcesFit's own arguments do not apply.
        """
        managed = frozenset(
            resource.name
            for extender in self.extenders
            for resource in extender.managed_resources
            if resource.ignored_by_scheduler
        )
        return managed or frozenset(
            name for profile in self.profiles for name in profile.ignored_resources
        )


# Validation, in kube-scheduler's order and with its messages


def validate(config: SchedulerConfig) -> list[FieldError]:
    """ValidateKubeSchedulerConfiguration, for the fields that ``SchedulerConfig`` has."""
    errors = []
    first: dict[str, int] = {}
    for index, profile in enumerate(config.profiles):
        path = f"profiles[{index}]"
        if not profile.scheduler_name:
            errors.append(FieldError(REQUIRED, f"{path}.schedulerName", ""))
        errors += _percentage(
            f"{path}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score
        )
        if profile.scheduler_name in first:
            known = f"profiles[{first[profile.scheduler_name]}].schedulerName"
            errors.append(FieldError(DUPLICATE, f"{path}.schedulerName", "", known))
        first[profile.scheduler_name] = index
    errors += _percentage("percentageOfNodesToScore", config.percentage_of_nodes_to_score)
    initial_s, max_s = config.pod_initial_backoff_s, config.pod_max_backoff_s
    if initial_s <= 0:
        errors.append(invalid("podInitialBackoffSeconds", "must be greater than 0", initial_s))
    if max_s < initial_s:
        detail = "must be greater than or equal to PodInitialBackoffSeconds"
        errors.append(invalid("podMaxBackoffSeconds", detail, max_s))
    return [*errors, *validate_extenders(config.extenders)]


def _percentage(path: str, value: int | None) -> list[FieldError]:
    if value is None or 0 <= value <= 100:
        return []
    return [invalid(path, "not in valid range [0-100]", value)]


def validate_extenders(extenders: tuple[ExtenderConfig, ...]) -> list[FieldError]:
    """Check weights, that at most one extender binds, and that managed resources are valid and
    unique across all extenders.
    """
    errors = []
    seen: set[str] = set()
    for index, extender in enumerate(extenders):
        path = f"extenders[{index}]"
        if extender.prioritize_verb and extender.weight <= 0:
            detail = "must have a positive weight applied to it"
            errors.append(invalid(f"{path}.weight", detail, extender.weight))
        for position, resource in enumerate(extender.managed_resources):
            name_path = f"{path}.managedResources[{position}].name"
            details = _bad_name(resource.name)
            if resource.name in seen:
                details.append("duplicate extender managed resource name")
            errors += [invalid(name_path, detail, resource.name) for detail in details]
            seen.add(resource.name)
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        found = f"found {binders} extenders implementing bind"
        errors.append(invalid("extenders", "only one extender can implement bind", found))
    return errors


NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with "
    "an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def qualified_name_errors(value: str) -> list[str]:
    """IsQualifiedName: an optional DNS subdomain and ``/``, then a name of at most 63
    characters.
    """
    errors = []
    prefix, slash, name = value.rpartition("/")
    if value.count("/") > 1:
        return [
            f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. "
            f"'example.com/MyName')"
        ]
    if slash and not prefix:
        errors.append("prefix part must be non-empty")
    elif prefix:
        if len(prefix) > 253:
            errors.append("prefix part must be no more than 253 bytes")
        if not SUBDOMAIN.fullmatch(prefix):
            errors.append(f"prefix part {SUBDOMAIN_RULE}")
    if not name:
        errors.append("name part must be non-empty")
    elif len(name) > 63:
        errors.append("name part must be no more than 63 bytes")
    if not NAME.fullmatch(name):
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


def is_native_resource(name: str) -> bool:
    """Whether a resource name is in the ``*kubernetes.io/`` namespace, as names without a prefix
    are.
    """
    return "/" not in name or "kubernetes.io/" in name
