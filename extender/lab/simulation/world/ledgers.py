"""Lost updates: whether who writes a ledger knew the one that it replaces, and has made the API
server see to it.

``Overseen`` stands between a process and the API server, inside of what its faults fall on. It
notes which ledgers the server has told the process of, and with each write what it asks to be
compared. ``write_problems`` looks at that from within the store, in the very write (``REQUEST``).
So I1 does not hang on two writers meeting by chance: a write that nothing compares is a violation
by itself, and one that is compared still has to replace a ledger that its writer had been told of
when it sent it.

What the server tells may be lost on its way, so a process may know less than is noted here: nothing
is held against it wrongly.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from extender.kube.api import (
    EVERYWHERE,
    PODS,
    Api,
    Binding,
    ListOptions,
    ListPage,
    Obj,
    Resource,
    WatchEvent,
)
from extender.kube.forwarding import ApiCall, ForwardingApi
from extender.lab.simulation.world.facts import PLACEMENTS

T = TypeVar("T")

VERSION_PATH: Final = "/metadata/resourceVersion"
UID_PATH: Final = "/metadata/uid"
LEDGER_PATH: Final = "/metadata/annotations/" + PLACEMENTS.replace("/", "~1")


@dataclass
class SeenLedgers:
    """Which ledgers of which pods the API server has told one process of. UID -> texts, the latest
    last; None: no ledger.
    """

    texts: dict[str, list[str | None]] = field(default_factory=dict)

    def note(self, pod: Obj) -> None:
        """It is told of this pod, or has written it."""
        texts = self.texts.setdefault(pod["metadata"]["uid"], [])
        if not texts or texts[-1] != ledger_text(pod):
            texts.append(ledger_text(pod))

    def until_now(self) -> dict[str, int]:
        """UID -> how many texts: what a request is sent with."""
        return {uid: len(texts) for uid, texts in self.texts.items()}


@dataclass(frozen=True)
class Request:
    """One write of a pod. ``compares``: which of uid, version and ledger the server has to find as
    the sender names them.
    """

    compares: frozenset[str]
    told: SeenLedgers
    knew: dict[str, int]
    """``SeenLedgers.until_now`` when it was sent."""

    def knows(self, uid: str, text: str | None) -> bool:
        """Whether its sender had been told of this ledger when it sent it."""
        return text in self.told.texts.get(uid, [])[: self.knew.get(uid, 0)]


REQUEST: Final[ContextVar[Request | None]] = ContextVar("REQUEST", default=None)
"""The write of a pod that is being served, for subscribers of the store."""


def ledger_text(pod: Obj) -> str | None:
    """The annotation as it is."""
    text: str | None = (pod["metadata"].get("annotations") or {}).get(PLACEMENTS)
    return text


def write_problems(before: Obj, after: Obj) -> list[str]:
    """What is wrong with how a ledger was just replaced, or a pod bound; nothing where the writer
    is not overseen.
    """
    request = REQUEST.get()
    bound_now = not before["spec"].get("nodeName") and bool(after["spec"].get("nodeName"))
    if request is None or (ledger_text(before) == ledger_text(after) and not bound_now):
        return []
    name, found = after["metadata"]["name"], []
    if not request.compares & {"ledger", "version"}:
        found.append(f"ledger of {name} is replaced whatever it is: {ledger_text(before)}")
    if not request.compares & {"uid", "version"}:
        found.append(f"ledger of {name} is written to whatever pod has the name")
    if bound_now and not request.compares >= {"uid", "version"}:
        found.append(
            f"{name} is bound whatever has become of it: compares {sorted(request.compares)}"
        )
    if not request.knows(after["metadata"]["uid"], ledger_text(before)):
        found.append(
            f"ledger of {name} is replaced by who has not seen it: {ledger_text(before)} by "
            f"{ledger_text(after)}"
        )
    return found


def compared_by(body: list[Obj] | Obj | Binding) -> frozenset[str]:
    """What a write asks to be compared. A binding, a merge patch, or a whole object, names version
    and UID or does not.
    """
    if isinstance(body, list):
        names = {VERSION_PATH: "version", UID_PATH: "uid", LEDGER_PATH: "ledger"}
        return frozenset(
            names[op["path"]] for op in body if op["op"] == "test" and op["path"] in names
        )
    if isinstance(body, Binding):
        body = {"metadata": {"resourceVersion": body.resource_version, "uid": body.uid}}
    metadata = body.get("metadata") or {}
    named = {"version": metadata.get("resourceVersion"), "uid": metadata.get("uid")}
    return frozenset(what for what, value in named.items() if value)


class Overseen(ForwardingApi):
    """``Api`` of one process, as near to the server as can be. What is sent is noted when it is
    sent, not when it arrives.
    """

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.told = SeenLedgers()

    def note(self, pods: Iterable[Obj]) -> None:
        """These pods are told to the process past this way: from an old cache."""
        for pod in pods:
            self.told.note(pod)

    def _forward(
        self, call: ApiCall, send: Callable[[], Coroutine[Any, Any, T]]
    ) -> Coroutine[Any, Any, T]:
        if call.resource != PODS or call.verb in {"create", "delete"}:
            return send()
        if call.body is None:
            return self._told_by(send, None)
        return self._told_by(
            send, Request(compared_by(call.body), self.told, self.told.until_now())
        )

    async def _told_by(
        self, send: Callable[[], Coroutine[Any, Any, T]], request: Request | None
    ) -> T:
        token = REQUEST.set(request)
        try:
            reply = await send()
        finally:
            REQUEST.reset(token)
        if isinstance(reply, ListPage):
            self.note(reply.items)
        elif isinstance(reply, dict):
            self.told.note(reply)
        return reply

    async def watch(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        resource_version: str,
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        """``Api.watch``."""
        stream = self._api.watch(
            resource, options, resource_version=resource_version, timeout_s=timeout_s
        )
        try:
            async for event in stream:
                if resource == PODS and "uid" in event.object["metadata"]:  # a bookmark has none
                    self.told.note(event.object)
                yield event
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
