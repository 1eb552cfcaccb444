"""Where a replica of the kit listens, and the name by which an adapter knows it."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from extender.model.errors import VReplicaError

PORT_MAX: Final = 65535
_NAME: Final = re.compile(r"(?!.*\.\.)[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Address:
    """``port`` 0: any free one."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """As an adapter is told it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"

    @property
    def interface(self) -> str | None:
        """What to listen on; None is all interfaces. A host name may lead to this machine through
        a Service, a port of a container, or a proxy. So it says nothing about an interface.
        """
        return self.host if self.host == "localhost" or _ip(self.host) is not None else None


def addresses_from(url: str) -> tuple[Address, Address]:
    """Read the URL of the first replica; the second one has the next port. Raises
    VReplicaError.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise VReplicaError(f"{url!r} is not a URL such as https://127.0.0.1:10264") from None
    if problem := _problem(parts, host, port):
        raise VReplicaError(f"{url}: {problem}")
    assert port is not None
    return Address(host, port), Address(host, port + 1)


def _problem(parts: SplitResult, host: str, port: int | None) -> str:
    ip = _ip(host)
    more = parts.username is not None or parts.path not in {"", "/"} or parts.query
    checks = (
        (
            parts.scheme != "https",
            "the kit listens at https:// only, because adapters send their token to no other URL",
        ),
        (more or parts.fragment, "the URL is https://HOST:PORT and no more"),
        (ip is None and not _NAME.fullmatch(host), "the host is neither a name nor an IP address"),
        (
            ip is not None and ip.is_unspecified,
            "the host must be an address that the adapter can connect to",
        ),
        (
            port is None or not 0 < port < PORT_MAX,
            f"the port must be from 1 to {PORT_MAX - 1}; the second replica has the next one",
        ),
    )
    return next((why for wrong, why in checks if wrong), "")


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None
