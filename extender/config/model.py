# ruff: noqa: RUF009 - _of and _section make a field, as dataclasses.field does
"""The settings of ``VReplicaSchedulerConfiguration``, each with its name, default, range, meaning
and reload.

.. code-block:: yaml

    apiVersion: config.vreplica.dev/v1alpha1
    kind: VReplicaSchedulerConfiguration
    server: {host: 127.0.0.1, port: 10261, deadlineSeconds: 4, shutdownDelaySeconds: 0,
             healthPort: 0, healthHost: 127.0.0.1, insecure: false, allowedHosts: [],
             tls: {certFile: "", keyFile: "", clientCAFile: "", allowedClients: []}}
    leaderElection: {leaderElect: true, resourceNamespace: vreplica-system,
                     resourceName: vreplica-scheduler, leaseDurationSeconds: 15,
                     renewDeadlineSeconds: 10, retryPeriodSeconds: 2, buckets: 1}
    clientConnection: {kubeconfig: "", context: "", qps: 1000, burst: 2000}
    scaleCache: {refreshPeriodSeconds: 300, maxEntries: 10000}
    filter: {narrowTo: 0}
    pools: {namespaces: []}       # whose AdapterPools are served; []: those of all namespaces
    logging: {level: "", format: ""}
    mode: active                  # shadow: decide beside another scheduler, write nothing, report
                                  # the differences
    schedulerNames: [default-scheduler, vreplica-scheduler]    # only their pods are bound here
    schedule: {port: 0, host: 0.0.0.0, audience: vreplica-schedule, allowedServiceAccounts: [],
               tls: {certFile: "", keyFile: "", clientCAFile: "", allowedClients: []}}
    adapters: {port: 0, host: 0.0.0.0, audience: vreplica.dev, allowedServiceAccounts: [],
               tls: {certFile: "", keyFile: ""}}
    slotsResource: false          # true: adapter pods are marked with vreplica.dev/slots,
                                  # for managedResources of a shared kube-scheduler
    loadSources: []               # Prometheus queries for pools' load, see load_sources
    profiles: []                  # beside the built-in ones; extender.engine.policy reads each,
                                  # see docs/profiles.md

A new setting is one line here. Its ``reload`` is ``LIVE`` only if ``Service.reconfigure`` takes it
and no existing decision would be made differently. Profiles, for example, decide which vreplicas
stay where they are (I4), so they need a restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from extender.kube.budget import BURST_DEFAULT, QPS_DEFAULT
from extender.model.names import LEASE_NAME, OWN_NAMESPACE, SCHEDULER_NAMES
from extender.node.candidates import NODES_MAX

PROFILES_MAX: Final = 100
LOAD_SOURCES_MAX: Final = 20
ALLOWED_CLIENTS_MAX: Final = 100
ALLOWED_HOSTS_MAX: Final = 100
ALLOWED_ACCOUNTS_MAX: Final = 100
POOL_NAMESPACES_MAX: Final = 100
SCHEDULER_NAMES_MAX: Final = 32
BUCKETS_MAX: Final = 64
"""Each bucket is a Lease that is written every two seconds."""
SCALE_REFRESH_PERIOD_S: Final = 300.0
"""Knative's default."""
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""A namespace's name (RFC 1123), as a regular expression for Python and JSON schema."""
DNS_SUBDOMAIN: Final = f"{DNS_LABEL}([.]{DNS_LABEL})*"
"""The name of most other objects."""
METADATA_KEY: Final = "setting"


class Reload(StrEnum):
    """How a running replica takes a changed setting."""

    LIVE = "live"
    """The replica reads the changed file by itself."""
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The metadata of one setting. Its default and type are in the field of the dataclass.

    ``name`` is the name in the file, below its section; it has a dot if the section has no
    dataclass of its own. ``minimum`` and ``maximum`` are of a number, ``items_max`` of a list.
    ``pattern`` is what the whole of a string, or of each item of a list, must match; "" for any.
    """

    name: str
    text: str
    reload: Reload = Reload.RESTART
    minimum: float | None = None
    maximum: float | None = None
    items_max: int = 0
    pattern: str = ""


def _of(default: Any, name: str, text: str, **more: Any) -> Any:
    """Return a dataclass's field with this default and this ``Setting``."""
    return field(default=default, metadata={METADATA_KEY: Setting(name=name, text=text, **more)})


