"""Calls admission webhooks over HTTPS, as kube-apiserver does.

The server's certificate is always verified, against ``clientConfig.caBundle`` if given, else
against the system's authorities. There is no cluster network in which to find a
``clientConfig.service``, so an injected resolver returns its address. The certificate must still be
for ``SERVICE.NAMESPACE.svc``.
"""

import base64
import binascii
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from extender.kube.api import Obj
from extender.lab.apiserver.admission import WebhookCall, WebhookCallError

RESPONSE_BYTES_MAX: Final = 3 * 1024 * 1024
CONTEXTS_MAX: Final = 16
ServiceResolver = Callable[[str, str, int], str]
"""(namespace, service, port) -> host:port. Raises LookupError for an unknown service."""


def unknown_service(namespace: str, service: str, port: int) -> str:
    """The default resolver: it knows no service."""
    raise LookupError(f'service "{namespace}/{service}" port {port} not found')


class HttpWebhookCaller:
    """A ``WebhookCaller`` over aiohttp. Call ``close`` at the end."""

    def __init__(self, resolve: ServiceResolver = unknown_service) -> None:
        self._resolve = resolve
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __call__(self, call: WebhookCall) -> Obj:
        """POST the review. Raises WebhookCallError."""
        url, server_name = self._address(call.client_config)
        if self._session is None:
            self._session = aiohttp.ClientSession()
        timeout = aiohttp.ClientTimeout(total=call.timeout_s)
        try:
            async with self._session.post(
                url,
                params={"timeout": f"{call.timeout_s:g}s"},
                data=orjson.dumps(call.review),
                headers={"Content-Type": "application/json", "Accept": "application/json, */*"},
                ssl=self._context(str(call.client_config.get("caBundle") or "")),
                server_hostname=server_name,
                timeout=timeout,
            ) as reply:
                body = await reply.content.read(RESPONSE_BYTES_MAX)
                status = reply.status
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            words = str(problem) or "context deadline exceeded"
            raise WebhookCallError(f'Post "{url}": {words}') from problem
        return _review(status, body)

    def _address(self, config: Mapping[str, Any]) -> tuple[str, str | None]:
        """Return the URL, and the name that its certificate must have (None: the URL's own)."""
        service = config.get("service")
        if service is None:
            url = str(config.get("url") or "")
            if urlsplit(url).scheme != "https":
                raise WebhookCallError(f'webhook URL "{url}" is not https')
            return url, None
        namespace, name = str(service["namespace"]), str(service["name"])
        try:
            place = self._resolve(namespace, name, int(service.get("port") or 443))
        except LookupError as problem:
            raise WebhookCallError(str(problem.args[0] if problem.args else problem)) from problem
        path = str(service.get("path") or "/")
        return f"https://{place}/{path.lstrip('/')}", f"{name}.{namespace}.svc"

    def _context(self, bundle: str) -> ssl.SSLContext:
        """Return a verifying context for one caBundle (base64 of PEM). It is cached, because making
        one reads many certificates.
        """
        known = self._contexts.get(bundle)
        if known is not None:
            return known
        try:
            pem = base64.b64decode(bundle, validate=True).decode() if bundle else None
            context = ssl.create_default_context(cadata=pem)
        except (ssl.SSLError, binascii.Error, ValueError) as problem:
            raise WebhookCallError(f"unable to load root certificates: {problem}") from problem
        if len(self._contexts) >= CONTEXTS_MAX:
            self._contexts.clear()
        self._contexts[bundle] = context
        return context


def _review(status: int, body: bytes) -> Obj:
    if status != 200:
        raise WebhookCallError(
            f"the server responded with {status}: {body[:200].decode(errors='replace')}"
        )
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        raise WebhookCallError(f"couldn't decode response body: {problem}") from problem
    if not isinstance(review, dict):
        raise WebhookCallError("couldn't decode response body: not an object")
    return review
