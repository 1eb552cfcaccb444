"""Knative's scheduler package for Python callers: its types as protocols, and a ``Scheduler`` that
calls this service.

A controller that keeps placements in the statuses of its own objects calls ``schedule`` for each
object that changes, and publishes the result. It calls again if the answer says so, as with
Knative's ``Scheduler.Schedule``::

    urls, pool = ["http://127.0.0.1:10261"], "knative-eventing/dispatcher"
    async with HttpScheduler(urls, pool=pool) as scheduler:
        try:
            placements = await scheduler.schedule(vpod)
        except InsufficientSlots as error:
            placements = error.placements       # what has a place is committed; publish it
            call_again_in_s = error.retry_after_s

Names follow Python. Knative's function names are aliases (``GetTotalVReplicas``). ``schedule``
returns after the placements are in the ledgers of the adapter pods. A repeated call returns the
same answer.
"""

import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

import aiohttp
import orjson

from extender.model.counted import counted_are
from extender.model.errors import VReplicaError
from extender.model.objects import split_key
from extender.model.placements import (
    Placement,
    get_placement_for_pod,
    get_pod_count,
    get_total_vreplicas,
)

__all__ = [
    "CallersVPod",
    "Evictor",
    "GetPlacementForPod",
    "GetPodCount",
    "GetTotalVReplicas",
    "HttpScheduler",
    "InsufficientSlots",
    "NotScheduled",
    "Placement",
    "RequestRefused",
    "Scheduler",
    "SchedulerFunc",
    "SchedulingError",
    "VPod",
    "VPodLister",
    "get_placement_for_pod",
    "get_pod_count",
    "get_total_vreplicas",
]

GetTotalVReplicas = get_total_vreplicas
GetPlacementForPod = get_placement_for_pod
GetPodCount = get_pod_count

TIMEOUT_S: Final = 6.0
"""Limit of one call. The service answers or gives up within its own deadline, by default 4 s."""
REPLY_BYTES_MAX: Final = 4 * 1024 * 1024
RETRY_AFTER_S: Final = 5.0
"""Used if the answer has no value: Knative's requeue delay."""
_MESSAGE_CHARS_MAX: Final = 500


class VPod(Protocol):
    """An object to schedule (Knative's ``VPod``): it wants ``vreplicas`` and publishes
    ``placements``.
    """

    @property
    def namespace(self) -> str:
        """Namespace of the object."""
        ...

    @property
    def name(self) -> str:
        """Name of the object."""
        ...

    @property
    def kind(self) -> str:
        """Kind of the object; "" for Placeable."""
        ...

    @property
    def group(self) -> str:
        """API group of the object; "" for duck.knative.dev."""
        ...

    @property
    def vreplicas(self) -> int:
        """The number of vreplicas that it wants."""
        ...

    @property
    def slots_per_vreplica(self) -> int:
        """Slots that one vreplica takes."""
        ...

    @property
    def placements(self) -> Sequence[Placement]:
        """The placements that its status publishes."""
        ...

    @property
    def deleted(self) -> bool:
        """Whether it has a deletion timestamp. Everything that it has is then released."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallersVPod:
    """A plain ``VPod``."""

    namespace: str
    name: str
    kind: str = ""
    group: str = ""
    vreplicas: int
    slots_per_vreplica: int = 1
    placements: Sequence[Placement] = ()
    deleted: bool = False


class Scheduler(Protocol):
    """Places vpods for one controller. Calls for different vpods may overlap, calls for the same
    vpod must not.
    """

    async def schedule(self, vpod: VPod) -> list[Placement]:
        """Place all vreplicas of ``vpod``; return the placements by ordinal. Raises
        SchedulingError.
        """
        ...


class SchedulerFunc:
    """A function as a ``Scheduler``."""

    def __init__(self, function: Callable[[VPod], Awaitable[list[Placement]]]) -> None:
        self._function = function

    async def schedule(self, vpod: VPod) -> list[Placement]:
        """Call the function."""
        return await self._function(vpod)


class VPodLister(Protocol):
    """Lists all vpods that a scheduler has to take into account."""

    def __call__(self) -> Sequence[VPod]:
        """List the vpods."""
        ...


class Evictor(Protocol):
    """Removes a placement from a vpod's status. The next ``schedule`` places it elsewhere."""

    async def __call__(self, pod_name: str, vpod: VPod, from_: Placement) -> None:
        """Remove ``from_``, which is on ``pod_name``, from the vpod's status."""
        ...


