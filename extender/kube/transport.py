"""One HTTP exchange with the API server: limited in time and size, sent once, with its failures
told apart.

Every request waits for its turn in its lane (``budget``), is sent, and has its answer read up to a
limit and mapped to a result or an error.

Only this module decides what a failure means for a write:

- The connection could not be made: nothing was sent. It is tried ``CONNECT_TRIES`` times in all.
- 401, or a TLS handshake that failed: the server did nothing. The request is sent once more if
  there are fresh credentials.
- 502, 504, or a 500 that names etcd: a component behind the answer stopped waiting, and the write
  may have happened. So OutcomeUnknown is raised, as for a time-out, a reset, or a success whose
  body cannot be read. Every other answer is definite.
- The connection broke: a read is repeated once, a write never. aiohttp itself would repeat PUT and
  DELETE on a kept connection that broke, which would turn our own successful compare-and-swap into
  a Conflict. ``_send_once`` prevents that.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
import orjson
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
from yarl import URL

from extender.kube.access import Access
from extender.kube.api import ApiError, OutcomeUnknown, error_from_status
from extender.kube.budget import Budget, Lane
from extender.kube.connection import Connection

CONNECT_TRIES: Final = 3
CONNECT_RETRY_S: Final = 0.1
CONNECT_TIMEOUT_S: Final = 5.0
RESPONSE_BYTES_MAX: Final = 256 * 2**20
"""Bytes of one body, decompressed: a page of 500 objects of half a MiB each."""
ERROR_BYTES_MAX: Final = 2**20
LINE_BYTES_MAX: Final = 32 * 2**20
"""Bytes of one watch event: etcd's 1.5 MiB many times over, for what JSON and conversion add."""
STREAM_GRACE_S: Final = 15.0
"""How much longer than its timeoutSeconds the server may keep a watch open."""

