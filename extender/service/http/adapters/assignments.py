"""``GET /v1/assignment``: what an adapter pod is told, as this replica knows it.

.. code-block:: text

    GET /v1/assignment             -> the text of the pod's annotation vreplica.dev/assignment
    GET /v1/assignment?watch=true  -> it, and each newer one, as JSON lines (``streams``)

Any replica answers, from its cache: the leader's has an assignment with the reply to its write, the
others' with the event of their watch. A line has a greater ``generation`` than the line before.
"""

from typing import Final

import orjson
from aiohttp import web

from extender.kube.serving.readers import ask_again
from extender.model.objects import AdapterPod, AdapterPool
from extender.service.http.adapters.callers import (
    CALLER,
    PLACEMENTS_ONLY,
    AdapterCaller,
    AdapterCallers,
)
from extender.service.http.adapters.streams import LineStreams
from extender.service.http.verb_handlers import text_answer
from extender.service.pools.assignments import own_assignment, tells_adapters
from extender.service.watching.caches import Caches

OF_POD_MAX: Final = 2
"""Streams of one pod: an adapter that connects anew may have forgotten one."""
STREAMS_MAX: Final = 3_000
"""With those of ``placements``, 210 MiB."""
_WATCH: Final = {"": False, "false": False, "true": True}


def watch_of(request: web.Request) -> bool:
    """Whether the request has ``?watch=true``. Raises ValueError for another value."""
    asked = request.query.get("watch", "")
    if asked not in _WATCH:
        raise ValueError("watch must be true or false")
    return _WATCH[asked]


def no_handoff(pod: AdapterPod) -> str:
    """Why an adapter of a pool without hand-over is told nothing."""
    return (
        f"AdapterPool {pod.pool} has no spec.handoff: its adapters are told no assignment; their "
        "shares are in the annotation vreplica.dev/placements"
    )


class AssignmentAnswers:
    """Answers ``/v1/assignment``."""

    def __init__(self, caches: Caches, callers: AdapterCallers, streams: LineStreams) -> None:
        self._caches = caches
        self._callers = callers
        self._streams = streams
        caches.pods.add_event_handler(self._pod_changed)
        caches.pools.add_event_handler(self._pool_changed)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        changed = new or old
        if changed is not None:
            self._streams.changed(changed.key)

    def _pool_changed(self, old: AdapterPool | None, new: AdapterPool | None) -> None:
        if old is None or new is None or old.handoff != new.handoff:
            self._streams.all_changed()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Handle a request of an allowed caller."""
        caller = request[CALLER]
        if not caller.pod:
            return text_answer(request, 403, PLACEMENTS_ONLY)
        try:
            watch = watch_of(request)
        except ValueError as error:
            return text_answer(request, 400, str(error))
        pod = self._caches.pods.latest(caller.pod)
        if pod is not None and not tells_adapters(self._caches, pod.pool):
            return text_answer(request, 404, no_handoff(pod))
        if watch:
            news = _AssignmentNews(self._caches, self._callers, caller)
            return await self._streams.serve(
                request, news, subject=caller.pod, owner=f"{caller.pod} {caller.uid}"
            )
        if pod is None or own_assignment(pod) is None:
            return ask_again(f"pod {caller.pod} has no assignment yet: its pool's leader writes it")
        return web.Response(text=pod.assignment_text, content_type="application/json")


class _AssignmentNews:
    """The assignments of one pod, newest only."""

    def __init__(self, caches: Caches, callers: AdapterCallers, caller: AdapterCaller) -> None:
        self._caches = caches
        self._callers = callers
        self._caller = caller
        self._text: str | None = None
        """Looked at last."""
        self._generation = 0
        """Told last."""

    def ended(self) -> bool:
        """See News."""
        found = self._callers.find(self._caller.user)
        pod = self._caches.pods.latest(self._caller.pod)
        return found != self._caller or pod is None or not tells_adapters(self._caches, pod.pool)

    def take(self) -> bytes:
        """See News."""
        pod = self._caches.pods.latest(self._caller.pod)
        if pod is None or pod.assignment_text == self._text:
            return b""
        self._text = text = pod.assignment_text
        known = own_assignment(pod)
        if text is None or known is None or known.generation <= self._generation:
            return b""
        self._generation = known.generation
        # A person may have put it on several lines.
        return (text.encode() if text.isprintable() else orjson.dumps(orjson.loads(text))) + b"\n"
