"""The configuration as the service's modules know it; ``extender.config`` has it, which the webhook reads too."""

from extender.config.document import CONFIG_BYTES_MAX
from extender.config.model import (
    ALLOWED_CLIENTS_MAX,
    BUCKETS_MAX,
    LOOPBACK,
    PROFILES_MAX,
    SCHEDULER_NAMES_MAX,
    ClientConnectionConfig,
    Config,
    LeaderElectionConfig,
    Mode,
    ServerConfig,
    TlsConfig,
)
from extender.config.reading import config_from, load_config

__all__ = [
    "ALLOWED_CLIENTS_MAX",
    "BUCKETS_MAX",
    "CONFIG_BYTES_MAX",
    "LOOPBACK",
    "PROFILES_MAX",
    "SCHEDULER_NAMES_MAX",
    "ClientConnectionConfig",
    "Config",
    "LeaderElectionConfig",
    "Mode",
    "ServerConfig",
    "TlsConfig",
    "config_from",
    "load_config",
]
