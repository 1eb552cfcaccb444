"""What ``vreplica-webhook`` is told: its command line and, of the service's configuration file, the parts it shares."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from extender.core.errors import VReplicaError
from extender.core.names import CONFIG_API_VERSION, CONFIG_KIND, SCHEDULER_NAME
from webhook.validate import DEFAULT_PROFILES, DEFAULT_RULES, DEFAULT_WRITERS, Rules

_CONFIG_BYTES_MAX: Final = 1024 * 1024


class SettingsError(VReplicaError):
    """An option or configuration file that cannot be used; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is configured."""

    kubeconfig: str = ""
    """"" is the ServiceAccount of the pod."""
    context: str = ""
    qps: float = 50.0
    burst: int = 100
    host: str = "0.0.0.0"
    port: int = 8443
    cert_dir: str = ""
    secret: tuple[str, str] | None = None
    service: tuple[str, str] = ("vreplica-system", "vreplica-webhook")
    url: str = ""
    rules: Rules = DEFAULT_RULES
    scheduler_name: str = SCHEDULER_NAME
    shutdown_delay_s: float = 0.0
    log_level: str = "INFO"

    @property
    def hosts(self) -> tuple[str, ...]:
        """What clients call us: the Service's names, and the host of ``url``."""
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
    add = result.add_argument
    add(
        "--config",
        metavar="FILE",
        help=f"{CONFIG_KIND}: takes clientConnection and the names of profiles from it",
    )
    add("--kubeconfig", metavar="FILE", help="kubeconfig (default: the pod's ServiceAccount)")
    add("--host", default=_DEFAULTS.host, help="address to listen on (default: %(default)s)")
    add("--port", type=int, default=_DEFAULTS.port, help="port to listen on, 0: any (default: %(default)s)")
    where = result.add_mutually_exclusive_group(required=True)
    where.add_argument("--cert-dir", metavar="DIR", help="keep authority and certificate in this directory")
    where.add_argument(
        "--secret", metavar="NAMESPACE/NAME", help="keep them in this Secret, shared by replicas"
    )
    add("--service", metavar="NAMESPACE/NAME", default="/".join(_DEFAULTS.service),
        help="Service that the certificate is for (default: %(default)s)")  # fmt: skip
    add("--url", metavar="https://HOST:PORT", default="",
        help="for development: have the API server call this URL instead of the Service")  # fmt: skip
    add("--service-account", metavar="NAMESPACE/NAME", nargs="+", action="extend", default=[],
        help="who may write the ledger annotations: ServiceAccounts, or full usernames with a colon "
        f"(default: {', '.join(sorted(DEFAULT_WRITERS))})")  # fmt: skip
    add("--scheduler-name", metavar="NAME", default=_DEFAULTS.scheduler_name,
        help="profile of the kube-scheduler that calls the extender; default-scheduler where the cluster's own does, "
        "which is all that a Policy file can do (default: %(default)s)")  # fmt: skip
    add("--shutdown-delay-seconds", type=float, default=_DEFAULTS.shutdown_delay_s, metavar="S",
        help="keep answering for so long after SIGTERM (default: %(default)s)")  # fmt: skip
    add("--log-level", default=_DEFAULTS.log_level, choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    return result


def settings_from(options: argparse.Namespace) -> Settings:
    """Check the options and read the configuration file. Raises SettingsError."""
    config = _config(options.config) if options.config else {}
    client = _section(config, "clientConnection")
    writers = frozenset(_username(account) for account in options.service_account) or DEFAULT_WRITERS
    if options.url and urlsplit(options.url).scheme != "https":
        raise SettingsError(
            f"--url {options.url}: expected https://HOST:PORT, the API server calls nothing else"
        )
    try:
        qps, burst = float(client.get("qps") or _DEFAULTS.qps), int(client.get("burst") or _DEFAULTS.burst)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{options.config}: clientConnection: {error}") from error
    return Settings(
        kubeconfig=options.kubeconfig or str(client.get("kubeconfig") or ""),
        context=str(client.get("context") or ""),
        qps=qps,
        burst=burst,
        host=options.host,
        port=options.port,
        cert_dir=options.cert_dir or "",
        secret=_pair("--secret", options.secret) if options.secret else None,
        service=_pair("--service", options.service),
        url=options.url,
        rules=Rules(writers=writers, profiles=DEFAULT_PROFILES | _profiles(config)),
        scheduler_name=options.scheduler_name,
        shutdown_delay_s=max(0.0, options.shutdown_delay_seconds),
        log_level=options.log_level,
    )


def _config(path: str) -> Mapping[str, Any]:
    try:
        content = Path(path).read_bytes()
        if len(content) > _CONFIG_BYTES_MAX:
            raise SettingsError(f"{path}: longer than {_CONFIG_BYTES_MAX} bytes")
        config = yaml.safe_load(content)
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error
    if not isinstance(config, dict) or (config.get("apiVersion"), config.get("kind")) != (
        CONFIG_API_VERSION,
        CONFIG_KIND,
    ):
        raise SettingsError(f"{path}: expected kind {CONFIG_KIND} of apiVersion {CONFIG_API_VERSION}")
    return config


def _profiles(config: Mapping[str, Any]) -> frozenset[str]:
    """Names of the profiles that the file adds to the built-in ones; the service reads the rest of them."""
    profiles = config.get("profiles") or []
    if not isinstance(profiles, list) or not all(isinstance(profile, dict) for profile in profiles):
        raise SettingsError("profiles: expected a list of mappings")
    return frozenset(str(profile.get("name")) for profile in profiles)


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name) or {}
    if not isinstance(section, dict):
        raise SettingsError(f"{name}: expected a mapping")
    return section


def _pair(option: str, value: str) -> tuple[str, str]:
    namespace, slash, name = value.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise SettingsError(f"{option} {value}: expected NAMESPACE/NAME")
    return namespace, name


def _username(account: str) -> str:
    if ":" in account:
        return account
    return "system:serviceaccount:{}:{}".format(*_pair("--service-account", account))
