"""``VReplicaSchedulerConfiguration``: the service's configuration file, read strictly.

.. code-block:: yaml

    apiVersion: config.vreplica.dev/v1alpha1
    kind: VReplicaSchedulerConfiguration
    server: {host: 127.0.0.1, port: 10261, deadlineSeconds: 4, shutdownDelaySeconds: 0, healthPort: 0, insecure: false,
             tls: {certFile: "", keyFile: "", clientCAFile: "", allowedClients: []}}
    leaderElection: {leaderElect: true, resourceNamespace: vreplica-system, resourceName: vreplica-scheduler,
                     leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 2, buckets: 1}
    clientConnection: {kubeconfig: "", context: "", qps: 1000, burst: 2000}
    mode: active                  # shadow: decide beside another scheduler, write nothing, report the differences
    schedulerNames: [vreplica-scheduler, default-scheduler]    # only pods of these schedulers are bound here
    profiles: []                  # beside the built-in ones; each is read by core.policy, see docs/profiles.md

Everything but apiVersion and kind has a default. An unknown field, a wrong type or a value out of its range is an
InvalidObject that names the field: a typing error must not silently become a default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import yaml

from extender.core.errors import InvalidObject
from extender.core.names import CONFIG_API_VERSION, CONFIG_KIND, LEASE_NAME, SCHEDULER_NAMES
from extender.core.reading import refuse_strange
from extender.core.wire import NODES_MAX
from extender.kube.budget import BURST_DEFAULT, QPS_DEFAULT

CONFIG_BYTES_MAX: Final = 1024 * 1024
PROFILES_MAX: Final = 100
ALLOWED_CLIENTS_MAX: Final = 100
SCHEDULER_NAMES_MAX: Final = 32
BUCKETS_MAX: Final = 64
"""Each is a Lease that is written every two seconds."""
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Serving certificate; with ``client_ca_file`` only clients with a certificate of that CA are served.

    ``allowed_clients``: of those, only the ones with such a common name or subjectAltName; empty: all of them.
    """

    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    allowed_clients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where the extender's verbs are served. ``deadline_s`` must stay below kube-scheduler's httpTimeout (5 s).

    ``health_port``: health and metrics on loopback over plain HTTP too, for probes, which have no client certificate;
    0: not. ``shutdown_delay_s``: how long verbs are still answered after SIGTERM. ``insecure``: beyond loopback without
    client certificates all the same.
    """

    host: str = "127.0.0.1"
    port: int = 10261
    deadline_s: float = 4.0
    shutdown_delay_s: float = 0.0
    health_port: int = 0
    insecure: bool = False
    tls: TlsConfig = field(default_factory=TlsConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionConfig:
    """The Lease. Without ``leader_elect`` this replica always leads: for a single one, and for development.

    ``buckets``: in how many parts the pools are led, by a Lease each; replicas share them.
    """

    leader_elect: bool = True
    resource_namespace: str = "vreplica-system"
    resource_name: str = LEASE_NAME
    lease_duration_s: int = 15
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0
    buckets: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnectionConfig:
    """How to reach the API server; an empty kubeconfig is the in-cluster one. qps and burst are requests, of each lane."""

    kubeconfig: str = ""
    context: str = ""
    qps: float = QPS_DEFAULT
    burst: int = BURST_DEFAULT


class Mode(StrEnum):
    """What the service does with its decisions."""

    ACTIVE = "active"
    SHADOW = "shadow"
    """Nothing is written: what would be decided is compared with what another scheduler publishes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole file. ``profiles``: documents as they stand; who starts the service makes Profiles of them."""

    server: ServerConfig = field(default_factory=ServerConfig)
    leader_election: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)
    client_connection: ClientConnectionConfig = field(default_factory=ClientConnectionConfig)
    mode: Mode = Mode.ACTIVE
    scheduler_names: frozenset[str] = SCHEDULER_NAMES
    """Profiles of kube-schedulers that call this extender."""
    narrow_to: int = 0
    """Nodes that filter passes at the most, the best ones (``node_level.narrowing``); 0: all that the pod may go to."""
    profiles: tuple[Mapping[str, object], ...] = ()


def load_config(path: str) -> Config:
    """Read a file. Raises InvalidObject, also where it cannot be opened."""
    return config_from(read_document(path), path)


def read_document(path: str) -> object:
    """The one YAML document in a file. Raises InvalidObject, also where it cannot be opened."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidObject(path, "", f"cannot be read: {error.strerror}") from error
    if len(raw) > CONFIG_BYTES_MAX:
        raise InvalidObject(path, "", f"is larger than {CONFIG_BYTES_MAX} bytes")
    try:
        document: object = yaml.safe_load(raw)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: also a date that does not exist. The parser tells on several lines where it stopped.
        raise InvalidObject(path, "", f"is not YAML: {' '.join(str(error).split())[:300]}") from error
    refuse_strange(document, path)
    return document


