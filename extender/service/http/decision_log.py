"""``DecisionLog``: what this replica sees and decides, for ``vreplica record`` (``GET
/v1/decisions``).

Nothing is kept while nobody records. A request without ``since`` gets a snapshot, as lines of JSON.
From then on the state's changes and the placer's decisions go into a ring (``recording_buffer``),
each with a number. A request with ``since`` and ``journal`` (the name of the present recording)
gets what came after that number. Recording ends ``IDLE_S`` after the last request.

.. code-block:: text

    OFF --GET /v1/decisions--> ON: ring --GET ?since=N&journal=J--> lines after N, and
     ^                          |           |                       {"synced": {"seq": M}}
     |                          |           '-- 410: N has fallen out of the ring, or J is not
     '--- IDLE_S without any ---'                    this recording: begin anew

``wait``: seconds to wait for something new. Several clients may record at once. A replica that does
not lead decides nothing: its log has only objects, and its header names the leader.

``vreplica explain`` shows the past from ``decision_history``, which receives the same decisions. It
merges equal ones, forgets vpods that are gone, and has neither targets nor moves, so it cannot be
replayed.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web

from extender import __version__
from extender.engine.placing.plan import Decision
from extender.engine.state.cluster_state import ClusterState
from extender.kube.serving.readers import ask_again
from extender.model.moves import Move
from extender.service.http.recording_buffer import Lost, RecordingBuffer, as_lines
from extender.whatif.recording.entries import Cause, Header, Synced

IDLE_S: Final = 60.0
WAIT_MAX_S: Final = 30.0
READERS_MAX: Final = 8
"""Requests answered at once: they may wait, and a snapshot holds many references."""
SEQ_CHARS_MAX: Final = 20
"""Length of ``since``, which answers repeat."""
_KIND: Final = "application/jsonl"


class DecisionLog:
    """The log of ``state``. ``now``: epoch seconds. ``refusal``: why nothing is answered now; "" if
    it is.
    """

    def __init__(
        self,
        state: ClusterState,
        *,
        now: Callable[[], float],
        header: Callable[[], Header],
        refusal: Callable[[], str] = str,
    ) -> None:
        self.ring = RecordingBuffer(state, now=now, header=header)
        self.decisions = 0
        """Decisions since the start, recorded or not."""
        self._refusal = refusal
        self._readers = 0
        self._idle: asyncio.TimerHandle | None = None

    def decided(self, cause: Cause, decision: Decision, asked: Sequence[Move] = ()) -> None:
        """Record a decision, which the placer reserves next. ``asked``: the moves that it carries
        out.
        """
        self.decisions += 1
        if self.ring.journal:
            self.ring.writer.decided(cause, decision, asked)

    def close(self) -> None:
        """End the recording at once."""
        if self._idle is not None:
            self._idle.cancel()
        self.ring.end()

    def _keep_on(self) -> None:
        """After a request: record for another ``IDLE_S``. Begin if nothing is being recorded."""
        self.ring.begin()
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end)

    def _end(self) -> None:
        if self._readers:
            self._keep_on()
        else:
            self.ring.end()

    def add_routes(self, app: web.Application) -> None:
        """For ``ExtenderServer.questions``."""
        app.router.add_get("/v1/decisions", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if problem := self._refusal():
            return ask_again(problem)
        if self._readers >= READERS_MAX:
            return ask_again(f"{READERS_MAX} are recording already", 5)
        self._readers += 1
        try:
            if "since" not in request.query:
                return await self._snapshot(request)
            return await self._since(request)
        finally:
            self._readers -= 1

    async def _snapshot(self, request: web.Request) -> web.StreamResponse:
        self._keep_on()
        response = web.StreamResponse(headers={"Content-Type": _KIND})
        await response.prepare(request)
        async for lines in self.ring.snapshot():
            await response.write(lines)
        await response.write_eof()
        return response

    async def _since(self, request: web.Request) -> web.Response:
        try:
            since = _seq_from(request.query["since"])
            wait_s = min(float(request.query.get("wait", "0")), WAIT_MAX_S)
        except ValueError:
            return web.Response(status=400, text="since must be a number, and wait seconds\n")
        if not self.ring.journal or request.query.get("journal") != self.ring.journal:
            return web.Response(
                status=410, text="that journal has ended: begin anew, without since\n"
            )
        self._keep_on()
        try:
            lines, until = await self.ring.after(since, wait_s)
        except Lost as error:
            return web.Response(status=410, text=f"{error}: begin anew, without since\n")
        return web.Response(body=b"".join([*lines, as_lines([Synced(until)])]), content_type=_KIND)


def _seq_from(text: str) -> int:
    """Decode ``since``. Raises ValueError, also if it is longer than any number that occurs."""
    if len(text) > SEQ_CHARS_MAX:
        raise ValueError("too long")
    return int(text)


def new_header(identity: str, leader: str, state: ClusterState, *, shadow: bool) -> Header:
    """The header of a snapshot. In shadow mode its source is "cluster", because the decisions seen
    are another scheduler's.
    """
    used = {
        pool.adapter_pool.profile for pool in state.pools.values() if pool.adapter_pool is not None
    }
    source = "cluster" if shadow else "replica"
    return Header(source, 0.0, __version__, identity, leader, profiles=tuple(sorted(used)))