def _section(made_by: Any, name: str, text: str) -> Any:
    """Return a field that is a section of the file."""
    return field(default_factory=made_by, metadata={METADATA_KEY: Setting(name=name, text=text)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingTlsConfig:
    """TLS of a listener whose clients show no certificates."""

    cert_file: str = _of(
        "",
        "certFile",
        "File with the serving certificate, PEM. If the file is replaced, the server uses the new "
        "certificate within seconds.",
    )
    key_file: str = _of("", "keyFile", "File with the key of certFile, PEM.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig(ServingTlsConfig):
    """TLS of a listener whose clients may show certificates."""

    client_ca_file: str = _of(
        "",
        "clientCAFile",
        "File with the authorities that sign client certificates, PEM. If it is set, the server "
        "serves only clients with a certificate of these authorities.",
    )
    allowed_clients: tuple[str, ...] = _of(
        (),
        "allowedClients",
        "Common names or subjectAltNames of the clients that are served. If it is empty, all "
        "clients with a certificate of clientCAFile are served.",
        reload=Reload.LIVE,
        items_max=ALLOWED_CLIENTS_MAX,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where the extender's verbs are served.

    ``health_host`` stays on loopback unless a kubelet or a scraper must reach it. A kubelet's
    probe comes to the pod's address and needs no metrics: ``health_metrics``. ``allowed_hosts``
    guards against DNS rebinding: a web page whose own name resolves to this server sends that name.
    """

    host: str = _of(
        "127.0.0.1",
        "host",
        "Address to listen on. 0.0.0.0 and :: both mean all IPv4 and IPv6 addresses. Any address "
        "beyond loopback needs TLS with client certificates.",
    )
    port: int = _of(
        10261, "port", "Port to listen on. 0 means any free port.", minimum=0, maximum=65535
    )
    deadline_s: float = _of(
        4.0,
        "deadlineSeconds",
        "Time to answer a verb. Keep it below kube-scheduler's httpTimeout (5 s).",
        reload=Reload.LIVE,
        minimum=0.1,
        maximum=60.0,
    )
    shutdown_delay_s: float = _of(
        0.0,
        "shutdownDelaySeconds",
        "How long the server still answers verbs after SIGTERM. Meanwhile the endpoints of a "
        "Service forget this replica.",
        reload=Reload.LIVE,
        minimum=0.0,
        maximum=60.0,
    )
    health_port: int = _of(
        0,
        "healthPort",
        "A second port, which serves only health and, with healthMetrics, metrics, over plain "
        "HTTP. Probes and scrapers have no client certificate. 0 means no second port.",
        minimum=0,
        maximum=65535,
    )
    health_host: str = _of(
        "127.0.0.1",
        "healthHost",
        "Address that healthPort listens on. It has the same form as host.",
    )
    health_metrics: bool = _of(
        True,
        "healthMetrics",
        "Whether healthPort serves /metrics too. Without it, the port answers /livez, /readyz and "
        "/healthz only.",
    )
    insecure: bool = _of(
        False, "insecure", "Allow an address beyond loopback without client certificates."
    )
    allowed_hosts: tuple[str, ...] = _of(
        (),
        "allowedHosts",
        "Host names that a request over plain HTTP may use, in lower case. Addresses, names "
        "without a dot, and names in `.svc` or `.svc.cluster.local` are always allowed.",
        reload=Reload.LIVE,
        items_max=ALLOWED_HOSTS_MAX,
    )
    tls: TlsConfig = _section(TlsConfig, "tls", "TLS of the extender's server.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """The listener for controllers in other pods. Its ``tls`` is its own."""

    port: int = _of(
        0,
        "port",
        "Port of a listener for POST /v1/schedule only, over TLS, for controllers in other pods. "
        "0 means no such listener.",
        minimum=0,
        maximum=65535,
    )
    host: str = _of(
        "0.0.0.0", "host", "Address that port listens on. It has the form of server.host."
    )
    audience: str = _of(
        "vreplica-schedule",
        "audience",
        "Audience that a caller's token must have.",
    )
    allowed_service_accounts: tuple[str, ...] = _of(
        (),
        "allowedServiceAccounts",
        "ServiceAccounts whose tokens are accepted, as namespace/name. The API server reviews the "
        "tokens (TokenReview).",
        reload=Reload.LIVE,
        items_max=ALLOWED_ACCOUNTS_MAX,
    )
    tls: TlsConfig = _section(
        TlsConfig,
        "tls",
        "TLS of this listener. With clientCAFile, callers show a certificate instead of a token.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptersConfig:
    """The listener for adapters and for those who route to them."""

    port: int = _of(
        0,
        "port",
        "Port of a listener over TLS, where adapter pods of pools with spec.handoff learn their "
        "assignment and acknowledge it, and routers ask where a vpod's work is. 0 means no such "
        "listener.",
        minimum=0,
        maximum=65535,
    )
    host: str = _of(
        "0.0.0.0", "host", "Address that port listens on. It has the form of server.host."
    )
    audience: str = _of(
        "vreplica.dev",
        "audience",
        "Audience that a caller's token must have. An adapter's token must be bound to its pod, as "
        "that of a projected volume is.",
    )
    allowed_service_accounts: tuple[str, ...] = _of(
        (),
        "allowedServiceAccounts",
        "ServiceAccounts beside those of adapters that may ask where a vpod's work is, as "
        "namespace/name.",
        reload=Reload.LIVE,
        items_max=ALLOWED_ACCOUNTS_MAX,
    )
    tls: ServingTlsConfig = _section(ServingTlsConfig, "tls", "TLS of this listener.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionConfig:
    """How replicas elect leaders, by a Lease for each bucket of pools."""

    leader_elect: bool = _of(
        True, "leaderElect", "If it is false, this replica always leads. Then run only one replica."
    )
    resource_namespace: str = _of(
        OWN_NAMESPACE, "resourceNamespace", "Namespace of the Leases.", pattern=DNS_LABEL
    )
    resource_name: str = _of(
        LEASE_NAME,
        "resourceName",
        "Name of the Lease. If there are several buckets, the names of their Leases begin with it.",
        pattern=DNS_SUBDOMAIN,
    )
    lease_duration_s: int = _of(
        15,
        "leaseDurationSeconds",
        "How long other replicas wait for a leader that has stopped renewing. Must be greater than "
        "renewDeadlineSeconds.",
        minimum=1,
        maximum=3600,
    )
    renew_deadline_s: float = _of(
        10.0,
        "renewDeadlineSeconds",
        "How long a leader tries to renew before it gives up. Must be greater than 1.2 times "
        "retryPeriodSeconds.",
        minimum=0.1,
        maximum=3600,
    )
    retry_period_s: float = _of(
        2.0,
        "retryPeriodSeconds",
        "Time between two tries to acquire or renew a Lease.",
        minimum=0.1,
        maximum=3600,
    )
    buckets: int = _of(
        1,
        "buckets",
        "Number of parts into which the pools are divided. Each part has a Lease and a leader of "
        "its own, so several replicas lead. Must be the same for all replicas.",
        minimum=1,
        maximum=BUCKETS_MAX,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnectionConfig:
    """How to reach the API server. ``qps`` and ``burst`` are requests of each lane."""

    kubeconfig: str = _of(
        "",
        "kubeconfig",
        "kubeconfig file. If it is empty: the pod's ServiceAccount, or the file that kubectl would "
        "use.",
    )
    context: str = _of(
        "", "context", "Context of the kubeconfig file. If it is empty: the current one."
    )
    qps: float = _of(
        QPS_DEFAULT,
        "qps",
        "Requests per second to the API server. The limit is for reads, writes and events each.",
        reload=Reload.LIVE,
        minimum=1.0,
        maximum=1e6,
    )
    burst: int = _of(
        BURST_DEFAULT,
        "burst",
        "Requests to the API server at once. The limit is for reads, writes and events each.",
        reload=Reload.LIVE,
        minimum=1,
        maximum=1_000_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleCacheConfig:
    """The autoscaler's cache of scale subresources (Knative's ScaleCacheConfig, whose RefreshPeriod
    is 5 minutes by default).
    """

    refresh_period_s: float = _of(
        SCALE_REFRESH_PERIOD_S,
        "refreshPeriodSeconds",
        "How long the autoscaler uses a StatefulSet's scale before it reads it again. A change of "
        "the StatefulSet ends that at once. 0 means the default.",
        reload=Reload.LIVE,
        minimum=0.0,
        maximum=86_400.0,
    )
    entries_max: int = _of(
        10_000,
        "maxEntries",
        "Number of StatefulSets whose scales are kept. The oldest go first.",
        reload=Reload.LIVE,
        minimum=1,
        maximum=1_000_000,
    )


class Mode(StrEnum):
    """What the service does with its decisions."""

    ACTIVE = "active"
    SHADOW = "shadow"
    """Write nothing, and compare the decisions with what another scheduler publishes."""


class LogLevel(StrEnum):
    """``logging.level``."""

    AS_STARTED = ""
    """As ``--log-level`` says."""
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormatOverride(StrEnum):
    """``logging.format``."""

    AS_STARTED = ""
    """As ``--log-format`` says."""
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole file. ``profiles`` and ``load_sources`` are plain documents.
    ``extender.config.profiles`` and ``extender.config.load_sources`` read them.
    """

    server: ServerConfig = _section(
        ServerConfig, "server", "Where the extender's verbs are served."
    )
    schedule: ScheduleConfig = _section(
        ScheduleConfig, "schedule", "Where controllers in other pods reach POST /v1/schedule."
    )
    adapters: AdaptersConfig = _section(
        AdaptersConfig, "adapters", "Where adapters learn their assignment and acknowledge it."
    )
    leader_election: LeaderElectionConfig = _section(
        LeaderElectionConfig, "leaderElection", "How replicas elect leaders."
    )
    client_connection: ClientConnectionConfig = _section(
        ClientConnectionConfig,
        "clientConnection",
        "How to reach the API server, and how many requests to send.",
    )
    scale_cache: ScaleCacheConfig = _section(
        ScaleCacheConfig, "scaleCache", "How long the autoscaler keeps StatefulSets' scales."
    )
    mode: Mode = _of(
        Mode.ACTIVE,
        "mode",
        "With shadow, the service decides beside another scheduler, writes nothing and reports the "
        "differences.",
    )
    scheduler_names: frozenset[str] = _of(
        SCHEDULER_NAMES,
        "schedulerNames",
        "Profiles of the kube-schedulers that call this extender. The service binds only pods that "
        "name one of them as their scheduler.",
        reload=Reload.LIVE,
        items_max=SCHEDULER_NAMES_MAX,
    )
    slots_resource: bool = _of(
        False,
        "slotsResource",
        "If it is true, the webhook makes adapter pods request 0 of vreplica.dev/slots. Set it if "
        "kube-scheduler places other pods too and has this resource in managedResources.",
    )
    """If true, kube-scheduler asks the extender only about pods with that resource. If false, it
    asks about all pods that name the scheduler.
    """
    narrow_to: int = _of(
        0,
        "filter.narrowTo",
        "Maximum number of nodes that filter passes. It passes the best ones. 0 means all nodes "
        "that the pod may go to.",
        reload=Reload.LIVE,
        minimum=0,
        maximum=NODES_MAX,
    )
    """See ``extender.node.narrowing``."""
    pool_namespaces: frozenset[str] = _of(
        frozenset(),
        "pools.namespaces",
        "Namespaces whose AdapterPools this installation serves. It leaves pools of other "
        "namespaces, and the vpods that name them, to other installations. If it is empty, the "
        "pools of all namespaces are served. Must be the same for all replicas.",
        items_max=POOL_NAMESPACES_MAX,
        pattern=DNS_LABEL,
    )
    log_level: LogLevel = _of(
        LogLevel.AS_STARTED,
        "logging.level",
        "Lowest level that is logged. If it is empty, the option --log-level applies.",
        reload=Reload.LIVE,
    )
    log_format: LogFormatOverride = _of(
        LogFormatOverride.AS_STARTED,
        "logging.format",
        "json writes one object per line. If it is empty, the option --log-format applies.",
        reload=Reload.LIVE,
    )
    load_sources: tuple[Mapping[str, object], ...] = _of(
        (),
        "loadSources",
        "Prometheus queries that pools may take their load from (docs/balancing.md).",
        items_max=LOAD_SOURCES_MAX,
    )
    profiles: tuple[Mapping[str, object], ...] = _of(
        (),
        "profiles",
        "Your own profiles, in addition to the built-in ones (docs/profiles.md).",
        items_max=PROFILES_MAX,
    )
