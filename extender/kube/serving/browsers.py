"""Refuses requests that a browser makes for a page of another site, on all routes of an
application.

A browser lets outsiders in. A page of another site, opened beside us, may send requests to loopback
or into the cluster's network. If its own name resolves to our address (DNS rebinding), it may even
send JSON and read the answers. Such requests show in headers that no page can change:

- ``Host``: a page that reaches us by a name of its own has that name there. So over plain HTTP a
  request must use an address, a name that no outsider can own (``localhost``, a name without a dot,
  ``NAME.NAMESPACE.svc``), or a configured name. Over TLS the certificate ensures that, and every
  name in it is right.
- ``Sec-Fetch-Site``: here a browser says whether the page is of another site. It sends it to
  loopback and over TLS.
- ``Origin``: where the page is from; for older browsers, and for pages that came without TLS.

kube-scheduler, kubelets, Prometheus and our own commands send neither of the last two. If a person
follows a link, only that person sees the answer. But a page may follow its links itself, many at
once. So only ``links`` may be opened that way, and their answers must not cost anything (see
``service.http.page.routes``).
"""

import ipaddress
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

OWN_SITE: Final = frozenset({"same-origin", "none"})
"""Sec-Fetch-Site of our own pages, and of addresses that a person typed."""
CLUSTER_SUFFIXES: Final = (".svc", ".svc.cluster.local", ".localhost")
"""No public registry has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """What is ours. ``checks_host``: whether to check ``Host``, because no certificate has shown
    our name.
    """

    checks_host: bool
    hosts: Collection[str] = ()
    """More names for us, without a port, in lower case."""
    links: Collection[str] = ()
    """Paths that links of other sites may open."""


def only_own_site(sites: Callable[[], Sites]) -> Middleware:
    """A middleware that answers 403 or 421 to requests for another site. Calls ``sites`` each
    time.
    """

    @web.middleware
    async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
        if refused := _refusal(request, sites()):
            status, text = refused
            answer = web.Response(status=status, text=text + "\n")
            if not request.content.is_eof():
                answer.force_close()
            return answer
        return await handler(request)

    return checked


def is_other_site(request: web.Request) -> bool:
    """Whether a browser says that another site has made the request."""
    return request.headers.get("Sec-Fetch-Site", "none") not in OWN_SITE


def _refusal(request: web.Request, sites: Sites) -> tuple[int, str] | None:
    headers = request.headers
    host = headers.get("Host", "").lower()
    if sites.checks_host and host and not _is_ours(_without_port(host), sites.hosts):
        return (
            421,
            "this is served to who asks by an address or a name of the cluster; see "
            "server.allowedHosts",
        )
    if is_other_site(request) and not _is_followed_link(request, sites.links):
        return 403, "this was asked for by a page of another site"
    # If Sec-Fetch-Site says that the page is ours, it counts: a proxy in between may have changed
    # the host, so Origin says less.
    origin = headers.get("Origin")
    if (
        origin is not None
        and "Sec-Fetch-Site" not in headers
        and origin.lower().partition("://")[2] != host
    ):
        return 403, "this was asked for by a page of another origin"
    return None


def _is_followed_link(request: web.Request, links: Collection[str]) -> bool:
    return (
        request.path in links
        and request.method == "GET"
        and request.headers.get("Sec-Fetch-Mode") == "navigate"
    )


def _is_ours(name: str, more: Collection[str]) -> bool:
    """Whether no outsider can make ``name`` resolve to us. A name without a dot belongs to the
    local network.
    """
    name = name.removesuffix(".")
    if "." not in name or name.endswith(CLUSTER_SUFFIXES) or name in more:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    """The host alone; without its brackets if it is an IPv6 address."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
