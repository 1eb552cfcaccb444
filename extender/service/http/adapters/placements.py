"""``GET /v1/placements/NAMESPACE/NAME``: where a vpod's work is, for those who route to adapters.

.. code-block:: text

    -> {"vpod": "team-a/orders", "generation": 4711,
        "placements": [{"pod": "knative-eventing/dispatcher-0", "vreplicas": 3}]}

``placements`` are those of the vpod's published status, in its order. In a pool that hands shares
over, they are the pods that serve the vpod meanwhile (``engine.placing.handover.routable``). In a
pool with ``identity: Indexed``, each also has ``"indexes": "0-1,5"``, as its adapter is told. While
an index moves, two pods may have it.
``generation`` is the resourceVersion of the object: an answer of any replica that has a smaller one
is older, and is to be thrown away. ``?kind=KIND.GROUP`` asks for an object of a foreign kind, as
the vpod's key names it after its ``@``. ``?watch=true`` answers with JSON lines (``streams``), one
for each change of the placements.

A vpod that does not exist is 404. But a watch waits for it, with no placements: a resolver may
start before its tenant's object is there, and must learn as well that it is gone. ``generation`` is
then the newest version of the kind that this replica has seen: it is greater than any that the
object had. Vpods of ``POST /v1/schedule`` are known to their callers only.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import orjson
from aiohttp import web

from extender.config.model import DNS_LABEL, DNS_SUBDOMAIN
from extender.model.indexes import indexes_text
from extender.model.objects import AdapterPod, VPod
from extender.model.resource_versions import parse_version
from extender.service.http.adapters.assignments import watch_of
from extender.service.http.adapters.callers import CALLER, AdapterCaller, AdapterCallers
from extender.service.http.adapters.streams import LineStreams
from extender.service.http.verb_handlers import text_answer
from extender.service.placing.handovers import handover_facts
from extender.service.watching.caches import Caches

OF_CALLER_MAX: Final = 200
"""Streams of one pod, or of all tokens of one account."""
STREAMS_MAX: Final = 1_000
NAME_CHARS_MAX: Final = 253
_NAMESPACE: Final = re.compile(DNS_LABEL)
_NAME: Final = re.compile(DNS_SUBDOMAIN)

SeenVersion = Callable[[str], int]
"""Source of a vpod ("" for VPods) -> the newest resourceVersion of that kind that was seen."""
Routable = Callable[[VPod], Mapping[str, int]]
"""A vpod -> pod name -> vreplicas, where its work is to be sent."""
Placed = dict[str, object]
"""One of ``placements``."""
ToldIndexes = Callable[[str, str], Mapping[str, int]]
"""(Pool, vpod) -> pod name -> its set of indexes; empty in a pool without indexes."""


class PlacementAnswers:
    """Answers ``/v1/placements``."""

    def __init__(
        self,
        caches: Caches,
        callers: AdapterCallers,
        streams: LineStreams,
        *,
        routable: Routable,
        told_indexes: ToldIndexes,
        seen_version: SeenVersion,
    ) -> None:
        self._caches = caches
        self._callers = callers
        self._streams = streams
        self._routable = routable
        self._told_indexes = told_indexes
        self._seen_version = seen_version
        caches.vpods.add_event_handler(self._vpod_changed)
        caches.pods.add_event_handler(self._pod_changed)

    def _vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        changed = new or old
        if changed is not None:
            self._streams.changed(changed.key)

    def _pod_changed(self, old: AdapterPod | None, new: AdapterPod | None) -> None:
        """What adapters are told and say changes who serves, and so does the end of a pod."""
        if old is not None and new is not None and handover_facts(old) == handover_facts(new):
            return
        pod = new or old
        pool = self._caches.pools.get(pod.pool) if pod is not None else None
        if pod is None or pool is None or not (pool.hands_over or pool.is_indexed):
            return
        state = self._caches.state.pools.get(pod.pool)
        known = state.pods.get(pod.name) if state is not None else None
        for vpod in {**pod.ledger, **(known.claims if known is not None else {})}:
            self._streams.changed(vpod)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Handle a request of an allowed caller."""
        try:
            watch, key = watch_of(request), _key_of(request)
        except ValueError as error:
            return text_answer(request, 400, str(error))
        caller = request[CALLER]
        news = _PlacementNews(
            self._caches, self._callers, caller, key, self._placed, self._seen_version
        )
        if watch:
            return await self._streams.serve(request, news, subject=key, owner=caller.name)
        if self._caches.vpods.latest(key) is None:
            return text_answer(request, 404, f"vpod {key} does not exist")
        return web.Response(body=news.take(), content_type="application/json")

    def _placed(self, vpod: VPod) -> list[Placed]:
        namespace, indexes = vpod.pool.partition("/")[0], self._told_indexes(vpod.pool, vpod.key)
        return [
            _placed(f"{namespace}/{name}", count, indexes.get(name, 0))
            for name, count in self._routable(vpod).items()
        ]


def _placed(pod: str, vreplicas: int, indexes: int) -> Placed:
    if not indexes:
        return {"pod": pod, "vreplicas": vreplicas}
    count = indexes.bit_count()
    return {"pod": pod, "vreplicas": count, "indexes": indexes_text(indexes)}


def _key_of(request: web.Request) -> str:
    """The vpod's key. Raises ValueError."""
    namespace, name = request.match_info["namespace"], request.match_info["name"]
    kind = request.query.get("kind", "").lower()
    if not _NAMESPACE.fullmatch(namespace):
        raise ValueError("the namespace is no valid name")
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise ValueError("the name is no valid name")
    if kind and (len(kind) > 2 * NAME_CHARS_MAX or "." not in kind or not _NAME.fullmatch(kind)):
        raise ValueError("kind must be KIND.GROUP, such as kafkasource.sources.knative.dev")
    return f"{namespace}/{name}@{kind}" if kind else f"{namespace}/{name}"


class _PlacementNews:
    """The placements of one vpod, newest only."""

    def __init__(
        self,
        caches: Caches,
        callers: AdapterCallers,
        caller: AdapterCaller,
        key: str,
        placed: Callable[[VPod], list[Placed]],
        seen_version: SeenVersion,
    ) -> None:
        self._caches = caches
        self._callers = callers
        self._caller = caller
        self._key = key
        self._placed = placed
        self._seen_version = seen_version
        self._told: list[Placed] | None = None
        """As told last; None: nothing yet."""
        self._version = 0
        """The greatest generation that was told."""

    def ended(self) -> bool:
        """See News. Not for a vpod that is gone, which may come again."""
        return self._callers.find(self._caller.user) != self._caller

    def take(self) -> bytes:
        """See News."""
        vpod = self._caches.vpods.latest(self._key)
        placed = self._placed(vpod) if vpod is not None else []
        if placed == self._told:
            return b""
        self._told = placed
        version = (
            self._seen_version(self._key.partition("@")[2])
            if vpod is None
            else parse_version(vpod.resource_version)
        )
        # Nobody may watch the vpod's kind any more. What is told now is newer all the same.
        self._version = max(self._version, version or self._seen_version(""))
        answer = {
            "vpod": self._key,
            "generation": self._version,
            "placements": placed,
        }
        return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE)
