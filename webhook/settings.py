"""The settings of ``vreplica-webhook``: its command line, and what it shares of the service's
configuration file.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from extender.config.document import open_document
from extender.config.model import Config
from extender.config.reading import config_of
from extender.model.errors import InvalidObject, VReplicaError
from extender.model.names import CONFIG_KIND, OWN_NAMESPACE
from extender.telemetry.logs import LogFormat
from webhook.mutate import DEFAULT_STAMP, Stamp
from webhook.registration import CONFIGURATION_NAME
from webhook.validate import DEFAULT_PROFILES, DEFAULT_RULES, DEFAULT_WRITERS, Rules


class SettingsError(VReplicaError):
    """An option or configuration file that cannot be used; the message names it."""


class UpkeepMode(StrEnum):
    """Which process renews the certificate and writes the caBundle."""

    SAME_PROCESS = "own"
    """The process that serves, which needs the rights to write both."""
    OTHER_PROCESS = "none"
    """Another process. This one serves and writes nothing."""
    ONLY = "only"
    """This process, which serves nothing and opens no port."""

    @property
    def serves(self) -> bool:
        """Whether this process is a webhook."""
        return self is not UpkeepMode.ONLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings."""

    kubeconfig: str = ""
    """If empty: the ServiceAccount of the pod."""
    context: str = ""
    qps: float = 50.0
    burst: int = 100
    host: str = "0.0.0.0"
    port: int = 8443
    cert_dir: str = ""
    secret: tuple[str, str] | None = None
    cert_files: tuple[str, str] | None = None
    """Certificate and key that somebody else renews."""
    upkeep: UpkeepMode = UpkeepMode.SAME_PROCESS
    ca_config_maps: tuple[tuple[str, str], ...] = ()
    """Namespace and name of each ConfigMap that gets the authorities. If there are any, the
    certificate is another server's, and no caBundle is written.
    """
    service: tuple[str, str] = (OWN_NAMESPACE, "vreplica-webhook")
    url: str = ""
    registration: str = CONFIGURATION_NAME
    """Name of both webhook configurations."""
    lease: tuple[str, str] | None = None
    """Namespace and name of the service's Lease, as the configuration file says; None if there is
    no file, or if no leader is elected.
    """
    rules: Rules = DEFAULT_RULES
    stamp: Stamp = DEFAULT_STAMP
    shutdown_delay_s: float = 0.0
    log_level: str = "INFO"
    log_format: LogFormat = LogFormat.TEXT

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names that clients use: those of the Service, and the host of ``url``."""
        namespace, name = self.service
        hosts = [f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local"]
        if self.url and (host := urlsplit(self.url).hostname) and host not in hosts:
            hosts.append(host)
        return tuple(hosts)


_DEFAULTS: Final = Settings()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="vreplica-webhook", description="Admission webhook of vreplica-scheduler."
    )
    result.add_argument(
        "--config",
        metavar="FILE",
        help=f"{CONFIG_KIND} to take clientConnection, logging, the names of profiles and the "
        "service's Lease from",
    )
    result.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig (default: the pod's ServiceAccount)"
    )
    _add_listener(result)
    _add_certificate(result)
    _add_reviews(result)
    _add_process(result)
    return result


def _add_listener(result: argparse.ArgumentParser) -> None:
    result.add_argument(
        "--host",
        default=_DEFAULTS.host,
        help="address to listen on; 0.0.0.0 and :: both mean all IPv4 and IPv6 addresses "
        "(default: %(default)s)",
    )
    result.add_argument(
        "--port",
        type=int,
        default=_DEFAULTS.port,
        help="port to listen on; 0 means any free port (default: %(default)s)",
    )


def _add_certificate(result: argparse.ArgumentParser) -> None:
    """Where the certificate is kept, who renews it, and which names it has."""
    add = result.add_argument
    where = result.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--cert-dir",
        metavar="DIR",
        help="keep the authority and the certificate in this directory; if it cannot be written, "
        "such as a mounted Secret, serve its tls.crt and tls.key, which somebody else renews",
    )
    where.add_argument(
        "--secret", metavar="NAMESPACE/NAME", help="keep them in this Secret, shared by replicas"
    )
    where.add_argument(
        "--tls-cert-file",
        metavar="FILE",
        help="serve this certificate; somebody else, such as cert-manager, renews it and writes "
        "the caBundle",
    )
    add("--tls-private-key-file", metavar="FILE", help="its key")
    add(
        "--upkeep",
        default=str(_DEFAULTS.upkeep),
        choices=[str(mode) for mode in UpkeepMode],
        help="which process renews the webhook's own certificate and writes the caBundle; own: "
        "this one; none: another one, and this one only serves; only: this one, which then serves "
        "nothing and listens on no port (default: %(default)s)",
    )
    add(
        "--ca-config-map",
        metavar="NAMESPACE/NAME",
        nargs="+",
        action="extend",
        default=[],
        help="with --upkeep=only: keep the certificate of another server than the webhook, and "
        "write its authorities into ca.crt of these ConfigMaps, not into a caBundle",
    )
    add(
        "--service",
        metavar="NAMESPACE/NAME",
        default="/".join(_DEFAULTS.service),
        help="Service that the certificate is for (default: %(default)s)",
    )
    add(
        "--url",
        metavar="https://HOST:PORT",
        default="",
        help="for development: have the API server call this URL instead of the Service",
    )
    add(
        "--registration",
        metavar="NAME",
        default=_DEFAULTS.registration,
        help="name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration "
        "(default: %(default)s)",
    )


def _add_reviews(result: argparse.ArgumentParser) -> None:
    """What reviews allow, and what they write into adapter pods."""
    add = result.add_argument
    add(
        "--service-account",
        metavar="NAMESPACE/NAME",
        nargs="+",
        action="extend",
        default=[],
        help="who may write the ledger annotations: ServiceAccounts, or full usernames, which have "
        f"a colon (default: {', '.join(sorted(DEFAULT_WRITERS))})",
    )
    add(
        "--scheduler-name",
        metavar="NAME",
        default=_DEFAULTS.stamp.scheduler_name,
        help="profile of the kube-scheduler that calls the extender; with a Policy file it can "
        "only be default-scheduler (default: %(default)s)",
    )
    add(
        "--slots-resource",
        action="store_true",
        help="make adapter pods request 0 of vreplica.dev/slots, as slotsResource in the "
        "configuration file does; for a kube-scheduler that places other pods too and has this "
        "resource in managedResources",
    )
    add(
        "--slots-counted",
        action="store_true",
        help="make these pods request all of their slots instead of 0; for a kube-scheduler that "
        "counts them (ignoredByScheduler: false), if every node declares vreplica.dev/slots",
    )


def _add_process(result: argparse.ArgumentParser) -> None:
    add = result.add_argument
    add(
        "--shutdown-delay-seconds",
        type=float,
        default=_DEFAULTS.shutdown_delay_s,
        metavar="S",
        help="how long to answer reviews after SIGTERM (default: %(default)s)",
    )
    add("--log-level", default=_DEFAULTS.log_level, choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    add(
        "--log-format",
        default=str(_DEFAULTS.log_format),
        choices=[str(one) for one in LogFormat],
        help="json writes one object per line (default: %(default)s)",
    )


def settings_from(options: argparse.Namespace) -> Settings:
    """Check the options and read the configuration file. Raises SettingsError."""
    config, given = _config(options.config) if options.config else (Config(), {})
    client, election = config.client_connection, config.leader_election
    writers = (
        frozenset(_username(account) for account in options.service_account) or DEFAULT_WRITERS
    )
    if options.url and urlsplit(options.url).scheme != "https":
        raise SettingsError(
            f"--url {options.url}: expected https://HOST:PORT, the API server calls nothing else"
        )
    files = _cert_files(options)
    upkeep = UpkeepMode(options.upkeep)
    if files and not upkeep.serves:
        raise SettingsError(
            f"--upkeep={upkeep}: the certificate is in files that somebody else renews; give "
            "--secret"
        )
    if options.ca_config_map and upkeep is not UpkeepMode.ONLY:
        raise SettingsError(
            "--ca-config-map: the certificate is another server's; give --upkeep=only"
        )
    return Settings(
        kubeconfig=options.kubeconfig or client.kubeconfig,
        context=client.context,
        # The file's defaults are the service's. The webhook has its own: it sends few requests.
        qps=client.qps if given.get("qps") is not None else _DEFAULTS.qps,
        burst=client.burst if given.get("burst") is not None else _DEFAULTS.burst,
        host=options.host,
        port=options.port,
        cert_dir="" if files else options.cert_dir or "",
        cert_files=files,
        secret=_pair("--secret", options.secret) if options.secret else None,
        upkeep=upkeep,
        ca_config_maps=tuple(_pair("--ca-config-map", each) for each in options.ca_config_map),
        service=_pair("--service", options.service),
        url=options.url,
        registration=options.registration,
        lease=(election.resource_namespace, election.resource_name)
        if options.config and election.leader_elect
        else None,
        rules=Rules(
            writers=writers,
            profiles=DEFAULT_PROFILES | {str(one.get("name")) for one in config.profiles},
        ),
        stamp=Stamp(
            options.scheduler_name,
            slots_resource=options.slots_resource or config.slots_resource,
            slots_counted=options.slots_counted,
        ),
        shutdown_delay_s=max(0.0, options.shutdown_delay_seconds),
        log_level=config.log_level.upper() or options.log_level,
        log_format=LogFormat(config.log_format or options.log_format),
    )


def _cert_files(options: argparse.Namespace) -> tuple[str, str] | None:
    """Return certificate and key files that somebody else renews; None if the webhook makes its
    own.
    """
    if bool(options.tls_cert_file) != bool(options.tls_private_key_file):
        raise SettingsError("--tls-cert-file and --tls-private-key-file must be set together")
    if options.tls_cert_file:
        return options.tls_cert_file, options.tls_private_key_file
    directory = Path(options.cert_dir) if options.cert_dir else None
    if directory is not None and directory.is_dir() and not os.access(directory, os.W_OK):
        return str(directory / "tls.crt"), str(directory / "tls.key")
    return None


def _config(path: str) -> tuple[Config, Mapping[str, object]]:
    """Return the service's configuration, and the fields that the file sets in clientConnection."""
    try:
        document = open_document(path)
        return config_of(document), _given(document.value)
    except InvalidObject as error:
        raise SettingsError(str(error)) from error


def _given(value: object) -> Mapping[str, object]:
    section = value.get("clientConnection") if isinstance(value, Mapping) else None
    return section if isinstance(section, Mapping) else {}


def _pair(option: str, value: str) -> tuple[str, str]:
    namespace, slash, name = value.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise SettingsError(f"{option} {value}: expected NAMESPACE/NAME")
    return namespace, name


def _username(account: str) -> str:
    if ":" in account:
        return account
    return "system:serviceaccount:{}:{}".format(*_pair("--service-account", account))