def config_from(document: object, subject: str = CONFIG_KIND) -> Config:
    """Read a document. Raises InvalidObject, naming ``subject``."""
    root = _Section(subject, "", document)
    for name, expected in (("apiVersion", CONFIG_API_VERSION), ("kind", CONFIG_KIND)):
        if root.text(name, "") != expected:
            raise InvalidObject(subject, name, f"must be {expected}")
    server = root.section("server")
    tls = server.section("tls")
    election = root.section("leaderElection")
    client = root.section("clientConnection")
    filters = root.section("filter")
    config = Config(
        server=ServerConfig(
            host=server.text("host", "127.0.0.1"),
            port=server.whole("port", 10261, 0, 65535),
            deadline_s=server.number("deadlineSeconds", 4.0, 0.1, 60.0),
            shutdown_delay_s=server.number("shutdownDelaySeconds", 0.0, 0.0, 60.0),
            health_port=server.whole("healthPort", 0, 0, 65535),
            insecure=server.flag("insecure", default=False),
            tls=TlsConfig(
                cert_file=tls.text("certFile", ""),
                key_file=tls.text("keyFile", ""),
                client_ca_file=tls.text("clientCAFile", ""),
                allowed_clients=tls.texts("allowedClients", ALLOWED_CLIENTS_MAX),
            ),
        ),
        leader_election=LeaderElectionConfig(
            leader_elect=election.flag("leaderElect", default=True),
            resource_namespace=election.text("resourceNamespace", "vreplica-system"),
            resource_name=election.text("resourceName", LEASE_NAME),
            lease_duration_s=election.whole("leaseDurationSeconds", 15, 1, 3600),
            renew_deadline_s=election.number("renewDeadlineSeconds", 10.0, 0.1, 3600),
            retry_period_s=election.number("retryPeriodSeconds", 2.0, 0.1, 3600),
            buckets=election.whole("buckets", 1, 1, BUCKETS_MAX),
        ),
        client_connection=ClientConnectionConfig(
            kubeconfig=client.text("kubeconfig", ""),
            context=client.text("context", ""),
            qps=client.number("qps", QPS_DEFAULT, 1.0, 1e6),
            burst=client.whole("burst", BURST_DEFAULT, 1, 1_000_000),
        ),
        mode=Mode(root.one_of("mode", [str(mode) for mode in Mode], str(Mode.ACTIVE))),
        scheduler_names=frozenset(root.texts("schedulerNames", SCHEDULER_NAMES_MAX)) or SCHEDULER_NAMES,
        profiles=root.mappings("profiles", PROFILES_MAX),
        narrow_to=filters.whole("narrowTo", 0, 0, NODES_MAX),
    )
    for section in (root, server, tls, election, client, filters):
        section.refuse_unknown()
    _check(config, subject)
    return config


