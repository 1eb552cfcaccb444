"""The proxy between us and the API server, chosen as in Go's golang.org/x/net/http/httpproxy, which
client-go uses.

``HTTPS_PROXY`` or ``HTTP_PROXY`` names it, by the scheme of the API server's URL. The lower-case
variable counts if the upper-case one is empty. A value is a URL or ``host[:port]``. ``NO_PROXY``
lists the hosts to reach without a proxy, separated by commas:

.. code-block:: text

    *                              every host
    10.0.0.0/8, fd00::/8           addresses of a prefix
    10.0.0.1, 10.0.0.1:6443        an address, with any port or one; [fd00::1]:6443 with a port
    example.com                    that name and all below it, with any port or one
    .example.com, *.example.com    only names below it

``localhost`` and loopback addresses never use a proxy. ``NO_PROXY`` does not apply to a
kubeconfig's ``proxy-url``. A SOCKS proxy is refused when it is configured, instead of by each
request, because aiohttp has no SOCKS.
"""

import ipaddress
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from yarl import URL

from extender.kube.api import ConnectError

SCHEMES: Final = frozenset({"http", "https"})
"""Schemes of proxies that aiohttp can use."""
_PORTS: Final = {"http": 80, "https": 443}
_HOST_PORT: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:\[\]]*)")
_CREDENTIALS: Final = re.compile(r"\A(\w[\w+.-]*://)?.*@", re.DOTALL)
_CIDR: Final = re.compile(r"[0-9a-f.:]+/[0-9]+")
_IP = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """The environment's proxies; "" for none."""

    http: str = ""
    https: str = ""
    no_proxy: str = ""
    cgi: bool = False
    """Whether this is a CGI program: there a client can set ``HTTP_PROXY`` by a header
    ``Proxy``.
    """

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "ProxySettings":
        """Read the variables, upper case before lower case."""

        def first(name: str) -> str:
            return environment.get(name.upper(), "") or environment.get(name, "")

        return cls(
            http=first("http_proxy"),
            https=first("https_proxy"),
            no_proxy=first("no_proxy"),
            cgi=bool(environment.get("REQUEST_METHOD")),
        )

    def url_for(self, target: str) -> str | None:
        """The proxy's URL for a request to ``target``; None for no proxy. Raises ConnectError."""
        url = URL(target)
        configured = {"http": self.http, "https": self.https}.get(url.scheme, "")
        proxy = _proxy_url(configured)
        if proxy is None:
            return None
        if url.scheme == "http" and self.cgi:
            raise ConnectError(
                "HTTP_PROXY is not used in a CGI program: its caller may have set it"
            )
        port = url.port or _PORTS[url.scheme]
        return proxy if self.uses_proxy(url.raw_host or "", port) else None

    def uses_proxy(self, host: str, port: int) -> bool:
        """Whether requests to ``host``, given without brackets, use a proxy if one is set."""
        address = _address(host.partition("%")[0])
        if host == "localhost" or (address is not None and address.is_loopback):
            return False
        name = host.strip().lower()
        return not any(
            _matches(entry, name, address, str(port)) for entry in self.no_proxy.split(",")
        )


def proxy_for(base_url: str, configured: str | None, environment: Mapping[str, str]) -> str | None:
    """The proxy to an API server: the kubeconfig's, else the environment's, else None. Raises
    ConnectError for one that cannot be used.
    """
    proxy = configured or ProxySettings.of(environment).url_for(base_url)
    if not proxy:
        return None
    scheme = proxy.partition("://")[0].lower()
    source = (
        "the kubeconfig's proxy-url" if configured else "the environment (HTTPS_PROXY, HTTP_PROXY)"
    )
    if scheme.startswith("socks"):
        raise ConnectError(
            f"{_shown(proxy)}, of {source}: SOCKS proxies are not supported; use an HTTP proxy, or "
            f"NO_PROXY"
        )
    if scheme not in SCHEMES or not _has_host(proxy):
        raise ConnectError(
            f"{_shown(proxy)}, of {source}: expected http://HOST:PORT or https://HOST:PORT"
        )
    return proxy


def _proxy_url(configured: str) -> str | None:
    """``configured`` as a URL, with ``http://`` if it has no scheme; None if it is empty or no
    URL.
    """
    if not configured:
        return None
    for candidate in (configured, f"http://{configured}"):
        try:
            parts = urlsplit(candidate)
            _ = parts.port
        except ValueError:
            continue
        if parts.scheme and parts.netloc:
            return candidate
    _log.warning("proxy %s is no URL and no host: not used", _shown(configured))
    return None


def _matches(entry: str, name: str, address: _IP | None, port: str) -> bool:
    """Whether one entry of NO_PROXY matches that host. An unreadable entry matches none, as in
    Go.
    """
    entry = entry.strip().lower()
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return address is not None and address in network
    split = _HOST_PORT.fullmatch(entry)
    host, entry_port = (split[1] or split[2] or "", split[3]) if split else (entry, "")
    if not host or (entry_port and entry_port != port):
        return False
    if (one := _address(host)) is not None:
        return address == one
    return address is None and _is_below(name, host)


def _is_below(name: str, domain: str) -> bool:
    """Whether ``name`` is below ``domain`` or equal to it; if ``domain`` begins with ``.`` or
    ``*.``, only below.
    """
    bare = domain.removeprefix("*") if domain.startswith("*.") else domain
    ascii_name = _ascii(bare.removeprefix("."))
    return name.endswith("." + ascii_name) or (name == ascii_name and not bare.startswith("."))


def _address(text: str) -> _IP | None:
    """An IP address, or None. An IPv4 address that is written as IPv6 becomes IPv4."""
    if "%" in text:  # a zone, which Go accepts only in a URL
        return None
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _network(text: str) -> _Network | None:
    if _CIDR.fullmatch(text) is None:
        return None
    try:
        found = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    mapped = found.network_address.ipv4_mapped if isinstance(found, ipaddress.IPv6Network) else None
    if mapped is not None and found.prefixlen >= 96:
        return ipaddress.ip_network((mapped, found.prefixlen - 96))
    return found


def _ascii(host: str) -> str:
    """The Punycode of an international name; the name itself if it has none."""
    if host.isascii():
        return host
    try:
        return URL.build(scheme="http", host=host).raw_host or host
    except ValueError:
        return host


def _has_host(proxy: str) -> bool:
    try:
        return bool(URL(proxy).host)
    except ValueError:  # may have the password in its text
        return False


def _shown(proxy: str) -> str:
    """The proxy for a message, without its password, in which any character may be unquoted."""
    shown = _CREDENTIALS.sub(r"\1***@", proxy)
    return f"proxy {shown!r:.200}"
