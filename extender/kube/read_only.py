"""``ReadOnlyApi``: an ``Api`` that reads and never writes. What shadow mode runs on.

Whatever a part of the service tries, the API server sees nothing but lists, watches and gets: a
write is refused here, before anything is sent, with an error that says so, and counted. That holds
for events and leases, too.
"""

import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from extender.kube.api import Api, Forbidden
from extender.kube.forwarding import WRITE_VERBS, ApiCall, ForwardingApi

T = TypeVar("T")

log: Final = logging.getLogger(__name__)


class WriteRefused(Forbidden):
    """A write in shadow mode. It had no effect, and trying again has none either."""

    def __init__(self, verb: str, what: str) -> None:
        super().__init__(
            403,
            "ShadowMode",
            f"{verb} of {what} refused: shadow mode writes nothing (mode: active would)",
        )


class ReadOnlyApi(ForwardingApi):
    """Reads go to ``api``; every write raises WriteRefused. ``refused``: how often, by verb."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.refused: Counter[str] = Counter()

    async def _forward(self, call: ApiCall, send: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if call.verb not in WRITE_VERBS:
            return await send()
        self.refused[call.verb] += 1
        error = WriteRefused(call.verb, _what(call))
        log.warning("%s", error)
        raise error


def _what(call: ApiCall) -> str:
    kind = "pod" if call.verb == "bind" else call.collection
    return f"{kind} {call.namespace}/{call.name}" if call.namespace else f"{kind} {call.name}"
