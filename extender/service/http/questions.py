"""``GET /v1/explain`` and ``POST /v1/plan``: questions about this replica's state, answered without
delaying its work.

.. code-block:: text

    GET  /v1/explain?vpod=NAMESPACE/NAME   (?pod=NAMESPACE/NAME)   where it is and why, and what
                                                                   would place the rest of it
    POST /v1/plan {"pool": "ns/name", "drain": ["node/y"], ...}    what would happen if; see
                                                                   ``whatif.request``

The event loop only copies references of the pool (a ``Snapshot``; some milliseconds for the largest
that is allowed). The rest runs in a thread, on a state of its own. One question is answered at a
time; a few wait, and more get 503. Each has a deadline of ``deadline_s``. If a partial answer makes
sense by then, it is returned (``fixesCutShort``), otherwise a 504. The thread checks the deadline
itself, and the next question waits until the thread ends.

Answers are JSON, also errors: ``{"error": "..."}``. The listener decides who may ask, as for
``/state.json``.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

import orjson
from aiohttp import web

from extender.kube.serving.bodies import (
    ArrivalLimits,
    BodiesTooLarge,
    BodyBudget,
    BodyShare,
    BodyTooLarge,
    BodyTooSlow,
)
from extender.kube.serving.listener import LastAnswer, body_of
from extender.model.errors import InvalidObject, VReplicaError
from extender.model.reading import decode_json
from extender.model.safe_repr import safe_repr
from extender.service.placing.decision_history import DecisionHistory
from extender.service.pools.load_reports import LoadReports
from extender.service.watching.caches import Caches
from extender.whatif.explanation import (
    Answer,
    UnknownObject,
    explain_vpod,
    history_from_conditions,
    pool_of_vpod,
    vpod_key,
)
from extender.whatif.left_out import pools_asked
from extender.whatif.lift import nearest_pools
from extender.whatif.pod_explanation import explain_pod, find_pod
from extender.whatif.request import change_from, pool_from
from extender.whatif.snapshot import Snapshot, SnapshotTooLarge
from extender.whatif.trial import OutOfTime
from extender.whatif.whatif import what_if

DEADLINE_S: Final = 10.0
"""How long a person waits."""
FIXES_SHARE: Final = 0.4
"""Share of the deadline for trying changes: the rest of the answer is worth more than one more
change.
"""
WAITING_MAX: Final = 4
BODY_BYTES_MAX: Final = 1024 * 1024
BODIES_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of all bodies that wait or arrive. Separate from the verbs' limit, so that questions cannot
displace verbs.
"""
ARRIVING_MAX: Final = 16
AT_ONCE_BYTES: Final = 16 * 1024
"""A body up to this size is decoded at once. Larger ones are decoded one after the other in a
thread: a megabyte takes four milliseconds, and hundreds may arrive together.
"""
REST_S: Final = 0.02
"""Pause after a refused large body, so that a flood of them uses a fifth of a processor."""
RETRY_AFTER_S: Final = 1
POOLS_LISTED: Final = 10
POOLS_BESIDE: Final = 2
"""Existing pools to examine for a vpod whose own pool does not exist."""

NOBODY_LEADS: Final = "no replica leads the pool now: nothing is decided or written until one does"

Waits = Callable[[str, str], list[str]]
TakenBack = Callable[[str, str], bool]
Expired = Callable[[], bool]
Work = Callable[[Expired], Answer]

_KEY: Final = re.compile(r"[-a-z0-9.]{1,253}/[-a-z0-9.]{1,253}(@[-a-z0-9.]{1,320})?")


def _nothing_waits(_pool: str, _vpod: str) -> list[str]:
    return []


def _none_taken_back(_pool: str, _vpod: str) -> bool:
    return False


