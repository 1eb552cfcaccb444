"""``FaultyTransport``: extender calls that are lost, repeated or late, whose answer is lost, or
that name unknown objects.
"""

from asyncio import sleep
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from extender.lab.faults.dice import Faults
from extender.lab.scheduler.extender_transport import TIMED_OUT, Transport, TransportError

Answer = tuple[int, bytes]
OnRepeated = Callable[[str, bytes, Answer, Answer], None]
Hints = Callable[[str, str, str], str]
"""(namespace, pod name, node) -> UID of a former pod of that name that was not on the node; "" if
none is known.
"""
UNKNOWN_NODE: Final = "node-nobody-knows"


def no_hints(_namespace: str, _name: str, _node: str) -> str:
    """Return no UID."""
    return ""


class FaultyTransport:
    """A ``Transport`` with the faults of extender calls.

    ``on_repeated(url, body, first, second)`` gets both answers to a call that was sent twice.
    ``on_odd(what, answer)`` gets the answer to a call that must not be granted.
    """

    def __init__(
        self,
        transport: Transport,
        faults: Faults,
        *,
        on_repeated: OnRepeated,
        on_odd: Callable[[str, Answer], None] = lambda _what, _answer: None,
        former_uid: Hints = no_hints,
    ) -> None:
        self._transport = transport
        self._faults = faults
        self._on_repeated = on_repeated
        self._on_odd = on_odd
        self._former_uid = former_uid

    async def __call__(self, url: str, body: bytes, timeout_s: float) -> Answer:
        """Send a POST, unless a fault prevents it. Raises TransportError."""
        verb = url.rpartition("/")[2]
        if self._faults.hits("extender_call_lost"):
            await _time_out(timeout_s)
        handlers: dict[str, Callable[[str, bytes, float], Awaitable[Answer]]] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "bind": self._bind,
        }
        await self._faults.delay()
        return await handlers.get(verb, self._transport)(url, body, timeout_s)

    async def _filter(self, url: str, body: bytes, timeout_s: float) -> Answer:
        if self._faults.hits("filter_one_node"):
            await self._odd(
                "filter with one node", url, _with_nodes(body, lambda nodes: nodes[:1]), timeout_s
            )
        if self._faults.hits("filter_unknown_node"):
            asked = _with_nodes(body, lambda nodes: [*nodes, UNKNOWN_NODE])
            await self._odd("filter with an unknown node", url, asked, timeout_s)
        answer = await self._transport(url, body, timeout_s)
        if self._faults.hits("filter_repeated"):
            answer = await self._again(url, body, timeout_s, answer)
        if self._faults.hits("filter_reply_lost"):
            await _time_out(timeout_s)
        return answer

    async def _prioritize(self, url: str, body: bytes, timeout_s: float) -> Answer:
        if self._faults.hits("prioritize_lost"):
            await _time_out(timeout_s)
        return await self._transport(url, body, timeout_s)

    async def _bind(self, url: str, body: bytes, timeout_s: float) -> Answer:
        if self._faults.hits("bind_unknown_node"):
            asked = _with(body, Node=UNKNOWN_NODE)
            await self._odd("bind to an unknown node", url, asked, timeout_s)
        if self._faults.hits("bind_stale_uid"):
            args = orjson.loads(body)
            former = self._former_uid(args["PodNamespace"], args["PodName"], args["Node"])
            if former and former != args["PodUID"]:
                await self._odd("bind of a former pod", url, _with(body, PodUID=former), timeout_s)
        if self._faults.hits("bind_late"):
            await sleep(timeout_s + self._faults.seconds())
            await self._transport(url, body, timeout_s)
            raise TransportError(TIMED_OUT)
        answer = await self._transport(url, body, timeout_s)
        if self._faults.hits("bind_repeated"):
            answer = await self._again(url, body, timeout_s, answer)
        if self._faults.hits("bind_answer_lost"):
            await _time_out(timeout_s)
        return answer

    async def _again(self, url: str, body: bytes, timeout_s: float, first: Answer) -> Answer:
        second = await self._transport(url, body, timeout_s)
        self._on_repeated(url, body, first, second)
        return second

    async def _odd(self, what: str, url: str, body: bytes, timeout_s: float) -> None:
        """Make a call that precedes the real one, from kube-scheduler or somebody in its name."""
        self._on_odd(what, await self._transport(url, body, timeout_s))


async def _time_out(timeout_s: float) -> None:
    await sleep(timeout_s)
    raise TransportError(TIMED_OUT)


def _with(body: bytes, **values: object) -> bytes:
    return orjson.dumps({**orjson.loads(body), **values})


def _with_nodes(body: bytes, change: Callable[[list[Any]], list[Any]]) -> bytes:
    """Return the arguments of filter with other node names. Whole nodes do not change."""
    args = orjson.loads(body)
    names = args.get("NodeNames")
    return orjson.dumps({**args, "NodeNames": change(names)}) if names else body
