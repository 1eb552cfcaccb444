"""``HttpScheduler``: a ``Scheduler`` that asks the service's leader over HTTP."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
import orjson

from extender.model.objects import split_key
from extender.model.placements import Placement
from extender.scheduling_api.scheduler import (
    InsufficientSlots,
    NotScheduled,
    RequestRefused,
    StaleVPod,
)
from extender.scheduling_api.vpods import AnyVPod, CallersVPod, plain, source_of

TIMEOUT_S: Final = 6.0
"""Limit of one call. The service answers or gives up within its own deadline, by default 4 s."""
REPLY_BYTES_MAX: Final = 4 * 1024 * 1024
STATE_BYTES_MAX: Final = 32 * 1024 * 1024
RETRY_AFTER_S: Final = 5.0
"""Used if the answer has no value: Knative's requeue delay."""
STALE: Final = 412
"""The HTTP status for an object that is older than the one before."""
UNAUTHORIZED: Final = 401
"""The token is not accepted. The file may have another one by the next call."""
ADDRESSES_MAX: Final = 64
"""Addresses of one URL that are tried."""
CA_BYTES_MAX: Final = 1024 * 1024
TOKEN_BYTES_MAX: Final = 64 * 1024
_MESSAGE_CHARS_MAX: Final = 500

T = TypeVar("T")


