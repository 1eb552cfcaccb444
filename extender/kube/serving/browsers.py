"""Who a browser speaks for: requests that a page of another site has made are refused, for all
routes of an application.

A browser is a way in for others. A page of somebody else's, opened beside us, may send requests to
loopback or into the cluster's network; by a name of its own that resolves to our address (DNS
rebinding) it may even send JSON and read the answers. What tells such requests from others is what
no page can change:

- ``Host``: a page that reaches us by a name of its own has that name there. So over plain HTTP we
  are asked by an address, by a name that nobody outside can own (``localhost``, one without a dot,
  ``NAME.NAMESPACE.svc``), or by one that is configured. Over TLS the certificate sees to that, and
  any name that it has is right.
- ``Sec-Fetch-Site``: a browser says here whether the page is of another site. It sends it to
  loopback and over TLS.
- ``Origin``: where the page is from; of older browsers, and of pages that were not sent over TLS.

kube-scheduler, kubelets, Prometheus and our own commands send none of the last two. A link that a
person follows shows the answer to that person alone, but a page may follow its own links, many of
them at once: only ``links`` may be opened so, and what is there must not cost anything (see
``service.http.page.routes``).
"""

import ipaddress
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

OWN_SITE: Final = frozenset({"same-origin", "none"})
"""Sec-Fetch-Site of a page of ours, and of what a person has typed."""
CLUSTER_SUFFIXES: Final = (".svc", ".svc.cluster.local", ".localhost")
"""No public registry has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """What is ours. ``checks_host``: whether a name proves nothing, for nobody has shown a
    certificate.
    """

    checks_host: bool
    hosts: Collection[str] = ()
    """More names that we are asked by, without a port, in lower case."""
    links: Collection[str] = ()
    """Paths to which links of other sites lead."""


def only_own_site(sites: Callable[[], Sites]) -> Middleware:
    """A middleware that answers 403 or 421 to who speaks for another site. ``sites`` is asked each
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
    # Where a browser says that the page is ours, a proxy in between may have changed the host, and
    # the origin says less.
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
    """Whether nobody else can have made a name resolve to us. One without a dot is the local
    network's.
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
    """Of an address in brackets, what is in them."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