class SchedulingError(VReplicaError):
    """Base class of the errors of ``schedule``. ``retry_after_s`` says when to call again; with
    None, calling again with the same vpod does not help.
    """

    def __init__(self, message: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class InsufficientSlots(SchedulingError):
    """Some vreplicas have no place. ``placements`` are committed: publish them. ``left`` vreplicas
    wait for pods.

    Knative returns the placements together with an error that says when to requeue. In Python, the
    exception carries both.
    """

    def __init__(
        self, placements: list[Placement], left: int, reason: str, retry_after_s: float
    ) -> None:
        super().__init__(
            f"{counted_are(left, 'vreplica')} not placed ({reason or 'on their way'})",
            retry_after_s,
        )
        self.placements = placements
        self.left = left
        self.reason = reason


class NotScheduled(SchedulingError):
    """No decision is possible at this moment: no leader was reached, or not everything could be
    written. Calling again is safe.
    """


class RequestRefused(SchedulingError):
    """The service refuses this vpod or pool, and a repeated call would be refused too. ``status``
    is the HTTP status; the message says why.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, None)
        self.status = status


class HttpScheduler:
    """A ``Scheduler`` that calls ``POST /v1/schedule``. Use it as an async context manager, or
    ``close`` it.

    ``urls`` are the service's replicas. Only the leader schedules. ``schedule`` tries the URLs in
    turn, beginning with the one that answered last. ``pool`` is the AdapterPool's
    ``namespace/name``. ``tls`` has the client certificate and the CA; it is needed if the service
    does not listen on loopback.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        pool: str,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        namespace, name = split_key(pool)
        if not urls or not namespace or not name:
            raise ValueError("HttpScheduler needs at least one URL, and the pool as namespace/name")
        self._urls = [url.rstrip("/") for url in urls]
        self._pool = {"namespace": namespace, "name": name}
        self._tls = tls
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

    async def schedule(self, vpod: VPod) -> list[Placement]:
        """See ``Scheduler``. Raises InsufficientSlots, NotScheduled, RequestRefused."""
        body = orjson.dumps({"vpod": _request(vpod), "pool": self._pool})
        why: list[str] = []
        retry_after_s = 0.0
        for url in list(self._urls):
            try:
                placements = await self._ask(url, body)
            except NotScheduled as error:
                why.append(f"{url}: {error}")
                retry_after_s = max(retry_after_s, error.retry_after_s or RETRY_AFTER_S)
            except (aiohttp.ClientError, TimeoutError) as error:
                why.append(f"{url}: {error!r:.200}")
                retry_after_s = max(retry_after_s, RETRY_AFTER_S)
            except (InsufficientSlots, RequestRefused):
                self._prefer(url)
                raise
            else:
                self._prefer(url)
                return placements
        raise NotScheduled("; ".join(why), retry_after_s)

    def _prefer(self, url: str) -> None:
        self._urls.remove(url)
        self._urls.insert(0, url)

    async def _ask(self, url: str, body: bytes) -> list[Placement]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        async with self._session.post(
            f"{url}/v1/schedule",
            data=body,
            headers={"Content-Type": "application/json"},
            ssl=self._tls if self._tls is not None else True,
        ) as reply:
            content = await _content(reply)
            if reply.status == 200:
                return _answer(content)
            message = content.decode(errors="replace").strip()[:_MESSAGE_CHARS_MAX] or str(
                reply.reason
            )
            if 400 <= reply.status < 500:
                raise RequestRefused(message, reply.status)
            raise NotScheduled(message, _seconds(reply.headers.get("Retry-After")))


async def _content(reply: aiohttp.ClientResponse) -> bytes:
    """Read the whole body. Raises NotScheduled if it is longer than ``REPLY_BYTES_MAX``."""
    content = bytearray()
    async for chunk in reply.content.iter_any():
        content += chunk
        if len(content) > REPLY_BYTES_MAX:
            raise NotScheduled(f"the reply is longer than {REPLY_BYTES_MAX} bytes", RETRY_AFTER_S)
    return bytes(content)


def _request(vpod: VPod) -> dict[str, object]:
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
    return request | {
        key: value for key, value in (("kind", vpod.kind), ("group", vpod.group)) if value
    }


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
