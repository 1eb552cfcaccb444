"""Which settings go together. The JSON schema (``schema``) says the same where it can."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from extender.config.load_sources import problems_of
from extender.config.model import (
    DNS_LABEL,
    DNS_SUBDOMAIN,
    LOOPBACK,
    Config,
    Mode,
    ScheduleConfig,
    ServerConfig,
    TlsConfig,
)

RETRY_JITTER: Final = 1.2
"""client-go stretches a retry period by up to this factor."""


_TOGETHER: Final = "certFile and keyFile must be set together"
_AUDIENCE: Final = "must not be empty, or a token for any server counts"
_SHADOW: Final = "must be 0 in mode shadow, which answers no caller"
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
    yield from _schedule(config)
    yield from _adapters(config)
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


def _tls(tls: TlsConfig, path: str) -> Iterator[BrokenRule]:
    if bool(tls.cert_file) != bool(tls.key_file):
        yield BrokenRule(path, _TOGETHER)
    if tls.client_ca_file and not tls.cert_file:
        yield BrokenRule(f"{path}.clientCAFile", "needs certFile and keyFile")
    if tls.allowed_clients and not tls.client_ca_file:
        yield BrokenRule(f"{path}.allowedClients", "needs clientCAFile")


def _schedule(config: Config) -> Iterator[BrokenRule]:
    """Check the listener for controllers: a caller must be known, by a token or a certificate."""
    schedule = config.schedule
    yield from _tls(schedule.tls, "schedule.tls")
    yield from _accounts(schedule.allowed_service_accounts, "schedule")
    if not schedule.audience:
        yield BrokenRule("schedule.audience", _AUDIENCE)
    if not schedule.port:
        return
    if config.mode is Mode.SHADOW:
        yield BrokenRule("schedule.port", _SHADOW)
    if not schedule.tls.cert_file:
        yield BrokenRule("schedule.tls.certFile", "is required with schedule.port")
    if schedule.port in {config.server.port, config.server.health_port}:
        yield BrokenRule("schedule.port", "must differ from server.port and server.healthPort")
    yield from _callers(schedule)


def _adapters(config: Config) -> Iterator[BrokenRule]:
    """Check the listener for adapters."""
    adapters, server = config.adapters, config.server
    if bool(adapters.tls.cert_file) != bool(adapters.tls.key_file):
        yield BrokenRule("adapters.tls", _TOGETHER)
    yield from _accounts(adapters.allowed_service_accounts, "adapters")
    if not adapters.audience:
        yield BrokenRule("adapters.audience", _AUDIENCE)
    if not adapters.port:
        return
    if config.mode is Mode.SHADOW:
        yield BrokenRule("adapters.port", _SHADOW)
    if not adapters.tls.cert_file:
        yield BrokenRule("adapters.tls.certFile", "is required with adapters.port")
    if adapters.port in {server.port, server.health_port, config.schedule.port}:
        yield BrokenRule(
            "adapters.port", "must differ from server.port, server.healthPort and schedule.port"
        )


def _accounts(accounts: Iterable[str], section: str) -> Iterator[BrokenRule]:
    for index, account in enumerate(accounts):
        if not _ACCOUNT.fullmatch(account):
            yield BrokenRule(
                f"{section}.allowedServiceAccounts[{index}]", "must have the form namespace/name"
            )


def _callers(schedule: ScheduleConfig) -> Iterator[BrokenRule]:
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
