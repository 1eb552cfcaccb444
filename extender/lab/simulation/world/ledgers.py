"""Detects lost updates: a writer of a ledger must know the ledger that it replaces, and let the API
server compare it.

``RecordingApi`` wraps the API of one process, below its injected faults. It records the ledgers
that the server has shown to the process, and the comparisons that each write requests.
``write_problems`` checks both inside the write, in the store (``REQUEST``).

So a violation of I1 need not wait until two writers meet by chance. A write without a comparison is
a violation. A write with one must still replace a ledger that its writer had been shown when it
sent the write.

A reply may be lost on its way, so a process may know less than is recorded here. The check can
therefore miss a violation, but never reports a false one.
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
    """The ledgers that the API server has shown to one process. UID -> texts, the latest last;
    None: no ledger.
    """

    texts: dict[str, list[str | None]] = field(default_factory=dict)

    def note(self, pod: Obj) -> None:
        """The process was shown this pod, or has written it."""
        texts = self.texts.setdefault(pod["metadata"]["uid"], [])
        if not texts or texts[-1] != ledger_text(pod):
            texts.append(ledger_text(pod))

    def until_now(self) -> dict[str, int]:
        """Return UID -> number of texts so far, which is stored with each request."""
        return {uid: len(texts) for uid, texts in self.texts.items()}


@dataclass(frozen=True)
class Request:
    """One write of a pod. ``compares`` says which of uid, version and ledger the server must find
    as the sender names them.
    """

    compares: frozenset[str]
    seen: SeenLedgers
    knew: dict[str, int]
    """``SeenLedgers.until_now`` when the request was sent."""

    def knows(self, uid: str, text: str | None) -> bool:
        """Return whether the sender had been shown this ledger when it sent the request."""
        return text in self.seen.texts.get(uid, [])[: self.knew.get(uid, 0)]


REQUEST: Final[ContextVar[Request | None]] = ContextVar("REQUEST", default=None)
"""The write of a pod that is being served, for subscribers of the store."""


def ledger_text(pod: Obj) -> str | None:
    """Return the text of the annotation."""
    text: str | None = (pod["metadata"].get("annotations") or {}).get(PLACEMENTS)
    return text


def write_problems(before: Obj, after: Obj) -> list[str]:
    """Return what is wrong with the replacement of a ledger, or with a bind; nothing if the writer
    is not recorded.
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
    """Return what a write lets the server compare. Bindings, merge patches and whole objects
    compare version and UID if they name them.
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


class RecordingApi(ForwardingApi):
    """The ``Api`` of one process, directly in front of the server. It records what the process
    knows when it sends a request, not when the request arrives.
    """

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.seen = SeenLedgers()

    def note(self, pods: Iterable[Obj]) -> None:
        """The process gets these pods another way: from an old cache."""
        for pod in pods:
            self.seen.note(pod)

    def _forward(
        self, call: ApiCall, send: Callable[[], Coroutine[Any, Any, T]]
    ) -> Coroutine[Any, Any, T]:
        if call.resource != PODS or call.verb in {"create", "delete"}:
            return send()
        if call.body is None:
            return self._record(send, None)
        return self._record(send, Request(compared_by(call.body), self.seen, self.seen.until_now()))

    async def _record(
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
            self.seen.note(reply)
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
                # A bookmark has no uid.
                if resource == PODS and "uid" in event.object["metadata"]:
                    self.seen.note(event.object)
                yield event
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