def _check(config: Config, subject: str) -> None:
    tls, election = config.server.tls, config.leader_election
    if bool(tls.cert_file) != bool(tls.key_file):
        raise InvalidObject(subject, "server.tls", "certFile and keyFile go together")
    if tls.client_ca_file and not tls.cert_file:
        raise InvalidObject(subject, "server.tls.clientCAFile", "needs certFile and keyFile")
    if tls.allowed_clients and not tls.client_ca_file:
        raise InvalidObject(subject, "server.tls.allowedClients", "needs clientCAFile")
    if config.server.host not in LOOPBACK and not config.server.insecure:
        _check_closed(tls, subject)
    if election.lease_duration_s <= election.renew_deadline_s:
        raise InvalidObject(
            subject, "leaderElection.leaseDurationSeconds", "must be greater than renewDeadlineSeconds"
        )
    if election.renew_deadline_s <= 1.2 * election.retry_period_s:
        raise InvalidObject(
            subject, "leaderElection.renewDeadlineSeconds", "must be greater than 1.2 retryPeriodSeconds"
        )


def _check_closed(tls: TlsConfig, subject: str) -> None:
    """Beyond loopback: who reaches bind may bind pods, and a CA signs for more clients than ours."""
    if not tls.client_ca_file:
        raise InvalidObject(
            subject,
            "server.host",
            "beyond loopback the extender must be served with TLS and client certificates: set server.tls "
            "(or server.insecure, where nobody else reaches that address)",
        )
    if not tls.allowed_clients:
        raise InvalidObject(
            subject,
            "server.tls.allowedClients",
            "beyond loopback must name the clients (common name or subjectAltName of kube-scheduler's certificate)",
        )


class _Section:
    """One mapping of the file, which remembers what was asked of it."""

    def __init__(self, subject: str, path: str, raw: object) -> None:
        if raw is None:
            raw = {}
        if not isinstance(raw, Mapping):
            raise InvalidObject(subject, path, "must be a mapping")
        self._subject = subject
        self._path = path
        self._raw = raw
        self._asked: set[str] = set()

    def section(self, name: str) -> "_Section":
        return _Section(self._subject, self._field(name), self._take(name))

    def text(self, name: str, default: str) -> str:
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InvalidObject(self._subject, self._field(name), "must be a string")
        return value

    def number(self, name: str, default: float, minimum: float, maximum: float) -> float:
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
            raise InvalidObject(
                self._subject, self._field(name), f"must be a number from {minimum:g} to {maximum:g}"
            )
        return value

    def whole(self, name: str, default: int, minimum: int, maximum: int) -> int:
        value = self.number(name, default, minimum, maximum)
        if not isinstance(value, int):
            raise InvalidObject(self._subject, self._field(name), "must be a whole number")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidObject(self._subject, self._field(name), "must be true or false")
        return value

    def one_of(self, name: str, known: Sequence[str], default: str) -> str:
        value = self.text(name, default)
        if value not in known:
            raise InvalidObject(self._subject, self._field(name), f"must be one of {', '.join(known)}")
        return value

    def texts(self, name: str, items_max: int) -> tuple[str, ...]:
        value = self._take(name)
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > items_max:
            raise InvalidObject(self._subject, self._field(name), f"must be a list of at most {items_max}")
        for index, item in enumerate(value):
            if not isinstance(item, str) or not item:
                raise InvalidObject(
                    self._subject, f"{self._field(name)}[{index}]", "must be a string, not empty"
                )
        return tuple(value)

    def mappings(self, name: str, items_max: int) -> tuple[Mapping[str, object], ...]:
        value = self._take(name)
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > items_max:
            raise InvalidObject(self._subject, self._field(name), f"must be a list of at most {items_max}")
        for index, item in enumerate(value):
            if not isinstance(item, Mapping):
                raise InvalidObject(self._subject, f"{self._field(name)}[{index}]", "must be a mapping")
        return tuple(value)

    def refuse_unknown(self) -> None:
        for name in self._raw:
            if name not in self._asked:
                known = ", ".join(sorted(self._asked))
                raise InvalidObject(
                    self._subject, self._field(str(name)), f"is not a known field (known: {known})"
                )

    def _take(self, name: str) -> object:
        self._asked.add(name)
        return self._raw.get(name)

    def _field(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name
