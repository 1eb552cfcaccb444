"""Requests to the replicas of vreplica-scheduler, over verified TLS, within limits."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from vreplica_adapter.fields import DOCUMENT_BYTES_MAX, WireError

ADDRESSES_MAX: Final = 64
"""Replicas that are tried for one request."""
TOKEN_BYTES_MAX: Final = 64 * 1024
CA_BYTES_MAX: Final = 1024 * 1024
MESSAGE_CHARS_MAX: Final = 500
"""Of what a replica says is wrong."""
NOT_FOUND: Final = 404
CONFLICT: Final = 409
"""The service has another generation. With Retry-After it does not know a newer one yet."""
OK: Final = 200
NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})


class ServiceError(Exception):
    """No replica has answered well. ``status`` is the last one's, 0 if there was no answer, and
    ``said`` the beginning of its answer.
    """

    def __init__(
        self, message: str, *, status: int = 0, retry_after_s: float = 0.0, said: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.said = said
        self.retry_after_s = retry_after_s


def told_of(error: Exception) -> str:
    """What a person is told: the words of our own errors, and the type of any other, too."""
    return str(error) if isinstance(error, ServiceError | WireError) else f"{error!r:.500}"


@dataclass(frozen=True, slots=True)
class Access:
    """Where the replicas are, and how a pod shows who it is.

    A host name in ``urls`` stands for all its addresses, as that of a headless Service does. Both
    files are read for each request, because the kubelet replaces them. Without ``ca_file`` the
    system's authorities count.
    """

    urls: Sequence[str]
    token_file: Path | None = None
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not self.urls:
            raise ValueError("the service has no URL: pass urls, or set VREPLICA_URLS")
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError(f"{url} is no http:// or https:// URL")
            try:
                _ = parts.port
            except ValueError as error:
                raise ValueError(f"{url}: {error}") from error
            if self.token_file is not None and parts.scheme != "https":
                raise ValueError(f"a token is sent to https:// URLs only, not to {url}")


@dataclass(frozen=True, slots=True)
class _Address:
    """A replica: ``url`` with its address, and the names by which the caller knows it."""

    url: str
    host: str
    server_name: str | None


class Service:
    """Sends requests to the replicas in turn, beginning with the one that answered last."""

    def __init__(self, access: Access, *, request_s: float, idle_s: float) -> None:
        """``request_s`` is the limit of a request, and of a stream's first line; ``idle_s`` that of
        each later one.
        """
        self._access = access
        self._request_s, self._idle_s = request_s, idle_s
        self._preferred: _Address | None = None
        self._avoided: _Address | None = None
        self._pem, self._context = "", ssl.create_default_context()
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """End all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(self, path: str, body: bytes, limit_s: float) -> bytes:
        """Return the answer of the first replica that takes the body; ``limit_s`` is for each.
        Raises ServiceError.
        """
        async with self._request("POST", path, {}, body, limit_s) as reply:
            try:
                async with asyncio.timeout(limit_s):
                    return await _body(reply, DOCUMENT_BYTES_MAX)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise ServiceError(f"the answer broke off: {error!r:.200}") from error

    async def lines(self, path: str, query: Mapping[str, str] = NO_QUERY) -> AsyncGenerator[bytes]:
        """Yield the lines of a watch, without those that are empty: they only show that the replica
        is there. Ends with a ServiceError, also if the replica ends the stream, says nothing for
        too long, or sends too long a line.
        """
        params = {"watch": "true", **query}
        async with self._request("GET", path, params, None, self._request_s) as reply:
            rest, limit_s = bytearray(), self._request_s
            while True:
                try:
                    async with asyncio.timeout(limit_s):
                        chunk = await reply.content.readany()
                except TimeoutError:
                    raise ServiceError(f"the stream was silent for {limit_s:g} s") from None
                except aiohttp.ClientError as error:
                    raise ServiceError(f"the stream broke off: {error!r:.200}") from error
                if not chunk:
                    raise ServiceError("the stream has ended")
                *whole, last = chunk.split(b"\n")
                for part in whole:
                    line, rest = bytes(rest + part).strip(), bytearray()
                    limit_s = self._idle_s
                    if line:
                        yield line
                rest += last
                if len(rest) > DOCUMENT_BYTES_MAX:
                    raise ServiceError(f"a line is longer than {DOCUMENT_BYTES_MAX} bytes")

    def avoid(self) -> None:
        """Begin the next requests with other replicas than the one that answered last."""
        self._avoided, self._preferred = self._preferred or self._avoided, None

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, params: dict[str, str], body: bytes | None, limit_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open an answer with status 200. Raises ServiceError with what each replica said."""
        found = await self._addresses()
        why: list[str] = []
        status, retry_after_s, said = 0, 0.0, ""
        for address in found:
            try:
                async with asyncio.timeout(limit_s):
                    reply = await self._open(address, method, path, params, body)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                why.append(f"{address.url}: {_reason(error)[:200] or type(error).__name__}")
                continue
            async with reply:
                if reply.status == OK:
                    self._preferred = address
                    yield reply
                    return
                status, said = reply.status, await self._said(reply)
                asked_s = _seconds(reply.headers.get("Retry-After"))
                retry_after_s = max(retry_after_s, asked_s)
                why.append(f"{address.url}: {status} {said}")
                if status == CONFLICT and not asked_s:
                    # What was sent is out of date. A replica that is behind might take it, or has
                    # asked to wait.
                    retry_after_s = 0.0
                    break
        self._preferred = None
        raise ServiceError(
            "; ".join(why)[:2000], status=status, retry_after_s=retry_after_s, said=said
        )

    async def _open(
        self, address: _Address, method: str, path: str, params: dict[str, str], body: bytes | None
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=0, use_dns_cache=False),
            )
        return await self._session.request(
            method,
            f"{address.url}{path}",
            params=params,
            data=body,
            headers=self._headers(address, body),
            ssl=self._verified(),
            server_hostname=address.server_name,
            allow_redirects=False,
        )

    def _headers(self, address: _Address, body: bytes | None) -> dict[str, str]:
        headers = {"Host": address.host, "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if (file := self._access.token_file) is not None:
            token = _text_of(file, "the token", TOKEN_BYTES_MAX).strip()
            if not token or not token.isprintable():
                raise ServiceError(f"there is no token in {file}")
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _verified(self) -> ssl.SSLContext:
        """Return what verifies a replica. A new CA gets a new context: one in use stays."""
        file = self._access.ca_file
        if file is None:
            return self._context
        # Empty data would mean the system's authorities to ssl.
        pem = _text_of(file, "the CA", CA_BYTES_MAX).strip() or "none"
        if pem != self._pem:
            try:
                self._context = ssl.create_default_context(cadata=pem)
            except (ssl.SSLError, ValueError):
                raise ServiceError(f"there is no certificate in {file}") from None
            self._pem = pem
        return self._context

    async def _said(self, reply: aiohttp.ClientResponse) -> str:
        try:
            async with asyncio.timeout(self._request_s):
                said = await reply.content.read(MESSAGE_CHARS_MAX)
        except (aiohttp.ClientError, TimeoutError):
            return ""
        return " ".join(said.decode(errors="replace").split())

    async def _addresses(self) -> list[_Address]:
        """All replicas in turn, from the preferred one on, or from the one after that to avoid.
        Raises ServiceError if no host is known.
        """
        found: dict[_Address, None] = {}
        why: list[str] = []
        for url in self._access.urls:
            try:
                async with asyncio.timeout(self._request_s):
                    found.update(dict.fromkeys(await _addresses_of(url)))
            except (OSError, TimeoutError, UnicodeError) as error:
                why.append(f"{url}: {error!r:.200}")
        if not found:
            raise ServiceError("; ".join(why)[:2000])
        order = [*found]
        if self._preferred in found:
            start = order.index(self._preferred)
        else:
            start = order.index(self._avoided) + 1 if self._avoided in found else 0
        return [*order[start:], *order[:start]][:ADDRESSES_MAX]


async def _addresses_of(url: str) -> list[_Address]:
    """Raises OSError if the host is not known."""
    parts = urlsplit(url.rstrip("/"))
    name, tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [
        _Address(
            f"{parts.scheme}://{f'[{number}]' if ':' in number else number}:{port}{parts.path}",
            parts.netloc.rpartition("@")[2],
            name if tls else None,
        )
        for number in dict.fromkeys(str(address[0]) for *_, address in found)
    ]


def _reason(error: Exception) -> str:
    """Why there is no connection. aiohttp's own words name the objects of the program, too."""
    return str(error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error)


def _text_of(file: Path, what: str, bytes_max: int) -> str:
    """Read a file that the kubelet may replace. Raises ServiceError without repeating it."""
    try:
        with file.open("rb") as content:
            return content.read(bytes_max).decode("ascii")
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ServiceError(f"{what} in {file} cannot be read: {problem}") from None


async def _body(reply: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    content = bytearray()
    async for chunk in reply.content.iter_any():
        content += chunk
        if len(content) > bytes_max:
            raise ServiceError(f"the answer is longer than {bytes_max} bytes")
    return bytes(content)


def _seconds(header: str | None) -> float:
    return float(header) if header and header.isascii() and header.isdigit() else 0.0