_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``path`` is quoted already."""

    method: str
    path: str
    lane: Lane
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = _JSON

    @property
    def writes(self) -> bool:
        """Whether it may change something on the server."""
        return self.method != "GET"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Transport:
    """Sends requests over a connection. The module's docstring says what is repeated and what is
    raised.
    """

    def __init__(
        self, connection: Connection, budget: Budget, *, user_agent: str, timeout_s: float
    ) -> None:
        self._connection = connection
        self.budget = budget
        self._timeout_s = timeout_s
        self._headers = {"Accept": _JSON, "User-Agent": user_agent}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        self.requests: Counter[tuple[str, str]] = Counter()
        """(method, status code or "<error>") to count, as client-go's rest_client_requests_total.
        """
        self.observe_latency: Callable[[str, str, float], None] = (
            lambda _method, _lane, _duration_s: None
        )
        """Called for each answer: method, lane, and the seconds from sending to the answer's
        beginning.
        """

    async def exchange(self, request: Request) -> bytes:
        """Return the body of a 2xx answer, within ``timeout_s`` of the call. Raises ApiError.

        The time includes the wait for the lane. So the facts behind a write are at most that old
        when it arrives (I2).
        """
        sent = False
        try:
            async with asyncio.timeout(self._timeout_s):
                await self.budget.admit(request.lane)
                sent = True
                response = await self._answer(request)
                return await _body(request, response, RESPONSE_BYTES_MAX)
        except TimeoutError as error:
            if not sent:
                text = f"{request}: not sent, its lane was full or paused for {self._timeout_s} s"
                raise ApiError(429, "TooManyRequests", text) from error
            raise self._no_answer(request, "Timeout", f"none within {self._timeout_s} s") from error

    async def lines(self, request: Request, *, timeout_s: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a streamed 2xx answer until its end, for at most ``timeout_s`` and
        ``STREAM_GRACE_S``. Raises ApiError.
        """
        await self.budget.admit(request.lane)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._answer(request)
        except TimeoutError as error:
            raise self._no_answer(request, "Timeout", f"none within {self._timeout_s} s") from error
        deadline = loop.time() + timeout_s + STREAM_GRACE_S
        rest = bytearray()
        try:
            while chunk := await _chunk(request, response, deadline):
                first, *others = chunk.split(b"\n")
                rest += first
                for line in others:
                    if rest:
                        yield bytes(rest)
                    rest = bytearray(line)
                if len(rest) > LINE_BYTES_MAX:
                    raise OutcomeUnknown(
                        0, "LineTooLong", f"{request}: over {LINE_BYTES_MAX} bytes"
                    )
            if rest:
                raise OutcomeUnknown(
                    0, "UnexpectedEOF", f"{request}: the stream ended within a line"
                )
        finally:
            response.close()

    async def _answer(self, request: Request) -> ClientResponse:
        """A 2xx response, its body unread."""
        unconnected = broken = 0
        renewed = False
        credentials = self._connection.credentials
        while True:
            started = time.perf_counter()
            access = credentials.access()
            try:
                response = await self._send(request, access)
            except aiohttp.ClientSSLError as error:
                if renewed or not await credentials.renew(access):
                    raise self._no_answer(request, "ConnectionFailed", str(error)) from error
                renewed = True
                continue
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                unconnected += 1
                if unconnected >= CONNECT_TRIES:
                    raise self._no_answer(request, "ConnectionFailed", str(error)) from error
                await asyncio.sleep(CONNECT_RETRY_S * unconnected)
                continue
            except _Broken as error:
                broken += 1
                if request.writes or broken > 1:
                    raise self._no_answer(
                        request, "ConnectionBroken", str(error)
                    ) from error.__cause__
                continue
            self.requests[request.method, str(response.status)] += 1
            self.observe_latency(request.method, str(request.lane), time.perf_counter() - started)
            if response.status == 401 and not renewed and await credentials.renew(access):
                renewed = True
                response.release()
                continue
            if 200 <= response.status < 300:
                return response
            raise await self._refusal(request, response)

    async def _send(self, request: Request, access: Access) -> ClientResponse:
        connection = self._connection
        headers = dict(self._headers)
        if access.authorization:
            headers["Authorization"] = access.authorization
        if request.body:
            headers["Content-Type"] = request.content_type
        target = f"{connection.base_url}{request.path}"
        if request.query:
            target += "?" + urlencode(request.query)
        try:
            session = (
                connection.lease_session if request.lane is Lane.LEASES else connection.session
            )
            return await session.request(
                request.method,
                URL(target, encoded=True),
                data=request.body or None,
                headers=headers,
                timeout=self._timeout,
                allow_redirects=False,
                ssl=access.tls,
                proxy=access.proxy,
                server_hostname=access.server_hostname,
                middlewares=(_send_once,),
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise _Broken(f"{type(error).__name__}: {error}") from error

    async def _refusal(self, request: Request, response: ClientResponse) -> ApiError:
        raw = await _body(request, response, ERROR_BYTES_MAX)
        error = error_of(response.status, response.headers, raw)
        if not _is_about_an_object(raw):
            self.budget.answered(request.lane, error.status, error.retry_after_s)
        return error

    def _no_answer(self, request: Request, reason: str, message: str) -> OutcomeUnknown:
        self.requests[request.method, "<error>"] += 1
        return OutcomeUnknown(0, reason, f"{request}: {message}")


class _Broken(Exception):  # never leaves this module
    """The connection broke after it was made: the request may have arrived."""


async def _send_once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Client middleware that raises ``_Broken`` for a broken connection, so that aiohttp does not
    repeat PUT and DELETE.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Broken(f"{type(error).__name__}: {error}") from error


async def _chunk(request: Request, response: ClientResponse, deadline: float) -> bytes:
    """The next bytes of a stream; empty at its end, or at the deadline if the server has not ended
    it.
    """
    try:
        async with asyncio.timeout_at(deadline):
            return await response.content.readany()
    except TimeoutError:
        return b""
    except (aiohttp.ClientError, OSError) as error:
        raise OutcomeUnknown(0, "ConnectionBroken", f"{request}: {error}") from error


async def _body(request: Request, response: ClientResponse, bytes_max: int) -> bytes:
    """The whole body. Raises OutcomeUnknown if it breaks off or is longer than ``bytes_max``."""
    parts: list[bytes] = []
    size = 0
    try:
        async with response:
            while part := await response.content.readany():
                size += len(part)
                if size > bytes_max:
                    response.close()
                    raise OutcomeUnknown(
                        0, "ResponseTooLarge", f"{request}: over {bytes_max} bytes"
                    )
                parts.append(part)
    except TimeoutError:
        raise
    except (aiohttp.ClientError, OSError) as error:
        raise OutcomeUnknown(0, "ConnectionBroken", f"{request}: {error}") from error
    return b"".join(parts)


def _is_about_an_object(raw: bytes) -> bool:
    """Whether a refusal is a metav1.Status. kube-apiserver refuses with plain text while it is
    overloaded or shuts down. A Status with Retry-After is about the object or its kind: a
    disruption budget, an admission webhook of one namespace, a watch cache that is not ready.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return False
    return isinstance(body, dict) and body.get("kind") == "Status"


def decode(request: Request, raw: bytes) -> dict[str, Any]:
    """Return a 2xx body as a JSON object. Raises OutcomeUnknown for any other body: what a write
    did is then unknown.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise OutcomeUnknown(0, "InvalidResponse", f"{request}: not JSON: {raw[:200]!r}") from error
    if not isinstance(value, dict):
        raise OutcomeUnknown(0, "InvalidResponse", f"{request}: not a JSON object: {raw[:200]!r}")
    return value


def error_of(status: int, headers: Mapping[str, str], raw: bytes) -> ApiError:
    """The error for an answer other than 2xx. A body that is not a metav1.Status, such as a proxy's
    page, becomes the message.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        body = {"reason": "UnexpectedResponse", "message": raw[:500].decode("utf-8", "replace")}
    retry_after_s = retry_after(headers)
    if retry_after_s is None:
        details = body.get("details")
        seconds = details.get("retryAfterSeconds") if isinstance(details, dict) else None
        retry_after_s = float(seconds) if isinstance(seconds, int) and seconds > 0 else None
    error = error_from_status(status, body, retry_after_s=retry_after_s)
    if status in {502, 504} or (status == 500 and "etcdserver:" in error.message):
        return OutcomeUnknown(status, error.reason, error.message, retry_after_s=retry_after_s)
    return error


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds from now; None if absent or unreadable.

    A date is compared with the Date of the same answer, so that our clock does not matter.
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment, sent = parsedate_to_datetime(text), parsedate_to_datetime(headers.get("Date", ""))
        return max(0.0, (moment - sent).total_seconds())
    except (ValueError, TypeError):
        return None
