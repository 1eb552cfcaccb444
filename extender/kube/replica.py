"""A running replica of the service, asked over HTTP: what ``vreplica``'s questions stand on.

Every answer has a limit and a deadline; what is not 200 is an error that says what the replica said. Beyond loopback a
replica wants a client certificate (``service.tls``).
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import orjson

from extender.core.errors import InvalidObject, VReplicaError
from extender.kube.replica_access import ReplicaAccess

ANSWER_BYTES_MAX: Final = 256 * 2**20
LINE_BYTES_MAX: Final = 4 * 2**20
ANSWER_TIMEOUT_S: Final = 30.0
TEXT_CHARS_MAX: Final = 500


class ReplicaError(VReplicaError):
    """A replica that cannot be reached, or an answer that is none. ``status``: of HTTP, 0 for no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Replica:
    """Answers of one replica, over one session."""

    def __init__(self, access: ReplicaAccess, session: aiohttp.ClientSession) -> None:
        self.url = access.url
        self._session = session
        self._tls = _tls(access)

    async def get(
        self, path: str, parameters: Mapping[str, str] | None = None, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> Any:
        """What ``GET path`` answers, as JSON. Raises ReplicaError."""
        return await self._ask("GET", path, parameters or {}, None, timeout_s)

    async def post(self, path: str, body: object, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """What ``POST path`` answers to ``body``, both as JSON. Raises ReplicaError."""
        return await self._ask("POST", path, {}, body, timeout_s)

    async def lines(
        self, path: str, parameters: Mapping[str, str] | None = None, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> AsyncIterator[bytes]:
        """The lines that ``GET path`` answers, as they come; ``timeout_s`` is for each. Raises ReplicaError."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=timeout_s, sock_connect=timeout_s)
        try:
            async with self._request("GET", path, parameters or {}, None, timeout) as reply:
                await self._refuse_other(reply, path)
                async for line in reply.content:
                    if not line.endswith(b"\n"):
                        raise ReplicaError(f"{self.url} ends its answer to {path} within a line")
                    yield line
        except (TimeoutError, aiohttp.ServerTimeoutError) as error:
            raise ReplicaError(f"{self.url} is silent for {timeout_s:g} s while it answers {path}") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise ReplicaError(f"{self.url} cannot be asked: {error}"[:TEXT_CHARS_MAX]) from error

    async def _ask(
        self, method: str, path: str, parameters: Mapping[str, str], body: object, timeout_s: float
    ) -> Any:
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._request(method, path, parameters, body, _NO_TIMEOUT) as reply,
            ):
                await self._refuse_other(reply, path)
                content = await self._content(reply, ANSWER_BYTES_MAX)
        except TimeoutError as error:
            raise ReplicaError(f"{self.url} does not answer {path} within {timeout_s:g} s") from error
        except aiohttp.ClientError as error:
            raise ReplicaError(f"{self.url} cannot be asked: {error}"[:TEXT_CHARS_MAX]) from error
        try:
            return orjson.loads(content)
        except ValueError as error:
            raise ReplicaError(
                f"{self.url} answers {path} with what is no JSON: is it a replica of ours?"
            ) from error

    def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str],
        body: object,
        timeout: aiohttp.ClientTimeout,
    ) -> Any:
        return self._session.request(
            method,
            self.url + path,
            params=dict(parameters),
            data=None if body is None else orjson.dumps(body),
            headers={} if body is None else {"Content-Type": "application/json"},
            ssl=self._tls if self._tls is not None else True,
            allow_redirects=False,
            timeout=timeout,
        )

    async def _refuse_other(self, reply: aiohttp.ClientResponse, path: str) -> None:
        if reply.status == 200:
            return
        content = await self._content(reply, LINE_BYTES_MAX)
        text = " ".join(content.decode(errors="replace").split())[:TEXT_CHARS_MAX]
        # What a replica says may be anybody's, where it is not ours: no control characters on a terminal.
        text = "".join(c if c.isprintable() else "?" for c in text)
        raise ReplicaError(
            f"{self.url} answers {path} with {reply.status}: {text or reply.reason}", reply.status
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
    """A session to the replica until the block ends. Raises InvalidObject for files that are no certificate."""
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=LINE_BYTES_MAX
    ) as session:
        yield Replica(access, session)


def _tls(access: ReplicaAccess) -> ssl.SSLContext | None:
    """None for http, and where the system's CAs do and no certificate is shown."""
    if not access.ca_file and not access.cert_file:
        if access.key_file:
            raise InvalidObject("--key", "", "goes with --cert FILE")
        return None
    try:
        context = ssl.create_default_context(cafile=access.ca_file or None)
        if access.cert_file:
            context.load_cert_chain(access.cert_file, access.key_file or None)
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(filter(None, (access.ca_file, access.cert_file, access.key_file)))
        raise InvalidObject(files, "", f"cannot be used as certificates: {error}") from error
    return context
