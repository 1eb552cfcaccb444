"""Which settings go together. The JSON schema (``schema``) says the same where it can."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from extender.config.load_sources import problems_of
from extender.config.model import (
    DNS_LABEL,
    DNS_SUBDOMAIN,
    LOOPBACK,
    AdaptersConfig,
    Config,
    Mode,
    ScheduleConfig,
    ServerConfig,
    ServingTlsConfig,
    TlsConfig,
)

RETRY_JITTER: Final = 1.2
"""client-go stretches a retry period by up to this factor."""


_ACCOUNT: Final = re.compile(f"{DNS_LABEL}/{DNS_SUBDOMAIN}")


class BrokenRule(NamedTuple):
    """Settings that do not go together; ``path`` is one of them."""

    path: str
    problem: str
    hint: str = ""


def broken_rules(config: Config) -> Iterator[BrokenRule]:
    """Yield the rules that ``config`` breaks."""
    tls, election = config.server.tls, config.leader_election
    yield from _tls(tls, "server.tls")
    ports = {"server.port": config.server.port, "server.healthPort": config.server.health_port}
    yield from _pods_listener("schedule", config.schedule, config.mode, ports)
    yield from _callers(config.schedule)
    ports["schedule.port"] = config.schedule.port
    yield from _pods_listener("adapters", config.adapters, config.mode, ports)
    yield from (BrokenRule(*problem) for problem in problems_of(config.load_sources))
    if (
        not (tls.allowed_clients and not tls.client_ca_file)
        and config.server.host not in LOOPBACK
        and not config.server.insecure
    ):
        yield from _beyond_loopback(tls)
    if _one_address(config.server):
        yield BrokenRule("server.healthPort", "must differ from port", "0 means no second port")
    if election.lease_duration_s <= election.renew_deadline_s:
        yield BrokenRule(
            "leaderElection.leaseDurationSeconds", "must be greater than renewDeadlineSeconds"
        )
    if election.renew_deadline_s <= RETRY_JITTER * election.retry_period_s:
        yield BrokenRule(
            "leaderElection.renewDeadlineSeconds",
            "must be greater than 1.2 times retryPeriodSeconds",
        )


def _tls(tls: ServingTlsConfig, path: str) -> Iterator[BrokenRule]:
    if bool(tls.cert_file) != bool(tls.key_file):
        yield BrokenRule(path, "certFile and keyFile must be set together")
    if not isinstance(tls, TlsConfig):
        return
    if tls.client_ca_file and not tls.cert_file:
        yield BrokenRule(f"{path}.clientCAFile", "needs certFile and keyFile")
    if tls.allowed_clients and not tls.client_ca_file:
        yield BrokenRule(f"{path}.allowedClients", "needs clientCAFile")


def _pods_listener(
    section: str, listener: ScheduleConfig | AdaptersConfig, mode: Mode, others: Mapping[str, int]
) -> Iterator[BrokenRule]:
    """Check a listener for other pods. ``others``: the ports of others, by their settings."""
    yield from _tls(listener.tls, f"{section}.tls")
    for index, account in enumerate(listener.allowed_service_accounts):
        if not _ACCOUNT.fullmatch(account):
            yield BrokenRule(
                f"{section}.allowedServiceAccounts[{index}]", "must have the form namespace/name"
            )
    if not listener.audience:
        yield BrokenRule(
            f"{section}.audience", "must not be empty, or a token for any server counts"
        )
    if not listener.port:
        return
    if mode is Mode.SHADOW:
        yield BrokenRule(f"{section}.port", "must be 0 in mode shadow, which answers no caller")
    if not listener.tls.cert_file:
        yield BrokenRule(f"{section}.tls.certFile", f"is required with {section}.port")
    if listener.port in others.values():
        *names, last = others
        yield BrokenRule(f"{section}.port", f"must differ from {', '.join(names)} and {last}")


def _callers(schedule: ScheduleConfig) -> Iterator[BrokenRule]:
    """Check that a controller is known, by a token or a certificate."""
    if not schedule.port:
        return
    if not schedule.tls.client_ca_file and not schedule.allowed_service_accounts:
        yield BrokenRule(
            "schedule.allowedServiceAccounts",
            "must not be empty with schedule.port",
            "or set schedule.tls.clientCAFile and allowedClients, for callers with certificates",
        )
    if schedule.tls.client_ca_file and schedule.allowed_service_accounts:
        yield BrokenRule(
            "schedule.allowedServiceAccounts",
            "must be empty with schedule.tls.clientCAFile: callers show a certificate, no token",
        )
    if schedule.tls.client_ca_file and not schedule.tls.allowed_clients:
        yield BrokenRule("schedule.tls.allowedClients", "must not be empty with clientCAFile")


def _one_address(server: ServerConfig) -> bool:
    """Whether both listeners would use the same address and port."""
    everywhere = {"", "0.0.0.0", "::"}
    meet = server.health_host == server.host or everywhere & {server.health_host, server.host}
    return server.health_port != 0 and server.health_port == server.port and bool(meet)


def _beyond_loopback(tls: TlsConfig) -> Iterator[BrokenRule]:
    """Check a server beyond loopback.

    A client that reaches the bind verb can bind pods. A CA usually signs certificates for other
    clients too, so the allowed ones must be named.
    """
    if not tls.client_ca_file:
        yield BrokenRule(
            "server.host",
            "beyond loopback the extender must be served with TLS and client certificates",
            "set server.tls (or server.insecure, if nobody else reaches that address)",
        )
    elif not tls.allowed_clients:
        yield BrokenRule(
            "server.tls.allowedClients",
            "must not be empty if server.host is beyond loopback",
            "add the common name or subjectAltName of kube-scheduler's certificate",
        )