class HttpScheduler:
    """A ``Scheduler`` that calls ``POST /v1/schedule``. Use it as an async context manager, or
    ``close`` it.

    ``urls`` are the service's replicas. Only the leader schedules. ``schedule`` tries them in turn,
    beginning with the one that answered last. A host name stands for all its addresses, as that of
    a headless Service does. ``pool`` is the AdapterPool's ``namespace/name``. ``kind`` and
    ``group`` are those of objects that do not say their own.

    Beyond loopback, ``ca_file`` has the authorities of the service's certificate, PEM, and
    ``token_file`` a ServiceAccount token for the service's audience. The kubelet replaces both
    files, so both are read for each call. A token is sent over TLS only. ``tls``, in place of
    ``ca_file``, is a context of your own, with a client certificate for example.
    """

    def __init__(  # noqa: PLR0913 (keywords)
        self,
        urls: Sequence[str],
        *,
        pool: str,
        kind: str = "",
        group: str = "",
        tls: ssl.SSLContext | None = None,
        ca_file: str | Path = "",
        token_file: str | Path = "",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        namespace, name = split_key(pool)
        if not urls or not namespace or not name:
            raise ValueError("HttpScheduler needs at least one URL, and the pool as namespace/name")
        if token_file and not all(url.startswith("https://") for url in urls):
            raise ValueError("HttpScheduler sends the token of token_file to https:// URLs only")
        if tls is not None and ca_file:
            raise ValueError("HttpScheduler takes tls or ca_file, not both")
        self._urls = [url.rstrip("/") for url in urls]
        self._answered: _Address | None = None
        """The address that answered last."""
        self._token_file = Path(token_file) if token_file else None
        self._pool = {"namespace": namespace, "name": name}
        self._pool_key = pool
        self._kind, self._group = kind, group
        self._tls = tls
        self._ca_file = Path(ca_file) if ca_file else None
        self._ca_pem = ""
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def schedule(self, vpod: AnyVPod) -> list[Placement]:
        """See ``Scheduler``. Raises InsufficientSlots, NotScheduled, RequestRefused."""
        request = _request(plain(vpod, kind=self._kind, group=self._group))
        body = orjson.dumps({"vpod": request, "pool": self._pool})
        return await self._in_turn(lambda address: self._ask(address, body))

    Schedule = schedule

    async def describe(self) -> dict[str, Any]:
        """Return what a replica knows of the pool: its object in ``/state.json``. It may lag behind
        the leader. Raises NotScheduled if no replica answers, RequestRefused without such a pool.
        """
        key = self._pool_key
        pools = await self._in_turn(lambda address: self._pools(address, {"pool": key}))
        found = next((pool for pool in pools if pool["name"] == key), None)
        if found is None or not found.get("found"):
            raise RequestRefused(f"AdapterPool {key} does not exist", 404)
        return found

    async def is_only_here(self, vpod: AnyVPod) -> bool:
        """Whether this pool knows a vpod, and no other one does. Raises NotScheduled."""
        facts = plain(vpod, kind=self._kind, group=self._group)
        key = f"{facts.key}@{source_of(facts.kind, facts.group)}"
        pools = await self._in_turn(lambda address: self._pools(address, {"vpod": key}))
        return [pool["name"] for pool in pools] == [self._pool_key]

    async def _in_turn(self, ask: Callable[["_Address"], Awaitable[T]]) -> T:
        why: list[str] = []
        retry_after_s = 0.0
        addresses, unknown = await self._addresses()
        why += unknown
        for address in addresses:
            try:
                answer = await ask(address)
            except (InsufficientSlots, RequestRefused, StaleVPod):
                self._answered = address
                raise
            except NotScheduled as error:
                why.append(f"{address.url}: {error}")
                retry_after_s = max(retry_after_s, error.retry_after_s or RETRY_AFTER_S)
            except (aiohttp.ClientError, TimeoutError) as error:
                said = str(error) or type(error).__name__
                why.append(f"{address.url}: {said[:_MESSAGE_CHARS_MAX]}")
                retry_after_s = max(retry_after_s, RETRY_AFTER_S)
            else:
                self._answered = address
                return answer
        raise NotScheduled("; ".join(why), retry_after_s or RETRY_AFTER_S)

    async def _addresses(self) -> tuple[list["_Address"], list[str]]:
        """All addresses of the URLs, the one that answered last first; and which hosts are
        unknown.
        """
        found: dict[_Address, None] = {}
        unknown = []
        for url in self._urls:
            try:
                found.update(dict.fromkeys(await _addresses_of(url)))
            except OSError as error:
                unknown.append(f"{url}: {error!r:.200}")
        first = [self._answered] if self._answered in found else []
        return [*first, *(one for one in found if one not in first)], unknown

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        return self._session

    def _options(self, address: "_Address") -> dict[str, Any]:
        """How to send a request. Raises NotScheduled if a file cannot be read."""
        headers = {"Host": address.host}
        if self._token_file is not None:
            headers["Authorization"] = f"Bearer {_token(self._token_file)}"
        return {
            "headers": headers,
            "ssl": self._context() or True,
            "server_hostname": address.server_name,
            "allow_redirects": False,
        }

    def _context(self) -> ssl.SSLContext | None:
        """Return what verifies the service, None for the system's authorities. A new context ends
        no connection: the pool uses one for requests of its own context only.
        """
        if self._ca_file is None:
            return self._tls
        # Empty data would mean the system's authorities to ssl.
        ca_pem = _text_of(self._ca_file, "the CA", CA_BYTES_MAX).strip() or "none"
        if self._tls is None or ca_pem != self._ca_pem:
            try:
                self._tls = ssl.create_default_context(cadata=ca_pem)
            except (ssl.SSLError, ValueError):
                raise NotScheduled(
                    f"there is no certificate in {self._ca_file}", RETRY_AFTER_S
                ) from None
            self._ca_pem = ca_pem
        return self._tls

    async def _ask(self, address: "_Address", body: bytes) -> list[Placement]:
        options = self._options(address)
        options["headers"]["Content-Type"] = "application/json"
        async with self._connected().post(
            f"{address.url}/v1/schedule", data=body, **options
        ) as reply:
            return _answer(await _content(reply, REPLY_BYTES_MAX))

    async def _pools(self, address: "_Address", query: dict[str, str]) -> list[dict[str, Any]]:
        async with self._connected().get(
            f"{address.url}/state.json", params=query, **self._options(address)
        ) as reply:
            content = await _content(reply, STATE_BYTES_MAX)
        try:
            pools: list[dict[str, Any]] = orjson.loads(content)["pools"]
            return [pool for pool in pools if pool["name"]]
        except (ValueError, KeyError, TypeError) as error:
            raise NotScheduled(f"the state cannot be read: {error!r}", RETRY_AFTER_S) from error


@dataclass(frozen=True, slots=True)
class _Address:
    """A replica: ``url`` with its address, and the names by which the caller knows it."""

    url: str
    host: str
    """For the header ``Host``."""
    server_name: str | None
    """What the certificate must have; None without TLS."""


async def _addresses_of(url: str) -> list[_Address]:
    """Raises OSError if the host is not known."""
    parts = urlsplit(url)
    name = parts.hostname or ""
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    numbers = list(dict.fromkeys(str(address[0]) for *_, address in found))[:ADDRESSES_MAX]
    return [
        _Address(
            f"{parts.scheme}://{f'[{number}]' if ':' in number else number}:{port}{parts.path}",
            parts.netloc.rpartition("@")[2],
            name if tls else None,
        )
        for number in numbers
    ]


def _text_of(file: Path, what: str, bytes_max: int) -> str:
    """Read a file that the kubelet may replace. Raises NotScheduled without repeating it."""
    try:
        with file.open("rb") as content:
            return content.read(bytes_max).decode("ascii")
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not text"
        raise NotScheduled(f"{what} in {file} cannot be read: {problem}", RETRY_AFTER_S) from None


def _token(file: Path) -> str:
    token = _text_of(file, "the token", TOKEN_BYTES_MAX).strip()
    if not token or not token.isprintable():
        raise NotScheduled(f"there is no token in {file}", RETRY_AFTER_S)
    return token


async def _content(reply: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """Read the whole body of a good answer. Raises RequestRefused, StaleVPod, and NotScheduled if
    it is none, also if it is longer than ``bytes_max``.
    """
    content = bytearray()
    async for chunk in reply.content.iter_any():
        content += chunk
        if len(content) > bytes_max:
            raise NotScheduled(f"the reply is longer than {bytes_max} bytes", RETRY_AFTER_S)
    if reply.status == 200:
        return bytes(content)
    text = content.decode(errors="replace").strip()[:_MESSAGE_CHARS_MAX]
    message, retry_after_s = text or str(reply.reason), _seconds(reply.headers.get("Retry-After"))
    if reply.status == STALE:
        raise StaleVPod(message, retry_after_s)
    if 400 <= reply.status < 500 and reply.status != UNAUTHORIZED:
        raise RequestRefused(message, reply.status)
    raise NotScheduled(message, retry_after_s)


def _request(vpod: CallersVPod) -> dict[str, object]:
    request: dict[str, object] = {
        "namespace": vpod.namespace,
        "name": vpod.name,
        "vreplicas": vpod.vreplicas,
        "slotsPerVReplica": vpod.slots_per_vreplica,
        "placements": [
            {"podName": item.pod_name, "vreplicas": item.vreplicas} for item in vpod.placements
        ],
        "deleted": vpod.deleted,
    }
    optional = {
        "kind": vpod.kind,
        "group": vpod.group,
        "resourceVersion": vpod.resource_version,
        "perVReplica": dict(vpod.per_vreplica),
    }
    return request | {key: value for key, value in optional.items() if value}


def _answer(content: bytes) -> list[Placement]:
    """Return the placements of a reply. Raises InsufficientSlots if some vreplicas have no place,
    NotScheduled if the reply cannot be read.
    """
    try:
        reply = orjson.loads(content)
        placements = [
            Placement(str(item["podName"]), int(item["vreplicas"])) for item in reply["placements"]
        ]
        left, reason = int(reply["left"]), str(reply.get("reason", ""))
        retry_after_s = float(reply.get("retryAfterSeconds", RETRY_AFTER_S))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotScheduled(f"the reply cannot be read: {error!r}", RETRY_AFTER_S) from error
    if left:
        raise InsufficientSlots(placements, left, reason, retry_after_s)
    return placements


def _seconds(header: str | None) -> float:
    return (
        float(header)
        if header is not None and header.isascii() and header.isdigit()
        else RETRY_AFTER_S
    )