class Refused(VReplicaError):
    """No answer, with HTTP status ``status``. ``unread``: the body is incomplete, and nobody waits
    for the rest.
    """

    def __init__(self, status: int, message: str, *, unread: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.unread = unread


class Questions:
    """Answers questions about ``caches``. ``refusal``: why none is answered now; "" if they are."""

    def __init__(  # noqa: PLR0913 (each is a different source of the answer)
        self,
        caches: Caches,
        *,
        history: DecisionHistory,
        refusal: Callable[[], str],
        who: Callable[[str], dict[str, object]],
        load: LoadReports | None = None,
        waits: Waits = _nothing_waits,
        taken_back: TakenBack = _none_taken_back,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """``who``: for a pool key, the fields of an answer that name this replica and the pool's
        leader. ``load``: what is reported to it. ``waits``: for a pool and a vpod, what a hand-over
        waits for, in sentences. ``taken_back``: whether its hand-over was taken back, so that its
        next decision leaves it where it is.
        """
        self._load = load
        self._waits = waits
        self._taken_back = taken_back
        self._caches = caches
        self._history = history
        self._refusal = refusal
        self._who = who
        self._deadline_s = deadline_s
        self._waiting = 0
        self._bodies = BodyBudget(BODIES_BYTES_MAX, ArrivalLimits(arriving_max=ARRIVING_MAX))
        self._turn = asyncio.Lock()
        self._decoding = asyncio.Lock()

    def add_routes(self, app: web.Application) -> None:
        """For ``ExtenderServer.questions``."""
        app.router.add_get("/v1/explain", self._explain)
        app.router.add_post("/v1/plan", self._plan)

    # -- the routes --------------------------------------------------------------------------------

    async def _explain(self, request: web.Request) -> web.Response:
        explained = self.explain(request.query.get("vpod", ""), request.query.get("pod", ""))
        return await self._respond(request, explained)

    async def _plan(self, request: web.Request) -> web.Response:
        with self._bodies.share() as share:
            return await self._respond(request, self._planned(request, share))

    async def _planned(self, request: web.Request, share: BodyShare) -> bytes:
        if request.content_type != "application/json" or "Content-Encoding" in request.headers:
            raise Refused(415, "the body must be application/json, and not encoded")
        try:
            async with asyncio.timeout(self._deadline_s):
                body = await share.read(
                    body_of(request), bytes_max=BODY_BYTES_MAX, announced=request.content_length
                )
        except TimeoutError as error:
            message = f"the body did not arrive within {self._deadline_s:g} s"
            raise Refused(408, message, unread=True) from error
        except BodyTooSlow as error:
            raise Refused(408, str(error), unread=True) from error
        except BodyTooLarge as error:
            raise Refused(413, str(error)) from error
        except BodiesTooLarge as error:
            message = f"{error}; ask again in a moment"
            raise Refused(503, message, unread=True) from error
        return await self.plan(body)

    async def _respond(
        self, request: web.Request, answer: Coroutine[None, None, bytes]
    ) -> web.Response:
        if problem := self._refusal():
            answer.close()
            return _error(503, problem)
        try:
            return web.Response(body=await answer, content_type="application/json")
        except Refused as error:
            return _error(error.status, str(error), last_of=request if error.unread else None)
        except UnknownObject as error:
            return _error(404, str(error))
        except InvalidObject as error:
            return _error(400, str(error))
        except SnapshotTooLarge as error:
            return _error(413, str(error))

    # -- the answers -------------------------------------------------------------------------------

    async def explain(self, vpod: str, pod: str) -> bytes:
        """Explain a vpod or a pod, by ``namespace/name``. Raises Refused, UnknownObject,
        SnapshotTooLarge.
        """
        if bool(vpod) == bool(pod):
            raise Refused(400, "ask for one of ?vpod=NAMESPACE/NAME and ?pod=NAMESPACE/NAME")
        key = vpod or pod
        if not _KEY.fullmatch(key):
            raise Refused(400, f"{safe_repr(key)} is not NAMESPACE/NAME")
        return await (self._explain_vpod(key) if vpod else self._explain_pod(key))

    async def _explain_vpod(self, asked: str) -> bytes:
        def prepare() -> Work:
            key = vpod_key(self._caches.state, asked)
            pool = pool_of_vpod(self._caches.state, key)
            keys = [pool.key]
            if pool.adapter_pool is None:
                keys += [
                    one.key
                    for one in nearest_pools(self._caches.pools.list(), pool.key)[:POOLS_BESIDE]
                ]
            snapshot = Snapshot.of(self._caches.state, keys)
            history = self._history.history(key) or history_from_conditions(pool.vpods[key])
            who, load = self._who(pool.key), self._load.of_vpod(pool, key) if self._load else []
            waits, taken_back = self._waits(pool.key, key), self._taken_back(pool.key, key)

            def work(expired: Expired) -> Answer:
                answer = explain_vpod(
                    snapshot.state(), key, history=history, taken_back=taken_back, expired=expired
                )
                answer |= who
                _add_steps(answer, [*load, *waits])
                if not answer["leader"]:
                    answer["outcome"] = f"{answer['outcome']}; {NOBODY_LEADS}"
                return answer

            return work

        return await self._in_turn(prepare, share=FIXES_SHARE)

    async def _explain_pod(self, key: str) -> bytes:
        def prepare() -> Work:
            pool, known = find_pod(self._caches.state, key)
            snapshot, who = Snapshot.of(self._caches.state, [pool.key]), self._who(pool.key)
            load = self._load.of_pod(pool.key, known.name) if self._load else []

            def work(expired: Expired) -> Answer:
                answer = explain_pod(snapshot.state(), key, expired=expired) | who
                _add_steps(answer, load)
                return answer

            return work

        return await self._in_turn(prepare, share=FIXES_SHARE)

    async def plan(self, body: bytes) -> bytes:
        """Say what would happen if. Raises Refused, InvalidObject, UnknownObject,
        SnapshotTooLarge.
        """
        at_once = len(body) <= AT_ONCE_BYTES
        document = _decoded(body) if at_once else await self._decoded_beside(body)
        return await self._in_turn(lambda: self._planning(document))

    async def _decoded_beside(self, body: bytes) -> dict[str, object]:
        """Decode in a thread, one body after the other."""
        async with self._decoding:
            try:
                return await asyncio.to_thread(_decoded, body)
            except Refused:
                await asyncio.sleep(REST_S)
                raise

    def _planning(self, document: dict[str, object]) -> Work:
        known = sorted(pool.key for pool in self._caches.pools.list())
        asked = pool_from(document)
        if asked and asked not in known:
            listed = ", ".join(known[:POOLS_LISTED]) or "none"
            raise UnknownObject(f"AdapterPool {asked:.300} does not exist (known: {listed})")
        keys = [asked] if asked else pools_asked(self._caches.state)
        one = asked or (known[0] if len(known) == 1 else "")
        change = change_from(document, pool=one)
        snapshot, who = Snapshot.of(self._caches.state, keys), self._who(one)
        return lambda expired: what_if(snapshot, change, expired=expired) | who

    async def _in_turn(self, prepare: Callable[[], Work], *, share: float = 1.0) -> bytes:
        """Run ``prepare`` on the loop and its work in a thread, one question after the other. The
        work gets ``share`` of the deadline.
        """
        if self._waiting >= WAITING_MAX:
            raise Refused(503, f"{self._waiting} questions wait already; ask again in a moment")
        self._waiting += 1
        given_up = threading.Event()
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._deadline_s
        try:
            async with asyncio.timeout_at(ends):
                await self._turn.acquire()
                try:
                    work = prepare()
                except BaseException:
                    self._turn.release()
                    raise
                stop_at = time.monotonic() + share * (ends - loop.time())

                def expired() -> bool:
                    return given_up.is_set() or time.monotonic() >= stop_at

                answering = asyncio.create_task(asyncio.to_thread(_computed, work, expired))
                # The turn ends with the thread, even if nobody waits for it any more: two threads
                # never run at once.
                answering.add_done_callback(self._turn_ends)
                return await asyncio.shield(answering)
        except (TimeoutError, OutOfTime) as error:
            raise Refused(
                504, f"not answered within {self._deadline_s:g} s: ask about less"
            ) from error
        finally:
            given_up.set()
            self._waiting -= 1

    def _turn_ends(self, answering: "asyncio.Task[bytes]") -> None:
        self._turn.release()
        if not answering.cancelled():
            answering.exception()  # the client may have gone


def _decoded(body: bytes) -> dict[str, object]:
    try:
        document = decode_json(body)
    except ValueError as error:
        raise Refused(400, f"the body {error}") from error
    if not isinstance(document, dict):
        raise Refused(400, "the body must be an object")
    return document


def _add_steps(answer: Answer, sentences: list[str]) -> None:
    if isinstance(steps := answer["steps"], list):
        answer["steps"] = [*steps, *sentences]


def _computed(work: Work, expired: Expired) -> bytes:
    return orjson.dumps(work(expired))


def _error(status: int, message: str, last_of: web.Request | None = None) -> web.Response:
    """``last_of``: a request with whose answer its connection ends."""
    text = orjson.dumps({"error": message}).decode()
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    answer = web.Response if last_of is None else partial(LastAnswer, last_of)
    return answer(status=status, text=text, content_type="application/json", headers=headers)
