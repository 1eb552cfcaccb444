"""Asks a running replica of the service over HTTP.

Every answer has a size limit and a deadline. A status other than 200 is an error with the replica's
text. Except on loopback, a replica requires a client certificate (``service.http.tls``).
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import orjson

from extender.cli.terminal.output import plain
from extender.cli.terminal.replica_access import ReplicaAccess
from extender.model.errors import InvalidObject, VReplicaError

ANSWER_BYTES_MAX: Final = 256 * 2**20
LINE_BYTES_MAX: Final = 4 * 2**20
ANSWER_TIMEOUT_S: Final = 30.0
TEXT_CHARS_MAX: Final = 500
NOT_READY: Final = 503


class ReplicaError(VReplicaError):
    """There is no usable answer. ``status``: of HTTP, 0 if there was none. ``said``: the answer's
    text, in one line.
    """

    def __init__(self, message: str, status: int = 0, said: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.said = said


class Refused(ReplicaError):
    """The replica itself refuses: its answer is JSON with an ``error``, which is ``said``."""


class Unreachable(ReplicaError):
    """The connection to that URL fails."""


class Replica:
    """Asks one replica, over one session."""

    def __init__(self, access: ReplicaAccess, session: aiohttp.ClientSession) -> None:
        self.url = access.url
        self._session = session

    async def get(
        self,
        path: str,
        parameters: Mapping[str, str] | None = None,
        *,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Return the JSON object that ``GET path`` answers. Raises ReplicaError."""
        return self._object(path, await self._ask("GET", path, timeout_s, params=parameters))

    async def post(
        self, path: str, body: object, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[str, Any]:
        """Return the JSON object that ``POST path`` answers to the JSON ``body``. Raises
        ReplicaError.
        """
        return self._object(path, await self._ask("POST", path, timeout_s, json=body))

    async def readiness(self, *, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """Return ``ok``, or why the replica is not ready. Raises ReplicaError."""
        try:
            return _one_line(await self._ask("GET", "/readyz", timeout_s))
        except ReplicaError as error:
            if error.status != NOT_READY:
                raise
            return error.said

    async def lines(
        self,
        path: str,
        parameters: Mapping[str, str] | None = None,
        *,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> AsyncIterator[bytes]:
        """Yield the lines that ``GET path`` answers, as they come. ``timeout_s`` is for each read.
        Raises ReplicaError.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_read=timeout_s, sock_connect=timeout_s)
        try:
            async with self._request("GET", path, timeout, params=parameters) as reply:
                await self._refuse_other(reply, path)
                async for line in reply.content:
                    if not line.endswith(b"\n"):
                        raise ReplicaError(f"{self.url} ends its answer to {path} within a line")
                    yield line
        except (TimeoutError, aiohttp.ServerTimeoutError) as error:
            raise ReplicaError(
                f"{self.url} is silent for {timeout_s:g} s while it answers {path}"
            ) from error
        except (aiohttp.ClientError, ValueError) as error:
            raise self._unreachable(error) from error

    async def _ask(self, method: str, path: str, timeout_s: float, **content: Any) -> bytes:
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._request(method, path, _NO_TIMEOUT, **content) as reply,
            ):
                await self._refuse_other(reply, path)
                return await self._content(reply, ANSWER_BYTES_MAX)
        except TimeoutError as error:
            raise ReplicaError(
                f"{self.url} does not answer {path} within {timeout_s:g} s"
            ) from error
        except aiohttp.ClientError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"{self.url} cannot be asked: {str(error)[:TEXT_CHARS_MAX]}; "
            "a service in a cluster is reached by kubectl port-forward"
        )

    def _object(self, path: str, content: bytes) -> dict[str, Any]:
        found = _json(content)
        if not isinstance(found, dict):
            raise ReplicaError(
                f"{self.url} answers {path} with what is no JSON object: is it a replica of ours?"
            )
        return found

    def _request(
        self, method: str, path: str, timeout: aiohttp.ClientTimeout, **content: Any
    ) -> Any:
        return self._session.request(
            method, self.url + path, timeout=timeout, allow_redirects=False, **content
        )

    async def _refuse_other(self, reply: aiohttp.ClientResponse, path: str) -> None:
        if reply.status == 200:
            return
        content = await self._content(reply, LINE_BYTES_MAX)
        found = _json(content)
        told = found.get("error") if isinstance(found, dict) else None
        said = _one_line(told.encode() if isinstance(told, str) else content)
        raised = Refused if isinstance(told, str) else ReplicaError
        raise raised(
            f"{self.url} answers {path} with {reply.status}: {said or reply.reason}",
            reply.status,
            said,
        )

    async def _content(self, reply: aiohttp.ClientResponse, bytes_max: int) -> bytes:
        content = bytearray()
        async for chunk in reply.content.iter_any():
            content += chunk
            if len(content) > bytes_max:
                raise ReplicaError(f"{self.url} answers with more than {bytes_max} bytes")
        return bytes(content)


_NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)


@asynccontextmanager
async def open_replica(access: ReplicaAccess) -> AsyncIterator[Replica]:
    """Open a session to the replica until the block ends. Raises InvalidObject for files that are
    not certificates.
    """
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=_tls(access)),
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=LINE_BYTES_MAX,
    ) as session:
        yield Replica(access, session)


def _tls(access: ReplicaAccess) -> ssl.SSLContext | bool:
    """The TLS settings; True for the default: the system's CAs, and no client certificate."""
    authority, certificate, key = (
        access.certificate_authority,
        access.client_certificate,
        access.client_key,
    )
    if key and not certificate:
        raise InvalidObject("--client-key", "", "goes with --client-certificate FILE")
    if not authority and not certificate:
        return True
    try:
        context = ssl.create_default_context(cafile=authority or None)
        if certificate:
            context.load_cert_chain(certificate, key or None)
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(filter(None, (authority, certificate, key)))
        raise InvalidObject(files, "", f"cannot be used as certificates: {error}") from error
    return context


def _one_line(content: bytes) -> str:
    """Make one line without control characters: the answer may come from another program."""
    text = " ".join(content.decode(errors="replace").split())[:TEXT_CHARS_MAX]
    return plain(text)


def _json(content: bytes) -> Any:
    """The decoded JSON, None if it is not JSON."""
    try:
        return orjson.loads(content)
    except ValueError:
        return None
