"""How a command asks a running replica of the service: ``--server URL``, and curl's names for a certificate.

Beyond loopback a replica wants a client certificate: ``--cert`` and ``--key``, and ``--cacert`` to know it by.
"""

import argparse
from urllib.parse import urlsplit

from extender.kube.replica_access import ReplicaAccess


def add_replica_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--server``, ``--cacert``, ``--cert`` and ``--key``."""
    group = parser.add_argument_group("replica", "a running replica of the service")
    group.add_argument("--server", metavar="URL", type=_url, help="ask it, such as http://127.0.0.1:10261")
    group.add_argument("--cacert", metavar="FILE", default="", help="the CA of its certificate")
    group.add_argument("--cert", metavar="FILE", default="", help="a client certificate that it allows")
    group.add_argument(
        "--key", metavar="FILE", default="", help="the certificate's key; default: in its file"
    )


def replica_of(options: argparse.Namespace) -> ReplicaAccess:
    """What ``add_replica_options`` has read; ``kube.replica.open_replica`` takes it."""
    return ReplicaAccess(options.server or "", options.cacert, options.cert, options.key)


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 0) >= 0
    except ValueError:
        sound = False
    if not sound:
        raise argparse.ArgumentTypeError(f"{value!r} is not a URL such as http://127.0.0.1:10261")
    return value.rstrip("/")
