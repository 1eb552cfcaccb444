"""Options for asking a running replica: ``--server URL``, and kubectl's names for certificates.

Except on loopback, a replica requires a client certificate (``--client-certificate``,
``--client-key``). ``--certificate-authority`` verifies the replica.
"""

import argparse
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

EXAMPLE: Final = "http://127.0.0.1:10261"


@dataclass(frozen=True, slots=True)
class ReplicaAccess:
    """``url`` has no slash at its end, and is "" if no replica is asked. The others are files with
    kubectl's option names, "" for none.
    """

    url: str = ""
    certificate_authority: str = ""
    client_certificate: str = ""
    client_key: str = ""


def add_replica_options(parser: argparse.ArgumentParser, *, told: str = "ask this replica") -> None:
    """Add ``--server``, ``--certificate-authority``, ``--client-certificate`` and ``--client-key``.
    ``told``: the help of ``--server``.
    """
    group = parser.add_argument_group("replica", "a running replica of the service")
    group.add_argument("--server", metavar="URL", type=_url, help=f"{told}, such as {EXAMPLE}")
    group.add_argument(
        "--certificate-authority", metavar="FILE", default="", help="the CA of its certificate"
    )
    group.add_argument(
        "--client-certificate", metavar="FILE", default="", help="a certificate that it allows"
    )
    group.add_argument(
        "--client-key",
        metavar="FILE",
        default="",
        help="the certificate's key; default: in its file",
    )


def replica_of(options: argparse.Namespace) -> ReplicaAccess:
    """Read the options of ``add_replica_options``, for ``cli.terminal.replica.open_replica``."""
    return ReplicaAccess(
        url=options.server or "",
        certificate_authority=options.certificate_authority,
        client_certificate=options.client_certificate,
        client_key=options.client_key,
    )


def _url(value: str) -> str:
    """Read a URL. As for kubectl, the default scheme is http."""
    url = value if "//" in value else f"http://{value}"
    try:
        parts = urlsplit(url)
        whole = (
            parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 0) >= 0
        )
        sound = whole and not parts.query and not parts.fragment
    except ValueError:
        sound = False
    if not sound:
        raise argparse.ArgumentTypeError(f"{value!r} is not a URL such as {EXAMPLE}")
    return url.rstrip("/")
