"""Transports for extender calls. A ``Transport`` posts bytes to a URL and returns status and body.

``AiohttpTransport`` uses real HTTP. A simulation passes any coroutine function with the same
signature. Errors have the texts of Go's HTTP client, because kube-scheduler shows them to users.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import aiohttp

from extender.config.kube_scheduler import ExtenderConfig
from extender.kube.serving.sockets import host_port
from extender.model.errors import VReplicaError

Transport = Callable[[str, bytes, float], Awaitable[tuple[int, bytes]]]
"""(URL, body, timeout in seconds) -> HTTP status and body of a POST. Raises TransportError."""

RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
_REDIRECTS_MAX: Final = 10
"""The limit of Go's http.Client."""
TIMED_OUT: Final = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
TIMED_OUT_READING: Final = (
    "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
)


class TransportError(VReplicaError):
    """No complete HTTP answer. ``while_reading``: the status came, but not the whole body."""

    def __init__(self, text: str, *, while_reading: bool = False) -> None:
        super().__init__(text)
        self.while_reading = while_reading


class AiohttpTransport:
    """A Transport over real HTTP with keep-alive, and TLS as each extender's configuration says.
    Call ``close`` after use.
    """

    def __init__(self, configs: Iterable[ExtenderConfig]) -> None:
        self._tls = {config.url_prefix: tls_context(config) for config in configs}
        self._server_names = {
            config.url_prefix: config.tls.server_name or None for config in configs
        }
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, url: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Send a POST. Raises TransportError."""
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=True)
        prefix = next((prefix for prefix in self._tls if url.startswith(prefix.rstrip("/"))), "")
        answered = False
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.post(
                    url,
                    data=body,
                    headers={"Content-Type": "application/json"},
                    max_redirects=_REDIRECTS_MAX,
                    ssl=self._tls.get(prefix, True),
                    server_hostname=self._server_names.get(prefix),
                ) as response,
            ):
                answered = True
                return response.status, await _body(response)
        except TimeoutError as error:
            raise TransportError(
                TIMED_OUT_READING if answered else TIMED_OUT, while_reading=answered
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(_go_text(error), while_reading=answered) from error

    async def close(self) -> None:
        """Close idle connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    parts = bytearray()
    async for part in response.content.iter_any():
        parts += part
        if len(parts) > RESPONSE_BYTES_MAX:
            raise TransportError(
                f"response body is over {RESPONSE_BYTES_MAX} bytes", while_reading=True
            )
    return bytes(parts)


def _go_text(error: Exception) -> str:
    match error:
        case aiohttp.ServerDisconnectedError():
            return "EOF"
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, ConnectionRefusedError):
            return f"dial tcp {host_port(error.host, error.port or 0)}: connect: connection refused"
        case aiohttp.ClientPayloadError():
            return "unexpected EOF"
        case aiohttp.TooManyRedirects():
            return f"stopped after {_REDIRECTS_MAX} redirects"
        case _:
            return str(error) or type(error).__name__


def tls_context(config: ExtenderConfig) -> ssl.SSLContext | bool:
    """Return the TLS settings of an extender. As in kube-scheduler, enableHTTPS without a CA means
    that the server is not verified.
    """
    tls = config.tls
    has_ca = bool(tls.ca_file or tls.ca_data)
    if not config.enable_https and tls.empty:
        return True
    context = ssl.create_default_context(
        cafile=tls.ca_file or None, cadata=tls.ca_data.decode() if tls.ca_data else None
    )
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
    if tls.insecure or (config.enable_https and not has_ca):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
